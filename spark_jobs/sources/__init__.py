"""Where data comes from: sources are listed, what is new is read once, and lands as documents.

documents.py      the step: config, tables documents, repositories and arrivals
source_config.py  the kinds of sources a user declares
listing.py        which files there are, and which arrived before; on file_trees.py and repositories.py
reading.py        the bytes of listed files as rows; on decoding.py, modules.py and records.py
revisions.py      which document is the latest at its path: what returned, what is gone
identity.py       doc_id and shard
"""
