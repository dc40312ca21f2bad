"""Kotlin: classes, functions and properties are found by import and by package."""

from __future__ import annotations

from spark_jobs.code.imports.java_names import kotlin_names
from tests.spark_jobs.code.made_repository import as_paths, repository_of


def test_imports_packages_and_extensions() -> None:
    """Explicit, renamed and wildcard imports, names of the own package, extension functions after a dot."""
    repository = repository_of(
        {
            "a/Shape.kt": "package a\n\nsealed class Shape\ntypealias Size = Int\n",
            "a/text.kt": 'package a\n\nfun String.shout(): String = "$this!"\nval limit = 3\n',
            "b/Named.kt": "package b\ninterface Named\n",
            "b/Only.kt": "package b\nobject Only\n",
            "c/Use.kt": (
                "package c\nimport a.Shape as Form\nimport a.shout\nimport b.*\nimport b.Only\n"
                '// Only\nclass Use(f: Form) : Named { val s = "${f}".shout() }\n'
            ),
            "a/near.kt": 'package a\nfun near(s: Size) = "x".shout()\n',
        }
    )
    assert as_paths(repository, kotlin_names(repository)) == {
        ("c/Use.kt", "a/Shape.kt", "import"),
        ("c/Use.kt", "a/text.kt", "import"),
        ("c/Use.kt", "b/Named.kt", "import"),
        ("c/Use.kt", "b/Only.kt", "import_type"),
        ("a/near.kt", "a/Shape.kt", "symbol"),
        ("a/near.kt", "a/text.kt", "symbol"),
    }
