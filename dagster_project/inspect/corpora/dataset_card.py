"""A card of a dataset or corpus: Markdown with the metadata header for dataset hubs; no text of a document.

Counts are of the documents that count now (`inspect.documents.counted`), and bytes of their texts; settings are those
that they were computed with (the ledger). A card with noise has no exact count of documents: those that a document
changes by at most one are disturbed, and all others left out (bytes, tokens, windows, rows of tables, and what
deduplication removes, which one document may change by many).
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from ruamel.yaml import YAML

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.funnel import funnel
from dagster_project.inspect.corpora.snapshot_diff import LakeState, count_tokens, find_state
from dagster_project.inspect.documents.counted import documents_that_count, members_that_count, without
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, find_corpus, landed_source, namespaces_with
from dagster_project.standards import standards
from headrace.tables.catalogue import load_table
from spark_jobs.exceptions import nearest
from spark_jobs.lake.files.lookups import read_columns
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.reasons import changed_since, some
from spark_jobs.plugins import load
from spark_jobs.sources.licences.expressions import ids_in
from spark_jobs.tokens.tokens import RENDERED

_SHOWN = 30
_COLUMNS = ("kind", "language", "licence")
_STEPS = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")  # of hubs' size categories


class CountNoise(Protocol):
    """Counts fit to leave the lake, as a feature makes them."""

    scale: float

    def count(self, exact: int) -> int:
        """A noisy count."""

    def groups(self, exact: Mapping[str, int]) -> Any:
        """Noisy `counts` of groups, the largest first; `other`, what smaller ones have together."""

    @property
    def named_by_chance(self) -> float:
        """Probability of naming a group of one document."""


@dataclass(frozen=True)
class Privacy:
    """How much a card may tell of single documents.

    Attributes:
        epsilon: of the whole card.
        min_group: lowest noisy count of a named group.
        draw: makes the noise; None for the feature's.
    """

    epsilon: float
    min_group: int
    draw: Callable[[list[int], float], list[int]] | None = None


def card(catalogue: Catalog, name: str, privacy: Privacy | None = None, header: Mapping[str, Any] | None = None) -> str:
    """The card of a dataset or corpus; with `privacy` without exact counts.

    Args:
        catalogue: of the lake.
        name: the dataset or corpus.
        privacy: how much it may tell.
        header: further keys of the YAML, and values in place of its own.

    Raises:
        CommandError: neither is there under this name, or epsilon or the least group are not above 0.
    """
    if privacy and not (0 < privacy.epsilon < math.inf and privacy.min_group > 0):
        given = f"epsilon {privacy.epsilon:g}, least group {privacy.min_group}"
        raise CommandError(f"card: {given}; both must be above 0, such as 1 and 20")
    datasets, corpora = namespaces_with(catalogue, "documents"), namespaces_with(catalogue, "members")
    if name not in datasets + corpora:
        raise CommandError(
            f"{name}: no dataset or corpus of this name was run{nearest(name, datasets + corpora)}; headrace run {name}"
        )
    ledger = Ledger.fresh(catalogue)
    state = find_state(catalogue, name)
    is_corpus = name not in datasets
    sources = list(find_corpus(catalogue, name).datasets) if is_corpus else [name]
    noise: CountNoise | None = None
    stated: list[str] = []
    if privacy:
        # A document is in one group of each of three columns, here and in its dataset, passes, and fails any rule.
        touched = 3 * (1 + is_corpus) + 1 + max(len(_rule_names(ledger, one)) for one in sources)
        make: Any = load("parts", "noise", type)
        drawn = {} if privacy.draw is None else {"draw": privacy.draw}
        noise = make(touched / privacy.epsilon, privacy.min_group, **drawn)
        stated = [_privacy(privacy, noise, touched)]
    rows = pa.concat_tables([_documents(catalogue, one) for one in sources])
    groups = {column: _groups(rows, column, noise) for column in _COLUMNS}
    if is_corpus:
        parts = [part for one in sources for part in _of_corpus(_dataset(catalogue, ledger, one, noise), one)]
        parts += _corpus(catalogue, ledger, name, noise)
    else:
        parts = list(_dataset(catalogue, ledger, name, noise, groups))
    title = f"# {name}\n\n{'Datasets: ' + ', '.join(sources) + '. ' if is_corpus else ''}Made by headrace."
    yaml = _header(name, groups, rows.num_rows, header or {})
    # Standards have exact counts, so a card with noise does not lead to them.
    if noise is None and (commands := standards(name)):
        parts.append(f"## Standards\n\n{commands}")
    return "\n\n".join([yaml, title, *stated, *parts, _provenance(ledger, state, noise)]) + "\n"


def _privacy(privacy: Privacy, noise: CountNoise, touched: int) -> str:
    """What the noise of a card promises."""
    return (
        f"## Privacy\n\nCounts have discrete Laplace noise of scale {noise.scale:g}: epsilon is {privacy.epsilon:g} "
        f"for this card, of which a document changes at most {touched} counts, each by one. Groups below "
        f"{privacy.min_group} are one, `other`; a group of one document is named with probability "
        f"{noise.named_by_chance:.1e}. Left out is what a document may change by more than one: bytes, tokens, "
        "windows, rows of tables, duplicates. Another card of the same documents spends another epsilon."
    )


def _documents(catalogue: Catalog, dataset: str) -> pa.Table:
    if load_table(catalogue, f"{dataset}.documents") is None:
        raise CommandError(f"{dataset}: its documents have not been computed; run `headrace run {dataset}` first")
    return documents_that_count(catalogue, dataset, (*_COLUMNS, "byte_count"))


Rows = list[tuple[Any, ...]]
"""Value of a column, documents, and without noise bytes; the most frequent first."""


def _header(name: str, groups: dict[str, Rows], count: int, more: Mapping[str, Any]) -> str:
    """The YAML for dataset hubs."""
    licences, languages = ([str(row[0]) for row in groups[one] if row[0]] for one in ("licence", "language"))
    exact = all(len(row) > 2 for row in groups["kind"])
    header = {
        "pretty_name": name,
        "license": _hub_licences(licences),
        "language": [value for value in languages if len(value) in (2, 3) and value.islower()],
        "size_categories": [size_category(count if exact else sum(row[1] for row in groups["kind"]))],
        "task_categories": ["text-generation"],
        "tags": ["headrace"],
        **more,
    }
    out = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.default_style = '"'  # type: ignore[assignment]  # hubs read YAML 1.1, where a bare `no` is a boolean
    yaml.dump({key: value for key, value in header.items() if value}, out)
    return f"---\n{out.getvalue()}---"


def _hub_licences(licences: list[str]) -> list[str]:
    """The licences in some expressions as hubs name them: ids in lower case, `other` for what is not on SPDX's list."""
    names = (name for licence in licences for name in ids_in(licence))
    known = dict.fromkeys("other" if "LicenseRef-" in name else name.lower() for name in names)
    return list(known) or ["unknown"]


def size_category(count: int) -> str:
    """The size as hubs write it: `n<1K`, `1K<n<10K` and so on to `n>1T`."""
    at = next((at for at in range(len(_STEPS)) if count < 1_000 * 10**at), len(_STEPS))
    return "n<1K" if at == 0 else "n>1T" if at == len(_STEPS) else f"{_STEPS[at - 1]}<n<{_STEPS[at]}"


def _groups(rows: pa.Table, column: str, noise: CountNoise | None) -> Rows:
    """Documents by value of a column; null is `None`, and `other` has what is too small to be named."""
    groups = rows.group_by(column).aggregate([([], "count_all"), ("byte_count", "sum")])
    ordered = groups.sort_by([("count_all", "descending"), (column, "ascending")]).to_pylist()
    if noise is None:
        return [(row[column], row["count_all"], row["byte_count_sum"]) for row in ordered]
    found = noise.groups({row[column] or "": row["count_all"] for row in ordered})
    other = [] if found.other is None else [("other", found.other)]
    return [*((value or None, count) for value, count in found.counts.items()), *other]


def _of_corpus(parts: Iterator[str], dataset: str) -> Iterator[str]:
    """The parts of a dataset on the card of a corpus."""
    return (part.replace("## ", f"## {dataset}: ", 1) for part in parts)


def _dataset(
    catalogue: Catalog, ledger: Ledger, name: str, noise: CountNoise | None, groups: dict[str, Rows] | None = None
) -> Iterator[str]:
    """The parts of a dataset: source, counts, rules."""
    rows = _documents(catalogue, name)
    groups = groups or {column: _groups(rows, column, noise) for column in _COLUMNS}
    source, increments = landed_source(ledger, name), ledger.increments(f"{name}.documents")
    yield f"## Source\n\n`{json.dumps(source, ensure_ascii=False)}`; increments: {len(increments)}."
    total = rows.num_rows if noise is None else sum(row[1] for row in groups["kind"])
    exact = f", {pc.sum(rows['byte_count']).as_py() or 0:,} bytes of text" if noise is None else ", about"
    yield f"## Documents\n\n{total:,} documents{exact}."
    for column, own in groups.items():
        head = (column, "documents", "bytes")[: 3 if noise is None else 2]
        yield _table(head, [(row[0] or "none", *row[1:]) for row in own if noise is None or row[1]])
    yield from _rules(catalogue, ledger, name, noise, total, rows["doc_id"])


def _rule_names(ledger: Ledger, dataset: str) -> list[str]:
    """Rules for the documents of a dataset, by the config of its verdicts."""
    configs = [json.loads(one.config) for one in ledger.increments(f"{dataset}.verdicts").values()]
    rules = [rule["rule"] for config in configs for rule in config.get("policy", {}).get("rules", [])]
    return list(dict.fromkeys([*rules, "personal_data", "manifest"])) if configs else []


def _rules(
    catalogue: Catalog, ledger: Ledger, name: str, noise: CountNoise | None, total: int, doc_ids: pa.ChunkedArray
) -> Iterator[str]:
    """Thresholds of the verdicts, and how many of the documents each rule rejects."""
    judged = ledger.increments(f"{name}.verdicts")
    rows = read_columns(catalogue, f"{name}.verdicts", ("doc_id", "kept", "failed.element.rule"))
    if rows is None or not judged:
        return
    rows = rows.filter(pc.is_in(rows["doc_id"].cast(doc_ids.type), value_set=doc_ids.combine_chunks()))
    kept = pc.sum(rows["kept"]).as_py() or 0
    found = pc.value_counts(pc.struct_field(pc.list_flatten(rows["failed"].combine_chunks()), "rule")).to_pylist()
    rules = {one["values"]: one["counts"] for one in found}
    if noise is not None:
        kept = noise.count(kept)
        noisy = noise.groups({rule: rules.get(rule, 0) for rule in _rule_names(ledger, name)})
        rules = noisy.counts | ({} if noisy.other is None else {"other": noisy.other})
    passing = f"{kept:,} of {rows.num_rows:,} documents pass" if noise is None else f"About {kept:,} of {total:,} pass"
    yield f"## Rules\n\n{passing} all of them."
    yield _table(("rule", "documents rejected"), sorted(rules.items(), key=lambda one: (-one[1], one[0])))
    yield f"Thresholds: `{judged[max(judged)].config}`"


def _corpus(catalogue: Catalog, ledger: Ledger, name: str, noise: CountNoise | None) -> Iterator[str]:
    """The parts of a corpus beside its datasets: duplicates, tokenizer, windows."""
    facts = find_corpus(catalogue, name)

    def rows(table: str) -> int:
        return sum(row.row_count for row in ledger.places(f"{name}.{table}").values())

    def config(table: str) -> dict[str, Any]:
        places = list(ledger.places(f"{name}.{table}").values())
        found: dict[str, Any] = json.loads(places[-1].config) if places else {}
        return found

    if noise is None:
        yield from _deduplication(catalogue, facts)
    made = read_columns(catalogue, f"{name}.tokenizer", ("sha256", "vocabulary_size"))
    if made is not None and made.num_rows:
        tokenizer = made.to_pylist()[0]
        yield (
            f"## Tokenizer\n\nVocabulary of {tokenizer['vocabulary_size']:,}, SHA-256 `{tokenizer['sha256']}`, "
            f"`{json.dumps(config('tokenizer'))}`."
        )
        if changed := changed_since(ledger, f"{name}.tokenizer"):
            yield (
                f"It stays as it was made before {some(changed)} changed: words of documents that are gone since may "
                "be among its tokens."
            )
    if noise is None:
        yield from _rendered(catalogue, f"{name}.tokens")
        tokens = count_tokens(catalogue, find_state(catalogue, name))
        packed = [(table, rows(table)) for table in sorted(facts.tables) if table.startswith("packed_")]
        yield f"## Windows\n\n{tokens:,} tokens.\n\n" + _table(("table", "windows"), packed)


def _rendered(catalogue: Catalog, table: str) -> Iterator[str]:
    """How conversations were rendered, and what was left out of how many documents; of other tables nothing."""
    tokens = load_table(catalogue, table)
    if tokens is None or RENDERED not in tokens.properties:
        return
    columns = read_columns(catalogue, table, ("left_out", "crossing"))
    if columns is None:  # nothing is in it
        return
    counted = pc.value_counts(columns["left_out"].drop_null()).to_pylist()
    counts = sorted((count["values"], count["counts"]) for count in counted)
    lines = [*counts, ("tokens across the edge of a mask", pc.sum(columns["crossing"]).as_py() or 0)]
    yield f"## Conversations\n\n{tokens.properties[RENDERED]}.\n\n" + _table(("left out", "documents"), lines)


def _deduplication(catalogue: Catalog, facts: CorpusFacts) -> Iterator[str]:
    """Members removed by deduplication, among the counted ones, and documents left after each step."""
    members, exact, survivors = (
        members_that_count(catalogue, facts.name, table) for table in ("members", "exact_duplicates", facts.base)
    )
    exact_count = without(exact, survivors["doc_id"]).num_rows
    lines = [("members", members.num_rows), ("exact duplicates removed", exact_count)]
    if facts.applied is not None:
        near = members.num_rows - exact_count - survivors.num_rows
        lines.append((f"near-duplicates removed (weighted Jaccard similarity from {facts.applied} on)", near))
    yield "## Deduplication\n\n" + _table(("what", "documents"), [*lines, ("survivors", survivors.num_rows)])
    stages = [(one.step, one.documents, one.byte_count, one.tokens) for one in funnel(catalogue, facts)]
    yield (
        "## Funnel\n\nWhat is left after each step of what landed; tokens are estimated before they are counted.\n\n"
        + _table(("step", "documents", "bytes", "tokens"), stages)
    )
    selections = [(one.name, one.words, one.table, one.reasons) for one in facts.stages]
    if selections:
        yield "## Selections\n\n" + _table(("selection", "goes on", "in", "why others do not"), selections)


def _provenance(ledger: Ledger, state: LakeState, noise: CountNoise | None) -> str:
    """Snapshot, data version and code of every table."""
    lines = []
    commits = set()
    for table, snapshot_id in sorted(state.snapshots.items()):
        places = ledger.places(f"{state.name}.{table}")
        codes = sorted({row.code_version for row in places.values()})
        commits |= {row.git_commit for row in places.values() if row.git_commit}
        count = sum(row.row_count for row in places.values()) if noise is None else "left out"
        lines.append((table, count, str(snapshot_id), ", ".join(codes)))
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
