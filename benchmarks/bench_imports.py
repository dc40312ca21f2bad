"""Import statements by the own scanners and by tree-sitter grammars: megabytes per processor second.

    python benchmarks/bench_imports.py [DIRECTORY] [--megabytes 4] [--rounds 2]

DIRECTORY is that of the installed packages unless another is named.
For docs/decisions/012-scanners-or-grammars.md. The scanners give names, kinds and, for Go, Java, Kotlin and Rust, the
words that a file uses; the grammars parse, and a query captures the nodes of import statements, which is the least that
they must do.
"""

from __future__ import annotations

import importlib
import random
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import command
import numpy as np
from cpu_time import megabytes, seconds
from tree_sitter import Language, Parser, Query, QueryCursor

from spark_jobs.code.imports.c_includes import include_lines
from spark_jobs.code.imports.go_imports import read_go
from spark_jobs.code.imports.java_names import read_java, read_kotlin
from spark_jobs.code.imports.javascript_statements import module_references
from spark_jobs.code.imports.python_statements import import_statements
from spark_jobs.code.imports.rust_source import read_rust
from spark_jobs.code.syntax.definitions import GRAMMARS
from spark_jobs.sources.languages import language_of

Scan = Callable[[str], object]
_MODULES = """(import_statement source: (_) @i) (export_statement source: (_) @i)
(call_expression function: (import) @i)
(call_expression function: (identifier) @i (#eq? @i "require"))"""
_SCANNERS: dict[str, tuple[Scan, str]] = {
    "Python": (
        lambda text: import_statements(_bytes(text)),
        "[(import_statement) (import_from_statement) (future_import_statement)] @i",
    ),
    "JavaScript": (lambda text: list(module_references(text.encode(), "JavaScript")), _MODULES),
    "TypeScript": (lambda text: list(module_references(text.encode(), "TypeScript")), _MODULES),
    "C": (lambda text: list(include_lines(text.encode())), "(preproc_include) @i"),
    "C++": (lambda text: list(include_lines(text.encode())), "(preproc_include) @i"),
    "Go": (read_go, "(import_spec) @i"),
    "Java": (lambda text: read_java("", text), "(import_declaration) @i"),
    "Kotlin": (read_kotlin, "(import) @i"),
    "Rust": (read_rust, "[(use_declaration) (extern_crate_declaration) (mod_item !body)] @i"),
}


def _bytes(text: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def main() -> None:
    """Print a line for every language that has files below the directory."""
    parser = command.parser(__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=Path(sysconfig.get_path("purelib")))
    parser.add_argument("--megabytes", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    given = command.read(parser, megabytes=0.05, rounds=1)
    print(f"{'language':<12}{'files':>7}{'MB':>6}{'scanner MB/s':>14}{'grammar MB/s':>14}{'times':>7}")
    for language, texts in texts_by_language(given.directory, given.megabytes * 1e6).items():
        scan, statements = _SCANNERS[language]
        size = megabytes(texts)
        scanned, parsed = (seconds_of(run, texts, given.rounds) for run in (scan, grammar(language, statements)))
        print(
            f"{language:<12}{len(texts):>7,}{size:>6.1f}{size / scanned:>14.1f}{size / parsed:>14.1f}"
            f"{parsed / scanned:>7.1f}",
            flush=True,
        )


def texts_by_language(directory: Path, most_bytes: float) -> dict[str, list[str]]:
    """Some files of each language, at random, none above a megabyte; those that are no UTF-8 are left out."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    random.Random(0).shuffle(paths)
    found: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    for path in paths:
        language = language_of(path.name)
        if language is None or language.name not in _SCANNERS or sizes.get(language.name, 0) > most_bytes:
            continue
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue
        if len(text) <= 1_000_000:
            found.setdefault(language.name, []).append(text)
            sizes[language.name] = sizes.get(language.name, 0) + len(text.encode())
    return dict(sorted(found.items()))


def grammar(language: str, statements: str) -> Scan:
    """Parse a text and capture its import statements."""
    known = GRAMMARS[language]
    loaded = Language(getattr(importlib.import_module(known.module), known.function)())
    parser, query = Parser(loaded), Query(loaded, statements)
    return lambda text: QueryCursor(query).captures(parser.parse(text.encode()).root_node)


def seconds_of(run: Scan, texts: Sequence[str], rounds: int) -> float:
    """The least processor time that all texts take; a first one goes before, which loads what is compiled."""
    run(texts[0])
    return seconds(lambda: [run(text) for text in texts], rounds)


if __name__ == "__main__":
    main()
