"""Where no lake is: what reads makes none, what is there is opened, and what was looked for is named."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from dagster_project.cli import run_command
from headrace.tables.exceptions import CatalogueError
from headrace.tables.settings import load_settings, settings_at
from spark_jobs.lake.session.catalogue import open_catalogue, open_to_read
from tests.dagster_project.conftest import WriteDefs
from tests.dagster_project.test_command_tree import EXAMPLES
from tests.tiers import sampled

Said = pytest.CaptureFixture[str]

MAKES = {
    *("demo", "init", "ui", "run", "export", "dataset add"),  # make a project, a lake or files
    *("model add", "evals add", "policy add", "worker"),  # enter something into a lake, or serve one
}
SERVERS = {"explore", "mcp", "serve"}
FORMS = {
    "plan": ["", "--json", "--markdown"],
    "status": ["", "--json", "--cost", "--check", "--prometheus"],
    "runs": ["", "--training", "--json"],
    "dataset show": ["", "notes 10", "notes --card"],
    "corpus show": ["", "main", "main --card", "main --thresholds"],
    "table show": ["", "notes", "notes.documents", "notes.documents --rows 5"],
    "doc show": ["a.md", "a.md --duplicates", "a.md --source", "a.md --windows"],
    "policy show": ["", "fineweb"],
    "model show": ["", "educational"],
    "evals show": ["", "main"],
    "release": ["", "first"],
    "blend show": ["", "half", "half 17 --rows 8"],
    "quarantine show": ["", "web --increment 3"],
    "experiment show": ["", "filtering"],
    "doctor": [""],
}
COMMANDS = [
    (name, form)
    for name in sorted(EXAMPLES.keys() - MAKES)
    for form in dict.fromkeys([*FORMS.get(name, []), *([EXAMPLES[name]] if name not in SERVERS | {"doctor"} else [""])])
]


def everything(folder: Path) -> list[str]:
    """What lies in a folder, but for compiled modules."""
    found = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return sorted(str(path.relative_to(folder)) for path in found)


@pytest.fixture(params=["nothing", "project"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder without a lake: empty, or a project that was never run."""
    for name in ("DAGSTER_HOME", "HEADRACE_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    if request.param == "project":
        folder = request.getfixturevalue("defs").parents[1]
        source = tmp_path / "source"
        source.mkdir()
        (source / "a.md").write_text("A text about mills.")
        declare: WriteDefs = request.getfixturevalue("declare")
        declare(
            "notes", f"type: headrace.Dataset\nattributes: {{name: notes, source: {{kind: files, path: {source}}}}}\n"
        )
    else:
        folder = tmp_path / "empty"
        folder.mkdir()
        monkeypatch.chdir(folder)
    (folder / "judged.json").write_text("{}")
    monkeypatch.setenv("HEADRACE_DEBUG", "")
    yield folder


@sampled(30)
@pytest.mark.parametrize(("name", "form"), COMMANDS, ids=[f"{n} {f}".strip() for n, f in COMMANDS])
def test_a_command_that_reads_makes_nothing(name: str, form: str, place: Path, capfd: Said) -> None:
    """It says in one line that there is no lake, or what an empty one has; the folder stays as it was."""
    if name in SERVERS and place.name != "empty":
        pytest.skip("in a project they wait for the lake that its first run fills")
    before = everything(place)
    status = run_command([*name.split(), *shlex.split(form)])
    out, err = capfd.readouterr()
    assert everything(place) == before, f"{out}\n{err}"
    assert status in (0, 2), f"{out}\n{err}"
    if status:
        assert err.count("\n") == 1 and err.startswith("headrace: "), err
    elif place.name == "empty":
        assert name in ("doctor", "features", "policy show"), f"it reads no lake: {out}"


def test_a_configured_lake_in_a_folder_that_is_not_there_is_refused(
    defs: Path, monkeypatch: pytest.MonkeyPatch, capfd: Said
) -> None:
    """More likely a slip than a lake to be made, in a project too."""
    for key, value in settings_at(Path("/nowhere/lake")).properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", value)
    assert run_command(["table", "show"]) == 2
    assert "catalogue lake at /nowhere/lake/catalog.db: its folder is not there" in capfd.readouterr().err


def test_connect_opens_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the folder of a lake or that of its project; a folder without one is named, and stays as it is."""
    monkeypatch.chdir(tmp_path)
    project = tmp_path / "project"
    (project / "below").mkdir(parents=True)
    (project / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "mine"\n')
    for folder in (project, project / "typo", "/nowhere/at/all", None):
        with pytest.raises(CatalogueError, match=r"no lake is there: looked for .*catalog\.db"):
            headrace.connect(folder)
    assert everything(tmp_path) == ["project", "project/below", "project/pyproject.toml"]
    open_catalogue(settings_at(project / "warehouse")).create_namespace("notes")
    before = everything(tmp_path)
    for folder in (project, project / "warehouse", project / "warehouse" / "catalog.db"):
        assert headrace.connect(folder).tables() == []
    with pytest.raises(CatalogueError, match="set PYICEBERG_CATALOG__LAKE__URI") as refusal:
        headrace.connect("postgresql://me:secret@host/lake")
    assert "secret" not in str(refusal.value)
    monkeypatch.chdir(project / "below")
    assert load_settings().warehouse == str(project / "warehouse"), "of the project that the folder lies in"
    assert headrace.connect().tables() == []
    assert ("notes",) in open_to_read(load_settings()).list_namespaces()
    made = [name for name in everything(tmp_path) if name not in before]
    assert all(name.endswith(("-wal", "-shm")) for name in made), "of the connections of SQLite alone"
