"""What an entry hits: what was planted is named, each with how it was reached, and nothing else is."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import BlendSpec, SourceSpec, TextSpec
from blender_service.blend.store import open_store
from blender_service.order.offsets import offsets_of
from blender_service.server.blender import Blender
from blender_service.server.run_register import RunRegister
from headrace_features.rights.hits.plan import make_plan
from headrace_features.rights.register.register import add_entries, decide
from headrace_features.rights.register.subjects import opt_outs_of
from spark_jobs.sources.documents import ARRIVALS, DOCUMENTS
from spark_jobs.sources.landing.provenance import PROVENANCE
from spark_jobs.text.texts import TEXTS
from tests.blender_service.packed_tables import open_lake
from tests.blender_service.test_texts import put_texts
from tests.headrace_features.rights.planted import PACKED, doc_id_of, make, name_of, put
from tests.headrace_features.rights.test_summary import put_tokenizer
from tests.spark_jobs.sources.git_repositories import Repository


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


def test_runs_are_told_with_the_windows_that_they_read(tmp_path: Path) -> None:
    """As often as a run's rows of the blend meet a window that holds the document."""
    catalogue = make(tmp_path)
    blender = Blender(catalogue)
    blend_id = blender.create(BlendSpec((SourceSpec(PACKED, max_epochs=0),), seed=5)).blend_id
    register = RunRegister(open_store(catalogue).objects)
    spans = {"whole": (0, 120), "late": (7, 30), "none": (3, 3)}
    for name, (first, end) in spans.items():
        facts = {"blend": blend_id, "first": first, "end": end, "consumed": end, "began": "2026-01-01", "principal": ""}
        register.write(name, "0.0", {**facts, "world_size": 1, "step_rows": 0, "code_version": "", "notes": ""})
    [entry] = add_entries(catalogue, opt_outs_of(catalogue, "path", ["alone.py"], "somebody"))
    found = make_plan(catalogue, [entry.entry]).of(entry.entry)
    [windows] = found["windows"]
    order, holding = blender.order(blend_id), set(windows["ordinals"])
    places = [offset for row in holding for offset, _ in itertools.islice(offsets_of(order, PACKED, row), 200)]
    expected = {
        name: count for name, (first, end) in spans.items() if (count := sum(first <= at < end for at in places))
    }
    assert {run["run"]: run["reads"] for run in found["runs"]} == expected
    assert {(run["run"], run["before"]) for run in found["runs"]} == {(name, spans[name][1]) for name in expected}
    assert found["blends"] == [f"blend {blend_id[:12]}"]


def test_files_in_commits_of_an_author_are_theirs(tmp_path: Path) -> None:
    """By name and by address; files of other authors in the same repository are not, and one that is away is told."""
    repository = Repository(tmp_path / "repositories" / "mill")
    repository.commit(author="ann@example.org", a_py="a", src__b_py="b")
    repository.commit(author="bob@example.org", src__b_py="c", c_py="c")
    catalogue = open_lake(tmp_path / "lake")
    rows = [{"doc_id": doc_id_of(path), "repository": name, "path": path, "kind": "code", "content_sha256": path}
            for name, path in (("mill", "a.py"), ("mill", "src/b.py"), ("mill", "c.py"), ("gone", "d.py"))]  # fmt: skip
    put(catalogue, "code", DOCUMENTS, rows)
    source = {"kind": "git", "repositories": [str(tmp_path / "repositories" / "mill")]}
    put(catalogue, "code", PROVENANCE, [{"source": json.dumps(source)}])
    [ann] = add_entries(catalogue, opt_outs_of(catalogue, "author", ["nobody", "Ann@example.org"], "ann"))
    planned = make_plan(catalogue, [ann.entry])
    assert set(planned.hits.documents[ann.entry]) == {doc_id_of("a.py"), doc_id_of("src/b.py")}
    assert "1 repositories, first gone" in planned.hits.not_asked[0]


def test_a_file_is_met_by_the_hash_of_its_bytes(tmp_path: Path) -> None:
    """Where its records have hashes of their own; the same path of another increment is another file."""
    catalogue = open_lake(tmp_path)
    for increment in (0, 1):
        names = [f"{increment}{number}" for number in range(2)]
        rows = [
            {"doc_id": doc_id_of(name), "path": f"a.jsonl#{name[1]}", "repository": None, "content_sha256": name}
            for name in names
        ]
        put(catalogue, "web", DOCUMENTS, rows, increment)
        arrival = {"location": "/a.jsonl", "path": "a.jsonl", "status": "landed"}
        put(catalogue, "web", ARRIVALS, [{**arrival, "content_sha256": f"{increment}" * 64}], increment)
    [entry] = add_entries(catalogue, opt_outs_of(catalogue, "sha256", ["1" * 64], "somebody"))
    assert set(make_plan(catalogue).hits.documents[entry.entry]) == {doc_id_of("10"), doc_id_of("11")}


@pytest.mark.parametrize("letters", ["9" * 64, None])
def test_equal_letters_in_any_dataset_are_a_copy(tmp_path: Path, letters: str | None) -> None:
    """A page that is laid out anew, of a dataset in no corpus; texts without letters are equal to none."""
    lake = open_lake(tmp_path)
    names = {"first": "ann/tools:a.py", "second": "https://other.example/mirror"}
    for dataset, name in names.items():
        digest = hashlib.sha256(name.encode()).hexdigest()
        row = {"doc_id": doc_id_of(name), "path": name, "kind": "prose", "content_sha256": digest}
        put(lake, dataset, DOCUMENTS, [row])
        put(lake, dataset, TEXTS, [{"doc_id": doc_id_of(name), "kind": "prose", "letters_sha256": letters}])
    found = reached(lake, "path", "ann/tools:a.py")
    copies = {} if letters is None else {"https://other.example/mirror": "exact copy"}
    assert found == {"ann/tools:a.py": "path", **copies}


def test_blends_of_texts_are_named(tmp_path: Path) -> None:
    """They read a document as it stands in the table of texts, without any window."""
    lake = open_lake(tmp_path)
    row = {"doc_id": doc_id_of("page"), "path": "page", "kind": "prose", "content_sha256": "0" * 64}
    put(lake, "notes", DOCUMENTS, [row])
    lake.create_namespace("main")
    put_tokenizer(lake)
    put_texts(lake, "main.texts", {doc_id_of("page"): "a word of many words", doc_id_of("elsewhere"): "words"})
    spec = BlendSpec((SourceSpec("main.texts"),), name="texts", texts=TextSpec("main.tokenizer", 16))
    Blender(lake).create(spec)
    [entry] = add_entries(lake, opt_outs_of(lake, "record", ["page"], "somebody"))
    found = make_plan(lake, [entry.entry]).of(entry.entry)
    assert any("texts" in json.dumps(blend) for blend in found["blends"]), found["blends"]


@pytest.mark.parametrize(
    ("name", "follows"),
    [
        *[(name, False) for name in ("LICENSE", "docs/Licence.md", "x.dist-info/licenses/LICENSE-MIT.txt", "COPYING")],
        *[(name, True) for name in ("licensed.py", "src/license_check.py", "notices/a.md", "README")],
    ],
)
def test_texts_of_licences_are_nobodys_own(tmp_path: Path, name: str, follows: bool) -> None:
    """Whoever opts out takes no licence out of other projects; a file about licences is a file."""
    lake = open_lake(tmp_path)
    for dataset, path in (("code", name), ("other", "elsewhere")):
        row = {"doc_id": doc_id_of(dataset), "path": path, "kind": "prose", "content_sha256": "5" * 64}
        put(lake, dataset, DOCUMENTS, [row])
    [entry] = add_entries(lake, opt_outs_of(lake, "path", [name], "somebody"))
    plan = make_plan(lake, [entry.entry])
    documents = plan.of(entry.entry)["documents"]
    assert len(documents) == 1 + follows
    assert any("licences" in line for line in plan.hits.not_asked) is not follows
