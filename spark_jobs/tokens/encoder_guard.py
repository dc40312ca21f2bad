"""What encodes a new increment gives the ids of those before it, or the run is refused.

    versions recorded with the table are those installed     nothing is done
    others                                                   ids of fixed texts are compared with the recorded ones, and
                                                             some stored documents are encoded again

The first difference is an error naming both versions and the text or document. Tables from before have no record: of
these documents alone are compared.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from pyiceberg.expressions import EqualTo

from headrace.kernels.fixed_texts import ENCODED_BY, FIXED_IDS, first_difference, first_unequal, fixed_ids
from spark_jobs.arrays import Int32Array
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Standing
from spark_jobs.lake.files.lookups import first_rows
from spark_jobs.lake.files.wide_values import read_wide_values
from spark_jobs.spark_sql import DataFrame
from spark_jobs.tokens.fast.fast_encoder import encoder_version, reference_version
from spark_jobs.tokens.hf_tokenizer import load_encoder

_LOOKED_AT: Final = 256  # stored documents
_COMPARED: Final = 16  # of them, chosen by hash
_MOST_CHARACTERS: Final = 1 << 20

Encode = Callable[[Sequence[str]], Sequence[Int32Array]]
"""Texts -> (T,) ids of each."""


def installed() -> str:
    """Versions of all that decides ids here."""
    return f"{reference_version()}; {encoder_version()}"


def recorded_versions(standing: Standing | None) -> str | None:
    """Versions of what made the earlier increments of a table; None where there are none, or none is recorded."""
    return None if standing is None else standing.table.properties.get(ENCODED_BY)


def require_same_encoder(file_text: str, encode: Encode, standing: Standing | None, documents: bool) -> dict[str, str]:
    """The properties to record the encoder, once it gives the ids of what is recorded.

    Args:
        file_text: text of the tokenizer.json.
        encode: gives the ids of texts, as those of the new increment are encoded.
        standing: the table as it stands; None where nothing of it stays.
        documents: whether it is `tokens`; then stored documents are encoded again.

    Raises:
        InputError: the ids of a fixed text or of a stored document differ.
    """
    now, ids = installed(), fixed_ids(file_text, encode)
    if standing is not None:
        recorded = standing.table.properties
        differing = first_difference(recorded.get(FIXED_IDS, "{}"), ids)
        if differing is None and documents:
            differing = _differing_document(standing, encode)
        if differing is not None:
            name = ".".join(standing.table.name())
            raise InputError(
                f"{name}: {differing[0]} gets other ids from token {differing[1]} on by {now} than by "
                f"{recorded.get(ENCODED_BY, 'the versions before')}, which made the earlier increments; install those "
                f"versions, or encode all anew by `headrace corpus refresh {name.split('.')[0]}`"
            )
    return {ENCODED_BY: now, FIXED_IDS: ids}


def same_reference(config: Any, inputs: Mapping[str, DataFrame], standing: Standing | None) -> dict[str, str]:
    """The guard of a step that takes ids over: what the installed reference gives is recorded, and compared.

    Raises:
        InputError: the ids of a fixed text differ.
    """
    del config
    row = inputs["tokenizer"].select("file").first() if recorded_versions(standing) != installed() else None
    if row is None:
        return {}
    reference = load_encoder(row["file"])
    return require_same_encoder(
        row["file"], lambda texts: list(reference.encode(texts, _MOST_CHARACTERS)), standing, documents=False
    )


def _differing_document(standing: Standing, encode: Encode) -> tuple[str, int] | None:
    """The first stored document, of some, with other ids than before, and the first token of the difference."""
    columns = ("dataset", "shard", "doc_id", "input_ids")
    rows = first_rows(standing.table, columns, _LOOKED_AT).to_pylist()
    chosen = sorted(rows, key=lambda row: zlib.crc32(row["doc_id"].encode()))[:_COMPARED]
    texts = _texts_of(standing, chosen)
    compared = [row for row in chosen if len(texts.get(row["doc_id"], "")) in range(1, _MOST_CHARACTERS)]
    for row, ids in zip(compared, encode([texts[row["doc_id"]] for row in compared]), strict=True):
        if not np.array_equal(row["input_ids"], ids):
            return f"document {row['doc_id']}", first_unequal(row["input_ids"], ids.tolist())
    return None


def _texts_of(standing: Standing, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The texts of documents as `tokens` encodes them: cut where the corpus cuts them, else whole."""
    places: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for row in rows:
        places[row["dataset"], row["shard"]].append(row["doc_id"])
    texts: dict[str, str] = {}
    for parameter in ("texts", "cut_texts"):  # the later ones count
        for identifier in standing.inputs.get(parameter, ()):
            for (dataset, shard), doc_ids in places.items():
                if parameter == "cut_texts" or identifier.split(".")[0] == dataset:
                    narrow = EqualTo("shard", shard)
                    texts |= read_wide_values(standing.catalogue, identifier, "content", doc_ids, narrow)
    return texts
