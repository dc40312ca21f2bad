"""Compile all kernels of the steps ahead of time, by sending small inputs through them.

Numba compiles a kernel when it is first called, for the types it is called with, and caches the result beside the
source. Without this program the workers of a fresh installation would all compile at the same time, in the first run.

    python -m spark_jobs.rehearsal
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa

from headrace.process.interrupts import heed_interrupts

_SOURCES = {
    "Python": ("a.py", "import b\nfrom c import d\n"),
    "JavaScript": ("a.js", "import b from './b.js'\nconst c = require('./c')\n"),
    "C": ("a.c", '#include "b.h"\n'),
    "Go": ("a.go", 'package a\n\nimport "fmt"\n\nfunc A() { fmt.Print("a") } // a\n'),
    "Java": ("A.java", "package a;\nimport a.b.C;\nclass A { C c; }\n"),
    "Kotlin": ("A.kt", "package a\nimport a.b.C\nclass A(val c: C)\n"),
    "Rust": ("src/lib.rs", "mod b;\nuse crate::b::C;\n"),
}


def rehearse() -> None:
    """Run every compiled kernel but deduplication's once, on the types that workers call it with."""
    _find_imports()
    _order_files()
    _encode()
    _copy_tokens()
    _hash_rows()


def _find_imports() -> None:
    from spark_jobs.code.imports.dependency import RepositoryTexts
    from spark_jobs.code.repository_edges import RESOLVERS

    files = sorted((path, text, language) for language, (path, text) in _SOURCES.items())
    repository = RepositoryTexts(*(tuple(column) for column in zip(*files, strict=True)))
    for resolver in RESOLVERS:
        list(resolver(repository))


def _order_files() -> None:
    from spark_jobs.code.order.dependency_order import Edges, order_files

    ends = np.array([0, 1, 2], np.int64)
    edges = Edges(needs=ends, needed=(ends + 1) % 3, kind=np.zeros(3, np.int64))
    for policy in ("dependencies_first", "two_level", "depth_first"):
        order_files(["a/a.py", "a/b.py", "b/c.py"], edges, policy)


def _encode() -> None:
    from spark_jobs.tokens.certificate import certify
    from spark_jobs.tokens.fast.code_points import has_any
    from spark_jobs.tokens.hf_tokenizer import train_byte_pairs

    has_any(np.frombuffer(b"a", np.uint8), np.zeros(1, np.bool_))
    tokenizer = train_byte_pairs(["a few words, a few words"], 300, 2)
    certify(tokenizer)  # keeps what it finds of the tokenizers that headrace trains


def _copy_tokens() -> None:
    from spark_jobs.packing.plan.shuffle_at_rest import permute
    from spark_jobs.packing.windows.token_loops import copy_ids, copy_slices, sum_slices

    ids = pa.array([1, 2, 3], pa.int32()).to_numpy()
    ones = np.zeros(1, np.int64)
    for target in (np.uint16, np.int32):
        copy_slices(ids, ones, ones + 3, np.empty(3, target), ones)
    for id_bytes in (2, 4):
        copy_ids(ones, ones, id_bytes, np.empty(3, np.int32), ones)
    sum_slices(ids, ones, ones + 3, ones, ones)
    permute(ones, 2, 0)


def _hash_rows() -> None:
    from spark_jobs.lake.ledger.row_hashes import row_hashes

    columns = {
        "int": pa.array([1], pa.int32()),
        "long": pa.array([1], pa.int64()),
        "text": pa.array(["a"]),
        "ints": pa.array([[1]], pa.list_(pa.int32())),
        "longs": pa.array([[1]], pa.list_(pa.int64())),
        "numbers": pa.array([[1.0, None]], pa.list_(pa.float64())),
        "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
        "structs": pa.array([[{"a": True}]], pa.list_(pa.struct({"a": pa.bool_()}))),
    }
    row_hashes(pa.RecordBatch.from_pydict(columns))


if __name__ == "__main__":
    heed_interrupts()
    # Deduplication's kernels take as long as all others, so they are compiled at the same time.
    with subprocess.Popen([sys.executable, "-m", "spark_jobs.dedup.rehearsal"]) as deduplication:
        rehearse()
    sys.exit(deduplication.returncode)
