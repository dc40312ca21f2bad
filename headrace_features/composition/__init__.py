"""Composition of a corpus: cells of its documents by values, bounds and quantiles, and what they hold."""
