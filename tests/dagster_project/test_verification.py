"""`dataset verify` says yes after every kind of run and every command that writes, and no to what was tampered with."""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

from dagster_project.cli import run_command
from dagster_project.inspect.corpora.reviews import REVIEWS
from headrace.tables.settings import settings_at
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, ensure_table, open_catalogue
from tests.dagster_project.conftest import WriteDefs
from tests.dagster_project.test_copied_lake import _PACKED, _SMALL, _WEB, land, windowed
from tests.headrace_features.apis.api_server import Api, records, serving
from tests.spark_jobs.sources.git_repositories import Repository

Said = pytest.CaptureFixture[str]
_DATASET = """\
type: headrace.Dataset
attributes:
  name: {name}
  source: {source}
  {more}
"""


def verify(name: str, capfd: Said) -> str:
    """What the command prints of a dataset that is as it was recorded and landed."""
    capfd.readouterr()
    code = run_command(["dataset", "verify", name])
    said = capfd.readouterr()
    assert code == 0, (name, said.out, said.err)
    return said.out


def done(capfd: Said, *words: str) -> None:
    """Run a command that has to succeed."""
    assert run_command(list(words)) == 0, (words, capfd.readouterr().err)


def review(catalogue: Catalog, dataset: str) -> None:
    """Decide of a document, as `review record` does."""
    decided = {"doc_id": "0", "verdicts": f"{dataset}.verdicts", "rule": "r", "decision": "right", "person": "ada"}
    table = ensure_table(catalogue, f"{dataset}.reviews", REVIEWS, {SCOPE_PROPERTY: "reviews"})
    rows = [{**dict.fromkeys(table.schema().column_names), **decided, "reviewed_at": datetime.now(UTC)}]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


@pytest.mark.nightly
def test_a_repository_and_what_people_added_are_as_they_should_be(
    declare: WriteDefs, lake_env: Path, spark: object, tmp_path: Path, capfd: Said
) -> None:
    """The row of a repository itself is of no file, and no step knows the decisions of people; lost bytes are told."""
    repository = Repository(tmp_path / "source" / "mill")
    repository.commit(wheel_py="x = 1\n", race_py="y = 2\n")
    repository.git("clone", "-q", "--bare", str(repository.root), str(tmp_path / "source" / "bare.git"))
    repository.git("bundle", "create", "-q", str(tmp_path / "source" / "packed.bundle"), "--all")
    declare("code", _DATASET.format(name="code", source=f"{{kind: git, repositories: [{tmp_path}/source/*]}}", more=""))
    done(capfd, "run", "code.documents")
    catalogue = open_catalogue(settings_at(lake_env))
    review(catalogue, "code")
    catalogue.create_table("code.notes_of_somebody", pa.schema([("n", pa.int64())])).append(pa.table({"n": [1]}))
    said = verify("code", capfd)
    assert "what landed is as it landed" in said and said.count("people or other programs add to it") == 2
    file = next(iter(catalogue.load_table("code.reviews").scan().plan_files())).file.file_path
    Path(file.removeprefix("file://")).unlink()
    (tmp_path / "source" / "packed.bundle").unlink()
    assert run_command(["dataset", "verify", "code"]) == 3
    said = capfd.readouterr().out
    assert "does not exist" in said and "packed.bundle@" in said, said


def write_every_format(folder: Path) -> None:
    """A file for each reader that a test can write without a library of its own."""
    folder.mkdir(parents=True)
    record = json.dumps({"id": "1", "body": "a record of some words"}) + "\n"
    page = "<html><body><article><p>A page with a sentence that is long enough.</p></article></body></html>"
    mail = "From: ada@example.org\nSubject: a mail\nContent-Type: text/plain\n\nsome words of a mail\n"
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n\r\n{page}"
    warc = (
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Target-URI: http://a.example/\r\n"
        f"WARC-Date: 2026-01-01T00:00:00Z\r\nContent-Type: application/http; msgtype=response\r\n"
        f"Content-Length: {len(answer)}\r\n\r\n{answer}\r\n\r\n"
    )
    texts = {
        "text.txt": "some words\n",
        "code.py": "x = 1\n",
        "lines.jsonl": record,
        "table.csv": "id,body\n2,some words of a table\n",
        "table.tsv": "id\tbody\n3\tsome words of another\n",
        "page.html": page,
        "mail.eml": mail,
        "box.mbox": f"From ada@example.org Thu Jan  1 00:00:00 2026\n{mail}\n",
        "crawl.warc": warc,
        "book.ipynb": json.dumps(
            {"cells": [{"cell_type": "code", "source": ["x = 1"], "metadata": {}, "outputs": []}], "metadata": {}}
            | {"nbformat": 4, "nbformat_minor": 5}
        ),
        "broken.pdf": "%PDF-1.7 of nothing",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "lines.jsonl.gz").write_bytes(gzip.compress(record.replace('"1"', '"4"').encode()))
    pq.write_table(pa.table({"id": ["5"], "body": ["some words in a column"]}), folder / "table.parquet")
    with zipfile.ZipFile(folder / "many.zip", "w") as archive:
        archive.writestr("inner.txt", "some words in an archive")
    with tarfile.open(folder / "many.tar.gz", "w:gz") as tar:
        tar.add(folder / "text.txt", "inner.txt")


def package(folder: Path) -> None:
    """A folder as pip installs it, and an sdist of it."""
    (folder / "mill").mkdir(parents=True)
    (folder / "mill" / "__init__.py").write_text('"""A mill and its race, in some words."""\n')
    about = folder / "mill-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mill\nVersion: 1.0\n\nA description of the mill.\n")
    (about / "RECORD").write_text("mill/__init__.py,,\nmill-1.0.dist-info/METADATA,,\n")
    with tarfile.open(folder.parent / "mill-1.0.tar.gz", "w:gz") as tar:
        tar.add(folder / "mill", "mill-1.0/mill")
        tar.add(about / "METADATA", "mill-1.0/PKG-INFO")


@pytest.mark.nightly
def test_after_every_kind_of_source_and_every_reader(
    declare: WriteDefs, lake_env: Path, spark: object, tmp_path: Path, capfd: Said
) -> None:
    """Landed twice, with something new, changed and gone between; by reference and by copy."""
    source = tmp_path / "source"
    write_every_format(source / "files")
    shutil.copytree(source / "files", source / "held")  # of its own: what waits may not land by another way
    package(source / "site")
    (source / "packages").mkdir()
    (source / "mill-1.0.tar.gz").rename(source / "packages" / "mill-1.0.tar.gz")
    repository = Repository(source / "repositories" / "mill")
    repository.commit(wheel_py="x = 1\n", race_py="y = 2\n")
    (source / "stream").mkdir()
    (source / "stream" / "a.jsonl").write_text('{"id": "1", "body": "some words that came"}\n')
    with serving(Api(records(9), style="page_number")) as api:
        columns = "text_column: body, id_column: id"
        paged = f"{{kind: api, url: '{api.url}', paginator: {{kind: page_number}}, records: items, text_column: text"
        sources = {
            "files": f"{{kind: files, path: {source}/files, {columns}}}",
            "copied": f"{{kind: files, path: {source}/files, {columns}}}",
            "held": f"{{kind: files, path: {source}/held, {columns}}}",
            "python": f"{{kind: python_code, directories: [{source}/site/mill]}}",
            "docs": f"{{kind: python_docs, directories: [{source}/site/mill]}}",
            "packages": f"{{kind: packages, path: {source}/packages}}",
            "code": f"{{kind: git, repositories: [{source}/repositories/*], revisions: all}}",
            "paged": f"{paged}, id_column: id}}",
            "feed": f"{{kind: stream, path: {source}/stream, {columns}}}",
        }
        more = {"copied": "landing: copy", "held": "trust: quarantine"}
        for name, one in sources.items():
            declare(name, _DATASET.format(name=name, source=one, more=more.get(name, "")))
        tables = [f"{name}_quarantine.documents" if name == "held" else f"{name}.documents" for name in sources]
        for _ in range(2):
            done(capfd, "run", "--follow", "feed", "--once")
            done(capfd, "run", *tables)
            for name in sources:
                verify(name, capfd)
            for folder in (source / "files", source / "held"):
                (folder / "text.txt").write_text("other words\n")
                (folder / "code.py").unlink(missing_ok=True)
                (folder / "new.md").write_text("new words\n")
            repository.commit(wheel_py="x = 3\n", race_py=None) if repository.root.joinpath(
                "race.py"
            ).exists() else None
            api.put(77, "a new record")
            (source / "stream" / "b.jsonl").write_text('{"id": "2", "body": "some words that came later"}\n')


@pytest.mark.nightly
def test_after_every_command_that_writes(
    declare: WriteDefs, lake_env: Path, spark: object, tmp_path: Path, capfd: Said
) -> None:
    """Reviews, decisions, benchmarks, excision, deletion, maintenance, moves of bytes, a drop and runs."""
    source = tmp_path / "source"
    declare("web", _WEB.format(name="web", source=source, more="landing: copy"))
    declare("held", _WEB.format(name="held", source=source, more="trust: quarantine"))
    declare("small", _SMALL)
    for increment in range(2):
        land(source / "web", increment)
        land(source / "held", increment + 5)
        done(capfd, "run", "web", "held_quarantine", "small")
    review(open_catalogue(settings_at(lake_env)), "web")
    (tmp_path / "items.jsonl").write_text('{"question": "which wheel turns the mill of the lower race"}\n')
    documents = windowed(lake_env)
    commands: dict[str, list[tuple[str, ...]]] = {
        "held": [
            ("evals", "add", "bench", "--from", str(tmp_path / "items.jsonl"), "--columns", "question"),
            ("quarantine", "release", "held", "--increment", "0", "--reason", "looked at"),
            ("quarantine", "refuse", "held", "--increment", "1", "--reason", "looked at"),
            ("run", "held.documents"),
        ],
        "web, as it is kept": [
            ("doc", "excise", documents, "--table", _PACKED, "--yes", "--reason", "asked to"),
            ("dataset", "archive", "web", "--days", "0", "--to", str(tmp_path / "cold")),
            ("maintain", "--only", "compaction", "web.signals"),
            ("maintain", "--days", "0"),
        ],
        "web, less an increment": [("dataset", "delete", "web", "--increment", "1", "--yes", "--reason", "asked to")],
        "web, computed anew": [
            ("dataset", "archive", "web", "--thaw"),
            ("table", "delete", "web.signals", "--yes"),
            ("run", "web"),
            ("corpus", "refresh", "small", "--yes"),
        ],
    }
    for name, some in commands.items():
        for command in some:
            done(capfd, *command)
        verify(name.partition(",")[0], capfd)
