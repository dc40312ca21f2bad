"""`headrace export hub`: tables as a folder for the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

import click

from dagster_project.cli.output import say
from dagster_project.project.loading import lake_catalogue


@click.command(
    short_help="Write packed or text tables as a folder for the Hugging Face Hub.",
    epilog="\b\nExample: headrace export hub notes.texts ./notes_for_hub",
)
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--shard-mb", type=click.IntRange(min=1), default=500, show_default=True, help="MB of rows in a shard")
def export_hub(tables: tuple[str, ...], folder: Path, shard_mb: int) -> None:
    """Write packed TABLEs, or ones with texts, of one dataset or corpus into DIR, with its card.

    Each table is a config of the data set, with the split `train`. Nothing is uploaded. Excised documents are left out;
    what is not public is refused.
    """
    from headrace_features.hub.hub_folder import write_folder

    for part in write_folder(lake_catalogue(), tables, folder, shard_mb * 1_000_000):
        left = f"; {part.excised:,} excised documents are left out" if part.excised else ""
        say(f"{part.table}: {part.rows:,} rows in {part.shards} shards{left}")
    say(
        f"Next: read {folder}/README.md, which names sources and counts; then hf upload OWNER/NAME {folder} "
        "--repo-type dataset"
    )
