"""`headrace init`: make a project of one's own, outside of headrace's checkout."""

from __future__ import annotations

import importlib.metadata
import json
import re
from pathlib import Path

import click

from dagster_project.exceptions import CommandError

_TEMPLATES = Path(__file__).with_name("new_project")
_SOURCE_TEMPLATES = Path(__file__).with_name("new_source")
_SUFFIX = ".template"
_WORD = "PACKAGE"  # stands for the project's name, in paths and in texts
_ORIGIN = "ORIGIN"  # stands for the place that headrace is installed from
# Files whose names would have a meaning in headrace's own checkout, by the names that they have among the templates.
_RENAMED = {"gitignore": ".gitignore", "workflows": ".github/workflows"}


@click.command()
@click.argument("name")
@click.option("--at", "target", type=click.Path(path_type=Path), help="folder to make; NAME in this folder by default")
@click.option("--source", "with_source", is_flag=True, help="with a source of your own, its dataset and its test")
def init(name: str, target: Path | None, with_source: bool) -> None:
    """Make a project: definitions, a dataset, a corpus, a table, tests, a CI workflow.

    NAME is the project's Python package: small letters, digits and underscores.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name):
        raise CommandError(f"{name}: no name of a Python package; use small letters, digits and underscores")
    if name in ("dagster_project", "spark_jobs", "blender_service", "headrace", "tests"):
        raise CommandError(f"{name}: a package of this name is there already; choose another")
    root = (target or Path(name)).absolute()
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise CommandError(f"{root}: is there already and not empty; choose another name, or --at another folder")
    origin = _origin()
    for templates in (_TEMPLATES, *([_SOURCE_TEMPLATES] if with_source else [])):
        for file in sorted(templates.rglob(f"*{_SUFFIX}")):
            parts = [_RENAMED.get(part, part) for part in file.relative_to(templates).with_suffix("").parts]
            made = root / "/".join(parts).replace(_WORD, name)
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text(file.read_text().replace(_WORD, name).replace(_ORIGIN, origin))
    click.echo(f"made {root}. Next:")
    for command in (f"cd {root}", "headrace doctor", "headrace run"):
        click.echo(f"  {command}")
    if origin.startswith(" @ file:"):
        click.echo(f"Its pyproject.toml takes headrace from {origin[3:]}; for other machines name an address there.")


def _origin() -> str:
    """What follows the name headrace in a requirement, so that pip installs it from where this one is from.

    Nothing does where it is from a package index.
    """
    try:
        text = importlib.metadata.distribution("headrace").read_text("direct_url.json")  # PEP 610
    except importlib.metadata.PackageNotFoundError:
        text = None
    if text is None:
        return ""
    found = json.loads(text)
    from_repository = found.get("vcs_info")
    if from_repository:
        return f" @ {from_repository['vcs']}+{found['url']}@{from_repository['commit_id']}"
    return f" @ {found['url']}"
