"""What readers and kinds of sources give, whatever the format and the kind.

extracted.py      the text of a document, and what its file says about it
records.py        a record of a file, or why it is none; lines and objects of JSON, the parts of several formats
plain_values.py   values as texts
facts.py          what is known about a repository
"""
