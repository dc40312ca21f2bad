"""Tables of the catalogue's database for what is asked and answered, and what transactions on them share."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

METADATA = sa.MetaData()
ANSWERS = sa.Table(
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
ATTEMPTS = sa.Table(
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
    sa.Column("token", sa.String(32)),  # of the acquisition; null while the task waits
    sa.Column("host", sa.String(255)),
    sa.Column("scope", sa.String(255)),
    sa.Column("pid", sa.Integer),
    sa.Column("started", sa.BigInteger),
    sa.Column("expires", sa.BigInteger),  # in milliseconds since 1970, by the database's clock
    sa.Column("held_in", sa.BigInteger, nullable=False),  # tokens that its requests can cost at most, while it is taken
    sa.Column("held_out", sa.BigInteger, nullable=False),
)
TURNS = sa.Table(
    "headrace_turns",  # of conversations, all but the last answer of each
    METADATA,
    sa.Column("dataset", sa.String(64), primary_key=True),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("parent_doc_id", sa.String(64), nullable=False),
    sa.Column("answer", sa.Text, nullable=False),  # as JSON, escaped
    sa.Column("output", sa.Text),  # null until the code of the answer was executed
    sa.Column("status", sa.String(32), nullable=False),
)
KEYS_AT_ONCE = 500
_LOCKED_SECONDS = 60.0  # longest wait for the writes of others; SQLite itself gives up after five
_Result = TypeVar("_Result")
_Parameters = ParamSpec("_Parameters")


def until_reached(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Repeat a function of one transaction while an SQLite file is locked or a server is away, for up to a minute."""

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
    """A worker's task: its number, and the token of this acquisition."""

    number: int
    token: str


def answered(connection: sa.Connection, dataset: str, keys: Iterable[str]) -> set[str]:
    """The answered keys among these."""
    wanted, keys_there = list(keys), set[str]()
    for at in range(0, len(wanted), KEYS_AT_ONCE):
        some = sa.and_(ANSWERS.c.dataset == dataset, ANSWERS.c.key.in_(wanted[at : at + KEYS_AT_ONCE]))
        keys_there |= {key for (key,) in connection.execute(sa.select(ANSWERS.c.key).where(some))}
    return keys_there


def holds_of(connection: sa.Connection, holds: Collection[Hold]) -> set[Hold]:
    """The valid holds among these: nobody else took the task or gave it back."""
    some = TASKS.c.number.in_([hold.number for hold in holds])
    rows = connection.execute(sa.select(TASKS.c.number, TASKS.c.token).where(some)) if holds else ()
    return {Hold(number, token) for number, token in rows} & set(holds)


def database_time(dialect: str) -> sa.ColumnElement[int]:
    """The moment by the database's clock, in milliseconds since 1970; machines need not agree on theirs."""
    if dialect == "sqlite":
        return sa.cast((sa.func.julianday("now") - 2440587.5) * 86_400_000, sa.BigInteger)
    return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()) * 1000, sa.BigInteger)
