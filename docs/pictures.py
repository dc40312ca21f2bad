"""The picture of the lake between its two sides, from the code: `python -m docs.pictures` writes it into its page.

Stages and their order are those of the contract between folders in pyproject.toml, tables those of the
registry of steps, and Blender reads what its modules name. A test compares architecture.md with this picture.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_BEGIN, _END = "<!-- made by python -m docs.pictures -->\n```text\n", "```\n<!-- end -->\n"
_STAGE_WIDTH = 12
_TABLES_WIDTH = 66  # with stage and reader a line of a page
_READ = "  ---> Blender"
_SYSTEM = re.compile(r"system\.\w+")
_TEXT_BLENDS = frozenset({"texts", "tokenizer"})  # a blend of text names them in its config, no module does


def lake() -> str:
    """A line for each stage that writes: its tables, and whether Blender reads one of them."""
    lines = [
        "  files, APIs, git, streams                                  training jobs",
        "            |                                                      ^",
        "     dagster_project   calls                                       | gRPC",
        "            v                                                      |",
        "        spark_jobs     writes ------> the lake ------> reads   blender_service",
        "            |                                                      |",
        "            +-------- agree on what headrace.tables says ----------+",
        "",
        *_below_both(),
        "",
    ]
    for stage, names in _tables().items():
        shown = [f"[{name}]" if _is_read(name) else name for name in names]
        for number, line in enumerate(_wrapped(shown)):
            read = _READ if "[" in line else ""
            lines.append(f"{'' if number else stage:<{_STAGE_WIDTH}}{line:<{_TABLES_WIDTH}}{read}".rstrip())
    return "\n".join(lines) + "\n"


def with_picture(text: str) -> str:
    """The page with the present picture between its two marks."""
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}{lake()}{_END}{rest.partition(_END)[2]}"


def _tables() -> dict[str, list[str]]:
    """The tables of each stage in the order in which data flows; one packed table stands for all."""
    from spark_jobs.registry import config_model, find_step, step_names

    found: dict[str, list[str]] = {stage: [] for stage in _stages()}
    for name in step_names():
        given = {"dataset": "notes", "window_tokens": 2048} if name == "packed" else {}
        step = find_step(name, config_model(name).model_construct(None, **given))
        shown = {name for names in found.values() for name in names}
        found[step.function.__module__.split(".")[1]] += [
            table.name for table in step.tables if table.name not in shown
        ]
    found["lake"] += sorted(filter(_SYSTEM.fullmatch, {*_strings("spark_jobs/lake"), *_named()}))
    return {stage: names for stage, names in found.items() if names}


def _below_both() -> Iterator[str]:
    """A line for each folder of `headrace` that all others may import: its modules, or what it says of itself."""
    *_, lowest = _layers(None)
    for folder in sorted(lowest.split(" : ")):
        path = _ROOT.joinpath(*folder.split("."))
        modules = sorted(file.stem for file in path.glob("*.py") if file.stem != "__init__")
        for number, line in enumerate(_wrapped(modules)):
            yield f"{'' if number else folder:<18}{line}".rstrip()


def _layers(container: str | None) -> list[str]:
    """The layers of a contract between packages (None), or between the folders of one."""
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    wanted = None if container is None else [container]
    return next(one["layers"] for one in contracts if one["type"] == "layers" and one.get("containers") == wanted)


def _stages() -> Iterator[str]:
    """Folders of `spark_jobs` in the order of data, the features, and the lake, which is below them all."""
    from spark_jobs.features import features

    layers = _layers("spark_jobs")
    stages = [stage for layer in reversed(layers) for stage in layer.split(" | ")]
    yield from (stage for stage in stages if stage != "lake")
    yield from (*features(), "lake")


def _is_read(name: str) -> bool:
    """Whether Blender reads it: a packed table, or one that a module of it names."""
    return name.startswith("packed_") or name in _TEXT_BLENDS or (name.startswith("system.") and name in _named())


@functools.cache
def _named() -> frozenset[str]:
    return frozenset(_strings("blender_service"))


def _strings(package: str) -> Iterator[str]:
    """Every text that the modules of a package hold, docstrings aside."""
    for path in sorted((_ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def _wrapped(names: list[str]) -> Iterator[str]:
    line = ""
    for name in names:
        if line and len(line) + len(name) + 2 > _TABLES_WIDTH:
            yield line
            line = ""
        line = f"{line}  {name}" if line else name
    yield line


if __name__ == "__main__":
    page = _ROOT / "docs" / "extend" / "architecture.md"
    page.write_text(with_picture(page.read_text("utf-8")), "utf-8")
