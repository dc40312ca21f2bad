"""Templates of a dataset: lines that pages share are frozen with the first increment, and judge all texts by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
from dagster_project.exceptions import DefinitionError
from headrace.tables.settings import settings_at
from spark_jobs.lake.session.catalogue import open_catalogue
from tests.dagster_project.project import Project, lake_settings

HEAD, FOOT = ["The Mill Gazette", "Home | Archive | About us"], ["  Printed at the old mill since 1871.  ", "No rights"]
POLICY = {
    "rules": [{"rule": "template", "signal": "templates.template_fraction", "above": 0.5, "why": "a test of templates"}]
}


def page(number: int, words: int) -> str:
    """A page of the site; its own text is a line of that many words."""
    own = " ".join(f"word{number}x{k}" for k in range(words))
    return "\n".join([*HEAD, own, "", *FOOT])


def declared(root: Path, **config: Any) -> list[Any]:
    """The site's dataset."""
    source = {"kind": "files", "path": str(root / "pages"), "text_column": "body", "id_column": "id"}
    with lake_settings(root):
        return dataset_assets(
            DatasetDeclaration("site", {**source, "kind_column": "of"}, scorers={"templates": config}, policy=POLICY)
        )


def write(root: Path, name: str, pages: dict[str, str]) -> None:
    """A file of pages, which is an increment of the dataset."""
    (root / "pages").mkdir(exist_ok=True)
    rows = [json.dumps({"id": key, "body": body, "of": "prose"}) for key, body in pages.items()]
    (root / "pages" / f"{name}.jsonl").write_text("\n".join(rows))


def slow_fraction(text: str, lines: set[str]) -> float:
    """Characters of the table's lines, of characters in lines."""
    own = [line.strip() for line in text.split("\n")]
    return sum(len(line) for line in own if line in lines) / sum(map(len, own))


NAMES = (
    "arrivals",
    "documents",
    "repositories",
    "provenance",
    "texts",
    "signals",
    "template_lines",
    "templates",
    "verdicts",
)
TABLES = tuple(f"site.{name}" for name in NAMES)


@pytest.mark.nightly
def test_pages_are_measured_against_the_lines_of_the_first_increment(tmp_path: Path) -> None:
    """A template's lines are found and spelled, fractions are those of a slow count, later pages change no line."""
    first = {f"p{k}": page(k, k) for k in range(1, 21)} | {"other": "A page of another site.\nIt shares nothing."}
    write(tmp_path, "a", first)
    project = Project(tmp_path, *declared(tmp_path, min_documents=15))
    assert project.run(*TABLES).success
    lines = {"The Mill Gazette": 20, "Home | Archive | About us": 20, "Printed at the old mill since 1871.": 20}
    lines["No rights"] = 20
    assert dict(project.rows("site.template_lines", "example", "document_count")) == lines

    banner = "A banner that all pages have from now on."
    second = {f"q{k}": f"{banner}\n{page(100 + k, 2)}" for k in range(20)} | {"blank": "\n \n", "bare": "No rights\nx"}
    write(tmp_path, "b", second)
    assert project.run(*TABLES).success
    assert dict(project.rows("site.template_lines", "example", "document_count")) == lines
    texts = dict(project.rows("site.texts", "doc_id", "content"))
    assert len(texts) == 43
    found = {
        doc_id: values
        for doc_id, *values in project.rows("site.templates", "doc_id", "template_fraction", "signal_density")
    }
    verdicts = dict(project.rows("site.verdicts", "doc_id", "kept"))
    for doc_id, text in texts.items():
        if not text.strip():
            assert found[doc_id] == [None, None] and verdicts[doc_id]
            continue
        fraction = slow_fraction(text, set(lines))
        assert found[doc_id] == [pytest.approx(fraction), pytest.approx(1 - fraction)], text
        assert verdicts[doc_id] == (fraction <= 0.5)
    assert 10 < sum(verdicts.values()) < 40

    anew = ("site.template_lines", "site.templates")
    other = project.changed(*declared(tmp_path, min_documents=21))
    assert other.run(*anew).success
    assert other.rows("site.template_lines", "example") != []
    assert "headrace table delete site.template_lines" in str(other.facts("site.template_lines"))
    open_catalogue(settings_at(tmp_path)).drop_table("site.template_lines")
    assert other.run(*anew).success
    assert other.rows("site.template_lines", "example") == []
    assert {fraction or 0 for _, fraction in other.rows("site.templates", "doc_id", "template_fraction")} == {0}


def test_a_scorer_with_a_frozen_table_becomes_two_assets(tmp_path: Path) -> None:
    """The config is that of the table; the scorer reads it, and verdicts read the scorer."""
    assets = {key.path[-1]: asset for asset in declared(tmp_path, min_documents=3) for key in asset.keys}
    inputs = {
        name: {key.path[-1] for key in assets[name].dependency_keys}
        for name in ("template_lines", "templates", "verdicts")
    }
    assert inputs["template_lines"] >= {"texts"} and "template_lines" not in inputs["template_lines"]
    assert inputs["templates"] >= {"texts", "template_lines"}
    assert inputs["verdicts"] >= {"templates", "signals"} and "template_lines" not in inputs["verdicts"]
    with pytest.raises(DefinitionError, match=r"site/template_lines: .*min_document.*min_documents"):
        declared(tmp_path, min_document=3)
