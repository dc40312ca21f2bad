"""The name of a file says its kind, language and media type."""

from __future__ import annotations

import re

import pytest

from spark_jobs.sources.languages import LOCK_FILE, Language, is_manifest, language_of


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("a/b.py", Language("code", "Python", "text/x-python")),
        ("a/B.PYI", Language("code", "Python", "text/x-python")),
        ("x.pyx", Language("code", "Cython", "text/x-cython")),
        ("x.h", Language("code", "C", "text/x-c")),
        ("Makefile", Language("code", "Makefile", "text/x-makefile")),
        ("a/CMakeLists.txt", Language("code", "CMake", "text/x-cmake")),
        ("x.html", Language("markup", "HTML", "text/html")),
        ("go.mod", Language("data", "Go Module", "text/x-go.mod")),
        ("a/go.work", Language("data", "Go Workspace", "text/x-go.work")),
        ("build.gradle", Language("data", "Gradle", "text/x-gradle")),
        ("x.cts", Language("code", "TypeScript", "text/x-typescript")),
        ("guide.mdx", Language("prose", None, "text/markdown")),
        ("x.json", Language("data", "JSON", "application/json")),
        ("README.md", Language("prose", None, "text/markdown")),
        ("CHANGES.rst", Language("prose", None, "text/x-rst")),
        ("notes.txt", Language("prose", None, "text/plain")),
        ("LICENSE", None),
        ("x.so", None),
        ("py", None),
        ("a.py/x", None),
    ],
)
def test_language_follows_the_name(path: str, language: Language | None) -> None:
    """By whole name first, then by extension in any case of letters; a directory's name says nothing."""
    assert language_of(path) == language


@pytest.mark.parametrize(
    "path",
    """go.mod go.work Cargo.toml package.json tsconfig.json tsconfig.base.json jsconfig.json pom.xml build.gradle
    build.gradle.kts settings.gradle settings.gradle.kts pyproject.toml setup.cfg compile_commands.json""".split(),  # noqa: SIM905
)
def test_manifests_are_known_by_name_and_land(path: str) -> None:
    """In any directory, and as the id of a record; every one has a kind, so it is read."""
    assert is_manifest(path) and is_manifest(f"a/b/{path}") and is_manifest(f"part-0.jsonl#{path}")
    assert not is_manifest(f"{path}.txt") and not is_manifest(f"my-{path}")
    assert language_of(path) is not None


LOCK_FILES = """package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb deno.lock Cargo.lock
    poetry.lock uv.lock pdm.lock pylock.toml pylock.dev.toml Pipfile.lock conda-lock.yml composer.lock Gemfile.lock
    gems.locked go.sum go.work.sum flake.lock packages.lock.json gradle.lockfile mix.lock rebar.lock pubspec.lock
    Podfile.lock Package.resolved Cartfile.resolved renv.lock MODULE.bazel.lock .terraform.lock.hcl Chart.lock
    stack.yaml.lock cabal.project.freeze dub.selections.json .package-lock.json"""
NO_LOCK_FILES = "lock.py file-lock.c spinlock.json block.json src/lock/a.json lock.md go.summary a.lock/b.c"


def test_lock_files_are_known_by_name() -> None:
    """In any directory and as the id of a record; code and prose about locks is none."""
    for path in LOCK_FILES.split():
        assert all(re.search(LOCK_FILE, one) for one in (path, f"a/b/{path}", f"part-0.jsonl#{path}")), path
    assert not [path for path in NO_LOCK_FILES.split() if re.search(LOCK_FILE, path)]
