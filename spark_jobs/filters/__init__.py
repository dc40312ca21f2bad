"""Filters: what is measured of texts beyond their signals, and how it is judged."""
