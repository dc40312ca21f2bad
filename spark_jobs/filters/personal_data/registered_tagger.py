"""Taggers of the registry: trained on a file of labelled texts, measured, and found again by name and version."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from spark_jobs.exceptions import InputError
from spark_jobs.lake.run.registry import find_entries
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.settings import load_settings

if TYPE_CHECKING:
    import pyarrow as pa

_KIND: Final = re.compile(r"[a-z][a-z_]{0,30}")


class Measured(NamedTuple):
    """Spans of one kind in texts that a tagger was not shown: labelled, found by it, and the same in both."""

    labelled: int
    found: int
    right: int


def read_labelled(path: Path) -> pa.Table:
    """Texts with labelled spans from a Parquet file, or from one with a JSON object on each line.

    Raises:
        InputError: the file cannot be read, or a kind is no name that a placeholder can have.
    """
    import pyarrow as pa
    import pyarrow.json
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path) if path.suffix == ".parquet" else pyarrow.json.read_json(path)
        rows = table.column("spans").to_pylist() if "spans" in table.column_names else []
        kinds = {span["kind"] for of_text in rows for span in of_text}
    except (OSError, pa.ArrowException, KeyError, TypeError) as error:
        first = str(error).splitlines()[0]
        raise InputError(
            f"tagger: {path}: {first}; give Parquet, or lines of "
            '{"content": .., "spans": [{"start": 0, "end": 3, "kind": "name"}]}, with bytes of the UTF-8'
        ) from error
    for kind in sorted(map(str, kinds)):
        if not _KIND.fullmatch(kind):
            raise InputError(f"tagger: {path}: the kind {kind!r} is no name; write [a-z][a-z_]*, at most 31 letters")
    return table


def read_list(written: str) -> tuple[str, list[str]]:
    """Name and lines of a list that is given as NAME=FILE.

    Raises:
        InputError: it names no file, or the file cannot be read or is empty.
    """
    name, _, file = written.partition("=")
    if not _KIND.fullmatch(name) or not file:
        raise InputError(f"tagger: list {written!r}: write NAME=FILE, such as city=cities.txt, a word or phrase a line")
    try:
        lines = [line for line in map(str.strip, Path(file).read_text("utf-8").splitlines()) if line]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"tagger: list {name}: {file} cannot be read ({error}); give a text file in UTF-8") from error
    if not lines:
        raise InputError(f"tagger: list {name}: {file} has no line; give a word or phrase a line")
    return name, lines


def train_measured(
    table: pa.Table, seed: int, lists: Mapping[str, list[str]] | None = None
) -> tuple[bytes, dict[str, Measured]]:
    """Train a tagger on four fifths of the texts, chosen by their hash, and measure it on the others.

    Raises:
        InputError: a column is missing, or no span has a kind.
    """
    import pyarrow as pa

    from spark_jobs.filters.personal_data.tagger import load, train

    if missing := {"content", "spans"} - set(table.column_names):
        raise InputError(f"tagger: the table has no column {sorted(missing)[0]!r}; it needs content and spans")
    digests = [hashlib.sha256(text.encode()).digest() for text in table.column("content").to_pylist()]
    held = pa.array([digest[0] % 5 == 0 for digest in digests], pa.bool_())
    model = train(table.filter(pa.compute.invert(held)), seed, lists=lists)
    shown = table.filter(held)
    labelled, found, right = Counter[str](), Counter[str](), Counter[str]()
    tagged = load(model).tag(shown.column("content").combine_chunks())
    for truth, spans in zip(shown.column("spans").to_pylist(), tagged, strict=True):
        wanted = {(span["start"], span["end"], span["kind"]) for span in truth}
        got = {(span.start, span.end, span.kind) for span in spans}
        for counts, some in ((labelled, wanted), (found, got), (right, wanted & got)):
            counts.update(kind for _, _, kind in some)
    return model, {kind: Measured(labelled[kind], found[kind], right[kind]) for kind in load(model).kinds}


def registered_tagger(reference: str) -> bytes:
    """A tagger of the registry.

    Raises:
        InputError: it is not there; the message names the nearest.
    """
    mend = "headrace model train NAME --from FILE"
    return find_entries(open_catalogue(load_settings()), "tagger", [reference], mend)[0].content
