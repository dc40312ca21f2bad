"""Texts: what goes on of each document, and what is measured of it."""
