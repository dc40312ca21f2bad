"""Repositories: which of their files need which, and the order in which they are read.

`dependencies` (per dataset) -> `ordered` (per corpus); each is a step, the other modules here are their kernels.
"""
