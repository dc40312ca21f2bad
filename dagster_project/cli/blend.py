"""`headrace blend create|list|show` and `headrace serve`: blends of the lake's packed tables.

They work on the warehouse itself, no server is needed. Everything heavy is imported inside the commands, so that
`headrace --help` stays quick.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from blender_service.serving import Blender
    from blender_service.specification import SourceSpec


@click.group()
def blend() -> None:
    """Define weighted blends of packed tables for training."""


@blend.command()
@click.argument("name", default="")
@click.option(
    "--source",
    "sources",
    multiple=True,
    required=True,
    metavar="TABLE[=WEIGHT]",
    help="A packed table and its weight, a decimal or a fraction (default 1). Repeat for more.",
)
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="Of every shuffle.")
@click.option("--max-epochs", type=click.IntRange(0), default=1, show_default=True, help="Passes; 0 without end.")
@click.option(
    "--on-exhausted",
    type=click.Choice(["END", "CONTINUE"], case_sensitive=False),
    default="END",
    show_default=True,
    help="END the blend where a source runs out, or CONTINUE without it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def create(name: str, sources: tuple[str, ...], seed: int, max_epochs: int, on_exhausted: str, as_json: bool) -> None:
    """Create a blend, and let NAME stand for it.

    The current snapshot of each table is pinned; the same request again gives the same blend.
    """
    from blender_service.specification import BlendSpec

    specs = tuple(_source_spec(text, max_epochs, on_exhausted.upper()) for text in sources)
    blender = _open_blender()
    blend_id = blender.create(BlendSpec(specs, seed=seed, name=name)).blend_id
    if as_json:
        click.echo(json.dumps(_describe(blender, blend_id)))
        return
    _print_blend(_describe(blender, blend_id))
    click.echo(f"next: headrace serve, then read blend {name or blend_id[:12]} (README, reading from a training job)")


@blend.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
        click.echo(f"{described['id'][:12]}  {','.join(described['names']) or '-':20}  {_length(described)}  {tables}")


@blend.command()
@click.argument("reference", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(reference: str, as_json: bool) -> None:
    """Show one blend by its id, the start of it, or a name."""
    blender = _open_blender()
    described = _describe(blender, blender.resolve(reference))
    if as_json:
        click.echo(json.dumps(described))
        return
    _print_blend(described)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; there is no login.")
@click.option("--port", type=click.IntRange(0, 65535), default=7170, show_default=True, help="0 takes any free one.")
def serve(host: str, port: int) -> None:
    """Stream blends to training jobs over gRPC until Ctrl-C or SIGTERM."""
    import logging

    from blender_service.server import serve as serve_blends

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("pyiceberg").setLevel(logging.WARNING)  # it tells of every table that a read opens
    serve_blends(host, port)


def _open_blender() -> Blender:
    """Open the lake of this directory or of PyIceberg's settings."""
    from blender_service.catalogue import open_catalogue
    from blender_service.serving import Blender

    return Blender(open_catalogue())


def _source_spec(text: str, max_epochs: int, on_exhausted: str) -> SourceSpec:
    """Read TABLE or TABLE=WEIGHT."""
    from blender_service.specification import SourceSpec

    table, _, weight = text.partition("=")
    end_or_continue: Literal["END", "CONTINUE"] = "CONTINUE" if on_exhausted == "CONTINUE" else "END"
    return SourceSpec(table, weight or "1", max_epochs=max_epochs, on_exhausted=end_or_continue)


def _describe(blender: Blender, blend_id: str) -> dict[str, Any]:
    """Give what there is to say of a blend, ready for JSON."""
    config = blender.config(blend_id)
    return {
        "id": blend_id,
        "names": blender.names().get(blend_id, []),
        "rows": blender.order(blend_id).end,
        **config.model_dump(mode="json"),
    }


def _length(described: dict[str, Any]) -> str:
    return "without end" if described["rows"] is None else f"{described['rows']} rows"


def _print_blend(described: dict[str, Any]) -> None:
    """Print a blend for people."""
    window = described["window"]
    click.echo(f"blend {described['id']}")
    if described["names"]:
        click.echo(f"  names      {', '.join(described['names'])}")
    click.echo(f"  length     {_length(described)} of {window['window_tokens']} tokens, seed {described['seed']}")
    click.echo(f"  tokenizer  {window['tokenizer_sha256']}, {window['vocabulary_size']} tokens")
    for source in described["sources"]:
        epochs = "no end" if source["max_epochs"] == 0 else f"{source['max_epochs']} epochs"
        click.echo(
            f"  source     {source['name']}: weight {source['weight']}, {source['rows']} rows of {source['table']} at "
            f"snapshot {source['snapshot_id']}, {epochs}, then {source['on_exhausted']}"
        )
