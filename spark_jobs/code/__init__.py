"""Repositories: the order in which the documents of one repository are read."""

__all__ = ["ordered"]
