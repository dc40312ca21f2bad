"""The first page: datasets and corpora of the lake as cards."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headrace_features.explore.added_pages import added_names
from headrace_features.explore.answers import answer, explorer_of, principal_of

if TYPE_CHECKING:
    from dagster_project.inspect.lake.corpus_facts import CorpusFacts
    from headrace_features.explore.explorer import Explorer


@dataclass(frozen=True)
class Card:
    """A dataset or a corpus.

    Attributes:
        name: its namespace.
        kind: dataset or corpus.
        documents: those that count, as for commands; None while they are being counted.
        byte_count: of the texts of a dataset's; None of a corpus, and while they are being counted.
        stages: rows of the table of each step, as (step, documents).
        changed: when its newest table was written.
        waiting: documents that wait in its quarantine.
    """

    name: str
    kind: str
    documents: int | None
    byte_count: int | None
    stages: tuple[tuple[str, int], ...]
    changed: datetime | None
    waiting: int = 0


def lake(request: Request) -> Response:
    """Cards, from the summaries of snapshots, and counts of documents that are kept until their tables change.

    While the lake is still being opened, as in the first second of the server, the page is there without them.
    """
    if request.url.path == "/" and not request.app.state.opened.done():
        return answer(request, "lake.html", {"datasets": None, "corpora": None, "_others": added_names()})
    explorer, principal = explorer_of(request), principal_of(request)
    datasets = [dataset_card(explorer, name) for name in explorer.datasets(principal)]
    corpora = [_corpus(explorer, corpus) for corpus in explorer.corpora(principal)]
    return answer(request, "lake.html", {"datasets": datasets, "corpora": corpora, "_others": added_names()})


def dataset_card(explorer: Explorer, name: str) -> Card:
    """The card of a dataset."""
    landed, changed = _records(explorer, f"{name}.documents")
    texts, later = _records(explorer, f"{name}.texts")
    judged, latest = _records(explorer, f"{name}.verdicts")
    waiting, _ = _records(explorer, f"{name}_quarantine.documents")
    kept = explorer.kept(name) if judged else None
    counts = explorer.counts(name)
    stages = [("landed", landed), ("with text", texts)]
    stages += [("judged", judged) if kept is None else ("kept by its policy", kept)] if judged else []
    documents, size = (counts.documents, counts.byte_count) if counts is not None else (None, None)
    return Card(name, "dataset", documents, size, tuple(stages), _newest(changed, later, latest), waiting)


def _corpus(explorer: Explorer, facts: CorpusFacts) -> Card:
    name, tables = facts.name, sorted(facts.tables)
    _, changed = _records(explorer, f"{name}.members")
    steps = [("members", "taken in"), (facts.base, "after deduplication")]
    steps += [*((stage.table, stage.words) for stage in facts.stages), ("tokens", "tokenized")]
    found = [(said, _records(explorer, f"{name}.{step}")) for step, said in steps if step in tables]
    windows = sum(_records(explorer, f"{name}.{one}")[0] for one in tables if one.startswith("packed_"))
    stages = tuple((said, records) for said, (records, _) in found)
    times = [changed, *(when for _, (_, when) in found)]
    return Card(name, "corpus", explorer.member_count(name), None, (*stages, ("windows", windows)), _newest(*times))


def _records(explorer: Explorer, identifier: str) -> tuple[int, datetime | None]:
    """Rows of a table, and when it was written."""
    from headrace.tables.catalogue import load_table  # PyIceberg, for which the first page does not wait

    table = load_table(explorer.catalogue, identifier)
    snapshot = table.current_snapshot() if table is not None else None
    if snapshot is None or snapshot.summary is None:
        return 0, None
    return int(snapshot.summary["total-records"] or 0), datetime.fromtimestamp(
        snapshot.timestamp_ms / 1000
    ).astimezone()


def _newest(*times: datetime | None) -> datetime | None:
    return max((one for one in times if one is not None), default=None)


def go(request: Request) -> Response:
    """Redirect from a namespace, by which Dagster links here, to its page."""
    name = request.path_params["name"]
    is_corpus = name in explorer_of(request).corpus_tables(principal_of(request))
    return RedirectResponse(f"/corpora/{name}" if is_corpus else f"/datasets/{name}", 303)


PATHS = {"/": lake, "/lake": lake, "/go/{name}": go}
