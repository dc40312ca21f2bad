"""Java: every name finds the file that the compiler would find."""

from __future__ import annotations

from spark_jobs.code.imports.java_names import java_names
from tests.spark_jobs.code.made_repository import as_paths, repository_of


def needed_by(path: str, files: dict[str, str]) -> set[tuple[str, str]]:
    """(file, kind) that one of the files needs."""
    repository = repository_of(files)
    found = as_paths(repository, java_names(repository))
    return {(needed, kind) for needs, needed, kind in found if needs == path}


_TYPES = {
    "src/a/A.java": "package a;\npublic class A { public static class Inner {} }\n",
    "src/a/B.java": "package a;\nclass B {}\nclass Second {}\n",
    "src/b/A.java": "package b;\n@Tag(kind = 1) public interface A {}\n",
    "src/b/C.java": "package b;\npublic final @interface C {}\n",
}


def test_names_are_looked_up_as_the_compiler_does() -> None:
    """Explicit import, own package, wildcard, in this order; a second type of a file leads to it as well."""
    user = "package a;\nimport b.C;\nimport b.*;\nclass User { C c; A near; Second s; Missing m; }\n"
    assert needed_by("src/a/User.java", {**_TYPES, "src/a/User.java": user}) == {
        ("src/b/C.java", "import"),
        ("src/a/A.java", "symbol"),
        ("src/a/B.java", "symbol"),
    }


def test_a_byte_order_mark_hides_no_package_and_no_import() -> None:
    """Each is the first word of its file."""
    files = {"A.java": "\ufeffpackage a; public class A {}", "User.java": "\ufeffimport a.A; class User { A a; }"}
    assert needed_by("User.java", files) == {("A.java", "import")}


def test_an_explicit_import_hides_the_own_package() -> None:
    """`import b.A` makes `A` that one, also where the type is from outside."""
    user = "package a;\nimport b.A;\nimport other.B;\nclass User { A a; B b; }\n"
    assert needed_by("src/a/User.java", {**_TYPES, "src/a/User.java": user}) == {("src/b/A.java", "import")}


def test_nested_static_qualified_and_wildcard_names_lead_to_the_outer_type() -> None:
    """The longest part of a name that is a type here decides."""
    user = "package z;\nimport a.A.Inner;\nimport static b.C.*;\nclass User extends a . B { Inner i; }\n"
    assert needed_by("src/z/User.java", {**_TYPES, "src/z/User.java": user}) == {
        ("src/a/A.java", "import"),
        ("src/b/C.java", "import"),
        ("src/a/B.java", "import"),
    }


def test_comments_and_strings_name_nothing() -> None:
    """An import that only a comment uses is one for the reader."""
    user = 'package z;\nimport a.A;\n/** {@link A} b.C */\nclass User { String s = "A a.B"; char q = \'"\'; }\n'
    assert needed_by("src/z/User.java", {**_TYPES, "src/z/User.java": user}) == {("src/a/A.java", "import_type")}


def test_members_after_a_dot_are_no_types() -> None:
    """`x.Second` is a member of x, over line ends too."""
    user = "package a;\nclass User { int y = x.Second + f()\n   .B; }\n"
    assert needed_by("src/a/User.java", {**_TYPES, "src/a/User.java": user}) == set()


def test_of_two_copies_the_nearest_is_meant() -> None:
    """Modules of one repository may have the same class twice."""
    files = {
        "m/src/a/A.java": "package a; \nclass A {}\n",
        "n/src/a/A.java": "package a; \nclass A {}\n",
        "n/src/a/User.java": "package a; \nclass User { A a; }\n",
    }
    assert needed_by("n/src/a/User.java", files) == {("n/src/a/A.java", "symbol")}
