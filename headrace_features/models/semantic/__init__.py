"""Semantic duplicates: survivors whose vectors, by a sentence encoder, have nearly the same direction."""
