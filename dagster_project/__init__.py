"""headrace's Dagster project: which tables exist, what they depend on, and how people run them.

`table_asset` makes an asset of a function or of a step; `datasets` and `corpora` are factories that do so for whole
pipelines, `blends` for blends; `components` reads their declarations from YAML; `inspect` answers questions about a
lake; `cli` is the command `headrace`.
"""
