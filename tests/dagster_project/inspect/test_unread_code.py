"""What a run and `doc why` say of code without an answer, and of repositories that only their paths order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from dagster_project.inspect.documents.document_lookup import find_document
from dagster_project.inspect.documents.document_story import dataset_findings
from dagster_project.inspect.lake.unread_code import unread_code
from headrace.tables.settings import load_settings
from spark_jobs.code.dependencies import DEPENDENCY_METHODS
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.documents import DOCUMENTS
from tests.dagster_project.inspect.test_lake_status import put
from tests.tiers import sampled

_TIMEOUT = "timeout: more than 2 s of processor time"


def row(repository: str, method: str, language: str | None, count: int, **more: Any) -> dict[str, Any]:
    """A row of `dependency_methods`."""
    values = {"repository": repository, "method": method, "language": language, "file_count": count}
    return {**values, "read_count": count, "unread": [], "unordered": [], **more}


@pytest.fixture
def lake(lake_env: Path) -> Catalog:
    """Repositories with a file that takes too long, of Perl alone, of Ruby whose files do not need each other, ..."""
    catalogue = open_catalogue(load_settings())
    perl = [{"language": "Perl", "file_count": 3}]
    unread = [{"path": "a.rb", "reason": _TIMEOUT}, {"path": "b.rb", "reason": "crash: the parser ended by SIGSEGV"}]
    rows = [
        row("ruby", "symbols", "Ruby", 9, unread=unread),
        row("perl", "path", "Perl", 3, unordered=perl),
        row("mixed", "imports", "Python", 8, unordered=perl),
        row("apart", "path", "Ruby", 2),
        row("alone", "path", "Ruby", 1),
        row("prose", "path", None, 7),
    ]
    put(catalogue, "code", DEPENDENCY_METHODS, 0, [row("before", "path", "Perl", 5, unordered=perl)])
    put(catalogue, "code", DEPENDENCY_METHODS, 1, rows)
    put(catalogue, "fine", DEPENDENCY_METHODS, 0, [row("all", "imports", "Python", 5)])
    files = [("ruby", "a.rb", "Ruby"), ("ruby", "c.rb", "Ruby"), ("perl", "p.pl", "Perl"), ("mixed", "m.pl", "Perl")]
    files += [("apart", "d.rb", "Ruby"), ("mixed", "x.py", "Python")]
    documents = [
        {
            "doc_id": f"{at:032x}",
            "dataset": "code",
            "repository": where,
            "path": path,
            "kind": "code",
            "language": language,
        }
        for at, (where, path, language) in enumerate(files)
    ]
    put(catalogue, "code", DOCUMENTS, 1, documents)
    return catalogue


def test_a_run_says_how_many_files_had_no_answer_and_why(lake: Catalog) -> None:
    """Of the newest increment; and which repositories their paths alone order, with their language."""
    assert list(unread_code(Ledger.fresh(lake), {"code", "fine", "main"})) == [
        "code.dependencies: 8 of 30 files of increment 1 had no answer (Perl has no order of its own: 6, crash: 1, "
        f"timeout: 1); such as ruby a.rb: {_TIMEOUT}; look: headrace doc why DOC",
        "code.dependencies: repositories ordered by path alone: 2 (Perl has no order of its own: 1, "
        "no file of Ruby is seen to need another: 1)",
    ]


@sampled(2)
@pytest.mark.parametrize(
    ("path", "outcome", "sentence"),
    [
        (
            "a.rb",
            "unread",
            "repository ruby is ordered by symbols; 2 of 9 files had no answer (crash: 1, timeout: 1); "
            f"this file: {_TIMEOUT}",
        ),
        ("c.rb", "read", "repository ruby is ordered by symbols; 2 of 9 files had no answer (crash: 1, timeout: 1)"),
        (
            "p.pl",
            "unread",
            "repository perl is ordered by path alone, Perl has no order of its own; 3 of 3 files had no answer "
            "(Perl has no order of its own: 3); this file: Perl has no order of its own",
        ),
        (
            "m.pl",
            "unread",
            "repository mixed is ordered by imports; 3 of 8 files had no answer (Perl has no order of its own: 3); "
            "this file: Perl has no order of its own",
        ),
        ("d.rb", "by_path", "repository apart is ordered by path alone, no file of Ruby is seen to need another"),
        (
            "x.py",
            "read",
            "repository mixed is ordered by imports; 3 of 8 files had no answer (Perl has no order of its own: 3)",
        ),
    ],
)
def test_why_says_what_the_order_of_a_repository_rests_on(
    lake: Catalog, path: str, outcome: str, sentence: str
) -> None:
    """And of a file whether it had an answer itself."""
    findings = dataset_findings(lake, find_document(lake, path))
    (found,) = (one for one in findings if one.table == "code.dependency_methods")
    assert (found.outcome, found.sentence) == (outcome, sentence)


def test_a_table_that_was_made_before_says_what_it_has(lake_env: Path) -> None:
    """It has no languages: its repositories are not told by them."""
    catalogue = open_catalogue(load_settings())
    before = replace(DEPENDENCY_METHODS, columns=DEPENDENCY_METHODS.columns[:-2])
    rows = [row("ruby", "path", "Ruby", 9, unread=[{"path": "a.rb", "reason": "too_large"}])]
    put(
        catalogue,
        "code",
        before,
        0,
        [{name: one[name] for name in one.keys() - {"language", "unordered"}} for one in rows],
    )
    (line,) = unread_code(Ledger.fresh(catalogue), {"code"})
    assert line.startswith("code.dependencies: 1 of 9 files of increment 0 had no answer (too_large: 1)")
