"""Reviews: people judge a sample of what a rule removed, and so measure how often the rule is right.

sample    documents that failed a rule, drawn by hash, or those nearest to its threshold
page      one HTML file with their texts, which collects the decisions and saves them as JSON; needs no server
table     `<dataset>.reviews`, to which the decisions are appended
figures   for each rule the share of removals that people found right, with its interval
"""

from __future__ import annotations

import hashlib
import html
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from math import sqrt
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, EqualTo

from dagster_project.exceptions import CommandError
from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.lookups import read_columns, read_rows, read_wide_value
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table, load_table

DECISIONS: Final = ("right", "wrong", "unsure")
_SHOWN_CHARACTERS: Final = 20_000
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
        Column("decision!", "string", "right, wrong or unsure: whether the rule was right to remove the document"),
        Column("note", "string", "what the person wrote beside it"),
        Column("person!", "string", "who decided"),
        Column("reviewed_at!", "timestamptz", "when it was recorded"),
    ),
    key=(),
)


class _Decision(BaseModel):
    """What a page saves of one document."""

    model_config = ConfigDict(strict=True)

    doc_id: str = Field(min_length=1)
    rule: str = Field(min_length=1)
    value: float | None = None
    threshold: float | None = None
    decision: Literal["right", "wrong", "unsure"]
    note: str | None = None


@dataclass(frozen=True)
class Failure:
    """A document that failed a rule, and where its rows lie."""

    doc_id: str
    increment: int
    shard: int
    rule: str
    value: float | None
    threshold: float | None


@dataclass(frozen=True)
class Precision:
    """How often people found a rule right.

    Attributes:
        rule: its name.
        right: documents that it was right to remove.
        wrong: documents that it should have kept.
        unsure: documents that nobody decided, or persons disagree on.
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


def sample(
    catalogue: Catalog, verdicts: str, rule: str | None, count: int, near_threshold: bool, seed: int
) -> list[Failure]:
    """Documents that failed a rule (None: any rule).

    Args:
        catalogue: the lake's.
        verdicts: a table of verdicts.
        rule: name of the rule.
        count: most documents.
        near_threshold: those whose value is nearest to the threshold, relative to it, in place of a random choice.
        seed: another seed draws other documents; the same seed the same ones, and of more count more.

    Raises:
        CommandError: there are no verdicts, or none failed the rule; the message names the nearest rule.
    """
    table = read_columns(catalogue, verdicts, ["increment", "shard", "doc_id", "failed"], EqualTo("kept", False))
    if table is None:
        raise CommandError(f"{verdicts}: no such table; run it first: headrace run {verdicts}")
    failed = table.column("failed").combine_chunks()
    parents = pc.list_parent_indices(failed)
    entries = pa.table(
        {
            **{name: table.column(name).take(parents) for name in ("doc_id", "increment", "shard")},
            **{name: pc.struct_field(failed.flatten(), name) for name in ("rule", "value", "threshold")},
        }
    )
    rules = sorted(pc.unique(entries.column("rule")).to_pylist())
    if rule is not None:
        if rule not in rules:
            known = did_you_mean(rule, rules) or f"; they failed {', '.join(rules)}"
            raise CommandError(f"{verdicts}: no document failed rule {rule!r}{known if rules else '; all were kept'}")
        entries = entries.filter(pc.equal(entries.column("rule"), rule))
    rows = [Failure(**row) for row in entries.to_pylist()]
    if near_threshold:
        rows = [row for row in rows if row.value is not None and row.threshold is not None]
        rows.sort(key=lambda row: (_distance(row), row.doc_id))
    else:
        rows.sort(key=lambda row: hashlib.sha256(f"{seed}\0{row.rule}\0{row.doc_id}".encode()).digest())
    return rows[:count]


def page(catalogue: Catalog, dataset: str, verdicts: str, chosen: Sequence[Failure]) -> str:
    """An HTML page that shows the chosen documents and collects decisions; texts beyond 20,000 characters are cut."""
    cards = []
    for number, row in enumerate(chosen):
        narrow = EqualTo("increment", row.increment) & EqualTo("shard", row.shard)
        text = read_wide_value(catalogue, f"{dataset}.texts", "content", row.doc_id, narrow) or ""
        values = "" if row.value is None else f" value {row.value:g}, threshold {row.threshold:g}"
        cut = f" (the first {_SHOWN_CHARACTERS:,} of {len(text):,} characters)" if len(text) > _SHOWN_CHARACTERS else ""
        choices = "".join(
            f'<label><input type="radio" name="decision-{number}" value="{one}"> {one}</label>' for one in DECISIONS
        )
        facts = {"doc_id": row.doc_id, "rule": row.rule, "value": row.value, "threshold": row.threshold}
        cards.append(
            f'<article data-facts="{html.escape(json.dumps(facts))}"><h2>{number + 1}. {html.escape(row.rule)}'
            f"<small>{values} &middot; {row.doc_id}{cut}</small></h2>"
            f'<pre dir="auto">{html.escape(text[:_SHOWN_CHARACTERS])}</pre>'
            f'<p>Was the rule right to remove it? {choices} <input class="note" placeholder="note"></p></article>'
        )
    frame = resources.files("dagster_project.inspect.corpora").joinpath("review_page.html").read_text("utf-8")
    title = html.escape(f"{verdicts}: {len(chosen)} documents")
    return (
        frame.replace("@TITLE@", title)
        .replace("@VERDICTS@", html.escape(verdicts))
        .replace("@CARDS@", "\n".join(cards))
    )


def record(catalogue: Catalog, dataset: str, given: Mapping[str, Any], person: str) -> int:
    """Append the decisions that a page saved; gives their number.

    Raises:
        CommandError: the file is not of such a page, or belongs to another dataset.
    """
    verdicts, decisions = given.get("verdicts"), given.get("decisions")
    if not isinstance(verdicts, str) or not isinstance(decisions, list):
        raise CommandError("the file has no `verdicts` and `decisions`; give the JSON that the page of a review saved")
    if verdicts.split(".")[0] != dataset:
        raise CommandError(f"the file reviews {verdicts}, not a table of {dataset}")
    if load_table(catalogue, verdicts) is None:
        raise CommandError(f"the file reviews {verdicts}, which this lake does not have; record it in its own")
    now = datetime.now(UTC)
    rows = []
    for number, one in enumerate(decisions):
        try:
            decided = _Decision.model_validate(one)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "it"
            raise CommandError(f"decision {number + 1} of the file: {where}: {first['msg']}") from error
        rows.append({**decided.model_dump(), "verdicts": verdicts, "person": person, "reviewed_at": now})
    if rows:
        table = ensure_table(catalogue, f"{dataset}.{REVIEWS.name}", REVIEWS, {SCOPE_PROPERTY: "reviews"})
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    return len(rows)


def decisions(catalogue: Catalog, dataset: str, verdicts: str | None = None) -> dict[str, dict[str, str]]:
    """What people decided, by rule and document; `unsure` where persons disagree.

    Of a person's decisions on a document the newest counts.
    """
    condition = AlwaysTrue() if verdicts is None else EqualTo("verdicts", verdicts)
    columns = ["rule", "doc_id", "person", "decision", "reviewed_at"]
    rows = read_rows(catalogue, f"{dataset}.{REVIEWS.name}", columns, condition)
    newest = {
        (row["rule"], row["doc_id"], row["person"]): row["decision"]
        for row in sorted(rows, key=lambda row: row["reviewed_at"])
    }
    said: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (rule, doc_id, _), decision in newest.items():
        said[rule, doc_id].add(decision)
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for (rule, doc_id), every in said.items():
        found[rule][doc_id] = next(iter(every)) if len(every) == 1 else "unsure"
    return found


def precisions(catalogue: Catalog, dataset: str, verdicts: str | None = None) -> list[Precision]:
    """How often people found each rule right, by rule."""
    found = decisions(catalogue, dataset, verdicts)
    return [precision(rule, found[rule].values()) for rule in sorted(found)]


def precision(rule: str, decided: Iterable[str]) -> Precision:
    """How often people found a rule right, of their decisions on documents."""
    counts = Counter(decided)
    right, wrong = counts["right"], counts["wrong"]
    return Precision(rule, right, wrong, counts["unsure"], *wilson_interval(right, right + wrong))


def wilson_interval(hits: int, count: int) -> tuple[float, float]:
    """The 95% interval of a share by Wilson's score (E. B. Wilson 1927), which holds for few and for extreme counts."""
    if count == 0:
        return 0.0, 1.0
    z2 = _NORMAL_95**2
    centre = (hits + z2 / 2) / (count + z2)
    half = _NORMAL_95 * sqrt(hits * (count - hits) / count + z2 / 4) / (count + z2)
    return max(centre - half, 0.0), min(centre + half, 1.0)


def _distance(row: Failure) -> float:
    """How far a value is from its threshold, relative to it."""
    value, threshold = float(row.value or 0), float(row.threshold or 0)
    return abs(value - threshold) / max(abs(threshold), 1e-12)
