"""Ingest: list the files of a source, read those that are new or changed once, and land them as documents.

documents.py       the step: config, tables documents, repositories and arrivals; provenance.py its fourth table
source_config.py   the kinds of sources a user declares
listed_files.py    which files there are; listing.py which of them are new, changed or gone; listing_rows.py its columns
file_trees.py      files below a path, here or elsewhere (remote_trees.py)
git/               the same for git repositories, with the bytes of their objects
api/               paged APIs and lists of addresses: fetched, then read like files; streams.py for what never ends
repositories/      what is known about repositories and packages
reading/           the bytes of listed files become rows
formats/           the formats whose text has to be extracted or taken apart
revisions.py       which document is the latest at its path: what returned, what is gone
landed.py          back from a document to the bytes that landed
released.py        the step that carries over what was in quarantine
schema_changes.py, ocr_report.py   steps that tell of fields of an API, and of pages of scans
"""
