"""Read what is listed: bytes become rows, by the reader that a file's name, content or declaration asks for.

readers.py         which reader a file has; content_types.py tells by content, languages.py by name
files.py           files that are one document, each a row (rows.py); decoding.py makes text of bytes
record_files.py    files of records: records.py, csv_records.py, parquet_records.py
plain_values.py    values of records as texts
archive_files.py   files of files
identity.py        doc_id and shard
"""
