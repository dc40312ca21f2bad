"""Resolvers find the imports of each file of a repository among its files; a module or two for each language."""
