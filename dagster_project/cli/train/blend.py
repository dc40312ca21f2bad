"""`headrace blend`: create, update, show, prewarm and delete blends of the lake's packed tables.

The commands work on the warehouse itself, without a server. Slow imports are inside the commands, so that
`headrace --help` is fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import JSON, lists_all, print_json, print_table, progress_shown, say
from dagster_project.cli.train.blend_syntax import parse_change, parse_source, parse_stage, parse_texts
from dagster_project.cli.tree import ExtendedGroup
from dagster_project.exceptions import CommandError

if TYPE_CHECKING:
    from blender_service.blend.config import BlendConfig
    from blender_service.blend.requests import BlendSpec, UpdateSpec
    from blender_service.order.resolved_blend import Head
    from blender_service.server.blender import Blender

_THEN = click.option(
    "--then",
    "stages",
    multiple=True,
    metavar="'OFFSET: CHANGE ..'",
    help="further update from an offset on, such as '1000000: code=1 prose=3 -old'; may be repeated",
)
_EVALS = click.option(
    "--evals",
    default="",
    metavar="DIGEST",
    help="benchmarks that sources must have been searched for (headrace evals show)",
)
_REPEAT = click.option("--allow-repeat", is_flag=True, help="allow one table as two sources, so that its rows repeat")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="show what it would read; nothing is pinned or stored")
_ROWS = click.option("--rows", type=click.IntRange(0), help="with --dry-run: first rows; default: all, or one cycle")
_TOKENS = click.option("--tokens", type=click.IntRange(0), help="tokens in place of --rows, padding included")


@click.group(cls=ExtendedGroup)
def blend() -> None:
    """Define weighted blends of packed tables for training."""


@blend.command()
@click.argument("name", default="")
@click.option(
    "--source",
    "sources",
    multiple=True,
    required=True,
    metavar="TABLE[=WEIGHT][,..]",
    help="packed table and its weight, a decimal or a fraction (default 1), then settings: name=, snapshot=, "
    "max_epochs=, on_exhausted=, live; may be repeated",
)
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="seed of every shuffle")
@click.option("--max-epochs", type=click.IntRange(0), help="passes over a source without max_epochs; default 1")
@click.option(
    "--on-exhausted",
    type=click.Choice(["END", "CONTINUE"], case_sensitive=False),
    help="END the blend where a source runs out (the default), or CONTINUE without it",
)
@click.option(
    "--turn-rows", type=click.IntRange(1), default=1, help="consecutive rows of one source: a step of one length class"
)
@_THEN
@_REPEAT
@_EVALS
@click.option(
    "--texts",
    metavar="TOKENIZER[,..]",
    help="sources are tables of text, tokenized when read: table of the tokenizer, then window_tokens=2048, "
    "group_documents=1, whole, text=content, doc_id=doc_id, trainable=COLUMN, template=COLUMN, messages=COLUMN, "
    "tools=COLUMN; at the end conversations={..} or objectives={..} as JSON",
)
@_DRY_RUN
@_ROWS
@_TOKENS
@JSON
def create(  # noqa: PLR0913, PLR0917 (options of a command)
    name: str, sources: Sequence[str], seed: int, max_epochs: int | None, on_exhausted: str | None, turn_rows: int,
    stages: Sequence[str], allow_repeat: bool, evals: str, texts: str | None, **shown: Any,
) -> None:  # fmt: skip
    """Create a blend, and bind NAME to it.

    The current snapshot of each table is pinned; the same request again gives the same blend.
    """
    from blender_service.blend.requests import BlendSpec

    spec = BlendSpec(
        tuple(parse_source(text, max_epochs, on_exhausted.upper() if on_exhausted else None) for text in sources),
        seed=seed,
        name=name,
        schedule=tuple(parse_stage(text) for text in stages),
        allow_repeat=allow_repeat,
        evals=evals,
        texts=parse_texts(texts) if texts else None,
        turn_rows=turn_rows,
    )
    _make(spec, **shown)


@blend.command()
@click.argument("parent")
@click.argument("name", default="")
@click.option("--at", type=click.IntRange(0), metavar="OFFSET", help="first row that the changes apply to")
@click.option(
    "--change",
    "changes",
    multiple=True,
    metavar="NAME[=WEIGHT][,..]",
    help="source and its changes: weight, snapshot=main (newest rows), max_epochs=, on_exhausted=, live, "
    "pinned, table= for a new source; may be repeated; give the weights of all sources or of none",
)
@click.option("--remove", "removed", multiple=True, metavar="NAME", help="source to leave out; may be repeated")
@click.option("--align", is_flag=True, help="round --at up to the next end of a cycle, where the mix is exact")
@click.option("--window-tokens", type=click.IntRange(2), help="length of rows of texts from there on")
@_THEN
@_REPEAT
@_EVALS
@_DRY_RUN
@_ROWS
@_TOKENS
@JSON
def update(  # noqa: PLR0913, PLR0917 (options of a command)
    parent: str, name: str, at: int | None, changes: Sequence[str], removed: Sequence[str], align: bool,
    window_tokens: int | None, stages: Sequence[str], allow_repeat: bool, evals: str, **shown: Any,
) -> None:  # fmt: skip
    """Create a blend that equals PARENT up to an offset and changes from there, and bind NAME to it.

    Every source continues after its last row. A training run changes over by loading its state with the new blend.
    """
    from blender_service.blend.requests import SourceChange, Stage, UpdateSpec

    schedule = [parse_stage(text) for text in stages]
    if at is not None:
        wanted = [*(parse_change(text) for text in changes), *(SourceChange(source, remove=True) for source in removed)]
        schedule.insert(0, Stage(at, tuple(wanted), align, window_tokens or 0))
    elif changes or removed or align or window_tokens or not stages:
        raise CommandError("blend update: say from which row on with --at OFFSET")
    _make(UpdateSpec(parent, tuple(schedule), name, allow_repeat, evals=evals), **shown)


def _make(spec: BlendSpec | UpdateSpec, dry_run: bool, rows: int | None, tokens: int | None, as_json: bool) -> None:
    """Create or update a blend and print it, and what to do next; or print what it would read."""
    from blender_service.blend.requests import BlendSpec

    blender = _open_blender()
    if dry_run:
        config, head, _ = blender.draft(spec)
        return _print_plan(config, head, rows, tokens, as_json)
    if rows is not None or tokens is not None:
        raise CommandError("blend: --rows and --tokens are of a plan; give --dry-run too")
    config = blender.create(spec) if isinstance(spec, BlendSpec) else blender.update(spec)
    described = _describe(blender, config.blend_id)
    if as_json:
        return print_json(described)
    _print_blend(described)
    say(
        f"next: headrace serve, then read blend {spec.name or config.blend_id[:12]} (README, reading from a training "
        "job)"
    )


@blend.command()
@click.argument("reference", metavar="[BLEND]", required=False)
@click.argument("offset", type=click.IntRange(0), required=False)
@click.option("--rows", type=click.IntRange(0), help="rows from OFFSET on, by default 1; of --plan all, or one cycle")
@click.option("--characters", type=click.IntRange(0), default=60, show_default=True, help="of each text; 0 for all")
@click.option("--plan", is_flag=True, help="show how much of each source it reads, and when they run out")
@_TOKENS
@JSON
def show(
    reference: str | None, offset: int | None, rows: int | None, characters: int, plan: bool, tokens: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """List the blends; show BLEND, given as its id, the first digits of it, or a name; or its rows from OFFSET on.

    Rows show documents, sources, licences and texts, e.g. to explain a loss spike: for a training step of B rows that
    began at OFFSET, give --rows B. No server is needed. Without a BLEND, --json alone may be given.
    """
    if lists_all(reference) or reference is None:
        return _list_blends(as_json)
    plan = plan or tokens is not None
    if not plan and (offset is not None or rows is not None):
        return _print_rows(reference, offset or 0, rows or 1, characters, as_json)
    blender = _open_blender()
    blend_id = blender.resolve(reference)
    if plan:
        return _print_plan(blender.config(blend_id), blender.head(blend_id), rows, tokens, as_json)
    described = _describe(blender, blend_id)
    if as_json:
        return print_json(described)
    _print_blend(described)


def _list_blends(as_json: bool) -> None:
    """Print all blends of the lake."""
    blender = _open_blender()
    blends = [_describe(blender, blend_id) for blend_id in blender.list_ids()]
    if as_json:
        return print_json(blends)
    if not blends:
        say("no blend yet: headrace blend create NAME --source TABLE=WEIGHT ...")
    for described in blends:
        tables = ", ".join(f"{source['table']}={source['weight']}" for source in described["sources"])
        follows = f"  from {described['parent'][:12]} at {described['from_offset']}" if described["parent"] else ""
        names = ",".join(described["names"]) or "-"
        say(f"{described['id'][:12]}  {names:20}  {_length(described['rows'])}  {tables}{follows}")


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

    with progress_shown(True):
        for server in servers or ("127.0.0.1:7170",):
            say(prewarm_server(server, reference, offset, rows, columns))


@blend.command()
@click.argument("reference", metavar="ID")
def delete(reference: str) -> None:
    """Delete a blend and its names, if you may write the lake; servers have no call for it.

    Snapshots that no other blend pins lose their tags, so that `headrace maintain` may expire them. Streams of it end
    when they reconnect.
    """
    blender = _open_blender()
    blend_id = blender.resolve(reference)
    called = ", ".join(blender.names_of(blend_id))
    freed = blender.delete(blend_id)
    say(f"deleted blend {blend_id[:12]}{f' ({called})' if called else ''}")
    for tag in freed:
        say(f"  freed: {tag}")


def _open_blender() -> Blender:
    """Blender on the lake of PyIceberg's settings, by default the one of this directory."""
    from blender_service.catalogue import open_catalogue
    from blender_service.server.blender import Blender

    return Blender(open_catalogue())


def _describe(blender: Blender, blend_id: str) -> dict[str, Any]:
    """Give the facts of a blend, ready for JSON."""
    from blender_service.blend.describe import source_ends

    ends = source_ends(blender.config(blend_id), blender.head(blend_id))
    return {
        "id": blend_id,
        "names": blender.names_of(blend_id),
        "rows": blender.head(blend_id).end,
        "ends": {name: end._asdict() for name, end in ends.items()},
        "updates": [update._asdict() for update in blender.head(blend_id).lineage],
        **blender.config(blend_id).model_dump(mode="json"),
        "warnings": blender.warnings(blend_id),
    }


def _length(rows: int | None) -> str:
    return "without end" if rows is None else f"{rows} rows"


def _print_blend(described: dict[str, Any]) -> None:
    """Print a blend for people."""
    from blender_service.blend.describe import SourceEnd, ending_lines

    window = described["window"]
    say(f"blend {described['id']}")
    if described["names"]:
        say(f"  names      {', '.join(described['names'])}")
    spans = described["windows"] or ()
    lengths = ", ".join(f"{span['window_tokens']} from row {span['from_offset']} on" for span in spans)
    length = f"{_length(described['rows'])} of {window['window_tokens']} tokens" + f" ({lengths})" * bool(spans)
    say(f"  length     {length}, seed {described['seed']}")
    say(f"  tokenizer  {window['tokenizer_sha256']}, {window['vocabulary_size']} tokens")
    if described["evals"]:
        say(f"  evals      searched for {described['evals']}")
    for update in described["updates"][:-1] if described["parent"] else ():
        say(f"  follows    {update['blend_id']} from {update['from_offset']}")
    if described["parent"]:
        say(f"  itself     from {described['from_offset']} on:")
    for source in described["sources"]:
        place = source["table"] + (f"[{source['cells']}]" if source.get("cells") else "")
        if source["live"]:
            say(f"  source     {source['name']}: weight {source['weight']}, {place} as it grows")
            continue
        epochs = "no end" if source["max_epochs"] == 0 else f"{source['max_epochs']} epochs"
        say(
            f"  source     {source['name']}: weight {source['weight']}, {source['rows']} rows of {place} at "
            f"snapshot {source['snapshot_id']}, {epochs}, then {source['on_exhausted']}"
        )
    ends = {name: SourceEnd(**end) for name, end in described["ends"].items()}
    for line in ending_lines(ends, described["rows"]):
        say(f"  end        {line}")
    for warning in described["warnings"]:
        say(f"  warning    {warning}")


def _print_rows(reference: str, offset: int, rows: int, characters: int, as_json: bool) -> None:
    """Print documents, sources, licences and texts of rows of a blend, from an offset on."""
    from blender_service.catalogue import open_catalogue
    from blender_service.server.blender import Blender
    from dagster_project.inspect.documents.blend_rows import inspect_rows
    from dagster_project.restrictions import note_read

    catalogue = open_catalogue()
    blender = Blender(catalogue)
    inspected = inspect_rows(catalogue, blender, blender.resolve(reference), offset, rows)
    note_read(catalogue, [row.table for row in inspected])
    if as_json:
        return print_json([row.facts() for row in inspected])
    for row in inspected:
        origin = f"{row.table} ordinal {row.ordinal}, epoch {row.epoch}"
        say(f"row {row.offset}: {row.source}, {origin}, {row.token_count} tokens before padding")
        lines = [
            {
                "at": segment.window_start,
                "tokens": segment.token_count,
                "document": segment.doc_id[:12],
                "from token": segment.document_start,
                "licence": segment.licence or "not known",
                "file": " ".join(part for part in (segment.repository, segment.path) if part) or "not known",
                "text": _line(segment.text, characters),
            }
            for segment in row.segments
        ]
        if lines:
            print_table(lines)


def _line(text: str | None, characters: int) -> str:
    """Give the beginning of a text in one line."""
    if text is None:
        return "not known"
    line = text.replace("\n", "\\n")
    return line if not characters or len(line) <= characters else line[:characters] + ".."


def _print_plan(config: BlendConfig, head: Head, rows: int | None, tokens: int | None, as_json: bool) -> None:
    """Print what a blend reads in its first rows or tokens: to its end or one cycle, where neither is given."""
    from blender_service.blend.describe import describe, ending_lines, source_ends

    if tokens is not None:
        rows = config.rows_of(tokens)
    if rows is not None and head.end is not None and rows > head.end:
        say(f"the blend ends at {head.end} rows, {rows} were asked for: shown is all of it", err=True)
        rows = head.end
    description = describe(config, head, rows)
    if as_json:
        sources = [vars(source).copy() for source in description.sources]
        for source in sources:
            del source["excised_documents"], source["evals"]  # a plan does not look these up
        planned = {"rows": description.offset, "tokens": description.tokens, "end": head.end, "sources": sources}
        return print_json({"id": config.blend_id, **planned, "segments": len(description.segments)})
    read = f"{description.offset:,} rows, {description.tokens:,} tokens"
    say(f"blend {config.blend_id[:12]}, {_length(head.end)}: the first {read}")
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
        say(f"the mix changes at row {starts}{' ..' if len(description.segments) > 9 else ''}")
    for line in ending_lines(source_ends(config, head), head.end):
        say(line)
