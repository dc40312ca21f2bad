"""Objectives of documents: fill in the middle, tokens without loss, headers."""
