"""Ask the open questions of a dataset, and seal accepted answers as pages, landing like those of an API.

Parents are asked about in the order of a hash, in rounds, so that a dataset with enough after some of them has a
sample of the whole. A cut or refused answer counts as asked; it has a row with its reason and is not asked for again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from headrace_features.synthetic.asked import Asked
from headrace_features.synthetic.asking import Asker
from headrace_features.synthetic.attempts import FAILED, AnswerStore
from headrace_features.synthetic.conversations import Executor
from headrace_features.synthetic.faults import commonest, why
from headrace_features.synthetic.generated_config import Budget, GeneratedSource, template_of
from headrace_features.synthetic.parents import parent_count, parent_texts
from headrace_features.synthetic.progress import progress_of
from headrace_features.synthetic.requests import Request, parts_of, request_of
from headrace_features.synthetic.tasks import TaskQueue
from spark_jobs.exceptions import InputError, nearest
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.plugins import attribute
from spark_jobs.progress import tell
from spark_jobs.sources.paged.checkpoints import Checkpoints
from spark_jobs.sources.paged.pages import PagedKind

_LEAST_PARENTS: Final = 1000  # that are read at a time where few answers are wanted
_MORE: Final = 8  # times as many are read next, where too few answers of those were accepted
_PAGE_RECORDS: Final = 1000
_AHEAD: Final = 1000  # requests in the queue: enough for workers that come, few enough for the catalogue's database
_LOOK_SECONDS: Final = 0.1
_TELL_SECONDS: Final = 10.0
_EXECUTOR: Final = "headrace_features.synthetic.executed.programs:program_executor"
_PACKAGES: Final = ("aiohttp", "jsonschema")
_REQUEST: Final = "generated"  # what pages are kept under: all requests of a dataset have one list

_log = logging.getLogger(__name__)


class GeneratedKind(PagedKind[GeneratedSource]):
    """Answers of a model, asked for before they are listed."""

    @classmethod
    def facts(cls, source: Mapping[str, Any], dataset: str, catalogue: Catalog) -> Mapping[str, Any]:
        """Answers, tokens and their price."""
        budget = Budget.model_validate(source.get("budget", {}))
        return progress_of(AnswerStore(catalogue, dataset)).facts(budget)

    @classmethod
    def forget(cls, dataset: str, catalogue: Catalog, objects: Collection[str] | None = None) -> None:
        """Forget what a model was asked, and what code gave, for a dataset and its judges."""
        if objects is None and isinstance(catalogue, SqlCatalog):
            AnswerStore(catalogue, dataset).forget()

    def packages(self) -> Mapping[str, tuple[str, ...]]:
        """What asking needs."""
        return {"generate": _PACKAGES}

    def fetch(self, dataset: str, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float) -> None:
        """Ask for a dataset's missing answers; see `fetch_answers`."""
        fetch_answers(dataset, self.source, catalogue, objects, wait_seconds)


def fetch_answers(
    dataset: str, source: GeneratedSource, catalogue: Catalog, objects: ObjectFolder, wait_seconds: float
) -> Asked:
    """Ask for a dataset's missing answers, and make pages of the accepted ones.

    Raises:
        ConfigError: the environment lacks the key of the endpoint.
        SetupError: code of answers is to be executed, and this machine does not hold it.
        InputError: the parents were not judged yet, or the catalogue has no database.
        LeaseError: another process is asking for the dataset, and goes on for longer than `wait_seconds`.
    """
    require_packages(dataset)
    store = AnswerStore(catalogue, dataset)
    tasks = TaskQueue(store, source)
    checkpoints = Checkpoints(catalogue, dataset)
    sealed = AnswerPages(store, checkpoints, objects, of_all=source.served == "any")
    with table_leases(catalogue, [f"{dataset}.fetched"], wait_seconds):
        count = sealed.seal()  # what a killed run left
        store.reopen()
        lacking, left = _open(source, store, 0)
        bounds = [bound for bound in (lacking, left) if bound is not None]
        wanted = iter(()) if 0 in bounds else _requests(catalogue, source, store, min(bounds, default=None))
        executor = attribute(_EXECUTOR) if source.execute else None
        done = asyncio.run(ask(tasks, wanted, sealed.seal_full, executor=executor))
        count += sealed.seal()
    tell_outcome(source, store, done)
    if left == 0 and lacking != 0:
        _log.warning(
            "%s: nobody was asked: asked_at_most is %d, which all runs made; raise it", dataset, source.asked_at_most
        )
    if (lacks := in_vain(store, done, source.parents.table)) and lacking != 0 and not count:
        if done.attempts or not any(checkpoints.all_pages().values()):
            raise InputError(f"{dataset}: {lacks}")
        _log.warning("%s: %s", dataset, lacks)
    return done


def reopen_requests(dataset: str, reasons: Collection[str], catalogue: Catalog, wait_seconds: float) -> dict[str, int]:
    """Ask again, with the next run, what was refused for some reasons; gives the number of requests, by reason.

    Raises:
        InputError: nothing was refused for one of them, or the catalogue has no database.
        LeaseError: a run is asking, and goes on for longer than `wait_seconds`.
    """
    with table_leases(catalogue, [f"{dataset}.fetched"], wait_seconds):
        return reopen_refused(AnswerStore(catalogue, dataset), reasons)


def reopen_refused(store: AnswerStore, reasons: Collection[str]) -> dict[str, int]:
    """Forget requests refused for some reasons; gives how many there were, by reason.

    Raises:
        InputError: nothing was refused for one of them.
    """
    counts = refused_counts(store, reasons)
    store.reopen(reasons)
    return counts


def refused_counts(store: AnswerStore, reasons: Collection[str]) -> dict[str, int]:
    """How many requests were refused for some reasons.

    Raises:
        InputError: nothing was refused for one of them.
    """
    counts = {reason: count for reason, count in store.outcomes().items() if reason}
    for reason in reasons:
        if reason not in counts:
            there = (
                ", ".join(f"{reason} {count:,}" for reason, count in sorted(counts.items())) or "nothing was refused"
            )
            raise InputError(f"{store.dataset}: no request was refused as {reason!r}{nearest(reason, counts)}; {there}")
    return {reason: counts[reason] for reason in reasons}


def require_packages(dataset: str) -> None:
    """Refuse to ask where what asking needs is not installed.

    Raises:
        InputError: names the package, and its extra.
    """
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise InputError(f"{dataset}: {missing[0]} is not installed; run: pip install 'headrace[generate]'")


async def ask(
    tasks: TaskQueue,
    wanted: Iterator[Request],
    land: Callable[[], str] = lambda: "",
    field: str = "source",
    executor: Executor | None = None,
) -> Asked:
    """Put requests into the queue as workers take them, this process being one of them, until all are answered.

    A key answered, or on its way, is left out: also that of another document with the same text.

    Args:
        tasks: the queue, with its source and answers.
        wanted: the requests.
        land: called now and then, for arrived answers; gives why to stop, else nothing.
        field: where the source is declared, for messages.
        executor: makes what executes the code of answers.
    """
    source, store = tasks.source, tasks.store
    asker, ahead = Asker(tasks, field=field, executor=executor), max(_AHEAD, 4 * source.asking.at_once)
    more, exhausted, on_their_way = True, False, await asyncio.to_thread(tasks.clear)
    end, shown_at = time.monotonic() + 60 * source.asking.run_minutes, time.monotonic()
    working = asyncio.create_task(asker.work(lambda: more))
    try:
        while not working.done():
            waiting, _ = await asyncio.to_thread(tasks.counts)
            lacking, left = await asyncio.to_thread(_open, source, store, waiting)
            room = min(bound for bound in (ahead - waiting, lacking, left) if bound is not None)
            if room > 0 and not exhausted:
                some = await asyncio.to_thread(lambda count: list(itertools.islice(wanted, count)), room)
                exhausted = len(some) < room
                already = on_their_way | await asyncio.to_thread(store.answered, [request.key for request in some])
                new = {
                    request.key: request for request in reversed(some) if request.key not in already
                }  # of equal ones the first stays
                await asyncio.to_thread(tasks.put, list(reversed(new.values())))
                on_their_way |= set(new)
                if len(on_their_way) > 2 * ahead:
                    on_their_way -= await asyncio.to_thread(store.answered, on_their_way)
                if some and not new:
                    continue
            elif not waiting:
                more = False
            if why := await asyncio.to_thread(land):
                asker.stop(why)
            if time.monotonic() > end:
                asker.stop(f"{field}.asking.run_minutes is {source.asking.run_minutes:g}; the next run goes on")
            if time.monotonic() - shown_at > _TELL_SECONDS:
                shown_at = time.monotonic()
                tell(
                    f"{store.dataset}: {(await asyncio.to_thread(progress_of, store)).line({'budget': source.budget})}"
                )
            await asyncio.wait([working], timeout=_LOOK_SECONDS)
    finally:
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        await asyncio.to_thread(tasks.clear)
    return working.result()


def _open(source: GeneratedSource, store: AnswerStore, waiting: int) -> tuple[int | None, int | None]:
    """How many answers are still wanted, and how many requests may still be made; None without a bound.

    Requests in the queue count as accepted and as made, so that never too many are.
    """
    before = store.totals()
    lacking = None if source.accepted is None else max(0, source.accepted - before.accepted - waiting)
    request_count = before.accepted + before.refused
    each = 2 if source.on_cut == "raise_limit_once" else 1  # a request that is cut makes another one
    left = None if source.asked_at_most is None else max(0, (source.asked_at_most - request_count) // each - waiting)
    return lacking, left


def _requests(catalogue: Catalog, source: GeneratedSource, store: AnswerStore, most: int | None) -> Iterator[Request]:
    """The requests about all parents, by their rank; texts are read once, or up to the ranks of `most` new ones.

    Parents of lower ranks were asked about before, and each gives a request for every template and sample at least.
    """
    templates = [template_of(template) for template in source.templates]
    shares = [0.0, 1.0]
    if most is not None:
        before = store.totals()
        needed = (before.accepted + before.refused + most) / (len(templates) * source.samples)
        shares = _shares(needed, parent_count(catalogue, source.parents))
    for first, last in itertools.pairwise(shares):
        for parent in parent_texts(catalogue, source.parents, source.seed, first, last):
            for part in parts_of(*parent, source.endpoint.reads_characters):
                for template, sample in itertools.product(templates, range(source.samples)):
                    yield request_of(part, template, source.endpoint, sample)


def _shares(needed: float, count: int) -> list[float]:
    """The shares of all ranks up to which one pass after the other reads; 500 of 100,000: 0, .01, .08, 1."""
    shares, share = [0.0], max(_LEAST_PARENTS, needed) / max(count, 1)
    while share * _MORE < 1:
        shares.append(share)
        share *= _MORE
    return [*shares, 1.0]


class AnswerPages:
    """Makes pages of accepted answers, in one run those of one model; what another wrote lands with the next.

    Where answers of all models are wanted (`served: any`), those of each land as they come.
    """

    def __init__(
        self,
        store: AnswerStore,
        pages: Checkpoints,
        objects: ObjectFolder,
        record_of: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
        *,
        of_all: bool = False,
    ) -> None:
        """`record_of` makes the record of a page from an answer's row; without it that is `_record`.

        `of_all` is for answers of whatever model and fingerprint.
        """
        self._store, self._pages, self._objects, self._of_all = store, pages, objects, of_all
        self._record_of = record_of or _record
        self._served: tuple[str, str] | None = None
        self._other = ""

    def seal(self, least: int = 1) -> int:
        """Make pages of accepted answers not yet landed, where there are enough of them; gives how many.

        After a kill an answer may be in two pages, and lands once.
        """
        unlanded = self._store.unlanded()
        if self._of_all:
            return self._seal(None, sum(unlanded.values()), least)
        self._served = self._served or min(unlanded, default=None)
        if self._served is None:
            return 0
        if others := [served for served in unlanded if served != self._served]:
            before, now = ("/".join(filter(None, served)) for served in (self._served, others[0]))
            self._other = (
                f"the endpoint served {before}, now {now}; what came before lands, the next run goes on with it; where "
                "several answer behind one address, declare served: any"
            )
        return self._seal(self._served, unlanded.get(self._served, 0), least)

    def _seal(self, served: tuple[str, str] | None, unlanded: int, least: int) -> int:
        """Make pages of the answers of a model, or of all models, while there are enough of them; gives how many."""
        count = 0
        while unlanded - count >= least:
            rows = self._store.to_land(_PAGE_RECORDS, served, accepted=True)
            rows = [row for row in rows if row["template"] == rows[0]["template"]]
            self._save(rows)
            count += len(rows)
        return count

    def seal_full(self) -> str:
        """Make full pages; gives why to stop, where another model or fingerprint is served by now."""
        self.seal(_PAGE_RECORDS)
        return self._other

    def _save(self, rows: list[Mapping[str, Any]]) -> None:
        records, template = [self._record_of(row) for row in rows], rows[0]["template"]
        self._pages.keep_records(template, _REQUEST, rows[0]["key"], records, self._objects)
        self._store.mark_landed([row["key"] for row in rows])


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    """An answer as a record of a page; the fields beside key and text become metadata."""
    parent = {"parent": row["parent_doc_id"], "parent_dataset": row["parent_dataset"]}
    parent["parent_bytes"] = f"{row['parent_start']}-{row['parent_end']}"
    model = {"model": row["model"], "answer_tokens": row["answer_tokens"]}
    stated = {name: row[name] for name in ("fingerprint", "reasoning", "tokens_in", "tokens_out") if row[name]}
    return {"key": row["key"], "text": row["text"], **parent, **model, **stated, **json.loads(row["detail"] or "{}")}


def tell_outcome(source: GeneratedSource, store: AnswerStore, done: Asked) -> None:
    """Log what this run sent, what all runs gave and cost, and why this one stopped."""
    if done.attempts:
        so_far = progress_of(store).line({"budget": source.budget})
        _log.warning("%s: this run sent %s requests; in all: %s", store.dataset, f"{done.attempts:,}", so_far)
    if done.stopped:
        _log.warning("%s: stopped: %s", store.dataset, done.stopped)


def in_vain(store: AnswerStore, done: Asked, parents: str = "") -> str:
    """Why a run has no answer, in a line with the endpoint's words and the mend; empty where it has, or lacks none.

    Args:
        store: the answers of all runs.
        done: what this run came to.
        parents: the table of the documents asked about.
    """
    outcomes = store.outcomes()
    accepted, refused = outcomes.pop("", 0), sum(outcomes.values())
    if done.accepted:
        return ""
    if done.hopeless or (done.stopped and done.attempts):
        return f"no answer came: {done.stopped}"
    if outcomes.keys() - {FAILED} and (refused > accepted or "rejected" in outcomes):
        refusals = [refusal for refusal in store.refusals() if refusal[0] != FAILED]
        reason = Counter({outcome: outcomes[outcome] for outcome in outcomes.keys() - {FAILED}}).most_common(1)[0][0]
        words = commonest({detail: count for outcome, detail, count in refusals if outcome == reason})
        again = f"headrace dataset reopen {store.dataset} --reason {reason}"
        return f"{outcomes[reason]:,} of {accepted + refused:,} requests ended as {why(reason, words)}; then: {again}"
    if done.attempts:
        return f"no answer came: every request {why(FAILED, commonest(done.said))}"
    return (
        "" if accepted or done.stopped else f"{parents} names no document to ask about; look at what its policy keeps"
    )
