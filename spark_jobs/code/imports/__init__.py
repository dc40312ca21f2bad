"""Resolvers find the files that each file of a repository imports; a module or two for each language."""
