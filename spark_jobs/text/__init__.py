"""Texts: what goes on of each document, what is measured of it, and the verdicts drawn from the measures."""
