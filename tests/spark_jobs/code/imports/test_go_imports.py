"""Go: packages by module path, files by the names that are used."""

from __future__ import annotations

import pytest

from spark_jobs.code.imports.go_imports import go_imports, read_go
from tests.spark_jobs.code.made_repository import as_paths, repository_of

_MODULE = {"go.mod": "// module wrong\nmodule example.org/m // why\n\ngo 1.21\n"}
_TEXT = {
    "text/a.go": "package text\n\nfunc Upper(s string) string { return join(s) }\n",
    "text/b.go": "package text\n\nvar join, split = f, g\n\ntype (\n\tKind struct {\n\t\tSize int\n\t}\n)\n",
}


def found(files: dict[str, str]) -> set[tuple[str, str, str]]:
    """Dependencies of a repository with a go.mod."""
    repository = repository_of({**_MODULE, **files})
    return as_paths(repository, go_imports(repository))


def test_an_import_leads_to_the_files_whose_names_are_used() -> None:
    """Aliases count, names after a dot count, and inside a package bare names lead from file to file."""
    main = (
        'package main\n\nimport (\n\t"fmt"\n\tt "example.org/m/text"\n)\n\n'
        'func main() { fmt.Print(t.\n\tUpper("x")) }\n'
    )
    assert found({**_TEXT, "main.go": main}) == {
        ("main.go", "text/a.go", "import"),
        ("text/a.go", "text/b.go", "symbol"),
    }


def test_a_byte_order_mark_hides_no_package() -> None:
    """A package clause on the first line."""
    marked = {path: f"\ufeff{text}" for path, text in _TEXT.items()}
    assert found(marked) == {("text/a.go", "text/b.go", "symbol")} and read_go(marked["text/a.go"]).package == "text"


def test_an_import_without_a_name_leads_to_the_whole_package() -> None:
    """`_` imports and a raw string as a path."""
    main = "package main\n\nimport _ `example.org/m/text`\n"
    assert found({**_TEXT, "main.go": main}) >= {("main.go", "text/a.go", "import"), ("main.go", "text/b.go", "import")}


def test_comments_and_strings_import_nothing() -> None:
    """An import that was commented out, and one inside a raw string."""
    line = 'import "example.org/m/text"\n'
    main = f"package main\n\n// {line}/*\n{line}*/\nvar s = `\n{line}`\n"
    assert {edge for edge in found({**_TEXT, "main.go": main}) if edge[0] == "main.go"} == set()


def test_tests_see_the_package_and_nothing_sees_tests() -> None:
    """In-package tests use bare names; p_test imports; both may define what the package uses by accident."""
    files = {
        **_TEXT,
        "text/a_test.go": 'package text\n\nimport "example.org/m/other"\n\nfunc helper() { join(other.X) }\n',
        "text/x_test.go": 'package text_test\n\nimport "example.org/m/text"\n\nvar _ = text.Kind{}\nvar split = join\n',
        "other/o.go": 'package other\n\nimport "example.org/m/text"\n\nvar X = text.Upper("helper")\nvar helper = 1\n',
        "text/c.go": "package text\n\nvar y = helper()\n",
    }
    assert found(files) == {
        ("text/a.go", "text/b.go", "symbol"),
        ("text/a_test.go", "text/b.go", "symbol"),
        ("text/a_test.go", "other/o.go", "import"),
        ("text/x_test.go", "text/b.go", "import"),
        ("other/o.go", "text/a.go", "import"),
    }


def test_the_nearest_module_and_vendored_packages_are_found() -> None:
    """A nested go.mod has the longer path; `vendor` stands in for what is not of any module."""
    files = {
        "sub/go.mod": "module example.org/m/sub\n",
        "sub/v2/s.go": "package other\n\nconst S = 1\n",
        "vendor/host.org/x/y/y.go": "package y\n\nfunc Y() {}\n",
        "in/main.go": (
            'package main\n\nimport "example.org/m/sub/v2"\nimport "host.org/x/y"\n\n'
            "func main() { y.Y(); _ = other.S }\n"
        ),
    }
    assert found(files) == {
        ("in/main.go", "sub/v2/s.go", "import"),
        ("in/main.go", "vendor/host.org/x/y/y.go", "import"),
    }


@pytest.mark.parametrize("module", ["go.etcd.io/bolt", "example.com/user/bolt/v2", "gopkg.in/bolt.v1", "bolt"])
@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_module_path_has_any_number_of_parts_and_is_guessed_without_go_mod(module: str, has_manifest: bool) -> None:
    """The package at the top and those below it are found; what another module calls alike is not."""
    main = (
        f'package main\n\nimport (\n\t"errors"\n\t"{module}"\n\t"{module}/internal/common"\n\t"git.org/q/common"\n)\n\n'
        "func main() { bolt.Open(common.Page, errors.New) }\n"
    )
    files = {
        "db.go": f'package bolt\n\nimport "{module}/internal/common"\n\nfunc Open() {{ common.Page }}\n',
        "internal/common/page.go": "package common\n\nvar Page = 1\n",
        "errors/errors.go": "package errors\n\nfunc New() {}\n",
        "cmd/main.go": main,
        **({"go.mod": f"module {module}\n"} if has_manifest else {}),
    }
    repository = repository_of(files)
    assert as_paths(repository, go_imports(repository)) == {
        ("cmd/main.go", "db.go", "import"),
        ("cmd/main.go", "internal/common/page.go", "import"),
        ("db.go", "internal/common/page.go", "import"),
    }


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        ("app/go.mod", "module example.org/app\n\nreplace host.org/text v1.2.3 => ../fork/text // ours\n"),
        ("go.work", "go 1.22\n\nuse (\n\t./app\n)\n\nreplace (\n\thost.org/text => ./fork/text\n)\n"),
    ],
)
def test_a_module_that_a_directory_replaces_is_found_there(manifest: str, text: str) -> None:
    """By go.mod or go.work, from the directory of that file, whatever the module calls itself."""
    files = {
        manifest: text,
        "fork/text/go.mod": "module fork.org/text\n",
        "fork/text/a.go": "package text\n\nfunc Upper() {}\n",
        "app/main.go": 'package main\n\nimport "host.org/text"\n\nfunc main() { text.Upper() }\n',
    }
    assert found(files) == {("app/main.go", "fork/text/a.go", "import")}


def test_top_level_names_are_read_from_groups_and_lists() -> None:
    """Fields, methods, locals and the blank name are no top-level names."""
    source = read_go(
        "package p\nfunc F[T any]() {\n\tvar local = 1\n}\nfunc (r R) Method() {}\nfunc init() {}\n"
        "const (\n\tA = iota\n\tB\n)\nvar c, d int\nvar _ I = R{}\ntype (\n\tR struct {\n\t\tField int\n\t}\n)\n"
    )
    assert source.defined == {"F", "A", "B", "c", "d", "R"}
