"""Passages: spans of words that stand in several documents, found by winnowing; and texts without the later copies."""
