"""Scorers: functions from a column of texts to columns of measures, each the step of a table of its own.

    @scorer(name="questions", version="1", columns=(Column("question_fraction", "double", "lines that end with ?"),),
            fractions=("question_fraction",))
    def questions(content: pa.Array) -> dict[str, pa.Array]:
        \"\"\"Measure how much of a text asks.\"\"\"

makes the table `<dataset>.questions` (shard, doc_id, kind and the columns) in every dataset that declares it, with
`scorers: {mill.scorers:questions: {}}` for a function of your own. It is computed once for each text, and again when
the version, the config or the text changes. What rules make of it is said by policies.

A function gets (D,) strings, none of them null, and gives (D,) values of each column: null where a measure is
undefined, never an exception, whatever the text (`check_scorer` tries hard ones). Its rows depend on text and config
alone, not on the texts beside it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from spark_jobs.exceptions import InputError, StepDeclarationError, StepRunError
from spark_jobs.lake.declare.step import NoConfig, Scope, Step
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.files.side_reads import map_rows
from spark_jobs.spark_sql import DataFrame

if TYPE_CHECKING:
    import pyarrow as pa

Score = Callable[..., Mapping[str, "pa.Array"]]

_IDENTITY: Final = (
    Column("shard!", "int", "hash of the repository (else the doc_id) modulo the dataset's shards"),
    Column("doc_id!", "string", "identity of the document"),
    Column("kind!", "string", "code, prose, markup or data"),
)
HARD_TEXTS: Final = (
    "",
    " ",
    "\n\n",
    "\x00a\x00",
    "one line of a text that is long enough to be measured. " * 2_000,
    "x" * 100_000,
    "a\n" * 10_000,
    "שלום עולם " + "\u202e" + "مرحبا بالعالم",
    "这是没有空格的文字" * 200,
    "ภาษาไทยไม่มีช่องว่าง",
    "a\u2028b\u0085c\r\nd\ufeffe\u200df",
    "\U0001f469\u200d\U0001f4bb\U0010ffff\u0130\u00df",
    "def f(x):\n\treturn {'a': x}  # done\n",
)


def _unchanged(config: Any) -> Any:
    return config


@dataclass(frozen=True)
class Scorer(Step):
    """A step made of a function over texts.

    Attributes:
        score: the function.
        prepare: makes its second argument of the config, or of the rows of the frozen table.
        of_config: gives the scorer of a config, where that decides the columns.
        frozen: step whose table the scorer reads beside texts; it has the same texts for its input, and the config.
    """

    score: Score = dict
    prepare: Callable[[Any], Any] = _unchanged
    of_config: Callable[[Any], Scorer] | None = None
    frozen: Step | None = None

    def configured(self, config: BaseModel) -> Scorer:
        """The scorer with its columns under a config."""
        return self if self.of_config is None else self.of_config(config)


def scorer(
    *,
    name: str,
    columns: Sequence[Column],
    version: str,
    config: type[BaseModel] | None = None,
    prepare: Callable[[Any], Any] = _unchanged,
    fractions: Sequence[str] = (),
    checks: Sequence[Check] = (),
    frozen: Step | None = None,
) -> Callable[[Score], Scorer]:
    """Declare a function from texts to columns.

    Args:
        name: of the scorer and its table.
        columns: what it gives, in order.
        version: changed whenever values change.
        config: model of the function's second argument; without it the function gets texts alone.
        prepare: makes the second argument of the config, once on the driver; what it reads must be named by the config
            for good, because the config alone decides whether texts are scored again.
        fractions: columns checked to lie between 0 and 1.
        checks: further checks of rows.
        frozen: a step of scope FROZEN over `texts`, for measures in need of a look at the dataset first: the scorer's
            config is that step's, and `prepare` makes the function's second argument of the DataFrame of its table. It
            is sent to every worker, so it must be small.

    Raises:
        StepDeclarationError: fractions names a missing column.
        TableDeclarationError: a name or a type is not possible.
    """
    if unknown := set(fractions) - {column.name for column in columns}:
        raise StepDeclarationError(f"scorer {name}: fractions names {min(unknown)!r}, which is no column of it")
    bounds = (
        Check(
            f"{fraction}_in_bounds",
            f"coalesce({fraction}, 0) between 0 and 1",
            f"{fraction} is a fraction: between 0 and 1",
        )
        for fraction in fractions
    )

    def declare(score: Score) -> Scorer:
        about = (score.__doc__ or f"What {name} measures.").strip().partition("\n")[0]
        table = Table(
            name=name,
            comment=f"One row per text. {about}",
            columns=(*_IDENTITY, *columns),
            key=("doc_id",),
            partition=("increment", "shard"),
            checks=(*bounds, *checks),
        )

        def rows_of(texts: DataFrame, config: Any = None) -> DataFrame:
            prepared = prepare(config)
            measure = functools.partial(score_batches, name=name, score=score, columns=columns, config=prepared)
            return map_rows(texts, ["shard", "doc_id", "kind"], ["content"], measure, _ddl(table)).to_frame()

        def rows_without_config(texts: DataFrame) -> DataFrame:
            return rows_of(texts)

        def rows_with_table(texts: DataFrame, **tables: DataFrame) -> DataFrame:
            return rows_of(texts, *tables.values())

        rows: Callable[..., Any] = rows_without_config if config is None else rows_of
        if frozen is not None:
            rows = rows_with_table
            inputs = [
                inspect.Parameter(parameter, inspect.Parameter.KEYWORD_ONLY)
                for parameter in ("texts", frozen.table.name)
            ]
            rows.__signature__ = inspect.Signature(inputs)  # type: ignore[attr-defined]
        # The step stands for the user's function: its module, place and docstring, not its parameters.
        rows.__module__, rows.__name__, rows.__doc__ = score.__module__, score.__name__, score.__doc__
        refuse = prepare if config is not None and frozen is None else None
        # A function of Arrow arrays gives the same on both engines; of a frozen table, where its step does.
        both = frozen is None or not frozen.needs_spark
        scorer_of = functools.partial(
            Scorer, score=score, prepare=prepare, frozen=frozen, refuse=refuse, any_engine=both
        )
        return scorer_of(name, version, Scope.INCREMENT, (table,), config or NoConfig, rows)

    return declare


def score_batches(
    batches: Iterable[pa.RecordBatch], name: str, score: Score, columns: Sequence[Column], config: Any
) -> Iterator[pa.RecordBatch]:
    """Turn batches of texts (shard, doc_id, kind, content) into batches of a scorer's table.

    Raises:
        StepRunError: the function gives other columns, types or lengths than it declares.
    """
    import pyarrow as pa

    for batch in batches:
        content = batch.column("content")
        try:
            values = score(content) if config is None else score(content, config)
        except InputError:  # it says what to do
            raise
        except Exception as error:  # a user's code may raise anything
            raise StepRunError(f"scorer {name}: {type(error).__name__}: {error}; it may refuse no text") from error
        scored = _conformed(name, values, columns, len(content))
        keys = ["shard", "doc_id", "kind"]
        yield pa.RecordBatch.from_arrays([*map(batch.column, keys), *scored.values()], names=[*keys, *scored])


def check_scorer(
    declared: Scorer, config: Any = None, more: Sequence[str] = (), texts: Sequence[str] = HARD_TEXTS
) -> pa.Table:
    """Try a scorer on hard texts: columns, types, lengths, and that a row depends on its text alone.

    Args:
        declared: what the decorator gave.
        config: by default that of the model's defaults; of a scorer with a frozen table, what it prepares of it.
        more: further texts.
        texts: those tried by default; empty, one line, NULs, right to left, without spaces, ..

    Returns:
        The columns with the text, for tests of the values.

    Raises:
        StepRunError: says which column is wrong, and for which text.
    """
    import pyarrow as pa

    everything = [*texts, *more]
    settings = declared.config() if config is None and declared.config is not NoConfig else config
    columns = declared.table.columns[len(_IDENTITY) :]
    prepared = declared.prepare(settings) if declared.frozen is None else config

    def run(texts: list[str], kind: pa.DataType) -> pa.Table:
        batch = pa.RecordBatch.from_pydict(
            {**dict.fromkeys(("shard", "doc_id", "kind"), pa.nulls(len(texts))), "content": pa.array(texts, kind)}
        )
        (scored,) = score_batches([batch], declared.name, declared.score, columns, prepared)
        return pa.Table.from_batches([scored]).select([column.name for column in columns])

    whole = run(everything, pa.string())
    again = {
        "a second time": run(everything, pa.string()),
        "as large strings": run(everything, pa.large_string()),
        "in reversed order": run(everything[::-1], pa.string()).take(list(range(len(everything)))[::-1]),
        "one by one": pa.concat_tables([run([text], pa.string()) for text in everything]),
    }
    run([], pa.string())
    for how, other in again.items():
        for column in whole.column_names:
            pairs = zip(whole[column].to_pylist(), other[column].to_pylist(), everything, strict=True)
            for had, has, text in pairs:
                if had != has:
                    raise StepRunError(
                        f"scorer {declared.name}: {column} of {text[:40]!r} is {had!r}, {how} {has!r}; a row may "
                        "depend on its text and the config alone, and is null where nothing can be measured (no NaN)"
                    )
    return whole.append_column("text", pa.array(everything))


def _conformed(
    name: str, values_by_name: Mapping[str, pa.Array], columns: Sequence[Column], count: int
) -> dict[str, pa.Array]:
    """The columns as declared, in order."""
    import pyarrow as pa

    wanted = {column.name: column for column in columns}
    if not isinstance(values_by_name, Mapping):
        raise StepRunError(
            f"scorer {name}: it gives a {type(values_by_name).__name__}; give a column of values by name"
        )
    if values_by_name.keys() != wanted.keys():
        raise StepRunError(
            f"scorer {name}: it gives the columns {sorted(values_by_name)}, declared are {sorted(wanted)}"
        )
    fields = dataclasses.replace(_PLAIN, columns=tuple(columns)).schema().as_arrow()
    narrow = {}
    for name_of_column, column in wanted.items():
        values = (
            values_by_name[name_of_column].combine_chunks()
            if isinstance(values_by_name[name_of_column], pa.ChunkedArray)
            else values_by_name[name_of_column]
        )
        if not isinstance(values, pa.Array):
            raise StepRunError(f"scorer {name}: {name_of_column} is a {type(values).__name__}; give an Arrow array")
        if len(values) != count:
            raise StepRunError(
                f"scorer {name}: {name_of_column} has {len(values)} values for {count} texts; give one for each"
            )
        if column.required and values.null_count:
            raise StepRunError(
                f"scorer {name}: {name_of_column} is null somewhere; declare it without `!`, or give a value"
            )
        try:
            narrow[name_of_column] = values.cast(_narrow(fields.field(name_of_column).type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise StepRunError(
                f"scorer {name}: {name_of_column} is {values.type}, declared is {column.type}: {error}"
            ) from error
    return narrow


_PLAIN: Final = Table("plain", "", _IDENTITY)


def _narrow(kind: pa.DataType) -> pa.DataType:
    """A type as Spark takes it: PyIceberg's strings, bytes and lists are large ones."""
    import pyarrow as pa

    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_narrow(kind.value_type))
    simple = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return simple.get(kind, kind)


def _ddl(table: Table) -> str:
    """Spark's words for the columns, `increment` left out."""
    return ", ".join(f"{c.name} {c.type.replace('list<', 'array<').replace('!', '')}" for c in table.columns)
