"""The interface of resolvers: from the files of one repository to the dependencies between them.

A resolver handles one family of languages. It takes the whole repository, looks at the files of its own languages, and
yields a `Dependency` for every file named in one of them. Files are indices into `RepositoryTexts.paths`, so an edge is
two integers and resolvers never copy paths:

    paths      a/__init__.py  a/core.py  a/text.py          a/text.py says `from . import core`
    yields     Dependency(needs=2, needed=1, kind="import", evidence="from . import core")

Kinds, the strongest first. Code that runs when a file is loaded matters most for the order of files:

    import         a statement at the top level, executed (or read by the compiler) before the rest of the file
    import_inner   the same inside a function: needed when that is called
    import_type    only for the type checker
    module         a file declaring another one as its part (Rust `mod`)
    symbol         a name defined there is used here; no statement says where it comes from
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

KINDS = ("import", "import_inner", "import_type", "module", "symbol")
MAX_EVIDENCE_CHARACTERS = 200


@dataclass(frozen=True)
class RepositoryTexts:
    """The files of one repository, the input of resolvers.

    Attributes:
        paths: (N,) ascending by their UTF-8 bytes, unique, `/` between the parts.
        texts: (N,) their texts in the same order; empty where a text is left out.
        languages: (N,) as in the column `language` of `texts`: Linguist's names, None where unknown.
    """

    paths: tuple[str, ...]
    texts: tuple[str, ...]
    languages: tuple[str | None, ...]


class Dependency(NamedTuple):
    """One file needs another one.

    Attributes:
        needs: index of the depending file.
        needed: index of the file it depends on; never equal to `needs`.
        kind: one of `KINDS`.
        evidence: the line or the name as evidence, at most `MAX_EVIDENCE_CHARACTERS`.
    """

    needs: int
    needed: int
    kind: str
    evidence: str


Resolver = Callable[[RepositoryTexts], Iterable[Dependency]]


def utf8_of(text: str) -> bytes:
    """UTF-8 of a text without its byte order mark: the lexers would take it for a part of the first word."""
    return text.removeprefix("\ufeff").encode(errors="surrogatepass")


def evidence_of(text: str) -> str:
    """A statement on one line, each run of white space as one space, cut to `MAX_EVIDENCE_CHARACTERS`."""
    return " ".join(text[: 4 * MAX_EVIDENCE_CHARACTERS].split())[:MAX_EVIDENCE_CHARACTERS]
