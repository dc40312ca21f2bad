"""Two spellings of a location are one place where they are, and nothing outside of a warehouse counts as inside."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.tables.locations import is_inside, is_local, plain, real

PARTS = st.sampled_from(["wh", "wh2", "other", "t", "", ".", "..", "%2e%2e", "a b", "ü"])
PATHS = st.lists(PARTS, max_size=6).map("/".join)
SCHEMES = st.sampled_from(["s3", "s3a", "s3n", "S3", "gs", "abfss"])
BUCKETS = st.sampled_from(["b", "b2", "other"])


@given(SCHEMES, BUCKETS, PATHS, BUCKETS, PATHS)
def test_a_uri_is_inside_where_it_is_under_both_readings(
    scheme: str, bucket: str, path: str, root_bucket: str, root: str
) -> None:
    """Key by key: as stores read it, letter by letter, and as programs do that resolve `..` first."""

    def is_below(keys: list[str], others: list[str]) -> bool:
        return keys[: len(others)] == others

    def literal(bucket: str, path: str) -> list[str]:
        return f"{bucket}/{path}".rstrip("/").split("/")

    def resolved(bucket: str, path: str) -> list[str]:
        keys = f"{bucket}/{path}".rstrip("/")
        return posixpath.normpath(keys).split("/")

    expected = all(is_below(read(bucket, path), read(root_bucket, root)) for read in (literal, resolved))
    assert is_inside(f"{scheme}://{bucket}/{path}", f"{scheme}://{root_bucket}/{root}") == expected
    assert not is_inside(f"/{bucket}/{path}", f"{scheme}://{root_bucket}/{root}")


@given(SCHEMES, BUCKETS, PATHS)
def test_spellings_of_a_scheme_are_one_place(scheme: str, bucket: str, path: str) -> None:
    """S3 has three names, a scheme any case, and a slash at the end says nothing; other stores are others."""
    location = f"{scheme}://{bucket}/{path}"
    for other in (f"{scheme.upper()}://{bucket}/{path}", f"{location}/", f"{location}//"):
        assert plain(other) == plain(location) and real(other) == real(location)
    if scheme.lower() in ("s3", "s3a", "s3n"):
        assert real(location) == real(f"s3://{bucket}/{path}") and not is_inside(location, f"gs://{bucket}")
    assert plain(plain(location)) == plain(location) and not is_local(location)


@given(PATHS, PATHS)
def test_a_path_is_inside_where_the_system_says_so(path: str, root: str) -> None:
    """Of paths without links, absolute, from the working directory, and as URIs: as `os.path` has it."""
    for place, below in ((f"/{path}", f"/{root}"), (f"x/{path}", f"x/{root}")):
        one, other = os.path.realpath(place), os.path.realpath(below)
        expected = os.path.commonpath([one, other]) == other
        assert is_inside(place, below) == expected
        if place.startswith("/"):
            assert is_inside(f"file://{place}", below) == is_inside(f"FILE:{place}", f"file:{below}/") == expected


def test_links_are_followed(tmp_path: Path) -> None:
    """A folder whose name only begins the same is another; a link leads to where it leads."""
    (tmp_path / "lake" / "in").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    (tmp_path / "lake" / "out").symlink_to(tmp_path / "elsewhere")
    root = str(tmp_path / "lake")
    assert all(is_inside(one, root) for one in (root, f"{root}/", f"file://{root}/in", f"file:{root}", f"{root}/new"))
    assert is_inside(f"{tmp_path}/link/in", root) and is_inside(root, f"{tmp_path}/link/")
    assert not any(is_inside(one, root) for one in (f"{root}2", f"{root}/../elsewhere", f"{root}/out/t", "s3://a/b"))


@pytest.mark.parametrize(
    ("location", "root", "expected"),
    [
        ("s3://b/wh/../other", "s3://b/wh", False),  # Blender said it was inside
        ("s3://b/other/../wh/t", "s3://b/wh", False),  # a store's key does not begin with wh/; Spark's side said so
        ("S3://b/wh/t", "s3://b/wh", True),  # neither side knew
        ("FILE:///wh/t", "/wh", True),  # likewise
        ("s3://b/wh2/t", "s3://b/wh", False),
        ("s3://b//wh/t", "s3://b/wh", False),
        ("s3://b/wh//t", "s3://b/wh", True),
        ("/anything", "/", True),
    ],
)
def test_known_cases(location: str, root: str, expected: bool) -> None:
    """Those on which the two sides differed, or were wrong alike, and their neighbours."""
    assert is_inside(location, root) is expected
