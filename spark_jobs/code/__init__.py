"""Repositories: which files depend on which others, and the order in which the files are packed.

Two steps, `dependencies` (of a dataset) and `ordered` (of a corpus). `imports` and `syntax` find dependencies, `order`
turns them into an order.
"""
