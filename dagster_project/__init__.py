"""headrace's Dagster project: which tables exist, what they depend on, and how people run them.

`table_asset.table_asset` declares one table; `datasets.dataset_assets` and `corpora.corpus_assets` are factories that
call it for whole pipelines; `components` makes them out of YAML; `cli` is the command `headrace`.
"""
