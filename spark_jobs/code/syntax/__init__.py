"""Definitions and uses of names, by parsers that run in a process of their own."""
