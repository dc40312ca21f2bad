"""Blender: blends and rows over gRPC."""
