"""Factories of assets: datasets, corpora, models and blends as declared, and what maintains and watches the lake."""
