"""Readers of the core: records with columns, plain texts; the feature `formats` has pages, office files and mail.

jsonl_records.py, csv_records.py, parquet_records.py (parquet_batches.py: its child)   records with columns
json_records.py    files of JSON objects; parquet_leaves.py, parquet_paths.py, variants.py: values of Parquet
front_matter.py    what stands above Markdown; legacy_encoding.py: texts in any encoding
"""
