"""Clusters: documents as vectors, frozen centroids, and what cluster each document is in."""
