"""Texts: the normalized text of each document, and measures of it."""
