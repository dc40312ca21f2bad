"""Imports of Cython between the files of a repository.

cimport a.b    from a cimport b    from . cimport c      the declarations (.pxd) of that module
import a.b     from a import b                           the module, as in Python
from cython.cimports.a import b                          the same, as a .py says it
include "x.pxi"                                          the file, beside this one or by the end of its path
cdef extern from "x.h":                                  the header, likewise
a.pyx, a.py beside a.pxd                                 its own declarations, named in no statement
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from spark_jobs.code.imports.dependency import Dependency, RepositoryTexts, evidence_of, utf8_of
from spark_jobs.code.imports.python_imports import KIND_NAMES, Modules, renamed_directories
from spark_jobs.code.imports.python_statements import import_statements
from spark_jobs.code.imports.source_names import SuffixIndex
from spark_jobs.lexing.blank import blank

LANGUAGE: Final = "Cython"
_READ: Final = (".pyx", ".pxd", ".pxi")
_CIMPORTS: Final = "cython.cimports."
_FILE: Final = re.compile(
    rb"^[ \t]*+(?:include|(?:cdef[ \t]++)?extern[ \t]++from)[ \t]*+(?:\"( ++)\"|'( ++)')", re.MULTILINE
)


def cython_imports(repository: RepositoryTexts) -> Iterator[Dependency]:
    """Yield the imports between the Cython files of a repository, and between these and its Python files."""
    paths = repository.paths
    readers = [
        number
        for number, path in enumerate(paths)
        if path.endswith(_READ) or (path.endswith(".py") and _CIMPORTS in repository.texts[number])
    ]
    if not readers:
        return
    renamed = renamed_directories(repository)
    modules, declarations = Modules(paths, renamed), Modules(paths, renamed, (".pxd",))
    files = {path: number for number, path in enumerate(paths)}
    by_end = SuffixIndex(files.items())
    for needs in readers:
        data = utf8_of(repository.texts[needs])
        directory = posixpath.dirname(paths[needs])
        for start, end, kind in import_statements(np.frombuffer(data, dtype=np.uint8)).tolist():
            statement = data[start:end].decode(errors="replace")
            is_declared = _CIMPORTS in statement or re.search(r"\bcimport\b", statement) is not None
            if paths[needs].endswith(".py") and not is_declared:
                continue  # read as Python
            searched = declarations if is_declared else modules
            for needed in searched.targets(directory, statement.replace(_CIMPORTS, "")):
                if needed != needs:
                    yield Dependency(needs, needed, KIND_NAMES[kind], evidence_of(statement))
        for match in _FILE.finditer(blank(data, LANGUAGE)):
            form = 1 if match[1] is not None else 2
            name = posixpath.normpath(data[match.start(form) : match.end(form)].decode(errors="replace"))
            beside = files.get(posixpath.normpath(posixpath.join(directory, name)))
            file = by_end.nearest(name, directory) if beside is None else beside
            if file is not None and file != needs:
                statement = data[match.start() : match.end()].decode(errors="replace")
                yield Dependency(needs, file, "import", evidence_of(statement))
    yield from _own_declarations(files)


def _own_declarations(files: dict[str, int]) -> Iterator[Dependency]:
    """Modules with declarations of their own name beside them."""
    for path, number in files.items():
        stem, extension = posixpath.splitext(path)
        declared = files.get(f"{stem}.pxd") if extension in (".pyx", ".py") else None
        if declared is not None:
            yield Dependency(number, declared, "import", evidence_of(posixpath.basename(f"{stem}.pxd")))
