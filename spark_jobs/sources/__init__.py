"""Ingest: list the files of a source, read those that are new or changed once, and land them as documents.

A file's way, each room importing only those before it in this list:

refusals.py        why a file is no document; languages.py, licences.py, identity.py: what names and texts tell
opening/           bytes at a location: trees of files, the web, archives and compression, the child for hostile files
config/            what users declare: a model for each kind of source, and the interfaces of sources and readers
encodings/         bytes become text
formats/           what has to be extracted or taken apart, a leaf for each format
repositories/      what is known about repositories and packages
git/  api/         repositories of git; paged APIs, lists of addresses, streams: fetched, then read like files
reading/           by its reader, a listed file becomes rows
listing/           which files there are, and which of them are new, changed or gone
landing/           where from, which revision is the latest, and back from a document to its bytes
documents.py       the step: tables documents, repositories, arrivals, provenance
released.py        the step that carries over what was in quarantine
schema_changes.py, ocr_report.py   steps about fields of an API, and pages of scans
"""
