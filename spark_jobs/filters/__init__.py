"""Filters: what is measured of texts to judge them, and the policies that judge."""
