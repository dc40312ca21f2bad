"""Ask a judge about the sample of a dataset, and land what it answered in `<dataset>.answers_<judge>`.

An answer lands by its key; it is written down as it comes (`generated.attempts`), appended to the table at the end of a
run or, after a kill, at the start of the next, and never asked for again. No step computes this table. A request that
failed has a row too, and is open again in the next run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Set
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In, NotEqualTo

from headrace.tables.catalogue import load_table, tables_in
from headrace_features.synthetic.attempts import FAILED, AnswerStore
from headrace_features.synthetic.fetch import (
    ask,
    in_vain,
    refused_counts,
    reopen_refused,
    require_packages,
    tell_outcome,
)
from headrace_features.synthetic.labels.rubric import JudgeConfig, source_of, templates_of
from headrace_features.synthetic.requests import Parent, Request, request_of
from headrace_features.synthetic.tasks import TaskQueue
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.files.lookups import read_batches, read_columns
from spark_jobs.lake.files.maintenance import expire
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table

_LANDED_AT_ONCE: Final = 10_000

ANSWERS = Table(
    name="answers",
    comment="One row per request that a judge answered for good. Facts that landed: nothing computes them again.",
    columns=(
        Column("key!", "string", "SHA-256 of what was sent, and of the number of the sample"),
        Column("doc_id!", "string", "document that it was about"),
        Column("reason!", "string", "why the answer is not usable (refused, cut, failed, ..); empty where it is"),
        Column("detail!", "string", "the reason in the endpoint's words"),
        Column("text!", "string", "the answer; empty where there is a reason"),
        Column("reasoning!", "string", "what the model thought aloud, where the endpoint sets it apart"),
        Column("model!", "string", "as the server named it"),
        Column("fingerprint!", "string", "of the server's configuration; empty where it gives none"),
        Column("tokens_in", "long", "of the prompt; null where the endpoint does not say"),
        Column("tokens_out", "long", "of the answer; null where it does not say"),
    ),
    sampled=("text", "reasoning"),
)


def store_name(dataset: str, judge: str) -> str:
    """Key of a judge's answers in the store shared with generated datasets."""
    return f"{dataset}.{judge}"


def ask_judge(dataset: str, name: str, judge: JudgeConfig, catalogue: Catalog, wait_seconds: float) -> None:
    """Ask about the sampled documents without an answer, and land the answers.

    Raises:
        ConfigError: the environment lacks the key of the endpoint.
        InputError: nothing was ever answered, or the catalogue has no database.
        LeaseError: another process asks, and goes on for longer than `wait_seconds`.
    """
    require_packages(dataset)
    landed, source = f"{dataset}.answers_{name}", source_of(judge, dataset)
    store = AnswerStore(catalogue, store_name(dataset, name))
    tasks = TaskQueue(store, source)
    with table_leases(catalogue, [landed], wait_seconds):
        _land(store, catalogue, landed)  # what a killed run left
        store.reopen()
        requests = _requests(dataset, name, judge, catalogue)
        done = asyncio.run(ask(tasks, requests, field=f"judged.{name}"))
        _land(store, catalogue, landed)
    tell_outcome(source, store, done)
    if done.attempts and not store.outcomes().keys() - {FAILED}:
        raise InputError(f"{landed}: {in_vain(store, done)}; look: headrace table show {landed} --rows 3")


def reopen_labels(
    dataset: str, name: str, reasons: Collection[str], catalogue: Catalog, wait_seconds: float
) -> dict[str, int]:
    """Ask a judge again, with the next run, what was refused for some reasons; gives how many requests, by reason.

    Raises:
        InputError: nothing was refused for one of them, or the catalogue has no database.
        LeaseError: a run is asking, and goes on for longer than `wait_seconds`.
    """
    landed = f"{dataset}.answers_{name}"
    with table_leases(catalogue, [landed], wait_seconds):
        store = AnswerStore(catalogue, store_name(dataset, name))
        refused_counts(store, reasons)
        some, table = In("reason", set(reasons)), load_table(catalogue, landed)
        if table is not None and table.scan(some, ("reason",)).count():
            table.delete(some)  # before the store forgets them: after a kill in between the same command goes on
        return reopen_refused(store, reasons)


def lacks_answers(dataset: str, name: str, catalogue: Catalog) -> bool:
    """Whether a request about the sample, as it is now, has no landed answer; a failed one has none."""
    sampled = read_columns(catalogue, f"{dataset}.sampled_{name}", ("key", "second_key"))
    if sampled is None:
        return False
    answers = read_columns(catalogue, f"{dataset}.answers_{name}", ("key",), NotEqualTo("reason", FAILED))
    wanted = {key for column in ("key", "second_key") for key in sampled[column].to_pylist()} - {None}
    return answers is None or not wanted <= set(answers["key"].to_pylist())


def forget_labels(catalogue: Catalog, doc_ids: Set[str], wait_seconds: float) -> Iterator[str]:
    """Delete judges' answers about documents for good; gives a line for each judge asked about one.

    Answers about them are deleted, and the tables with their texts removed with their files: the next run makes them
    again without the documents, and asks about those taking their place.
    """
    for (space,) in catalogue.list_namespaces():
        for landed in tables_in(catalogue, space):
            name = landed.removeprefix(f"{space}.{ANSWERS.name}_")
            table = load_table(catalogue, landed)
            if name == landed or table is None or table.properties.get(SCOPE_PROPERTY) != ANSWERS.name:
                continue
            label_tables = [f"{space}.{suffix}_{name}" for suffix in ("sampled", "judged", "agreement")]
            with table_leases(catalogue, [landed, *label_tables], wait_seconds):
                sample = read_columns(catalogue, label_tables[0], ("doc_id",))
                there = set() if sample is None else doc_ids & set(sample["doc_id"].to_pylist())
                about = set(table.scan(In("doc_id", doc_ids), ("doc_id",)).to_arrow()["doc_id"].to_pylist())
                if not there and not about:
                    continue
                AnswerStore(catalogue, store_name(space, name)).forget(about | there)
                if about:
                    table.delete(In("doc_id", about))
                for label_table in label_tables if there else ():
                    if load_table(catalogue, label_table) is not None:
                        catalogue.purge_table(label_table)
            expire(catalogue, landed, datetime.now(UTC), wait_seconds)
            yield f"{landed}: what was said about {len(about | there):,} of them is out; next: headrace run {space}"


def _requests(dataset: str, name: str, judge: JudgeConfig, catalogue: Catalog) -> Iterator[Request]:
    """The requests about a sample as its table has them: by key, so those before a stop are a sample too."""
    template, again = templates_of(judge)
    for batch in read_batches(catalogue, f"{dataset}.sampled_{name}", ("doc_id", "content", "key", "second_key")):
        for row in batch.to_pylist():
            text = row["content"]
            part = Parent(dataset, row["doc_id"], text, 0, len(text.encode(errors="surrogatepass")))
            if row["key"]:
                yield request_of(part, template, judge.endpoint)
            if row["second_key"]:
                yield request_of(part, again, judge.endpoint, sample=1)


def _land(store: AnswerStore, catalogue: Catalog, landed: str) -> None:
    """Append answers not yet landed; after a kill an answer may be there twice, with one key."""
    table = ensure_table(catalogue, landed, ANSWERS, {SCOPE_PROPERTY: ANSWERS.name})
    schema = table.schema().as_arrow()
    while rows := store.to_land(_LANDED_AT_ONCE):
        named = [{**row, "doc_id": row["parent_doc_id"]} for row in rows]
        table.append(pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in named], schema=schema))
        store.mark_landed([row["key"] for row in rows])
