"""A step bound to the lake: its input and output tables, and its config.

A `Binding` is all that `materialize` needs. Dagster's assets, `headrace run` and `python -m spark_jobs` all make one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from spark_jobs.exceptions import StepDeclarationError
from spark_jobs.lake.declare.step import Output, Scope, Step
from spark_jobs.lake.declare.tables import check_identifier
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.ledger.materialization import TableSlice
from spark_jobs.lake.ledger.step_key import config_json
from spark_jobs.spark_sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

Source = str | tuple[str, ...]


def tables_of(*sources: Source) -> tuple[str, ...]:
    """Identifiers of the tables bound to inputs, in order."""
    return tuple(table for source in sources for table in ((source,) if isinstance(source, str) else source))


@dataclass(frozen=True)
class Binding:
    """A step with its tables and config.

    Attributes:
        step: what is computed.
        namespace: where its tables live.
        inputs: table (or tables, whose union is read) of every input parameter.
        config: config of the step.
        driving_table: table whose increments the step follows; None for steps without increments.
        translated: input tables whose increments `driving_table`, the intake of a corpus, numbers anew: each with the
            dataset under whose name the intake lists them. None: all tables of other namespaces than the corpus's.
        partition: the one partition to compute, for tables with partitions of the user's.
        input_places: for input tables of which only some partitions are read: SQL condition by the partition's key.
        arguments: further arguments of the function (`context`).
        only: the one increment to compute; None for all that are new.
        unbound: whether the caller reads the inputs itself (Parquet files), so that none need to be bound.
    """

    step: Step
    namespace: str
    inputs: Mapping[str, Source]
    config: BaseModel
    driving_table: str | None = None
    translated: Mapping[str, str] | None = None
    partition: TableSlice | None = None
    input_places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    only: int | None = None
    unbound: bool = False

    def __post_init__(self) -> None:
        """Refuse a binding unfit for a run.

        Raises:
            StepDeclarationError: an input is unbound or unknown, or the step needs a driving table.
        """
        for identifier in self.tables:
            check_identifier(identifier)
        if self.unbound:
            return
        missing = [name for name in self.step.required_inputs if name not in self.inputs and name != self.discovered]
        unknown = [name for name in self.inputs if name not in self.step.inputs]
        if missing or unknown:
            raise StepDeclarationError(
                f"step {self.step.name}: inputs {missing or unknown} are {'not bound' if missing else 'unknown'}; "
                f"its parameters are {list(self.step.inputs)}"
            )
        follows = self.step.scope in (Scope.INCREMENT, Scope.HISTORY) and self.step.discover is None
        if follows and self.driving_table is None and self.only is None:
            raise StepDeclarationError(f"step {self.step.name}: scope {self.step.scope.value} needs a table to follow")

    @property
    def discovered(self) -> str | None:
        """Name of the input made by `Step.discover`, for a step at the source of data."""
        return self.step.inputs[0] if self.step.discover is not None else None

    @cached_property
    def config_json(self) -> str:
        """The fields of its config with influence on rows, as canonical JSON."""
        return config_json(self.config)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """Identifiers of the step's tables, the main one first."""
        return tuple(f"{self.namespace}.{table.name}" for table in self.step.tables)

    def dataset_of(self, table: str) -> str | None:
        """The dataset under whose name the intake lists the increments of an input; None where numbers are equal."""
        if self.translated is not None:
            return self.translated.get(table)
        corpus, dataset = (self.driving_table or "").split(".")[0], table.split(".")[0]
        return dataset if corpus == self.namespace != dataset else None

    def fetch(self, catalogue: Catalog, wait_seconds: float) -> None:
        """Fetch what a remote source has, for a step that declares `fetch`; the namespace keeps the bytes."""
        if self.step.fetch is not None:
            self.step.fetch(self.config, catalogue, ObjectFolder.of(catalogue, self.namespace), wait_seconds)

    def call(
        self,
        frames: Mapping[str, DataFrame],
        session: Callable[[], SparkSession],
        increment: int | None,
        base: int,
        objects: ObjectFolder | None = None,
        catalogue: Catalog | None = None,
    ) -> Output:
        """Call the step's function with the values named by its parameters.

        Args:
            frames: the inputs by parameter.
            session: gives the Spark session, for functions with the parameter `spark`.
            increment: the one that is computed.
            base: rows that earlier increments of the own table hold.
            objects: where the namespace keeps bytes as they came.
            catalogue: is asked for `Step.permissions`.

        Returns:
            What the function returned; a single DataFrame becomes the output's only frame.
        """
        arguments: dict[str, Any] = {"config": self.config, "increment": increment, "base": base, "objects": objects}
        if self.step.permissions is not None and catalogue is not None:
            arguments["permissions"] = self.step.permissions(self.config, catalogue)
        special = {**arguments, **self.arguments}
        names = self.step.parameters
        values = {name: special[name] for name in names if name in special}
        if "spark" in names:
            values["spark"] = session()
        returned = self.step.function(**values, **{name: frame for name, frame in frames.items() if name in names})
        return returned if isinstance(returned, Output) else Output({self.step.table.name: returned})
