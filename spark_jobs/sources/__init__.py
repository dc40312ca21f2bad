"""Ingest: list the files of a source, read the new or changed ones once, and land them as documents.

A file's way, each room importing only those before it in this list:

refusals.py        why a file is no document; languages.py, licences.py, identity.py: what names and texts tell
opening/           bytes at a location: trees of files, the web, archives and compression, the child for hostile files
config/            what users declare: a model for each kind of source, and the interfaces of sources and readers
encodings/         bytes become text
records/           what readers and kinds give: texts, records, facts
formats/           files of records with columns, texts in any encoding; a leaf for each format
kinds.py           what the steps ask of a kind of source, and where the code of each is
reading/           by its reader, a listed file becomes rows; built_in.py says where the code of each reader is
listing/           which of the listed files of a kind are new, changed or gone
files.py           the kind of all sources of files
repositories/      those of packages and of Python's distributions
git/  paged/       those of git; what kinds with records kept page by page have in common, as features bring them
landing/           where from, which revision is the latest, and back from a document to its bytes
documents.py       the step: tables documents, repositories, arrivals, provenance
released.py        the step to carry over what was in quarantine

Kinds and formats are found by their names; documents, landing, listing and reading import none of them.
"""
