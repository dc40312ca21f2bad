"""The config and declaration of a packed table: its columns, its checks, and the proof that no token was lost."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from headrace.tables.cells import CELL_COLUMN, LENGTH_CLASS
from spark_jobs.exceptions import ConfigError
from spark_jobs.lake.declare.step import ConfigModel, Sample
from spark_jobs.lake.declare.tables import Check, Column, Proof, Table
from spark_jobs.lake.files.side_reads import map_rows
from spark_jobs.packing.windows.assemble import has_exact_length, is_filled, segments_fill
from spark_jobs.packing.windows.masks import MASK_RULE, TRAINABLE, mask_codes, mask_column
from spark_jobs.packing.windows.token_digest import digest_documents, digest_windows, length_sums
from spark_jobs.packing.windows.window_facts import WindowForm
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.tokens.mask_check import RULES_ARE_MASKS

_FILE_TOKENS = 1 << 26
MASKED_SETTINGS = {"beginning_of_document": None, "plan": "best_fit", "cut": "exact"}
"""What settings of tables with masks are; their rows are cut where they begin, and begin as a template says."""


class LengthClasses(ConfigModel):
    """Documents are cut into sequences of these lengths (dataset decomposition, arXiv 2405.13226)."""

    length_classes: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        min_length=1, description="lengths of sequences, each a divisor of window_tokens"
    )


class PackedConfig(ConfigModel):
    """Which documents are packed into windows of which length, what is kept together, and how windows are ordered."""

    dataset: str = Field(description="dataset whose documents are packed")
    window_tokens: int = Field(ge=2, le=1 << 20, description="tokens in a window, specials included")
    affinity: Literal["document", "repository"] | None = Field(
        None,
        description="what is kept together: a document, or neighbouring documents of a repository too; default: "
        "repository where most documents of the increment are code, else document. With plan best_fit alone",
    )
    target_utilisation: float = Field(
        0.998,
        ge=0,
        le=1,
        description="least share of the windows' positions that hold a token; affinity repository keeps as many "
        "neighbours together as this allows",
    )
    cut: Literal["exact", "line"] = Field(
        "exact",
        description="where documents longer than a window are cut: exactly at its end, or where a line ends while "
        "that makes no more pieces",
    )
    beginning_of_document: str | None = Field(
        None, description="text of the token put before every document; default: none is"
    )
    plan: Literal["best_fit", "next_fit", "concat_and_slice"] | LengthClasses = Field(
        "best_fit",
        description="best_fit is best-fit decreasing; for comparison, next_fit fills windows in order and "
        "concat_and_slice cuts the string of all documents every L tokens (cut and affinity have no effect then). "
        "{length_classes: [512, 2048]} cuts documents into sequences of these lengths, and a window has one length",
    )
    shards: int = Field(
        1,
        ge=1,
        le=4096,
        description="number of independent plans, each of a share of the repositories; each wastes about one window",
    )
    order_buckets: int = Field(
        64,
        ge=1,
        le=4096,
        description="hash buckets of repositories, which tasks work on; bounds parallelism, not size",
    )
    seed: int = Field(0, ge=0, description="chooses the order of the windows at rest, with table name and increment")
    rows_per_file: int | None = Field(
        None,
        ge=1,
        description="windows in a data file; default 2^26 tokens' worth, 128-256 MB. Decides no row",
        json_schema_extra={"affects_rows": False},
    )

    @model_validator(mode="after")
    def _shards_are_of_whole_buckets(self) -> PackedConfig:
        """A shard without a bucket would be empty, so there are no more shards than buckets."""
        if self.shards > self.order_buckets:
            raise ValueError(
                f"shards is {self.shards}, order_buckets {self.order_buckets}; a shard needs a bucket: give no more "
                "shards than order_buckets"
            )
        return self

    @model_validator(mode="after")
    def _classes_divide_windows(self) -> PackedConfig:
        """A window is a whole number of sequences, and nothing else decides where documents are cut."""
        odd = [length for length in self.classes if self.window_tokens % length]
        if odd or len(set(self.classes)) < len(self.classes):
            raise ValueError(
                f"length_classes has {odd[0] if odd else 'a length twice'}; give divisors of window_tokens, "
                f"{self.window_tokens}, each once"
            )
        if self.classes and (self.cut == "line" or self.affinity == "repository"):
            raise ValueError("length_classes cut documents exactly and pack them alone; leave cut and affinity out")
        return self

    @property
    def classes(self) -> tuple[int, ...]:
        """Lengths of sequences, descending; none where a window is one sequence."""
        return tuple(sorted(self.plan.length_classes, reverse=True)) if isinstance(self.plan, LengthClasses) else ()

    @property
    def sequence(self) -> Literal["next_fit", "concat_and_slice"] | None:
        """The plan where windows are filled one after the other; None where units are planned from their lengths."""
        return None if isinstance(self.plan, LengthClasses) or self.plan == "best_fit" else self.plan

    @property
    def file_rows(self) -> int:
        """Windows in a data file."""
        return self.rows_per_file or max(1, _FILE_TOKENS // self.window_tokens)

    @property
    def bucket_count(self) -> int:
        """Parts of the metadata order that tasks work on; the comparison plans are made shard by shard."""
        return self.shards if self.sequence else self.order_buckets


_DIGESTS_DDL = "doc_id string, token_count bigint, digest bigint"


def lost_tokens(
    landed: DataFrame, frames: Mapping[str, DataFrame], increment: int | None, config: PackedConfig
) -> DataFrame:
    """Documents without each of their tokens and declared specials exactly once in their windows; a proof.

    Returns:
        Rows (doc_id, token_count, packed_token_count).
    """
    facts, _ = window_facts(frames["tokenizer"], config, mask_codes(landed.columns))
    masks = [mask_column(facts)] if facts.masked else []
    of_dataset = frames["tokens"].where(F.col("dataset") == config.dataset)
    wanted = map_rows(
        of_dataset, ["doc_id"], ["input_ids", *masks], functools.partial(digest_documents, facts=facts), _DIGESTS_DDL
    ).to_frame()
    digest = functools.partial(digest_windows, facts=facts)
    packed_digests = (
        map_rows(landed, [], ["input_ids", "segments", *masks], digest, _DIGESTS_DDL)
        .to_frame()
        .groupBy("doc_id")
        .agg(F.sum("token_count").alias("packed_token_count"), F.bit_xor("digest").alias("packed_digest"))
    )
    equal = F.col("token_count").eqNullSafe(F.col("packed_token_count")) & F.col("digest").eqNullSafe(
        F.col("packed_digest")
    )
    return (
        wanted.join(packed_digests, "doc_id", "full")
        .where(~equal)
        .select("doc_id", "token_count", "packed_token_count")
    )


def wanted_balance(frames: Mapping[str, DataFrame], config: PackedConfig) -> int:
    """What the windows' balance is, modulo 2^64, if they hold each token of each document once (`token_digest`)."""
    of_dataset = frames["tokens"].where((F.col("dataset") == config.dataset) & (F.col("token_count") > 0))
    sums = of_dataset.select("doc_id", "token_count").mapInArrow(_length_sums, "sum bigint").toArrow()["sum"]
    return int(sums.to_numpy().sum())


def _length_sums(documents: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row of each batch: the sum of `length_sums`."""
    for batch in documents:
        sums = length_sums(batch.column("doc_id"), batch.column("token_count"))
        yield pa.RecordBatch.from_pydict({"sum": [int(sums.sum())]})


def packed_table(
    dataset: str, window_tokens: int, masked: bool = False, celled: bool = False, ruled: bool = False
) -> Table:
    """The packed table of one dataset and window length."""
    cell = Column(
        f"{CELL_COLUMN}!", "string", "cell of all its documents; the ordinals of a cell are one run in an increment"
    )
    mask = Column(f"{TRAINABLE}!", "list<boolean!>", "whether a loss is taken on each token; false in the padding")
    rule = Column(f"{MASK_RULE}!", "list<int!>", "number of the rule of each token without loss; 0 trained, -1 padding")
    long = ["input_ids", *([TRAINABLE] if masked else []), *([MASK_RULE] if ruled else [])]
    return Table(
        name=f"packed_{dataset}_{window_tokens}",
        comment=f"one row per window of {window_tokens} tokens, filled with whole documents of {dataset}",
        columns=(
            Column("ordinal!", "long", "number of the row, dense from 0 over all increments; shuffled at rest"),
            Column("token_count!", "int", "tokens in the window, specials included, padding not"),
            Column("input_ids!", "list<int!>", f"exactly {window_tokens} token ids; the padding id fills the end"),
            Column(
                "segments!",
                "list<struct<doc_id!: string, document_start!: long, token_count!: int, window_start!: int>!>",
                "parts of documents, ascending by window_start: document_start counts the document's own tokens, "
                "token_count includes the specials",
            ),
            *([cell] if celled else []),
            *([mask] if masked else []),
            *([rule] if ruled else []),
        ),
        key=("ordinal",),
        sort=("ordinal",),
        partition=("increment",),
        checks=(
            Check(
                "exact_length",
                " and ".join(f"size({name}) = {window_tokens}" for name in long),
                "every window has exactly L ids, and values of its masks",
                functools.partial(has_exact_length, window_tokens=window_tokens),
            ),
            Check(
                "filled_window",
                f"token_count between 1 and {window_tokens} and size(segments) >= 1",
                "no window is empty or fuller than L",
                functools.partial(is_filled, window_tokens=window_tokens),
            ),
            _sequences_check(window_tokens)
            if celled
            else Check(
                "segments_fill_the_window",
                "aggregate(segments, 0, (sum, s) -> if(s.window_start = sum, sum + s.token_count, -1)) = token_count",
                "segments abut from position 0 to token_count",
                functools.partial(segments_fill, window_tokens=window_tokens),
            ),
            *([RULES_ARE_MASKS] if ruled else []),
        ),
        proofs=(
            Proof(
                "every_token_once",
                "the windows hold each token of each document once, at its position, and the declared specials",
                lost_tokens,
                wanted_balance,
            ),
        ),
        properties={
            "headrace.window-tokens": str(window_tokens),
            # Blender reads blocks of 2,048 rows; a row group is about one of them (4 bytes an id before encoding).
            "write.parquet.row-group-size-bytes": str(min(128 << 20, 2048 * 4 * window_tokens)),
            # Of a table with cells Blender reads many small blocks, a cell's rows being shuffled among themselves.
            "write.parquet.row-group-limit": "64" if celled else "2048",
        },
        sampled=("input_ids",),
    )


def _sequences_check(window_tokens: int) -> Check:
    """The check of windows with cells, which may be of sequences shorter than a window, each with padding."""
    length = f"coalesce(cast(get_json_object(cell, '$.{LENGTH_CLASS}') as int), {window_tokens})"
    abuts = f"s.window_start = stop or s.window_start > stop and s.window_start % {length} = 0"
    last = "greatest(s.window_start, s.window_start + s.token_count - 1)"
    inside = f"s.window_start div {length} = {last} div {length}"
    fold = f"(stop, s) -> if(stop >= 0 and ({abuts}) and {inside}, s.window_start + s.token_count, -1)"
    return Check(
        "segments_fill_the_window",
        f"aggregate(segments, 0, {fold}) >= 0 "
        "and aggregate(segments, 0, (sum, s) -> sum + s.token_count) = token_count",
        "segments abut from position 0 of each sequence on and have token_count tokens; none crosses two sequences",
        functools.partial(segments_fill, window_tokens=window_tokens),
    )


def window_sample(masked: bool) -> Sample:
    """What some new windows say of a packed table."""
    columns, describe = ((TRAINABLE, "token_count"), trained_share) if masked else (("input_ids",), beginning_share)
    return Sample(columns, 2048, describe)


def beginning_share(windows: pa.Table, properties: Mapping[str, str]) -> dict[str, str]:
    """The property that says how many of some windows begin with the token at the beginning of documents.

    Of a table without such a token it is the one that ends a document, with which a window begins where a document's
    last piece is that token alone. Windows are shuffled at rest, so the first of a file are drawn from all.
    """
    wanted = properties.get("headrace.beginning-of-document-id", properties["headrace.end-of-document-id"])
    first = pc.list_element(windows["input_ids"], 0)
    share = pc.sum(pc.equal(first, int(wanted))).as_py() / windows.num_rows
    return {"headrace.beginning-share": f"{share:.4f} of {windows.num_rows} windows begin with token {wanted}"}


def trained_share(windows: pa.Table, properties: Mapping[str, str]) -> dict[str, str]:
    """The property that says how many tokens of some windows are trained on, and how many windows have none."""
    masks = windows[TRAINABLE].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    trained = masks.reshape(windows.num_rows, -1).sum(axis=1)
    share = trained.sum() / pc.sum(windows["token_count"]).as_py()
    said = f"{share:.4f} of the tokens of {windows.num_rows} windows; {int((trained == 0).sum())} of these have none"
    return {"headrace.trained-share": said}


def require_masks(name: str, columns: Collection[str], masked: bool, ruled: bool, config: PackedConfig) -> None:
    """Refuse to pack masks as if there were none, and settings that do not go with them.

    Raises:
        ConfigError: names what differs.
    """
    if masked != (TRAINABLE in columns):
        has = "no" if masked else "a"
        raise ConfigError(f"{name}: tokens has {has} column trainable; use packed_step(.., masked={not masked})")
    if ruled != (MASK_RULE in columns):
        raise ConfigError(
            f"{name}: tokens has {'no' if ruled else 'a'} column mask_rule; name its rules in packed_step"
        )
    wrong = [field for field, value in MASKED_SETTINGS.items() if masked and getattr(config, field) != value]
    if wrong:
        raise ConfigError(f"{name}: templates of tokens with masks say how rows begin and end; leave {wrong[0]} out")


def window_facts(tokenizer: DataFrame, config: PackedConfig, codes: int = 1) -> tuple[WindowForm, dict[str, str]]:
    """The facts common to all windows of a packed table, and the table properties to record them.

    Raises:
        ConfigError: the tokenizer is missing, or lacks the token named in the config.
    """
    name = packed_table(config.dataset, config.window_tokens).name
    columns = ["sha256", "vocabulary_size", "end_of_document_id", "padding_id"]
    wanted = config.beginning_of_document
    row = tokenizer.select(*columns, *(["special_tokens"] if wanted is not None else [])).first()
    if row is None:
        raise ConfigError(f"{name}: the tokenizer table has no row; materialize tokenizer first")
    properties = {
        "headrace.window-tokens": str(config.window_tokens),
        "headrace.tokenizer-sha256": row["sha256"],
        "headrace.vocabulary-size": str(row["vocabulary_size"]),
        "headrace.end-of-document-id": str(row["end_of_document_id"]),
        "headrace.padding-id": str(row["padding_id"]),
    }
    beginning = None
    if wanted is not None:
        if wanted not in row["special_tokens"]:
            raise ConfigError(
                f"{name}: beginning_of_document is {wanted!r}, the tokenizer's special tokens are "
                f"{', '.join(sorted(row['special_tokens'])) or 'none'}; name one of them, or leave it out"
            )
        beginning = int(row["special_tokens"][wanted])
        properties["headrace.beginning-of-document-id"] = str(beginning)
    facts = WindowForm(
        config.window_tokens, row["end_of_document_id"], row["padding_id"], row["vocabulary_size"], beginning
    )
    return facts.with_masks(codes) if codes > 1 else facts, properties
