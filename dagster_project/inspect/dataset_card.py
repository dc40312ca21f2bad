"""A card of a dataset or corpus: Markdown with the metadata header that dataset hubs read; no text of a document.

Counts are of the tables as they are now, settings those that they were computed with (the ledger).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from ruamel.yaml import YAML

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpus_facts import find_corpus, namespaces_with
from dagster_project.inspect.funnel import funnel
from dagster_project.inspect.snapshot_diff import LakeState, find_state
from spark_jobs.exceptions import nearest
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.ledger.ledger import Ledger

_SHOWN = 30
_STEPS = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")  # of hubs' size categories


def card(catalogue: Catalog, name: str) -> str:
    """The card of a dataset or corpus.

    Raises:
        CommandError: neither is there under this name.
    """
    datasets, corpora = namespaces_with(catalogue, "documents"), namespaces_with(catalogue, "members")
    if name not in datasets + corpora:
        raise CommandError(
            f"{name}: no dataset or corpus of this name was run{nearest(name, datasets + corpora)}; headrace run {name}"
        )
    ledger = Ledger(catalogue)
    ledger.refresh()
    state = find_state(catalogue, name)
    if name in datasets:
        parts, sources = list(_dataset(catalogue, ledger, name)), [name]
        rows = _documents(catalogue, name)
    else:
        sources = list(find_corpus(catalogue, name).datasets)
        parts = list(_corpus(catalogue, ledger, name))
        rows = pa.concat_tables([_documents(catalogue, one) for one in sources])
    title = f"# {name}\n\n{'Datasets: ' + ', '.join(sources) + '. ' if name in corpora else ''}Made by headrace."
    return "\n\n".join([_header(name, rows), title, *parts, _provenance(ledger, state)]) + "\n"


def _documents(catalogue: Catalog, dataset: str) -> pa.Table:
    columns = ("kind", "language", "licence", "byte_count")
    rows = read_columns(catalogue, f"{dataset}.documents", columns)
    if rows is None:
        raise CommandError(f"{dataset}: its documents have not been computed; run `headrace run {dataset}` first")
    return rows.select(columns).cast(
        pa.schema([(name, pa.large_string()) for name in columns[:3]] + [("byte_count", pa.int64())])
    )


def _header(name: str, rows: pa.Table) -> str:
    """The YAML that dataset hubs read."""
    licences = list(dict.fromkeys(value.lower() for value in _values(rows, "licence") if len(value.split()) == 1))
    header = {
        "pretty_name": name,
        "license": licences or ["unknown"],
        "language": [value for value in _values(rows, "language") if len(value) in (2, 3) and value.islower()],
        "size_categories": [_size_category(rows.num_rows)],
        "task_categories": ["text-generation"],
        "tags": ["headrace"],
    }
    out = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.default_style = '"'  # type: ignore[assignment]  # hubs read YAML 1.1, where a bare `no` is a boolean
    yaml.dump({key: value for key, value in header.items() if value}, out)
    return f"---\n{out.getvalue()}---"


def _size_category(count: int) -> str:
    """The size as hubs write it: `n<1K`, `1K<n<10K` and so on to `n>1T`."""
    at = next((at for at in range(len(_STEPS)) if count < 1_000 * 10**at), len(_STEPS))
    return "n<1K" if at == 0 else "n>1T" if at == len(_STEPS) else f"{_STEPS[at - 1]}<n<{_STEPS[at]}"


def _values(rows: pa.Table, column: str) -> list[str]:
    """The values of a column, the most frequent first."""
    return [row[column] for row in _counts(rows, column) if row[column] is not None]


def _counts(rows: pa.Table, column: str) -> list[dict[str, Any]]:
    """Documents and bytes by value of a column, the most frequent first."""
    groups = rows.group_by(column).aggregate([([], "count_all"), ("byte_count", "sum")])
    return list(groups.sort_by([("count_all", "descending"), (column, "ascending")]).to_pylist())


def _dataset(catalogue: Catalog, ledger: Ledger, name: str) -> Iterator[str]:
    """The parts of a dataset: source, counts, rules."""
    rows = _documents(catalogue, name)
    increments = ledger.increments(f"{name}.documents")
    source = json.loads(increments[max(increments)].config).get("source", {}) if increments else {}
    known = {key: value for key, value in source.items() if value not in (None, [], {}, "")}
    yield f"## Source\n\n`{json.dumps(known, ensure_ascii=False)}`; increments: {len(increments)}."
    yield f"## Documents\n\n{rows.num_rows:,} documents, {pc.sum(rows['byte_count']).as_py() or 0:,} bytes."
    for column in ("kind", "language", "licence"):
        yield _table(
            (column, "documents", "bytes"),
            [(row[column] or "none", row["count_all"], row["byte_count_sum"]) for row in _counts(rows, column)],
        )
    yield from _rules(catalogue, ledger, name)


def _rules(catalogue: Catalog, ledger: Ledger, name: str) -> Iterator[str]:
    """Thresholds of the verdicts, and how many documents each rule rejects."""
    judged = ledger.increments(f"{name}.verdicts")
    rows = read_columns(catalogue, f"{name}.verdicts", ("kept", "failed.element.rule"))
    if rows is None or not judged:
        return
    kept = pc.sum(rows["kept"]).as_py() or 0
    rules = pc.value_counts(pc.struct_field(pc.list_flatten(rows["failed"].combine_chunks()), "rule")).to_pylist()
    yield f"## Rules\n\n{kept:,} of {rows.num_rows:,} documents pass all of them."
    counted = sorted(((one["values"], one["counts"]) for one in rules), key=lambda one: (-one[1], one[0]))
    yield _table(("rule", "documents rejected"), counted)
    yield f"Thresholds: `{judged[max(judged)].config}`"


def _corpus(catalogue: Catalog, ledger: Ledger, name: str) -> Iterator[str]:
    """The parts of a corpus: duplicates, tokenizer, windows."""
    facts = find_corpus(catalogue, name)

    def rows(table: str) -> int:
        return sum(row.row_count for row in ledger.places(f"{name}.{table}").values())

    def config(table: str) -> dict[str, Any]:
        places = list(ledger.places(f"{name}.{table}").values())
        found: dict[str, Any] = json.loads(places[-1].config) if places else {}
        return found

    for dataset in facts.datasets:
        yield from (part.replace("## ", f"## {dataset}: ", 1) for part in _dataset(catalogue, ledger, dataset))
    lines = [("members", rows("members")), ("exact duplicates removed", rows("exact_duplicates"))]
    if facts.applied is not None:
        near = rows("members") - rows("exact_duplicates") - rows("survivors")
        lines.append((f"near-duplicates removed (weighted Jaccard similarity from {facts.applied} on)", near))
    yield "## Deduplication\n\n" + _table(("what", "documents"), [*lines, ("survivors", rows("survivors"))])
    stages = [(one.step, one.documents, one.byte_count, one.tokens) for one in funnel(catalogue, facts)]
    yield "## Funnel\n\nWhat is left after each step; tokens are estimated before they are counted.\n\n" + _table(
        ("step", "documents", "bytes", "tokens"), stages
    )
    made = read_columns(catalogue, f"{name}.tokenizer", ("sha256", "vocabulary_size"))
    if made is not None and made.num_rows:
        tokenizer = made.to_pylist()[0]
        yield (
            f"## Tokenizer\n\nVocabulary of {tokenizer['vocabulary_size']:,}, SHA-256 `{tokenizer['sha256']}`, "
            f"`{json.dumps(config('tokenizer'))}`."
        )
    counts = read_columns(catalogue, f"{name}.tokens", ("token_count",))
    tokens = pc.sum(counts["token_count"]).as_py() if counts is not None else 0
    packed = [(table, rows(table)) for table in sorted(facts.tables) if table.startswith("packed_")]
    yield f"## Windows\n\n{tokens or 0:,} tokens.\n\n" + _table(("table", "windows"), packed)


def _provenance(ledger: Ledger, state: LakeState) -> str:
    """Snapshot, data version and code of every table."""
    lines = []
    commits = set()
    for table, snapshot_id in sorted(state.snapshots.items()):
        places = ledger.places(f"{state.name}.{table}")
        codes = sorted({row.code_version for row in places.values()})
        commits |= {row.git_commit for row in places.values() if row.git_commit}
        lines.append((table, sum(row.row_count for row in places.values()), str(snapshot_id), ", ".join(codes)))
    shown = ", ".join(f"`{commit[:12]}`" for commit in sorted(commits)) or "unknown"
    return f"## Provenance\n\nCode: commits {shown}.\n\n" + _table(
        ("table", "rows", "snapshot", "code version"), lines, len(lines)
    )


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]], most: int = _SHOWN) -> str:
    """A Markdown table; of many rows the first."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows[:most]:
        texts = (f"{value:,}" if isinstance(value, int) else " ".join(str(value).split()) for value in row)
        cells = (text.replace("|", "\\|") for text in texts)
        lines.append("| " + " | ".join(cells) + " |")
    more = [f"\n.. and {len(rows) - most} more"] if len(rows) > most else []
    return "\n".join([*lines, *more])
