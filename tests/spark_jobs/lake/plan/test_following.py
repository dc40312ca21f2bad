"""Which increments a step over datasets and corpora joins: the same rows in every order of its inputs, or a refusal.

one        three increments     both   takes in one[0], one[1], two[0], then one[2], then two[1]
two        two increments       lone   takes in all of one
apart      one increment, in no corpus
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.exceptions import InputError, StepDeclarationError
from spark_jobs.lake.declare.step import NoConfig, Scope, Step, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.plan.binding import Binding, Source
from spark_jobs.lake.plan.following import Following, following
from spark_jobs.lake.plan.increments import increments
from spark_jobs.lake.plan.reads import reads_of
from spark_jobs.lake.run.materialize import Lake, materialize
from tests.conftest import LakeAt
from tests.spark_jobs.lake.steps import FolderConfig, land, numbers, rows
from tests.tiers import tries

_N = (Column("n!", "long", "a number"),)
_DATASETS = {"both": ("one", "two"), "lone": ("one",)}
_NUMBERS = {"one": [1, 2, 3, 4], "two": [5, 6, 7], "apart": [8, 9]}  # as a document is of one dataset


@dataclass(frozen=True)
class Declaration:
    """A declared step, as a project's definitions have it."""

    step: Step
    namespace: str
    inputs: Mapping[str, Source]
    driving_table: str | None = None

    @property
    def tables(self) -> tuple[str, ...]:
        """Its tables."""
        return tuple(f"{self.namespace}.{table.name}" for table in self.step.tables)


def copying(name: str, scope: Scope) -> Step:
    """A step that copies the numbers of its input."""

    def copied(numbers):  # type: ignore[no-untyped-def]
        return numbers.select("n")

    partition = () if scope is Scope.WHOLE else ("increment",)
    return step(version="1", scope=scope, tables=(Table(name, "numbers", _N, partition=partition),), name=name)(copied)


def joining(scope: Scope, count: int) -> Step:
    """A step that joins so many inputs, `a`, `b`, ..."""

    def joined(**frames):  # type: ignore[no-untyped-def]
        first, *others = frames.values()
        for other in others:
            first = first.join(other.select("n"), "n")
        return first.select("n")

    names = "abcd"[:count]
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    joined.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    partition = () if scope is Scope.WHOLE else ("increment",)
    return step(version="1", scope=scope, tables=(Table("joined", "numbers", _N, partition=partition),))(joined)


def _declared() -> dict[str, Declaration]:
    copies, whole = copying("copies", Scope.INCREMENT), copying("whole", Scope.WHOLE)
    found = [Declaration(numbers, name, {}, f"{name}.arrivals") for name in _NUMBERS]
    found += [Declaration(copies, name, {"numbers": f"{name}.numbers"}, f"{name}.arrivals") for name in _NUMBERS]
    for corpus, datasets in _DATASETS.items():
        found.append(Declaration(increments, corpus, {"arrivals": tuple(f"{one}.arrivals" for one in datasets)}))
        union = tuple(f"{one}.numbers" for one in datasets)
        found.append(
            Declaration(copying("gathered", Scope.INCREMENT), corpus, {"numbers": union}, f"{corpus}.increments")
        )
    found.append(Declaration(whole, "one", {"numbers": "one.numbers"}))
    # A user's own, in a namespace of no dataset: it has the increments of what it follows.
    found.append(Declaration(copying("again", Scope.INCREMENT), "mine", {"numbers": "both.gathered"}))
    found.append(Declaration(copying("ones", Scope.HISTORY), "both", {"numbers": "one.copies"}))
    return {table: one for one in found for table in one.tables}


DECLARED = _declared()
INPUTS = (
    "one.numbers",
    "one.copies",
    "two.numbers",
    "apart.numbers",
    "both.gathered",
    "lone.gathered",
    "one.whole",
    "mine.again",
)
_FAMILY = {"mine.again": "both", "one.whole": None}


def family(table: str) -> str | None:
    """The dataset or corpus whose increments a table has; None for one without increments."""
    return _FAMILY.get(table, table.split(".")[0])


def belong_together(tables: tuple[str, ...]) -> bool:
    """Whether the increments of some tables can be joined: of one dataset, or of one corpus and its datasets."""
    families = {family(table) for table in tables} - {None}
    return len(families) == 1 or any(
        families <= {corpus, *held} and corpus in families for corpus, held in _DATASETS.items()
    )


def follow(scope: Scope, namespace: str, tables: tuple[str, ...]) -> tuple[Declaration, Following]:
    """A step that joins some tables, and what it follows."""
    declared = Declaration(joining(scope, len(tables)), namespace, dict(zip("abcd", tables, strict=False)))
    return declared, following(declared, DECLARED.get)


def bound(declared: Declaration, followed: Following) -> Binding:
    """The step bound to its tables, as an asset binds it."""
    at = {"driving_table": followed.driving_table, "translated": followed.translated}
    return Binding(declared.step, declared.namespace, declared.inputs, NoConfig(), **at)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, lake_at: LakeAt) -> Lake:
    """The lake of this module's docstring, with all declared tables."""
    root = tmp_path_factory.mktemp("following")
    lake = lake_at(root / "lake")

    def arrive(name: str, file: str, values: list[int]) -> None:
        land(root / name, file, values)
        config = FolderConfig(folder=str(root / name))
        materialize(lake, Binding(numbers, name, {}, config, driving_table=f"{name}.arrivals"))

    def take_in(corpus: str) -> None:
        materialize(lake, Binding(increments, corpus, DECLARED[f"{corpus}.increments"].inputs, NoConfig()))

    (root / "one").mkdir()
    arrive("one", "a.txt", [1])
    arrive("one", "b.txt", [2, 3])
    arrive("two", "a.txt", [])
    arrive("two", "b.txt", [])
    take_in("both")
    arrive("one", "c.txt", [4])
    arrive("two", "c.txt", [5, 6])
    take_in("both")
    arrive("two", "d.txt", [7])
    take_in("both")
    take_in("lone")
    arrive("apart", "a.txt", [8, 9])
    for table, declared in DECLARED.items():
        if declared.step is not numbers and declared.step is not increments:
            followed = following(declared, DECLARED.get)
            materialize(lake, bound(declared, followed))
            assert table in declared.tables
    return lake


def test_the_order_of_inputs_decides_nothing() -> None:
    """Every choice of up to three inputs in every order: the same driving table and translations, or a refusal."""
    for count, scope in itertools.product((1, 2, 3), (Scope.INCREMENT, Scope.HISTORY)):
        for tables in itertools.permutations(INPUTS, count):
            try:
                _, followed = follow(scope, "mine", tables)
            except StepDeclarationError:
                assert not belong_together(tables), tables
                continue
            assert belong_together(tables), tables
            assert followed == follow(scope, "mine", tuple(sorted(tables)))[1]


@cache
def joined_numbers(tables: tuple[str, ...]) -> list[int]:
    """The plain join of tables, by what landed in them."""

    def numbers_of(table: str) -> list[int]:
        name = family(table) or "one"
        return [n for dataset in _DATASETS.get(name, (name,)) for n in _NUMBERS[dataset]]

    first, *others = map(numbers_of, tables)
    for other in others:
        first = [n for n in first for match in other if n == match]
    return sorted(first)


def computed_anew(lake: Lake, binding: Binding) -> tuple[str, ...]:
    """Compute a table, also where it is there; gives the increments that were computed."""
    if lake.ledger.table(binding.tables[0]) is not None:
        lake.catalogue.drop_table(binding.tables[0])
        lake.ledger.refresh()
    return materialize(lake, binding)[0].computed


@settings(max_examples=tries(150, 3))
@given(st.data())
def test_a_step_joins_what_the_plain_join_does(filled: Lake, data: st.DataObject) -> None:
    """Any inputs that belong together, in any order, scope and namespace, equal the join of their whole tables.

    In a history the last increment reads all.
    """
    choices = [one for count in (1, 2, 3) for one in itertools.combinations(INPUTS, count) if belong_together(one)]
    tables = tuple(data.draw(st.permutations(data.draw(st.sampled_from(choices)))))
    scope = data.draw(st.sampled_from([Scope.INCREMENT, Scope.HISTORY, Scope.WHOLE]))
    namespace = data.draw(st.sampled_from(["mine", "one", "both"]))
    binding = bound(*follow(scope, namespace, tables))
    computed = computed_anew(filled, binding)
    numbers_of = rows(filled, binding.tables[0], *(("n",) if scope is Scope.WHOLE else ("n", "increment")))
    last = {max(map(int, computed))} if scope is Scope.HISTORY else {None}
    landed = [row[0] for row in numbers_of if scope is not Scope.HISTORY or row[1] in last]
    assert sorted(landed) == joined_numbers(tables)


def test_a_step_without_an_input_with_increments_is_refused() -> None:
    """There is nothing to follow, in either scope."""
    for scope in (Scope.INCREMENT, Scope.HISTORY):
        with pytest.raises(StepDeclarationError, match=r"of one\.whole none has any; leave scope out"):
            follow(scope, "mine", ("one.whole",))
    assert follow(Scope.FROZEN, "mine", ("one.whole",))[1] == Following(None, {})


def test_increments_of_two_datasets_are_not_joined_by_their_numbers() -> None:
    """The refusal names a table of each, and what to do."""
    said = r"mine\.joined: increments of one\.copies and of two\.numbers do not belong together; read tables of one"
    with pytest.raises(StepDeclarationError, match=said):
        follow(Scope.INCREMENT, "mine", ("two.numbers", "one.copies"))
    both = follow(Scope.INCREMENT, "mine", ("two.numbers", "one.copies", "both.increments"))[1]
    assert both == Following("both.increments", {"two.numbers": "two", "one.copies": "one"})


def test_a_frozen_step_begins_where_the_corpus_has_rows(filled: Lake) -> None:
    """Increments are counted as the corpus counts them, not as the dataset does."""
    declared, followed = follow(Scope.FROZEN, "mine", ("two.numbers", "both.gathered"))
    assert followed == Following("both.increments", {"two.numbers": "two"})
    computed_anew(filled, bound(declared, followed))
    assert rows(filled, "mine.joined", "n") == [(5,), (6,)]


def test_what_does_not_say_what_it_took_in_cannot_be_followed(filled: Lake) -> None:
    """A binding made by hand that follows a table of a corpus: refused, where it once read no row of the dataset."""
    declared, _ = follow(Scope.INCREMENT, "both", ("both.gathered", "one.numbers"))
    binding = Binding(declared.step, "both", declared.inputs, NoConfig(), driving_table="both.gathered")
    with pytest.raises(
        InputError, match=r"follows both\.gathered, which does not say which increments of one\.numbers"
    ):
        reads_of(binding, filled.ledger, 0)


def test_a_step_that_reads_itself_is_refused() -> None:
    """Its increments would be those of its own table; what it reads of its history has a name of its own."""
    declared = Declaration(joining(Scope.INCREMENT, 2), "mine", {"a": "mine.joined", "b": "one.copies"})
    with pytest.raises(StepDeclarationError, match=r"mine\.joined: reads itself; a parameter named joined"):
        following(declared, {**DECLARED, "mine.joined": declared}.get)


def test_each_table_is_asked_for_once() -> None:
    """Twelve layers of three tables, each over the three before it, have half a million paths between them."""
    declared, asked = dict(DECLARED), list[str]()
    layer = ["both.gathered", "one.copies", "one.numbers"]
    for depth in range(12):
        tables = [
            Declaration(joining(Scope.INCREMENT, 3), f"m{depth}_{at}", dict(zip("abc", layer, strict=True)))
            for at in range(3)
        ]
        declared |= {one.tables[0]: one for one in tables}
        layer = [one.tables[0] for one in tables]

    def known(table: str) -> Declaration | None:
        asked.append(table)
        return declared[table]

    assert following(declared[layer[0]], known).driving_table == "both.increments"
    assert len(asked) < 300


def test_tables_that_are_read_together_have_the_same_columns(filled: Lake) -> None:
    """The refusal names both and the columns; an engine said that a column was not found."""
    declared = Declaration(joining(Scope.WHOLE, 1), "mine", {"a": ("one.copies", "one.numbers")})
    with pytest.raises(InputError, match=r"input a: one\.copies and one\.numbers have not the same columns \(text\)"):
        computed_anew(filled, bound(declared, Following(None, {})))
