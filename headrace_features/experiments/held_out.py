"""Held-out sets: texts to measure models by, and the documents thereby barred from training.

They belong to the experiment: the documents, nearly equal ones, and their families (a root with all that was
written from it) are left out of every variant, of a raw one too. Without that, copies in one of the variants decide.
Nearly is decided as contamination by a benchmark is (`spark_jobs.filters.contamination`): the text stands in the
document, or so much of it by runs of 13 words or by its words in another order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from dagster_project.exceptions import CommandError
from headrace_features.experiments.declaration import HeldOut
from spark_jobs.filters.contamination.eval_set import EvalSet, EvalText, item_id
from spark_jobs.filters.contamination.findings import score
from spark_jobs.filters.contamination.index import index_of
from spark_jobs.lake.files.lookups import read_batches
from spark_jobs.progress import tell
from spark_jobs.sources.landing.derivations import descendants, roots

ITSELF, NEAR, FAMILY = "held_out", "near", "family"


@dataclass(frozen=True)
class HeldOutSet:
    """A set of texts.

    Attributes:
        name: as declared.
        documents: (doc_id, text) of each; of a file the number of the line stands for the id.
        families: documents of the lake in its families.
    """

    name: str
    documents: tuple[tuple[str, str], ...]
    families: frozenset[str] = frozenset()

    @property
    def digest(self) -> str:
        """SHA-256 of its texts, in hex."""
        return hashlib.sha256("\0".join(text for _, text in self.documents).encode(errors="replace")).hexdigest()


def read_sets(catalogue: Catalog, declared: Mapping[str, HeldOut]) -> list[HeldOutSet]:
    """The texts of all sets.

    Raises:
        CommandError: a set has no text.
    """
    sets = []
    for name, source in declared.items():
        held_out = _of_dataset(catalogue, name, source) if source.dataset is not None else _of_file(name, source)
        if not held_out.documents:
            where = source.file or f"{source.dataset}.texts"
            raise CommandError(f"held-out set {name}: {where} gives no text; run the dataset, or raise share")
        sets.append(held_out)
    return sets


def excluded_documents(
    catalogue: Catalog, sets: Iterable[HeldOutSet], namespaces: Iterable[str], near_share: float
) -> dict[str, str]:
    """The documents of some datasets barred from training: held_out, near or family, by doc_id."""
    sets = list(sets)
    reasons = {doc_id: FAMILY for texts in sets for doc_id in texts.families}
    reasons |= {doc_id: ITSELF for texts in sets for doc_id, _ in texts.documents if not doc_id.isdecimal()}
    items = [EvalSet(texts.name, tuple(_items(texts.documents))) for texts in sets]
    contents = index_of(items)
    near = set()
    for namespace in sorted(namespaces):
        tell(f"looking for near-duplicates of held-out texts in {namespace}")
        for batch in read_batches(catalogue, f"{namespace}.texts", ("doc_id", "content")):
            rows = batch.filter(batch["content"].is_valid())
            findings = score(rows["content"].cast(pa.string()), contents)["findings"]
            for doc_id, hits in zip(rows["doc_id"].to_pylist(), findings.to_pylist(), strict=True):
                if any(hit["share"] >= near_share for hit in hits):
                    near.add(doc_id)
    near -= set(reasons)
    reasons |= dict.fromkeys(near, NEAR)
    reasons |= dict.fromkeys(descendants(catalogue, near) - set(reasons), FAMILY)
    return reasons


def datasets_of(catalogue: Catalog, tables: Iterable[str]) -> set[str]:
    """The datasets with documents in some packed tables."""
    corpora = {table.partition(".")[0] for table in tables}
    batches = (read_batches(catalogue, f"{corpus}.increments", ("dataset",)) for corpus in corpora)
    return {dataset for some in batches for batch in some for dataset in batch["dataset"].to_pylist()}


def _items(documents: Iterable[tuple[str, str]]) -> Iterator[EvalText]:
    for _, text in documents:
        if identity := item_id(text):
            yield EvalText(identity, "text", text)


def _of_dataset(catalogue: Catalog, name: str, declared: HeldOut) -> HeldOutSet:
    """The documents of a share of a dataset's families; the hash of the root decides for all of them."""
    documents: dict[str, str] = {}
    for batch in read_batches(catalogue, f"{declared.dataset}.texts", ("doc_id", "content")):
        pairs = zip(batch["doc_id"].to_pylist(), batch["content"].to_pylist(), strict=True)
        documents |= {doc_id: text for doc_id, text in pairs if text and text.strip()}
    if declared.verdict != "any":
        kept = EqualTo("kept", declared.verdict == "kept")
        judged = read_batches(catalogue, f"{declared.dataset}.verdicts", ("doc_id",), kept)
        of_side = {doc_id for batch in judged for doc_id in batch["doc_id"].to_pylist()}
        documents = {doc_id: text for doc_id, text in documents.items() if doc_id in of_side}
    root_of = roots(catalogue, documents)
    chosen = {doc_id for doc_id in documents if _is_held_out(root_of.get(doc_id, doc_id), declared.share)}
    families = {root_of.get(doc_id, doc_id) for doc_id in chosen}
    families |= descendants(catalogue, families)
    return HeldOutSet(
        name, tuple((doc_id, documents[doc_id]) for doc_id in sorted(chosen)), frozenset(families - chosen)
    )


def _is_held_out(root: str, share: float) -> bool:
    return int.from_bytes(hashlib.sha256(f"held out {root}".encode()).digest()[:8]) < share * 2**64


def _of_file(name: str, declared: HeldOut) -> HeldOutSet:
    assert declared.file is not None
    return HeldOutSet(name, tuple((str(n), text) for n, text in enumerate(_texts(declared.file, declared.text))))


def _texts(file: Path, field: str) -> Iterator[str]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise CommandError(f"{file}:{number}: not JSON: {error}") from error
        text = row.get(field) if isinstance(row, dict) else None
        if not isinstance(text, str) or not text.strip():
            raise CommandError(f"{file}:{number}: no text in {field!r}; name its field by `text`")
        yield text
