"""Every step as a program: between Parquet files and tables, with help, configs and mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.__main__ import main
from spark_jobs.registry import config_model, step_names
from spark_jobs.text.texts import texts
from tests.tiers import on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a lake of its own."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def environment(root: Path) -> dict[str, str]:
    """A lake in a folder, as environment variables."""
    return {
        "PYICEBERG_CATALOG__LAKE__URI": f"sqlite:///{root}/lake/catalog.db",
        "PYICEBERG_CATALOG__LAKE__WAREHOUSE": f"{root}/lake",
        "HEADRACE_SPARK_MASTER": "local[2]",
        "HEADRACE_SPARK_MEMORY": "1g",
    }


def write_documents(path: Path, contents: list[str], increment: int = 0) -> None:
    """Documents as a Parquet file, with the columns that `texts` reads."""
    from spark_jobs.sources.documents import DOCUMENTS

    count = len(contents)
    values = {
        "increment": [increment] * count,
        "shard": [0] * count,
        "doc_id": [f"{increment}{number:031d}" for number in range(count)],
        "path": [f"{number}.md" for number in range(count)],
        "kind": ["prose"] * count,
        "content": contents,
        "encoding": ["utf-8"] * count,
        "content_sha256": ["0" * 64] * count,
        "byte_count": [len(text) for text in contents],
    }
    schema = pa.schema([field.with_nullable(True) for field in DOCUMENTS.schema().as_arrow()])
    rows = [{name: column[row] for name, column in values.items()} for row in range(count)]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit status, output and errors of the program, run in this process."""
    status = main(words)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_without_a_step_all_steps_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """The text says how to go on."""
    status, output, _ = run(capsys)
    assert status == 0
    assert all(name in output for name in step_names())


@pytest.mark.parametrize("name", step_names())
def test_every_step_has_help_made_from_its_config(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each value of the config with its meaning, inputs and tables."""
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    output = capsys.readouterr().out
    assert ended.value.code == 0
    assert "--input NAME=TABLE_OR_PARQUET" in output and "inputs: " in output and "table" in output
    for field in config_model(name).model_fields:
        assert field in output


@pytest.mark.nightly
def test_parquet_to_parquet(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No table is needed; the output has the table's columns, and takes the place of an older one."""
    write_documents(here / "documents.parquet", ["one\r\ntwo", "three"])
    words = ("texts", "--input", "documents=documents.parquet", "--output", "out/texts.parquet")
    for _ in range(2):
        status, output, errors = run(capsys, *words)
        assert (status, output) == (0, "out/texts.parquet: 2 rows\n"), errors
    rows = pq.read_table(here / "out" / "texts.parquet")
    assert rows.column_names == [column.name for column in texts.table.all_columns]
    assert sorted(rows["content"].to_pylist()) == ["one\ntwo", "three"]
    assert [path.name for path in (here / "out").iterdir()] == ["texts.parquet"], "nothing is left beside it"


@on_spark
def test_parquet_to_table_and_on_to_the_next(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table from files, a table from that table; what is there already is not computed again, new files are."""
    write_documents(here / "documents.parquet", ["some words here", "and others there"])
    first = ("texts", "--input", "documents=documents.parquet", "--output", "notes.texts")
    second = ("signals", "--input", "texts=notes.texts", "--output", "notes.signals")
    for words in (first, second):
        status, output, errors = run(capsys, *words)
        assert status == 0, errors
        assert output.startswith(f"{words[-1]}: 2 rows, computed 0 in ")
        assert run(capsys, *words)[1].startswith(f"{words[-1]}: 2 rows, unchanged")
    write_documents(here / "documents.parquet", ["only one now"])
    assert run(capsys, *first)[1].startswith("notes.texts: 1 rows, computed 0 in ")
    assert run(capsys, *second)[1].startswith("notes.signals: 1 rows, computed 0 in ")


@pytest.mark.nightly
def test_increments_are_followed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Increment 1 of the input becomes increment 1 of the output; increment 0 is left."""
    write_documents(here / "a.parquet", ["some words here"])
    write_documents(here / "b.parquet", ["and others there"], increment=1)
    signals = ("signals", "--input", "texts=notes.texts", "--output", "notes.signals")
    assert run(capsys, "texts", "--input", "documents=a.parquet", "--output", "notes.texts", "--increment", "0")[0] == 0
    assert "computed 0 in" in run(capsys, *signals)[1]
    assert run(capsys, "texts", "--input", "documents=b.parquet", "--output", "notes.texts", "--increment", "1")[0] == 0
    status, output, _ = run(capsys, *signals)
    assert status == 0 and output.startswith("notes.signals: 2 rows, computed 1 in ")


@pytest.mark.nightly
def test_a_config_comes_from_a_file_and_from_the_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Values on the line win over those of the file, nested ones by points."""
    write_documents(here / "documents.parquet", ["some words here", "a"])
    assert run(capsys, "texts", "--input", "documents=documents.parquet", "--output", "texts.parquet")[0] == 0
    assert run(capsys, "signals", "--input", "texts=texts.parquet", "--output", "signals.parquet")[0] == 0
    (here / "strict.yaml").write_text("policy: {extends: [headrace], set: {prose.too_few_words: 100}}\n")
    verdicts = (
        "verdicts",
        "--input",
        "signals=signals.parquet",
        "--output",
        "verdicts.parquet",
        "--config",
        "strict.yaml",
    )
    kept = []
    for settings in ((), ('policy.set={"prose.too_few_words": 2}',)):
        status, _, errors = run(capsys, *verdicts, *settings)
        assert status == 0, errors
        failed = pq.read_table(here / "verdicts.parquet").sort_by("doc_id")["failed"].to_pylist()
        kept.append([any(rule["rule"] == "too_few_words" for rule in rules) for rules in failed])
    assert kept == [[True, True], [False, True]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing",), "step 'nothing' is not known (there are documents, "),
        (("texts", "--output", "texts.parquet"), "input documents is missing; give --input documents="),
        (("texts", "--output", "notes.texts"), "inputs ['documents'] are not bound"),
        (("texts", "--input", "documents", "--output", "x.parquet"), "'documents' is no name=value"),
        (
            ("texts", "--input", "documents=gone.parquet", "--output", "x.parquet"),
            "gone.parquet: no such file or folder",
        ),
        (
            ("texts", "--input", "documents=gone.parquet", "--output", "notes.texts"),
            "gone.parquet: no such file or folder",
        ),
        (("texts", "--input", "documents=notes.gone", "--output", "x.parquet"), "notes.gone"),
        (
            ("texts", "--input", "documents=notes.gone", "--output", "notes.texts"),
            "notes.gone has not been materialized",
        ),
        (("texts", "--input", "documents=a.parquet", "--output", "notes.other"), "writes the table texts; name it so"),
        (("texts", "--input", "wrong=a.parquet", "--input", "documents=a.parquet", "--output", "x.parquet"), "wrong"),
        (("texts", "--input", "documents=a.parquet", "--output", "x.parquet", "no_such=1"), "config no_such"),
        (
            ("texts", "--input", "documents=a.parquet", "--output", "x.parquet", "--config", "no.yaml"),
            "--config no.yaml",
        ),
        (
            ("texts", "--input", "documents=a.parquet", "--output", "x.parquet", "--config", "bad.yaml"),
            "--config bad.yaml",
        ),
        (("texts", "--input", "documents=a.parquet", "--output", "x.parquet", "--config", "list.yaml"), "list.yaml"),
        (("texts", "--input", "documents=bad.yaml", "--output", "x.parquet"), "bad.yaml"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    here: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    """What, where, how to mend; no trace, no output."""
    (here / "bad.yaml").write_text("a: [1\nb: 2")
    (here / "list.yaml").write_text("- 1\n")
    write_documents(here / "a.parquet", ["text"])
    status, output, errors = run(capsys, *words)
    assert (status, output) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1 and "Traceback" not in errors
    assert not (here / "x.parquet").exists()


def test_a_failed_check_leaves_the_older_output(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two rows of one key are refused; what was there before is still there."""
    write_documents(here / "good.parquet", ["text"])
    write_documents(here / "bad.parquet", ["text", "text"])
    rows = pq.read_table(here / "bad.parquet")
    pq.write_table(pa.concat_tables([rows, rows]), here / "bad.parquet")
    words = ("--output", "texts.parquet")
    assert run(capsys, "texts", "--input", "documents=good.parquet", *words)[0] == 0
    status, _, errors = run(capsys, "texts", "--input", "documents=bad.parquet", *words)
    assert status == 2 and "unique_key: 2 rows" in errors
    assert pq.read_table(here / "texts.parquet").num_rows == 1


@pytest.mark.nightly
def test_a_step_runs_under_spark_submit(tmp_path: Path) -> None:
    """Spark's own launcher starts the same program."""
    from spark_jobs.lake.session.java import java_home

    write_documents(tmp_path / "documents.parquet", ["one", "two"])
    submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run(
        [
            str(submit),
            *("--master", "local[1]", "--driver-memory", "1g", "--conf", "spark.ui.enabled=false"),
            *(str(ROOT / "spark_jobs" / "__main__.py"), "texts"),
            *("--input", f"documents={tmp_path}/documents.parquet", "--output", f"{tmp_path}/texts.parquet"),
        ],
        env={
            **os.environ,
            **environment(tmp_path),
            "JAVA_HOME": str(java_home()),
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{tmp_path}/texts.parquet: 2 rows" in done.stdout
    assert sorted(pq.read_table(tmp_path / "texts.parquet")["content"].to_pylist()) == ["one", "two"]
