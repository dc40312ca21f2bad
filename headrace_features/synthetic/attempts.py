"""What was asked and answered, as rows of the catalogue's database, written as it comes.

Every attempt at a request has a row, and so has the final answer. A key with an answer is never asked for
again. Answers with `landed` false are in no page yet; `fetch` makes pages of those. A row of totals for each dataset is
changed by every write, so that writes to a dataset come one after the other, from any machine.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import IntegrityError

from headrace_features.synthetic.answers import NOTHING, Answer
from headrace_features.synthetic.requests import Request, Turn, next_request
from headrace_features.synthetic.tables import (
    ANSWERS,
    ATTEMPTS,
    KEYS_AT_ONCE,
    METADATA,
    TASKS,
    TOTALS,
    TURNS,
    Hold,
    answered,
    holds_of,
    until_reached,
)
from spark_jobs.exceptions import InputError
from spark_jobs.lake.session.catalogue import database_of

FAILED = "failed"  # reason of a request that got no answer in all of its attempts
REJECTED = "rejected"  # reason of one of which the endpoint says that it never answers it
_MOST_WORDS = 1000  # different words for reasons that are looked at


@dataclass(frozen=True)
class Attempt:
    """One sent request.

    Attributes:
        key: of the request.
        seconds: until it ended.
        outcome: answered, waited (the endpoint asked for it), broken, rejected.
        detail: what the endpoint or the connection said.
        answer: what came back; its usage is paid for.
        most: tokens of prompt and answer, counting where the endpoint reports no usage.
    """

    key: str
    seconds: float
    outcome: str
    detail: str = ""
    answer: Answer = NOTHING
    most: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Landed:
    """A request with its final answer.

    Attributes:
        request: as it was sent.
        answer: what came back.
        text: of the document; empty where there is none.
        reason: why there is none, else empty.
        detail: the reason in the endpoint's words; of a conversation its facts, as JSON.
        hold: its task; it is written only while that is held.
    """

    request: Request
    answer: Answer
    text: str
    reason: str
    detail: str = ""
    hold: Hold | None = None


class Heard(NamedTuple):
    """A turn of a conversation, with its request and task; it is written only while the task is held."""

    request: Request
    turn: Turn
    hold: Hold | None = None


class Totals(NamedTuple):
    """Answers of all runs of a dataset, and the tokens counting in its budget."""

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
        self.engine = database_of(catalogue, f"dataset {dataset}: answers", METADATA)
        self.dataset = dataset
        self._make_totals()

    @until_reached
    def _all(self, wanted: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        """The rows of a query."""
        with self.engine.connect() as connection:
            return connection.execute(wanted).all()

    @until_reached
    def write(self, attempts: Sequence[Attempt], answers: Sequence[Landed], turns: Sequence[Heard] = ()) -> set[Hold]:
        """Note attempts, answers and turns, together; gives the lost holds; their answers were left out.

        Of those the attempts stay: they were paid for.
        """
        now = time.time_ns() // 1000
        tried = [
            {"dataset": self.dataset, "key": attempt.key, "at": now, "milliseconds": round(1000 * attempt.seconds)}
            | {"outcome": attempt.outcome, "detail": _clean(attempt.detail)}
            | {"tokens_in": attempt.answer.tokens_in, "tokens_out": attempt.answer.tokens_out}
            for attempt in attempts
        ]
        paid = [attempt for attempt in attempts if attempt.outcome == "answered"]
        with self.transaction() as connection:
            holds = {*(ended.hold for ended in answers), *(ended.hold for ended in turns)}
            hold_set = {hold for hold in holds if hold is not None}
            lost = hold_set - holds_of(connection, hold_set)
            # Some may be written already, where a lost connection makes this run again.
            already = answered(connection, self.dataset, [answer.request.key for answer in answers])
            new_rows = [
                self._row(answer) for answer in answers if answer.hold not in lost and answer.request.key not in already
            ]
            if tried:
                connection.execute(sa.insert(ATTEMPTS), tried)
            if new_rows:
                connection.execute(sa.insert(ANSWERS), new_rows)
            for turn in turns:
                if turn.hold not in lost:
                    connection.execute(sa.delete(TURNS).where(self._turns, TURNS.c.key == turn.turn.key))
                    connection.execute(sa.insert(TURNS), _turn_row(self.dataset, turn))
            accepted = sum(row["reason"] == "" for row in new_rows)
            more = {
                "accepted": TOTALS.c.accepted + accepted,
                "refused": TOTALS.c.refused + len(new_rows) - accepted,
                "tokens_in": TOTALS.c.tokens_in
                + sum(_or(attempt.answer.tokens_in, attempt.most[0]) for attempt in paid),
                "tokens_out": TOTALS.c.tokens_out
                + sum(_or(attempt.answer.tokens_out, attempt.most[1]) for attempt in paid),
            }
            connection.execute(sa.update(TOTALS).where(self._totals).values(more))
        return lost

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A transaction keeping all others of the dataset waiting, on any machine.

        Raises:
            InputError: the dataset was deleted.
        """
        with self.engine.begin() as connection:
            locked = connection.execute(sa.update(TOTALS).where(self._totals).values(dataset=self.dataset))
            if not locked.rowcount:
                raise self._gone()
            yield connection

    @until_reached
    def totals(self) -> Totals:
        """The totals of all runs so far."""
        with self.engine.connect() as connection:
            return self.totals_in(connection)

    def totals_in(self, connection: sa.Connection) -> Totals:
        """The totals of all runs so far, read in an open transaction.

        Raises:
            InputError: the dataset was deleted.
        """
        columns = (TOTALS.c[name] for name in Totals._fields)
        if (row := connection.execute(sa.select(*columns).where(self._totals)).first()) is None:
            raise self._gone()
        return Totals(*map(int, row))

    def _gone(self) -> InputError:
        return InputError(f"{self.dataset}: it was deleted while it was asked for; run it again to begin anew")

    def _make_totals(self) -> None:
        """Make the row of totals where there is none."""
        with self.engine.connect() as connection:
            if connection.execute(sa.select(TOTALS.c.dataset).where(self._totals)).first() is not None:
                return
        row = {"dataset": self.dataset, **Totals(0, 0, 0, 0)._asdict()}
        with contextlib.suppress(IntegrityError), self.engine.begin() as connection:  # another process made it
            connection.execute(sa.insert(TOTALS), row)

    def _row(self, landed: Landed) -> dict[str, Any]:
        answer, parent = landed.answer, asdict(landed.request.parent)
        texts = {"detail": landed.detail, "text": landed.text, "reasoning": answer.reasoning}
        served = {"model": _clean(answer.model)[:255], "fingerprint": _clean(answer.fingerprint)[:255]}
        return {
            "dataset": self.dataset,
            "key": landed.request.first_key,
            "template": landed.request.template,
            **{f"parent_{name}": parent[name] for name in ("dataset", "doc_id", "start", "end")},
            "reason": landed.reason,
            **{name: _clean(text) for name, text in texts.items()},
            **served,
            "answer_tokens": landed.request.answer_tokens,
            "tokens_in": answer.tokens_in,
            "tokens_out": answer.tokens_out,
            "landed": False,
        }

    def continued_in(
        self, connection: sa.Connection, requests: Sequence[Request]
    ) -> tuple[list[Request], dict[str, Answer]]:
        """Where conversations are: the requests to send next, and by key answers with code to execute."""
        continued, unexecuted, moved = list(requests), dict[str, Answer](), True
        while moved:
            some, moved = TURNS.c.key.in_([request.key for request in continued]), False
            rows = connection.execute(sa.select(TURNS).where(self._turns, some)).mappings()
            turns = {
                row["key"]: Turn(row["key"], Answer(**json.loads(row["answer"])), row["output"], row["status"])
                for row in rows
            }
            for number, request in enumerate(continued):
                if (turn := turns.get(request.key)) is not None and turn.output is None:
                    unexecuted[request.key] = turn.answer
                elif turn is not None:
                    continued[number], moved = next_request(request, turn), True
        return continued, unexecuted

    @until_reached
    def answered(self, keys: Iterable[str]) -> set[str]:
        """The keys with an answer among these."""
        with self.engine.connect() as connection:
            return answered(connection, self.dataset, keys)

    def outcomes(self) -> dict[str, int]:
        """How many answers there are by reason; the accepted ones are under the empty one."""
        counted = sa.select(ANSWERS.c.reason, sa.func.count()).where(self._own).group_by(ANSWERS.c.reason)
        return dict(tuple(row) for row in self._all(counted))

    def refusals(self) -> list[tuple[str, str, int]]:
        """Reasons for refused answers, what shows them, and how many there are: the commonest."""
        count = sa.func.count()
        counted = sa.select(ANSWERS.c.reason, ANSWERS.c.detail, count).where(self._own, ANSWERS.c.reason != "")
        counted = counted.group_by(ANSWERS.c.reason, ANSWERS.c.detail).order_by(count.desc()).limit(_MOST_WORDS)
        return [tuple(row) for row in self._all(counted)]

    def spent(self) -> tuple[int, int, int]:
        """Tokens of prompts and of answers over all attempts, and the number of answers without a reported usage."""
        unknown = sa.and_(ATTEMPTS.c.outcome == "answered", ATTEMPTS.c.tokens_out.is_(None))
        sums = (sa.func.coalesce(sa.func.sum(ATTEMPTS.c[name]), 0) for name in ("tokens_in", "tokens_out"))
        wanted = sa.select(*sums, sa.func.count(sa.case((unknown, 1)))).where(ATTEMPTS.c.dataset == self.dataset)
        tokens_in, tokens_out, count = map(int, self._all(wanted)[0])
        return tokens_in, tokens_out, count

    def waiting(self) -> tuple[int, int]:
        """Requests of all tasks, and processes with tasks."""
        columns = (TASKS.c.requests, TASKS.c.token, TASKS.c.host, TASKS.c.scope, TASKS.c.pid)
        tasks = self._all(sa.select(*columns).where(TASKS.c.dataset == self.dataset))
        return sum(task.requests for task in tasks), len({task[2:] for task in tasks if task.token is not None})

    def answers_since(self, seconds: float) -> int:
        """How many answers came in the last seconds."""
        since = time.time_ns() // 1000 - round(seconds * 1e6)
        answered_here = ATTEMPTS.c.dataset == self.dataset, ATTEMPTS.c.outcome == "answered", ATTEMPTS.c.at >= since
        return int(self._all(sa.select(sa.func.count()).select_from(ATTEMPTS).where(*answered_here))[0][0])

    def unlanded(self) -> dict[tuple[str, str], int]:
        """How many accepted answers have not landed, by the model and fingerprint named by the server."""
        served = (ANSWERS.c.model, ANSWERS.c.fingerprint)
        accepted = ANSWERS.c.landed.is_(False), ANSWERS.c.reason == ""
        counted = sa.select(*served, sa.func.count()).where(self._own, *accepted).group_by(*served)
        return {(model, fingerprint): count for model, fingerprint, count in map(tuple[Any, ...], self._all(counted))}

    def to_land(
        self, count: int, served: tuple[str, str] | None = None, *, accepted: bool = False
    ) -> list[Mapping[str, Any]]:
        """Answers not yet landed, by template and key: all with their reasons, or accepted ones.

        Args:
            count: most of them.
            served: the model and fingerprint named by the server; without them those of all.
            accepted: only accepted ones.
        """
        which: list[sa.ColumnElement[bool]] = [ANSWERS.c.landed.is_(False)]
        which += [ANSWERS.c.reason == ""] if accepted else []
        if served is not None:
            which += [ANSWERS.c.model == served[0], ANSWERS.c.fingerprint == served[1]]
        wanted = sa.select(ANSWERS).where(self._own, *which).order_by(ANSWERS.c.template, ANSWERS.c.key).limit(count)
        return [dict(row._mapping) for row in self._all(wanted)]

    @until_reached
    def mark_landed(self, keys: Sequence[str]) -> None:
        """Mark answers as landed."""
        with self.engine.begin() as connection:
            for at in range(0, len(keys), KEYS_AT_ONCE):
                some = ANSWERS.c.key.in_(keys[at : at + KEYS_AT_ONCE])
                connection.execute(sa.update(ANSWERS).where(self._own, some).values(landed=True))

    @until_reached
    def forget(self, doc_ids: Collection[str] | None = None) -> None:
        """Forget all that was asked for the dataset and by its judges, or what was answered about some documents."""
        with self.engine.begin() as connection:
            if doc_ids is None:
                for table in (ANSWERS, TURNS, ATTEMPTS, TASKS, TOTALS):
                    below = table.c.dataset.startswith(f"{self.dataset}.", autoescape=True)
                    connection.execute(sa.delete(table).where(sa.or_(table.c.dataset == self.dataset, below)))
                return
            wanted = sorted(doc_ids)
            for at in range(0, len(wanted), KEYS_AT_ONCE):
                for table in (ANSWERS, TURNS):
                    some = table.c.parent_doc_id.in_(wanted[at : at + KEYS_AT_ONCE])
                    connection.execute(sa.delete(table).where(table.c.dataset == self.dataset, some))
        self._count_again()

    @until_reached
    def reopen(self, reasons: Collection[str] = (FAILED,), keys: Sequence[str] | None = None) -> int:
        """Forget refused requests, so that they are asked again; what they cost stays counted.

        Args:
            reasons: of their refusal; final failures by default.
            keys: instead of reasons: their keys.

        Returns:
            How many there were.
        """
        count = 0
        with self.transaction() as connection:
            which = [ANSWERS.c.reason.in_(reasons)] if keys is None else []
            for at in range(0, len(keys or ()), KEYS_AT_ONCE):
                which.append(ANSWERS.c.key.in_((keys or ())[at : at + KEYS_AT_ONCE]))
            for some in which:
                count += connection.execute(sa.delete(ANSWERS).where(self._own, ANSWERS.c.reason != "", some)).rowcount
        self._count_again()
        return count

    @until_reached
    def _count_again(self) -> None:
        """Count the answers anew, after some were forgotten."""
        with self.transaction() as connection:
            is_usable = ANSWERS.c.reason == ""
            counted = sa.select(is_usable, sa.func.count()).where(self._own).group_by(is_usable)
            counts = {bool(usable): int(count) for usable, count in connection.execute(counted)}
            values = {"accepted": counts.get(True, 0), "refused": counts.get(False, 0)}
            connection.execute(sa.update(TOTALS).where(self._totals).values(values))

    @property
    def _own(self) -> sa.ColumnElement[bool]:
        return ANSWERS.c.dataset == self.dataset

    @property
    def _turns(self) -> sa.ColumnElement[bool]:
        return TURNS.c.dataset == self.dataset

    @property
    def _totals(self) -> sa.ColumnElement[bool]:
        return TOTALS.c.dataset == self.dataset


def datasets_with_answers(catalogue: Catalog) -> list[str]:
    """The datasets of a lake with questions to a model."""
    if not isinstance(catalogue, SqlCatalog) or not sa.inspect(catalogue.engine).has_table(TOTALS.name):
        return []
    with catalogue.engine.connect() as connection:
        return sorted(connection.execute(sa.select(TOTALS.c.dataset)).scalars())


def _turn_row(dataset: str, heard: Heard) -> dict[str, Any]:
    about = {"dataset": dataset, "parent_doc_id": heard.request.parent.doc_id}
    answer = json.dumps(asdict(heard.turn.answer))
    return about | {"key": heard.turn.key, "answer": answer, "output": heard.turn.output, "status": heard.turn.status}


def _clean(text: str) -> str:
    """A text as every database takes it: no null characters (Postgres), no lone surrogates."""
    return text.replace("\0", " ").encode(errors="replace").decode()


def _or(counted: int | None, most: int) -> int:
    """A usage stated by the endpoint, else the most it can have been."""
    return most if counted is None else counted
