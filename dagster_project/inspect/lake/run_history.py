"""What ran and what it changed, from the ledger and, where Dagster has run, its storage; the project is not loaded.

Each row of the ledger names its run: a Dagster run, or a command that changed rows.
What a run changed is the difference of the ledger's row counts before and after it; of documents, of those that count
(`inspect.documents.counted`).

    notes: +3 ~1 -1 files; 47 -> 87 documents
    main: 40 -> 71 documents kept; 8 -> 13 windows of 2048 tokens; 2 left the windows (1 gone, 1 replaced)
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In, LessThan

from dagster_project.inspect.documents.counted import At, documents_that_went, members_that_went
from spark_jobs.corpus_stages import stages_of
from spark_jobs.lake.files.lookups import EVERYTHING, read_columns, read_rows
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.ledger_table import LEDGER
from spark_jobs.lake.plan.excisions import EXCISIONS, SUPERSEDE_PREFIX
from spark_jobs.selection.stages import SURVIVORS

if TYPE_CHECKING:
    import dagster as dg

BY, SELECTION = "headrace/by", "headrace/selection"
"""Tags of the Dagster run of a command: who called it, and the words after it."""
_COMMAND_RUN = re.compile(r"headrace (.+) by (.+), [0-9a-f]{32}")
_PACKED = re.compile(r"packed_.+_([0-9]+)")
_COLUMNS = ("table", "place", "step_key", "row_count", "seconds", "run_id", "recorded_at")
_WENT = {"superseded": "replaced", "gone": "gone"}
_SIGNS = {"new": "+", "changed": "~", "gone": "-"}


@dataclass
class PastRun:
    """One run: a Dagster run, or a command with changed rows.

    Attributes:
        run_id: as in the ledger.
        began: when.
        seconds: its duration; of a command, the sum over its tables.
        by: its caller; a schedule, a sensor, or empty where unknown.
        what: the command line, or what Dagster ran.
        status: of Dagster (success, failure, ..), `stopped` where its process was told to; `success` of a command.
        computed: its rows of the ledger, in order.
        failed: its failed steps.
    """

    run_id: str
    began: datetime
    seconds: float
    by: str
    what: str
    status: str
    computed: list[dict[str, Any]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def past_runs(catalogue: Catalog, instance: dg.DagsterInstance | None, limit: int) -> list[PastRun]:
    """The newest runs, the newest first."""
    written: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in _ledger(catalogue):
        written[row["run_id"]].append(row)
    runs = {one.run_id: one for one in _of_dagster(instance, limit)} if instance is not None else {}
    for run_id, rows in written.items():
        if run_id not in runs:
            named = _COMMAND_RUN.fullmatch(run_id)
            what, by = named.groups() if named else ("run", "")
            seconds = sum(row["seconds"] for row in rows)
            runs[run_id] = PastRun(run_id, rows[0]["recorded_at"], seconds, by, what, "success")
        runs[run_id].computed = [row for row in rows if row["step_key"]]
    return sorted(runs.values(), key=lambda one: one.began, reverse=True)[:limit]


def _of_dagster(instance: dg.DagsterInstance, limit: int) -> Iterator[PastRun]:
    """Its newest runs, without what they computed."""
    import dagster as dg

    from dagster_project.inspect.lake.run_health import STOPPED

    for record in instance.get_run_records(limit=limit):
        run, tags = record.dagster_run, record.dagster_run.tags
        start = record.start_time or record.create_timestamp.timestamp()
        seconds = (record.end_time or start) - start
        by = tags.get(BY) or tags.get("dagster/schedule_name") or tags.get("dagster/sensor_name") or ""
        what = " ".join(filter(None, (tags.get("headrace/command", run.job_name), tags.get(SELECTION))))
        stopped = STOPPED.items() <= tags.items()
        status = "stopped" if stopped else run.status.value.lower()
        failed = []
        if run.status == dg.DagsterRunStatus.FAILURE and not stopped:
            steps = instance.get_run_step_stats(run.run_id)
            failed = [one.step_key.replace("__", ".") for one in steps if one.status and one.status.value == "FAILURE"]
        yield PastRun(run.run_id, datetime.fromtimestamp(start, UTC), seconds, by, what, status, failed=failed)


def changes(catalogue: Catalog, run_ids: Collection[str]) -> list[str]:
    """A line for each dataset and corpus with a table computed by some runs."""
    if not run_ids:
        return []
    rows = _ledger(catalogue)
    own = [row for row in rows if row["run_id"] in run_ids and row["step_key"]]
    if not own:
        return []
    spaces = sorted({row["table"].partition(".")[0] for row in own})
    tables = {row["table"] for row in own}
    first, last = own[0]["recorded_at"], own[-1]["recorded_at"]
    rows = [row for row in rows if row["table"] in tables and row["recorded_at"] <= last]
    before = _standing(row for row in rows if row["run_id"] not in run_ids and row["recorded_at"] <= first)
    after = _standing(rows)
    out = _taken_out(catalogue, run_ids)
    return [line for space in spaces if (line := _changed(catalogue, space, before, after, own, out))]


def _ledger(catalogue: Catalog) -> list[dict[str, Any]]:
    """Rows of the ledger, the oldest first; what a run took out of windows is of that run."""
    rows = sorted(read_rows(catalogue, LEDGER, _COLUMNS, EVERYTHING), key=lambda row: row["recorded_at"])
    return [{**row, "run_id": row["run_id"].removeprefix(SUPERSEDE_PREFIX)} for row in rows]


@dataclass
class _LedgerMoment:
    """Tables by the ledger at one moment: rows of each, and the newest of its increments (-1 without any)."""

    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    newest: dict[str, int] = field(default_factory=lambda: defaultdict(lambda: -1))


def _standing(rows: Iterable[dict[str, Any]]) -> _LedgerMoment:
    """Sum the newest ledger row of each place; `rows` are in order of time."""
    places: dict[tuple[str, str], int] = {}
    found = _LedgerMoment()
    for row in rows:
        places[row["table"], row["place"]] = row["row_count"] if row["step_key"] else 0
        if row["place"].isdigit():
            found.newest[row["table"]] = max(found.newest[row["table"]], int(row["place"]))
    for (table, _), count in places.items():
        found.counts[table] += count
    return found


def _counting(
    catalogue: Catalog, space: str, name: str, before: _LedgerMoment, after: _LedgerMoment, own: list[dict[str, Any]]
) -> tuple[int, int]:
    """Rows of `documents`, or of a table of members, that counted before and after a run."""
    table = f"{space}.{name}"
    states = [At(increment=before.newest[table], moment=own[0]["recorded_at"]), At(increment=after.newest[table])]
    there = [at for at in states if at.increment is not None and at.increment >= 0]
    if not there:
        return before.counts.get(table, 0), after.counts[table]
    if name == "documents":
        went = documents_that_went(catalogue, space, there)
    else:
        went = [members_that_went(catalogue, space, name, at) for at in there]
    went = [0] * (len(states) - len(there)) + went
    return before.counts.get(table, 0) - went[0], after.counts[table] - went[1]


def _counted(catalogue: Catalog, space: str) -> dict[str, str]:
    """The counted tables of a dataset or corpus, each with a name for its documents."""
    kept = {
        stage.table: "documents kept" if stage.table == SURVIVORS else f"of them {stage.words}"
        for stage in stages_of(Ledger.fresh(catalogue), space)
    }
    return {"documents": "documents", SURVIVORS: "documents kept", **kept}


def _changed(
    catalogue: Catalog,
    space: str,
    before: _LedgerMoment,
    after: _LedgerMoment,
    own: list[dict[str, Any]],
    out: dict[str, set[str]],
) -> str:
    """What changed in a dataset or corpus, in a line; empty where no counted table was computed."""
    said = []
    landed = {int(row["place"]) for row in own if row["table"] == f"{space}.arrivals" and row["place"].isdigit()}
    if landed:
        files = _files(catalogue, space, landed)
        said.append(" ".join(f"{sign}{files[what]:,}" for what, sign in _SIGNS.items()) + " files")
    for name, noun in _counted(catalogue, space).items():
        if f"{space}.{name}" in after.counts:
            old, new = _counting(catalogue, space, name, before, after, own)
            said.append(f"{old:,} -> {new:,} {noun}")
    windows: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for table, count in after.counts.items():
        if table.startswith(f"{space}.") and (packed := _PACKED.fullmatch(table.partition(".")[2])):
            windows[packed[1]][0] += before.counts.get(table, 0)
            windows[packed[1]][1] += count
    said += [f"{old:,} -> {new:,} windows of {length} tokens" for length, (old, new) in sorted(windows.items())]
    revised = {int(row["place"]) for row in own if row["table"] == f"{space}.revisions" and row["place"].isdigit()}
    if windows and revised:
        said += _revised(catalogue, space, revised, out[space])
    return f"{space}: {'; '.join(said)}" if said else ""


def _taken_out(catalogue: Catalog, run_ids: Collection[str]) -> dict[str, set[str]]:
    """Documents that some runs took out of packed tables since a revision replaced them or they went, by corpus."""
    of_them = In("run_id", {f"{SUPERSEDE_PREFIX}{one}" for one in run_ids})
    found: dict[str, set[str]] = defaultdict(set)
    for row in read_rows(catalogue, EXCISIONS, ("doc_id", "table"), of_them):
        found[row["table"].partition(".")[0]].add(row["doc_id"])
    return found


def _revised(catalogue: Catalog, corpus: str, increments: Collection[int], out: Collection[str]) -> Iterator[str]:
    """The fate of packed documents after they were replaced or removed at their source.

    Args:
        catalogue: the lake's.
        corpus: its name.
        increments: of its revisions, that the run computed.
        out: documents taken out by the run.
    """
    columns = ("doc_id", "standing", "leaves")
    rows = read_rows(catalogue, f"{corpus}.revisions", columns, In("increment", set(increments)))
    went = [row for row in rows if row["standing"] in _WENT]
    for where, some in (
        ("left the windows", [row for row in went if row["doc_id"] in out]),
        ("stay in windows, superseded or on_delete: keep", [row for row in went if not row["leaves"]]),
    ):
        counts = Counter(_WENT[row["standing"]] for row in some)
        if counts:
            yield f"{len(some):,} {where} ({', '.join(f'{count:,} {word}' for word, count in sorted(counts.items()))})"


def _files(catalogue: Catalog, dataset: str, increments: Collection[int]) -> dict[str, int]:
    """How many files are new, changed and gone in some increments of a dataset.

    A file has changed if an earlier increment has a row of its location too.
    """
    counts = dict.fromkeys(_SIGNS, 0)
    columns = ("location", "path", "status", "reason")
    rows = [
        row
        for row in read_rows(catalogue, f"{dataset}.arrivals", columns, In("increment", set(increments)))
        if row["status"] in ("landed", "gone") and not row["reason"]
    ]
    counts["gone"] = sum(row["status"] == "gone" for row in rows)
    locations = {row["location"] for row in rows if row["status"] == "landed"}
    earlier = (
        read_columns(catalogue, f"{dataset}.arrivals", ("location",), LessThan("increment", min(increments)))
        if min(increments)
        else None
    )
    known = locations.intersection(earlier["location"].to_pylist()) if earlier is not None else set()
    return {**counts, "changed": len(known), "new": len(locations) - len(known)}
