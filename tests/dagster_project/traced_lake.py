"""A small lake made with PyIceberg and Arrow alone, from the kernels: documents with edits, tokens, a packed table."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.types import BooleanType, ListType

from headrace.tables.settings import settings_at
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.plan.increments import INCREMENTS
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.packing.packed_table import packed_table
from spark_jobs.packing.plan.best_fit import plan_slots
from spark_jobs.packing.plan.units import cut_documents
from spark_jobs.packing.windows.assemble import PARTS_SCHEMA, assemble_windows
from spark_jobs.packing.windows.window_facts import WindowForm
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.text.normalization import RULES, normalize
from spark_jobs.text.texts import TEXTS
from spark_jobs.tokens.hf_tokenizer import ExactEncoder, train_byte_pairs
from spark_jobs.tokens.tokenizer import TOKENIZER
from spark_jobs.tokens.tokens import TOKENS

SIZE = 16
PACKED = f"main.packed_code_{SIZE}"
SOURCES: dict[str, tuple[bytes, str]] = {
    "plain.py": (b"def f(x):\n    return x + 1\n", "utf-8"),
    "windows.py": (b"import os\r\nimport sys\r\nprint(os, sys)\r\n", "utf-8"),
    "decomposed.py": ("name = 'cafe\u0301 \u2603 \U0001f40d'\n".encode(), "utf-8"),
    "marked.py": (b"\xef\xbb\xbfvalue = 'caf\xc3\xa9'\n", "utf-8-sig"),
    "latin.py": ("# -*- coding: latin-1 -*-\nname = 'caf\u00e9 au lait'\n".encode("latin-1"), "iso-8859-1"),
    "long.py": (b"for number in range(10):\n    print(number, number ** 2)\n" * 6, "utf-8"),
}


@dataclass(frozen=True)
class TracedLake:
    """What was made.

    Attributes:
        catalogue: of the lake.
        environment: PyIceberg's settings of it.
        ids: tokens by path.
        doc_ids: by path.
    """

    catalogue: Catalog
    environment: dict[str, str]
    ids: dict[str, list[int]]
    doc_ids: dict[str, str]


def make(root: Path) -> TracedLake:
    """Make the lake in a folder."""
    lake = settings_at(root)
    environment = {f"PYICEBERG_CATALOG__LAKE__{k.upper()}": v for k, v in lake.properties.items()}
    catalogue = open_catalogue(lake)
    texts = {path: normalize(data.decode(encoding)) for path, (data, encoding) in SOURCES.items()}
    doc_ids = {path: hashlib.sha256(path.encode()).hexdigest()[:32] for path in texts}

    documents, normal = [], []
    for path, (data, encoding) in SOURCES.items():
        documents.append(
            {
                "increment": 1,
                "shard": 0,
                "doc_id": doc_ids[path],
                "repository": "pages",
                "path": path,
                "revision": "r1",
                "kind": "code",
                "licence": "MIT",
                "content": data.decode(encoding),
                "encoding": encoding,
                "content_sha256": hashlib.sha256(data).hexdigest(),
                "byte_count": len(data),
            }
        )
        text, edits = texts[path]
        rows = zip(
            edits.rule.tolist(),
            edits.start.tolist(),
            edits.end.tolist(),
            edits.replacement_length.tolist(),
            strict=True,
        )
        normal.append(
            {
                "increment": 1,
                "shard": 0,
                "doc_id": doc_ids[path],
                "kind": "code",
                "content": text,
                "edits": [
                    {"rule": RULES[rule], "start": start, "end": end, "replacement_length": length}
                    for rule, start, end, length in rows
                ],
            }
        )
    write(catalogue, "code.documents", DOCUMENTS, documents)
    write(catalogue, "code.texts", TEXTS, normal)
    by_doc_id = write_corpus(catalogue, "code", 1, {doc_ids[path]: text for path, (text, _) in texts.items()})
    ids = {path: by_doc_id[doc_id] for path, doc_id in doc_ids.items()}
    return TracedLake(catalogue, environment, ids, doc_ids)


def write_corpus(catalogue: Catalog, dataset: str, increment: int, texts: dict[str, str]) -> dict[str, list[int]]:
    """Make the corpus `main` of the texts of an increment of a dataset, by doc_id, in shard 0; the tokens of each."""
    file = train_byte_pairs(list(texts.values()), 330, 2)
    sha256 = hashlib.sha256(file.encode()).hexdigest()
    encoded = ExactEncoder(file).encode(list(texts.values()), 1 << 20)
    ids = {doc_id: found.tolist() for doc_id, found in zip(texts, encoded, strict=True)}
    tokens = [
        {
            "increment": 0,
            "dataset": dataset,
            "shard": 0,
            "doc_id": doc_id,
            "input_ids": own,
            "token_count": len(own),
        }
        for doc_id, own in ids.items()
    ]
    tokenizer = {
        "increment": 0,
        "sha256": sha256,
        "vocabulary_size": 330,
        "special_tokens": [("<|endoftext|>", 0), ("<|padding|>", 1)],
        "end_of_document_id": 0,
        "padding_id": 1,
        "file": file,
    }
    taken = {"increment": 0, "dataset": dataset, "dataset_increment": increment, "arrival_count": len(texts)}
    write(catalogue, "main.increments", INCREMENTS, [taken])
    write(catalogue, "main.tokens", TOKENS, tokens)
    write(catalogue, "main.tokenizer", TOKENIZER, [tokenizer])
    windows = pack(list(ids.items()))
    properties = {
        "headrace.tokenizer-sha256": sha256,
        "headrace.vocabulary-size": "330",
        "headrace.end-of-document-id": "0",
        "headrace.padding-id": "1",
        "headrace.generation": "first",
    }
    write(catalogue, f"main.packed_{dataset}_{SIZE}", packed_table(dataset, SIZE), windows, properties)
    return ids


def pack(documents: list[tuple[str, list[int]]]) -> list[dict[str, Any]]:
    """Windows of some documents, without Spark."""
    pieces = cut_documents(np.array([len(ids) for _, ids in documents]), SIZE)
    lengths, counts = np.unique(pieces.length, return_counts=True)
    plan = plan_slots(dict(zip(lengths.tolist(), counts.tolist(), strict=True)), SIZE)
    order = np.argsort(-pieces.length, kind="stable")
    windows, places = np.empty_like(order), np.empty_like(order)
    windows[order], places[order] = plan.look_up(np.arange(len(order)), pieces.length[order])
    own = [np.array(ids, dtype="<u2") for _, ids in documents]
    parts = [
        {
            "ordinal": int(windows[n]),
            "window_start": int(places[n]),
            "doc_id": documents[d][0],
            "document_start": int(pieces.document_start[n]),
            "ids": own[d][int(pieces.document_start[n]) :][: int(pieces.own_tokens[n])].tobytes(),
            "begins": False,
            "ends": bool(pieces.ends[n]),
            "balance": 0,
        }
        for n, d in enumerate(pieces.document.tolist())
    ]
    parts.sort(key=lambda part: (part["ordinal"], part["window_start"]))
    facts = WindowForm(SIZE, end_of_document_id=0, padding_id=1, vocabulary_size=330)
    batches = assemble_windows([pa.RecordBatch.from_pylist(parts, schema=PARTS_SCHEMA)], facts)
    return [{**row, "increment": 0} for batch in batches for row in batch.to_pylist()]


def write(
    catalogue: Catalog,
    identifier: str,
    declared: Table,
    rows: list[dict[str, Any]],
    properties: dict[str, str] | None = None,
) -> None:
    """Make a table as declared and append rows."""
    own = {key: value for key, value in declared.properties.items() if not key.startswith("write.")}  # Spark's alone
    table = ensure_table(catalogue, identifier, replace(declared, properties=own), properties or {})
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def add_masks(lake: TracedLake) -> dict[int, list[bool]]:
    """Give the windows of the packed table random masks; by ordinal."""
    table, draw = lake.catalogue.load_table(PACKED), np.random.default_rng(1)
    windows = table.scan().to_arrow().sort_by("ordinal")
    inside = np.arange(SIZE) < windows["token_count"].to_numpy()[:, np.newaxis]
    masks = (draw.random(inside.shape) < 0.5) & inside
    with table.update_schema() as change:
        change.add_column("trainable", ListType(100, BooleanType(), element_required=True))
    rows = {**windows.to_pydict(), "trainable": masks.tolist()}
    table.overwrite(pa.Table.from_pydict(rows, schema=table.schema().as_arrow()))
    return dict(zip(rows["ordinal"], rows["trainable"], strict=True))
