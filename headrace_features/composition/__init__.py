"""Compositions: cells of a corpus, curves of repeats, planned mixes, repeats that are counted."""
