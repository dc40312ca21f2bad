"""Deduplication of whole repositories: bags of their files, pairs, components, containments, removals."""
