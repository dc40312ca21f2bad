"""headrace's Dagster project: which tables exist, what they depend on, and how people run them.

`table_asset` makes an asset of a function or of a step; `assets` has factories for whole datasets, corpora,
models and blends; `components` reads their declarations from YAML; `inspect` answers questions about a lake; `cli` is
the command `headrace`.
"""
