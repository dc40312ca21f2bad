"""What was asked and answered, as rows of the catalogue's database, written as it comes.

A request has one row once it was answered for good, an attempt at it one each. A row without a page is an answer that
has not landed yet; `fetch` seals those into pages. A key that has a row is never asked for again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from spark_jobs.lake.session.catalogue import database_of
from spark_jobs.sources.generated.answers import NOTHING, Answer
from spark_jobs.sources.generated.requests import Request

_METADATA = sa.MetaData()
_ANSWERS = sa.Table(
    "headrace_answers",
    _METADATA,
    sa.Column("dataset", sa.String(64), primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("template", sa.String(64), nullable=False),
    sa.Column("parent_dataset", sa.String(64), nullable=False),
    sa.Column("parent_doc_id", sa.String(64), nullable=False),
    sa.Column("parent_start", sa.BigInteger, nullable=False),
    sa.Column("parent_end", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.String(32), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("reasoning", sa.Text, nullable=False),
    sa.Column("model", sa.String(255), nullable=False),
    sa.Column("fingerprint", sa.String(255), nullable=False),
    sa.Column("answer_tokens", sa.Integer, nullable=False),
    sa.Column("tokens_in", sa.Integer),
    sa.Column("tokens_out", sa.Integer),
    sa.Column("landed", sa.Boolean, nullable=False),
    sa.Index("headrace_answers_to_land", "dataset", "landed"),
)
_ATTEMPTS = sa.Table(
    "headrace_attempts",
    _METADATA,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("dataset", sa.String(64), nullable=False, index=True),
    sa.Column("key", sa.String(64), nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("milliseconds", sa.Integer, nullable=False),
    sa.Column("outcome", sa.String(32), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("tokens_in", sa.Integer),
    sa.Column("tokens_out", sa.Integer),
)
_KEYS_AT_ONCE = 500


@dataclass(frozen=True)
class Attempt:
    """One request that was sent.

    Attributes:
        key: of the request.
        seconds: until it ended.
        outcome: answered, waited (the endpoint asked for it), broken, rejected.
        detail: what the endpoint or the connection said.
        answer: what came back, whose usage is paid for.
    """

    key: str
    seconds: float
    outcome: str
    detail: str = ""
    answer: Answer = NOTHING


@dataclass(frozen=True)
class Landed:
    """A request that was answered for good.

    Attributes:
        request: as it was sent.
        answer: what came back.
        text: of the document; empty where there is none.
        reason: why there is none, else empty.
        detail: the reason in the endpoint's words.
    """

    request: Request
    answer: Answer
    text: str
    reason: str
    detail: str = ""


class AnswerStore:
    """The answers of a dataset.

    Raises:
        InputError: the catalogue has no database.
    """

    def __init__(self, catalogue: Catalog, dataset: str) -> None:
        self._engine = database_of(catalogue, f"dataset {dataset}: answers", _METADATA)
        self._dataset = dataset

    def write(self, attempts: Sequence[Attempt], answers: Sequence[Landed]) -> None:
        """Note attempts and answers, together."""
        now = time.time_ns() // 1000
        tried = [
            {
                "dataset": self._dataset,
                "key": one.key,
                "at": now,
                "milliseconds": round(1000 * one.seconds),
                "outcome": one.outcome,
                "detail": _clean(one.detail),
                "tokens_in": one.answer.tokens_in,
                "tokens_out": one.answer.tokens_out,
            }
            for one in attempts
        ]
        given = [self._row(one) for one in answers]
        with self._engine.begin() as connection:
            if tried:
                connection.execute(sa.insert(_ATTEMPTS), tried)
            if given:
                connection.execute(sa.insert(_ANSWERS), given)

    def _row(self, one: Landed) -> dict[str, Any]:
        parent, answer = one.request.parent, one.answer
        return {
            "dataset": self._dataset,
            "key": one.request.key,
            "template": one.request.template,
            "parent_dataset": parent.dataset,
            "parent_doc_id": parent.doc_id,
            "parent_start": parent.start,
            "parent_end": parent.end,
            "reason": one.reason,
            "detail": _clean(one.detail),
            "text": _clean(one.text),
            "reasoning": _clean(answer.reasoning),
            "model": answer.model[:255],
            "fingerprint": answer.fingerprint[:255],
            "answer_tokens": one.request.body.get("max_tokens", 0),
            "tokens_in": answer.tokens_in,
            "tokens_out": answer.tokens_out,
            "landed": False,
        }

    def answered(self, keys: Iterable[str]) -> set[str]:
        """Those of some keys that have an answer."""
        wanted, found = list(keys), set[str]()
        with self._engine.connect() as connection:
            for at in range(0, len(wanted), _KEYS_AT_ONCE):
                some = _ANSWERS.c.key.in_(wanted[at : at + _KEYS_AT_ONCE])
                found |= {key for (key,) in connection.execute(sa.select(_ANSWERS.c.key).where(self._own, some))}
        return found

    def outcomes(self) -> dict[str, int]:
        """Answers by reason, the accepted ones under ``."""
        counted = sa.select(_ANSWERS.c.reason, sa.func.count()).where(self._own).group_by(_ANSWERS.c.reason)
        with self._engine.connect() as connection:
            return {str(reason): int(count) for reason, count in connection.execute(counted)}

    def spent(self) -> tuple[int, int, int]:
        """Tokens of prompts and of answers in all attempts, and attempts at which something came and nobody said."""
        own = _ATTEMPTS.c.dataset == self._dataset
        unknown = sa.and_(_ATTEMPTS.c.outcome == "answered", _ATTEMPTS.c.tokens_out.is_(None))
        wanted = sa.select(
            sa.func.coalesce(sa.func.sum(_ATTEMPTS.c.tokens_in), 0),
            sa.func.coalesce(sa.func.sum(_ATTEMPTS.c.tokens_out), 0),
            sa.func.count(sa.case((unknown, 1))),
        ).where(own)
        with self._engine.connect() as connection:
            row = connection.execute(wanted).one()
            return int(row[0]), int(row[1]), int(row[2])

    def to_land(self, count: int) -> list[Mapping[str, Any]]:
        """Accepted answers that have not landed, by template and key."""
        wanted = (
            sa.select(_ANSWERS)
            .where(self._own, _ANSWERS.c.landed.is_(False), _ANSWERS.c.reason == "")
            .order_by(_ANSWERS.c.template, _ANSWERS.c.key)
            .limit(count)
        )
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(wanted).mappings()]

    def mark_landed(self, keys: Sequence[str]) -> None:
        """Note that answers lie in a page."""
        with self._engine.begin() as connection:
            for at in range(0, len(keys), _KEYS_AT_ONCE):
                some = _ANSWERS.c.key.in_(keys[at : at + _KEYS_AT_ONCE])
                connection.execute(sa.update(_ANSWERS).where(self._own, some).values(landed=True))

    def forget(self) -> None:
        """Forget all that was asked for the dataset."""
        with self._engine.begin() as connection:
            for table in (_ANSWERS, _ATTEMPTS):
                connection.execute(sa.delete(table).where(table.c.dataset == self._dataset))

    @property
    def _own(self) -> sa.ColumnElement[bool]:
        return _ANSWERS.c.dataset == self._dataset


def children(catalogue: Catalog, doc_ids: Collection[str]) -> list[tuple[str, str, str]]:
    """Answers (dataset, template, key) that were accepted about some documents, in all datasets of a lake."""
    if not isinstance(catalogue, SqlCatalog) or not sa.inspect(catalogue.engine).has_table(_ANSWERS.name):
        return []
    wanted, found = sorted(doc_ids), list[tuple[str, str, str]]()
    columns = sa.select(_ANSWERS.c.dataset, _ANSWERS.c.template, _ANSWERS.c.key).where(_ANSWERS.c.reason == "")
    with catalogue.engine.connect() as connection:
        for at in range(0, len(wanted), _KEYS_AT_ONCE):
            some = _ANSWERS.c.parent_doc_id.in_(wanted[at : at + _KEYS_AT_ONCE])
            found += [(row[0], row[1], row[2]) for row in connection.execute(columns.where(some))]
    return found


def _clean(text: str) -> str:
    """A text as every database takes it: no null characters (Postgres), no lone surrogates."""
    return text.replace("\0", " ").encode(errors="replace").decode()
