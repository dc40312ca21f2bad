"""Repositories: the dependencies between their files, and the order in which the files are packed.

Two steps, `dependencies` (per dataset) and `ordered` (per corpus). `imports` and `syntax` find dependencies, `order`
sorts files by them.
"""
