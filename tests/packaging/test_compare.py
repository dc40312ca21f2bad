"""What the page of comparisons says that headrace lacks is what it lacks: a line that is mended leaves the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from blender_service.tables.token_columns import _DTYPE_OF
from headrace_features.apis.api_config import ApiSource
from spark_jobs.lake.declare.step import Scope, Step
from spark_jobs.registry import config_model, find_step
from spark_jobs.tokens.fast.pre_tokenization import UnknownSplittingError, atoms

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "start" / "compare.md"
_WEIGHTS = (".safetensors", ".onnx", ".pt")


def step(name: str) -> Step:
    """A step of the registry."""
    return find_step(name, config_model(name).model_construct())


def _knows_no_word_pieces() -> bool:
    """Whether a tokenizer that splits texts as BERT's does has no certified encoder."""
    try:
        atoms({"type": "BertPreTokenizer"})
    except UnknownSplittingError:
        return True
    return False


def _lists_on_the_driver() -> bool:
    """Whether no module that lists a dataset's files knows an engine."""
    modules = (_ROOT / "spark_jobs" / "sources" / "listing").glob("*.py")
    return not any("spark_sql" in module.read_text() for module in modules)


# By words of the page, whether the code lacks it still.
_LACKS: dict[str, Callable[[], bool]] = {
    "No images, sound or video": lambda: (
        {kind.__name__ for kind in _DTYPE_OF} == {"BooleanType", "FloatType", "IntegerType"}
    ),
    "no sentence encoder of its own": lambda: (
        not any(
            file.suffix in _WEIGHTS for package in ("spark_jobs", "headrace") for file in (_ROOT / package).rglob("*")
        )
    ),
    "different increments are ordered apart": lambda: step("ordered").scope is Scope.INCREMENT,
    "does not come back by itself": lambda: not (step("removals").without_excised or step("survivors").without_excised),
    "have no certified fast encoder": _knows_no_word_pieces,
    "files are listed on the driver": _lists_on_the_driver,
    "only where it declares `lists_all`": lambda: not ApiSource.model_fields["lists_all"].default,
}
# What was measured, or where it was run: no code tells. A run on such machines changes these lines.
_MEASURED = ("a third of what ready-made bytes of gRPC give", "Kubernetes manifests were run on no cluster")


def lines() -> list[str]:
    """The lines of the page's list, each as one text."""
    _, _, rest = _PAGE.read_text("utf-8").partition("## What headrace does not do yet\n")
    return [" ".join(line.split()) for line in re.split(r"\n- ", f"\n{rest.strip()}")[1:]]


@pytest.mark.parametrize("words", _LACKS)
def test_a_lack_that_the_page_names_is_one(words: str) -> None:
    """Where this fails headrace has learned something, and the page does not know."""
    assert any(words in line for line in lines()), f"the page does not say {words!r} any more: take its check away"
    assert _LACKS[words](), f"compare.md says {words!r}, and headrace can do it now; take the words off the page"


def test_every_line_of_the_list_is_checked() -> None:
    """By a check above, or as something that was measured."""
    assert lines() and [line for line in lines() if not any(words in line for words in (*_LACKS, *_MEASURED))] == []
