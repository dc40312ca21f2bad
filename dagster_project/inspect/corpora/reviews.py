"""Reviews: people judge a sample of what a rule removed, and so measure how often the rule is right.

explorer  its page `review` shows texts one by one and records decisions as they are made
table     `<dataset>.reviews`, to which the decisions are appended
figures   for each rule the share of removals that people found right, with its interval
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import sqrt
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, EqualTo

from dagster_project.exceptions import CommandError
from headrace.tables.catalogue import load_table
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table

DECISIONS: Final = ("right", "wrong", "unsure")
UNDONE: Final = "undone"
_NORMAL_95: Final = 1.959964  # quantile of the normal distribution for an interval of 95%

REVIEWS = Table(
    name="reviews",
    comment="What people decided of documents that failed a rule; the newest decision of a person counts.",
    columns=(
        Column("doc_id!", "string", "identity of the document"),
        Column("verdicts!", "string", "table of verdicts that the sample was drawn from"),
        Column("rule!", "string", "rule that the document failed"),
        Column("value", "double", "value seen then; null for a rule without a number"),
        Column("threshold", "double", "threshold then; null for a rule without a number"),
        Column(
            "decision!", "string", "right, wrong, unsure: whether the rule was right to remove it; undone: taken back"
        ),
        Column("note", "string", "what the person wrote beside it"),
        Column("person!", "string", "who decided"),
        Column("reviewed_at!", "timestamptz", "when it was recorded"),
    ),
    key=(),
)


class _Decision(BaseModel):
    """What somebody decided of one document."""

    model_config = ConfigDict(strict=True)

    doc_id: str = Field(min_length=1)
    rule: str = Field(min_length=1)
    value: float | None = None
    threshold: float | None = None
    decision: Literal["right", "wrong", "unsure", "undone"]
    note: str | None = None


@dataclass(frozen=True)
class Precision:
    """How often people found a rule right.

    Attributes:
        rule: its name.
        right: documents rightly removed.
        wrong: documents wrongly removed.
        unsure: documents without a decision, or with disagreeing persons.
        low: lower end of the 95% interval of right / (right + wrong), by Wilson's score.
        high: upper end.
    """

    rule: str
    right: int
    wrong: int
    unsure: int
    low: float
    high: float

    def __str__(self) -> str:
        """`0.92 (0.81 to 0.97) of 50`, or `not reviewed`."""
        count = self.right + self.wrong
        share = f"{self.right / count:.2f} ({self.low:.2f} to {self.high:.2f}) of {count}" if count else "not reviewed"
        return f"{share}, {self.unsure} unsure" if self.unsure else share


def record(catalogue: Catalog, verdicts: str, decisions: Iterable[Mapping[str, Any]], person: str) -> int:
    """Append decisions on documents of a table of verdicts; gives their number.

    Raises:
        CommandError: a decision has another form, or the table is not in this lake.
    """
    if load_table(catalogue, verdicts) is None:
        raise CommandError(f"{verdicts}: this lake does not have it; run it first: headrace run {verdicts}")
    now = datetime.now(UTC)
    rows = []
    for number, one in enumerate(decisions):
        try:
            decided = _Decision.model_validate(one)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "it"
            raise CommandError(f"decision {number + 1}: {where}: {first['msg']}") from error
        rows.append({**decided.model_dump(), "verdicts": verdicts, "person": person, "reviewed_at": now})
    if rows:
        table = ensure_table(
            catalogue, f"{verdicts.split('.')[0]}.{REVIEWS.name}", REVIEWS, {SCOPE_PROPERTY: "reviews"}
        )
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    return len(rows)


def decisions(catalogue: Catalog, dataset: str) -> dict[str, dict[str, str]]:
    """What people decided, by rule and document; `unsure` where persons disagree.

    Of a person's decisions on a document the newest counts.
    """
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for (_, rule, doc_id), by_person in _by_document(catalogue, dataset).items():
        found[rule][doc_id] = together(said.decision for said in by_person.values())
    return found


def together(every: Iterable[str]) -> str:
    """What some persons decided together: `unsure` where they disagree."""
    said = set(every)
    return next(iter(said)) if len(said) == 1 else "unsure"


class Said(NamedTuple):
    """A decision of one person on one document."""

    decision: str
    note: str | None


_Document = tuple[str, str, str]
"""Table of verdicts, rule, doc_id."""


def _by_document(catalogue: Catalog, dataset: str, verdicts: str | None = None) -> dict[_Document, dict[str, Said]]:
    """The newest standing decision of each person on each document."""
    condition = AlwaysTrue() if verdicts is None else EqualTo("verdicts", verdicts)
    columns = ["verdicts", "rule", "doc_id", "person", "decision", "note", "reviewed_at"]
    found: dict[_Document, dict[str, Said]] = {}
    rows = read_rows(catalogue, f"{dataset}.{REVIEWS.name}", columns, condition)
    for row in sorted(rows, key=lambda row: row["reviewed_at"]):
        _decide(found, (row["verdicts"], row["rule"], row["doc_id"]), row["person"], Said(row["decision"], row["note"]))
    return found


def _decide(found: dict[_Document, dict[str, Said]], document: _Document, person: str, said: Said) -> None:
    by_person = found.setdefault(document, {})
    by_person.pop(person, None)
    if said.decision != UNDONE:
        by_person[person] = said
    if not by_person:
        del found[document]


class Reviews:
    """Decisions on one dataset in memory, read anew where another process wrote; safe for many threads.

    A table of one row a file is read in a second at two hundred decisions, which is too long between two of them.
    """

    def __init__(self, catalogue: Catalog, dataset: str) -> None:
        """Hold the decisions of a dataset; nothing is read yet."""
        self._catalogue, self._dataset = catalogue, dataset
        self._snapshot: int | None = None
        self._said: dict[_Document, dict[str, Said]] = {}
        self._lock = threading.Lock()

    def of_rule(self, verdicts: str, rule: str) -> dict[str, dict[str, Said]]:
        """Each person's decisions about the failed documents of a rule, by doc_id."""
        with self._lock:
            self._refresh()
            return {one[2]: dict(by) for one, by in self._said.items() if one[:2] == (verdicts, rule)}

    def decide(self, verdicts: str, failure: Mapping[str, Any], person: str, said: Said) -> bool:
        """Record a decision; gives False where it is what the person said last, so that a form sent twice is one.

        Args:
            verdicts: the table of the document's failure.
            failure: doc_id, rule, value and threshold.
            person: who decides.
            said: the decision; `undone` takes the last one back.
        """
        with self._lock:
            self._refresh()
            document = (verdicts, failure["rule"], failure["doc_id"])
            last = self._said.get(document, {}).get(person)
            if last == said or (last is None and said.decision == UNDONE):
                return False
            row = {**failure, **said._asdict()}
            record(self._catalogue, verdicts, [row], person)
            table = load_table(self._catalogue, f"{self._dataset}.{REVIEWS.name}")
            head = table.current_snapshot() if table is not None else None
            if head is not None and head.parent_snapshot_id == self._snapshot:
                self._snapshot = head.snapshot_id
                _decide(self._said, document, person, said)
            return True

    def _refresh(self) -> None:
        table = load_table(self._catalogue, f"{self._dataset}.{REVIEWS.name}")
        head = table.current_snapshot() if table is not None else None
        newest = head.snapshot_id if head is not None else None
        if newest != self._snapshot:
            self._said, self._snapshot = _by_document(self._catalogue, self._dataset), newest


def precision(rule: str, decided: Iterable[str]) -> Precision:
    """How often people found a rule right, of their decisions on documents."""
    counts = Counter(decided)
    right, wrong = counts["right"], counts["wrong"]
    return Precision(rule, right, wrong, counts["unsure"], *wilson_interval(right, right + wrong))


def wilson_interval(hits: int, count: int) -> tuple[float, float]:
    """The 95% interval of a share by Wilson's score (E. B. Wilson 1927), valid for few and for extreme counts."""
    if count == 0:
        return 0.0, 1.0
    z2 = _NORMAL_95**2
    centre = (hits + z2 / 2) / (count + z2)
    half = _NORMAL_95 * sqrt(hits * (count - hits) / count + z2 / 4) / (count + z2)
    return max(centre - half, 0.0), min(centre + half, 1.0)
