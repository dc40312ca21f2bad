"""Read what is listed: bytes become rows, by the reader for a file's name, content or declaration.

built_in.py        the readers of headrace: what each gives, its function, the packages it needs
readers.py         which reader a file has by its name; content_types.py by its content
files.py           files of one document, each a row (rows.py)
record_files.py    files of records; archive_files.py files of files; foreign.py those of readers of packages
"""
