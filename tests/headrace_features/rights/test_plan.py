"""What an entry hits: what was planted is named, each with how it was reached, and nothing else is."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import Catalog

from headrace_features.rights.plan import make_plan
from headrace_features.rights.register import add_entries, decide
from headrace_features.rights.subjects import opt_outs_of
from tests.headrace_features.rights.planted import make, name_of


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """The planted lake; entries are added to it, and withdrawn."""
    return make(tmp_path_factory.mktemp("planted"))


def reached(catalogue: Catalog, kind: str, *values: str) -> dict[str, str]:
    """How one entry reaches each document, by its name."""
    [entry] = add_entries(catalogue, opt_outs_of(catalogue, kind, values, "somebody"))  # type: ignore[arg-type]
    found = make_plan(catalogue, [entry.entry]).of(entry.entry)
    decide(catalogue, [entry.entry], "withdrawn", "the test ends")
    assert not make_plan(catalogue).entries
    return {name_of(document["doc_id"]): document["how"].split(" of ")[0] for document in found["documents"]}


OF_ANN = {
    **dict.fromkeys(("ann/tools:a.py", "ann/tools:b.py", "ann/tools:blank.py", "ann/tools:line.py"), "repository"),
    "bob/tools:a.py": "exact copy",
    "bob/tools:own.py": "fork", "zed/more:near.py": "near copy", "zed/more:part.py": "passage",
    "zed/more:other_part.py": "passage", "t#rephrased": "derived", "copy-of-rephrased": "exact copy",
}  # fmt: skip


@pytest.mark.parametrize("name", ["ann/tools", "ANN/*"])
def test_a_repository_has_its_forks_copies_passages_and_what_was_derived(catalogue: Catalog, name: str) -> None:
    """A pair below the threshold is none, nor are files of nothing, nor what is only near to a near copy."""
    assert reached(catalogue, "repository", name) == OF_ANN


def test_an_author_is_met_under_each_alias(catalogue: Catalog) -> None:
    """In metadata and as the owner of repositories."""
    found = reached(catalogue, "author", "a. miller", "Ann@example.org", "Ann")
    assert found == {**OF_ANN, **dict.fromkeys((name for name in OF_ANN if name.startswith("ann/")), "author"),
                     "zed/more:by.py": "author", "zed/more:also.py": "author"}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value"), [("domain", "example.org"), ("url_prefix", "https://www.example.org/blog/")]
)
def test_a_page_is_met_at_its_other_address(catalogue: Catalog, kind: str, value: str) -> None:
    """By http as by https, and where its bytes have another address; a longer name is another host."""
    found = reached(catalogue, kind, value)
    assert found == {"page": "url", "https://other.example/mirror": "exact copy"}


@pytest.mark.parametrize(
    ("kind", "value", "names"),
    [
        ("path", "by.py", {"zed/more:by.py"}),
        ("record", "t#rephrased", {"t#rephrased", "copy-of-rephrased"}),
        ("dataset", "nothing", set()),
        ("domain", "other.example", {"page", "https://other.example/mirror"}),
    ],
)
def test_other_kinds_hit_what_they_name(catalogue: Catalog, kind: str, value: str, names: set[str]) -> None:
    """And the copies of that."""
    assert set(reached(catalogue, kind, value)) == names


def test_windows_are_those_of_the_documents(catalogue: Catalog) -> None:
    """By table and snapshot."""
    [entry] = add_entries(catalogue, opt_outs_of(catalogue, "path", ["alone.py"], "somebody"))
    found = make_plan(catalogue, [entry.entry]).of(entry.entry)
    rows = catalogue.load_table("main.packed_code_16").scan().to_arrow().to_pylist()
    [document] = found["documents"]
    holding = {row["ordinal"] for row in rows if any(s["doc_id"] == document["doc_id"] for s in row["segments"])}
    assert holding and [part["ordinals"] for part in found["windows"]] == [sorted(holding)]
    decide(catalogue, [entry.entry], "refused", "not theirs")


def test_what_cannot_be_asked_is_told(catalogue: Catalog) -> None:
    """Commits of repositories whose git repository is not there have authors that nobody knows."""
    [entry] = add_entries(catalogue, opt_outs_of(catalogue, "author", ["nobody"], "nobody"))
    planned = make_plan(catalogue, [entry.entry])
    assert planned.hits.documents == {} and "code: authors of commits of 3 repositories" in planned.hits.not_asked[0]
    decide(catalogue, [entry.entry], "refused", "not theirs")
