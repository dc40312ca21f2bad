"""Imports between Protocol Buffers files: traps, and what protoc itself says of the files of packages."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from spark_jobs.code.imports.proto_imports import proto_imports
from tests.spark_jobs.code.made_repository import as_paths, edges, repository_of, targets


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('import "a/b.proto";', ["a/b.proto"]),
        ("import public \"a/b.proto\"; import weak 'c.proto';", ["a/b.proto", "c.proto"]),
        ('edition = "2024";\nimport option "d.proto";', ["d.proto"]),
        ('import\n  "a/b.proto" ;', ["a/b.proto"]),
        ("import \"a/\" 'b.proto';", ["a/b.proto"]),
        ('// import "a/b.proto";\n/* import "c.proto"; */ import "d.proto";', ["d.proto"]),
        ('option x = "import \\"a/b.proto\\";";', []),
        ("message M { string import = 1; }", []),
        ('important "a/b.proto";', []),
        ('import "a/b.proto"', []),
    ],
)
def test_statements_are_found_outside_of_comments_and_strings(text: str, named: list[str]) -> None:
    """Each form and each trap on its own."""
    files = {"x.proto": text, "lib/a/b.proto": "", "c.proto": "", "d.proto": ""}
    assert targets(proto_imports, files, "x.proto") == sorted(
        path if path in files else f"lib/{path}" for path in named
    )


def test_of_several_files_with_a_path_the_nearest_is_meant() -> None:
    """Two services that vendor the same protos."""
    files = {"a/g/x.proto": "", "a/s.proto": 'import "g/x.proto";'}
    files |= {path.replace("a/", "b/"): text for path, text in files.items()}
    found = {(needs, needed) for needs, needed, _ in edges(proto_imports, files)}
    assert found == {("a/s.proto", "a/g/x.proto"), ("b/s.proto", "b/g/x.proto")}


@pytest.mark.parametrize("package", ["google.api", "grpc_tools"])
def test_edges_are_those_of_protoc(tmp_path: Path, package: str) -> None:
    """Of all files of googleapis-common-protos, and of the protos that grpcio-tools brings."""
    tools = importlib.util.find_spec("grpc_tools")
    spec = importlib.util.find_spec(package)
    if tools is None or spec is None or not spec.submodule_search_locations:
        pytest.skip("needs grpcio-tools and googleapis-common-protos")
    place = Path(next(iter(spec.submodule_search_locations)))
    root = place.parents[1] if package == "google.api" else place / "_proto"
    inside = "google" if package == "google.api" else ""
    paths = sorted(path for path in (root / inside).rglob("*.proto"))
    names = [str(path.relative_to(root)) for path in paths]
    out = tmp_path / "all.pb"
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"--descriptor_set_out={out}", *names],
        check=True,
        capture_output=True,
    )
    described = FileDescriptorSet.FromString(out.read_bytes())
    there = set(names)
    wanted = {(one.name, needed) for one in described.file for needed in one.dependency if needed in there}
    repository = repository_of({name: path.read_text() for name, path in zip(names, paths, strict=True)})
    found = {(needs, needed) for needs, needed, _ in as_paths(repository, proto_imports(repository))}
    assert found == wanted and len(wanted) > 5
