"""Texts: what goes on of each document, what is measured of it, and the verdicts drawn from the measures."""

__all__ = ["characters", "letters", "measures", "normalization", "signals", "text_columns", "texts", "verdicts"]
