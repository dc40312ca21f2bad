"""Rust: the module tree, and paths followed to where a name is defined."""

from __future__ import annotations

import pytest

from spark_jobs.code.imports.rust_source import read_rust, use_tree
from spark_jobs.code.imports.rust_uses import rust_uses
from tests.spark_jobs.code.made_repository import as_paths, repository_of

_CARGO = {"Cargo.toml": '[package]\nname = "my-crate"\nedition = "2021"\n'}


def found(files: dict[str, str]) -> set[tuple[str, str, str]]:
    """Dependencies of a repository with a Cargo.toml."""
    repository = repository_of({**_CARGO, **files})
    return as_paths(repository, rust_uses(repository))


@pytest.mark.parametrize(
    ("tree", "uses"),
    [
        ("a::b", {("a::b", "b")}),
        ("a::b as c", {("a::b", "c")}),
        ("a::{self, b, c as d, e::*}", {("a", "a"), ("a::b", "b"), ("a::c", "d"), ("a::e", "*")}),
        ("a::{b::{c, d}, e}, f", {("a::b::c", "c"), ("a::b::d", "d"), ("a::e", "e"), ("f", "f")}),
        ("::x::y", {("::x::y", "y")}),
        ("{a::b, c}", {("a::b", "b"), ("c", "c")}),
        ("r#type::T as _", {("type::T", "_")}),
        ("super::*", {("super", "*")}),
    ],
)
def test_use_trees_are_read_to_their_leaves(tree: str, uses: set[tuple[str, str]]) -> None:
    """Groups nest, leaves may be renamed, `self` is the path before it."""
    assert {("::".join(use.segments), use.name) for use in use_tree(tree, "")} == uses


def test_modules_are_found_where_rust_looks_for_them() -> None:
    """x.rs and x/mod.rs, children of both, inline modules, `#[path]` beside other attributes, macros around."""
    files = {
        "src/lib.rs": (
            'mod a;\nmod b;\nmod inline { mod c; #[path = "odd.rs"] mod d; }\n'
            '#[cfg(unix)]\n#[path = "sys/unix.rs"]\n#[allow(dead_code)]\npub(crate) mod sys;\n'
            '#[cfg(windows)]\n#[path = "sys/windows.rs"]\nmod sys;\n'
            'cfg_if! { if #[cfg(x)] { mod e; } }\n// mod f;\nconst S: &str = "mod f; // ";\nmod g;\n'
        ),
        "src/a.rs": "mod child;\n",
        "src/a/child.rs": "",
        "src/b/mod.rs": "mod child;\n",
        "src/b/child.rs": "",
        "src/inline/c.rs": "",
        "src/inline/odd.rs": "",
        "src/sys/unix.rs": "mod below;\n",
        "src/sys/below.rs": "",
        "src/sys/windows.rs": "",
        "src/e.rs": "",
        "src/f.rs": "",
        "src/g.rs": "",
    }
    expected = {("src/lib.rs", f"src/{name}.rs") for name in ("a", "b/mod", "inline/c", "inline/odd", "e", "g")}
    expected |= {("src/lib.rs", "src/sys/unix.rs"), ("src/lib.rs", "src/sys/windows.rs")}
    expected |= {("src/a.rs", "src/a/child.rs"), ("src/b/mod.rs", "src/b/child.rs")}
    expected |= {("src/sys/unix.rs", "src/sys/below.rs")}
    assert found(files) == {(*edge, "module") for edge in expected}


def test_paths_are_followed_to_where_a_name_is_defined() -> None:
    """Through `pub use`, through globs, through names that a `use` bound, from self, super and crate."""
    files = {
        "src/lib.rs": "mod a;\nmod b;\nmod c;\npub use a::Thing;\npub use b::*;\n",
        "src/a.rs": "pub struct Thing;\n",
        "src/b/mod.rs": "pub mod deep;\npub fn plain() {}\n",
        "src/b/deep.rs": "use super::plain;\nuse super::super::a as other;\nfn f() { other::Thing::new(); }\n",
        "src/c.rs": 'use crate::{plain, Thing};\nfn f() { crate::b::deep::g(); let s = "crate::c::x"; }\n',
    }
    assert {edge for edge in found(files) if edge[2] != "module"} == {
        ("src/lib.rs", "src/a.rs", "import"),
        ("src/lib.rs", "src/b/mod.rs", "import"),
        ("src/b/deep.rs", "src/b/mod.rs", "import"),
        ("src/b/deep.rs", "src/a.rs", "import"),
        ("src/c.rs", "src/a.rs", "import"),
        ("src/c.rs", "src/b/mod.rs", "import"),
        ("src/c.rs", "src/b/deep.rs", "import"),
    }


def test_what_only_tests_use_is_weaker() -> None:
    """`use` inside `#[cfg(test)] mod tests` counts from the file, and less."""
    files = {
        "src/lib.rs": "mod a;\nmod b;\n",
        "src/a.rs": "pub fn f() {}\n#[cfg(test)]\nmod tests {\n    use super::*;\n    use crate::b::g;\n}\n",
        "src/b.rs": "use crate::a::f;\npub fn g() {}\n",
    }
    assert {edge for edge in found(files) if edge[2] != "module"} == {
        ("src/a.rs", "src/b.rs", "import_inner"),
        ("src/b.rs", "src/a.rs", "import"),
    }


def test_other_targets_and_crates_know_the_library_by_name() -> None:
    """tests/, src/main.rs and another package of the workspace, under a new name and an old edition too."""
    files = {
        "src/lib.rs": "pub mod a;\n",
        "src/a.rs": "pub struct A;\n",
        "src/main.rs": "use my_crate::a::A;\nfn main() {}\n",
        "tests/t.rs": "mod common;\nuse my_crate::a;\n",
        "tests/common/mod.rs": "",
        "sub/Cargo.toml": (
            '[package]\nname = "sub"\n[lib]\npath = "code/s.rs"\n[dependencies]\nmine = {package = "my-crate"}\n'
        ),
        "sub/code/s.rs": "extern crate mine;\nmod x;\nuse x::X;\n",
        "sub/code/x.rs": "use mine::a::A;\npub struct X;\nuse missing::Y;\n",
    }
    assert found(files) == {
        ("src/lib.rs", "src/a.rs", "module"),
        ("src/main.rs", "src/a.rs", "import"),
        ("tests/t.rs", "tests/common/mod.rs", "module"),
        ("tests/t.rs", "src/a.rs", "import"),
        ("sub/code/s.rs", "src/lib.rs", "import"),
        ("sub/code/s.rs", "sub/code/x.rs", "module"),
        ("sub/code/s.rs", "sub/code/x.rs", "import"),
        ("sub/code/x.rs", "src/a.rs", "import"),
    }


def test_macros_lead_to_the_file_that_defines_them() -> None:
    """`macro_rules!` has no path; one definition in the crate decides, two say nothing."""
    files = {
        "src/lib.rs": "#[macro_use]\nmod macros;\nmod a;\n",
        "src/macros.rs": "macro_rules! ready { () => {} }\nmacro_rules! twice { () => {} }\n",
        "src/a.rs": "fn f() { ready!(); twice!(); }\nmod inner { macro_rules! twice { () => {} } }\n",
    }
    assert {edge for edge in found(files) if edge[2] != "module"} == {("src/a.rs", "src/macros.rs", "symbol")}


def test_circles_end() -> None:
    """Files that declare each other, and names that are re-exported in a circle."""
    files = {
        "src/lib.rs": '#[path = "lib.rs"] mod again;\nmod a;\npub use a::Nowhere;\n',
        "src/a.rs": "pub use crate::Nowhere;\n",
    }
    assert ("src/lib.rs", "src/a.rs", "module") in found(files)


def test_deep_nesting_and_doubled_declarations_cost_little() -> None:
    """A thousand modules in each other, and files that each declare the next one twice."""
    deep = "mod m { " * 1000 + "use crate::f0::X; " + "}" * 1000
    files = {f"src/f{n}.rs": f'#[path = "f{n + 1}.rs"] mod a;\n#[path = "f{n + 1}.rs"] mod b;\n' for n in range(40)}
    edges = found({**files, "src/f40.rs": "pub struct X;\n", "src/lib.rs": f"mod f0;\n{deep}"})
    assert ("src/f39.rs", "src/f40.rs", "module") in edges


def test_broken_sources_and_manifests_are_read_as_far_as_they_go() -> None:
    """An unclosed module, a `use` without an end, a Cargo.toml that is no TOML."""
    repository = repository_of(
        {"Cargo.toml": "[package\n", "src/lib.rs": "mod a;\nmod b { use crate::a::X;", "src/a.rs": "use "}
    )
    assert ("src/lib.rs", "src/a.rs", "import") in as_paths(repository, rust_uses(repository))
    assert read_rust("mod x { fn f() { }").inner["x"].defined == {"f"}
