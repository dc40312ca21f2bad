"""The step that finds dependencies, its kernel, and the rules by which edges of several resolvers become one table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_jobs.code.dependencies import DEPENDENCIES, DEPENDENCY_METHODS, DependenciesConfig, dependencies
from spark_jobs.code.grouped_rows import grouped_rows
from spark_jobs.code.imports.dependency import Dependency, RepositoryTexts
from spark_jobs.code.repository_edges import RESOLVERS, found_batches, merged, method_of
from spark_jobs.code.syntax.syntax_child import SyntaxLimits
from spark_jobs.sources.languages import PAST
from tests.spark_jobs.code.made_repository import repository_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Shard, doc_id, repository, path, kind, language, content.
FILES = [
    (0, "00", "r", "pkg/__init__.py", "code", "Python", "from .core import run"),
    (0, "01", "r", "pkg/core.py", "code", "Python", "import pkg.text\nif TYPE_CHECKING:\n    import pkg\n"),
    (0, "02", "r", "pkg/text.py", "code", "Python", "X = 1"),
    (0, "03", "r", "pkg/text.py", "code", "Python", "import pkg"),
    (0, "04", "r", "README.md", "prose", None, "import pkg.text"),
    (0, "05", "r", "big.py", "code", "Python", "import pkg\n" + "#" * 300),
    (0, "06", "r", "web/package.json", "data", "JSON", '{"name": "web"}'),
    (0, "07", "r", "web/src/index.js", "code", "JavaScript", ""),
    (0, "08", "r", "web/src/use.js", "code", "JavaScript", "require('web')"),
    (1, "10", "other", "pkg/text.py", "code", "Python", ""),
    (1, "11", "other", "alone.c", "code", "C", '#include "core.h"'),
    (1, "20", None, "notes#1", "prose", None, "import pkg"),
]


def run(spark: SparkSession, partitions: int = 2, order: int = 1, **config: Any) -> dict[str, DataFrame]:
    """Both tables of the files above."""
    rows = [(*row[:6], len(row[6].encode()), dict[str, str]()) for row in FILES[::order]]
    past = (*FILES[0][:1], "0", *FILES[0][2:6], 1, {PAST: "true"})  # has the least id of its path, and is left out
    columns = "shard int, doc_id string, repository string, path string, kind string, language string, byte_count long"
    columns += ", metadata map<string, string>"
    documents = spark.createDataFrame([*rows, past], columns).repartition(partitions)
    contents = [(row[0], row[1], row[6]) for row in FILES[::order]] + [(FILES[0][0], past[1], "import nothing")]
    texts = spark.createDataFrame(contents, "shard int, doc_id string, content string").repartition(partitions)
    output = dependencies(documents, texts, DependenciesConfig(max_file_bytes=200, **config))
    return dict(output.frames)


def test_edges_stay_in_their_repository_and_files_that_are_not_read_say_why(spark: SparkSession) -> None:
    """Edges with kind and evidence; of two documents with one path that with the least id; prose is not read."""
    tables = run(spark)
    edges = {(row.path, row.needed_path, row.kind, row.evidence) for row in tables["dependencies"].collect()}
    assert edges == {
        ("pkg/__init__.py", "pkg/core.py", "import", "from .core import run"),
        ("pkg/core.py", "pkg/text.py", "import", "import pkg.text"),
        ("pkg/core.py", "pkg/__init__.py", "import_type", "import pkg"),
        ("web/src/use.js", "web/src/index.js", "import", "require('web'"),
    }
    methods = {row.repository: row.asDict(recursive=True) for row in tables["dependency_methods"].collect()}
    assert methods["r"]["method"] == "imports" and methods["other"]["method"] == "path"
    assert methods["r"]["unread"] == [{"path": "big.py", "reason": "too_large"}]
    assert (methods["r"]["file_count"], methods["r"]["read_count"], methods["r"]["import_count"]) == (8, 6, 4)
    assert methods.keys() == {"r", "other"}


@pytest.mark.nightly
def test_rows_fit_the_tables_and_are_identical_for_1_2_and_7_partitions(spark: SparkSession) -> None:
    """Columns as declared, blocking checks pass, and neither partitions nor the order of rows show."""
    plain = {name: sorted(map(str, frame.collect())) for name, frame in run(spark).items()}
    for table, frame in zip((DEPENDENCIES, DEPENDENCY_METHODS), run(spark).values(), strict=True):
        assert frame.columns == [column.name for column in table.columns]
        for check in table.checks:
            assert frame.where(f"not ({check.predicate})").count() == 0
    for partitions in (1, 7):
        found = run(spark, partitions, order=-1)
        assert {name: sorted(map(str, frame.collect())) for name, frame in found.items()} == plain


def kernel_rows(files: list[tuple[str, str | None, int]], repository: str = "r") -> pa.RecordBatch:
    """Rows of one repository as the kernel gets them; files are (path, content, byte_count)."""
    rows = [
        (0, repository, f"{number:06x}", path, "code", "Python", size, content, None)
        for number, (path, content, size) in enumerate(files)
    ]
    names = ["shard", "repository", "doc_id", "path", "kind", "language", "byte_count", "content", "unread"]
    kinds = [pa.int32(), *[pa.string()] * 5, pa.int64(), pa.string(), pa.string()]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def test_a_repository_is_one_whole_however_batches_cut_it() -> None:
    """Batches of 1, 2 and all rows, two repositories in one batch."""
    first = kernel_rows([("a.py", "import b", 1), ("b.py", "import c", 1), ("c.py", "", 1)])
    second = kernel_rows([("a.py", "import b", 1), ("b.py", "", 1)], "s")
    table = pa.Table.from_batches([first, second]).combine_chunks()
    expected = [batch.to_pylist() for batch in found_batches(table.to_batches(), 1000)]
    assert [len(rows) for rows in expected] == [3, 2]
    for size in (1, 2, 4):
        assert [batch.to_pylist() for batch in found_batches(table.to_batches(size), 1000)] == expected


def test_the_budget_of_a_repository_leaves_the_largest_files_unread() -> None:
    """Files come by size; what does not fit is listed, others still need it, and the next repository starts anew."""
    files = [("a.py", "import b", 10), ("c.py", "import b", 20), ("b.py", "import a", 100)]
    batches = [kernel_rows(files, name).slice(start, 1) for name in ("r", "s") for start in range(3)]
    for rows in (batch.to_pylist() for batch in found_batches(batches, 50)):
        assert {(row["path"], row["needed_path"]) for row in rows[:-1]} == {("a.py", "b.py"), ("c.py", "b.py")}
        assert rows[-1]["unread"] == [{"path": "b.py", "reason": "repository_full"}]
        assert (rows[-1]["file_count"], rows[-1]["read_count"]) == (3, 2)


def test_no_rows_give_no_batch() -> None:
    """An empty dataset."""
    assert list(found_batches([], 1000)) == []
    assert list(found_batches([kernel_rows([("a.py", "", 1)]).slice(0, 0)], 1000)) == []


def test_a_repository_of_one_file_depends_on_nothing() -> None:
    """One row that says so."""
    (batch,) = found_batches([kernel_rows([("a.py", "import a", 8)])], 1000)
    assert [row["method"] for row in batch.to_pylist()] == ["path"]


def test_languages_without_import_rules_are_ordered_by_symbols_and_unparsed_files_say_why() -> None:
    """Ruby: who uses a class needs the file that defines it; a file beyond the parser's limit is listed."""
    rows = kernel_rows([("a.rb", "class Alpha\nend\n", 16), ("b.rb", "Alpha.new\n" + "#" * 90, 100)])
    rows = rows.set_column(5, "language", pa.array(["Ruby", "Ruby"]))
    (batch,) = found_batches([rows], 1000)
    edge, own = batch.to_pylist()
    assert (edge["path"], edge["needed_path"], edge["kind"], edge["evidence"]) == ("b.rb", "a.rb", "symbol", "Alpha")
    assert (own["method"], own["symbol_count"], own["unread"]) == ("symbols", 1, [])
    (batch,) = found_batches([rows], 1000, limits=SyntaxLimits(file_bytes=50))
    (own,) = batch.to_pylist()
    assert [(one["path"], one["reason"].split(":")[0]) for one in own["unread"]] == [("b.rb", "too_large")]
    assert (own["method"], own["file_count"], own["read_count"]) == ("path", 2, 1)


def test_a_repository_says_its_language_and_what_nothing_is_known_of() -> None:
    """Code alone counts: Perl has neither rules of imports nor symbols here, and of as many the first name is taken."""
    files = [
        ("a.pl", "use B;", 6),
        ("b.pm", "", 0),
        ("c.rb", "", 0),
        ("d.jl", "", 0),
        ("e.rb", "", 0),
        ("x.json", "", 0),
    ]
    rows = kernel_rows(files).set_column(5, "language", pa.array(["Perl", "Perl", "Ruby", "Julia", "Ruby", "JSON"]))
    rows = rows.set_column(4, "kind", pa.array(["code"] * 5 + ["data"]))
    (own,) = next(found_batches([rows], 1000)).to_pylist()
    assert (own["method"], own["language"]) == ("path", "Perl")
    assert own["unordered"] == [{"language": "Julia", "file_count": 1}, {"language": "Perl", "file_count": 2}]
    rows = rows.set_column(4, "kind", pa.array(["prose"] * 6))
    (own,) = next(found_batches([rows], 1000)).to_pylist()
    assert (own["language"], own["unordered"]) == (None, [])


def test_records_are_files_of_their_repository_by_their_id() -> None:
    """Whatever file they came in: names are counted from the top of the repository, rows keep the whole path."""
    files = [
        ("x/part-0.jsonl.gz#go.mod", "module example.org/m", 20),
        ("x/part-1.parquet#main.go", 'package main\nimport "example.org/m/text"\nvar _ = text.X', 60),
        ("x/part-0.jsonl.gz#text/a.go", "package text\nvar X = 1", 20),
        ("x/part-0.jsonl.gz#b.py", "import c", 8),
        ("x/part-1.parquet#c.py", "", 0),
    ]
    rows = kernel_rows(files)
    rows = rows.set_column(5, "language", pa.array([None, "Go", "Go", "Python", "Python"]))
    (batch,) = found_batches([rows], 1000)
    *edges, own = batch.to_pylist()
    assert [(edge["path"], edge["needed_path"]) for edge in edges] == [
        ("x/part-0.jsonl.gz#b.py", "x/part-1.parquet#c.py"),
        ("x/part-1.parquet#main.go", "x/part-0.jsonl.gz#text/a.go"),
    ]
    assert own["file_count"] == 5


def test_a_symbol_is_no_edge_where_an_import_links_the_files() -> None:
    """In either direction; elsewhere it is, and of repeated edges the first evidence stays."""

    def edges() -> Iterator[Dependency]:
        yield Dependency(0, 1, "symbol", "f")
        yield Dependency(1, 0, "import_inner", "one")
        yield Dependency(1, 0, "import_inner", "two")
        yield Dependency(0, 2, "symbol", "g")
        yield Dependency(2, 0, "symbol", "h")

    assert merged(edges()) == [
        Dependency(0, 2, "symbol", "g"),
        Dependency(1, 0, "import_inner", "one"),
        Dependency(2, 0, "symbol", "h"),
    ]


@pytest.mark.parametrize(
    ("imports", "symbols", "method"),
    [(2, 0, "imports"), (0, 1, "symbols"), (1, 1, "imports_and_symbols"), (0, 0, "path")],
)
def test_the_method_says_what_the_order_rests_on(imports: int, symbols: int, method: str) -> None:
    """Path order is the last resort."""
    assert method_of(imports, symbols) == method


def test_resolvers_see_all_paths_and_only_the_texts_that_are_read() -> None:
    """In the order of the bytes of the paths, with an empty text where there is none."""
    seen: list[RepositoryTexts] = []

    def resolver(repository: RepositoryTexts) -> list[Dependency]:
        seen.append(repository)
        return []

    files = [("é.py", "1", 1), ("z.py", None, 1), ("\U0001f600.py", "2", 1), ("\ue000.py", "3", 1)]
    list(found_batches([kernel_rows(files)], 1000, [resolver]))
    assert seen[0].paths == ("z.py", "é.py", "\ue000.py", "\U0001f600.py")
    assert seen[0].texts == ("", "1", "3", "2")


@pytest.mark.parametrize(
    ("path", "statement", "needed"),
    [
        ("x.py", "import a", "a.py"),
        ("x.js", "import './a'", "a.js"),
        ("x.ts", "import './a'", "a.ts"),
        ("x.c", '#include "a.h"', "a.h"),
        ("x.cpp", '#include "a.h"', "a.h"),
    ],
)
def test_every_resolver_is_listed_and_reads_over_a_byte_order_mark(path: str, statement: str, needed: str) -> None:
    """And over lone surrogates and NUL, which a text may hold."""
    made = repository_of({path: f"\ufeff{statement}\n\0\udc80\n", needed: ""})
    found = [edge for resolver in RESOLVERS for edge in resolver(made)]
    assert [made.paths[edge.needed] for edge in found] == [needed]


def test_runs_join_what_batches_cut_and_keep_null_apart() -> None:
    """Null is a key of its own, and an empty batch changes nothing."""
    batch = pa.RecordBatch.from_pydict({"key": ["a", "a", None, None, "b"], "row": [0, 1, 2, 3, 4]})
    for size in (1, 2, 5):
        parts = [batch.slice(start, size) for start in range(0, 5, size)]
        parts.insert(1, batch.slice(0, 0))
        runs = [run.column("row").to_pylist() for run in grouped_rows(parts, ("key",))]
        assert runs == [[0, 1], [2, 3], [4]]


@pytest.mark.nightly
def test_a_repository_of_200000_files_is_resolved() -> None:
    """Each file imports the next one by name, in batches of 10,000 rows as Spark sends them."""
    count = 200_000
    files = [(f"pkg/m{number}.py", f"from . import m{number + 1}", 20) for number in range(count)]
    (batch,) = found_batches(pa.Table.from_batches([kernel_rows(files)]).to_batches(10_000), 1 << 30)
    assert batch.num_rows == count


def test_texts_are_not_read_where_no_document_has_a_repository(spark: SparkSession) -> None:
    """Both tables are empty, and the texts of a dataset without code cost nothing."""

    def refuse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            raise AssertionError("a text was read")
        yield from ()

    columns = "shard int, doc_id string, repository string, path string, kind string, language string, byte_count long"
    columns += ", metadata map<string, string>"
    documents = spark.createDataFrame([(0, "20", None, "notes#1", "prose", None, 9, dict[str, str]())], columns)
    texts = spark.createDataFrame([(0, "20", "import pkg")], "shard int, doc_id string, content string")
    frames = dependencies(documents, texts.mapInArrow(refuse, texts.schema), DependenciesConfig()).frames
    assert [frame.count() for frame in frames.values()] == [0, 0]
