"""The guard of code versions: code that decides rows does not change under a version that stays.

See docs/extend/architecture.md, Versions.

`code_versions.json` holds, for every step, its version and a digest of the code behind it: the statements of its own
module and of all first-party modules that it imports, as syntax trees without docstrings, comments, descriptions of
settings, tables and columns, and the names of those modules. So a module that moves, or is split in two, changes no
digest. After a change of the code, one of two things is true:

    rows change         bump version="..." of the step, then  python -m tests.test_code_versions --bumped STEP
    rows stay the same  nothing is computed again;            python -m tests.test_code_versions --equal STEP
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from spark_jobs.features import features
from spark_jobs.lake.declare.step import Step
from spark_jobs.registry import config_model, find_step, step_names

ROOT = Path(__file__).parents[1]
RECORDED = Path(__file__).with_name("code_versions.json")
STEPS = step_names()

# Below every step, with tests of their own; a change there is not a change of one step.
_FOUNDATION = ("spark_jobs.lake", "spark_jobs.lake.declare.step", "spark_jobs.exceptions", "headrace.kernels.compiling")
_OWN = ("spark_jobs", "headrace.kernels", "headrace_features.")
_FIRST_PARTY = ("spark_jobs", "headrace.", "headrace_features.")
_REFERENCE = re.compile(r"(spark_jobs|headrace_features)(\.\w+)+:\w+")  # what is imported when it is asked for
_DECIDES_NO_ROW = {
    # They draw the plots.
    "spark_jobs.packing.utilisation",
    "spark_jobs.dedup.pictures",
    "spark_jobs.tokens.pictures",
    "headrace_features.models.clusters.pictures",
    # What the register holds is a fact of landing, as an answer of an API is; readers of sites' signals do decide rows.
    "headrace_features.rights.landing.answers",
    "headrace_features.rights.hits.matching",
    "headrace_features.rights.register.merkle",
    "headrace_features.rights.landing.permission",
    "headrace_features.rights.register.register",
    "headrace_features.rights.register.subjects",
}

Recorded = dict[str, dict[str, str]]


def step_of(name: str) -> Step:
    """A step of the registry; `packed`, which is made for a dataset and a length, for any of them."""
    values = {"dataset": "any", "window_tokens": 512} if name == "packed" else None
    model = config_model(name)
    return find_step(name, model.model_validate(values) if values else model.model_construct())


def code_digest(made: Step) -> str:
    """SHA-256 over the statements of the step's module and of what it imports, whatever module they stand in."""
    modules = {made.function.__module__, *imported_modules(made.function.__module__) - _DECIDES_NO_ROW}
    return digest_of(_source(module).read_text() for module in modules)


def digest_of(sources: Iterable[str]) -> str:
    """SHA-256 over the set of statements of some modules."""
    found = {text for source in sources for text in _statements(source)}
    return hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()


@functools.cache
def _statements(source: str) -> tuple[str, ...]:
    """The texts of a module's statements; most steps import most of the same modules."""
    return tuple(_texts(ast.parse(source).body))


def tree_text(source: str) -> str:
    """A syntax tree without places, comments, docstrings and empty fields, the same under every version of Python."""
    return _text(ast.parse(source))


def _text(node: object) -> str:
    if isinstance(node, ast.Call):
        node = _without_description(node)
    if isinstance(node, ast.AST):
        fields = [(name, value) for name, value in ast.iter_fields(node) if name not in ("kind", "type_comment")]
        inner = [f"{name}={_text(value)}" for name, value in fields if value is not None and value != []]
        return f"{type(node).__name__}({', '.join(inner)})"
    if isinstance(node, list):
        return f"[{', '.join(_texts(node))}]"
    return repr(node)


def _without_description(call: ast.Call) -> ast.Call:
    """A call without the words for people: `Field(description=..)`, `Table(comment=..)`, the third of `Column`."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    described = [one for one in call.keywords if one.arg not in ("description", "comment")]
    return ast.Call(call.func, call.args[:2] if name == "Column" else call.args, described)


def _texts(nodes: Iterable[object]) -> Iterator[str]:
    """The text of each node of a list; of an import from a first-party module only names that it gives another name.

    Others stand in the statements that use them, and what they name is among the statements of the modules.
    """
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_FIRST_PARTY):
            yield from (_text(one) for one in node.names if one.asname)
        elif not _is_text_alone(node):
            yield _text(node)


def _is_text_alone(node: object) -> bool:
    """Whether a statement is a docstring: a string that nothing is done with."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def imported_modules(module: str) -> set[str]:
    """First-party modules that a module imports or refers to (`module:attribute`), at its top or inside functions.

    Directly or through others. Imports for annotations alone (`if TYPE_CHECKING`) and the foundation below every step
    are left out.
    """
    found: set[str] = set()
    waiting = [module]
    while waiting:
        for name in _imports_of(waiting.pop()):
            below = any(name == part or name.startswith(f"{part}.") for part in _FOUNDATION)
            if name not in found and name != module and not below:
                found.add(name)
                waiting.append(name)
    return found


@functools.cache
def _imports_of(module: str) -> tuple[str, ...]:
    return tuple(_imports(ast.parse(_source(module).read_text())))


def _imports(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (name.name for name in child.names if name.name.startswith(_OWN))
        elif isinstance(child, ast.Constant) and _REFERENCE.fullmatch(str(child.value)):
            yield str(child.value).partition(":")[0]
        elif isinstance(child, ast.Call) and ast.unparse(child.func) == "brought":
            yield from _brought(ast.unparse(child.args[0]).strip("'"))
        elif isinstance(child, ast.ImportFrom) and (child.module or "").startswith(_OWN):
            yield from (_module_of(child.module or "", name.name) for name in child.names)
        yield from _imports(child)


def _brought(group: str) -> Iterator[str]:
    """Modules of what features bring to a group, whether or not their folders are there."""
    entries = (feature.entries.get(group, {}) for feature in features().values())
    yield from (place.partition(":")[0] for names in entries for place in names.values())


def _module_of(package: str, name: str) -> str:
    """The module behind `from package import name`."""
    inner = f"{package}.{name}"
    return inner if (ROOT / f"{inner.replace('.', '/')}.py").is_file() else package


def _source(module: str) -> Path:
    file = ROOT / f"{module.replace('.', '/')}.py"
    return file if file.is_file() else ROOT / module.replace(".", "/") / "__init__.py"


def recorded() -> Recorded:
    """What `code_versions.json` says."""
    found: Recorded = json.loads(RECORDED.read_text())
    return found


def complaint(name: str, made: Step, entry: dict[str, str] | None) -> str | None:
    """What is wrong with a step's entry, and how to mend it; None where nothing is."""
    record = f"python -m tests.test_code_versions --bumped {name}"
    if entry is None:
        return f"{name}: a new step; record its code by `{record}`"
    if entry["version"] != made.version:
        return f"{name}: version {made.version} is new (was {entry['version']}); record its code by `{record}`"
    if entry["sha256"] != code_digest(made):
        return (
            f"{name}: the code of {made.function.__module__} or of its imports changed and its version is still "
            f"{made.version}; where rows change, bump version= and run `{record}`; where they are equal, say so by "
            f"`python -m tests.test_code_versions --equal {name}`"
        )
    return None


@pytest.mark.parametrize("name", STEPS)
def test_code_does_not_change_under_a_version_that_stays(name: str) -> None:
    """Otherwise tables would hold rows of two codes under one step key, and nobody would compute them again."""
    wrong = complaint(name, step_of(name), recorded().get(name))
    assert wrong is None, wrong


def test_the_record_names_no_step_that_is_gone() -> None:
    """Renamed and removed steps leave no entry behind."""
    assert set(recorded()) == set(STEPS)


def test_comments_docstrings_and_layout_are_not_code() -> None:
    """What cannot change a row does not change the digest."""
    plain = "x = 1\ndef f(a):\n    return a + x\nclass C:\n    y: int = Field(1)\nz = Column('z', 'int')\n"
    dressed = (
        '"""Doc."""\nx = 1  # why\n\ndef f(\n    a,\n):\n    """Doc."""\n    return (a + x)\n'
        'class C:\n    y: int = Field(1, description="y")\n    """y."""\nz = Column("z", "int", "z")\n'
    )
    assert tree_text(plain) == tree_text(dressed)


@pytest.mark.parametrize(
    "changed",
    [
        "x = 2\ndef f(a):\n    return a + x\n",
        "x = 1\ndef f(a):\n    return x + a\n",
        "x = '1'\ndef f(a):\n    return a + x\n",
    ],
)
def test_constants_and_operations_are_code(changed: str) -> None:
    """A constant, an order of operands and a type each change the digest."""
    assert tree_text("x = 1\ndef f(a):\n    return a + x\n") != tree_text(changed)


def test_a_move_changes_no_digest() -> None:
    """Code that moves to another module, or a module that is split, decides the same rows; another alias does not."""
    uses = "def h(a):\n    from spark_jobs.b import k\n    return f(k(a)) + x\n"
    whole = f"from spark_jobs.a import f\nx = 1\n{uses}"
    split = f"from spark_jobs.new.a import f\nfrom spark_jobs.constants import x\n{uses.replace('.b', '.new.b')}"
    assert digest_of([whole]) == digest_of([split, "x = 1\n"])
    assert digest_of([whole]) != digest_of([split, "x = 2\n"])
    assert digest_of([whole]) != digest_of([whole.replace("import f", "import g as f")])


def test_the_complaint_says_how_to_mend() -> None:
    """Changed code, a bumped version and a new step are told apart, each with its command."""
    made = step_of("signals")
    good = {"version": made.version, "sha256": code_digest(made)}
    assert complaint("signals", made, good) is None
    assert "--equal signals" in str(complaint("signals", made, {**good, "sha256": "0"}))
    assert "--bumped signals" in str(complaint("signals", made, {**good, "version": "0"}))
    assert "a new step" in str(complaint("signals", made, None))


def main(arguments: list[str]) -> int:
    """Record the code of steps."""
    parser = argparse.ArgumentParser(description="Record the code behind steps in tests/code_versions.json.")
    said = parser.add_mutually_exclusive_group(required=True)
    said.add_argument("--equal", nargs="+", choices=STEPS, metavar="STEP", help="the code changed, its rows did not")
    said.add_argument(
        "--bumped", nargs="+", choices=STEPS, metavar="STEP", help="the step is new, or has a new version"
    )
    given = parser.parse_args(arguments)
    entries = recorded() if RECORDED.exists() else {}
    for name in given.equal or given.bumped:
        made = step_of(name)
        known = entries.get(name, {}).get("version")
        if (known == made.version) != bool(given.equal):
            state = "a new version: say --bumped" if given.equal else "still the one recorded: bump it, or say --equal"
            sys.stderr.write(f"{name}: version {made.version} is {state}\n")
            return 2
        entries[name] = {"version": made.version, "sha256": code_digest(made)}
    RECORDED.write_text(json.dumps({name: entries[name] for name in STEPS if name in entries}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
