"""The step `packed`: the documents of one dataset in windows of L tokens, one table per dataset and window length.

    arrange    join tokens and ordered, without ids: documents in metadata order, with file and row number of their ids
    count      units per (theta, order bucket, length); the only rows sent to the driver
    plan       best-fit decreasing on the histogram -> slots; prefix sums over the buckets -> each bucket's first slots
    place      per bucket, in metadata order: unit -> slot -> (ordinal, window_start) of its pieces
    cut        shuffle placements, some 100 bytes a piece, by data file of tokens; workers read the ids there and cut
    assemble   the one heavy shuffle: ids go straight to the data file of their ordinal, and are copied into its windows
    prove      what was cut of `tokens` and what the windows have must balance (`token_digest`), as they are written

Ids never pass through Spark as lists (it moves lists element by element): workers read them by Arrow (`side_reads`),
and they are shuffled as bytes, on Sail through mapped files.

Memory: the driver holds the histogram (24 bytes per (bucket, length) present) and the plan (at most about 3.1 rows of
32 bytes per distinct length); a task holds the metadata of the largest repository, or a row group of tokens, or what
its data file's pieces are without ids (on Spark with them, 128 to 256 MB), and a few batches. The arranged documents
(about 200 bytes each) are kept for the second pass.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.tables.cells import CELL_COLUMN
from headrace.tables.window_facts import MASK_RULES
from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.lake.declare.step import Output, Plot, Scope, Step, step, with_inputs
from spark_jobs.lake.engine.arrangement import Arranged, Shared, dealt_in_turn, grouped, persist, release
from spark_jobs.lake.files.rows import FILE, ROW
from spark_jobs.lake.files.side_reads import SideReads, file_properties, in_file_order, located, map_rows
from spark_jobs.packing.order_buckets import CellBuckets, OrderBuckets
from spark_jobs.packing.packed_table import PackedConfig, packed_table, require_masks, window_facts, window_sample
from spark_jobs.packing.plan.affinity import AffinityPlan, choose_plan, plan_shards
from spark_jobs.packing.plan.baselines import SEQUENCE_PIECES, SEQUENCE_TOKENS, SequencePlacer, count_windows
from spark_jobs.packing.plan.line_cuts import cut_batches, line_end_tokens
from spark_jobs.packing.plan.placement import EMPTY_DOCUMENTS, Placer, UnitRules, count_batches
from spark_jobs.packing.plan.repository_runs import ALONE, CUTS_IN_ROWS, EVERY_RUN, THETA_PERCENTS
from spark_jobs.packing.plan.units import UnitCounts
from spark_jobs.packing.utilisation import draw_fill
from spark_jobs.packing.windows.assemble import assemble_windows
from spark_jobs.packing.windows.cut import cut_pieces
from spark_jobs.packing.windows.masks import MASK_RULE, TRAINABLE, mask_codes, mask_column
from spark_jobs.packing.windows.window_facts import WindowForm
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.tokens.encoder_guard import same_reference

logger = logging.getLogger(__name__)
Batches = Iterable[pa.RecordBatch]

_KEYS = ["shard", "doc_id"]
_COUNTS_DDL = "theta int, bucket int, length int, units bigint"
_CUTS_DDL = "shard int, doc_id string, cuts array<bigint>"
_PLACEMENTS_DDL = (
    f"{FILE} string, {ROW} bigint, ordinal bigint, window_start int, document_start bigint, "
    "own_tokens int, begins boolean, ends boolean, cell int"
)
_PARTS_DDL = (
    "ordinal bigint, window_start int, doc_id string, document_start bigint, ids binary, begins boolean, "
    "ends boolean, balance bigint, cell int"
)
_WINDOWS_DDL = (
    "ordinal bigint, token_count int, input_ids array<int>, "
    "segments array<struct<doc_id: string, document_start: bigint, token_count: int, window_start: int>>"
)


def packed_step(
    dataset: str,
    window_tokens: int,
    masked: bool = False,
    celled: bool = False,
    classed: bool = False,
    rules: Sequence[str] = (),
) -> Step:
    """The step that packs one dataset into windows of one length; its config must name the same two.

    With `masked` it packs `MASKED_TOKENS`, and windows have the column `trainable`, with names of rules `mask_rule` as
    well. With `celled` it reads `cells`, no window has documents of two of them, and windows have the column `cell`.
    With `classed` windows have it too, and in it the length of their sequences.
    """
    table = packed_table(dataset, window_tokens, masked, celled or classed, bool(rules))

    def packed(
        tokens: DataFrame,
        ordered: DataFrame,
        tokenizer: DataFrame,
        base: int,
        increment: int,
        config: PackedConfig,
        members: DataFrame | None = None,
        **cells: DataFrame,
    ) -> Output:
        """Pack the documents of one increment; one row is a window of `window_tokens` ids."""
        if (config.dataset, config.window_tokens) != (dataset, window_tokens):
            raise ConfigError(
                f"{table.name}: config says dataset {config.dataset!r} and window_tokens {config.window_tokens}, "
                f"the step packs {dataset!r} into {window_tokens}; use packed_step({config.dataset!r}, "
                f"{config.window_tokens})"
            )
        if bool(config.classes) != classed:
            raise ConfigError(f"{table.name}: plan is {config.plan}; use packed_step(.., classed={not classed})")
        require_masks(table.name, tokens.columns, masked, bool(rules), config)
        joins = config.plan == "best_fit" and _keeps_repositories(members, config)
        of_increment = PackedIncrement(base, increment, joins, cells.get("cells"))
        made = pack(tokens, ordered, tokenizer, of_increment, config)
        return replace(made, properties={**made.properties, MASK_RULES: json.dumps(rules)}) if rules else made

    declare = step(
        version=" ".join(["2", *rules]),  # names stand in a property: others make it anew, though no row may change
        scope=Scope.INCREMENT,
        tables=(table,),
        name=table.name,
        config=PackedConfig,
        numbered=True,
        plot=Plot("Fill of the windows", ("token_count",), functools.partial(draw_fill, window_tokens=window_tokens)),
        guard=same_reference,
        sample=window_sample(masked),
    )
    return declare(with_inputs(packed, ["cells"] if celled else []))


@dataclass(frozen=True)
class PackedIncrement:
    """The packed increment.

    Attributes:
        base: rows of the table in earlier increments; the new windows take ordinals from here.
        number: of the increment, part of the permutation's key.
        joins_repositories: whether neighbouring documents of a repository may become one unit.
        cells: the cell of each document, where windows shall not mix them.
    """

    base: int
    number: int
    joins_repositories: bool
    cells: DataFrame | None = None


def pack(
    tokens: DataFrame, ordered: DataFrame, tokenizer: DataFrame, increment: PackedIncrement, config: PackedConfig
) -> Output:
    """Pack the documents of one increment of one dataset.

    Returns:
        The rows under the table's name, with the table properties for readers.

    Raises:
        ConfigError: the tokenizer is missing, or lacks the token named in the config.
        InputError: the rows of tokens do not come from files.
    """
    name = packed_table(config.dataset, config.window_tokens).name
    masked = TRAINABLE in tokens.columns
    facts, properties = window_facts(tokenizer, config, mask_codes(tokens.columns))
    of_dataset = located(tokens)
    if of_dataset is None:
        raise InputError(f"{name}: tokens must be one table or Parquet files, so that ids can be read where they lie")
    of_dataset = of_dataset.where(F.col("dataset") == config.dataset)
    thetas = (*THETA_PERCENTS, ALONE) if increment.joins_repositories else (ALONE,)
    rules = UnitRules(
        config.window_tokens,
        int(facts.beginning_of_document_id is not None),
        (EVERY_RUN, *thetas) if increment.joins_repositories else thetas,
        masked,
        config.classes,
    )
    is_celled = increment.cells is not None or bool(config.classes)
    windows_ddl = _WINDOWS_DDL + f", {CELL_COLUMN} string" * is_celled + f", {TRAINABLE} array<boolean>" * masked
    windows_ddl += f", {MASK_RULE} array<int>" * (MASK_RULE in tokens.columns)
    buckets = OrderBuckets(config) if increment.cells is None else CellBuckets.of(increment.cells, name, config)
    row_starts = F.col("row_starts") if masked else F.lit(None)
    of_dataset = of_dataset.withColumn("cuts", row_starts.cast("array<bigint>"))
    line_cuts = _line_cuts(of_dataset, tokenizer, facts, rules, config)
    arranged = _arranged(of_dataset, ordered, line_cuts, buckets).persist()
    try:
        counts = persist(arranged.map(_counter(rules, config), _COUNTS_DDL).to_frame())
        try:
            plan, placer = _planned(counts, rules, thetas, buckets, increment, name)
        finally:
            release(counts)
        place = functools.partial(_place, shared=Shared(arranged.frame, placer))
        placed = arranged.map(place, _PLACEMENTS_DDL).to_frame()
        of_files = _cut(placed, plan.window_count, increment.base, facts, config)
    except BaseException:  # an interrupt too: no caller knows of the persisted documents yet
        release(arranged.frame)
        raise
    if of_files is None:
        release(arranged.frame)
        empty = tokens.sparkSession.createDataFrame([], windows_ddl)
        return Output({name: empty}, properties, summary=plan.facts())
    assemble = functools.partial(assemble_windows, facts=facts, cells=buckets.window_cells)
    windows = of_files.map(assemble, windows_ddl)
    kept = (arranged.frame, of_files.frame)
    return Output({name: windows.to_frame()}, properties, kept, plan.facts(), {name: windows})


def _place(batches: Batches, shared: Shared[Placer | SequencePlacer]) -> Iterator[pa.RecordBatch]:
    """Place documents; plans of many cells are large."""
    return shared.value.place_batches(batches)


def _cut(placed: DataFrame, window_count: int, base: int, facts: WindowForm, config: PackedConfig) -> Arranged | None:
    """The placed pieces with their ids, dealt to the data files of their windows; None where there is no window."""
    if not window_count:
        return None
    columns = ("doc_id", "input_ids", mask_column(facts)) if facts.masked else ("doc_id", "input_ids")
    reads = SideReads(columns, file_properties(placed.sparkSession))
    cut = functools.partial(cut_pieces, reads=reads, facts=facts)
    parts = in_file_order(placed, "document_start").map(cut, _PARTS_DDL).to_frame()
    file = F.expr(f"cast((ordinal - {base}L) div {config.file_rows} as int)")
    return dealt_in_turn(parts, -(-window_count // config.file_rows), file)


def _keeps_repositories(members: DataFrame | None, config: PackedConfig) -> bool:
    """Whether neighbours in a repository are packed together: by the config, else if most documents are code."""
    if config.affinity is not None or members is None:
        return config.affinity == "repository"
    of_dataset = members.where(F.col("dataset") == config.dataset)
    row = of_dataset.agg(F.count_if(F.col("kind") == "code").alias("code"), F.count("*").alias("all")).first()
    return row is not None and row["code"] * 2 > row["all"]


def _line_cuts(
    of_dataset: DataFrame, tokenizer: DataFrame, facts: WindowForm, rules: UnitRules, config: PackedConfig
) -> DataFrame | None:
    """Rows (shard, doc_id, cuts) of documents longer than a window; None where they are cut every L tokens."""
    row = tokenizer.select("file").first() if config.cut == "line" and config.plan != "concat_and_slice" else None
    if row is None:
        return None
    cut = functools.partial(
        cut_batches,
        line_ends=line_end_tokens(row["file"], facts.vocabulary_size),
        window_tokens=config.window_tokens,
        leading=rules.leading,
    )
    longer = of_dataset.where(F.col("token_count") + 1 + rules.leading > config.window_tokens)
    return map_rows(longer, _KEYS, ["input_ids"], cut, _CUTS_DDL).to_frame()


def _arranged(of_dataset: DataFrame, ordered: DataFrame, cuts: DataFrame | None, buckets: OrderBuckets) -> Arranged:
    """All documents in metadata order, with each order bucket in one task.

    A document missing in `ordered` is ordered by its id alone. One missing in `tokens` has a null token count, and is
    refused when it is cut.
    """
    order = ordered.where(F.col("dataset") == buckets.config.dataset).select("shard", "doc_id", "repository", "rank")
    documents = of_dataset.select(*_KEYS, "token_count", FILE, ROW, "cuts").join(order, ["shard", "doc_id"], "full")
    if cuts is not None:
        documents = documents.drop("cuts").join(cuts, _KEYS, "left")
    ordered_documents = grouped(buckets.append(documents), ["bucket"], ["repository", "rank", "doc_id"])
    return ordered_documents.select("bucket", FILE, ROW, "doc_id", "repository", "token_count", "cuts")


def _counter(rules: UnitRules, config: PackedConfig) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function batches -> counts: of units for the plan best_fit, of windows for the others."""
    if config.sequence is None:
        return functools.partial(count_batches, rules=rules)
    return functools.partial(count_windows, rules=rules, sequence=config.sequence)


def _planned(
    counts: DataFrame,
    rules: UnitRules,
    thetas: tuple[int, ...],
    buckets: OrderBuckets,
    increment: PackedIncrement,
    name: str,
) -> tuple[AffinityPlan, Placer | SequencePlacer]:
    """Choose the plan; returns it and what places batches of documents by it."""
    config = buckets.config
    histograms, totals = _histograms(counts, buckets)
    lengths = [buckets.length_of(plan) for plan in range(buckets.plan_count)]
    target = config.target_utilisation
    picked = choose_plan(histograms, thetas, buckets.plan_count, config.window_tokens, target, lengths)
    picked = replace(picked, cuts_in_rows=totals.get(CUTS_IN_ROWS))
    if config.sequence is not None:
        pieces = totals.get(SEQUENCE_PIECES, 0)
        picked = replace(
            picked, token_count=totals.get(SEQUENCE_TOKENS, 0), piece_count=pieces, unit_count=pieces, joinable=0
        )
    logger.info(
        "%s: increment %d: %d windows from ordinal %d, theta %s, %d of %d neighbours kept, %d empty documents left out",
        name,
        increment.number,
        picked.window_count,
        increment.base,
        "none" if picked.theta == ALONE else picked.theta / 100,
        picked.kept,
        picked.joinable,
        totals.get(EMPTY_DOCUMENTS, 0),
    )
    if picked.cuts_in_rows:
        logger.warning("%s: rows longer than a window were cut in %d places", name, picked.cuts_in_rows)
    order, numbers = buckets.order(picked, name, increment.base, increment.number), buckets.numbers
    if config.sequence is not None:
        first_windows = np.cumsum([0, *(plan.window_count for plan in picked.plans)]).tolist()
        return picked, SequencePlacer(rules, config.sequence, tuple(first_windows), order, numbers.cell_shards)
    chosen = UnitRules(rules.window_tokens, rules.leading, (picked.theta,), classes=rules.classes)
    shards = plan_shards(picked, _counts_of(counts, picked.theta), buckets.bucket_count, numbers)
    return picked, Placer(chosen, shards, buckets.bucket_count, order, numbers)


def _histograms(
    counts: DataFrame, buckets: OrderBuckets
) -> tuple[dict[tuple[int, int], dict[int, int]], dict[int, int]]:
    """{(theta, plan): {length: units}}, and totals of the rows of length 0 by their code, such as EMPTY_DOCUMENTS."""
    shard = F.expr(f"bucket * {buckets.shard_count}L div {buckets.bucket_count}").cast("int").alias("plan_shard")
    rows = counts.groupBy("theta", shard, "length").agg(F.sum("units").alias("units")).toArrow().to_pydict()
    histograms: dict[tuple[int, int], dict[int, int]] = {}
    totals: dict[int, int] = {}
    plans = buckets.numbers.of(np.array(rows["plan_shard"], np.int64), np.array(rows["length"], np.int64)).tolist()
    for theta, number, length, units in zip(rows["theta"], plans, rows["length"], rows["units"], strict=True):
        if length:
            histograms.setdefault((theta, number), {})[length] = units
        else:
            totals[theta] = totals.get(theta, 0) + units
    return histograms, totals


def _counts_of(counts: DataFrame, theta: int) -> UnitCounts:
    """Units by (bucket, length) under one theta."""
    rows = counts.where(F.col("theta") == theta).select("bucket", "length", "units").toArrow()
    bucket, length, units = (rows.column(name).to_numpy().astype(np.int64) for name in ("bucket", "length", "units"))
    return UnitCounts(bucket, length, units)
