"""`headrace doc` and `headrace corpus` on a lake with planted duplicates, against its tables and what was planted."""

from __future__ import annotations

import functools
import json
import random
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from blender_service.auth.visibility import VISIBILITY_TABLE
from dagster_project.cli import run_command
from dagster_project.exceptions import CommandError
from dagster_project.inspect.documents.document_lookup import find_document
from dagster_project.inspect.documents.document_story import corpus_findings
from dagster_project.inspect.documents.trace import TokenTracer
from dagster_project.inspect.lake.corpus_facts import CorpusFacts, find_corpus
from dagster_project.restrictions import RECORD
from headrace.tables.catalogue import load_table
from headrace.tables.settings import settings_at
from spark_jobs.lake.ledger.acts import AUDIT_TABLE
from spark_jobs.lake.plan.excisions import excised_documents
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from tests.benchmarks.loading import load
from tests.dagster_project.planted_lake import ALONE, EDITS, PlantedLake, make

bench_known_pairs = load("bench_known_pairs")

pytestmark = pytest.mark.nightly

Said = pytest.CaptureFixture[str]
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, spark: object) -> PlantedLake:
    """The lake, made once."""
    return make(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def catalogue(planted: PlantedLake) -> Catalog:
    """Its catalogue."""
    return open_catalogue(settings_at(planted.root))


@pytest.fixture(autouse=True)
def here(planted: PlantedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands look into that lake, in a terminal that is wide enough for one line a row."""
    for name, value in planted.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADRACE_DEBUG", "")
    monkeypatch.setenv("COLUMNS", "200")


def printed(capfd: Said, *arguments: str) -> str:
    """What a good command prints."""
    capfd.readouterr()
    status = run_command(list(arguments))
    out, err = capfd.readouterr()
    assert (status, err) == (0, ""), f"{out}\n{err}"
    return out


def refused(capfd: Said, *arguments: str) -> str:
    """The one line of a command that ends with status 2."""
    capfd.readouterr()
    assert run_command(list(arguments)) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("headrace: "), f"{out}\n{err}"
    return err.removeprefix("headrace: ").rstrip()


@functools.cache
def rows(catalogue: Catalog, table: str) -> Rows:
    """All rows of a table, by PyIceberg's own scan."""
    found: Rows = catalogue.load_table(table).scan().to_arrow().to_pylist()
    return found


def ids(catalogue: Catalog) -> dict[str, str]:
    """doc_id by record id or file name, of members."""
    return {row["path"].split("#")[-1]: row["doc_id"] for row in rows(catalogue, "small.members")}


def by_table(said: Any) -> dict[str, Rows]:
    """Findings of `doc why --json` by the name of the table."""
    found: dict[str, Rows] = {}
    for finding in said["findings"]:
        found.setdefault(finding["table"], []).append(finding)
    return found


def why(capfd: Said, document: str) -> dict[str, Rows]:
    """Findings of `doc why`."""
    return by_table(json.loads(printed(capfd, "doc", "why", document, "--json")))


def test_the_lake_holds_what_was_planted(catalogue: Catalog) -> None:
    """The other tests mean something: every kind of fate is there."""
    names = {doc_id: name for name, doc_id in ids(catalogue).items()}
    exact = {names[row["doc_id"]]: row for row in rows(catalogue, "small.exact_duplicates")}
    assert len(exact) == 2 and set(exact) < {"base", "twin", "shout"}
    assert {row["matched"] for row in exact.values()} <= {"bytes", "letters"}
    assert len(rows(catalogue, "small.members")) == ALONE + len(EDITS) + 7
    removals = rows(catalogue, "small.removals")
    assert {row["threshold"] for row in removals} == {0.7, 0.8, 0.9}
    assert {row["increment"] for row in removals} == {0, 1}
    applied = {row["doc_id"] for row in removals if row["threshold"] == 0.8}
    assert {row["doc_id"] for row in removals if row["threshold"] == 0.7} > applied


def test_every_member_has_the_fate_that_the_tables_tell(catalogue: Catalog, capfd: Said) -> None:
    """Findings of every document against the rows of every table: none is missing, none is invented."""
    members = rows(catalogue, "small.members")
    exact = {row["doc_id"]: row for row in rows(catalogue, "small.exact_duplicates")}
    removals = {(row["doc_id"], row["threshold"]): row for row in rows(catalogue, "small.removals")}
    survivors = {row["doc_id"] for row in rows(catalogue, "small.survivors")}
    ranks = {row["doc_id"]: row["rank"] for row in rows(catalogue, "small.ordered")}
    tokens = {row["doc_id"]: row["token_count"] for row in rows(catalogue, "small.tokens")}
    bags = {row["doc_id"]: row["token_count"] for row in rows(catalogue, "small.bags")}
    for member in members:
        doc_id, dataset = member["doc_id"], member["dataset"]
        found = why(capfd, doc_id)
        assert found["small.members"][0]["increment"] == member["increment"]
        assert found[f"{dataset}.documents"][0]["path"] == member["path"]
        assert found[f"{dataset}.verdicts"][0]["outcome"] == "kept"
        assert ("small.survivors" in found) and found["small.survivors"][0]["outcome"] == (
            "survivor" if doc_id in survivors else "gone"
        )
        if doc_id in exact:
            (one,) = found["small.exact_duplicates"]
            assert (one["outcome"], one["witness_doc_id"]) == ("removed", exact[doc_id]["witness_doc_id"])
            assert "small.removals" not in found and "small.bags" not in found
            continue
        assert found["small.bags"][0]["token_count"] == bags[doc_id]
        assert [one["threshold"] for one in found["small.removals"]] == [0.7, 0.8, 0.9]
        for one in found["small.removals"]:
            row = removals.get((doc_id, one["threshold"]))
            assert one["applied"] == (one["threshold"] == 0.8)
            assert one["outcome"].endswith("removed" if row else "kept")
            assert one["outcome"].startswith("would_be") != one["applied"]
            for column in ("witness_doc_id", "shared_weight", "united_weight") if row else ():
                assert row is not None and one[column] == row[column]
        if doc_id in survivors:
            assert found["small.ordered"][0]["rank"] == ranks[doc_id]
            assert found["small.tokens"][0]["token_count"] == tokens[doc_id]
            assert found[f"small.packed_{dataset}_256"][0]["ordinals"] == windows_of(catalogue, dataset, doc_id)
        else:
            assert not {"small.ordered", "small.tokens", f"small.packed_{dataset}_256"} & set(found)


def windows_of(catalogue: Catalog, dataset: str, doc_id: str) -> list[int]:
    """Ordinals of the windows with a segment of a document."""
    return sorted(
        row["ordinal"]
        for row in rows(catalogue, f"small.packed_{dataset}_256")
        if any(segment["doc_id"] == doc_id for segment in row["segments"])
    )


def test_a_rejected_document_shows_every_failed_rule(catalogue: Catalog, capfd: Said) -> None:
    """Rule, value and bound; it is no member because of that."""
    found = why(capfd, "a.jsonl#short")
    (verdict,) = found["notes.verdicts"]
    assert verdict["outcome"] == "rejected"
    assert verdict["failed"] == [{"rule": "too_few_words", "value": 2.0, "threshold": 5.0}]
    assert "too_few_words (2, the bound is 5)" in verdict["sentence"]
    assert found["small.members"][0]["outcome"] == "rejected"


def test_an_older_revision_names_the_newer_one(catalogue: Catalog, capfd: Said) -> None:
    """A path with two revisions needs a doc_id; the older of them is no member, the newer one is."""
    revisions = {
        row["increment"]: row["doc_id"] for row in rows(catalogue, "manual.documents") if row["path"] == "page.md"
    }
    line = refused(capfd, "doc", "why", "page.md")
    assert line.startswith("document page.md may be any of 2: ") and all(one in line for one in revisions.values())
    (member,) = why(capfd, revisions[0])["small.members"]
    assert (member["outcome"], member["newer_doc_id"]) == ("older_revision", revisions[1])
    assert why(capfd, revisions[1])["small.members"][0]["outcome"] == "member"


def test_facts_of_arrival_and_edits_are_told(planted: PlantedLake, capfd: Said) -> None:
    """The file that it came from; edits by rule, counted."""
    found = why(capfd, "a.jsonl#windows")
    assert found["notes.arrivals"][0]["location"].endswith("/source/notes/a.jsonl")
    assert found["notes.texts"][0]["edits"] == {"line_ends": planted.texts["windows"].count("\r\n")}
    facts = found["notes.documents"][0]
    assert (facts["dataset"], facts["repository"], facts["licence"]) == ("notes", "shelf-1", None)
    assert facts["byte_count"] == len(planted.texts["windows"])
    assert why(capfd, "guide.md")["manual.arrivals"][0]["location"].endswith("/source/manual/guide.md")


def test_a_later_increment_is_told_with_its_witness(catalogue: Catalog, capfd: Said) -> None:
    """A document of the second increment goes because of one that the first one kept."""
    said = json.loads(printed(capfd, "doc", "why", "b.jsonl#late", "--json"))
    assert by_table(said)["small.members"][0]["increment"] == 1
    (witness,) = said["witnesses"]
    (row,) = [
        row
        for row in rows(catalogue, "small.removals")
        if row["doc_id"] == said["document"]["doc_id"] and row["threshold"] == 0.8
    ]
    assert (witness["doc_id"], witness["why"]) == (row["witness_doc_id"], "near")
    assert (witness["shared_weight"], witness["united_weight"]) == (row["shared_weight"], row["united_weight"])


def test_a_removal_is_shown_beside_its_witness(planted: PlantedLake, catalogue: Catalog, capfd: Said) -> None:
    """The two columns hold the changed lines of both texts as they are in the lake, and no more than context else."""
    removed = next(row for row in rows(catalogue, "small.removals") if row["threshold"] == 0.8)
    names = {doc_id: name for name, doc_id in ids(catalogue).items()}
    mine, theirs = (planted.texts[names[removed[key]]].split("\n") for key in ("doc_id", "witness_doc_id"))
    said = printed(capfd, "doc", "why", removed["doc_id"], "--full")
    assert f"J = {removed['similarity']:.4f}" in said
    shown = said.split("this document, removed", 1)[1]
    differing = [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]]
    for left, right in differing:
        assert any(left in line and right in line and "|" in line for line in shown.splitlines())
    assert f"{len(differing)} lines or sentences differ" in shown
    assert printed(capfd, "doc", "why", ids(catalogue)["alone-1"]).count("witness") == 0


def test_exact_duplicates_are_shown_as_equal(catalogue: Catalog, capfd: Said) -> None:
    """The same bytes differ in nothing; the same letters in every line here."""
    named = {doc_id: name for name, doc_id in ids(catalogue).items()}
    for row in rows(catalogue, "small.exact_duplicates"):
        said = printed(capfd, "doc", "why", row["doc_id"])
        if "shout" in (named[row["doc_id"]], named[row["witness_doc_id"]]):
            assert ", the same letters\n" in said and "10 lines or sentences differ" in said
        else:
            assert ", the same bytes\n" in said and said.rstrip().endswith("the two texts are equal")


def test_a_document_can_be_named_by_first_digits_or_path(catalogue: Catalog, capfd: Said) -> None:
    """6 digits are enough where they are unique; upper case too; fewer are no doc_id."""
    doc_id = ids(catalogue)["alone-3"]
    expected = printed(capfd, "doc", "why", doc_id)
    for given in (doc_id[:6], doc_id[:20].upper(), "a.jsonl#alone-3"):
        assert printed(capfd, "doc", "why", given) == expected
    assert "is in no table of documents" in refused(capfd, "doc", "why", doc_id[:5])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["doc", "why", "0" * 32], "is in no table of documents (manual, notes)"),
        (
            ["doc", "show", "--duplicates", "nothing.md"],
            "document nothing.md is in no table of documents (manual, notes)",
        ),
        (["doc", "why", "guide.md", "--corpus", "none"], "corpus none is not in the lake, there are small"),
        (["doc", "show", "--duplicates", "a.jsonl#short"], "is no member of any corpus; headrace doc why"),
        (
            ["doc", "show", "--duplicates", "guide.md", "--threshold", "0.5"],
            "--threshold 0.5: corpus small stores pairs from J = 0.7",
        ),
        (["corpus", "show", "--thresholds", "none"], "corpus none is not in the lake"),
    ],
)
def test_what_cannot_be_answered_is_one_line(capfd: Said, arguments: list[str], said: str) -> None:
    """What was given, what there is, how to mend."""
    assert said in refused(capfd, *arguments)


def test_an_empty_lake_says_so(tmp_path: Path, capfd: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """No dataset, no corpus."""
    for name, value in settings_at(tmp_path).properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    assert "no dataset was run" in refused(capfd, "doc", "why", "guide.md")
    assert "there is none yet" in refused(capfd, "corpus", "show", "--thresholds", "small")


def test_an_increment_that_was_not_taken_in_is_told(catalogue: Catalog) -> None:
    """The corpus has not run since the document landed: the sentence names the command."""
    document = replace(find_document(catalogue, "guide.md"), doc_id="f" * 32, increment=9)
    (finding,), witness = corpus_findings(catalogue, find_corpus(catalogue, "small"), document)
    assert (finding.outcome, witness) == ("not_taken_in", None)
    assert finding.sentence.endswith("headrace run small")


@pytest.mark.parametrize(("threshold", "every"), [(None, 1), (0.85, 3)])
def test_neighbours_are_all_pairs_and_exact_duplicates(
    catalogue: Catalog, capfd: Said, threshold: float | None, every: int
) -> None:
    """From both ends of `pairs`; a document that repeats another has the neighbours of the one that stands for it."""
    stands = {row["doc_id"]: row["witness_doc_id"] for row in rows(catalogue, "small.exact_duplicates")}
    pairs = rows(catalogue, "small.pairs")
    survivors = {row["doc_id"] for row in rows(catalogue, "small.survivors")}
    for member in sorted(rows(catalogue, "small.members"), key=lambda row: str(row["path"]))[::every]:
        doc_id = member["doc_id"]
        standing = stands.get(doc_id, doc_id)
        expected = {one: Fraction(1) for one in (*stands, standing) if stands.get(one, one) == standing}
        expected.pop(doc_id)
        for pair in pairs:
            similarity = Fraction(pair["shared_weight"], pair["united_weight"])
            ends = {pair["doc_id"], pair["better_doc_id"]}
            if standing in ends and similarity >= Fraction(str(threshold or 0)):
                expected[next(iter(ends - {standing}))] = similarity
        options = [] if threshold is None else ["--threshold", str(threshold)]
        said = json.loads(printed(capfd, "doc", "show", "--duplicates", doc_id, "--json", "--limit", "99", *options))
        found = said["neighbours"]
        assert {one["doc_id"]: Fraction(one["shared_weight"], one["united_weight"]) for one in found} == expected
        assert said["found"] == len(expected)
        assert all(one["kept"] == (one["doc_id"] in survivors) for one in found)
        assert (said["removed"] is None) == (doc_id in survivors)
        order = [one["similarity"] for one in found]
        assert order == sorted(order, reverse=True)


def test_neighbours_are_listed_for_people(catalogue: Catalog, capfd: Said) -> None:
    """One line each with J, the fraction, where it is and what became of it; the rest is counted."""
    doc_id = ids(catalogue)["near-4"]
    every = json.loads(printed(capfd, "doc", "show", "--duplicates", doc_id, "--json"))["neighbours"]
    lines = printed(capfd, "doc", "show", "--duplicates", doc_id, "--limit", "2").splitlines()
    assert len(every) > 2 and lines[-1] == f"{len(every) - 2} more; --limit {len(every)} shows all"
    for one, line in zip(every[:2], lines[-3:-1], strict=True):
        state = "kept" if one["kept"] else f"removed ({one['removed']})"
        for part in (f"{one['similarity']:.4f}", one["doc_id"][:12], one["path"], one["repository"], state):
            assert part in line
        assert f"{one['shared_weight']} / {one['united_weight']}" in line
    assert printed(capfd, "doc", "show", "--duplicates", ids(catalogue)["alone-0"]).endswith("\nno neighbour\n")


def scored(catalogue: Catalog, truth: Path, threshold: float | None = None) -> dict[str, Any]:
    """What the benchmark of known pairs says of the corpus, as JSON has it."""
    corpus = find_corpus(catalogue, "small")
    return bench_known_pairs.as_json(bench_known_pairs.evaluate(catalogue, corpus, truth, threshold))


def test_a_truth_file_of_all_pairs_found_scores_one(catalogue: Catalog, capfd: Said, tmp_path: Path) -> None:
    """At the lowest threshold; at higher ones recall is the share that is left, and precision stays one."""
    found = found_pairs(catalogue)
    file = tmp_path / "truth.txt"
    file.write_text("".join(f"{a} {b}\n" for a, b in (sorted(pair) for pair in found)))
    said = scored(catalogue, file)
    assert [one["threshold"] for one in said["thresholds"]] == [0.7, 0.8, 0.9]
    for one in said["thresholds"]:
        left = sum(similarity >= Fraction(str(one["threshold"])) for similarity in found.values())
        assert (one["found"], one["known"], one["both"]) == (left, len(found), left)
        assert (one["precision"], one["recall"]) == (1.0, left / len(found))
    assert said["unresolved"] == {"pairs": 0, "unknown": 0, "ambiguous": 0, "examples": []}


def found_pairs(catalogue: Catalog) -> dict[frozenset[str], Fraction]:
    """Every pair with its J, exact classes spelled out."""
    stands = {row["doc_id"]: row["witness_doc_id"] for row in rows(catalogue, "small.exact_duplicates")}
    members = [row["doc_id"] for row in rows(catalogue, "small.members")]
    weighed = {
        frozenset((row["doc_id"], row["better_doc_id"])): Fraction(row["shared_weight"], row["united_weight"])
        for row in rows(catalogue, "small.pairs")
    }
    found = {}
    for a, b in combinations(members, 2):
        ends = frozenset((stands.get(a, a), stands.get(b, b)))
        if len(ends) == 1 or ends in weighed:
            found[frozenset((a, b))] = Fraction(1) if len(ends) == 1 else weighed[ends]
    return found


def test_any_truth_scores_as_sets_do(catalogue: Catalog, capfd: Said, tmp_path: Path) -> None:
    """Random pairs by path, record id and doc_id, at a threshold between those of the list."""
    found = {pair for pair, similarity in found_pairs(catalogue).items() if similarity >= Fraction("0.85")}
    names = ids(catalogue)
    draw = random.Random(5)
    known = {frozenset(draw.sample(sorted(names), 2)) for _ in range(40)} | {frozenset(("twin", "near-2"))}
    lines = [(a, names[b]) if draw.random() < 0.5 else (b, f"a.jsonl#{a}") for a, b in map(sorted, known)]
    lines = [(a, b if b.split("#")[-1] not in ("late", "guide.md", "page.md") else b.split("#")[-1]) for a, b in lines]
    file = tmp_path / "truth.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in lines))
    said = scored(catalogue, file, 0.85)
    (one,) = said["thresholds"]
    truth = {frozenset(names[name] for name in pair) for pair in known}
    assert said["unresolved"]["pairs"] == 0
    assert (one["found"], one["known"], one["both"]) == (len(found), len(truth), len(found & truth))
    assert one["both"] > 0


def test_what_cannot_be_resolved_is_counted_and_shown(catalogue: Catalog, capfd: Said, tmp_path: Path) -> None:
    """Rejected documents and typing errors are no members: they are named, with what they keep out of the score."""
    file = tmp_path / "truth.txt"
    file.write_text("base twin\ntwin base\nbase base\nbase short\nnobody,nothing\n")
    said = scored(catalogue, file)
    assert (said["pairs"], said["repeated"], said["with_itself"]) == (5, 1, 1)
    assert said["unresolved"]["pairs"] == 2 and said["unresolved"]["examples"] == ["nobody", "nothing", "short"]
    assert {one["known"] for one in said["thresholds"]} == {1}
    bench_known_pairs.show(file, bench_known_pairs.evaluate(catalogue, find_corpus(catalogue, "small"), file, None))
    text = capfd.readouterr().out
    assert "5 pairs (2 with an identifier that cannot be resolved, in no score" in text
    assert "identifiers that name no member: 3 (nobody, nothing, short)" in text
    file.write_text("nobody nothing\n")
    with pytest.raises(CommandError, match=r"none of its 2 identifiers, e\.g\. 'nobody'"):
        scored(catalogue, file)


def test_without_the_level_near_exact_duplicates_alone_are_found(catalogue: Catalog, tmp_path: Path) -> None:
    """A corpus that was made with `levels: [exact]` has no pairs: one score, at J = 1."""
    tables = frozenset({"members", "exact_duplicates", "survivors"})
    corpus = CorpusFacts("small", tables, ("notes", "manual"), compared=None, applied=None)
    file = tmp_path / "truth.txt"
    file.write_text("base twin\nnear-2 near-4\n")
    (one,) = bench_known_pairs.evaluate(catalogue, corpus, file, None).scores
    assert (one.threshold, one.found, one.known, one.both) == (1.0, 3, 2, 1)


def test_thresholds_are_summed_over_increments(catalogue: Catalog, capfd: Said) -> None:
    """Documents and bytes from members and removals, components from pairs: by plain counting."""
    exact = {row["doc_id"] for row in rows(catalogue, "small.exact_duplicates")}
    members = {row["doc_id"]: row["byte_count"] for row in rows(catalogue, "small.members")}
    said = json.loads(printed(capfd, "corpus", "show", "--thresholds", "small", "--json"))
    assert [(one["threshold"], one["applied"]) for one in said] == [(0.7, False), (0.8, True), (0.9, False)]
    assert {one["repository_removed_count"] for one in said} == {0}
    for one in said:
        near = {row["doc_id"] for row in rows(catalogue, "small.removals") if row["threshold"] == one["threshold"]}
        kept = set(members) - exact - near
        assert (one["member_count"], one["exact_removed_count"]) == (len(members), len(exact))
        assert (one["near_removed_count"], one["kept_count"]) == (len(near), len(kept))
        assert one["kept_byte_count"] == sum(members[doc_id] for doc_id in kept)
        assert one["removed_byte_count"] == sum(members.values()) - one["kept_byte_count"]
        groups = linked(catalogue, Fraction(str(one["threshold"])))
        assert one["component_count"] == len(groups)
        assert one["largest_component"] == max(map(len, groups))
    text = printed(capfd, "corpus", "show", "--thresholds", "small")
    assert "24 members; near-duplicates go from J = 0.8 on" in text
    assert f"{said[0]['kept_count'] / 24:.2%}" in text


def linked(catalogue: Catalog, threshold: Fraction) -> list[set[str]]:
    """Components of the pairs of all increments."""
    groups: list[set[str]] = []
    for row in rows(catalogue, "small.pairs"):
        if Fraction(row["shared_weight"], row["united_weight"]) >= threshold:
            ends = {row["doc_id"], row["better_doc_id"]}
            met = [group for group in groups if group & ends]
            groups = [group for group in groups if not group & ends] + [ends.union(*met)]
    return groups


def test_tokens_of_a_real_run_lead_back_to_their_bytes(catalogue: Catalog, capfd: Said) -> None:
    """`doc show --windows` finds every part of a document with Windows line ends, `doc trace` each token's bytes."""
    said = json.loads(printed(capfd, "doc", "show", "--windows", ids(catalogue)["windows"], "--json"))
    doc_id = said["document"]["doc_id"]
    (text,) = (row for row in rows(catalogue, "notes.texts") if row["doc_id"] == doc_id)
    (source,) = (row for row in rows(catalogue, "notes.documents") if row["doc_id"] == doc_id)
    (own,) = (row for row in rows(catalogue, "small.tokens") if row["doc_id"] == doc_id)
    content, original = text["content"].encode(), source["content"].encode()
    assert b"\r\n" in original and b"\r" not in content
    assert sum(part["token_count"] for part in said["windows"]) == own["token_count"] + 1
    tracer = TokenTracer(catalogue, "small.packed_notes_256")
    spans = []
    for part in said["windows"]:
        for place in range(part["window_start"], part["window_start"] + part["token_count"]):
            found = tracer.trace(part["ordinal"], place)
            assert found.doc_id == doc_id
            if found.what == "token":
                assert found.token_id == own["input_ids"][found.document_token or 0]
                assert found.text_start is not None and found.source_start is not None
                spans.append((found.text_start, found.text_end, found.source_start, found.source_end))
    assert b"".join(content[start:end] for start, end, *_ in spans) == content
    for start, end, source_start, source_end in spans:
        assert original[source_start:source_end].replace(b"\r", b"") == content[start:end]


def test_excised_documents_are_told_with_their_duplicates(catalogue: Catalog, capfd: Said) -> None:
    """Duplicates are named with their fate and go along if asked; who was excised, when and by whom is told."""
    removed = [row for row in rows(catalogue, "small.removals") if row["threshold"] == 0.8]
    survivors = {row["doc_id"] for row in rows(catalogue, "small.survivors")}
    one = next(row for row in removed if row["witness_doc_id"] in survivors)
    witness = one["witness_doc_id"]
    neighbours = json.loads(printed(capfd, "doc", "show", "--duplicates", witness, "--threshold", "0.8", "--json"))[
        "neighbours"
    ]
    expected = {other["doc_id"]: {"small": other["removed"]} for other in neighbours}
    for row in rows(catalogue, "small.exact_duplicates"):
        if row["witness_doc_id"] in expected:
            expected[row["doc_id"]] = {"small": "exact"}
    assert one["doc_id"] in expected

    def excise(*arguments: str) -> Any:
        capfd.readouterr()
        assert run_command(["doc", "excise", "--yes", "--json", *arguments]) == 0
        return json.loads(capfd.readouterr().out)

    said = excise(witness)
    assert said["duplicates"] == expected
    assert said["documents"] == [witness]
    assert [table["excised"]["doc_ids"] for table in said["tables"]].count([witness]) == 1
    (own,) = why(capfd, witness)["system.excisions"]
    assert own["outcome"] == "excised" and "taken out of every packed table on 20" in own["sentence"]
    assert " by headrace doc excise by " in own["sentence"]
    packed = [found for table, found in why(capfd, witness).items() if "packed" in table]
    assert [finding["outcome"] for found in packed for finding in found] == ["excised"]
    (theirs,) = why(capfd, one["doc_id"])["system.excisions"]
    assert theirs["outcome"] == "witness_excised" and witness in theirs["sentence"]
    assert "it is in no packed table" in printed(capfd, "doc", "show", "--windows", witness)
    said = excise(witness, "--with-duplicates")
    assert said["documents"] == sorted({witness, *expected})
    assert excised_documents(catalogue, None) == {witness, *expected}


def test_a_look_at_restricted_rows_is_recorded(catalogue: Catalog, capfd: Said, tmp_path: Path) -> None:
    """Every command that shows rows or tells of single documents; those that show counts and names leave nothing."""
    table = "small.packed_notes_256"
    document = ids(catalogue)["base"]
    looks = [
        ["doc", "why", document],
        ["doc", "show", "--duplicates", document],
        ["doc", "show", "--windows", document],
        ["doc", "trace", table, "0", "3"],
        ["export", table, str(tmp_path / "shards")],
        ["diff", "notes", "notes"],
        ["diff", "small", "small"],
    ]
    record = ensure_table(catalogue, VISIBILITY_TABLE, RECORD, {})
    rows = [{"namespace": name, "visibility": "on_device", "teams": ""} for name in ("notes", "small")]
    record.append(pa.Table.from_pylist(rows, schema=record.schema().as_arrow()))
    try:
        for arguments in looks:
            before = audit_rows(catalogue)
            printed(capfd, *arguments)
            assert audit_rows(catalogue) > before, arguments
        before = audit_rows(catalogue)
        for arguments in (
            ["table", "show"],
            ["table", "show", table],
            ["status"],
            ["dataset", "show", "--card", "small"],
        ):
            printed(capfd, *arguments)
        assert audit_rows(catalogue) == before
    finally:
        catalogue.drop_table(VISIBILITY_TABLE)


def audit_rows(catalogue: Catalog) -> int:
    """Rows of `system.audit`."""
    table = load_table(catalogue, AUDIT_TABLE)
    return table.scan().count() if table is not None else 0
