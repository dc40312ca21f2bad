"""What was asked and answered, as rows of the catalogue's database, written as it comes.

A request has one row once it was answered for good, an attempt at it one each. A row without a page is an answer that
has not landed yet; `fetch` seals those into pages. A key that has a row is never asked for again. A row of totals for
each dataset is changed by every write, so that writes to a dataset come one after the other, from any machine.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, ParamSpec, TypeVar

import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import IntegrityError, OperationalError

from spark_jobs.exceptions import InputError
from spark_jobs.lake.session.catalogue import database_of
from spark_jobs.sources.generated.answers import NOTHING, Answer
from spark_jobs.sources.generated.requests import Request, Turn, next_request

METADATA = sa.MetaData()
_ANSWERS = sa.Table(
    "headrace_answers",
    METADATA,
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
    METADATA,
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
TOTALS = sa.Table(
    "headrace_asked",
    METADATA,
    sa.Column("dataset", sa.String(64), primary_key=True),
    sa.Column("accepted", sa.BigInteger, nullable=False),
    sa.Column("refused", sa.BigInteger, nullable=False),
    sa.Column("tokens_in", sa.BigInteger, nullable=False),  # those that count in a budget
    sa.Column("tokens_out", sa.BigInteger, nullable=False),
)
TASKS = sa.Table(
    "headrace_tasks",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("dataset", sa.String(64), nullable=False, index=True),
    sa.Column("requests", sa.Integer, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("token", sa.String(32)),  # of who has it; null while it waits
    sa.Column("host", sa.String(255)),
    sa.Column("scope", sa.String(255)),
    sa.Column("pid", sa.Integer),
    sa.Column("started", sa.BigInteger),
    sa.Column("expires", sa.BigInteger),  # in milliseconds since 1970, by the database's clock
    sa.Column("held_in", sa.BigInteger, nullable=False),  # tokens that its requests can cost at most, while it is taken
    sa.Column("held_out", sa.BigInteger, nullable=False),
)
_TURNS = sa.Table(
    "headrace_turns",  # of conversations, all but the last answer of each
    METADATA,
    sa.Column("dataset", sa.String(64), primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("parent_doc_id", sa.String(64), nullable=False),
    sa.Column("answer", sa.Text, nullable=False),  # as JSON, escaped
    sa.Column("output", sa.Text),  # null until the code of the answer was executed
    sa.Column("status", sa.String(32), nullable=False),
)
_KEYS_AT_ONCE = 500
_LOCKED_SECONDS = 60.0  # that a write waits for others; SQLite itself gives up after five
_Result = TypeVar("_Result")
_Parameters = ParamSpec("_Parameters")


def until_reached(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """A function of one transaction, repeated while others hold the lock of an SQLite file or a server is away."""

    @functools.wraps(function)
    def called(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        end = time.monotonic() + _LOCKED_SECONDS
        while True:
            try:
                return function(*arguments, **named)
            except OperationalError as error:
                is_passing = "locked" in str(error.orig) or error.connection_invalidated
                if not is_passing or time.monotonic() > end:
                    raise
                time.sleep(random.uniform(0.01, 0.1))

    return called


class Hold(NamedTuple):
    """A task that a worker has: its number, and the token of this acquisition."""

    number: int
    token: str


FAILED = "failed"  # reason of a request that was tried to the end, and to which no answer came


@dataclass(frozen=True)
class Attempt:
    """One request that was sent.

    Attributes:
        key: of the request.
        seconds: until it ended.
        outcome: answered, waited (the endpoint asked for it), broken, rejected.
        detail: what the endpoint or the connection said.
        answer: what came back, whose usage is paid for.
        most: tokens of prompt and answer that count where the endpoint does not say what it used.
    """

    key: str
    seconds: float
    outcome: str
    detail: str = ""
    answer: Answer = NOTHING
    most: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Landed:
    """A request that was answered for good.

    Attributes:
        request: as it was sent.
        answer: what came back.
        text: of the document; empty where there is none.
        reason: why there is none, else empty.
        detail: the reason in the endpoint's words; of a document that is a conversation its facts, as JSON.
        hold: the task that it is of; it is written only while that is held.
    """

    request: Request
    answer: Answer
    text: str
    reason: str
    detail: str = ""
    hold: Hold | None = None


class Heard(NamedTuple):
    """A turn of a conversation: of which request, and the task that it is of, while which is held it is written."""

    request: Request
    turn: Turn
    hold: Hold | None = None


class Totals(NamedTuple):
    """Answers of all runs of a dataset, and the tokens that count in its budget."""

    accepted: int
    refused: int
    tokens_in: int
    tokens_out: int


class AnswerStore:
    """The answers of a dataset.

    Raises:
        InputError: the catalogue has no database.
    """

    def __init__(self, catalogue: Catalog, dataset: str) -> None:
        self._engine = database_of(catalogue, f"dataset {dataset}: answers", METADATA)
        self.dataset = dataset
        self._make_totals()

    @until_reached
    def write(self, attempts: Sequence[Attempt], answers: Sequence[Landed], turns: Sequence[Heard] = ()) -> set[Hold]:
        """Note attempts, answers and turns, together; gives the holds that are lost, whose answers were left out.

        Of those the attempts stay: they were paid for.
        """
        now = time.time_ns() // 1000
        tried = [
            {
                "dataset": self.dataset,
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
        paid = [one for one in attempts if one.outcome == "answered"]
        with self._engine.begin() as connection:
            self.lock(connection)
            holds = {*(one.hold for one in answers), *(one.hold for one in turns)}
            held = {one for one in holds if one is not None}
            lost = held - holds_of(connection, held)
            known = answered(connection, self.dataset, [one.request.key for one in answers])  # before a server went
            given = [self._row(one) for one in answers if one.hold not in lost and one.request.key not in known]
            if tried:
                connection.execute(sa.insert(_ATTEMPTS), tried)
            if given:
                connection.execute(sa.insert(_ANSWERS), given)
            for one in turns:
                if one.hold not in lost:
                    connection.execute(sa.delete(_TURNS).where(self._turns, _TURNS.c.key == one.turn.key))
                    connection.execute(sa.insert(_TURNS), self._turn_row(one))
            accepted = sum(row["reason"] == "" for row in given)
            more = {
                "accepted": TOTALS.c.accepted + accepted,
                "refused": TOTALS.c.refused + len(given) - accepted,
                "tokens_in": TOTALS.c.tokens_in + sum(_or(one.answer.tokens_in, one.most[0]) for one in paid),
                "tokens_out": TOTALS.c.tokens_out + sum(_or(one.answer.tokens_out, one.most[1]) for one in paid),
            }
            connection.execute(sa.update(TOTALS).where(self._totals).values(more))
        return lost

    def lock(self, connection: sa.Connection) -> None:
        """Let no other transaction write to the dataset until this one ends; its first statement.

        Raises:
            InputError: the dataset was deleted.
        """
        locked = connection.execute(sa.update(TOTALS).where(self._totals).values(dataset=self.dataset))
        if not locked.rowcount:
            raise self._gone()

    @until_reached
    def totals(self) -> Totals:
        """What came of all runs so far."""
        with self._engine.connect() as connection:
            return self.totals_in(connection)

    def totals_in(self, connection: sa.Connection) -> Totals:
        """The same, in a transaction."""
        columns = (TOTALS.c[name] for name in Totals._fields)
        if (row := connection.execute(sa.select(*columns).where(self._totals)).first()) is None:
            raise self._gone()
        return Totals(*map(int, row))

    def _gone(self) -> InputError:
        return InputError(f"{self.dataset}: it was deleted while it was asked for; run it again to begin anew")

    def _make_totals(self) -> None:
        """Make the row of totals where there is none, of the answers that earlier versions noted."""
        with self._engine.connect() as connection:
            if connection.execute(sa.select(TOTALS.c.dataset).where(self._totals)).first() is not None:
                return
        outcomes, spent = self.outcomes(), self.spent()
        accepted = outcomes.get("", 0)
        row = {
            "dataset": self.dataset,
            "accepted": accepted,
            "refused": sum(outcomes.values()) - accepted,
            "tokens_in": spent[0],
            "tokens_out": spent[1],
        }
        with contextlib.suppress(IntegrityError), self._engine.begin() as connection:  # another process made it
            connection.execute(sa.insert(TOTALS), row)

    def _row(self, one: Landed) -> dict[str, Any]:
        parent, answer = one.request.parent, one.answer
        return {
            "dataset": self.dataset,
            "key": one.request.first_key,
            "template": one.request.template,
            "parent_dataset": parent.dataset,
            "parent_doc_id": parent.doc_id,
            "parent_start": parent.start,
            "parent_end": parent.end,
            "reason": one.reason,
            "detail": _clean(one.detail),
            "text": _clean(one.text),
            "reasoning": _clean(answer.reasoning),
            "model": _clean(answer.model)[:255],
            "fingerprint": _clean(answer.fingerprint)[:255],
            "answer_tokens": one.request.body.get("max_tokens", 0),
            "tokens_in": answer.tokens_in,
            "tokens_out": answer.tokens_out,
            "landed": False,
        }

    def _turn_row(self, one: Heard) -> dict[str, Any]:
        turn = one.turn
        return {
            "dataset": self.dataset,
            "key": turn.key,
            "parent_doc_id": one.request.parent.doc_id,
            "answer": json.dumps(asdict(turn.answer)),
            "output": turn.output,
            "status": turn.status,
        }

    def continued_in(
        self, connection: sa.Connection, requests: Sequence[Request]
    ) -> tuple[list[Request], dict[str, Answer]]:
        """Where some conversations are: the requests to send next, and known answers whose code is to be executed."""
        found, unexecuted, moved = list(requests), dict[str, Answer](), True
        while moved:
            some, moved = _TURNS.c.key.in_([one.key for one in found]), False
            rows = connection.execute(sa.select(_TURNS).where(self._turns, some)).mappings()
            turns = {
                row["key"]: Turn(row["key"], Answer(**json.loads(row["answer"])), row["output"], row["status"])
                for row in rows
            }
            for number, one in enumerate(found):
                if (turn := turns.get(one.key)) is not None and turn.output is None:
                    unexecuted[one.key] = turn.answer
                elif turn is not None:
                    found[number], moved = next_request(one, turn), True
        return found, unexecuted

    @until_reached
    def answered(self, keys: Iterable[str]) -> set[str]:
        """Those of some keys that have an answer."""
        with self._engine.connect() as connection:
            return answered(connection, self.dataset, keys)

    @until_reached
    def outcomes(self) -> dict[str, int]:
        """Answers by reason, the accepted ones under ``."""
        counted = sa.select(_ANSWERS.c.reason, sa.func.count()).where(self._own).group_by(_ANSWERS.c.reason)
        with self._engine.connect() as connection:
            return {str(reason): int(count) for reason, count in connection.execute(counted)}

    @until_reached
    def spent(self) -> tuple[int, int, int]:
        """Tokens of prompts and of answers in all attempts, and attempts at which something came and nobody said."""
        own = _ATTEMPTS.c.dataset == self.dataset
        unknown = sa.and_(_ATTEMPTS.c.outcome == "answered", _ATTEMPTS.c.tokens_out.is_(None))
        wanted = sa.select(
            sa.func.coalesce(sa.func.sum(_ATTEMPTS.c.tokens_in), 0),
            sa.func.coalesce(sa.func.sum(_ATTEMPTS.c.tokens_out), 0),
            sa.func.count(sa.case((unknown, 1))),
        ).where(own)
        with self._engine.connect() as connection:
            row = connection.execute(wanted).one()
            return int(row[0]), int(row[1]), int(row[2])

    @until_reached
    def waiting(self) -> tuple[int, int]:
        """Requests of all tasks, and processes that have tasks."""
        who = sa.select(TASKS.c.host, TASKS.c.scope, TASKS.c.pid)
        wanted = sa.select(sa.func.coalesce(sa.func.sum(TASKS.c.requests), 0)).where(TASKS.c.dataset == self.dataset)
        own = TASKS.c.dataset == self.dataset, TASKS.c.token.is_not(None)
        with self._engine.connect() as connection:
            return int(connection.execute(wanted).scalar_one()), len(set(connection.execute(who.where(*own)).all()))

    @until_reached
    def answers_since(self, seconds: float) -> int:
        """Answers that came in the last seconds."""
        since = time.time_ns() // 1000 - round(seconds * 1e6)
        own = _ATTEMPTS.c.dataset == self.dataset, _ATTEMPTS.c.outcome == "answered", _ATTEMPTS.c.at >= since
        with self._engine.connect() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(_ATTEMPTS).where(*own)).scalar_one())

    @until_reached
    def unlanded(self) -> dict[tuple[str, str], int]:
        """Accepted answers that have not landed, by the model and fingerprint that the server named."""
        served = (_ANSWERS.c.model, _ANSWERS.c.fingerprint)
        accepted = _ANSWERS.c.landed.is_(False), _ANSWERS.c.reason == ""
        counted = sa.select(*served, sa.func.count()).where(self._own, *accepted).group_by(*served)
        with self._engine.connect() as connection:
            return {(row[0], row[1]): int(row[2]) for row in connection.execute(counted)}

    @until_reached
    def to_land(self, count: int, served: tuple[str, str] | None = None) -> list[Mapping[str, Any]]:
        """Answers that have not landed, by template and key: all with their reasons, or the accepted ones of a model.

        Args:
            count: most of them.
            served: the model and fingerprint that the server named.
        """
        which: list[sa.ColumnElement[bool]] = [_ANSWERS.c.landed.is_(False)]
        if served is not None:
            which += [_ANSWERS.c.reason == "", _ANSWERS.c.model == served[0], _ANSWERS.c.fingerprint == served[1]]
        wanted = sa.select(_ANSWERS).where(self._own, *which).order_by(_ANSWERS.c.template, _ANSWERS.c.key).limit(count)
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(wanted).mappings()]

    @until_reached
    def mark_landed(self, keys: Sequence[str]) -> None:
        """Note that answers lie in a page."""
        with self._engine.begin() as connection:
            for at in range(0, len(keys), _KEYS_AT_ONCE):
                some = _ANSWERS.c.key.in_(keys[at : at + _KEYS_AT_ONCE])
                connection.execute(sa.update(_ANSWERS).where(self._own, some).values(landed=True))

    @until_reached
    def forget(self, doc_ids: Collection[str] | None = None) -> None:
        """Forget all that was asked for the dataset and by its judges, or what was answered about some documents."""
        with self._engine.begin() as connection:
            if doc_ids is None:
                for table in (_ANSWERS, _TURNS, _ATTEMPTS, TASKS, TOTALS):
                    own = table.c.dataset.startswith(f"{self.dataset}.", autoescape=True)
                    connection.execute(sa.delete(table).where(sa.or_(table.c.dataset == self.dataset, own)))
                return
            wanted = sorted(doc_ids)
            for at in range(0, len(wanted), _KEYS_AT_ONCE):
                for table in (_ANSWERS, _TURNS):
                    some = table.c.parent_doc_id.in_(wanted[at : at + _KEYS_AT_ONCE])
                    connection.execute(sa.delete(table).where(table.c.dataset == self.dataset, some))
        self._count_again()

    @until_reached
    def reopen_failed(self) -> None:
        """Forget requests to which no answer came, so that they are open again; what they cost stays noted."""
        with self._engine.begin() as connection:
            self.lock(connection)
            connection.execute(sa.delete(_ANSWERS).where(self._own, _ANSWERS.c.reason == FAILED))
        self._count_again()

    @until_reached
    def _count_again(self) -> None:
        """Count the answers anew, after some were forgotten."""
        with self._engine.begin() as connection:
            self.lock(connection)
            counted = (
                sa.select(_ANSWERS.c.reason == "", sa.func.count()).where(self._own).group_by(_ANSWERS.c.reason == "")
            )
            counts = {bool(is_usable): int(count) for is_usable, count in connection.execute(counted)}
            values = {"accepted": counts.get(True, 0), "refused": counts.get(False, 0)}
            connection.execute(sa.update(TOTALS).where(self._totals).values(values))

    @property
    def _own(self) -> sa.ColumnElement[bool]:
        return _ANSWERS.c.dataset == self.dataset

    @property
    def _turns(self) -> sa.ColumnElement[bool]:
        return _TURNS.c.dataset == self.dataset

    @property
    def _totals(self) -> sa.ColumnElement[bool]:
        return TOTALS.c.dataset == self.dataset


def answered(connection: sa.Connection, dataset: str, keys: Iterable[str]) -> set[str]:
    """Those of some keys that have an answer."""
    wanted, found = list(keys), set[str]()
    for at in range(0, len(wanted), _KEYS_AT_ONCE):
        some = sa.and_(_ANSWERS.c.dataset == dataset, _ANSWERS.c.key.in_(wanted[at : at + _KEYS_AT_ONCE]))
        found |= {key for (key,) in connection.execute(sa.select(_ANSWERS.c.key).where(some))}
    return found


def holds_of(connection: sa.Connection, holds: Collection[Hold]) -> set[Hold]:
    """Those of some holds that are still held: nobody else took the task, or gave it back."""
    some = TASKS.c.number.in_([one.number for one in holds])
    found = connection.execute(sa.select(TASKS.c.number, TASKS.c.token).where(some)) if holds else ()
    return {Hold(number, token) for number, token in found} & set(holds)


def database_time(dialect: str) -> sa.ColumnElement[int]:
    """The moment by the database's clock, in milliseconds since 1970; machines need not agree on theirs."""
    if dialect == "sqlite":
        return sa.cast((sa.func.julianday("now") - 2440587.5) * 86_400_000, sa.BigInteger)
    return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()) * 1000, sa.BigInteger)


def children(catalogue: Catalog, doc_ids: Collection[str]) -> list[tuple[str, str, str]]:
    """Answers (dataset, template, key) that were accepted about some documents, in all datasets of a lake."""
    if not isinstance(catalogue, SqlCatalog) or not sa.inspect(catalogue.engine).has_table(_ANSWERS.name):
        return []
    wanted, found = sorted(doc_ids), list[tuple[str, str, str]]()
    of_datasets = sa.not_(_ANSWERS.c.dataset.contains("."))  # those of judges are no documents
    columns = sa.select(_ANSWERS.c.dataset, _ANSWERS.c.template, _ANSWERS.c.key)
    columns = columns.where(_ANSWERS.c.reason == "", of_datasets)
    with catalogue.engine.connect() as connection:
        for at in range(0, len(wanted), _KEYS_AT_ONCE):
            some = _ANSWERS.c.parent_doc_id.in_(wanted[at : at + _KEYS_AT_ONCE])
            found += [(row[0], row[1], row[2]) for row in connection.execute(columns.where(some))]
    return found


def datasets_with_answers(catalogue: Catalog) -> list[str]:
    """The datasets of a lake about which a model was asked."""
    if not isinstance(catalogue, SqlCatalog) or not sa.inspect(catalogue.engine).has_table(TOTALS.name):
        return []
    with catalogue.engine.connect() as connection:
        return sorted(connection.execute(sa.select(TOTALS.c.dataset)).scalars())


def _clean(text: str) -> str:
    """A text as every database takes it: no null characters (Postgres), no lone surrogates."""
    return text.replace("\0", " ").encode(errors="replace").decode()


def _or(known: int | None, most: int) -> int:
    """What an endpoint said that it used, else the most that it can have been."""
    return most if known is None else known
