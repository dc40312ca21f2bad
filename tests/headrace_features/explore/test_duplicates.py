"""The pages of duplicates: groups, witnesses and lists are those of a small corpus that is compared by hand."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from starlette.testclient import TestClient

from dagster_project.inspect.documents.duplicate_group import GroupMember, duplicate_group, why_first
from dagster_project.inspect.documents.side_by_side import changed_spans
from dagster_project.inspect.lake.corpus_facts import find_corpus
from headrace.tables.settings import settings_at
from spark_jobs.dedup.graph.components import COMPONENTS
from spark_jobs.dedup.membership.exact_duplicates import EXACT_DUPLICATES
from spark_jobs.dedup.membership.keep_priority import HASH_BITS
from spark_jobs.dedup.membership.members import MEMBERS
from spark_jobs.dedup.near.pairs import PAIRS
from spark_jobs.dedup.removal.removals import REMOVALS
from spark_jobs.dedup.removal.survivors import SURVIVORS
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.registry import find_selection
from tests.dagster_project.waiting_lake import publish
from tests.headrace_features.explore.judged_lake import HOSTILE, Rows, judged_rows, make, pages

THRESHOLD = 0.6
COUNT = 36


def planted() -> Rows:
    """Documents of three families of edited texts, some of them copies of others, in two increments."""
    draw = random.Random(7)
    rows = judged_rows(COUNT, seed=9)
    for number, row in enumerate(rows):
        words = [f"w{number % 3}x{at}" for at in range(12)]
        for at in draw.sample(range(12), number % 5):
            words[at] = f"n{number}x{at}"
        row |= {"words": frozenset(words), "content": " ".join([*words, HOSTILE]), "kind": "prose"}
        row |= {"increment": number % 2, "place": (number % 4) << HASH_BITS | number, "word_count": 30}
        row |= {"digit_fraction": None, "generated_marker": None}
    return rows


def similarity(one: dict[str, Any], other: dict[str, Any]) -> Fraction:
    """J of two sets of words."""
    return Fraction(len(one["words"] & other["words"]), len(one["words"] | other["words"]))


ROWS = sorted(planted(), key=lambda row: (row["increment"], row["place"], row["doc_id"]))
BY_ID = {row["doc_id"]: row for row in ROWS}
FIRST = {row["doc_id"]: next(one for one in ROWS if one["words"] == row["words"])["doc_id"] for row in ROWS}
DISTINCT = [row for row in ROWS if FIRST[row["doc_id"]] == row["doc_id"]]
LINKED = {
    (one["doc_id"], other["doc_id"]): similarity(one, other)
    for at, one in enumerate(DISTINCT)
    for other in DISTINCT[at + 1 :]
    if similarity(one, other) >= Fraction("0.6")
}


def kept() -> dict[str, str | None]:
    """By distinct document the kept one for which it goes, None where it stays: greedily, the best first."""
    found: dict[str, str | None] = {}
    for row in DISTINCT:
        better = [(-j, one) for (one, two), j in LINKED.items() if two == row["doc_id"] and found[one] is None]
        found[row["doc_id"]] = min(better)[1] if better else None
    return found


def components() -> dict[str, set[str]]:
    """Documents of the component of each, by doc_id."""
    groups = {row["doc_id"]: {row["doc_id"]} for row in DISTINCT}
    for one, other in LINKED:
        whole = groups[one] | groups[other]
        groups |= dict.fromkeys(whole, whole)
    return groups


WITNESS, GROUPS = kept(), components()
GONE = {doc_id for doc_id, witness in WITNESS.items() if witness} | (BY_ID.keys() - WITNESS.keys())


def corpus_tables() -> Iterator[tuple[Table, Rows, dict[str, Any], tuple[str, ...]]]:
    """Tables of the corpus with their configs and inputs."""
    place = {"dataset": "notes"}
    facts = {"shard": 0, "repository": None, "content_sha256": "0" * 64}
    named = ("doc_id", "path", "place", "kind", "byte_count")
    config = {"datasets": ["notes"], "keep_first": ["dataset", "licensed"]}
    members = [{**place, **facts, **{k: row[k] for k in (*named, "increment")}} for row in ROWS]
    yield MEMBERS, members, config, ("notes.verdicts",)
    exact = [
        {
            **place,
            "doc_id": doc_id,
            "witness_doc_id": first,
            "matched": "bytes",
            "increment": BY_ID[doc_id]["increment"],
        }
        for doc_id, first in FIRST.items()
        if doc_id != first
    ]
    yield EXACT_DUPLICATES, exact, {}, ()

    def weights(one: str, other: str) -> dict[str, Any]:
        words, others = BY_ID[one]["words"], BY_ID[other]["words"]
        shared, united = len(words & others), len(words | others)
        return {"shared_weight": shared, "united_weight": united, "similarity": shared / united}

    pairs = [
        {
            "kind": "prose", **place, "doc_id": other, "place": BY_ID[other]["place"], "better_dataset": "notes",
            "better_doc_id": one, "better_place": BY_ID[one]["place"], "better_increment": BY_ID[one]["increment"],
            "increment": BY_ID[other]["increment"], **weights(one, other),
        }
        for one, other in LINKED
    ]  # fmt: skip
    yield PAIRS, pairs, {"thresholds": {"prose": [THRESHOLD, 0.9]}}, ()
    linked = [
        {"threshold": THRESHOLD, "doc_id": one, "component": min(group), "document_count": len(group), "increment": 1}
        for one, group in GROUPS.items()
        if len(group) > 1
    ]
    yield COMPONENTS, linked, {}, ()
    removals = [
        {"threshold": t, **place, "doc_id": one, "witness_dataset": "notes", "witness_doc_id": witness,
         "repository": None, "increment": BY_ID[one]["increment"], **weights(one, witness)}
        for one, witness in WITNESS.items()
        if witness
        for t in (THRESHOLD, 0.9)
    ]  # fmt: skip
    yield REMOVALS, removals, {}, ()
    stay = [{**place, "shard": 0, "doc_id": one, "increment": BY_ID[one]["increment"]} for one in BY_ID.keys() - GONE]
    yield SURVIVORS, stay, {"threshold": {"prose": THRESHOLD}}, ("main.removals",)


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake with a corpus of one dataset."""
    opened = open_catalogue(settings_at(tmp_path_factory.mktemp("lake")))
    make(opened, ROWS)
    for declared, rows, config, inputs in corpus_tables():
        for increment in (0, 1):
            publish(
                opened,
                "main",
                declared,
                increment,
                [one for one in rows if one["increment"] == increment],
                config,
                inputs,
            )
    return opened


@pytest.fixture(scope="module")
def client(catalogue: Catalog, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """Its pages."""
    return pages(catalogue, tmp_path_factory.mktemp("pages"))


def test_planted_corpus_has_every_case() -> None:
    """Exact copies, near ones, some of whose witnesses have copies; and some that stay."""
    assert len(FIRST) > len(DISTINCT) > sum(one is None for one in WITNESS.values()) > 3


def test_every_document_shows_its_witness_and_its_whole_group(client: TestClient) -> None:
    """Side by side with what it went for, J as of its words, all members and links."""
    for doc_id, first in list(FIRST.items())[::3]:
        shown = client.get(f"/corpora/main/duplicates/{doc_id}.json").json()
        witness = first if first != doc_id else WITNESS[doc_id]
        assert shown["witness"] == witness
        group = {one for one, other in FIRST.items() if other in GROUPS[first]}
        assert [one["doc_id"] for one in shown["members"]] == [one for one in BY_ID if one in group]
        assert {one["doc_id"] for one in shown["members"] if one["removed"]} == group & GONE
        links = {(one["first"], one["second"]) for one in shown["links"]}
        copies = {(other, one) for one, other in FIRST.items() if one in group and one != other}
        assert links == {pair for pair in LINKED if pair[0] in group} | copies
        if witness is None:
            continue
        assert shown["beside"]["doc_id"] == witness
        assert Fraction(shown["link"]["shared_weight"], shown["link"]["united_weight"]) == similarity(
            BY_ID[doc_id], BY_ID[witness]
        )
        left = " ".join(row["left"] for row in shown["rows"])
        assert (left == "") == shown["equal"] == (BY_ID[doc_id]["content"] == BY_ID[witness]["content"])
        assert shown["equal"] or left == BY_ID[doc_id]["content"]


def test_a_pair_is_drawn_and_runs_nothing(client: TestClient) -> None:
    """A node for each member and a line for each link, texts as they are; another one of the group may be chosen."""
    doc_id = next(one for one, witness in WITNESS.items() if witness)
    page = client.get(f"/corpora/main/duplicates/{doc_id}").text
    shown = client.get(f"/corpora/main/duplicates/{doc_id}.json").json()
    assert page.count("<circle") == len(shown["members"]) and page.count("<line") == len(shown["links"])
    assert "<script>alert" not in page and "\u202e" not in page and "&lt;script&gt;" in page
    other = next(one["doc_id"] for one in shown["members"] if one["doc_id"] not in (doc_id, shown["witness"]))
    assert client.get(f"/corpora/main/duplicates/{doc_id}.json?beside={other}").json()["beside"]["doc_id"] == other
    stranger = next(one for one in BY_ID if one not in {member["doc_id"] for member in shown["members"]})
    assert "not in the group" in client.get(f"/corpora/main/duplicates/{doc_id}?beside={stranger}").text


def test_what_was_removed_is_a_list(client: TestClient) -> None:
    """Exactly those that went, the least similar first, each with its pair's page; counts and other filters agree."""
    client.get("/datasets/notes/facets")  # which waits for the index
    listed = client.get("/datasets/notes/documents.json?removed=main&sort=distance").json()["rows"]
    assert {row["doc_id"] for row in listed} == GONE
    j = [row["similarity"] for row in listed]
    assert j == sorted(j)
    for row in listed:
        first = FIRST[row["doc_id"]]
        expected = ("exact", first) if first != row["doc_id"] else ("near", WITNESS[row["doc_id"]])
        assert (row["level"], row["witness"]) == expected
    facets = client.get("/datasets/notes/facets.json").json()
    assert facets["facets"]["removed"] == [["main", len(GONE)]]
    narrow = client.get("/datasets/notes/facets.json?removed=main&path=p1").json()
    assert narrow["selected"] == sum("p1" in BY_ID[one]["path"] for one in GONE)
    page = client.get("/datasets/notes/documents?removed=main").text
    assert f'href="/corpora/main/duplicates/{listed[0]["doc_id"]}"' in page
    page = client.get("/datasets/notes/documents?removed=main&sort=distance").text
    (without,) = re.findall(r'href="([^"]+)" aria-label="without removed"', page)
    assert client.get(without).status_code == 200, "a list that is not of the removed has no distance to sort by"
    assert client.get("/datasets/notes/documents?removed=mian").status_code == 404


def test_the_page_of_a_corpus(client: TestClient) -> None:
    """What is left after each step, and its largest groups."""
    shown = client.get("/corpora/main.json").json()
    steps = {one["step"]: one["documents"] for one in shown["stages"]}
    assert steps == {
        "landed": COUNT, "verdicts": COUNT, "members": COUNT, "exact_duplicates": len(DISTINCT),
        "survivors": COUNT - len(GONE),
    }  # fmt: skip
    groups = {min(group): len(group) for group in GROUPS.values() if len(group) > 1}
    assert {one["component"]: one["document_count"] for one in shown["groups"]} == groups
    assert "kept first by dataset, licensed" in client.get("/corpora/main").text


@pytest.mark.nightly
def test_a_large_group_is_cut_but_for_the_witness(catalogue: Catalog) -> None:
    """Of two documents looked at one is that for which the document went; the size of the whole is told."""
    corpus = find_corpus(catalogue, "main")
    for doc_id, witness in WITNESS.items():
        if witness:
            group = duplicate_group(catalogue, corpus, doc_id, most=2)
            assert {doc_id, witness} <= {one.doc_id for one in group.members}
            assert group.total == len(GROUPS[doc_id])


def test_why_one_is_kept_first(catalogue: Catalog) -> None:
    """By increment, then by priority, then by hash."""
    corpus = find_corpus(catalogue, "main")

    def member(increment: int, priority: int, rest: int, dataset: str = "notes") -> GroupMember:
        return GroupMember("0", dataset, None, "p", "prose", 1, increment, priority << HASH_BITS | rest, None)

    assert "increment 0, the other 1" in why_first(member(0, 3, 0), member(1, 0, 0), corpus)
    assert "priority is 0, the other's 3" in why_first(member(0, 0, 9), member(0, 3, 0), corpus)
    assert "notes stands before web" in why_first(member(0, 0, 9), member(0, 3, 0, "web"), corpus)
    assert "hashes decide" in why_first(member(0, 1, 0), member(0, 1, 1), corpus)


@pytest.mark.parametrize(
    ("left", "right"), [("a b c", "a x c"), ("", "new"), ("one two", "one"), ("a-b c", "a+b c d"), ("ab", "ab")]
)
def test_marks_hold_all_that_differs(left: str, right: str) -> None:
    """What is left of both without the marked spans is the same."""
    rest = []
    for piece, spans in zip((left, right), changed_spans(left, right), strict=True):
        inside = {at for start, end in spans for at in range(start, end)}
        rest.append("".join(letter for at, letter in enumerate(piece) if at not in inside))
    assert rest[0] == rest[1]
    assert re.search(r"\w", rest[0]) or "" in (left, right)


def test_one_that_means_the_same_has_its_witness(catalogue: Catalog) -> None:
    """By the table of the selection `semantic`, whose rows link two groups."""
    one, other = [doc_id for doc_id, witness in WITNESS.items() if witness is None][-2:]
    weights = {"shared_weight": 97, "united_weight": 100, "similarity": 0.97}
    columns = (Column("doc_id!", "string", "it"), Column("witness_doc_id!", "string", "for which it went"))
    columns += tuple(Column(f"{name}!", "double" if name == "similarity" else "long", name) for name in weights)
    declared = Table(
        name="semantic_removals", comment="as of the level", columns=columns, partition=("increment",), key=()
    )
    publish(catalogue, "main", declared, 0, [{"doc_id": other, "witness_doc_id": one, **weights}])
    stages = (find_selection("semantic").stage,)
    corpus = dataclasses.replace(find_corpus(catalogue, "main"), stages=stages)
    assert duplicate_group(catalogue, corpus, other).witness == one
    for doc_id in (one, other):
        group = duplicate_group(catalogue, corpus, doc_id)
        assert [(link.first, link.second, link.similarity) for link in group.links if link.match == "semantic"] == [
            (one, other, 0.97)
        ]
        assert {one, other} <= {member.doc_id for member in group.members}
