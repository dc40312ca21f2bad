"""Generates the package `headrace.blender.v1` of the protos: `python protos/generate.py [OUTPUT_DIRECTORY]`.

The generated files are committed, so that no user needs the compiler; a test generates them again and compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

PROTOS = Path(__file__).resolve().parent


def generate(output: Path = PROTOS.parent) -> list[Path]:
    """Compile every proto file.

    Args:
        output: root for the generated modules.

    Returns:
        The files written.

    Raises:
        RuntimeError: the compiler refused a file; it printed where.
    """
    from grpc_tools import protoc

    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    flags = [f"--{kind}={output}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    if protoc.main(["protoc", f"--proto_path={PROTOS}", *flags, *sources]) != 0:
        raise RuntimeError(f"protoc refused {', '.join(sources)}; its message is above")
    stems = [output / Path(source).with_suffix("") for source in sources]
    return [stem.with_name(stem.name + end) for stem in stems for end in ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")]


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTOS.parent)
