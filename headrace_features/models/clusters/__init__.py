"""Clusters: documents as vectors, frozen centroids, and the cluster of each document."""
