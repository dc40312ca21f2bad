"""`headrace blend create|update|plan|list|show|prewarm|delete`: blends of the lake's packed tables.

The commands work on the warehouse itself, without a server. Slow imports are inside the commands, so that
`headrace --help` is fast.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dagster_project.cli.blends.blend_inspect import print_rows_from
from dagster_project.cli.blends.blend_syntax import parse_change, parse_source, parse_stage, parse_texts
from dagster_project.exceptions import CommandError

if TYPE_CHECKING:
    from blender_service.blend.config import BlendConfig
    from blender_service.blend.definition_messages import Description
    from blender_service.blend.requests import BlendSpec, Stage, UpdateSpec
    from blender_service.server.blender import Blender

Command = TypeVar("Command", bound=Callable[..., None])
JSON = click.option("--json", "as_json", is_flag=True, help="print JSON")


def _new_blend_options(required: bool) -> Callable[[Command], Command]:
    """Add the options for the sources of a new blend."""
    options = (
        click.option(
            "--source",
            "sources",
            multiple=True,
            required=required,
            metavar="TABLE[=WEIGHT][,..]",
            help="packed table and its weight, a decimal or a fraction (default 1), then settings: name=, snapshot=, "
            "max_epochs=, on_exhausted=, live; may be repeated",
        ),
        click.option(
            "--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="seed of every shuffle"
        ),
        click.option("--max-epochs", type=click.IntRange(0), help="passes over a source without max_epochs; default 1"),
        click.option(
            "--on-exhausted",
            type=click.Choice(["END", "CONTINUE"], case_sensitive=False),
            help="END the blend where a source runs out (the default), or CONTINUE without it",
        ),
    )
    return _with(options)


def _update_options(command: Command) -> Command:
    """Add the options for the changes of an update."""
    options = (
        click.option("--at", type=click.IntRange(0), metavar="OFFSET", help="first row that the changes apply to"),
        click.option(
            "--change",
            "changes",
            multiple=True,
            metavar="NAME[=WEIGHT][,..]",
            help="source and its changes: weight, snapshot=main (newest rows), max_epochs=, on_exhausted=, live, "
            "pinned, table= for a new source; may be repeated; give the weights of all sources or of none",
        ),
        click.option("--remove", "removed", multiple=True, metavar="NAME", help="source to leave out; may be repeated"),
        click.option("--align", is_flag=True, help="round --at up to the next end of a cycle, where the mix is exact"),
    )
    return _with(options)(command)


def _with(options: Sequence[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


THEN = click.option(
    "--then",
    "stages",
    multiple=True,
    metavar="'OFFSET: CHANGE ..'",
    help="further update from an offset on, such as '1000000: code=1 prose=3 -old'; may be repeated",
)
EVALS = click.option(
    "--evals",
    default="",
    metavar="DIGEST",
    help="demand that sources were searched for these (headrace evals list)",
)
REPEAT = click.option("--allow-repeat", is_flag=True, help="allow one table as two sources, so that its rows repeat")


@click.group()
def blend() -> None:
    """Define weighted blends of packed tables for training."""


@blend.command()
@click.argument("name", default="")
@_new_blend_options(required=True)
@THEN
@REPEAT
@EVALS
@click.option(
    "--texts",
    metavar="TOKENIZER[,..]",
    help="sources are tables of text, tokenized when read: table of the tokenizer, then window_tokens=2048, "
    "group_documents=1, whole, text=content, doc_id=doc_id, trainable=COLUMN, template=COLUMN",
)
@JSON
def create(
    name: str,
    stages: tuple[str, ...],
    allow_repeat: bool,
    evals: str,
    texts: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Create a blend, and bind NAME to it.

    The current snapshot of each table is pinned; the same request again gives the same blend.
    """
    blender = _open_blender()
    spec = _blend_spec(name, stages, allow_repeat, **given)
    config = blender.create(replace(spec, evals=evals, texts=parse_texts(texts) if texts else None))
    _print_made(blender, config, name, as_json)


@blend.command()
@click.argument("parent")
@click.argument("name", default="")
@_update_options
@THEN
@REPEAT
@EVALS
@JSON
def update(
    parent: str, name: str, stages: tuple[str, ...], allow_repeat: bool, evals: str, as_json: bool, **given: Any
) -> None:
    """Create a blend that equals PARENT up to an offset and changes from there, and bind NAME to it.

    Every source continues after its last row. A training run changes over by loading its state with the new blend.
    """
    blender = _open_blender()
    config = blender.update(replace(_update_spec(parent, name, stages, allow_repeat, **given), evals=evals))
    _print_made(blender, config, name, as_json)


@blend.command()
@click.argument("reference", metavar="[BLEND]", default="")
@_new_blend_options(required=False)
@_update_options
@THEN
@REPEAT
@click.option("--rows", type=click.IntRange(0), help="rows to plan for; default: to the end, or one cycle")
@click.option("--tokens", type=click.IntRange(0), help="tokens to plan for, padding included, in place of --rows")
@JSON
def plan(
    reference: str, stages: tuple[str, ...], allow_repeat: bool, rows: int | None, tokens: int | None, as_json: bool,
    **given: Any,
) -> None:  # fmt: skip
    """Show what a blend would read and when its sources run out; nothing is pinned or stored.

    Plans an existing blend (BLEND), a new one (--source ..), or an update (BLEND --at OFFSET --change ..).
    """
    new = {key: given[key] for key in ("sources", "seed", "max_epochs", "on_exhausted")}
    changed = {key: given[key] for key in ("at", "changes", "removed", "align")}
    if bool(reference) == bool(new["sources"]):
        raise CommandError("plan: name a blend, or give --source for each table of a new one")
    from blender_service.blend.describe import describe

    blender = _open_blender()
    if not reference:
        config, head, _ = blender.draft(_blend_spec("", stages, allow_repeat, **new))
    elif given["at"] is not None or given["changes"] or given["removed"] or given["align"] or stages:
        config, head, _ = blender.draft(_update_spec(reference, "", stages, allow_repeat, **changed))
    else:
        blend_id = blender.resolve(reference)
        config, head = blender.config(blend_id), blender.head(blend_id)
    if tokens is not None:
        rows = -(-tokens // config.window.window_tokens)
    if rows is not None and head.end is not None and rows > head.end:
        click.echo(f"the blend ends at {head.end} rows, {rows} were asked for: shown is all of it", err=True)
        rows = head.end
    _print_plan(config, describe(config, head, rows), head.end, as_json)


@blend.command(name="list")
@JSON
def list_blends(as_json: bool) -> None:
    """List all blends of the lake."""
    blender = _open_blender()
    blends = [_describe(blender, blend_id) for blend_id in blender.list_ids()]
    if as_json:
        click.echo(json.dumps(blends))
        return
    if not blends:
        click.echo("no blend yet: headrace blend create NAME --source TABLE=WEIGHT ...")
    for described in blends:
        tables = ", ".join(f"{source['table']}={source['weight']}" for source in described["sources"])
        follows = f"  from {described['parent'][:12]} at {described['from_offset']}" if described["parent"] else ""
        known = ",".join(described["names"]) or "-"
        click.echo(f"{described['id'][:12]}  {known:20}  {_length(described['rows'])}  {tables}{follows}")


@blend.command()
@click.argument("reference", metavar="BLEND")
@click.argument("offset", type=click.IntRange(0), required=False)
@click.option("--rows", type=click.IntRange(1), default=1, show_default=True, help="number of rows from OFFSET on")
@click.option("--characters", type=click.IntRange(0), default=60, show_default=True, help="of each text; 0 for all")
@JSON
def show(reference: str, offset: int | None, rows: int, characters: int, as_json: bool) -> None:
    """Show one blend, given as its id, the first digits of it, or a name; or what is in rows of it from OFFSET on.

    Rows show documents, sources, licences and texts, e.g. to explain a loss spike: for a training step of B rows that
    began at OFFSET, give --rows B. No server is needed.
    """
    if offset is not None:
        print_rows_from(reference, offset, rows, characters, as_json)
        return
    blender = _open_blender()
    described = _describe(blender, blender.resolve(reference))
    if as_json:
        click.echo(json.dumps(described))
        return
    _print_blend(described)


@blend.command()
@click.argument("reference", metavar="BLEND")
@click.option("--server", "servers", multiple=True, metavar="HOST:PORT", help="each replica; default 127.0.0.1:7170")
@click.option(
    "--offset", type=click.IntRange(0), default=0, show_default=True, help="first row: of the training's state"
)
@click.option("--rows", type=click.IntRange(1), default=1 << 20, show_default=True, help="how many at most")
@click.option("--column", "columns", multiple=True, help="column per token that the training reads, such as trainable")
def prewarm(reference: str, servers: tuple[str, ...], offset: int, rows: int, columns: tuple[str, ...]) -> None:
    """Read rows of a blend into the caches of servers before a training begins, as far as they have room."""
    from dagster_project.assets.prewarming import prewarm_server
    from dagster_project.cli.output import progress_shown

    with progress_shown(True):
        for server in servers or ("127.0.0.1:7170",):
            click.echo(prewarm_server(server, reference, offset, rows, columns))


@blend.command()
@click.argument("reference", metavar="ID")
def delete(reference: str) -> None:
    """Delete one blend and its names, for whoever may write the lake: no call to a server does it.

    Snapshots that no other blend pins lose their tags, so that `headrace maintain` may expire them. Streams of it end
    when they connect again.
    """
    blender = _open_blender()
    blend_id = blender.resolve(reference)
    called = ", ".join(blender.names_of(blend_id))
    freed = blender.delete(blend_id)
    click.echo(f"deleted blend {blend_id[:12]}{f' ({called})' if called else ''}")
    for tag in freed:
        click.echo(f"  freed: {tag}")


def _open_blender() -> Blender:
    """Open the lake of this directory or of PyIceberg's settings."""
    from blender_service.catalogue import open_catalogue
    from blender_service.server.blender import Blender

    return Blender(open_catalogue())


def _blend_spec(
    name: str, stages: Sequence[str], allow_repeat: bool, *, sources: Sequence[str], seed: int,
    max_epochs: int | None, on_exhausted: str | None,
) -> BlendSpec:  # fmt: skip
    from blender_service.blend.requests import BlendSpec

    return BlendSpec(
        tuple(parse_source(text, max_epochs, on_exhausted.upper() if on_exhausted else None) for text in sources),
        seed=seed,
        name=name,
        schedule=tuple(parse_stage(text) for text in stages),
        allow_repeat=allow_repeat,
    )


def _update_spec(
    parent: str, name: str, stages: Sequence[str], allow_repeat: bool, *, at: int | None, changes: Sequence[str],
    removed: Sequence[str], align: bool,
) -> UpdateSpec:  # fmt: skip
    from blender_service.blend.requests import SourceChange, Stage, UpdateSpec

    first: tuple[Stage, ...] = ()
    if at is not None:
        wanted = [*(parse_change(text) for text in changes), *(SourceChange(source, remove=True) for source in removed)]
        first = (Stage(at, tuple(wanted), align),)
    elif changes or removed or align or not stages:
        raise CommandError("blend update: say from which row on with --at OFFSET")
    return UpdateSpec(parent, (*first, *(parse_stage(text) for text in stages)), name, allow_repeat)


def _describe(blender: Blender, blend_id: str) -> dict[str, Any]:
    """Give the facts of a blend, ready for JSON."""
    return {
        "id": blend_id,
        "names": blender.names_of(blend_id),
        "rows": blender.head(blend_id).end,
        "updates": [update._asdict() for update in blender.head(blend_id).lineage],
        **blender.config(blend_id).model_dump(mode="json"),
    }


def _length(rows: int | None) -> str:
    return "without end" if rows is None else f"{rows} rows"


def _print_made(blender: Blender, config: BlendConfig, name: str, as_json: bool) -> None:
    """Print a new blend, and what to do next."""
    described = _describe(blender, config.blend_id)
    if as_json:
        click.echo(json.dumps(described))
        return
    _print_blend(described)
    click.echo(
        f"next: headrace serve, then read blend {name or config.blend_id[:12]} (README, reading from a training job)"
    )


def _print_blend(described: dict[str, Any]) -> None:
    """Print a blend for people."""
    window = described["window"]
    click.echo(f"blend {described['id']}")
    if described["names"]:
        click.echo(f"  names      {', '.join(described['names'])}")
    click.echo(
        f"  length     {_length(described['rows'])} of {window['window_tokens']} tokens, seed {described['seed']}"
    )
    click.echo(f"  tokenizer  {window['tokenizer_sha256']}, {window['vocabulary_size']} tokens")
    if described["evals"]:
        click.echo(f"  evals      searched for {described['evals']}")
    for update in described["updates"][:-1] if described["parent"] else ():
        click.echo(f"  follows    {update['blend_id']} from {update['from_offset']}")
    if described["parent"]:
        click.echo(f"  itself     from {described['from_offset']} on:")
    for source in described["sources"]:
        if source["live"]:
            click.echo(f"  source     {source['name']}: weight {source['weight']}, {source['table']} as it grows")
            continue
        epochs = "no end" if source["max_epochs"] == 0 else f"{source['max_epochs']} epochs"
        click.echo(
            f"  source     {source['name']}: weight {source['weight']}, {source['rows']} rows of {source['table']} at "
            f"snapshot {source['snapshot_id']}, {epochs}, then {source['on_exhausted']}"
        )


def _print_plan(config: BlendConfig, description: Description, end: int | None, as_json: bool) -> None:
    """Print what is read up to an offset."""
    if as_json:
        sources = [vars(source).copy() for source in description.sources]
        for source in sources:
            del source["excised_documents"], source["evals"]  # a plan does not read the tables that say so
        planned = {"rows": description.offset, "tokens": description.tokens, "end": end, "sources": sources}
        click.echo(json.dumps({"id": config.blend_id, **planned, "segments": len(description.segments)}))
        return
    from dagster_project.cli.output import print_table

    read = f"{description.offset:,} rows, {description.tokens:,} tokens"
    click.echo(f"blend {config.blend_id[:12]}, {_length(end)}: the first {read}")
    print_table(
        [
            {
                "source": source.name,
                "rows": source.rows,
                "tokens": source.tokens,
                "% of rows": 100 * source.share,
                "% by weight": 100 * source.expected_share,
                "epochs": "live" if source.epochs is None else f"{source.epochs:.2f}",
                "runs out at": "never" if source.runs_out_at is None else f"row {source.runs_out_at:,}",
            }
            for source in description.sources
        ]
    )
    if len(description.segments) > 1:
        starts = ", ".join(f"{segment.start:,}" for segment in description.segments[1:9])
        click.echo(f"the mix changes at row {starts}{' ..' if len(description.segments) > 9 else ''}")
