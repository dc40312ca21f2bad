"""Selections written as a function of columns: `@selection`.

    class PickedConfig(ConfigModel):
        max_shouting: float = Field(0.3, ge=0, le=1, description="largest share of shouted lines")

    @selection(reads=("clusters", "mill.shouting"), version="1")
    def picked(cluster: pa.Array, shouted: pa.Array, config: PickedConfig) -> Iterator[Failed]:
        \"\"\"Documents that shout stay behind.\"\"\"
        yield Failed("shouts", pc.greater(shouted, config.max_shouting), shouted, config.max_shouting)

`select: [picked: {max_shouting: 0.2}]` makes the tables `picked`, the documents that go on, and `picked_rejected`, each
other one with the rules that it failed. A parameter is the column of that name of the tables that are read, (N,) values
of N documents, null where a table has no row of the document; `config` the settings; a parameter that is annotated
`pa.Table` the whole table of that name. What a document gets depends on its own values alone, not on those beside it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.exceptions import InputError, StepDeclarationError, StepRunError, did_you_mean
from spark_jobs.lake.declare.step import ArrowRows, NoConfig, Output, Scope, Step, annotated_config
from spark_jobs.lake.declare.tables import Check, Column, Table
from spark_jobs.lake.engine.arrangement import persist
from spark_jobs.lake.files.side_reads import map_joined
from spark_jobs.lake.plan.binding import Source
from spark_jobs.selection.cuts import TEXT_COLUMNS, with_cuts
from spark_jobs.selection.declared import Bound, Selection, SelectionPlace
from spark_jobs.selection.kept import IDENTITY, KEYS, kept_table
from spark_jobs.selection.stages import SURVIVORS, SelectionStage
from spark_jobs.selection.verdicts import Cut, Failed, Verdicts, edited
from spark_jobs.spark_sql import DataFrame, F
from spark_jobs.text.texts import TEXTS

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import BaseModel

_CUT_TEXTS: Final = "cut_texts"
_WIDE: Final = "content"  # read by workers from the files, not moved by a join
_FAILED: Final = Column(
    "failed!",
    "list<struct<rule!: string, value: double, threshold: double>!>",
    "every rule that it failed, with the value that was measured and the bound",
)
_EDITS: Final = Column(
    "edits!",
    "list<struct<rule!: string, start!: long, end!: long, replacement_length!: long>!>",
    "what was cut, by start: rule, bytes [start, end) of the UTF-8 of `texts.content`, 0",
)
_FAILED_DDL: Final = "failed array<struct<rule: string, value: double, threshold: double>>"
_EDITS_DDL: Final = "edits array<struct<rule: string, start: bigint, end: bigint, replacement_length: bigint>>"


@dataclass(frozen=True)
class _SelectionNames:
    """The decorator's arguments, and the names derived from them."""

    stage: SelectionStage
    select: Callable[..., Iterable[Failed | Cut]]
    reads: tuple[str, ...]
    tables: tuple[Table, ...] = field(default=())

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the columns and whole tables among the function's parameters."""
        return tuple(name for name in inspect.signature(self.select).parameters if name != "config")

    @property
    def takes_config(self) -> bool:
        """Whether it has settings."""
        return "config" in inspect.signature(self.select).parameters

    @property
    def whole(self) -> dict[str, str]:
        """The step's input of each whole table, by parameter; it is annotated as `pa.Table`."""
        annotated = inspect.signature(self.select).parameters
        wanted = [name for name in self.parameters if _is_table(annotated[name].annotation)]
        read_as = {_name(read): _input(read) for read in self.reads}
        if unknown := [name for name in wanted if name not in read_as]:
            raise StepDeclarationError(
                f"selection {self.stage.name}: {unknown[0]} is a table that it does not read; add it to reads"
            )
        return {name: read_as[name] for name in wanted}

    @property
    def columns(self) -> tuple[str, ...]:
        """Parameters for columns."""
        return tuple(name for name in self.parameters if name not in self.whole)


def selection(
    *,
    reads: Sequence[str],
    version: str,
    name: str | None = None,
    words: str = "",
    cuts: bool = False,
    frozen: Step | None = None,
) -> Callable[[Callable[..., Iterable[Failed | Cut]]], Selection]:
    """Declare a function from columns to failed rules.

    Args:
        reads: tables with a row for each document, or some of them: of the corpus, by name (`clusters`, `members`); of
            each of its datasets (`texts`, `signals`); NAMESPACE.TABLE for any other. `survivors` is always read.
        version: changed whenever the rows change.
        name: of the selection and its table; by default the function's.
        words: what the documents that go on are, for lists: "of them ..".
        cuts: whether it cuts texts: `reads` has `texts`, the function takes `content`, and may give `Cut` too.
        frozen: a step of scope FROZEN, its table an input too; the inputs of that step are named as in `reads`.

    Raises:
        StepDeclarationError: it has no column, or cuts without reading texts.
    """

    def declare(select: Callable[..., Iterable[Failed | Cut]]) -> Selection:
        called = name or select.__name__
        about = words or f"that {called.replace('_', ' ')} lets go on"
        stage = SelectionStage(called, called, f"{called}_{'texts' if cuts else 'rejected'}", about, cuts=cuts)
        further = () if frozen is None else (frozen.table.name,)
        declared = _SelectionNames(stage, select, (*dict.fromkeys((*reads, *further)),))
        if called in {*map(_name, declared.reads), SURVIVORS}:
            raise StepDeclarationError(f"selection {called}: it reads a table of its name; give it another: name=..")
        if stage.reasons in map(_name, declared.reads):
            raise StepDeclarationError(
                f"selection {called}: it reads {stage.reasons}, which it makes; take that out of reads"
            )
        if cuts and ("texts" not in declared.reads or _WIDE not in declared.parameters):
            raise StepDeclarationError(f"selection {called}: it cuts texts; read texts, and take content")
        if not declared.columns:
            raise StepDeclarationError(f"selection {called}: its function takes no column; name one as a parameter")
        made = _step(declared, version)
        return Selection(stage, made.config, functools.partial(_arrange, declared, made, frozen), reads=declared.reads)

    return declare


def _arrange(
    declared: _SelectionNames, made: Step, frozen: Step | None, config: BaseModel, place: SelectionPlace
) -> Iterator[Bound]:
    """The frozen step, where there is one, then the selection itself."""
    settings = config.model_dump(exclude_unset=True)
    if frozen is not None:
        read = {name: place.source(name) for name in frozen.required_inputs}
        yield Bound(frozen, read, settings if frozen.config is made.config else {})
    tables = {*place.made} | ({table.name for table in frozen.tables} if frozen is not None else set())
    here = SelectionPlace(place.corpus, place.datasets, place.survivors, frozenset(tables), place.cut_texts)
    inputs: dict[str, Source] = {_input(read): here.source(read) for read in (SURVIVORS, *declared.reads)}
    if "texts" in declared.reads and place.cut_texts is not None:
        inputs[_CUT_TEXTS] = place.cut_texts
    yield Bound(made, inputs, settings)


def _is_table(annotation: Any) -> bool:
    """Whether a parameter is annotated as a whole table of Arrow's."""
    return (annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")).endswith("Table")


def _name(read: str) -> str:
    """Name of an input table without its namespace."""
    return read.rpartition(".")[2]


def _input(read: str) -> str:
    """Name of the step's input: mill.shouting is `mill__shouting`."""
    return read.replace(".", "__")


def _step(declared: _SelectionNames, version: str) -> Step:
    """The step with both tables; its inputs are the tables to read."""
    stage = declared.stage
    texts = [column for column in TEXTS.columns if column.name in TEXT_COLUMNS[3:]] if stage.cuts else []
    what = "or of which something was cut: its text after that" if stage.cuts else "with every rule that it failed"
    check = "size(failed) + size(edits) > 0" if stage.cuts else "size(failed) > 0"
    reasons = Table(
        name=stage.reasons,
        comment=f"One row per document that stays behind at {stage.name}, {what}.",
        columns=(*IDENTITY, *texts, *([_EDITS] if stage.cuts else []), _FAILED),
        key=("doc_id",),
        partition=("increment", "shard"),
        checks=(Check("has_a_reason", check, "a document that is left out fails a rule"),),
        sampled=("content",) if stage.cuts else (),
        properties=stage.properties,
    )

    def rows(survivors: DataFrame, config: Any = None, **read: DataFrame | None) -> Output:
        return _selected(declared, survivors, config, {name: one for name, one in read.items() if one is not None})

    names = dict.fromkeys(_input(read) for read in declared.reads if read != SURVIVORS)
    kinds = inspect.Parameter
    parameters = [kinds(name, kinds.KEYWORD_ONLY) for name in (SURVIVORS, *names)]
    parameters += [kinds("config", kinds.KEYWORD_ONLY)] if declared.takes_config else []
    parameters += [kinds(_CUT_TEXTS, kinds.KEYWORD_ONLY, default=None)] if "texts" in declared.reads else []
    rows.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    # The step stands for the user's function: its module, name and docstring.
    rows.__module__, rows.__name__, rows.__doc__ = declared.select.__module__, stage.name, declared.select.__doc__
    model = annotated_config(stage.name, declared.select) if declared.takes_config else NoConfig
    tables = (kept_table(stage, stage.table), reasons)
    require = functools.partial(_require_columns, declared)
    return Step(stage.name, version, Scope.INCREMENT, tables, model, rows, any_engine=True, refuse_columns=require)


def _selected(declared: _SelectionNames, survivors: DataFrame, config: Any, frames: Mapping[str, DataFrame]) -> Output:
    """Both tables of a selection."""
    stage, wanted = declared.stage, declared.columns
    frames = dict(frames)
    if (cut_texts := frames.pop(_CUT_TEXTS, None)) is not None:
        frames["texts"] = with_cuts(frames["texts"], cut_texts)
    whole = {parameter: frames.pop(name).toArrow() for parameter, name in declared.whole.items()}
    if stage.cuts:
        wanted = (*wanted, *(name for name in ("kind", "language") if name not in wanted))
    columns_read = {name: frozenset(frame.columns) for name, frame in frames.items()}
    places = {name: _place_of(stage.name, name, columns_read) for name in wanted if name not in KEYS}
    documents = survivors.select(*KEYS)
    wide = places.pop(_WIDE, None)
    for table, frame in frames.items():
        chosen = [F.col(column).alias(name) for name, (of, column) in places.items() if of == table]
        if chosen:
            documents = documents.join(frame.select("doc_id", *chosen), "doc_id", "left")
    columns = [*KEYS, *places]
    judge = functools.partial(_judged, declared=declared, config=config, whole=whole)
    ddl = ", ".join(("dataset string, shard int, doc_id string", *_text_ddl(stage), _FAILED_DDL))
    if wide is None:
        rows = ArrowRows(documents.select(*columns), judge, ddl)
    else:
        keys = [key for key in KEYS if key in frames[wide[0]].columns]
        rows = map_joined(frames[wide[0]], documents, keys, columns, [_WIDE], judge, ddl)
    found = persist(rows.to_frame())
    left = found.where(F.size("failed") > 0).select("doc_id")
    stays = survivors.select(*KEYS).join(left, "doc_id", "left_anti").select(*KEYS)
    return Output({stage.table: stays, stage.reasons: found}, persisted=(found,))


def _text_ddl(stage: SelectionStage) -> tuple[str, ...]:
    return ("kind string, language string, content string", _EDITS_DDL) if stage.cuts else ()


def _require_columns(declared: _SelectionNames, columns: Mapping[str, frozenset[str]]) -> None:
    """Refuse a parameter that names no column of the tables that are read, or of two; see `Step.refuse_columns`."""
    read = {
        name: there for name, there in columns.items() if name not in {SURVIVORS, _CUT_TEXTS, *declared.whole.values()}
    }
    for name in declared.columns:
        if name not in KEYS:
            _place_of(declared.stage.name, name, read)


def _place_of(called: str, name: str, columns: Mapping[str, frozenset[str]]) -> tuple[str, str]:
    """The table and column named by a parameter; `TABLE__COLUMN` tells two of one name apart.

    Args:
        called: the selection.
        name: of the parameter.
        columns: of the tables that are read, by input.

    Raises:
        InputError: no table has such a column, or two have.
    """
    found = [(table, name) for table, there in columns.items() if name in there]
    found += [
        (table, name.removeprefix(f"{table}__"))
        for table, there in columns.items()
        if name.startswith(f"{table}__") and name.removeprefix(f"{table}__") in there
    ]
    if not found:
        there = sorted({column for names in columns.values() for column in names})
        raise InputError(
            f"selection {called}: none of {', '.join(columns) or 'its tables'} has a column {name!r}"
            f"{did_you_mean(name, there)}; rename the parameter, or read the table that has it"
        )
    if len(found) > 1:
        tables = sorted(table for table, _ in found)
        raise InputError(
            f"selection {called}: {' and '.join(tables)} have a column {name!r}; call the parameter {tables[0]}__{name}"
        )
    return found[0]


def _judged(
    batches: Iterable[pa.RecordBatch], declared: _SelectionNames, config: Any, whole: Mapping[str, pa.Table]
) -> Iterator[pa.RecordBatch]:
    """Rows of the table of reasons, of batches of documents with their columns.

    Raises:
        StepRunError: the function fails, or gives something else than (N,) values.
    """
    import numpy as np
    import pyarrow as pa

    from spark_jobs.text.text_columns import EDITS_TYPE

    for batch in batches:
        arguments = {name: batch.column(name) for name in declared.columns} | dict(whole)
        try:
            given = list(declared.select(**arguments, **({} if config is None else {"config": config})))
            _require_verdicts(given, declared.stage.cuts)
            failed = Verdicts.of([one for one in given if isinstance(one, Failed)], batch.num_rows)
            edits = edited(batch, [one for one in given if isinstance(one, Cut)]) if declared.stage.cuts else None
        except InputError:  # it says what to do
            raise
        except Exception as error:  # a user's code may raise anything
            wanted = "a Failed for each rule" + (", a Cut for what is cut" if declared.stage.cuts else "")
            raise StepRunError(
                f"selection {declared.stage.name}: {type(error).__name__}: {error}; give {wanted}, with as many values "
                "as there are documents"
            ) from error
        chosen = failed.counts > 0
        columns = [batch.column(name) for name in KEYS]
        names = list(KEYS)
        if edits is not None:
            texts, lists = edits
            chosen = chosen | np.array([bool(one) for one in lists])
            columns += [batch.column("kind"), batch.column("language"), pa.array(texts, pa.string())]
            columns += [pa.array(lists, EDITS_TYPE)]
            names += ["kind", "language", _WIDE, "edits"]
        rows = pa.RecordBatch.from_arrays([*columns, failed.column()], names=[*names, "failed"])
        yield rows.filter(pa.array(chosen))


def _require_verdicts(given: Sequence[Any], cuts: bool) -> None:
    """Refuse what would be left out without a word.

    Raises:
        TypeError: neither a `Failed` nor a `Cut`, a `Cut` of a selection that cuts nothing, or a rule without a name.
    """
    for one in given:
        if not isinstance(one, Failed | Cut):
            raise TypeError(f"{type(one).__name__} is no Failed")
        if isinstance(one, Cut) and not cuts:
            raise TypeError(f"{one.rule} is a Cut, and the selection is not declared with cuts=True")
        if not isinstance(one.rule, str) or not one.rule:
            raise TypeError(f"the rule {one.rule!r} is no name")
