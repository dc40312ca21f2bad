"""Includes between C and C++ files: lines and names trap by trap, and what the compiler itself says."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.code.imports.c_includes import c_includes, include_lines
from tests.spark_jobs.code.made_repository import edges, targets

QUOTED, ANGLED = False, True


def includes(text: str) -> list[tuple[str, bool]]:
    """Names of a text with the form of their quotes."""
    data = text.encode()
    return [(data[begin:end].decode(), angled) for _, begin, end, angled in include_lines(data)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('#include "a.h"', [("a.h", QUOTED)]),
        ("#include <a/b.hpp>\n", [("a/b.hpp", ANGLED)]),
        ('  #  include\t"a.h" // why', [("a.h", QUOTED)]),
        ('/* one */ # /* two */ include /* three */ "a.h"', [("a.h", QUOTED)]),
        ('#include_next <a.h>\n#import "b.h"', [("a.h", ANGLED), ("b.h", QUOTED)]),
        ('#\\\ninclude \\\n"a.h"', [("a.h", QUOTED)]),
        ('// #include "a.h"\n/*\n#include "b.h"\n*/\n', []),
        ('// joined \\\n#include "a.h"\n#include "b.h"', [("b.h", QUOTED)]),
        ('char *s = "\\\n#include \\"a.h\\"";\n', []),
        ('x = "/*";\n#include "a.h"', [("a.h", QUOTED)]),
        ('x = \'"\';\n#include "a.h"', [("a.h", QUOTED)]),
        ("x = 1'000'000;\n#include \"a.h\"", [("a.h", QUOTED)]),
        ('x = R"(\n#include "a.h"\n)";\n#include "b.h"', [("b.h", QUOTED)]),
        ('x = R"--(\n)"\n#include "a.h"\n)--";\n#include "b.h"', [("b.h", QUOTED)]),
        ('#error Don\'t\n#include "a.h"', [("a.h", QUOTED)]),
        ('x #include "a.h"', []),
        ('#include MACRO\n#includes "a.h"\n#if __has_include(<a.h>)', []),
        ('#include "open\n#include "a.h"', [("a.h", QUOTED)]),
        ('#if 0\n#include "a.h"\n#endif', [("a.h", QUOTED)]),
        ('#include "a.h"\nint include;', [("a.h", QUOTED)]),
        ('#include /*\n "no" */ "a.h"\n', [("a.h", QUOTED)]),
        ("", []),
        ("#", []),
        ("/*", []),
        ('"', []),
    ],
)
def test_lines_are_found_outside_of_comments_and_strings(text: str, expected: list[tuple[str, bool]]) -> None:
    """Each trap on its own."""
    assert includes(text) == expected


@given(st.text(alphabet="#include \"<>'/*\\\n()R1x", max_size=60))
def test_no_text_makes_the_lexer_fail(text: str) -> None:
    """Whatever stands there, names lie inside the text and on one line."""
    for name, form in includes(text):
        assert name in text and "\n" not in name
        assert form in (QUOTED, ANGLED)


@pytest.mark.parametrize(
    ("path", "line", "expected"),
    [
        ("src/a.c", '#include "x.h"', ["src/x.h"]),
        ("src/a.c", '#include "../include/lib/y.h"', ["include/lib/y.h"]),
        ("src/a.c", "#include <lib/y.h>", ["include/lib/y.h"]),
        ("src/a.c", '#include "lib/y.h"', ["include/lib/y.h"]),
        ("src/a.c", '#include "y.h"', ["include/lib/y.h"]),
        ("src/a.c", '#include "../../elsewhere/lib/y.h"', []),
        ("src/a.c", '#include "../../lib/y.h"', ["include/lib/y.h"]),
        ("src/a.c", "#include <string.h>", []),
        ("src/a.c", '#include "string.h"', ["compat/string.h"]),
        ("src/a.cc", "#include <memory>", []),
        ("src/a.c", '#include "table.inc"', ["src/table.inc"]),
        ("src/a.c", '#include "lib\\\\y.h"', ["include/lib/y.h"]),
        ("src/a.c", '#include ".."', []),
        ("third_party/one/b.c", '#include "z.h"', ["third_party/one/z.h"]),
        ("third_party/two/b.c", '#include "z.h"', ["third_party/two/inner/z.h"]),
    ],
)
def test_names_are_found_as_a_build_would(path: str, line: str, expected: list[str]) -> None:
    """Beside the file, then by the end of the path, the nearest first."""
    others = ("src/x.h", "x.h", "include/lib/y.h", "compat/string.h", "compat/memory", "src/table.inc")
    files = dict.fromkeys((*others, "third_party/one/z.h", "third_party/two/inner/z.h"), "")
    assert targets(c_includes, {**files, path: line}, path) == expected


_COMPILED = {"directory": "/src/x/build", "file": "../app/main.c"}
_OTHER = {"directory": "/src/x", "file": "app/deep/other.c", "arguments": ["cc", "-I", "posix", "-Ilib", "-O2"]}


@pytest.mark.parametrize(
    "command",
    [
        {"command": "cc -I/usr/include -I'../posix' \"-Iinclude\" -isystem ../lib -c ../app/main.c -D'"},
        {"arguments": ["cc", "-isystem", "../posix", "-iquote../lib", "-I", 3, "-I"]},
    ],
)
def test_headers_are_looked_for_where_compile_commands_say(command: dict[str, object]) -> None:
    """In the order of the flags; a header looks where every command does; what lies beside a file comes first."""
    files = {
        "app/main.c": '#include "os.h"\n#include <size.h>\n#include "beside.h"\n',
        "app/beside.h": '#include "os.h"\n',
        "app/deep/other.c": "",
        "app/windows/os.h": "",
        "app/windows/size.h": "",
        "posix/os.h": "",
        "lib/os.h": "",
        "lib/size.h": "",
        "lib/beside.h": "",
    }
    nearest = ["app/beside.h", "app/windows/os.h", "app/windows/size.h"]
    assert targets(c_includes, files, "app/main.c") == nearest
    commands = json.dumps(
        [{**_COMPILED, **command}, _OTHER, {"file": 3}, "x", {"file": "/elsewhere.c", "command": "'"}]
    )
    known = {**files, "build/compile_commands.json": commands}
    assert targets(c_includes, known, "app/main.c") == ["app/beside.h", "lib/size.h", "posix/os.h"]
    assert targets(c_includes, known, "app/beside.h") == ["posix/os.h"]
    for broken in ("", "[", "{}", "[3]", "[" * 100_000, '[{"file": "app/main.c"}]'):
        assert targets(c_includes, {**files, "compile_commands.json": broken}, "app/main.c") == nearest


def test_a_header_that_includes_itself_is_no_edge() -> None:
    """`#include_next` of a wrapper resolves to the wrapper by name."""
    assert edges(c_includes, {"stdio_wrapper.h": "#include_next <stdio_wrapper.h>"}) == set()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_edges_are_those_of_the_compiler(tmp_path: Path) -> None:
    """`gcc -MM` lists what a unit includes, directly and through others: the closure of our edges."""
    files = {
        "src/main.c": '#include "main.h"\n#include <deep/two.h>\n/*\n#include "no.h"\n*/\nint main;\n',
        "src/main.h": '#pragma once\n#include "../include/one.h"\n',
        "src/no.h": "",
        "include/one.h": '#pragma once\n#include "deep/two.h"\n',
        "include/deep/two.h": '#pragma once\n#include "three.h"\n#include "main.h"\n',
        "include/deep/three.h": '#pragma once\nconst char *x = "#include";\n',
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    command = ["gcc", "-MM", "-MT", "unit", "-Isrc", "-Iinclude", "src/main.c"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    names = said.replace("\\\n", " ").partition(":")[2].split()
    expected = {str((tmp_path / name).resolve().relative_to(tmp_path)) for name in names} - {"src/main.c"}
    found, waiting = set(), ["src/main.c"]
    pairs = edges(c_includes, files)
    while waiting:
        here = waiting.pop()
        fresh = {needed for needs, needed, _ in pairs if needs == here} - found
        found |= fresh
        waiting += fresh
    assert found == expected
