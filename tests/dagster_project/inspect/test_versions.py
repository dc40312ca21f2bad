"""States of datasets and corpora compared, releases and cards, against sets of Python over the same rows."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from ruamel.yaml import YAML

from dagster_project.cli import run_command
from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.dataset_card import Privacy, _hub_licences, card
from dagster_project.inspect.corpora.snapshot_diff import corpus_diff, dataset_diff, find_state
from headrace.tables.catalogue import commit, load_table
from headrace.tables.settings import load_settings
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.exceptions import InputError
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.files.branches import _ref
from spark_jobs.lake.plan.increments import INCREMENTS
from spark_jobs.lake.run import releases
from spark_jobs.lake.run.releases import create_release, delete_release, find_release
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.text.signals import SIGNALS
from spark_jobs.tokens.tokens import TOKENS
from tests.dagster_project.inspect.test_lake_status import put

Said = pytest.CaptureFixture[str]
RULES = ("too_long", "too_short", "generated")


def judged(rng: random.Random, ids: list[str]) -> dict[str, list[str]]:
    """Rules that each document fails, at random, in any order."""
    return {doc: rng.sample(RULES, rng.randrange(3)) for doc in ids}


@pytest.fixture
def lake(lake_env: Path) -> Catalog:
    """An empty lake."""
    return open_catalogue(load_settings())


def test_a_dataset_before_and_after(lake: Catalog, capfd: Said) -> None:
    """Documents that came, those whose path had another, and verdicts by rule, as sets count them."""
    rng = random.Random(5)
    ids = [f"{n:032x}" for n in range(300)]
    paths = {doc: f"file {rng.randrange(200)}" for doc in ids}
    verdicts = judged(rng, ids), judged(rng, ids)
    first = [{"doc_id": doc, "path": paths[doc]} for doc in ids[:200]]
    put(lake, "notes", DOCUMENTS, 0, first)
    put(lake, "notes", VERDICTS, 0, [_verdict(doc, verdicts[0]) for doc in ids[:200]])
    create_release(lake, "before", ["notes"], now=datetime(2026, 11, 1, tzinfo=UTC))
    put(lake, "notes", DOCUMENTS, 1, [{"doc_id": doc, "path": paths[doc]} for doc in ids[200:]])
    lake.load_table("notes.verdicts").delete()
    put(lake, "notes", VERDICTS, 0, [_verdict(doc, verdicts[1]) for doc in ids])
    found = dataset_diff(lake, find_state(lake, "notes@before"), find_state(lake, "notes"))
    old = {paths[doc]: doc for doc in reversed(ids[:200])}  # of those that landed together the lowest id counts
    new = old | {paths[doc]: doc for doc in reversed(ids[200:])}
    came, went = set(new.values()) - set(old.values()), set(old.values()) - set(new.values())
    counts = len(old), len(new), len(came), len(went)
    assert (found.before, found.after, found.added, found.removed) == counts and went
    assert found.changed == sum(paths[doc] in old for doc in came)
    for rule in RULES:
        both = set(old.values()) & set(new.values())
        moved = [(rule in verdicts[0][doc], rule in verdicts[1][doc]) for doc in both]
        assert found.newly_failed[rule] == moved.count((False, True))
        assert found.newly_passed[rule] == moved.count((True, False))
    back = dataset_diff(lake, find_state(lake, "notes"), find_state(lake, "notes@before"))
    assert (back.added, back.removed, back.newly_failed) == (len(went), len(came), found.newly_passed)
    same = find_state(lake, f"notes@{lake.load_table('notes.documents').metadata.current_snapshot_id}")
    assert dataset_diff(lake, same, same).newly_failed == {}
    assert run_command(["diff", "notes@before", "notes", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["added"] == len(came)
    for wrong, said in {
        "note": "namespace note is not in the lake; did you mean 'notes'?",
        "notes@befor": "release befor: there is none; did you mean 'before'?",
        "notes@12345": "12345 is no snapshot of notes (expired ones are gone)",
        "notes@2020-01-01": "notes had no table yet",
    }.items():
        assert run_command(["diff", wrong, "notes"]) == 2
        assert said in capfd.readouterr().err


def test_a_snapshot_that_was_published_later_than_written(lake: Catalog) -> None:
    """A step writes to a branch and publishes: its snapshot means the table as published, others as of that moment."""
    put(lake, "notes", VERDICTS, 0, [{"doc_id": "a"}])
    put(lake, "notes", DOCUMENTS, 0, [{"doc_id": "a"}])
    documents = lake.load_table("notes.documents")
    documents.manage_snapshots().create_branch(documents.metadata.current_snapshot_id or 0, "audit").commit()
    documents.append(documents.scan().to_arrow(), branch="audit")
    staged = documents.refs()["audit"].snapshot_id
    put(lake, "notes", VERDICTS, 1, [{"doc_id": "b"}])
    between = lake.load_table("notes.verdicts").metadata.current_snapshot_id
    publish = _ref("main", staged)
    commit(lake, "notes.documents", lambda table: (), lambda table: (publish,))
    put(lake, "notes", VERDICTS, 2, [{"doc_id": "c"}])
    assert find_state(lake, f"notes@{staged}").snapshots == {"documents": staged, "verdicts": between}


def test_a_state_of_which_a_snapshot_expired_is_gone(lake: Catalog) -> None:
    """Neither an older tagged snapshot nor no table takes the place of one that expiry removed."""
    put(lake, "notes", VERDICTS, 0, [{"doc_id": "a"}])
    create_release(lake, "v1", ["notes"])
    put(lake, "notes", VERDICTS, 1, [{"doc_id": "b"}])
    verdicts = lake.load_table("notes.verdicts")
    gone = verdicts.metadata.current_snapshot_id or 0
    put(lake, "notes", DOCUMENTS, 0, [{"doc_id": "a"}])
    moment = lake.load_table("notes.documents").metadata.current_snapshot_id
    put(lake, "notes", VERDICTS, 2, [{"doc_id": "c"}])
    assert find_state(lake, f"notes@{moment}").snapshots["verdicts"] == gone
    lake.load_table("notes.verdicts").maintenance.expire_snapshots().by_id(gone).commit()
    with pytest.raises(CommandError, match="verdicts has no snapshot of that time any more"):
        find_state(lake, f"notes@{moment}")
    delete_release(lake, "v1")
    first = find_state(lake, "notes").snapshots["verdicts"]
    verdicts = lake.load_table("notes.verdicts")
    old = [one.snapshot_id for one in verdicts.snapshots() if one.snapshot_id != first]
    verdicts.maintenance.expire_snapshots().by_ids(old).commit()
    with pytest.raises(CommandError, match="verdicts has no snapshot of that time any more"):
        find_state(lake, f"notes@{moment}")


def test_a_table_that_came_later_hinders_no_comparison(lake: Catalog, capfd: Said) -> None:
    """Where its first snapshot has expired the ledger says so; of tables that are not compared nothing is asked."""
    put(lake, "notes", DOCUMENTS, 0, [{"doc_id": "a"}])
    moment = lake.load_table("notes.documents").metadata.current_snapshot_id
    for declared, hours in ((VERDICTS, 10**6), (SIGNALS, 0)):
        for increment in (0, 1):
            put(lake, "notes", declared, increment, [{"doc_id": str(increment)}], hours=hours)
        table = lake.load_table(f"notes.{declared.name}")
        table.maintenance.expire_snapshots().by_id(table.history()[0].snapshot_id).commit()
    assert find_state(lake, f"notes@{moment}").snapshots.keys() == {"documents"}
    assert run_command(["diff", f"notes@{moment}", "notes"]) == 0
    assert "documents: 1 -> 1" in capfd.readouterr().out


def _verdict(doc: str, failed: dict[str, list[str]]) -> dict[str, object]:
    rules = [{"rule": rule, "value": 1.0, "threshold": 2.0} for rule in failed[doc]]
    return {"doc_id": doc, "failed": rules, "kept": not rules}


@pytest.mark.filterwarnings("ignore:Parquet writer option")
def test_a_corpus_before_and_after(lake: Catalog, capfd: Said) -> None:
    """Members, duplicates since, documents kept since, tokens; the snapshot of any table means its moment."""
    ids = [f"{n:032x}" for n in range(100)]
    rows = [{"doc_id": doc, "dataset": "notes"} for doc in ids]
    put(lake, "main", INCREMENTS, 0, [{"dataset": "notes"}])
    put(lake, "main", MEMBERS, 0, rows[:80])
    put(lake, "main", SURVIVORS, 0, rows[:60])
    put(lake, "main", TOKENS, 0, [{"doc_id": doc, "token_count": 10, "input_ids": []} for doc in ids[:60]])
    moment = lake.load_table("main.tokens").metadata.current_snapshot_id
    for table, declared, kept in (("members", MEMBERS, rows[10:]), ("survivors", SURVIVORS, rows[30:90])):
        lake.load_table(f"main.{table}").delete()
        put(lake, "main", declared, 0, kept)
    found = corpus_diff(lake, find_state(lake, f"main@{moment}"), find_state(lake, "main"))
    assert (found.before, found.after, found.added, found.removed) == (80, 90, 20, 10)
    assert (found.newly_removed, found.newly_kept) == (20, 20)  # 10..29 are duplicates since, 60..79 are kept since
    assert found.totals == {"tokens": (600, 500)} and found.examples["newly_kept"][0] == ids[60]
    put(lake, "notes", DOCUMENTS, 0, [{"doc_id": "a"}])
    assert run_command(["diff", "main", "notes"]) == 2
    assert "notes: has no table members, so it is no corpus" in capfd.readouterr().err
    assert run_command(["diff", f"main@{moment}", "main"]) == 0
    assert "duplicates since           20" in capfd.readouterr().out


def test_a_release_is_kept_whole_or_not_at_all(lake: Catalog, monkeypatch: pytest.MonkeyPatch, capfd: Said) -> None:
    """A kill before the last commit leaves tags that the next try replaces; names are bound once; delete lets go."""
    put(lake, "notes", DOCUMENTS, 0, [{"doc_id": "a"}])
    put(lake, "notes", VERDICTS, 0, [{"doc_id": "a"}])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(releases, "ensure_table", killed)
        create_release(lake, "v1", ["notes"])
    with pytest.raises(InputError, match="release v1: there is none"):
        find_release(lake, "v1")
    put(lake, "notes", DOCUMENTS, 1, [{"doc_id": "b"}])
    made = create_release(lake, "v1", ["notes"], "the first")
    documents = lake.load_table("notes.documents")
    assert documents.refs()["release_v1"].snapshot_id == documents.metadata.current_snapshot_id
    assert find_release(lake, "v1").snapshots == made.snapshots and made.versions["notes.documents"].startswith("v2:2:")
    with pytest.raises(InputError, match="release v1: is there already"):
        create_release(lake, "v1", ["notes"])
    said_of = {"V 1": "a name is of small letters", "20261120": "would mean that time", "v2": "nots holds no table"}
    for name, said in said_of.items():
        with pytest.raises(InputError, match=said):
            create_release(lake, name, ["nots"])
    assert create_release(lake, "v2", ["notes"]).digest == made.digest, "the same rows have the same digest"
    assert run_command(["release"]) == run_command(["release", "v1"]) == 0
    assert "the first" in capfd.readouterr().out
    assert run_command(["release", "v1", "--delete", "--yes"]) == 0
    assert set(lake.load_table("notes.documents").refs()) == {"main", "release_v2"}
    delete_release(lake, "v2")
    assert releases.releases(lake) == [] and load_table(lake, "notes.documents") is not None


def test_a_card_has_the_header_of_hubs_and_no_text(lake: Catalog, capfd: Said, tmp_path: Path) -> None:
    """Licences, sizes, rules with thresholds, provenance; what the documents say is not in it."""
    row = {"kind": "prose", "language": "no", "byte_count": 7, "content": "a secret"}
    licences = ["MIT", "mit", None]
    put(lake, "notes", DOCUMENTS, 0, [{**row, "doc_id": str(n), "licence": one} for n, one in enumerate(licences)])
    put(lake, "notes", VERDICTS, 0, [_verdict(str(n), {"0": ["too_long"], "1": [], "2": []}) for n in range(3)])
    assert run_command(["dataset", "show", "--card", "notes", "--output", str(tmp_path / "README.md")]) == 0
    text = (tmp_path / "README.md").read_text()
    reader = YAML(typ="safe", pure=True)
    reader.version = (1, 1)  # as hubs read it: a bare `no` is False
    header = reader.load(text.split("---")[1])
    assert header["license"] == ["mit"] and header["language"] == ["no"] and header["size_categories"] == ["n<1K"]
    for part in (
        "3 documents, 21 bytes",
        "| none | 1 | 7 |",
        "2 of 3 documents pass",
        "| too_long | 1 |",
        "`headrace rights croissant notes`",
        "Provenance",
    ):
        assert part in text
    assert "secret" not in text
    assert run_command(["dataset", "show", "--card", "nots"]) == 2 and "did you mean 'notes'?" in capfd.readouterr().err


def test_a_card_with_noise_has_no_true_count(lake: Catalog, capfd: Said) -> None:
    """Every count is what was drawn, small groups are `other`, and what one document may change by more is left out."""
    kinds, licences = ["prose"] * 4051 + ["code"] * 1207, ["MIT"] * 5237 + ["Rare-1.0"] * 21
    rows = [
        {"kind": k, "licence": one, "language": "en", "byte_count": 7} for k, one in zip(kinds, licences, strict=True)
    ]
    put(lake, "notes", DOCUMENTS, 0, [{**row, "doc_id": str(n)} for n, row in enumerate(rows)])
    failing = {str(n): ["manifest"] * (n < 1033) for n in range(len(rows))}
    put(lake, "notes", VERDICTS, 0, [_verdict(str(n), failing) for n in range(len(rows))])
    drawn: list[float] = []

    def draw(counts: list[int], scale: float) -> list[int]:
        drawn.append(scale)
        return [count - (9 if count == 21 else 100) for count in counts]

    privacy = Privacy(0.5, 13, draw)
    text = card(lake, "notes", privacy)
    touched = 3 + 1 + 2  # kind, language, licence; whether all rules are passed; two rules that need no policy
    assert set(drawn) == {touched / 0.5} and "epsilon is 0.5 for this card" in text
    for part in (
        "| prose | 3,951 |",
        "| MIT | 5,137 |",
        "| other | 12 |",
        "| manifest | 933 |",
        "About 4,125 of 5,058",
    ):
        assert part in text
    true = {4051, 1207, 5237, 21, 1033, 5258, 4225, 7 * 5258}
    assert not true & {int(number.replace(",", "")) for number in re.findall(r"(?<![\w.])\d[\d,]*(?![\w.-])", text)}
    assert "croissant" not in text  # its counts are exact
    assert "Rare" not in text and "rare" not in text and "bytes |" not in text and "| left out |" in text
    assert "| Rare-1.0 | 12 |" in card(lake, "notes", Privacy(0.5, 12, draw))  # the bound itself is named
    for bad in (["--epsilon", "0"], ["--epsilon", "inf"], ["--epsilon", "1", "--min-group", "0"], ["--min-group", "5"]):
        assert (
            run_command(["dataset", "show", "--card", "notes", *bad]) == 2 and capfd.readouterr().err.count("\n") == 1
        )


def test_a_card_names_every_licence_of_an_expression() -> None:
    """As hubs name them; what is not on SPDX's list is `other`."""
    licences = ["MIT OR Apache-2.0", "GPL-2.0-only WITH Linux-syscall-note", "MIT", "LicenseRef-stated-Foo", "in words"]
    assert _hub_licences(licences) == ["mit", "apache-2.0", "gpl-2.0-only", "other"]
    assert _hub_licences([]) == ["unknown"]
