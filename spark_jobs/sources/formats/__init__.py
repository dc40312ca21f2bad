"""Formats whose text has to be extracted: pages, web archives, and the files of everyday work.

extraction.py      which extractor serves which reader, what it gives, and which packages it needs
parser_process.py  runs an extractor in a process that a hostile file can end, but not the others
html.py            a page; its bytes are decoded by page_encoding.py
office.py          Word documents and mails
ocr.py             files of pages: pdf.py and scans.py give layers and pictures, layer_score.py says whether a layer is
                   text, reading_order.py puts recognised lines in order
web_archives.py    the records of WARC and WET files, over gzip_members.py; http_bodies.py is what a server answered
archives.py        the members of zip and tar files within limits, over compression.py
"""
