"""Formats whose text has to be extracted or whose records have to be taken apart, a leaf each.

jsonl_records.py, csv_records.py, parquet_records.py (parquet_batches.py: its child)   records with columns
web/               pages, saved pages, books
json_records.py    files of JSON objects; parquet_leaves.py, parquet_paths.py, variants.py: values of Parquet
mail.py            mails (mail_parts.py: their parts); mailboxes.py, notebooks.py, xml_elements.py, log_lines.py
word/              Word documents
pages/             files of pages, PDF and scans: their text layer, or what is recognised
web_archives.py    WARC and WET files; warc_records.py finds their records
"""
