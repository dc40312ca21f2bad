"""What is declared belongs to the project that is loaded: nothing of it stays in a module of the process."""

from __future__ import annotations

import ast
import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dagster_project
import spark_jobs
from dagster_project.deletion.retention import DECLARED_TASKS
from dagster_project.lake_asset import assets_of, declared_asset, keeping_by_dataset
from dagster_project.project.loading import load_definitions
from tests.dagster_project.conftest import WriteDefs
from tests.tiers import is_nightly

_WEB = """\
type: headrace.Dataset
attributes:
  name: web
  source: {kind: files, path: /data/web}
  landing: copy
"""
_SMALL = """\
type: headrace.Corpus
attributes:
  name: small
  datasets: [web]
  tokenizer: {train: {vocabulary_size: 400}}
"""
# Each is a declaration that can be taken out of the YAML of `web`.
_LINES = [
    "retention: {days: 9, then: delete}",
    "freeze_after: {days: 9, to: /cold}",
    "seconds_between_runs: 7",
    "trust: quarantine\n  release: {policy: {malware: 0}}",
    "samples: text",
    "scorers: {heuristics: {}}",
    "variants: {strict: headrace}",
    "redact: {mail: replace}",
    "visibility: {restricted: [one]}",
    "environment: test",
    "owners: ['team:data']",
]
_RUNTIME = {  # what a process does, not what is declared
    "spark_jobs.lake.engine.choice._chosen",
    "spark_jobs.lake.files.scans._KEPT",  # of files that never change
    "spark_jobs.credentials._known",  # values that were looked up, to be hidden in what is printed
    "spark_jobs.lake.engine.embedded._environment",
    "spark_jobs.lake.engine.embedded._meters",
    "spark_jobs.lake.ledger.attempts._under_way",
    "spark_jobs.importing._importable",  # packages that were imported once
    "spark_jobs.lake.engine.embedded._salts",
    "dagster_project.cli.output._originals",
    "dagster_project.executor._INTERRUPTED",
}
_MUTATORS = frozenset(
    ("append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "clear", "remove", "discard")
)


def seen() -> dict[str, Any]:
    """All that the process knows of the project that lies in the working directory."""
    definitions = load_definitions()
    graph = definitions.resolve_asset_graph()
    assets = {
        ".".join(key.path): (one, graph.get(key))
        for key in sorted(graph.get_all_asset_keys())
        for one in [declared_asset(graph, ".".join(key.path))]
    }
    repository = definitions.get_repository_def()
    found = {
        "assets": {
            name: None
            if one is None
            else [one.step.version, str(one.config), str(one.driving_table), str(one.shown), str(one.samples(graph))]
            + [str(value) for value in (vars(one.upkeep) if one.upkeep else {}).values()]
            for name, (one, _) in assets.items()
        },
        "specs": {name: [str(node.metadata), str(node.owners)] for name, (_, node) in assets.items()},
        "keeping": {name: str(one) for name, one in keeping_by_dataset(assets_of(definitions)).items()},
        "jobs": sorted(job.name for job in repository.get_all_jobs()),
        "sensors": sorted(one.name for one in repository.sensor_defs),
    }
    text = re.sub(r" at 0x[0-9a-f]+|Object\w+\(.*?\n?\)", "", json.dumps(found, sort_keys=True))
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def in_a_fresh_process() -> dict[str, Any]:
    """The same, of a process that has loaded nothing before."""
    program = "import json; from tests.dagster_project.test_reloading import seen; print(json.dumps(seen()))"
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r}); {program}"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def declared(lines: list[str]) -> str:
    """The dataset with some declarations."""
    return _WEB + "".join(f"  {line}\n" for line in lines)


def test_what_was_taken_out_of_yaml_is_gone(declare: WriteDefs, defs: Path, lake_env: Path) -> None:
    """Each declaration by itself, all of them, and whole datasets: loaded again equals a fresh process.

    The default tier compares fresh processes at the end alone, the nightly one after each step.
    """
    declare("small", _SMALL)
    public = [line for line in _LINES if not line.startswith(("visibility", "environment"))]
    declare("web", declared(public))
    full = seen()
    assert full["keeping"]["web"].count("None") == 0 and "pace_seconds=7" in str(full)
    for one in public if is_nightly() else public[:2]:
        declare("web", declared([line for line in public if line != one]))
        without = seen()
        assert without != full, one
        assert not is_nightly() or without == in_a_fresh_process(), one
    shutil.rmtree(defs / "small")
    for one in _LINES[-3:-1]:
        declare("web", declared([one]))
        assert not is_nightly() or seen() == in_a_fresh_process(), one
        seen()
    declare("web", declared([]))
    bare = seen()
    assert bare == in_a_fresh_process()
    assert bare["keeping"]["web"].count("None") == 2 and "pace_seconds=7" not in str(bare)
    shutil.rmtree(defs / "web")
    assert seen()["keeping"] == {} and not [name for name in seen()["assets"] if not name.startswith("maintenance")]


@pytest.mark.nightly
def test_no_module_holds_what_functions_put_into_it() -> None:
    """A dictionary, list or set of a module that a function changes would outlive what was loaded, but for runtime."""
    found = set()
    for package in (dagster_project, spark_jobs):
        root = Path(package.__path__[0])
        for file in root.rglob("*.py"):
            tree = ast.parse(file.read_text())
            held = set(itertools.chain.from_iterable(map(_containers, tree.body)))
            module = ".".join(file.relative_to(root.parent).with_suffix("").parts)
            found |= {f"{module}.{name}" for name in held & set(changed_names(tree))}
    assert found == _RUNTIME
    assert DECLARED_TASKS.keys() == {"retention", "freezing"}


def _containers(node: ast.stmt) -> list[str]:
    """Names that a statement of a module binds to a new container."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    makes = isinstance(value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp) or (
        isinstance(value, ast.Call) and ast.unparse(value.func).split("[")[0] in {"dict", "list", "set", "defaultdict"}
    )
    return [one.id for one in targets if makes and isinstance(one, ast.Name)]


def changed_names(tree: ast.Module) -> list[str]:
    """Names whose containers are changed inside of functions, or bound anew there by `global`."""
    inside = [node for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) for node in ast.walk(one)]
    names: list[str] = [name for node in inside if isinstance(node, ast.Global) for name in node.names]
    for node in inside:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
            names += [node.func.value.id] if isinstance(node.func.value, ast.Name) else []
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            names += [node.value.id] if isinstance(node.value, ast.Name) else []
    return names
