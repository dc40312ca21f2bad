"""A step: one pure function from DataFrames and a config to the rows of a table, with what the lake must know of it.

    @step(version="1", scope=Scope.INCREMENT, tables=(SIGNALS,))
    def signals(texts: DataFrame, config: SignalsConfig) -> DataFrame:
        \"\"\"Measure every text.\"\"\"

Parameters are bound by name: `config` is the config model; `increment` (int) is the increment being computed; `base`
(int) the number of rows that earlier increments of the own table hold; `objects` the folder of bytes that the namespace
keeps (`lake.files.objects`); every other name is an input table. By scope, an input holds

    INCREMENT   the rows of increment n alone
    HISTORY     the rows of increments 0..n, with the column `increment`; of an own table (a parameter of its name)
                those of 0..n-1
    FROZEN      the rows of the first increment in which the first input has any; again only where these change, and
                of a step that `stays` not even there
    INTAKE      the rows of all increments of the inputs that no earlier increment of the own table took in
    WHOLE       all rows (tables without increments)

while an input that is frozen itself is always given whole. An input bound to several tables is their union, with the
columns `dataset` (the namespace that a row comes from) and `dataset_increment`. In a step of a corpus, increments are
numbered as the corpus numbers them. A parameter with a default (None) may be left unbound.

The function returns a DataFrame with the columns of its table but for `increment`, or an `Output` where it has side
tables or table properties that only the data can tell.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict

from spark_jobs.exceptions import StepDeclarationError
from spark_jobs.features import PACKAGE as FEATURES
from spark_jobs.lake.declare.tables import Table
from spark_jobs.spark_sql import DataFrame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table as IcebergTable

ArrowFunction: TypeAlias = "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]"
Discover: TypeAlias = "Callable[[Any, pa.Table, bool, Catalog | None], pa.Table | None]"
SPECIAL_PARAMETERS = frozenset({"context", "spark", "config", "increment", "base", "objects", "permissions"})


class Scope(enum.Enum):
    """Which increments of its inputs an increment of the output depends on (docs/extend/architecture.md)."""

    INCREMENT = "increment"
    HISTORY = "history"
    FROZEN = "frozen"
    INTAKE = "intake"
    WHOLE = "whole"


class ConfigModel(BaseModel):
    """Base of all config models: values do not change, and a field that does not exist is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NoConfig(ConfigModel):
    """A step without configuration."""


@dataclass(frozen=True)
class Plot:
    """A picture for the UI: drawn from some columns of a published table (at most a million rows).

    Attributes:
        title: what it shows.
        columns: of the table.
        draw: from those columns to a PNG.
        table: name of the drawn side table; None for the main table.
    """

    title: str
    columns: tuple[str, ...]
    draw: Callable[[pa.Table], bytes]
    table: str | None = None


@dataclass(frozen=True)
class ArrowRows:
    """Rows made by a Python function in the last stage, so that Python workers may write the data files themselves.

    Attributes:
        frame: what the function is applied to.
        function: from Arrow batches of the frame to batches of the rows.
        ddl: columns of the rows.
        calls: calls a function for what a task of the frame stands for, where that is not its rows (`dealt_in_turn`).
    """

    frame: DataFrame
    function: ArrowFunction
    ddl: str
    calls: Callable[..., Iterator[pa.RecordBatch]] | None = None  # of batches, and `function=`

    def to_frame(self) -> DataFrame:
        """The rows as a DataFrame: the function applied by `mapInArrow`."""
        return self.map(self.function, self.ddl)

    def map(self, function: ArrowFunction, ddl: str) -> DataFrame:
        """What another function makes in place of the own one."""
        apply = function if self.calls is None else functools.partial(self.calls, function=function)
        return self.frame.mapInArrow(apply, ddl)


@dataclass(frozen=True)
class Output:
    """What a step returns when one DataFrame does not say it all.

    Attributes:
        frames: a DataFrame for every table of the step, by the table's name.
        properties: data-dependent table properties of the main table; they are immutable while the table lives.
        persisted: DataFrames to unpersist once all frames are written.
        summary: short facts of how the rows were made, for the summary of their snapshot.
        arrow_rows: by table's name, the same rows as a Python function makes them, where one does.
    """

    frames: Mapping[str, DataFrame]
    properties: Mapping[str, str] = field(default_factory=dict)
    persisted: tuple[DataFrame, ...] = ()
    summary: Mapping[str, str] = field(default_factory=dict)
    arrow_rows: Mapping[str, ArrowRows] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """Properties of the main table, as some of its new rows say.

    Attributes:
        columns: of the table.
        count: most rows.
        describe: from those columns of some new rows, and the properties of the table, to properties.
    """

    columns: tuple[str, ...]
    count: int
    describe: Callable[[pa.Table, Mapping[str, str]], Mapping[str, str]]


@dataclass(frozen=True)
class Standing:
    """The main table of a step before an increment is added to it.

    Attributes:
        catalogue: the lake's.
        table: the table as it stands; it holds earlier increments.
        inputs: identifiers of the tables of every input parameter.
    """

    catalogue: Catalog
    table: IcebergTable
    inputs: Mapping[str, tuple[str, ...]]


News: TypeAlias = "Callable[[str, DataFrame, int], DataFrame]"
Guard: TypeAlias = "Callable[[Any, Mapping[str, DataFrame], Standing | None], Mapping[str, str]]"


@dataclass(frozen=True)
class Step:
    """A declared step; call it as the function it wraps.

    Attributes:
        name: the name of its command and, unless it is `renamed`, of its main table and its section of a config.
        version: code version, changed whenever the rows change (`tests/test_code_versions.py` guards it).
        scope: see `Scope`.
        tables: main table first, then side tables; published in this order, recorded in the ledger together.
        config: the config model.
        function: the wrapped function.
        discover: for a step at the source of data: lists what the source has. It is called with the config, the rows
            of the step's last side table (Arrow), whether config or code changed since (then everything is listed
            again) and the catalogue, and gives the Arrow table that becomes the first input of the next increment, None
            where nothing is new.
        fetch: brings what a source far away has to where `discover` finds it. It is called before a run, with the
            config, the catalogue, and how many seconds to wait for another process doing the same.
        numbered: whether rows carry dense ordinals that continue over increments. When an increment of such a table is
            computed again, all later ones are removed with it, and a new generation begins.
        plot: a picture for the UI.
        gate: for the step carrying increments out of quarantine (`lake.run.decisions`): who releases them, `person`
            or `policy`, where rules may do so too; empty for other steps.
        refuse: raises for a config naming what the lake or this machine lacks, such as a model; called
            before a run computes anything.
        any_engine: whether its author says that its rows do not depend on the engine (docs/operate/engines.md).
        without_excised: whether excised documents are left out of what it reads, as they are where rows are numbered.
        guard: compares what would compute an increment with what computed the earlier ones, before anything is written.
            It is called with the config, the inputs by parameter and the table as it stands (None where there are no
            earlier increments), gives properties of the table to set, and raises where the two do not agree.
        sample: properties of the table, as some new rows say.
        news: for a step with `discover`: from a table's name, its rows and the number of a new increment among them to
            what that increment says and earlier ones do not (`lake.run.no_news`).
        listed_rows: for a step with `discover`: how many rows what it listed will make; None where that is not known.
        stays: for a step of scope frozen: from the config to whether its rows stay though those that they were computed
            from change; a new generation alone (`refreeze`) computes them anew.
        permissions: gives the parameter of this name, from the config and the catalogue, when an increment is computed:
            what may land then, a fact of landing and no part of the step key.
        refuse_columns: raises for columns, by input, that the step cannot work with; called before a run computes
            anything.
        refuse_types: the same with the Iceberg type of each column.
    """

    name: str
    version: str
    scope: Scope
    tables: tuple[Table, ...]
    config: type[BaseModel]
    function: Callable[..., Any]
    discover: Discover | None = None
    fetch: Callable[[Any, Catalog, Any, float], None] | None = None
    numbered: bool = False
    plot: Plot | None = None
    gate: Literal["", "person", "policy"] = ""
    refuse: Callable[[Any], object] | None = None
    any_engine: bool = False
    without_excised: bool = False
    listed_rows: Callable[[Any, pa.Table], int | None] | None = None
    guard: Guard | None = None
    sample: Sample | None = None
    news: News | None = None
    stays: Callable[[Any], bool] | None = None
    permissions: Callable[[Any, Catalog], Any] | None = None
    refuse_columns: Callable[[Mapping[str, frozenset[str]]], object] | None = None
    refuse_types: Callable[[Mapping[str, Mapping[str, str]]], object] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped function."""
        return self.function(*args, **kwargs)

    @property
    def table(self) -> Table:
        """The main table."""
        return self.tables[0]

    @property
    def needs_spark(self) -> bool:
        """Whether Spark alone computes it: all steps of headrace, and others declared so, run on both engines."""
        return not (self.any_engine or self.function.__module__.startswith(("spark_jobs.", f"{FEATURES}.")))

    @functools.cached_property  # looked up for every increment that is planned
    def parameters(self) -> tuple[str, ...]:
        """Names of all parameters of the function."""
        return tuple(inspect.signature(self.function).parameters)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the input tables, the own history left out."""
        outputs = {table.name for table in self.tables}
        return tuple(p for p in self.parameters if p not in SPECIAL_PARAMETERS | outputs)

    @property
    def own_history(self) -> tuple[Table, ...]:
        """The step's own tables, where the function reads their earlier increments."""
        return tuple(table for table in self.tables if table.name in self.parameters)

    @property
    def required_inputs(self) -> tuple[str, ...]:
        """Those of the inputs that must be bound: a parameter with a default may be left out."""
        declared = inspect.signature(self.function).parameters
        return tuple(name for name in self.inputs if declared[name].default is inspect.Parameter.empty)


_S = TypeVar("_S", bound=Step)
_Rows = TypeVar("_Rows", DataFrame, Output)


def step(  # noqa: PLR0913 - a declaration, each part by its name
    *,
    version: str,
    scope: Scope,
    tables: tuple[Table, ...],
    name: str | None = None,
    config: type[BaseModel] | None = None,
    discover: Discover | None = None,
    fetch: Callable[[Any, Catalog, Any, float], None] | None = None,
    numbered: bool = False,
    plot: Plot | None = None,
    gate: Literal["", "person", "policy"] = "",
    refuse: Callable[[Any], object] | None = None,
    any_engine: bool = False,
    without_excised: bool = False,
    listed_rows: Callable[[Any, pa.Table], int | None] | None = None,
    guard: Guard | None = None,
    sample: Sample | None = None,
    news: News | None = None,
    stays: Callable[[Any], bool] | None = None,
    permissions: Callable[[Any, Catalog], Any] | None = None,
) -> Callable[[Callable[..., Any]], Step]:
    """Declare a function as a step; its config model is the annotation of its parameter `config`.

    Raises:
        StepDeclarationError: no table, or a `config` other than a pydantic model.
    """

    def declare(function: Callable[..., Any]) -> Step:
        step_name = name or function.__name__
        if not tables:
            raise StepDeclarationError(f"step {step_name}: name at least one table")
        model = config or annotated_config(step_name, function)
        declaration = (step_name, version, scope, tables, model, function)
        more = (any_engine, without_excised, listed_rows, guard, sample, news)
        return Step(*declaration, discover, fetch, numbered, plot, gate, refuse, *more, stays, permissions)

    return declare


def renamed(declared: _S, name: str) -> _S:
    """The same step with a main table of another name."""
    driven = declared.table.name

    def moved(by_table: Mapping[str, Any]) -> dict[str, Any]:
        return {name if table == driven else table: value for table, value in by_table.items()}

    @functools.wraps(declared.function)
    def function(*args: Any, **kwargs: Any) -> Any:
        output = declared.function(*args, **kwargs)
        if not isinstance(output, Output):
            return output
        return dataclasses.replace(output, frames=moved(output.frames), arrow_rows=moved(output.arrow_rows))

    tables = (dataclasses.replace(declared.table, name=name), *declared.tables[1:])
    return dataclasses.replace(declared, tables=tables, function=function)


def with_inputs(function: Callable[..., _Rows], names: Iterable[str]) -> Callable[..., _Rows]:
    """A function that takes further DataFrames by keyword (`**scores`), with a parameter for each of some names.

    The parameters of a step's function are its inputs, so they must be known when the step is declared.
    """

    def named(*args: Any, **kwargs: Any) -> _Rows:
        return function(*args, **kwargs)

    parameters = list(inspect.signature(function).parameters.values())[:-1]
    parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    functools.update_wrapper(named, function)
    named.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return named


def annotated_config(step_name: str, function: Callable[..., Any]) -> type[BaseModel]:
    """The annotated model of the parameter `config`; other annotations need not be importable."""
    if "config" not in inspect.signature(function).parameters:
        return NoConfig
    annotation = function.__annotations__.get("config")
    if isinstance(annotation, str):
        annotation = function.__globals__.get(annotation)
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        raise StepDeclarationError(
            f"step {step_name}: annotate `config` with a pydantic model of the same module, or pass config=; "
            f"got {annotation!r}"
        )
    return annotation
