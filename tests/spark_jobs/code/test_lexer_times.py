"""A file that nobody wrote by hand costs no more than its size: resolvers and symbols read each byte a few times."""

from __future__ import annotations

import time

import pytest

from spark_jobs.code.repository_edges import RESOLVERS
from spark_jobs.code.syntax.definitions import Definitions
from spark_jobs.code.syntax.symbols import read_uses
from tests.spark_jobs.code.made_repository import check, repository_of

pytestmark = pytest.mark.nightly

SIZE = 500_000
MOST_SECONDS = 2.0  # of the processor; half a megabyte of code takes a hundredth of that

# Path, how the file begins, what is repeated to half a megabyte, and how it ends. Most took from 5 s to hours once.
FILES = [
    ("a.py", "", "from a import (\n", ""),
    ("a.js", "", "import ", ""),
    ("a.js", "", "import type a, ", ""),
    ("a.js", "", "export * ", ""),
    ("a.js", "", "export \n", ""),
    ("a.js", "", "=/[", ""),
    ("a.js", "=/", "[/] ", ""),
    ("a.ts", "", "import a,\n", ""),
    ("a.go", "", "import (\n", ""),
    ("a.go", "import (\n", "a", "\n)"),
    ("a.go", "", "var (\n", ""),
    ("go.mod", "", "\n", ""),
    ("go.mod", "", "a", ""),
    ("go.mod", "replace a", " ", "b"),
    ("go.work", "", "replace a => ", ""),
    ("pyproject.toml", "", "[", ""),
    ("setup.cfg", "[options]\npackage_dir =\n", " a=b\n", ""),
    ("setup.cfg", "[options]\npackage_dir = a", " ", "b"),
    ("compile_commands.json", '[{"command": "', " -I", '"}]'),
    ("compile_commands.json", '[{"command": "-I', "'", '"}]'),
    ("compile_commands.json", '[{"file": "', "a/", '"}]'),
    ("A.java", "", "import a\n", ""),
    ("A.java", "", "a.", "B"),
    ("A.java", "import a", " ", "b;"),
    ("a.kt", "import a", " ", "! "),
    ("a.kt", "@a ", "fun < ", ""),
    ("src/lib.rs", "", "mod a;", ""),
    ("src/lib.rs", "", "use a", ""),
    ("src/lib.rs", "", "use a::{", ";"),
    ("src/lib.rs", "", "use " + "a::{" * 1000 + "b," * 2000 + ";", ""),
    ("package.json", "", '"\\', ""),
    ("a.c", "", '#include "', ""),
    ("a.c", "", 'R"a(', ""),
    ("a.py", "", "lazy \\\n", ""),
    ("a.py", "lazy", " ", "x"),
    ("a.cpp", "", "import a\n", ""),
    ("a.cpp", "import a", ".a", ""),
    ("a.cpp", "", "export module a:\n", ""),
    ("a.cpp", "import a [[", "]]", ""),
    ("a.proto", "", 'import "a" ', ""),
    ("a.proto", "import ", '"a" ', ""),
    ("a.pyx", "", "from a cimport (\n", ""),
    ("a.pyx", "", 'cdef extern from "', ""),
    ("a.scala", "", "import a.{given\n", ""),
    ("a.scala", "import a", ".a", ".given"),
    ("a.scala", "import ", "a.given, ", ""),
    ("a.scala", "", "given a: B\n", ""),
    ("a.scala", "", " given", ""),
    ("a.ts", "", "/// <reference ", ""),
    ("a.ts", "", '/// <reference path="a" />\n', ""),
    ("a.ts", "", "/*<reference ", ""),
]

# What makes a resolver look at a manifest.
BESIDE = {
    "a.ts": "b.ts",
    "a.scala": "b.scala",
    "go.mod": "main.go",
    "go.work": "main.go",
    "pyproject.toml": "main.py",
    "setup.cfg": "main.py",
    "compile_commands.json": "main.c",
}


@pytest.mark.parametrize(("path", "begins", "repeated", "ends"), FILES)
def test_time_grows_with_the_size_alone(path: str, begins: str, repeated: str, ends: str) -> None:
    """Openings without an end, words without their rest, blanks without a line: the seconds of half a megabyte."""
    beside = BESIDE.get(path, "b.js")
    for size in (1_000, SIZE):  # the first one loads what is compiled
        made = repository_of({path: begins + repeated * (size // len(repeated)) + ends, beside: ""})
        at = made.paths.index(path)
        started = time.process_time()
        for resolver in RESOLVERS:
            check(made, resolver(made))
        if made.languages[at] is not None:
            read_uses(str(made.languages[at]), made.texts[at].encode(), Definitions((), ()))
        seconds = time.process_time() - started
    assert seconds < MOST_SECONDS
