"""Finds definitions and uses of names, by parsers in a child process."""
