"""Formats whose text has to be extracted: pages, web archives, and the files of everyday work.

extraction.py      which extractor serves which reader, what it gives, and which packages it needs
parser_process.py  runs an extractor in a process that a hostile file can end, but not the others
parquet_batches.py reads Parquet there; reading/parquet_records.py makes records of it
html.py            a page; main_text.py is its article, page_encoding.py decodes it, prescan.py is what it declares
office.py          Word documents and mails
pages/             files of pages, PDF and scans: their text layer, or what is recognised
web_archives.py    WARC and WET files; warc_records.py finds their records, http_bodies.py is what a server sent
compressed/        the members of zip and tar files within limits, and gzip members
"""
