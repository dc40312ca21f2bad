"""Packages become repositories: facts from their metadata, and files below their roots."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.listing.changes import discover

LICENCE = (Path(__file__).parents[4] / "LICENSE").read_bytes()
CORE = "Metadata-Version: 2.1\nName: {}\nVersion: {}\nHome-page: https://example.org\nRequires-Dist: rich>=1\n"
Row = dict[str, Any]


def config(folder: Path, **source: object) -> DocumentsConfig:
    """A dataset of the packages in a folder."""
    return DocumentsConfig.model_validate(
        {"dataset": "packages", "source": {"kind": "packages", "path": str(folder), **source}}
    )


def packed(files: dict[str, bytes | str]) -> bytes:
    """A .tar.gz of files."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(target.getvalue(), mtime=0)


def sdist(name: str, version: str, **files: str) -> bytes:
    """A source distribution with a module for each file named."""
    root = f"{name}-{version}"
    code = {f"{root}/{name}/{module}.py": text for module, text in files.items()}
    return packed({f"{root}/PKG-INFO": CORE.format(name, version), **code})


def write_wheel(path: Path, name: str, version: str, **files: str) -> None:
    """A wheel with a module for each file named."""
    with zipfile.ZipFile(path, "w") as archive:
        for module, text in files.items():
            archive.writestr(f"{name}/{module}.py", text)
        archive.writestr(f"{name}-{version}.data/purelib/{name}_more.py", "more = 1\n")
        archive.writestr(f"{name}-{version}.dist-info/METADATA", CORE.format(name, version))
        archive.writestr(f"{name}-{version}.dist-info/licenses/LICENSE", LICENCE)


def test_packages_of_each_kind_are_repositories_of_their_files(
    tmp_path: Path, landing: Any, empty_arrivals: pa.Table
) -> None:
    """Name, version, licence, home page and dependencies; paths below the root, as in a checkout or site-packages."""
    extra = {
        "PKG-INFO": "Name: Some.Thing\nVersion: 2.0\n",
        "LICENSE": LICENCE,
        "src/some/a.py": "a = 1\n",
        "doc.md": "d",
    }
    extra |= {"src/Some.Thing.egg-info/requires.txt": "attrs>=2\n\n[dev]\npytest\n", "pyproject.toml": "[project]\n"}
    (tmp_path / "some.thing-2.0.tar.gz").write_bytes(packed({f"some.thing-2.0/{k}": v for k, v in extra.items()}))
    write_wheel(tmp_path / "wheeled-1.0-py3-none-any.whl", "wheeled", "1.0", a="import rich\n")
    npm = {"name": "@scope/pad", "version": "1.2.3", "license": "MIT", "repository": {"url": "git+https://x.org/p"}}
    npm |= {"dependencies": {"left": "^1"}, "keywords": ["k"]}
    (tmp_path / "scope-pad-1.2.3.tgz").write_bytes(
        packed({"package/package.json": json.dumps(npm), "package/i.js": "1", "package/node_modules/x/i.js": "2"})
    )
    crate = '[package]\nname = "serdes"\nversion = "0.1.0"\nlicense = "MIT/Apache-2.0"\n[dependencies]\nlibc = "0.2"\n'
    (tmp_path / "serdes-0.1.0.crate").write_bytes(
        packed({"serdes-0.1.0/Cargo.toml": crate, "serdes-0.1.0/src/lib.rs": "fn f() {}\n"})
    )
    listing = discover(config(tmp_path), empty_arrivals)
    assert listing is not None
    facts = {row["repository"]: json.loads(row["repository_facts"]) for row in listing.to_pylist()}
    said = ("revision", "licence", "home_page", "dependencies", "topics")
    assert {name: tuple(one[key] for key in said) for name, one in facts.items()} == {
        "some-thing": ("2.0", "Apache-2.0", None, ["attrs"], []),
        "wheeled": ("1.0", "Apache-2.0", "https://example.org", ["rich"], []),
        "@scope/pad": ("1.2.3", "MIT", "git+https://x.org/p", ["left"], ["k"]),
        "serdes": ("0.1.0", "MIT OR Apache-2.0", None, ["libc"], []),
    }
    documents, arrivals = landing.land(config(tmp_path))
    assert {(row["repository"], row["path"], row["language"], row["revision"]) for row in documents} == {
        ("some-thing", "src/some/a.py", "Python", "2.0"),
        ("some-thing", "pyproject.toml", "TOML", "2.0"),
        ("wheeled", "wheeled/a.py", "Python", "1.0"),
        ("wheeled", "wheeled_more.py", "Python", "1.0"),
        ("@scope/pad", "i.js", "JavaScript", "1.2.3"),
        ("@scope/pad", "package.json", "JSON", "1.2.3"),
        ("serdes", "src/lib.rs", "Rust", "0.1.0"),
        ("serdes", "Cargo.toml", "TOML", "0.1.0"),
    }
    assert {(row["path"], row["status"]) for row in arrivals if row["path"]} == {(".", "landed")}
    left = {row["location"].partition("#")[2]: row["reason"] for row in arrivals if not row["path"]}
    assert left == {
        "some.thing-2.0/PKG-INFO": "unknown_format",
        "some.thing-2.0/LICENSE": "other_kind",
        "some.thing-2.0/doc.md": "other_kind",
        "some.thing-2.0/src/Some.Thing.egg-info/requires.txt": "other_kind",
        "wheeled-1.0.dist-info/METADATA": "other_kind",
        "wheeled-1.0.dist-info/licenses/LICENSE": "other_kind",
        "package/node_modules/x/i.js": "hidden",
    }
    assert landing.land(config(tmp_path)) is None


def test_of_one_name_the_newest_is_taken_and_the_next_when_it_goes(tmp_path: Path, landing: Any) -> None:
    """Older versions and the wheel of the same version are rows; nothing is read that a change does not touch."""
    (tmp_path / "a-1.9.tar.gz").write_bytes(sdist("a", "1.9", x="one"))
    (tmp_path / "a-1.10.tar.gz").write_bytes(sdist("a", "1.10", x="ten"))
    write_wheel(tmp_path / "a-1.10-py3-none-any.whl", "a", "1.10", x="wheel")
    (tmp_path / "b-1.tar.gz").write_bytes(sdist("b", "1", y="b"))
    documents, arrivals = landing.land(config(tmp_path))
    assert sorted(row["content"] for row in documents) == ["b", "ten"]
    reasons = {os.path.basename(row["location"]): row["reason"] for row in arrivals if "#" not in row["location"]}
    other = "other_package"
    assert reasons == {
        "a-1.9.tar.gz": other,
        "a-1.10.tar.gz": None,
        "a-1.10-py3-none-any.whl": other,
        "b-1.tar.gz": None,
    }
    assert landing.land(config(tmp_path)) is None
    for name in ("a-1.10.tar.gz", "a-1.10-py3-none-any.whl"):
        (tmp_path / name).unlink()
    documents, arrivals = landing.land(config(tmp_path))
    assert [row["content"] for row in documents] == ["one"]
    statuses = {
        os.path.basename(row["location"]): (row["status"], row["path"])
        for row in arrivals
        if "#" not in row["location"]
    }
    assert statuses == {
        "a-1.9.tar.gz": ("landed", "."),
        "a-1.10.tar.gz": ("gone", None),
        "a-1.10-py3-none-any.whl": ("gone", None),
    }


def test_what_is_no_package_is_a_row_and_the_others_land(tmp_path: Path, landing: Any) -> None:
    """Metadata that are missing, broken or hostile, archives that are none, other files."""
    (tmp_path / "good-1.tar.gz").write_bytes(sdist("good", "1", x="good"))
    (tmp_path / "none-1.tar.gz").write_bytes(packed({"none-1/a.py": "x"}))
    (tmp_path / "cut-1.tar.gz").write_bytes(sdist("cut", "1", x="cut")[:40])
    (tmp_path / "broken.tgz").write_bytes(packed({"package/package.json": "{"}))
    (tmp_path / "list.tgz").write_bytes(packed({"package/package.json": "[]"}))
    (tmp_path / "deep.tgz").write_bytes(packed({"package/package.json": "[" * 100_000}))
    (tmp_path / "surrogate.tgz").write_bytes(
        packed({"package/package.json": '{"name": "a", "description": "\\ud800"}'})
    )
    (tmp_path / "lines.tgz").write_bytes(packed({"package/package.json": '{"name": "a\\nb"}'}))
    (tmp_path / "nothing.crate").write_bytes(b"")
    (tmp_path / "nothing-1-py3-none-any.whl").write_bytes(b"PK\x05\x06" + bytes(18))
    (tmp_path / "notes.txt").write_text("notes")
    documents, arrivals = landing.land(config(tmp_path))
    assert [row["content"] for row in documents] == ["good"]
    refused = [row for row in arrivals if row["reason"] and "#" not in row["location"]]
    reasons = {os.path.basename(row["location"]): row["reason"] for row in refused}
    assert reasons == {
        **dict.fromkeys(["none-1.tar.gz", "broken.tgz", "list.tgz", "deep.tgz", "surrogate.tgz"], "no_package"),
        **dict.fromkeys(["lines.tgz", "nothing-1-py3-none-any.whl"], "no_package"),
        **dict.fromkeys(["cut-1.tar.gz", "nothing.crate"], "corrupt_archive"),
        "notes.txt": "unknown_format",
    }
    assert landing.land(config(tmp_path)) is None
