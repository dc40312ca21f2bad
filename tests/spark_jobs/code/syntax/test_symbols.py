"""Symbols: names lead from file to file where imports do not."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from spark_jobs.code.syntax.definitions import Definitions, read_definitions
from spark_jobs.code.syntax.symbols import SymbolEdges, read_uses, stem_of, symbol_edges
from tests.spark_jobs.code.made_repository import as_paths, repository_of


def parse(files: Sequence[tuple[str, bytes]]) -> list[Definitions | str]:
    """In this process; a source with `boom` fails."""
    return ["crash: boom" if b"boom" in source else read_definitions(language, source) for language, source in files]


def pairs(
    files: dict[str, str], linked: Collection[tuple[str, str]] = (), *, alone: bool = False
) -> set[tuple[str, str]]:
    """(needs, needed) by paths, `linked` by paths as well."""
    repository = repository_of(files)
    at = {path: index for index, path in enumerate(repository.paths)}
    found = symbol_edges(repository, {(at[a], at[b]) for a, b in linked}, parse, alone=alone)
    return {(needs, needed) for needs, needed, kind in as_paths(repository, found.dependencies) if kind == "symbol"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.rb": "module Shapes\n class Circle; end\nend\n", "b.rb": "x = Circle.new # Square\n"}, {("b.rb", "a.rb")}),
        ({"lib/a.sh": "greet() { :; }\n", "b.sh": "greet 'lib'\n", "c.sh": "echo 'greet'\n"}, {("b.sh", "lib/a.sh")}),
        (
            {"a.sh": "x=1\n", "b.sh": "source ./a.sh\n. lib/common.sh\n", "lib/common.sh": "\n"},
            {("b.sh", "lib/common.sh")},
        ),
        ({"A.cs": "class Alpha {}", "B.cs": "class Beta : Alpha { }"}, {("B.cs", "A.cs")}),
        ({"a.php": "<?php function area() {}", "b.php": "<?php echo area();"}, {("b.php", "a.php")}),
        ({"A.scala": "trait Alpha", "B.scala": "object Beta extends Alpha"}, {("B.scala", "A.scala")}),
        (
            {
                "a.swift": "extension String {\n func shouted() -> String { self }\n var isBlank: Bool { true }\n}\n",
                "b.swift": "print(text.shouted())\n",
                "c.swift": "if text.isBlank {}\n",
            },
            {("b.swift", "a.swift"), ("c.swift", "a.swift")},
        ),
        *(
            (
                {
                    "A.cs": f"static class Words {{\n{line} extension(string s) {{ public int Vowels() => 1; }}\n}}",
                    "B.cs": "class Beta { int F(string s) => s.Vowels(); }",
                },
                {("B.cs", "A.cs")},
            )
            for line in ("", "// vowels\n", "#region vowels\n", "/// vowels\n", "/* vowels */", "int a = 1;")
        ),
        *(
            ({"a.scala": text, "b.scala": "val n = text.vowels + text.digits"}, {("b.scala", "a.scala")})
            for text in (
                "extension (s: String) { def vowels = 1 }",
                "extension (s: String)\n  private def a = 1\n  def vowels = 1\n",
                "object Words {\n  extension (s: String) def vowels = 1\n}",
                "given Ord[Int] with\n  extension (s: String)\n    def a = 1\n    def digits = 1\n",
            )
        ),
        ({"a.swift": "class Shop { func member() {} }\n", "b.swift": "x.member()\n"}, set()),
        (
            {
                "A.cs": "static class Words {\n extension(string text) { public bool IsBlank => true; }\n"
                " /// <summary>more</summary>\n extension<T>(IEnumerable<T> all) where T : class {\n"
                "  public T Second() => all.First(); }\n}",
                "B.cs": "class Beta { bool F(string s) => s.IsBlank; }",
                "C.cs": "class Gamma { int F() => All().Second(); }",
            },
            {("B.cs", "A.cs"), ("C.cs", "A.cs")},
        ),
        (
            {
                "A.cs": "static class Words { public static string Shouted(this string text) => text;"
                " public static int Plain(int x) => x; }",
                "B.cs": "class Beta { string F(string s) => s.Shouted(); }",
                "C.cs": "class Gamma { int F() => Plain(3); }",
            },
            {("B.cs", "A.cs")},
        ),
        (
            {"A.scala": "package shop\ngiven intOrder: Ord[Int] = ???\n", "B.scala": "import shop.intOrder\n"},
            {("B.scala", "A.scala")},
        ),
        (
            {
                "A.scala": "extension (c: Circle)\n  def circumference: Double = 2\n",
                "B.scala": "val x = c.circumference\n",
            },
            {("B.scala", "A.scala")},
        ),
        ({"a.rb": "class Alpha; end\n", "b.lua": "Alpha()\n"}, set()),
        ({"a.rb": "class Alpha; end\n"}, set()),
        ({}, set()),
    ],
)
def test_a_use_leads_to_the_definition(files: dict[str, str], expected: set[tuple[str, str]]) -> None:
    """In languages without import rules, inside one language; comments and strings use nothing."""
    assert pairs(files) == expected


def test_names_that_say_too_little_do_not_count() -> None:
    """Defined thrice, two characters, bound in the using file, a keyword, defined in the using file as well."""
    files = {
        "one.rb": "class Many; end\nclass Ab; end\nclass Bound; end\ndef yield; end\nclass Own; end\n",
        "two.rb": "class Many; end\n",
        "three.rb": "class Many; end\n",
        "use.rb": "Many.new; Ab.new; Bound = 3; p Bound; yield; class Own; end\n",
    }
    assert {edge for edge in pairs(files) if edge[0] == "use.rb"} == set()


def test_of_two_definitions_the_nearer_is_meant() -> None:
    """Most shared directories, then the smaller path."""
    files = {
        "a/x.rb": "class Twin; end\n",
        "b/x.rb": "class Twin; end\n",
        "b/use.rb": "Twin.new\n",
        "use.rb": "Twin.new\n",
    }
    assert pairs(files) == {("b/use.rb", "b/x.rb"), ("use.rb", "a/x.rb")}


def test_where_imports_link_a_language_symbols_stay_out() -> None:
    """Python files without any resolved import have symbols; one link ends that, and `alone` brings them back."""
    files = {"alone.py": "def area(): pass\n", "b.py": "from lost import area\n", "c.py": "import alone\n"}
    assert pairs(files) == {("b.py", "alone.py"), ("c.py", "alone.py")}
    assert pairs(files, {("c.py", "alone.py")}) == set()
    assert pairs(files, {("c.py", "alone.py")}, alone=True) == {("b.py", "alone.py"), ("c.py", "alone.py")}


def test_users_of_a_header_need_the_file_that_implements_it() -> None:
    """Only if both include it; never the header itself, nor what an include links already."""
    files = {
        "list.h": "int list_push(int);\n#define LIST_MAX 3\n",
        "list.c": '#include "list.h"\nint list_push(int x) { return x; }\nint hidden(void) { return 1; }\n',
        "other.c": "int lonely(void) { return 1; }\n",
        "main.c": '#include "list.h"\nint main(void) { return list_push(LIST_MAX) + lonely(); }\n',
    }
    assert pairs(files, {("list.c", "list.h"), ("main.c", "list.h")}) == {("main.c", "list.c")}


def test_in_python_only_words_of_imports_count() -> None:
    """Over several lines too, not inside a docstring, and a package is meant by its directory's name."""
    files = {
        "pkg/__init__.py": "\n",
        "pkg/a.py": "def area(): pass\ndef other(): pass\n",
        "pkg/b.py": '"""\nfrom a import other\n"""\nfrom .x import (\n    unknown,\n    area,\n)\nother()\n',
        "c.py": "import pkg\n",
    }
    assert pairs(files) == {("pkg/b.py", "pkg/a.py"), ("c.py", "pkg/__init__.py")}
    uses = read_uses("Python", b"from a.bcd import efg as hij\nklm()\n", Definitions((), ()))
    assert uses.names == uses.stems - {"from", "import"} == {"bcd", "efg", "hij"}


def test_in_javascript_imports_requires_and_re_exports_count() -> None:
    """Their strings name files."""
    files = {
        "lib/area.js": "module.exports = () => 1\n",
        "lib/shape.js": "export class Shape {}\n",
        "a.js": "const f = require('./lib/area')\n",
        "b.ts": "import {\n  Shape,\n} from './gone'\nexport const shape = 1\n",
        "c.js": "export * from './lib/shape.js'\nconst unrelated = Shape\n",
    }
    assert pairs(files) == {("a.js", "lib/area.js"), ("b.ts", "lib/shape.js"), ("c.js", "lib/shape.js")}


def test_a_file_that_cannot_be_parsed_is_named_and_costs_itself() -> None:
    """The reason comes back with its index; other files have their edges."""
    repository = repository_of({"a.rb": "class Alpha; end\n", "b.rb": "Alpha.new\n", "c.rb": "Alpha.new # boom\n"})
    found = symbol_edges(repository, (), parse)
    assert found == SymbolEdges(found.dependencies, {2: "crash: boom"})
    assert as_paths(repository, found.dependencies) == {("b.rb", "a.rb", "symbol")}


@pytest.mark.parametrize(
    ("path", "stem"),
    [("a/b.py", "b"), ("a/__init__.py", "a"), ("__init__.py", "__init__"), ("a/b/index.ts", "b"), ("x/y.test.js", "y")],
)
def test_the_stem_is_what_others_call_a_file(path: str, stem: str) -> None:
    """Directories stand for the file that is their entrance."""
    assert stem_of(path) == stem
