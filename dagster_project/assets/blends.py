"""Make the asset of a declared blend, `blends/<name>`: it creates the blend, or reports that it is unchanged.

A change of weights is then a reviewed change of a file. A blend never changes: each different one gets the next name,
`<name>.1`, `<name>.2`, .., so a training run under way is not affected, and one about to change over is given the new
name. The declaration and the current tables decide the blend: more data or other weights make another one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import dagster as dg
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from dagster_project.exceptions import DefinitionError
from dagster_project.run_config import bind_config
from headrace.tables.cells import split_table
from headrace.tables.exceptions import CellsError
from spark_jobs.filters.contamination.decontaminated import present_evals

if TYPE_CHECKING:
    from blender_service.blend.config import BlendConfig
    from blender_service.blend.definition_messages import Description
    from blender_service.blend.requests import BlendSpec, Stage, UpdateSpec
    from blender_service.order.resolved_blend import Head
    from blender_service.server.blender import Blender

BLENDS = "blends"


def _weight_text(value: Any) -> Any:
    """Turn a number of YAML back into decimal text: the shortest form of a float is what was written."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Weight = Annotated[str, BeforeValidator(_weight_text), Field(pattern=r"^[0-9./ ]+$")]


def _readable_cells(text: str) -> str:
    """Refuse a choice of cells that cannot be read."""
    try:
        split_table(text)
    except CellsError as error:
        raise ValueError(str(error)) from error
    return text


Place = Annotated[str, AfterValidator(_readable_cells)]


class _BlendPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SourceDeclaration(_BlendPart):
    """A source of a new blend."""

    table: Place = Field(
        pattern=r"^\w+\.\w+(\[[\s\S]*\])?$",
        description="packed table, namespace.table; [quality>=15] behind it for cells",
    )
    weight: Weight = Field("1", description="rows read in proportion to it, a decimal or a fraction")
    name: str = Field("", description="identity inside the blend; the table's identifier by default")
    snapshot: str = Field("", description="id, tag or branch to pin; the current one by default")
    max_epochs: int | None = Field(None, ge=0, description="most passes, 1 by default; 0: no limit")
    on_exhausted: str | None = Field(None, pattern="^(END|CONTINUE)$", description="on running out; END by default")
    live: bool = Field(False, description="follow the table as it grows")


class ChangeDeclaration(_BlendPart):
    """A change of one source from an offset on."""

    name: str = Field(description="name of the source")
    remove: bool = Field(False, description="leave it out from now on")
    table: Place = Field(
        "", pattern=r"^(\w+\.\w+(\[[\s\S]*\])?)?$", description="packed table or cells, for a new source"
    )
    weight: Weight | None = Field(None, description="new weight; give those of all sources, or none")
    snapshot: str = Field("", description="id, tag or branch to pin; main is the newest")
    max_epochs: int | None = Field(None, ge=0, description="passes over its rows; 0 for no limit")
    on_exhausted: str | None = Field(None, pattern="^(END|CONTINUE)$", description="what happens when it runs out")
    live: bool | None = Field(None, description="true follows the table, false pins it")


class StageDeclaration(_BlendPart):
    """Changes from an offset on."""

    from_offset: int = Field(ge=0, description="first row that the changes apply to")
    weights: dict[str, Weight] = Field(default_factory=dict, description="new weights by source, short for changes")
    changes: tuple[ChangeDeclaration, ...] = Field((), description="changes of sources, at most one for each")
    align: bool = Field(False, description="round from_offset up to the next end of a cycle")
    window_tokens: int = Field(0, ge=0, description="length of rows of texts from there on; 0 keeps it")


class PrewarmDeclaration(_BlendPart):
    """Servers to fill the caches of before a training begins."""

    servers: tuple[str, ...] = Field(
        min_length=1,
        description="HOST:PORT of each replica; a server with several processes fills the cache of one of them",
    )
    offset: int = Field(0, ge=0, description="offset of the first row")
    rows: int = Field(1 << 20, ge=1, description="most rows; prewarming ends earlier where the cache is full")
    columns: tuple[str, ...] = Field((), description="columns per token that the training reads, such as trainable")


class TextsDeclaration(_BlendPart):
    """How rows are made where the sources are tables of text."""

    tokenizer: str = Field(pattern=r"^\w+\.\w+$", description="table <corpus>.tokenizer")
    window_tokens: int = Field(2048, ge=2, description="length of a row")
    group_documents: int = Field(1, ge=1, le=4096, description="neighbouring documents that are packed together")
    whole: bool = Field(False, description="leave documents out that are longer than a row, instead of cutting them")
    text: str = Field("content", description="column of the text")
    doc_id: str = Field("doc_id", description="column of the document's id")
    trainable: str | None = Field(
        None, description="column of the spans that a loss is taken on, list<struct<start, end>> of characters"
    )
    template: str | None = Field(
        None, description="column of the hash of the chat template, the same for all documents"
    )
    messages: str | None = Field(None, description="column of conversations, in place of text; `messages` by default")
    tools: str | None = Field(None, description="column of definitions of tools")
    conversations: dict[str, Any] | None = Field(
        None, description="how messages are rendered and masked, as `conversations` of a corpus"
    )
    objectives: dict[str, Any] | None = Field(
        None, description="what documents become, anew in each epoch, as `objectives` of a kind of a corpus"
    )


class BlendDeclaration(_BlendPart):
    """A blend as a user declares it: sources, or a parent; then a schedule of updates."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_]{0,40}$", description="name; the blends that it makes are NAME.1, NAME.2, .."
    )
    sources: tuple[SourceDeclaration, ...] = Field((), description="sources of a new blend")
    parent: str = Field("", description="blend that this one updates, in place of sources: its id or name")
    schedule: tuple[StageDeclaration, ...] = Field((), description="updates, ascending by offset")
    seed: int = Field(0, ge=0, lt=1 << 64, description="seed of every shuffle")
    block_rows: int = Field(2048, ge=1, description="consecutive rows that are read together")
    group_blocks: int = Field(16, ge=1, description="blocks whose rows are shuffled together")
    turn_rows: int = Field(1, ge=1, description="consecutive rows of one source, those of a step of one length class")
    allow_repeat: bool = Field(False, description="whether one table may be two sources, so that its rows repeat")
    prewarm: PrewarmDeclaration | None = Field(
        None, description="makes the asset blends/<name>_prewarmed, which a schedule may run before a training"
    )
    texts: TextsDeclaration | None = Field(None, description="how rows are made of tables of text, tokenized when read")
    evals: Literal["", "required"] = Field(
        "", description="required: all sources must have been searched for the benchmarks that the registry holds"
    )

    @property
    def tables(self) -> list[str]:
        """Identifiers of the tables of its sources and changes, sorted."""
        changes = [change for stage in self.schedule for change in stage.changes]
        written = [source.table for source in self.sources] + [change.table for change in changes if change.table]
        named = {table.partition("[")[0] for table in written}  # without the cells
        return sorted(named | ({self.texts.tokenizer} if self.texts else set()))


def declare_blend(values: Mapping[str, Any]) -> BlendDeclaration:
    """Check a declaration.

    Raises:
        DefinitionError: a value cannot be used; the message names it.
    """
    declared = bind_config(BlendDeclaration, f"blend {values.get('name')}", values)
    where = f"blend {declared.name}"
    if bool(declared.sources) == bool(declared.parent):
        raise DefinitionError(f"{where}: give sources for a new blend, or parent and schedule to go on from one")
    if declared.parent and not declared.schedule:
        raise DefinitionError(f"{where}: schedule is empty; say from which offset on what changes in {declared.parent}")
    for index, stage in enumerate(declared.schedule):
        both = sorted(set(stage.weights) & {change.name for change in stage.changes})
        if both:
            raise DefinitionError(f"{where}: schedule.{index} has {both[0]} in weights and in changes; give it once")
    return declared


def _declared_json(declared: BlendDeclaration) -> str:
    """The settings of a blend that decide what it is; later ones only where they are declared, to change no blend."""
    left_out: dict[str, Any] = {"prewarm": True} | ({"texts": True} if declared.texts is None else {})
    if declared.texts is not None:
        optional = ("trainable", "template", "messages", "tools", "conversations", "objectives")
        left_out["texts"] = {name for name in optional if getattr(declared.texts, name) is None}
    if declared.turn_rows == 1:
        left_out["turn_rows"] = True
    left_out["schedule"] = {
        at: {"window_tokens"} for at, stage in enumerate(declared.schedule) if not stage.window_tokens
    }
    return declared.model_dump_json(exclude=left_out)


def blend_asset(declared: BlendDeclaration, owners: Sequence[str] = ()) -> dg.AssetsDefinition:
    """Make the asset of a blend, downstream of its tables."""
    digest = hashlib.sha256(_declared_json(declared).encode()).hexdigest()[:12]

    def compute(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        from blender_service.exceptions import BlenderError
        from blender_service.server.blender import Blender

        started = time.monotonic()
        try:
            catalogue = context.resources.lake.open(context.run.run_id).catalogue
            blender = Blender(catalogue)
            spec = _spec(declared, present_evals(catalogue).digest if declared.evals else "")
            config, called, existed = _create(blender, declared, spec)
            shown = _metadata(config, blender.describe(config.blend_id), blender.head(config.blend_id))
            if warnings := blender.warnings(config.blend_id):
                shown["notice"] = "; ".join(warnings)
        except BlenderError as error:
            raise dg.Failure(str(error), allow_retries=False) from error
        yield dg.MaterializeResult(
            metadata={
                **shown,
                "blend": config.blend_id,
                "called": called,
                "skipped": existed,
                "detail": called,
                "seconds": time.monotonic() - started,
            },
            data_version=dg.DataVersion(config.blend_id),
        )

    # Dagster compares the annotation with the class, but `from __future__ import annotations` made it a string.
    compute.__annotations__["context"] = dg.AssetExecutionContext
    decorate = dg.multi_asset(
        name=f"{BLENDS}__{declared.name}",
        specs=[
            dg.AssetSpec(
                [BLENDS, declared.name],
                deps=[dg.AssetDep(dg.AssetKey(table.split("."))) for table in declared.tables],
                description=f"A weighted blend of packed tables; materializing creates {declared.name}.1, .2, ..",
                group_name=BLENDS,
                code_version=digest,
                owners=list(owners),
                kinds={"iceberg"},
                tags={"headrace/domain": BLENDS},
            )
        ],
        required_resource_keys={"lake"},
    )
    return decorate(compute)


def _create(
    blender: Blender, declared: BlendDeclaration, spec: BlendSpec | UpdateSpec
) -> tuple[BlendConfig, str, bool]:
    """Create the blend unless a name of this declaration is bound to it; give it, its name, and whether it existed."""
    from blender_service.exceptions import BlendNameTakenError

    drafted = blender.draft(spec).config.blend_id
    bound = {name: blend_id for blend_id, names in blender.names().items() for name in names}
    numbers = {int(name.rpartition(".")[2]): name for name in bound if _is_numbered(name, declared.name)}
    for name in numbers.values():
        if bound[name] == drafted:
            return blender.config(drafted), name, True
    config = blender.create(spec) if declared.sources else blender.update(spec)  # type: ignore[arg-type]
    number = max(numbers, default=0)
    while True:
        number += 1
        try:
            blender.bind(f"{declared.name}.{number}", config.blend_id)
        except BlendNameTakenError:
            continue  # another run bound that number at the same time
        return config, f"{declared.name}.{number}", False


def latest_name(blender: Blender, stem: str) -> str:
    """The newest blend of a declaration.

    Raises:
        BlendNotFoundError: it has made none.
    """
    from blender_service.exceptions import BlendNotFoundError

    names = [name for names in blender.names().values() for name in names if _is_numbered(name, stem)]
    if not names:
        raise BlendNotFoundError(f"blend {stem}: none was made yet; run: headrace run blends/{stem}")
    return max(names, key=lambda name: int(name.rpartition(".")[2]))


def _is_numbered(name: str, stem: str) -> bool:
    before, _, number = name.rpartition(".")
    return before == stem and number.isdecimal()


def _spec(declared: BlendDeclaration, evals: str) -> BlendSpec | UpdateSpec:
    """Convert a declaration to a request of Blender."""
    from blender_service.blend.requests import BlendSpec, SourceSpec, TextSpec, UpdateSpec

    stages = tuple(_stage(stage) for stage in declared.schedule)
    if declared.parent:
        return UpdateSpec(declared.parent, stages, allow_repeat=declared.allow_repeat, evals=evals)
    return BlendSpec(
        tuple(SourceSpec(**source.model_dump()) for source in declared.sources),
        seed=declared.seed,
        block_rows=declared.block_rows,
        group_blocks=declared.group_blocks,
        turn_rows=declared.turn_rows,
        schedule=stages,
        allow_repeat=declared.allow_repeat,
        evals=evals,
        texts=TextSpec(**declared.texts.model_dump()) if declared.texts else None,
    )


def _stage(stage: StageDeclaration) -> Stage:
    from blender_service.blend.requests import SourceChange, Stage

    weights = [SourceChange(name, weight=weight) for name, weight in stage.weights.items()]
    others = [SourceChange(**{**change.model_dump(), "weight": change.weight or ""}) for change in stage.changes]
    return Stage(stage.from_offset, (*weights, *others), stage.align, stage.window_tokens)


def _metadata(config: BlendConfig, description: Description, head: Head) -> dict[str, Any]:
    """The metadata of a blend in the UI."""
    from blender_service.blend.describe import ending_lines, source_ends

    end = head.end
    lines = [
        "| source | table | rows | % of rows | epochs | runs out at row |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for source in description.sources:
        epochs = "live" if source.epochs is None else f"{source.epochs:.2f}"
        out = "never" if source.runs_out_at is None else f"{source.runs_out_at:,}"
        lines.append(f"| {source.name} | {source.table} | {source.rows:,} | {source.share:.2%} | {epochs} | {out} |")
    endings = ending_lines(source_ends(config, head), end) or ["it never ends"]
    return {
        "dagster/row_count": end or 0,
        "ends": dg.MetadataValue.md("\n".join(f"- {line}" for line in endings)),
        "length": "without end" if end is None else f"{end:,} rows of {config.window.window_tokens} tokens",
        "reads": dg.MetadataValue.md("\n".join(lines)),
        "described_rows": description.offset,
        "config": dg.MetadataValue.json(config.model_dump(mode="json", exclude_none=True)),
    }
