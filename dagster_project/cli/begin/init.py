"""`headrace init`: make a project of one's own, outside of headrace's checkout."""

from __future__ import annotations

import importlib.metadata
import json
import re
from importlib.util import find_spec
from pathlib import Path

import click

from dagster_project.cli.begin.recipes import RECIPE_FOLDER, RECIPES
from dagster_project.cli.output import say
from dagster_project.exceptions import CommandError

_TEMPLATES = Path(__file__).with_name("new_project")
_SUFFIX = ".template"
_WORD = "PACKAGE"  # replaced by the project's name, in paths and in texts
# Files whose names would have a meaning in headrace's own checkout, by the names that they have among the templates.
_RENAMED = {"gitignore": ".gitignore", "workflows": ".github/workflows"}


@click.command()
@click.argument("name")
@click.option("--at", "target", type=click.Path(path_type=Path), help="folder to make; NAME in this folder by default")
@click.option(
    "--recipe",
    type=click.Choice(list(RECIPES)),
    default="own",
    show_default=True,
    help="own: your files; web, code, books: a known corpus in small, with a sample (docs/start/recipes.md)",
)
@click.option("--source", "with_source", is_flag=True, help="with a source of your own, its dataset and its test")
def init(name: str, target: Path | None, recipe: str, with_source: bool) -> None:
    """Make a project: definitions, a dataset, a corpus, tests, a CI workflow.

    NAME is the project's Python package: small letters, digits and underscores. A recipe writes the settings of a
    published corpus, each with its source, and a small sample of which these settings keep some documents and drop
    others.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name):
        raise CommandError(f"{name}: no name of a Python package; use small letters, digits and underscores")
    if name in ("dagster_project", "spark_jobs", "blender_service", "headrace", "headrace_features", "tests"):
        raise CommandError(f"{name}: a package of this name is there already; choose another")
    root = (target or Path(name)).absolute()
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise CommandError(f"{root}: is there already and not empty; choose another name, or --at another folder")
    origin = _origin()
    chosen = RECIPES[recipe]
    steps = ["headrace doctor", *chosen.before_run, "headrace run"]
    words = {
        _WORD: name,
        "ORIGIN": origin,  # where pip finds headrace
        "EXTRAS": ",".join(sorted({"java", "platform", *chosen.extras})),
        "RECIPE": recipe,
        "COMMANDS": "\n".join(f"    {step}" for step in steps),
    }
    if chosen.write_sample is not None:  # first, since this fails where a program such as git is missing
        chosen.write_sample(root / "data")
    folders = [_TEMPLATES, *(RECIPE_FOLDER / part for part in (*chosen.folders, *(["source"] if with_source else [])))]
    for folder in folders:
        _write(folder, root, words)
    missing = [package for package in chosen.packages if find_spec(package) is None]
    install = (
        [f"pip install 'headrace[{','.join(chosen.extras)}]{origin}'  # for {', '.join(missing)}"] if missing else []
    )
    say(f"made {root}. Next:")
    for command in (f"cd {root}", *install, *steps):
        say(f"  {command}")
    if origin.startswith(" @ file:"):
        say(f"Its pyproject.toml takes headrace from {origin[3:]}; for other machines name an address there.")


def _write(templates: Path, root: Path, words: dict[str, str]) -> None:
    """Write the templates of a folder into a project; each key of `words` is replaced by its value."""
    for file in sorted(templates.rglob(f"*{_SUFFIX}")):
        parts = [_RENAMED.get(part, part) for part in file.relative_to(templates).with_suffix("").parts]
        target = root / "/".join(parts).replace(_WORD, words[_WORD])
        target.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text("utf-8")
        for word, meant in words.items():
            text = text.replace(word, meant)
        target.write_text(text, "utf-8")


def _origin() -> str:
    """The end of a requirement on this build of headrace, such as ` @ git+ADDRESS@COMMIT`.

    Empty where headrace was installed from a package index.
    """
    try:
        text = importlib.metadata.distribution("headrace").read_text("direct_url.json")  # PEP 610
    except importlib.metadata.PackageNotFoundError:
        text = None
    if text is None:
        return ""
    origin = json.loads(text)
    from_repository = origin.get("vcs_info")
    if from_repository:
        return f" @ {from_repository['vcs']}+{origin['url']}@{from_repository['commit_id']}"
    return f" @ {origin['url']}"
