"""`headrace completion`: the script by which a shell completes commands, options and names of datasets."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from dagster_project.exceptions import CommandError
from dagster_project.project.declared import CORPUS, DATASET, declarations

_VARIABLE = "_HEADRACE_COMPLETE"  # click reads it when `headrace` starts


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script for a shell: `eval "$(headrace completion bash)"` in ~/.bashrc, or the same with zsh."""
    from dagster_project.cli import headrace

    kind = get_completion_class(shell)
    if kind is None:
        raise CommandError(f"{shell}: click has no completion for it; choose bash, zsh or fish")
    click.echo(kind(headrace, {}, "headrace", _VARIABLE).source())


def complete_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of datasets and corpora for the tab key; none where a declaration cannot be read."""
    try:
        found = [str(declared["name"]) for kind in (DATASET, CORPUS) for _, declared in declarations(kind)]
    except CommandError:
        return []
    return sorted(name for name in found if name.startswith(incomplete))
