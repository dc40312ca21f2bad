"""Symbols: a file using a name defined in one other file depends on that file.

A name counts if at most two files of its language define it (of two, the nearer is taken), it has three characters or
more, and is no keyword, no `__dunder__` and not defined or bound in the using file. In Python and
JavaScript every name of another file appears in an import statement, so only words of import statements count there:
that raises precision from 0.2-0.35 to 0.4-0.6. In other languages all words of the code count. Words of import
statements, strings included, may also name files themselves (`require "./a"`, `source a.sh`): by the file's name
without extension, or by a directory's name for its `__init__`; of several such files the nearest is taken.

Names are weaker evidence than imports. So symbols are added only between files linked by no import, and by language:

    Go, Java, Kotlin, Python,         where imports are resolved no symbols (Go and Java have those of a package from
    JavaScript, TypeScript, Rust      their own resolvers); where a repository's imports link none of its files, all
    C, C++                            from a user to the file implementing a header included by both
    all other languages               everywhere

Definitions come from syntax trees (`definitions`), made by a child process (`syntax_child`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

from spark_jobs.code.imports.dependency import MAX_EVIDENCE_CHARACTERS, Dependency, RepositoryTexts
from spark_jobs.code.imports.source_names import nearest, words
from spark_jobs.code.syntax.definitions import GRAMMARS, Definitions
from spark_jobs.lexing.blank import BLANKED_LANGUAGES, blank, keywords_of

MOST_DEFINING_FILES: Final = 2
FEWEST_CHARACTERS: Final = 3
_FAMILIES: Final = {"TypeScript": "JavaScript", "TSX": "JavaScript", "C++": "C"}
_WITH_IMPORTS: Final = frozenset({"Python", "JavaScript", "Go", "Java", "Kotlin", "Rust"})
_IMPORTS_NAME_ALL: Final = frozenset({"Python", "JavaScript", "TypeScript", "TSX"})
_HEADERS: Final = "C"
_STATEMENTS: Final = {
    "Python": re.compile(
        rb"^[ \t]*(?:lazy[ \t]+)?(?:from\b[^\n]*?\bimport\b[ \t]*(?:\([^()]*\)|(?:[^\n\\]|\\\n)*)"
        rb"|import\b(?:[^\n\\]|\\\n)*)",
        re.MULTILINE,
    ),
    "JavaScript": re.compile(  # a statement ends where a line begins with the next one
        rb"^[ \t]*(?:import|export)\b[^;\"'`\n]*+(?:\n(?![ \t]*(?:import|export)\b)[^;\"'`\n]*+)*+[\"'][^\n]*"
        rb"|^[^\n]*\b(?:require|import)[ \t]*\([^\n]*",
        re.MULTILINE,
    ),
}
_IMPORT_LINE: Final = re.compile(
    rb"^[ \t]*(?:(?:import|require|require_relative|include|include_once|require_once|load|autoload|source|use|using|"
    rb"#[ \t]*include|local[ \t]+\w+[ \t]*=[ \t]*require)\b|\.[ \t])[^\n]*",
    re.MULTILINE,
)
_DIRECTORY_FILES: Final = frozenset({"__init__", "index", "mod", "init"})

Parse = Callable[[Sequence[tuple[str, bytes]]], Sequence[Definitions | str]]
"""(language, source) of each file -> its definitions, or the reason why it could not be parsed."""


class SymbolEdges(NamedTuple):
    """Dependencies of kind `symbol`, each pair of files at most once; and for unparsed files, by index, the reason."""

    dependencies: list[Dependency]
    failures: dict[int, str]


def symbol_edges(
    repository: RepositoryTexts, linked: Collection[tuple[int, int]], parse: Parse, *, alone: bool = False
) -> SymbolEdges:
    """Find dependencies by names defined in one file and used in another.

    Args:
        repository: its files.
        linked: (needs, needed) of all resolved imports.
        parse: finds definitions; `SyntaxChild.definitions`.
        alone: use symbols for every language, even where imports are resolved; for comparisons.

    Returns:
        The edges, and the files left unparsed.
    """
    families: dict[str, list[int]] = defaultdict(list)
    for index, language in enumerate(repository.languages):
        if language in GRAMMARS:
            families[_FAMILIES.get(language, language)].append(index)
    pairs = set() if alone else set(linked)
    linked_files = {file for pair in pairs for file in pair}
    dependencies: list[Dependency] = []
    failures: dict[int, str] = {}
    for family, files in sorted(families.items()):
        has_imports = not linked_files.isdisjoint(files)
        if len(files) < 2 or (family in _WITH_IMPORTS and has_imports):
            continue
        texts = [repository.texts[index].encode(errors="replace") for index in files]
        answers = parse([(str(repository.languages[index]), text) for index, text in zip(files, texts, strict=True)])
        definitions: dict[int, Definitions] = {}
        for index, answer in zip(files, answers, strict=True):
            if isinstance(answer, Definitions):
                definitions[index] = answer
            else:
                failures[index] = answer
        headers = _included(pairs) if family == _HEADERS and has_imports else None
        names = _Names(repository.paths, definitions)
        for index, text in zip(files, texts, strict=True):
            if index not in definitions:
                continue
            uses = read_uses(str(repository.languages[index]), text, definitions[index])
            for needed, name in names.needed_by(index, uses):
                if (index, needed) in pairs or (needed, index) in pairs:
                    continue
                if headers is None or _implements(repository.paths, headers, index, needed):
                    dependencies.append(Dependency(index, needed, "symbol", name[:MAX_EVIDENCE_CHARACTERS]))
    return SymbolEdges(dependencies, failures)


class Uses(NamedTuple):
    """Words of a file perhaps defined in other files, and words perhaps naming files."""

    names: set[str]
    stems: set[str]


def read_uses(language: str, source: bytes, definitions: Definitions) -> Uses:
    """Find the words of a file for possible uses of other files.

    Args:
        language: of the file.
        source: UTF-8 text.
        definitions: names defined and bound in the file itself.

    Returns:
        Words of its code, and of its import statements.
    """
    is_known = language in BLANKED_LANGUAGES
    code = blank(source, language) if is_known else source
    keywords = keywords_of(language) if is_known else frozenset()
    statements = _STATEMENTS.get(_FAMILIES.get(language, language), _IMPORT_LINE)
    spans = [match.span() for match in statements.finditer(code if language == "Python" else source)]
    imported = words(b" ".join(source[begin:end] for begin, end in spans))
    if language in _IMPORTS_NAME_ALL:
        names = words(b" ".join(code[begin:end] for begin, end in spans)) - set(definitions.defined)
    else:
        names = words(code) - set(definitions.defined) - set(definitions.bound)
    return Uses(
        {name for name in names if is_telling(name)} - keywords, {stem for stem in imported if is_telling(stem)}
    )


def is_telling(name: str) -> bool:
    """Whether a name has three characters or more, and is no `__dunder__`."""
    return len(name) >= FEWEST_CHARACTERS and not (name.startswith("__") and name.endswith("__"))


class _Names:
    """The files defining each name, for one family of languages."""

    def __init__(self, paths: tuple[str, ...], definitions: dict[int, Definitions]) -> None:
        self.paths = paths
        defined: dict[str, list[int]] = defaultdict(list)
        self.stems: dict[str, list[int]] = defaultdict(list)
        for index in sorted(definitions):
            self.stems[stem_of(paths[index])].append(index)
            for name in definitions[index].defined:
                defined[name].append(index)
        self.defined = {name: files for name, files in defined.items() if len(files) <= MOST_DEFINING_FILES}

    def needed_by(self, index: int, uses: Uses) -> Iterator[tuple[int, str]]:
        """(file, name) of each file used by a file, with the first name used."""
        linked = {index}
        for used, files in ((uses.names, self.defined), (uses.stems, self.stems)):
            for name in sorted(used & files.keys()):
                needed = nearest(self.paths, index, files[name])
                if needed not in linked:
                    linked.add(needed)
                    yield needed, name


def stem_of(path: str) -> str:
    """The name of a file in other files: `a/b.py` -> b, `a/__init__.py` -> a."""
    directory, _, name = path.rpartition("/")
    stem = name.partition(".")[0]
    return directory.rpartition("/")[2] if stem in _DIRECTORY_FILES and directory else stem


def _included(pairs: set[tuple[int, int]]) -> dict[int, set[int]]:
    """File -> the files included in it."""
    included: dict[int, set[int]] = defaultdict(set)
    for needs, needed in pairs:
        included[needs].add(needed)
    return included


def _implements(paths: tuple[str, ...], included: dict[int, set[int]], user: int, definer: int) -> bool:
    """Whether `definer` implements a header included by `user`: it is no header, and both include a common file."""
    headers = included.get(user, set()) & included.get(definer, set())
    return not paths[definer].endswith((".h", ".hpp", ".hh", ".hxx")) and bool(headers)
