"""What licence something has: expressions of SPDX, names, headers of files, manifests, metadata, texts."""
