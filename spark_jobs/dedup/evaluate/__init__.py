"""Evaluate deduplication: recall against brute force on a sample, scores against known pairs."""
