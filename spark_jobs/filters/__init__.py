"""Filters: what is measured of texts, and what is judged by it."""
