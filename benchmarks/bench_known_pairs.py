"""The pairs of a corpus against a file of pairs that you know: precision, recall and F1 at each threshold.

    python benchmarks/bench_known_pairs.py CORPUS TRUTH_FILE [--threshold 0.8] [--json]

In the folder of a project that ran. TRUTH_FILE has one pair in each line, two identifiers separated by white space, a
comma or a tab, or is Parquet with two columns. An identifier is a doc_id, a path, or the id of a record. Exact
duplicates are pairs of J = 1. The last column counts known pairs that were missed although both documents have the same
witness. Everything happens in this process over narrow columns: about 200 bytes a pair and 150 bytes a member.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import command
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from known_pairs import Resolution, read_truth, resolve
from pair_scores import FoundPairs, Score, score
from pyiceberg.catalog import Catalog

from dagster_project.cli.output import print_table, say
from dagster_project.exceptions import CommandError, DagsterProjectError
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, find_corpus
from dagster_project.inspect.measured import share_text
from dagster_project.project.loading import lake_catalogue
from dagster_project.restrictions import note_read
from spark_jobs.arrays import Int64Array
from spark_jobs.exceptions import SparkJobsError
from spark_jobs.lake.files.lookups import read_columns

_EXACT_ONLY = (1.0,)
_EXAMPLES = 5


@dataclass(frozen=True)
class Evaluation:
    """The scores of a corpus against a truth file, and the pairs of the file that are in no score.

    Attributes:
        pairs: pairs of the file.
        repeated: of them, repetitions, in either order.
        with_itself: of them, pairs of a document with itself.
        unresolved: of them, pairs with an identifier that names no member, or several.
        names: the members that the identifiers name.
        scores: by threshold.
    """

    pairs: int
    repeated: int
    with_itself: int
    unresolved: int
    names: Resolution
    scores: tuple[Score, ...]


def evaluate(catalogue: Catalog, corpus: CorpusFacts, truth: Path, threshold: float | None) -> Evaluation:
    """Score a corpus at one threshold, or at each that it compares.

    Args:
        catalogue: the lake's.
        corpus: whose pairs.
        truth: file of known pairs.
        threshold: least J; None for the thresholds of the corpus, or 1 where only exact duplicates are removed.

    Raises:
        CommandError: no identifier of the file names a member.
        InputError: the file cannot be read.
    """
    known = read_truth(truth)
    identifiers = pc.unique(pa.chunked_array([*known["first"].chunks, *known["second"].chunks]))
    members = _table(catalogue, corpus, "members", ("doc_id", "path"))
    names = resolve(identifiers, members)
    if names.doc_ids.null_count == len(identifiers):
        raise CommandError(
            f"truth file {truth}: none of its {len(identifiers):,} identifiers, e.g. {identifiers[0].as_py()!r}, names "
            f"one member of corpus {corpus.name}; write doc_ids, or paths as in {corpus.name}.members"
        )
    ends = [names.doc_ids.take(pc.index_in(known[side], identifiers)) for side in ("first", "second")]
    named = pc.and_(pc.is_valid(ends[0]), pc.is_valid(ends[1]))
    numbers = _Numbers(catalogue, corpus)
    pairs = np.column_stack([numbers.of(side.filter(named)) for side in ends])
    apart = pairs[pairs[:, 0] != pairs[:, 1]]
    thresholds = (threshold,) if threshold is not None else corpus.thresholds or _EXACT_ONLY
    scores = score(apart, *numbers.found(thresholds))
    return Evaluation(
        pairs=len(known),
        repeated=len(apart) - scores[0].known,
        with_itself=len(pairs) - len(apart),
        unresolved=len(known) - len(pairs),
        names=names,
        scores=tuple(scores),
    )


class _Numbers:
    """Numbers documents in the order they are met: first those of the truth, then those of the tables."""

    def __init__(self, catalogue: Catalog, corpus: CorpusFacts) -> None:
        self._catalogue, self._corpus = catalogue, corpus
        self._known = pa.array([], pa.string())

    def of(self, doc_ids: pa.Array | pa.ChunkedArray) -> Int64Array:
        """Numbers of documents, new ones for those not met before."""
        flat = pc.cast(doc_ids, pa.string())
        flat = flat.combine_chunks() if isinstance(flat, pa.ChunkedArray) else flat
        self._known = pc.unique(pa.chunked_array([self._known, flat]))
        return np.asarray(pc.index_in(flat, self._known), np.int64)

    def found(
        self, thresholds: tuple[float, ...]
    ) -> tuple[FoundPairs, Int64Array, tuple[float, ...], Mapping[float, Int64Array]]:
        """Pairs and removals of the corpus at some thresholds, as arguments of `evaluate.scores`."""
        weights = ("shared_weight", "united_weight")
        pairs = self._read("pairs", ("doc_id", "better_doc_id", *weights))
        first, second = self.of(pairs["doc_id"]), self.of(pairs["better_doc_id"])
        shared, united = (np.asarray(pairs[name], np.int64) for name in weights)
        repeats = self._read("exact_duplicates", ("doc_id", "witness_doc_id"))
        repeat, original = self.of(repeats["doc_id"]), self.of(repeats["witness_doc_id"])
        removals = self._read("removals", ("threshold", "doc_id", "witness_doc_id"))
        at = np.asarray(removals["threshold"], np.float64)
        removed, witness = self.of(removals["doc_id"]), self.of(removals["witness_doc_id"])
        count = len(self._known)
        stands = np.arange(count)
        stands[repeat] = original
        witnesses: dict[float, Int64Array] = {}
        for threshold in thresholds:
            witnesses[threshold] = np.full(count, -1)
            witnesses[threshold][removed[at == threshold]] = witness[at == threshold]
        return FoundPairs(first, second, shared, united), stands, thresholds, witnesses

    def _read(self, table: str, columns: tuple[str, ...]) -> pa.Table:
        """Columns of a table of the corpus; no rows where it has no such table."""
        if table in self._corpus.tables:
            return _table(self._catalogue, self._corpus, table, columns)
        return pa.table(
            {name: pa.array([], pa.string() if name.endswith("doc_id") else pa.int64()) for name in columns}
        )


def _table(catalogue: Catalog, corpus: CorpusFacts, table: str, columns: tuple[str, ...]) -> pa.Table:
    """Columns of a table.

    Raises:
        CommandError: it is not there, or empty of snapshots.
    """
    found = read_columns(catalogue, corpus.own(table), columns)
    if found is None:
        raise CommandError(f"{corpus.own(table)} has not been materialized; run: headrace run {corpus.name}")
    return found


def main() -> int:
    """Print the scores of a corpus; what a user can mend is one line and exit status 2."""
    parser = command.parser(__doc__)
    parser.add_argument("corpus", nargs="?", help="of the lake of this folder's project")
    parser.add_argument("truth", nargs="?", type=Path, help="file of known pairs")
    parser.add_argument("--threshold", type=float, help="least J of a pair; default: each threshold")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = command.read(parser)
    if options.corpus is None or options.truth is None:
        print("left out: name a corpus of this folder's lake and a file of known pairs")
        return 0
    try:
        catalogue = lake_catalogue()
        corpus = find_corpus(catalogue, options.corpus)
        note_read(catalogue, [corpus.name, *corpus.datasets])
        found = evaluate(catalogue, corpus, options.truth, options.threshold)
    except (DagsterProjectError, SparkJobsError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(as_json(found)))
    else:
        show(options.truth, found)
    return 0


def show(truth: Path, found: Evaluation) -> None:
    """Print the scores, and what is in none."""
    say(f"{truth}: {found.pairs:,} pairs{_set_aside(found)}")
    for text, unresolved in (("no member", found.names.unknown), ("several members", found.names.ambiguous)):
        if unresolved:
            more = ", ..." if len(unresolved) > _EXAMPLES else ""
            say(f"identifiers that name {text}: {len(unresolved):,} ({', '.join(unresolved[:_EXAMPLES])}{more})")
    say()
    print_table([_row(one) for one in found.scores])


def as_json(found: Evaluation) -> dict[str, Any]:
    """Scores and counts as JSON has them."""
    unresolved = {
        "pairs": found.unresolved,
        "unknown": len(found.names.unknown),
        "ambiguous": len(found.names.ambiguous),
        "examples": [*found.names.unknown[:_EXAMPLES], *found.names.ambiguous[:_EXAMPLES]],
    }
    return {
        "pairs": found.pairs,
        "repeated": found.repeated,
        "with_itself": found.with_itself,
        "unresolved": unresolved,
        "thresholds": [
            {**dataclasses.asdict(one), "precision": one.precision, "recall": one.recall, "f1": one.f1}
            for one in found.scores
        ],
    }


def _set_aside(found: Evaluation) -> str:
    """A remark on pairs of the file that were not scored, such as ` (2 of a document with itself, in no score)`."""
    parts = [
        f"{count:,} {text}"
        for count, text in (
            (found.unresolved, "with an identifier that cannot be resolved, in no score"),
            (found.with_itself, "of a document with itself, in no score"),
            (found.repeated, "written more than once"),
        )
        if count
    ]
    return f" ({'; '.join(parts)})" if parts else ""


def _row(one: Score) -> dict[str, Any]:
    """A score with short names of columns."""
    return {
        "J": f"{one.threshold:g}",
        "found": one.found,
        "known": one.known,
        "both": one.both,
        "precision": share_text(one.precision, ".4f"),
        "recall": share_text(one.recall, ".4f"),
        "F1": share_text(one.f1, ".4f"),
        "one witness": one.same_witness,
    }


if __name__ == "__main__":
    sys.exit(main())
