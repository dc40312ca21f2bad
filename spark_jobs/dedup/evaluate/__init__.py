"""Evaluate deduplication: recall against brute force on a sample, runs of words."""
