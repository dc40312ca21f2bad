"""Semantic duplicates: survivors with vectors, by a sentence encoder, of nearly the same direction."""
