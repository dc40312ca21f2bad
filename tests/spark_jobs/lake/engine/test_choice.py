"""Which engine a run takes, and what it says of that."""

from __future__ import annotations

import sys

import pytest

from headrace.process.memory_limit import Memory
from spark_jobs.exceptions import SetupError
from spark_jobs.filters.scorer import scorer
from spark_jobs.lake.declare.step import NoConfig, Scope, Step, step
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.engine import choice as choice_module
from spark_jobs.lake.engine import memory
from spark_jobs.lake.engine.choice import Choice, Needs, choice, choose, engine_name, require_settings
from spark_jobs.lake.plan.foreseen import reason_for_spark
from spark_jobs.lake.session.spark_errors import failure_line, is_out_of_memory
from spark_jobs.registry import find_step


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine is named or chosen, Sail is there, and this process holds no memory, which would count as free."""
    for name in (
        "HEADRACE_ENGINE",
        "HEADRACE_EMBEDDED_BYTES",
        "HEADRACE_EMBEDDED_MEMORY",
        "HEADRACE_SPARK_MASTER",
        "PYSPARK_GATEWAY_PORT",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(choice_module, "_chosen", [])
    monkeypatch.setattr(choice_module, "missing_sail", lambda: "")
    monkeypatch.setattr(choice_module, "little_for_spark", lambda: "")
    monkeypatch.setattr(memory, "resident_bytes", lambda: 0)


def test_little_of_a_local_lake_is_read_by_sail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a bound, in little memory half of what it may hold; whatever else speaks for Spark is said first."""
    monkeypatch.setenv("HEADRACE_EMBEDDED_MEMORY", "1g")
    assert str(choice("/lake", lambda: Needs(39_000_000))) == "engine: Sail, in this process (it reads 39 MB of text)"
    assert choice("/lake", lambda: Needs(1 << 29)).engine == "sail"
    found = choice("/lake", lambda: Needs((1 << 29) + 1))
    assert str(found) == "engine: Spark (it reads 537 MB of text, HEADRACE_EMBEDDED_BYTES is 537 MB)"
    monkeypatch.setattr(choice_module, "little_for_spark", lambda: "little")
    assert choice("/lake", lambda: Needs((1 << 29) + 1)).engine == "sail"
    monkeypatch.setenv("HEADRACE_EMBEDDED_BYTES", "2g")
    assert choice("/lake", lambda: Needs(2_000_000_000)).engine == "sail"
    assert choice("/lake", lambda: Needs(None)) == Choice("spark", "how much it reads is not known")
    assert choice("/lake") == Choice("spark", "how much it reads is not known")
    step_of_yours = "a.b is made by a step of your own"
    assert choice("/lake", lambda: Needs(1, step_of_yours)).reason == step_of_yours
    assert choice("s3://bucket/lake", lambda: Needs(1)) == Choice("spark", "the lake is in s3://")
    monkeypatch.setattr(choice_module, "missing_sail", lambda: "pysail is missing")
    assert choice("/lake", lambda: Needs(1)) == Choice("spark", "pysail is missing")
    monkeypatch.setenv("HEADRACE_SPARK_MASTER", "spark://host:7077")
    assert choice("/lake", lambda: Needs(1)) == Choice("spark", "HEADRACE_SPARK_MASTER is set")


def test_much_is_read_by_sail_where_it_has_all_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty gigabytes of text were computed in four of memory; what a smaller process can do was not tried so far."""
    monkeypatch.setenv("HEADRACE_EMBEDDED_MEMORY", "4g")
    assert choice("/lake", lambda: Needs(20_000_000_000)).engine == "sail"
    assert choice("/lake", lambda: Needs(5 * (4 << 30) + 1)).engine == "spark"
    monkeypatch.setenv("HEADRACE_EMBEDDED_MEMORY", "3g")
    assert choice("/lake", lambda: Needs((3 << 29) + 1)).engine == "spark"


def test_the_first_choice_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process runs one engine; what a later run of it reads changes nothing, nor is it asked."""
    assert engine_name() == "spark"
    assert choose("/lake", lambda: Needs(1)).engine == "sail"
    assert choose("/lake", lambda: pytest.fail("asked")).engine == engine_name() == "sail"
    monkeypatch.setenv("HEADRACE_ENGINE", "spark")
    assert engine_name() == "spark"
    assert choice("/lake", lambda: pytest.fail("asked")) == Choice("spark", "HEADRACE_ENGINE=spark")


@pytest.mark.parametrize("any_engine", [False, True])
def test_a_step_that_headrace_does_not_bring_says_where_it_may_run(any_engine: bool) -> None:
    """Its author knows whether its rows depend on the engine."""
    table = Table("own", "days", (Column("day!", "date", "a day"),), partition=("days(day)",))

    @step(version="1", scope=Scope.WHOLE, tables=(table,), any_engine=any_engine)
    def own(texts: object) -> object:
        return texts

    assert own.needs_spark is not any_engine
    texts = find_step("texts", NoConfig())
    reason = "" if any_engine else "x.own is made by a step of your own without any_engine"
    assert not texts.needs_spark and reason_for_spark([("a.b", texts), ("x.own", own)]) == reason


def test_a_scorer_runs_on_both_engines() -> None:
    """A function of Arrow arrays does; one that reads a frozen table does where the step of that table does."""
    table = Table("frozen", "a measure of all texts", (Column("n!", "long", "a number"),))

    def frozen(any_engine: bool) -> Step:
        return step(version="1", scope=Scope.FROZEN, tables=(table,), any_engine=any_engine)(lambda texts: texts)

    def score(content: object) -> dict[str, object]:
        return {}

    columns = (Column("length", "int", "characters"),)
    assert scorer(name="lengths", version="1", columns=columns)(score).needs_spark is False
    assert scorer(name="lengths", version="1", columns=columns, frozen=frozen(True))(score).needs_spark is False
    assert scorer(name="lengths", version="1", columns=columns, frozen=frozen(False))(score).needs_spark is True


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HEADRACE_ENGINE", "sial", "there is no such engine; did you mean 'sail'?; set spark, sail, auto"),
        ("HEADRACE_EMBEDDED_BYTES", "lots", "it is no size; write e.g. 512m or 2g"),
        ("HEADRACE_EMBEDDED_MEMORY", "lots", "it is no size; write e.g. 512m or 2g"),
    ],
)
def test_a_setting_that_says_nothing_is_refused(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, with the mend."""
    monkeypatch.setenv(name, value)
    with pytest.raises(SetupError, match=f"^{name}={value}: ") as found:
        require_settings()
    assert str(found.value).endswith(said)


def test_another_version_of_sail_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has compared its rows."""
    monkeypatch.undo()
    pysail = pytest.importorskip("pysail")
    monkeypatch.setattr(pysail, "__version__", "0.7.3")
    assert choice_module.missing_sail() == "pysail 0.7.3 is installed, not 0.7.2: pip install pysail==0.7.2"
    monkeypatch.setitem(sys.modules, "pysail", None)
    assert choice_module.missing_sail().endswith("pip install 'headrace[platform]'")


def test_a_full_memory_says_what_to_do() -> None:
    """Sail's own sentence names no setting of headrace."""
    said = (
        "Failed to allocate additional 255.5 KB for HashJoinInput[0] with 31.8 MB already allocated for this "
        "reservation - 203.5 KB remain available for the total memory pool: greedy(used: 63.8 MB, pool_size: 64.0 MB)"
    )
    line = failure_line(RuntimeError(said))
    assert "\n" not in line and "HEADRACE_EMBEDDED_MEMORY" in line and "HEADRACE_ENGINE=spark" in line


@pytest.mark.parametrize("said", ["java.lang.OutOfMemoryError: Java heap space", "Answer from Java side is empty"])
def test_a_full_heap_says_what_to_do(said: str) -> None:
    """Also where the kernel ended the JVM, which says nothing by itself."""
    line = failure_line(RuntimeError(f"An error occurred\n: {said}\n\tat x"))
    assert "\n" not in line and "HEADRACE_SPARK_MEMORY" in line and "HEADRACE_ENGINE=sail" in line
    assert is_out_of_memory(RuntimeError(said))


def test_little_memory_for_spark_is_told_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Much text goes to Sail where Spark's heap would be too small, unless somebody says what heap it shall have."""
    monkeypatch.delenv("HEADRACE_SPARK_MEMORY", raising=False)
    monkeypatch.setattr(choice_module, "little_for_spark", memory.little_for_spark)
    monkeypatch.setattr(memory, "memory_limit", lambda: Memory(2 << 30, 2 << 30, "a test"))
    much = choice("/lake", lambda: Needs(3 * 10**9))
    assert str(much) == (
        "engine: Sail, in this process (it reads 3 GB of text, which is much: 2.0 GiB are free, Spark needs 2.6; "
        "free some, or set HEADRACE_SPARK_MEMORY to the heap it shall have)"
    )
    monkeypatch.setenv("HEADRACE_SPARK_MEMORY", "700m")
    assert choice("/lake", lambda: Needs(3 * 10**9)).engine == "spark"


@pytest.mark.parametrize(("gib", "sizes"), [(2, (192, 384, 768)), (4, (896, 1792, 1792)), (8, (1024, 2048, 2048))])
def test_a_pool_that_was_too_small_is_doubled(
    gib: int, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one whose process the kernel ended is halved; a pool takes at most half of the memory. MiB."""
    monkeypatch.setattr(memory, "memory_limit", lambda: Memory(gib << 30, gib << 30, "a test"))
    assert tuple(memory.pool_bytes(part) >> 20 for part in (0.5, 1, 2)) == sizes
