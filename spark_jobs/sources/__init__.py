"""Ingest: list the files of a source, read those that are new or changed once, and land them as documents.

documents.py      the step: config, tables documents, repositories and arrivals
source_config.py  the kinds of sources a user declares
listing.py        which files there are, and which arrived before; uses file_trees.py and repositories.py
git/              the same for git repositories, with the bytes of their objects
formats/          readers of pages, web archives, PDF, scans, Word and mail
ocr_report.py     the step that says of each page where its text is from
reading.py        the bytes of listed files as rows (rows.py): of files that are one document, decoding.py, modules.py
record_reading.py the same for files of records, records.py
archive_reading.py the same for files of files; packages.py says which packages are taken, and what is known of them
content_types.py  what a file is by its bytes
revisions.py      which document is the latest at its path: what returned, what is gone
identity.py       doc_id and shard
"""
