"""`headrace template`: chat templates in the registry; `headrace corpus preview`: a conversation as a model sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dagster_project.cli.completion import complete_names
from dagster_project.cli.output import JSON, print_json, print_rows, say
from dagster_project.exceptions import CommandError
from dagster_project.project.declared import CORPUS, declaration
from dagster_project.project.loading import lake_catalogue


@click.group(short_help="Add and show chat templates of conversations.")
def template() -> None:
    """Add and show the chat templates that conversations are written by."""


@template.command("add", epilog="\b\nExample: headrace template add qwen3_training --package trl:qwen3_training")
@click.argument("name")
@click.option("--from", "file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="a .jinja file")
@click.option("--package", metavar="PACKAGE:NAME", help="NAME.jinja of an installed package")
@click.option("--version", help="a name and version always mean the same template; by default 12 digits of its hash")
def add(name: str, file: Path | None, package: str | None, version: str | None) -> None:
    """Enter a chat template into the registry as NAME."""
    from headrace_features.conversations.registered import add_template, packaged_template

    if (file is None) == (package is None):
        raise CommandError("template add: give --from FILE.jinja or --package PACKAGE:NAME")
    source = packaged_template(package) if package is not None else Path(file or "").read_text("utf-8")
    entry = add_template(lake_catalogue(make=True), name, source, version)
    say(f"{entry.label}: hash {entry.content_hash[:16]}")
    say(f"Next, in a corpus: `conversations: {{template: {entry.label}}}`")


@template.command("show", epilog="\b\nExample: headrace template show qwen3_training@1")
@click.argument("reference", metavar="[NAME@VERSION]", required=False)
@JSON
def show(reference: str | None, as_json: bool) -> None:
    """List the chat templates of the registry; of NAME@VERSION print the template."""
    from headrace_features.conversations.registered import template_in
    from spark_jobs.lake.run.registry import entries

    if reference is not None:
        say(template_in(lake_catalogue(required=False), reference))
        return
    rows = [
        {"template": entry.label, "characters": len(entry.content), "hash": entry.content_hash[:16], "by": entry.by}
        for entry in entries(lake_catalogue(required=False), "template")
    ]
    print_rows(rows, as_json, "the registry has no template; headrace template add NAME --from FILE.jinja")


@click.command("preview", epilog="\b\nExample: headrace corpus preview main --document notes/one.jsonl")
@click.argument("name", shell_complete=complete_names)
@click.option("--document", "--conversation", "doc", required=True, metavar="ID", help="of a document")
@JSON
def preview_corpus(name: str, doc: str, as_json: bool) -> None:
    """Show a document as the model sees it: control tokens, what is trained, what is lost, added and cut in three."""
    from dataclasses import asdict

    from headrace_features.conversations.previewed import previewed
    from spark_jobs.plugins import load

    declared = declaration(CORPUS, name)[1]
    is_laid_out = declared.get("objectives") is not None
    preview: Any = load("parts", "objectives_preview", object) if is_laid_out else previewed
    shown = preview(lake_catalogue(), declared, doc)
    if as_json:
        print_json(asdict(shown))
        return
    for line in shown.lines():
        say(line)
