"""Answers: what came back for a request, read in OpenAI's form, and judged for whether it is a document."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_jobs.sources.config.generated_config import GeneratedSource, Template

DETAIL_CHARACTERS: Final = 300  # of a message about a fault that are kept
_WORDS: Final = 8  # words of a run that counts as copied
_REPETITIVE: Final = 0.1  # compressed size over size, below which a text repeats itself
_LEAST_BYTES: Final = 400  # shorter texts compress well by chance
_MOST_TOKENS: Final = (1 << 31) - 1  # largest usage that the column in the database takes
_LEAST_CHARACTERS: Final = 200  # length that a shorter parent counts as having: five times a title is no long answer
_ONE_CHARACTER: Final = re.compile(r"\w|\S")
_SPACELESS: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]")


@dataclass(frozen=True)
class Answer:
    """An answer of an endpoint.

    Attributes:
        text: what the model wrote; empty where it wrote nothing.
        reasoning: what it thought aloud, where the endpoint sets it apart.
        model: as the server named it.
        fingerprint: of the server's configuration; empty where it gives none.
        finish: why it stopped: stop, length, content_filter, ..
        refusal: the model's own words for why it does not answer.
        tokens_in: tokens of the prompt; None where the endpoint does not report them.
        tokens_out: tokens of the answer; None where it does not report them.
    """

    text: str = ""
    reasoning: str = ""
    model: str = ""
    fingerprint: str = ""
    finish: str = ""
    refusal: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None


NOTHING: Final = Answer()


def answer_of(data: Any) -> Answer | str:
    """The answer in a response of the protocol, or in words what is wrong with the response."""
    if not isinstance(data, Mapping):
        return f"a JSON {type(data).__name__}, no object"
    if error := data.get("error"):
        said = error.get("message", error) if isinstance(error, Mapping) else error
        return f"status 200 with an error: {said}"
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else None
    message = choice.get("message") if choice is not None else None
    if choice is None or not isinstance(message, Mapping):
        return f"no choices[0].message in the answer, it has {', '.join(map(str, data))}"
    usage = data.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}

    def text(source: Mapping[str, Any], *names: str) -> str:
        return next((value for name in names if isinstance(value := source.get(name), str)), "")

    def count(name: str) -> int | None:
        value = usage.get(name)
        return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None

    return Answer(
        text(message, "content"),
        text(message, "reasoning_content", "reasoning"),
        text(data, "model"),
        text(data, "system_fingerprint"),
        text(choice, "finish_reason"),
        text(message, "refusal"),
        count("prompt_tokens"),
        count("completion_tokens"),
    )


def read_answer(status: int, data: bytes) -> Answer | str:
    """The answer in a response, or what is wrong with it."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if status != 200:
        error = (
            value.get("error", value) if isinstance(value, dict) else data[:DETAIL_CHARACTERS].decode(errors="replace")
        )
        said = error.get("message", error) if isinstance(error, dict) else error
        return f"status {status}: {said}"
    return "status 200, and no JSON" if value is None else answer_of(value)


def judged(answer: Answer, template: Template, parent: str, source: GeneratedSource) -> tuple[str, str]:
    """The text of a usable answer and no reason; else no text and the reason why it is none.

    Reasons: refused, cut, empty, reasoning_only, form, longer, repetitive, copied. An answer in another language is
    left to the rules of the dataset's policy, which know languages.
    """
    text = answer.text.strip()
    usable = text.removeprefix(template.prefix).strip()
    data = usable.encode(errors="surrogatepass")
    faults: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("refused", lambda: bool(answer.refusal) or answer.finish == "content_filter"),
        ("cut", lambda: answer.finish == "length" and source.on_cut != "keep"),
        ("reasoning_only", lambda: not text and bool(answer.reasoning.strip())),
        ("empty", lambda: not usable),
        ("form", lambda: not text.startswith(template.prefix) or not _fits(usable, template.answer_schema)),
        ("longer", lambda: len(usable) > source.max_longer * max(len(parent), _LEAST_CHARACTERS)),
        ("repetitive", lambda: len(data) >= _LEAST_BYTES and len(zlib.compress(data, 1)) < _REPETITIVE * len(data)),
        ("copied", lambda: source.max_copied < 1 and copied_share(usable, parent) > source.max_copied),
    )
    reason = next((name for name, is_so in faults if is_so()), "")
    return ("", reason) if reason else (usable, "")


def copied_share(text: str, parent: str) -> float:
    """Share of a text's runs of 8 words that its parent has too; characters count as words in scripts without spaces.

    An answer that is shorter than a run is compared as a whole.
    """
    own, others = _words(text), _words(parent)
    size = min(_WORDS, len(own))
    if not size:
        return 0.0
    theirs = set(_runs(others, size))
    runs = list(_runs(own, size))
    return sum(map(theirs.__contains__, runs)) / len(runs)


def _runs(words: list[str], size: int) -> Iterator[tuple[str, ...]]:
    """All runs of `size` words."""
    return zip(*(words[at:] for at in range(size)), strict=False)


def _words(text: str) -> list[str]:
    folded = text.casefold()
    return _ONE_CHARACTER.findall(folded) if _SPACELESS.search(folded) else re.findall(r"\w+", folded)


def _fits(text: str, schema: Mapping[str, object] | None) -> bool:
    """Whether a text is JSON that a schema allows; without a schema, every text fits."""
    if schema is None:
        return True
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

    try:
        return bool(Draft202012Validator(dict(schema)).is_valid(json.loads(text)))
    except (ValueError, RecursionError):  # no JSON, or too deep
        return False
