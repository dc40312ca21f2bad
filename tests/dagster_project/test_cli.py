"""`headrace`: what the commands write, print and refuse. A mistake is one line and exit status 2, never a trace."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_project.cli import run_command
from dagster_project.cli.begin.ui import run_until_stopped
from dagster_project.cli.output import original_streams, print_styled, progress_shown
from dagster_project.cli.run.execution import _execute_once, require_done
from dagster_project.cli.run.step_lines import StepLine
from dagster_project.exceptions import CheckFailedError, RunFailedError
from dagster_project.run_plan import PlannedStep
from headrace.tables.settings import settings_at
from spark_jobs.progress import tell
from tests.dagster_project.conftest import WriteDefs
from tests.tiers import sampled

CORPUS = """\
# Whom to keep comes first.
type: headrace.Corpus
attributes:
  name: small   # the name
  datasets: [older]
  window_tokens: [64]
"""
OLDER = """\
type: headrace.Dataset
attributes:
  name: older
  source: {kind: files, path: /nowhere}
"""
Said = pytest.CaptureFixture[str]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of two Markdown files and a compressed file of records."""
    folder = tmp_path / "my notes"
    folder.mkdir()
    (folder / "one.md").write_text("# One\n\nA first note about water and mills.\n")
    (folder / "two.md").write_text("# Two\n\nA second note about channels.\n")
    with gzip.open(folder / "more.jsonl.gz", "wt") as out:
        out.write('{"body": "a record"}\n{"body": "another record", "kind": "code"}\n')
    return folder


def refused(arguments: list[str], capfd: Said) -> str:
    """The one line of a command that ends with status 2."""
    capfd.readouterr()
    assert run_command(arguments) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("headrace: "), f"{out}\n{err}"
    return err.removeprefix("headrace: ").rstrip()


def printed(arguments: list[str], capfd: Said) -> str:
    """What a good command prints."""
    capfd.readouterr()
    status = run_command(arguments)
    out, err = capfd.readouterr()
    assert status == 0, f"{out}\n{err}"
    return out


def from_json(arguments: list[str], capfd: Said) -> Any:
    """What a good command prints with --json: that alone."""
    return json.loads(printed([*arguments, "--json"], capfd))


def json_lines(arguments: list[str], capfd: Said) -> list[Any]:
    """What a good command prints with --json, of the commands that print an object a line."""
    return [json.loads(line) for line in printed([*arguments, "--json"], capfd).splitlines()]


def test_help_waits_for_nothing() -> None:
    """`headrace --help` names every command without Dagster, Spark, torch or PyArrow."""
    code = (
        "import sys, atexit;"
        "heavy = {'dagster', 'pyspark', 'torch', 'pyarrow', 'numpy', 'pyiceberg', 'pydantic', 'grpc'};"
        "atexit.register(lambda: print('HEAVY', sorted(heavy & set(sys.modules))));"
        "from dagster_project.cli import main; main(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
    for command in ("demo", "run", "dataset", "corpus", "table", "doc", "search", "blend", "serve", "ui"):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        "plan",
        "run",
        "dataset",
        "dataset add",
        "corpus",
        "table",
        "table show",
        "doc",
        "doc why",
        "blend",
        "ui",
    ],
)
def test_every_command_explains_itself(command: str, capfd: Said) -> None:
    """--help of each command prints its usage."""
    assert printed([*command.split(), "--help"], capfd).startswith(f"Usage: headrace {command}")


def test_an_unknown_command_or_option_is_told_by_click(capfd: Said) -> None:
    """Status 2, as for every mistake."""
    for arguments in (["nothing"], ["run", "--nothing"], ["dataset", "add"], ["blend", "create"]):
        assert run_command(arguments) == 2
        assert "Error: " in capfd.readouterr().err
    assert run_command(["tabel", "show"]) == 2
    assert "No such command 'tabel'; did you mean 'table'?" in capfd.readouterr().err


def test_adding_a_dataset_writes_what_loads(defs: Path, lake_env: Path, notes: Path, capfd: Said) -> None:
    """The file says what the options said, the path absolute; the project loads it, with the corpus that was made."""
    said = printed(
        [
            *["dataset", "add", "notes", "--from", "my notes", "--text-column", "body", "--metadata-column", "url"],
            *["--metadata-column", "title", "--samples", "text", "--corpus", "small"],
            *["--kind-column", "kind", "--record-kind", "markup"],
        ],
        capfd,
    )
    assert said.splitlines() == [
        "wrote declared/defs/notes/defs.yaml",
        "corpus small: declared/defs/small/defs.yaml names notes",
        "Next: headrace run notes small",
    ]
    from dagster_project.project.declared import declarations
    from dagster_project.project.loading import load_definitions

    ((_, attributes),) = declarations("headrace.Dataset")
    assert attributes == {
        "name": "notes",
        "samples": "text",
        "source": {
            "kind": "files",
            "path": str(notes),
            "text_column": "body",
            "kind_column": "kind",
            "record_kind": "markup",
            "metadata_columns": ["url", "title"],
        },
    }
    ((_, attributes),) = declarations("headrace.Corpus")
    assert attributes == {"name": "small", "datasets": ["notes"], "window_tokens": [2048]}
    groups = {spec.group_name for spec in load_definitions().resolve_all_asset_specs()}
    stages = {f"small_{stage}" for stage in ("members", "duplicates", "tokens", "packed", "measures")}
    assert groups == {"notes", "maintenance", *stages}


def test_a_source_that_is_no_files_is_declared_by_options_too(defs: Path, lake_env: Path, capfd: Said) -> None:
    """Any field by --set, checked as the project checks it; no server is asked, and plan says what it does not know."""
    from dagster_project.project.declared import declarations

    api = ["dataset", "add", "items", "--kind", "api", "--from", "http://127.0.0.1:9/v1/items", "--text-column", "body"]
    assert "source.id_column is missing" in (line := refused(api, capfd)) and "docs/prepare/ingest_api.md" in line
    api += ["--id-column", "id", "--set", "source.paginator.kind=cursor", "--set", "source.paginator.path=meta.next"]
    for given, said in (
        ("paginator=1", "no field paginator"),
        ("source.recods=x", "did you mean 'records'"),
        ("x", "FIELD="),
    ):
        assert said in refused([*api, "--set", given], capfd)
    printed([*api, "--set", "source.limits={tries: 2}", "--set", "trust=quarantine"], capfd)
    (defs.parent / "urls.txt").write_text("http://127.0.0.1:9/x\n")
    printed(["dataset", "add", "web", "--kind", "web", "--from", str(defs.parent / "urls.txt")], capfd)
    (_, items), (file, web) = declarations("headrace.Dataset")
    assert items["trust"] == "quarantine" and items["source"]["paginator"] == {"kind": "cursor", "path": "meta.next"}
    assert items["source"]["limits"] == {"tries": 2} and items["source"]["url"] == "http://127.0.0.1:9/v1/items"
    assert web["source"] == {"kind": "files", "urls": str(defs.parent / "urls.txt")}
    assert file.read_text().startswith("# All that it may say of its source: docs/prepare/ingest.md")
    assert printed(["plan", "web"], capfd).count("nothing was fetched yet; the run asks the source first") == 1


def test_every_origin_is_taken_or_refused(defs: Path, lake_env: Path, notes: Path, capfd: Said) -> None:
    """Of repositories all, in order and each once; a source with one path refuses a second."""
    from dagster_project.project.declared import declarations

    places = [notes.parent / name for name in ("one", "two", "three")]
    for place in places:
        subprocess.run(["git", "init", "-q", str(place)], check=True)
        (place / "a.py").write_text("x = 1\n")
        subprocess.run(["git", "-C", str(place), "add", "."], check=True)
        who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
        subprocess.run(["git", "-C", str(place), *who, "commit", "-qm", "first"], check=True)
    origins = [word for place in [*places, places[0]] for word in ("--from", str(place))]
    printed(["dataset", "add", "code", "--kind", "git", *origins], capfd)
    ((_, declared),) = declarations("headrace.Dataset")
    assert declared["source"]["repositories"] == list(map(str, places))
    said = refused(["dataset", "add", "more", "--text-column", "body", *origins[:4]], capfd)
    assert "--from is given 2 times; a source of kind files has one path" in said


@pytest.mark.nightly
def test_a_plan_says_rows_where_they_are_known(defs: Path, lake_env: Path, tmp_path: Path, capfd: Said) -> None:
    """Of documents one a file, of Parquet what the footers say; else how many files there are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"texts": 3, "tables": 2, "mixed": 0, "lines": 2, "broken": 1}
    for name in kinds:
        (tmp_path / name).mkdir()
    for number in range(3):
        (tmp_path / "texts" / f"{number}.md").write_text(f"Text {number} about mills.")
    for number, rows in enumerate((40_000, 7)):
        pq.write_table(pa.table({"body": ["a record"] * rows}), tmp_path / "tables" / f"{number}.parquet")
    shutil.copy(tmp_path / "tables" / "1.parquet", tmp_path / "mixed")
    shutil.copy(tmp_path / "texts" / "1.md", tmp_path / "mixed")
    for number in range(2):
        (tmp_path / "lines" / f"{number}.jsonl").write_text('{"body": "a record"}\n' * 9)
    (tmp_path / "broken" / "a.parquet").write_bytes(b"PAR1 no footer PAR1")
    wanted = {"texts": (3, 3), "tables": (40_007, 2), "mixed": (8, 2), "lines": (None, 2), "broken": (None, 1)}
    for name in wanted:
        column = [] if name == "texts" else ["--set", "source.text_column=body"]
        printed(["dataset", "add", name, "--from", str(tmp_path / name), *column], capfd)
    steps = {step["table"]: step for step in json_lines(["plan", *wanted], capfd)}
    lines = {line.split()[0]: line for line in printed(["plan", *wanted], capfd).splitlines() if line}
    for name, (rows, files) in wanted.items():
        places = steps[f"{name}.documents"]["places"]
        assert [(place["rows"], place["files"]) for place in places] == [(rows, files)], name
        line = lines[f"{name}.documents"]
        assert (f"~{rows:,} rows" if rows else f" {files} files ") in line, line


def test_facts_about_repositories_are_options(defs: Path, lake_env: Path, notes: Path, capfd: Said) -> None:
    """Columns by fact, or a file, whose path is made absolute as that of the source is."""
    from dagster_project.project.declared import declarations

    (notes / "more.jsonl.gz").unlink()
    (notes / "more.jsonl").write_text('{"body": "a record", "repo": "r", "parent": "q", "stargazers": 3}')
    given = ["--from", str(notes), "--text-column", "body", "--repository-column", "repo"]
    facts = ["--fact-column", "fork_of=parent", "--fact-column", "stars=stargazers"]
    printed(["dataset", "add", "one", *given, *facts], capfd)
    (notes.parent / "facts.jsonl").write_text("{}")
    printed(["dataset", "add", "two", *given, "--repositories", str(notes.parent / "facts.jsonl")], capfd)
    (_, one), (_, two) = declarations("headrace.Dataset")
    assert one["source"]["fact_columns"] == {"fork_of": "parent", "stars": "stargazers"}
    assert two["source"]["repositories"] == str(notes.parent / "facts.jsonl")


def test_a_corpus_that_takes_a_dataset_in_keeps_its_comments(
    declare: WriteDefs, lake_env: Path, notes: Path, capfd: Said
) -> None:
    """One entry more, at the end: the others keep their right of way; every other byte of the file stays."""
    declare("older", OLDER)
    file = declare("small", CORPUS)
    printed(["dataset", "add", "notes", "--from", str(notes), "--text-column", "body", "--corpus", "small"], capfd)
    assert file.read_text() == CORPUS.replace("[older]", "[older, notes]")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Notes"], "table 'Notes.documents': write namespace.table"),
        (["system"], "the namespace 'system' is reserved"),
        (["older"], "older: a dataset or corpus of this name is declared already"),
        (["small"], "small: a dataset or corpus of this name is declared already"),
        (["notes", "--corpus", "My-Corpus"], "table 'My-Corpus.increments': write namespace.table"),
        (["notes", "--corpus", "older"], "--corpus older: this is the name of a dataset"),
        (["notes", "--corpus", "notes"], "--corpus notes: this is the name of a dataset"),
        (["notes", "--corpus", "taken"], "--corpus taken: declared/defs/taken/defs.yaml is there already"),
        (["taken"], "dataset taken: declared/defs/taken/defs.yaml is there already"),
        (["notes", "--from", "/nowhere"], "/nowhere"),
        (["notes", "--from", ""], "--from is empty"),
        (["notes", "--glob", "*.none"], "dataset notes: the source holds no file"),
        (
            ["notes", "--record-kind", "proze"],
            "--record-kind proze: no kind; did you mean 'prose'? (there are code, pro",
        ),
        (["notes", "--record-kind", "1"], "--record-kind 1: no kind (there are code, prose, markup, data)"),
        (
            ["notes", "--kind-column", "knd"],
            "--kind-column knd: more.jsonl.gz has no such column; did you mean 'kind'?",
        ),
        (["notes", "--id-column", "x"], "--id-column x: more.jsonl.gz has no such column (there are body, kind)"),
        (["notes", "--text-column", "text"], "--text-column text: more.jsonl.gz has no such column"),
        (["notes", "--fact-column", "stars"], "--fact-column stars: write FACT=COLUMN"),
        (["notes", "--fact-column", "stars=n"], "repository_column is missing"),
        (["notes", "--repository-column", "r", "--fact-column", "starz=n"], "fact_columns.starz"),
        (["notes", "--repositories", "/nowhere.jsonl"], "/nowhere.jsonl"),
    ],
)
def test_a_dataset_that_cannot_be_is_refused_before_anything_is_written(
    declare: WriteDefs, defs: Path, lake_env: Path, notes: Path, capfd: Said, arguments: list[str], said: str
) -> None:
    """Names, paths and corpora are checked first: the folder is as it was."""
    declare("older", OLDER)
    declare("small", CORPUS)
    declare("taken", "type: headrace.Dataset\nattributes: {name: other, source: {kind: files}}\n")
    before = {file: file.read_bytes() for file in defs.rglob("*") if file.is_file()}
    usual = {"--from": str(notes), "--text-column": "body"}
    beside = [word for option in usual.items() if option[0] not in arguments for word in option]
    line = refused(["dataset", "add", *beside, *arguments], capfd)
    assert said in line
    assert {file: file.read_bytes() for file in defs.rglob("*") if file.is_file()} == before


def test_records_without_a_text_column_are_refused(defs: Path, lake_env: Path, notes: Path, capfd: Said) -> None:
    """Parquet and JSONL need a column; the line says which option to give."""
    assert "text_column" in refused(["dataset", "add", "notes", "--from", str(notes)], capfd).replace("-", "_")
    assert [file.name for file in defs.iterdir()] == ["__init__.py"]


def test_broken_yaml_is_one_line_for_every_command(declare: WriteDefs, lake_env: Path, capfd: Said) -> None:
    """The line names file and line of the file."""
    declare("faulty", "type: [a\nb: {\n")
    for command in (["run"], ["dataset", "show"], ["corpus", "show"], ["dataset", "add", "notes", "--from", "."]):
        assert refused(command, capfd).startswith("declared/defs/faulty/defs.yaml, line 2: ")


@pytest.mark.parametrize("text", ["{}", "{name: 3}", "{name: notes}", "{name: notes, source: files}", "[]"])
def test_a_declaration_without_its_attributes_is_one_line(
    declare: WriteDefs, lake_env: Path, capfd: Said, text: str
) -> None:
    """What the lists need is asked for by name."""
    declare("faulty", f"type: headrace.Dataset\nattributes: {text}\n")
    assert refused(["dataset", "show"], capfd).startswith("declared/defs/faulty/defs.yaml: attributes: ")


def test_an_empty_project_says_how_to_begin(defs: Path, lake_env: Path, capfd: Said) -> None:
    """Lists of nothing name the next command; --json is an empty list."""
    assert "headrace dataset add NAME --from PATH" in printed(["dataset", "show"], capfd)
    assert "headrace dataset add NAME --from PATH" in printed(["corpus", "show"], capfd)
    assert "headrace run" in printed(["table", "show"], capfd)
    for noun in ("dataset", "corpus", "table"):
        assert from_json([noun, "show"], capfd) == []


@sampled(3)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nothing"], "selection 'nothing' names no dataset, corpus or table (there are maintenance, older)"),
        (["run", "oldr"], "selection 'oldr' names no dataset, corpus or table; did you mean 'older'?"),
        (
            ["run", "older.txts"],
            "selection 'older.txts' names no dataset, corpus or table; did you mean 'older.texts'?",
        ),
        (["run", "oldr/texts"], "selection 'oldr/texts' names no dataset, corpus or table; did you mean 'older'?"),
        (["run", "group:oldr"], "selection 'group:oldr' names no dataset, corpus or table; did you mean 'older'?"),
        (["run", "group:"], "selection 'group:' names no dataset, corpus or table (there are maintenance, older)"),
        (
            ["run", "older", "--partition", "2024-01-01"],
            "--partition 2024-01-01: no table of the selection has partitions",
        ),
        (["table", "show", "older.texts"], "table older.texts is not in the lake; `headrace table show` shows"),
        (
            ["table", "show", "older"],
            "namespace older is not in the lake; there are none yet; a table is NAMESPACE.",
        ),
        (["table", "delete", "older.texts", "--yes"], "table older.texts is not in the lake"),
        (["maintain", "--only", "compaction", "older.texts"], "table older.texts is not in the lake"),
        (["maintain", "--only", "expiry", "older.texts"], "table older.texts is not in the lake"),
        (["corpus", "refresh", "none", "--yes"], "corpus none is not declared; `headrace corpus show`"),
    ],
)
def test_what_is_not_there_is_named(
    declare: WriteDefs, lake_env: Path, capfd: Said, arguments: list[str], said: str
) -> None:
    """Selections, tables, corpora, partitions: one line, with what there is."""
    declare("older", OLDER)
    assert said in refused(arguments, capfd)


def test_a_taken_port_is_one_line(defs: Path, lake_env: Path, capfd: Said) -> None:
    """The interface does not start, and says what to give."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused(["ui", "--port", str(port)], capfd)
    assert line == f"port {port} on 127.0.0.1: Address already in use; choose another with --port"


@sampled(2)
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("deaf", [False, True], ids=["ends", "deaf"])
def test_the_interface_leaves_no_process_behind(sign: signal.Signals, deaf: bool) -> None:
    """A signal to the command alone ends what it started, and what that started, even where that does not listen."""
    deafness = "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN);"
    below = f"import signal, time; {deafness if deaf else ''} print('up', flush=True); time.sleep(600)"
    program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {below!r}]).wait()"
    command = (  # as from the background of a script, where interrupts are ignored, but not under nohup
        "import os, signal, sys; from dagster_project.cli.begin.ui import run_until_stopped;"
        "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_DFL);"
        f"sys.exit(run_until_stopped([sys.executable, '-c', {program!r}], os.environ))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as started:
        assert started.stdout is not None and started.stdout.readline() == "up\n"
        started.send_signal(sign)
        try:
            rest, _ = started.communicate(timeout=60)  # ends when nobody holds the pipe any more
        finally:
            started.kill()
    assert (rest, started.returncode) == ("", 0)


def test_the_status_of_a_program_that_ends_by_itself_is_given() -> None:
    """Not taken for a stop."""
    assert run_until_stopped([sys.executable, "-c", "raise SystemExit(7)"], os.environ) == 7


@pytest.mark.parametrize("host", ["nowhere.invalid", "203.0.113.1"])
def test_a_host_that_is_not_here_is_one_line(defs: Path, lake_env: Path, capfd: Said, host: str) -> None:
    """Names that do not resolve, and addresses of other machines."""
    assert refused(["ui", "--host", host], capfd).startswith(f"port 3000 on {host}: ")


def test_settings_without_a_warehouse_are_one_line(
    defs: Path, lake_env: Path, capfd: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a catalogue's settings are refused, with the variable to set."""
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE")
    for command in (["run"], ["table", "show"], ["dataset", "show"]):
        assert "set PYICEBERG_CATALOG__LAKE__WAREHOUSE" in refused(command, capfd)


@pytest.mark.parametrize("command", [["table", "show"], ["dataset", "show"], ["run", "older"]])
def test_a_catalogue_that_cannot_be_reached_is_one_line(
    declare: WriteDefs, lake_env: Path, capfd: Said, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """A folder that cannot be made, before any step starts: the line names the catalogue."""
    declare("older", OLDER)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "sqlite:////proc/nowhere/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", str(lake_env))
    assert refused(command, capfd).startswith("catalogue lake")


@pytest.mark.parametrize("place", ["", "catalog.db", "dagster"])
def test_a_lake_that_may_not_be_written_is_one_line(
    declare: WriteDefs, lake_env: Path, capfd: Said, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Before any step starts, simulated as the tests may run as root; what only reads goes on."""
    declare("older", OLDER)
    printed(["table", "show"], capfd)
    (lake_env / "dagster").mkdir()
    refusing = str(lake_env / place)
    monkeypatch.setattr(os, "access", lambda path, mode: not (str(path) == refusing and mode == os.W_OK))
    assert refused(["run", "older"], capfd).startswith(f"{refusing}: may not be written by this user; ")
    printed(["table", "show"], capfd)


def test_debug_shows_the_whole_trace(defs: Path, lake_env: Path, capfd: Said) -> None:
    """With --debug the error itself comes out."""
    from dagster_project.exceptions import CommandError

    with pytest.raises(CommandError, match="corpus none is not declared"):
        run_command(["--debug", "corpus", "refresh", "none", "--yes"])


@pytest.mark.nightly
def test_a_debugged_program_shows_python_trace(tmp_path: Path) -> None:
    """As a program: one line without --debug, a trace with it."""
    environment = {**_environment(tmp_path), "HEADRACE_DEBUG": ""}
    command = [sys.executable, "-m", "dagster_project.cli"]
    arguments = ["table", "show", "no.table"]
    plain = subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment, check=False)
    assert (plain.returncode, plain.stderr.count("\n")) == (2, 1)
    traced = subprocess.run(
        [*command, "--debug", *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert "Traceback" in traced.stderr and "CommandError" in traced.stderr


def _environment(root: Path) -> dict[str, str]:
    values = settings_at(root).properties
    return {**os.environ, **{f"PYICEBERG_CATALOG__LAKE__{k.upper()}": v for k, v in values.items()}}


@pytest.mark.nightly
def test_a_dataset_runs_and_its_tables_are_shown(
    spark: object, defs: Path, lake_env: Path, notes: Path, capfd: Said
) -> None:
    """From `dataset add` over `run` to the lists: one line a table, then `unchanged`, then what each table holds."""
    (notes / "odd.csv").write_text('body\n"never closed')
    (notes / "binary.md").write_bytes(b"\0")
    printed(["dataset", "add", "notes", "--from", str(notes), "--text-column", "body", "--corpus", "small"], capfd)
    engine, *lines = printed(["run", "notes"], capfd).splitlines()
    assert engine.startswith("engine: ")
    order = [line.split()[0] for line in lines[:-3]]
    tables = (
        "arrivals",
        "dependencies",
        "dependency_methods",
        "documents",
        "provenance",
        "repositories",
        "signals",
        "texts",
        "verdicts",
    )
    assert sorted(order) == [f"notes.{table}" for table in tables]
    assert order.index("notes.texts") < order.index("notes.signals") < order.index("notes.verdicts")
    assert all(" computed " in line and line.endswith("increments 0") for line in lines[:-3])
    assert lines[-1] == "9 tables: 9 computed, 0 unchanged. Look: headrace ui"
    assert lines[-2] == "notes: +3 ~0 -0 files; 0 -> 4 documents"
    told, _, shows = lines[-3].partition("; look: headrace ")
    assert told == "notes.arrivals: 3 of 7 rejected: bad_record 1, binary 1, no_usable_record 1"
    rejected = from_json(shlex.split(shows), capfd)
    assert {row["location"].rpartition("/")[2]: row["reason"] for row in rejected} == {
        "binary.md": "binary",
        "odd.csv": "no_usable_record",
        "odd.csv#line:2": "bad_record",
    }
    _what_rows_show(capfd)

    again = json_lines(["run", "notes.documents", "--select", "notes.texts"], capfd)
    assert {row["status"] for row in again} == {"unchanged"}
    assert [row["table"] for row in again] == [
        *("notes.documents", "notes.repositories", "notes.provenance", "notes.arrivals"),
        "notes.texts",
    ], "a table selects all that its step writes"
    assert {row["table"]: row["rows"] for row in again}["notes.documents"] == 4
    _what_the_page_of_an_asset_says()

    (row,) = from_json(["dataset", "show"], capfd)
    assert (row["dataset"], row["source"], row["increments"], row["documents"]) == ("notes", "files", 1, 4)
    (row,) = from_json(["corpus", "show"], capfd)
    counts = {"increments": 0, "documents": 0, "kept": 0, "windows": {"2048": 0}}
    assert row == {"corpus": "small", "datasets": "notes", **counts}
    assert "notes" in printed(["dataset", "show"], capfd) and "small" in printed(["corpus", "show"], capfd)

    rows = {row["table"]: row["rows"] for row in from_json(["table", "show", "notes"], capfd)}
    assert rows["notes.documents"] == rows["notes.texts"] == rows["notes.verdicts"] == 4
    shown = from_json(["table", "show", "notes.texts"], capfd)
    assert shown["increments"][0]["rows"] == 4 and shown["increments"][0]["data_version"].startswith("v2:4:")
    assert {column["column"] for column in shown["columns"]} >= {"increment", "doc_id", "content", "edits"}
    assert all(column["meaning"] for column in shown["columns"])
    text = printed(["table", "show", "notes.texts"], capfd)
    assert text.startswith("notes.texts: ") and "doc_id" in text

    _what_landed_is_there(notes, capfd)
    _what_ran(capfd)
    assert "has not been materialized" in refused(["corpus", "refresh", "small", "--yes"], capfd)
    assert "dropped notes.verdicts" in printed(["table", "delete", "notes.verdicts", "--yes"], capfd)
    last = json_lines(["run", "notes.verdicts"], capfd)
    assert [(row["table"], row["status"], row["rows"]) for row in last] == [("notes.verdicts", "computed", 4)]


def _what_ran(capfd: Said) -> None:
    """The run, its selection, by whom, and what it changed; nothing is loaded for that."""
    (row,) = from_json(["runs"], capfd)
    assert (row["what"], row["state"], row["computed"], row["failed"]) == ("run notes", "success", 9, "-")
    said = from_json(["run", "--last"], capfd)
    assert said["changes"] == ["notes: +3 ~0 -0 files; 0 -> 4 documents"] and len(said["computed"]) == 9
    assert printed(["run", "--last"], capfd).splitlines()[-1] == said["changes"][0]
    assert "takes --json" in refused(["run", "notes", "--last"], capfd)


def _what_landed_is_there(notes: Path, capfd: Said) -> None:
    """A document leads to the bytes of its file or line; an edited file is named, and not shown for what landed."""
    found = from_json(["doc", "show", "--source", "one.md", "--output", str(notes.parent / "bytes")], capfd)
    assert found["file"]["location"] == str(notes / "one.md") and found["unit"] is None
    assert (notes.parent / "bytes").read_bytes() == (notes / "one.md").read_bytes()
    record = next(
        row["doc_id"]
        for row in from_json(["table", "show", "notes.documents", "--rows", "9"], capfd)
        if row["path"].startswith("more.jsonl.gz#") and row["byte_count"] == len("another record")
    )
    said = printed(["doc", "show", "--source", record, "--output", str(notes.parent / "line")], capfd)
    assert "line      2: bytes 21 to " in said
    assert (notes.parent / "line").read_bytes() == b'{"body": "another record", "kind": "code"}'
    assert "what landed is as it landed" in printed(["dataset", "verify", "notes"], capfd)
    before = (notes / "one.md").read_bytes()
    (notes / "one.md").write_bytes(before.upper())
    assert "was changed since it landed: its SHA-256 is " in refused(["doc", "show", "--source", "one.md"], capfd)
    assert run_command(["dataset", "verify", "notes"]) == 3
    (notes / "one.md").write_bytes(before)


def _what_rows_show(capfd: Said) -> None:
    """Rows by the policy for samples: ids show all but the texts, in conditions too; the ledger is a table as well."""
    text = printed(["table", "show", "notes.documents", "--rows", "1", "--where", "path = 'one.md'"], capfd)
    assert "path            one.md" in text and "A first note" not in text
    assert text.endswith("content: texts, shown where the declaration of notes.documents says `samples: text`\n")
    for condition, said in {
        "content = 'x'": "content holds texts, which the declaration of the table hides",
        "pth = 'x'": "no column pth; did you mean 'path'?",
        "of no form": "not a condition; write e.g. --where",
        "byte_count = 'x'": "Could not convert x into a long",
    }.items():
        assert said in refused(["table", "show", "notes.documents", "--where", condition], capfd)
    assert printed(["table", "show", "notes.documents", "--where", "path = 'x'"], capfd).startswith(
        "notes.documents has no such row"
    )
    assert "did you mean 'notes.texts'?" in refused(["table", "show", "notes.text"], capfd)
    assert "table_uuid" in printed(["table", "show", "system.materializations"], capfd)
    assert len(from_json(["table", "show", "system.materializations", "--rows", "3"], capfd)) == 3
    ledger = {row["table"]: row["rows"] for row in from_json(["table", "show", "system"], capfd)}
    assert ledger["system.materializations"] == 9


def _what_the_page_of_an_asset_says() -> None:
    """After a run that had nothing to do, it is as before: seconds, rejections by reason, and the warning."""
    import dagster as dg

    with dg.DagsterInstance.get() as instance:
        asset = dg.AssetKey(["notes", "arrivals"])
        event = instance.get_latest_materialization_event(asset)
        assert event is not None and event.asset_materialization is not None
        values = {name: value.value for name, value in event.asset_materialization.metadata.items()}
        (records,) = instance.event_log_storage.get_latest_asset_check_execution_by_key(
            [dg.AssetCheckKey(asset, "nothing_rejected")]
        ).values()
    assert values["skipped"] is False and values["seconds"] > 0 and values["dagster/row_count"] == 6
    assert values["rejected"] == {"bad_record": 1, "binary": 1, "no_usable_record": 1}
    evaluation = records.event.dagster_event.asset_check_evaluation_data
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)


def test_a_plan_says_what_and_why_before_anything_is_there(
    defs: Path, lake_env: Path, notes: Path, capfd: Said
) -> None:
    """An empty lake: the files of the dataset and all that follows, as text, JSON and Markdown; nothing is written."""
    printed(["dataset", "add", "notes", "--from", str(notes), "--text-column", "body", "--corpus", "small"], capfd)
    text = printed(["plan", "notes"], capfd).splitlines()
    assert text[0].split()[:4] == ["notes.documents", "0", "3", "files"] and "files: 3 new or changed" in text[0]
    assert text[-1] == "9 tables: 9 to compute; how long it takes is not known: none of them was ever computed"
    found = {one["table"]: one for one in json_lines(["plan"], capfd)}
    assert found["small.tokens"]["status"] == "compute"
    assert found["small.increments"]["places"][0]["reason"] == "new increment: notes.arrivals[0]"
    assert found["notes.documents"]["tables"] == [
        *("notes.documents", "notes.repositories", "notes.provenance", "notes.arrivals"),
    ]
    assert json_lines(["run", "--dry-run"], capfd) == list(found.values())
    comment = printed(["plan", "notes", "--markdown"], capfd)
    assert comment.startswith("| table | place | why |") and "notes.texts" in comment
    assert run_command(["plan", "notes.texts"]) == 2, "a run of it would fail"
    assert "1 of 1 steps will fail; first notes.texts: notes.arrivals has not been" in capfd.readouterr().err
    assert printed(["table", "show"], capfd).startswith("The lake has no table yet")


def test_the_status_of_a_run_tells_checks_from_failures() -> None:
    """Rows that a check refused end with status 3, other failures with 4; the line says which, and what to type."""
    done = StepLine("a.b", 1, 0.0, "computed", "increments 0")
    broken = StepLine("a.c", 0, 0.0, "failed", "no file")
    refusing = StepLine("a.d", 0, 0.0, "failed", "2 rows fail", failed_check="key_is_unique")
    left = StepLine("a.e", 0, 0.0, "left", "a.c")
    require_done([done], "headrace run")
    for lines, error in (([broken, left, refusing], RunFailedError), ([done, refusing, broken], CheckFailedError)):
        with pytest.raises(RunFailedError, match=r"^2 of 3 tables failed \(a\.., a\..\).*: headrace run a$") as raised:
            require_done(lines, "headrace run a")
        assert type(raised.value) is error
    with pytest.raises(RunFailedError, match=r"^1 of 2 tables failed \(a.c\), 1 that depend on it were left; mend the"):
        require_done([broken, left], "headrace run")


def test_a_failed_step_is_told_and_ends_with_status_four(
    spark: object, declare: WriteDefs, lake_env: Path, capfd: Said
) -> None:
    """A path that has gone since the declaration: one line says so, others what was left and what to type then."""
    declare("older", OLDER)
    assert run_command(["run", "older"]) == 4
    out, err = capfd.readouterr()
    engine, foretold, failed, left, counts = out.splitlines()
    assert engine.startswith("engine: ")
    assert foretold.startswith("will fail: /nowhere: ") and out.count("/nowhere") == 1
    assert failed.startswith("older.documents ") and failed.endswith(" s  failed    as said above")
    assert "rows" not in failed and "Traceback" not in err
    assert left.startswith("left, because older.documents failed: older.texts, ")
    assert counts.startswith("6 tables: 0 computed, 0 unchanged, 1 failed, 5 left. ")
    [last] = err.splitlines()
    assert last.startswith("headrace: 1 of 6 tables failed (older.documents), 5 that depend on it were left; mend ")
    assert last.endswith("then: headrace run older")


def test_lines_reach_the_terminal_while_standard_output_is_turned_away(tmp_path: Path, capfd: Said) -> None:
    """Dagster sends standard output into its compute logs during a run; the lines of `headrace run` do not go there."""
    with original_streams(), (tmp_path / "log").open("w") as log:
        own = os.dup(1)
        os.dup2(log.fileno(), 1)
        try:
            print_styled("one line", "green")
        finally:
            os.dup2(own, 1)
            os.close(own)
    assert capfd.readouterr().out == "one line\n"
    assert (tmp_path / "log").read_text() == ""


def test_what_takes_long_is_told_on_standard_error_but_never_with_json(capfd: Said) -> None:
    """Also while Dagster redirects it, and nowhere once the command has ended."""
    for shown in (True, False):
        with progress_shown(shown), original_streams():
            tell("starting")
    tell("nobody asked")
    assert capfd.readouterr() == ("", "starting\n")


def test_every_table_of_a_run_has_a_line() -> None:
    """One that was made and one that failed, shown as they come and given in the end."""

    @dg.asset(key=["notes", "good"])
    def good() -> dg.MaterializeResult[Any]:
        """Made."""
        return dg.MaterializeResult(metadata={"dagster/row_count": 3, "skipped": False, "detail": "all"})

    @dg.multi_asset(name="notes__bad", specs=[dg.AssetSpec(["notes", "bad"])])
    def bad() -> None:
        """Not made."""
        raise ValueError("no such file")

    shown: list[StepLine] = []
    steps = [PlannedStep((good.key,), None, None), PlannedStep(tuple(bad.keys), None, None)]
    definitions = dg.Definitions(assets=[good, bad], executor=dg.in_process_executor)
    job = definitions.resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        lines = _execute_once(definitions, job, instance, str(uuid.uuid4()), steps, None, shown.append, {})
    assert lines == shown
    assert {(line.table, line.status, line.detail) for line in lines} == {
        ("notes.good", "computed", "all"),
        ("notes.bad", "failed", "ValueError: no such file"),
    }
