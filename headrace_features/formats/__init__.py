"""Formats with text to extract or records to take apart, a leaf each; readers.py has all.

web/               pages, saved pages, books
word/              Word documents
pages/             files of pages, PDF and scans: their text layer, or what is recognised; ocr_report.py tells of each
web_archives.py    WARC and WET files; warc_records.py finds their records
mail.py            mails (mail_parts.py: their parts); mailboxes.py, notebooks.py, xml_elements.py, log_lines.py
"""
