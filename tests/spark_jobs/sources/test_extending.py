"""What a package from outside brings, by docs/extend/extending.md: a source, a reader, a scorer, a command, a page."""

from __future__ import annotations

import gzip
import importlib
import re
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from dagster_project.cli import headrace as commands
from dagster_project.exceptions import DefinitionError
from dagster_project.run_config import bind_config
from headrace_features.objectives.masks.rules import MaskedText, find_rules, spans_of
from spark_jobs import plugins
from spark_jobs.exceptions import ConfigError
from spark_jobs.lake.ledger.step_key import config_json
from spark_jobs.registry import find_scorer, find_selection
from spark_jobs.sources.config import reader as readers
from spark_jobs.sources.config.source_config import DocumentsConfig
from tests.spark_jobs.sources.conftest import Landing

_PAGE = Path(__file__).parents[3] / "docs" / "extend" / "extending.md"
_BLOCK = re.compile(r'```\w+ title="([^"]+)"\n(.*?)```', re.S)
_FILM = "1\n00:00:01,000 --> 00:00:02,000\nWater!\n\n2\n00:00:03,000 --> 00:00:04,000\nThe mill turns.\n"


def forget() -> None:
    """Look for packages again."""
    plugins.declared.cache_clear()
    readers._by_extension.forget()


def install(site: Path, package: str, files: dict[str, str], entry_points: str) -> None:
    """A package as pip leaves it."""
    for name, text in files.items():
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(text)
    facts = site / f"{package}-0.3.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.3\n")
    (facts / "entry_points.txt").write_text(entry_points)
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    forget()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages with the one of the page in it."""
    folder = tmp_path / "site"
    monkeypatch.syspath_prepend(folder)
    blocks = dict(_BLOCK.findall(_PAGE.read_text()))
    points = blocks["pyproject.toml"].replace("project.entry-points.", "").replace(chr(34), "")
    files = {name: text for name, text in blocks.items() if name.endswith((".py", ".html"))}
    install(folder, "mill", files, points)
    yield folder
    for name in [one for one in sys.modules if one == "mill" or one.startswith("mill.")]:
        del sys.modules[name]
    forget()


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """Three tickets."""
    path = tmp_path / "desk.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE ticket (id INTEGER, queue TEXT, body TEXT, changed INTEGER)")
        rows = [(1, "pumps", "The pump hums.", 7), (2, "pumps", "Wasser läuft.", 7), (3, "mills", "Stone", 7)]
        database.executemany("INSERT INTO ticket VALUES (?, ?, ?, ?)", rows)
    return path


def config(source: dict[str, Any], **others: Any) -> DocumentsConfig:
    """A dataset, as YAML declares it."""
    return bind_config(DocumentsConfig, "notes/documents", {"dataset": "notes", "source": source, **others})


def test_a_source_of_a_package_lands_as_files_do(site: Path, desk: Path) -> None:
    """By name and by reference: new, changed, gone and unreadable; its fields decide the key of a step."""
    declared = config({"kind": "tickets", "database": str(desk), "queue": "pumps"})
    assert '"queue":"pumps"' in config_json(declared) and '"kind":"tickets"' in config_json(declared)
    referred = config({**declared.source.model_dump(), "kind": "mill.sources:TicketSource"})
    assert type(referred.source) is type(declared.source)
    assert DocumentsConfig.model_validate_json(referred.model_dump_json()) == referred, "as a run takes it"
    landing = Landing()
    documents, _ = landing.land(declared) or ([], [])
    assert sorted(row["content"] for row in documents) == ["The pump hums.", "Wasser läuft."]
    assert landing.land(declared) is None
    with sqlite3.connect(desk) as database:
        database.execute("UPDATE ticket SET body = 'Dry.', changed = 8 WHERE id = 1")
        database.execute("DELETE FROM ticket WHERE id = 2")
        database.execute("INSERT INTO ticket VALUES (4, 'pumps', x'00ff', 8)")
    documents, arrivals = landing.land(declared) or ([], [])
    assert [row["content"] for row in documents] == ["Dry."]
    assert {row["path"]: row["status"] for row in arrivals if row["path"]} == {
        "1.txt": "landed",
        "2.txt": "gone",
        "4.txt": "rejected",
    }


def test_a_source_opens_on_the_workers_what_it_listed(site: Path, desk: Path) -> None:
    """A file that cannot be opened is refused with the message of the source."""
    declared = config({"kind": "tickets", "database": str(desk)})
    listed = list(declared.source.entries())  # type: ignore[union-attr]
    with sqlite3.connect(desk) as database:
        database.execute("DELETE FROM ticket WHERE id = 3")
    with pytest.raises(OSError, match="deleted while it was read"):
        declared.source.open(listed[2].location)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"kind": "tickets"}, "source.database is missing"),
        ({"kind": "tickets", "database": "x", "qeue": "pumps"}, "source: qeue: there is no such field.*queue"),
        ({"kind": "ticket", "database": "x"}, "source 'ticket' is not known.*tickets"),
        ({"kind": "mill.sources:Nothing"}, "mill.sources:Nothing"),
        ({"kind": "spark_jobs.sources.config.source_config:FilesSource"}, "declares a field `kind`; leave it out"),
        ({"kind": "mill.scorers:questions"}, "is a Scorer; it has to be a FileSource"),
        ({"kind": "files", "path": "x", "format": "strt"}, "reader 'strt' is not known.*srt"),
    ],
)
def test_mistakes_are_told_as_those_of_own_sources(site: Path, source: dict[str, Any], said: str) -> None:
    """Field, value and the nearest name, in one line."""
    with pytest.raises(DefinitionError, match=said) as error:
        config(source)
    assert "\n" not in str(error.value)


def test_a_reader_of_a_package_takes_its_files(site: Path, tmp_path: Path) -> None:
    """By extension, compressed too; what it refuses, raises and what is too large is refused alone."""
    films = tmp_path / "films"
    films.mkdir()
    (films / "one.srt").write_text(_FILM)
    with gzip.open(films / "two.srt.gz", "wt") as file:
        file.write(_FILM.replace("Water", "Grain"))
    (films / "three.srt").write_text("no subtitles")
    (films / "four.srt").write_bytes(b"\xff\xfe\xfa")
    (films / "note.txt").write_text("beside them")
    landing = Landing()
    documents, arrivals = landing.land(config({"kind": "files", "path": str(films)})) or ([], [])
    assert {row["path"]: row["content"] for row in documents} == {
        "one.srt": "Water!\nThe mill turns.",
        "two.srt.gz": "Grain!\nThe mill turns.",
        "note.txt": "beside them",
    }
    (one,) = (row for row in documents if row["path"] == "one.srt")
    assert one["metadata"] == {"lines": "2", "headrace.extracted_by": "mill.readers:subtitles 1"}
    refused = {row["location"].rpartition("/")[2]: row["detail"] for row in arrivals if row["status"] == "rejected"}
    assert refused["three.srt#1"] == "no line of it is a time"
    assert refused["four.srt"].startswith("its parser failed: UnicodeDecodeError")
    assert set(refused) == {"three.srt", "three.srt#1", "four.srt"}


def test_a_format_may_name_a_reader(site: Path, tmp_path: Path) -> None:
    """Then every file is its."""
    (tmp_path / "film.sub").write_text(_FILM)
    for name in ("srt", "mill.readers:subtitles"):
        landed = Landing().land(config({"kind": "files", "path": str(tmp_path / "film.sub"), "format": name}))
        assert landed is not None
        documents, _ = landed
        assert [row["content"] for row in documents] == ["Water!\nThe mill turns."]


def test_without_the_package_its_files_wait(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused as of an unknown format, and read once it is installed."""
    (tmp_path / "film.sbv").write_text(_FILM)
    declared, landing = config({"kind": "files", "path": str(tmp_path / "film.sbv")}), Landing()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [one for one in sys.path if one != str(site)])
        forget()
        _, arrivals = landing.land(declared) or ([], [])
        assert [row["reason"] for row in arrivals] == ["unknown_format"]
        assert landing.land(declared) is None
    forget()
    documents, _ = landing.land(declared) or ([], [])
    assert len(documents) == 1
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [one for one in sys.path if one != str(site)])
        forget()
        assert landing.land(declared) is None, "what was read stays, and no increment is made of it"
    forget()


def test_what_was_read_stays_while_its_feature_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a machine without the feature makes no increment of unchanged files; a changed one is refused."""
    page = tmp_path / "page.html"
    page.write_text(f"<html><body><p>{'The mill grinds the corn of the village. ' * 20}</p></body></html>")
    declared, landing = config({"kind": "files", "path": str(tmp_path)}), Landing()
    documents, _ = landing.land(declared) or ([], [])
    assert len(documents) == 1
    monkeypatch.setattr("spark_jobs.sources.reading.built_in.missing", lambda group: {"html": "formats"})
    assert landing.land(declared) is None
    page.write_text("<html><body><p>Another mill.</p></body></html>")
    _, arrivals = landing.land(declared) or ([], [])
    assert [row["reason"] for row in arrivals] == ["not_installed"]


def test_a_scorer_and_a_command_are_found_by_name(site: Path) -> None:
    """Beside headrace's own, and listed in the help."""
    scorer = find_scorer("questions")
    assert scorer.score(pa.array(["?", "a?b?", ""]))["question_count"].to_pylist() == [1, 2, 0]
    assert find_selection("mill.picked") is find_selection("mill.selections:picked")
    helped = CliRunner().invoke(commands, ["--help"]).output
    assert re.search(r"Of installed packages:\n  grind +Of mill\.commands:grind\.", helped)
    assert "Count the documents" in CliRunner().invoke(commands, ["grind", "--help"]).output
    with pytest.raises(ConfigError, match=r"scorer 'question' is not known.*questions"):
        find_scorer("question")


def test_a_rule_of_masks_is_found_by_name(site: Path) -> None:
    """Or by reference; it gets the text and what its row says."""
    for name in ("mill.my_spans", "mill.masks:my_spans"):
        (rule,) = find_rules([name]).values()
        text = "Pump SN-12\nSN-7"
        assert spans_of(name, rule, MaskedText(text, kind="code")).tolist() == [[5, 10], [11, 15]]
        assert not len(spans_of(name, rule, MaskedText(text, kind="prose")))
    with pytest.raises(ConfigError, match=r"mask_rule 'mill.spans' is not known.*mill\.my_spans"):
        find_rules(["mill.spans"])


def test_two_packages_with_one_name_are_an_error_that_names_both(site: Path) -> None:
    """Which one would be taken would depend on the order of their installation."""
    install(site, "dam", {}, "[headrace.scorers]\nquestions = dam.scorers:asks\n")
    with pytest.raises(ConfigError, match=r"mill and dam|dam and mill"):
        find_scorer("questions")


def test_own_kinds_are_told_apart_without_looking_at_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata of all installed packages is read only for names that are not headrace's."""
    monkeypatch.setattr(plugins, "entry_points", None)
    forget()
    assert config({"kind": "files", "path": "/data"}).source.kind == "files"
    assert find_scorer("heuristics").name == "heuristics"
    with pytest.raises(ValidationError):
        DocumentsConfig.model_validate({"dataset": "notes", "source": {"kind": "git"}})
