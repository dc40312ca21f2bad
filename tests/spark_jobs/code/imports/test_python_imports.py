"""Imports between Python files: statements against Python's own parser, names trap by trap, edges against grimp."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.code.imports.python_imports import parse_import, python_imports
from spark_jobs.code.imports.python_statements import INNER, LOADED, TYPE_ONLY, import_statements
from tests.spark_jobs.code.made_repository import edges, repository_of, targets

Found = set[tuple[int, str, str, int]]


def statements(text: str) -> list[tuple[str, int]]:
    """Statements of a text with their kinds."""
    data = text.encode()
    rows = import_statements(np.frombuffer(data, dtype=np.uint8)).tolist()
    return [(data[start:end].decode(), kind) for start, end, kind in rows]


def by_lexer(text: str) -> Found:
    """What a text imports, as (dots, module, name, kind)."""
    return {(*target, kind) for statement, kind in statements(text) for target in parse_import(statement)}


def by_parser(text: str) -> Found:
    """The same from Python's own syntax tree."""
    found: Found = set()

    def visit(node: ast.AST, kind: int) -> None:
        if isinstance(node, ast.Import):
            found.update((0, name.name, "", kind) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = ("" if name.name == "*" else name.name for name in node.names)
            found.update((node.level, node.module or "", name, kind) for name in names)
        elif isinstance(node, ast.If) and re.fullmatch(r"(\w+\.)*TYPE_CHECKING", ast.unparse(node.test)):
            for inner in node.body:
                visit(inner, TYPE_ONLY)
            for inner in node.orelse:
                visit(inner, kind)
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kind = max(kind, INNER)
        for child in ast.iter_child_nodes(node):
            visit(child, kind)

    visit(ast.parse(text), LOADED)
    return found


def installed_files() -> list[Path]:
    """Source files of the packages that are installed here, hundreds of them."""
    root = Path(np.__file__).parents[1]
    return sorted(root.glob("[a-z]*/**/*.py"))[::59][:300]


@pytest.mark.nightly
def test_statements_of_installed_packages_are_those_of_the_syntax_tree() -> None:
    """Hundreds of real files: the same modules, names and kinds as by parsing; files of other Pythons are left out."""
    compared = 0
    for path in installed_files():
        text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
        try:
            expected = by_parser(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        assert by_lexer(text) == expected, path
        compared += 1
    assert compared > 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""\nimport a\n"""\nimport b\n', [("import b", LOADED)]),
        ("x = '''it's\nimport a\n'''\nimport b", [("import b", LOADED)]),
        ("x = 'import a'  # import b\n# import c\n", []),
        ("x = 'open\nimport a\n", [("import a", LOADED)]),
        ("import a; import b\n", [("import a", LOADED), ("import b", LOADED)]),
        ("try: import a\nexcept ImportError: import b\n", [("import a", LOADED), ("import b", LOADED)]),
        ("class C:\n    import a\n", [("import a", LOADED)]),
        (
            "lazy import a\nlazy from b import c; import d",
            [("lazy import a", INNER), ("lazy from b import c", INNER), ("import d", LOADED)],
        ),
        ("lazy \\\n  import a\n", [("lazy \\\n  import a", INNER)]),
        ("lazy\nimport a\n", [("import a", LOADED)]),
        ("lazy = 1\nlazy.x\nlazy (import_)\nlazyimport = 2\nlazy importer", []),
        ("if TYPE_CHECKING:\n    lazy import a\n", [("lazy import a", TYPE_ONLY)]),
        ("def f(x: int = 1) -> int: import a\nimport b\n", [("import a", INNER), ("import b", LOADED)]),
        ("async def f():\n\timport a\n", [("import a", INNER)]),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    import b\n", [("import a", TYPE_ONLY), ("import b", LOADED)]),
        ("if t.TYPE_CHECKING:  # why\n    import a\n", [("import a", TYPE_ONLY)]),
        ("if NOT_TYPE_CHECKING:\n    import a\n", [("import a", LOADED)]),
        ("if TYPE_CHECKING or x:\n    import a\n", [("import a", LOADED)]),
        (
            "def f():\n    if TYPE_CHECKING:\n        import a\n    import b\n",
            [("import a", TYPE_ONLY), ("import b", INNER)],
        ),
        ("def f():\n    pass\n# at the left\n    import a\n", [("import a", INNER)]),
        ("from a import (\n    b,  # c, d\n    e\n)\n", [("from a import (\n    b,  # c, d\n    e\n)", LOADED)]),
        ("from a \\\n    import b\n", [("from a \\\n    import b", LOADED)]),
        ("from.a import b", [("from.a import b", LOADED)]),
        ("x = (1,\nimport a\n", [("import a", LOADED)]),
        ("importlib.x\nimport_a = 1\nfrom_b = 2\nyield_ = x\n", []),
        ("def g():\n    yield from a\n    raise X from b\n", []),
        ("f'{x['import a']}'\nimport b", [("import b", LOADED)]),
        ("", []),
        ("import", []),
        ("\\", []),
        ("'''", []),
    ],
)
def test_statements_are_found_outside_of_strings_with_their_kind(text: str, expected: list[tuple[str, int]]) -> None:
    """Each trap on its own."""
    assert statements(text) == expected


@given(st.text(alphabet="import from\n\t'\"\\#()[]{}:;.def class if TYPE_CHECKING é", max_size=80))
def test_no_text_makes_the_lexer_fail(text: str) -> None:
    """Whatever stands there, spans lie inside the text and begin with a keyword."""
    for statement, kind in statements(text):
        assert statement.startswith(("import", "from"))
        assert kind in (LOADED, INNER, TYPE_ONLY)
        parse_import(statement)


PACKAGE = {"pkg/__init__.py": "", "pkg/a.py": "", "pkg/b/__init__.py": "", "pkg/b/c.py": "", "pkg/b/d.pyi": ""}


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("run.py", "import pkg.b.c", ["pkg/b/c.py"]),
        ("run.py", "import pkg.b.c as x, pkg.a", ["pkg/a.py", "pkg/b/c.py"]),
        ("run.py", "from pkg import a, b, nothing", ["pkg/__init__.py", "pkg/a.py", "pkg/b/__init__.py"]),
        ("run.py", "from pkg.b.c import name", ["pkg/b/c.py"]),
        ("run.py", "lazy import pkg.b.c as x, pkg.a", ["pkg/a.py", "pkg/b/c.py"]),
        ("run.py", "lazy from pkg import (\n    a,  # why\n    b,\n)", ["pkg/a.py", "pkg/b/__init__.py"]),
        ("run.py", "from pkg.b import *", ["pkg/b/__init__.py"]),
        ("run.py", "from pkg.b import d", ["pkg/b/d.pyi"]),
        ("pkg/x.py", "from . import a", ["pkg/a.py"]),
        ("pkg/x.py", "from .b.c import name", ["pkg/b/c.py"]),
        ("pkg/b/x.py", "from .. import a", ["pkg/a.py"]),
        ("pkg/b/x.py", "from ..a import name", ["pkg/a.py"]),
        ("pkg/b/x.py", "from . import name", ["pkg/b/__init__.py"]),
        ("pkg/b/x.py", "from ..... import a", []),
        ("pkg/x.py", "import a", []),
        ("pkg/x.py", "import missing.b.c", []),
        ("other/x.py", "from pkg.b import c", ["pkg/b/c.py"]),
    ],
)
def test_names_are_found_as_python_finds_them(path: str, text: str, expected: list[str]) -> None:
    """Absolute and relative, modules before names, packages for names that are no module."""
    assert targets(python_imports, {**PACKAGE, path: text}, path) == expected


def test_init_counts_relative_levels_from_its_own_directory() -> None:
    """`from .a` in `pkg/__init__.py` is `pkg/a.py`, not the sibling of `pkg`."""
    files = {"pkg/__init__.py": "from .a import x\nfrom . import b", "pkg/a.py": "", "pkg/b.py": "", "a.py": ""}
    assert targets(python_imports, files, "pkg/__init__.py") == ["pkg/a.py", "pkg/b.py"]


def test_sources_below_a_root_are_found_from_tests_beside_it() -> None:
    """`src/pkg` and a second distribution `extra/src/pkg2`, each with its own root."""
    files = {
        "src/pkg/__init__.py": "",
        "src/pkg/core.py": "",
        "src/single.py": "",
        "extra/src/pkg2/__init__.py": "from pkg.core import x",
        "tests/test_core.py": "import pkg.core, pkg2, single",
    }
    found = ["extra/src/pkg2/__init__.py", "src/pkg/core.py", "src/single.py"]
    assert targets(python_imports, files, "tests/test_core.py") == found
    assert targets(python_imports, files, "extra/src/pkg2/__init__.py") == ["src/pkg/core.py"]


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        ("pyproject.toml", '[tool.setuptools.package-dir]\n"" = "lib"\nacme = "sources"\n'),
        ("pyproject.toml", '[tool.setuptools]\npackage-dir = {acme = "./sources/"}\n'),
        (
            "setup.cfg",
            "[metadata]\npackage_dir = x\n\n[options]\npackage_dir =\n    = lib\n    acme = sources\nzip_safe=0\n",
        ),
        ("setup.cfg", "[options]\npackage_dir = acme=sources\n"),
    ],
)
def test_directories_that_setuptools_renames_are_found_by_their_new_name(manifest: str, text: str) -> None:
    """Beside the manifest, from inside and outside of the package; what is malformed renames nothing."""
    files = {
        "top/sources/__init__.py": "",
        "top/sources/text.py": "",
        "top/sources/deep/x.py": "import acme.text",
        "top/tests/test_text.py": "from acme import text\nimport acme",
        "other/acme_sources.py": "",
    }
    needed = [("top/sources/text.py"), ("top/sources/__init__.py")]
    found = {**files, f"top/{manifest}": text}
    assert sorted(targets(python_imports, found, "top/tests/test_text.py")) == sorted(needed)
    assert targets(python_imports, found, "top/sources/deep/x.py") == ["top/sources/text.py"]
    for broken in (
        "",
        "[[[",
        "[options]",
        "package-dir = 3",
        "[tool]\nsetuptools = 3\n",
        "x" * 1_000_000,
        " " * 1_000_000,
    ):
        assert targets(python_imports, {**files, f"top/{manifest}": broken}, "top/tests/test_text.py") == []


def test_the_top_of_a_repository_can_be_a_package() -> None:
    """`package-dir = {acme = "."}`, as flat extensions have it."""
    files = {
        "pyproject.toml": '[tool.setuptools.package-dir]\nacme = "."\n',
        "__init__.py": "",
        "text.py": "",
        "use.py": "from acme.text import upper",
    }
    assert targets(python_imports, files, "use.py") == ["text.py"]


def test_packages_without_init_are_found_by_the_end_of_their_path() -> None:
    """Namespace packages: several parts suffice, one does not."""
    files = {"src/company/tool/core.py": "", "src/company/tool/more.py": "", "app/run.py": ""}
    for text in ("import company.tool.core", "from company.tool import core", "from company.tool.core import x"):
        assert targets(python_imports, {**files, "app/run.py": text}, "app/run.py") == ["src/company/tool/core.py"]
    assert targets(python_imports, {**files, "app/run.py": "import core"}, "app/run.py") == []


def test_a_module_inside_a_regular_package_has_no_shorter_name() -> None:
    """`mypy.plugin` comes from elsewhere, though `pkg/ext/mypy/plugin.py` ends like it."""
    files = dict.fromkeys(("pkg/__init__.py", "pkg/ext/__init__.py", "pkg/ext/mypy/__init__.py"), "")
    files |= {"pkg/ext/mypy/plugin.py": "", "pkg/ext/mypy/util.py": "from mypy.plugin import x\nimport ext.mypy.plugin"}
    assert targets(python_imports, files, "pkg/ext/mypy/util.py") == []


def test_of_vendored_copies_the_nearest_is_meant() -> None:
    """Each user of `six.moves` has its own copy; who has none gets the one with the fewest directories."""
    copy = {"{}/six/__init__.py": "", "{}/six/moves.py": ""}
    files = {path.format(where): "" for where in ("a/vendor", "b/deep/vendor", "c") for path in copy}
    files |= dict.fromkeys(("a/x.py", "b/x.py", "c/x.py", "d/x.py"), "from six.moves import y")
    for user, where in (("a", "a/vendor"), ("b", "b/deep/vendor"), ("c", "c"), ("d", "c")):
        assert targets(python_imports, files, f"{user}/x.py") == [f"{where}/six/moves.py"]


def test_scripts_find_their_neighbours_and_no_one_elses() -> None:
    """A module of one part is meant in the own directory; `utils.py` of another one is not."""
    files = {"scripts/run.py": "import utils", "scripts/utils.py": "", "jobs/run.py": "import utils"}
    assert targets(python_imports, files, "scripts/run.py") == ["scripts/utils.py"]
    assert targets(python_imports, files, "jobs/run.py") == []


def test_the_standard_library_is_not_looked_for_in_packages() -> None:
    """`pkg/email/utils.py` and `pkg/queue.py` are no target of `import email.utils, queue`; a script's neighbour is."""
    files = {
        "pkg/__init__.py": "",
        "pkg/queue.py": "",
        "pkg/email/__init__.py": "",
        "pkg/email/utils.py": "",
        "pkg/x.py": "import email.utils, queue\nfrom email import utils",
        "scripts/queue.py": "",
        "scripts/run.py": "import queue",
    }
    assert targets(python_imports, files, "pkg/x.py") == []
    assert targets(python_imports, files, "scripts/run.py") == ["scripts/queue.py"]


def test_kinds_say_when_an_import_runs() -> None:
    """At load, when a function is called, or for the type checker alone."""
    text = "import a\nif TYPE_CHECKING:\n    import b\ndef f():\n    import c\n"
    files = {"a.py": "", "b.py": "", "c.py": "", "x.py": text}
    assert edges(python_imports, files) == {
        ("x.py", "a.py", "import"),
        ("x.py", "b.py", "import_type"),
        ("x.py", "c.py", "import_inner"),
    }


def test_evidence_is_the_statement_on_one_line() -> None:
    """White space and line ends closed up."""
    found = list(python_imports(repository_of({"a.py": "", "x.py": "from a import (\n    b,\n    c)\n"})))
    assert [edge.evidence for edge in found] == ["from a import ( b, c)"]


@pytest.mark.parametrize("package", ["networkx", "click", "jinja2", "_pytest"])
def test_edges_are_those_of_grimp(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign implementation on installed packages: every edge among files that both know, and no other."""
    grimp = pytest.importorskip("grimp", reason="comes with import-linter")
    specification = importlib.util.find_spec(package)
    if specification is None or specification.origin is None:
        pytest.skip(f"{package} is not installed")
    root = Path(specification.origin).parents[1]
    monkeypatch.setattr(sys, "path", [str(root), *sys.path])
    files = {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for path in Path(specification.origin).parent.rglob("*.py")
    }
    graph = grimp.build_graph(package, cache_dir=None)

    def module(path: str) -> str:
        return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    known = set(graph.modules)
    expected = {
        (importer, imported)
        for importer in known
        for imported in graph.find_modules_directly_imported_by(importer)
        if importer != imported
    }
    found = {(module(a), module(b)) for a, b, _ in edges(python_imports, files)}
    found = {pair for pair in found if known.issuperset(pair)}
    assert found == expected
