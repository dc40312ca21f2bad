"""Givens of Scala 3 imported or exported by a file without their names; what has a name is found as a symbol.

    import shop.given               every file with givens at the top of package `shop`, or in an object of that path
    import shop.{given, *}          the same
    import shop.{given Ord[?]}      of these files those with a given with `Ord` in its head

A path begins in the file's own package, in one around it, or at the root.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from spark_jobs.code.imports.dependency import Dependency, RepositoryTexts, evidence_of, utf8_of
from spark_jobs.lexing.blank import blank

_PACKAGE: Final = re.compile(rb"^[ \t]*+package[ \t]++(?!object\b)([\w.`]++)", re.MULTILINE)
_IMPORT: Final = re.compile(rb"^[ \t]*+(?:im|ex)port[ \t]++([^\n;{]*+(?:\{[^}]{0,2048}+\})?[^\n;{]*+)", re.MULTILINE)
_OPENED: Final = re.compile(
    rb"^([ \t]*+)(?:(?:package|case|final|private|sealed|open|abstract|inline|implicit|transparent|override)[ \t]++)*+"
    rb"(given|object|class|trait|enum|def|val|extension)\b([^\n]*+)",
    re.MULTILINE,
)
_CLAUSE: Final = re.compile(r"(?<![\w.`])([\w.`]+?)\.(?:given\b([^,]*)|\{([^}]*)\})")
_WORD: Final = re.compile(r"\w+")


def scala_givens(repository: RepositoryTexts) -> Iterator[Dependency]:
    """Yield the imports of givens between the Scala files of a repository."""
    sources = {
        number: blank(utf8_of(repository.texts[number]), "Scala")
        for number, language in enumerate(repository.languages)
        if language == "Scala" and "given" in repository.texts[number]
    }
    packages = {number: _package(code) for number, code in sources.items()}
    owners: dict[str, list[tuple[int, set[str]]]] = defaultdict(list)
    for number, code in sources.items():
        for owner, words in _givens(code, packages[number]):
            owners[owner].append((number, words))
    for needs, code in sources.items():
        linked = {needs}
        for match in _IMPORT.finditer(code):
            for path, wanted in _clauses(match[1].decode(errors="replace")):
                for needed, words in _of_path(owners, packages[needs], path):
                    if needed not in linked and wanted <= words:
                        linked.add(needed)
                        yield Dependency(needs, needed, "import", evidence_of(match[0].decode(errors="replace")))


def _package(code: bytes) -> str:
    """The package of a file: clauses one below the other are one path."""
    return ".".join(part.decode(errors="replace").replace("`", "") for part in _PACKAGE.findall(code))


def _givens(code: bytes, package: str) -> Iterator[tuple[str, set[str]]]:
    """The path of the package or object of each given, and the words of the given's head."""
    opened: list[tuple[int, bytes, str]] = []
    for match in _OPENED.finditer(code):
        indent, keyword, head = len(match[1]), match[2], match[3].decode(errors="replace")
        while opened and opened[-1][0] >= indent:
            opened.pop()
        if keyword == b"given" and all(other == b"object" for _, other, _ in opened):
            yield ".".join(filter(None, [package, *(name for *_, name in opened)])), set(_WORD.findall(head))
        name = _WORD.search(head)
        opened.append((indent, keyword, name[0] if name else ""))


def _clauses(text: str) -> Iterator[tuple[str, set[str]]]:
    """Path and words of the type of each clause for givens in an import."""
    for path, kind, selectors in _CLAUSE.findall(text):
        for selector in selectors.split(",") if selectors else [f"given {kind}"]:
            first, *words = _WORD.findall(selector) or [""]
            if first == "given":
                yield path.replace("`", "").removeprefix("_root_."), set(words)


def _of_path(owners: dict[str, list[tuple[int, set[str]]]], package: str, path: str) -> list[tuple[int, set[str]]]:
    """The givens of a path, as a file of a package sees it."""
    parts = package.split(".") if package else []
    for size in range(len(parts), -1, -1):
        owner = owners.get(".".join([*parts[:size], path]))
        if owner:
            return owner
    return []
