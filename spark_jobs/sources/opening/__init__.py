"""From a location to plain bytes: nothing here knows what a document is.

file_trees.py      files below a path, here or elsewhere (remote_trees.py)
streams.py         read once and hashed on the way; compression.py, archives.py within limits.py
http_bodies.py     a body as a browser would have it
parser_process.py  runs a parser in a process of its own: a hostile file can end it, but not the others
"""
