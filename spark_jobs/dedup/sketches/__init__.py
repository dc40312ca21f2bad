"""Sketches of weighted bags: draws, signatures, bands, and the similarity that they estimate."""
