"""Answers: what came back for a request, read in OpenAI's form, and judged for whether it is a document."""

from __future__ import annotations

import json
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from headrace_features.synthetic.generated_config import ABSENT, GeneratedSource, PromptTemplate
from headrace_features.synthetic.thoughts import parted

DETAIL_CHARACTERS: Final = 300  # of a message about a fault that are kept


def ending(word: str) -> str:
    """A word for why an answer ended as all spellings of it have it: `FinishReason.MAX_TOKENS` is maxtokens."""
    return re.sub(r"[\s_.-]+", "", word.casefold()).removeprefix("finishreason")


# Words for why an answer ended, as OpenAI, vLLM, SGLang, llama.cpp, TGI, Mistral, Anthropic, Gemini, Cohere, Together,
# Bedrock and watsonx have them. An answer that ended for another one is not known to be whole.
WHOLE: Final = frozenset(
    map(
        ending,
        (
            "stop",
            "eos",
            "eos_token",
            "end_turn",
            "end_of_turn",
            "stop_sequence",
            "stop_string",
            "complete",
            "completed",
        ),
    )
)
BY_LIMIT: Final = frozenset(map(ending, ("length", "max_tokens", "max_output_tokens", "token_limit")))
BY_CONTEXT: Final = frozenset(map(ending, ("model_length", "model_context_window_exceeded")))  # no higher limit helps
_CONTENT: Final = (
    "content_filter",
    "content_filtered",
    "refusal",
    "safety",
    "sensitive",
    "recitation",
    "blocklist",
    "spii",
)
BY_CONTENT: Final = frozenset(map(ending, (*_CONTENT, "prohibited_content", "guardrail_intervened", "error_toxic")))
_WORDS: Final = 8  # words of a run that counts as copied
_REPETITIVE: Final = 0.1  # compressed size over size, below which a text repeats itself
_LEAST_BYTES: Final = 400  # shorter texts compress well by chance
_MOST_TOKENS: Final = (1 << 31) - 1  # largest usage that the column in the database takes
_LEAST_CHARACTERS: Final = 200  # length that a shorter parent counts as having: five times a title is no long answer
_FENCED: Final = re.compile(r"(`{3,}|~{3,})[ \t]*[\w+-]*(?=[\s{\[\"])\s*(.*?)\s*\1", re.DOTALL)
_SPACELESS: Final = (  # Thai, Lao, Tibetan, Burmese, Khmer, scripts of Tai languages, Balinese, Yi, Javanese, kana, Han
    r"\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    r"\u3400-\u9fff\ua000-\ua48c\ua980-\ua9ff\uaa60-\uaadf\uf900-\ufaff\uff66-\uff9f\U00011700-\U0001174f"
    r"\U0001b000-\U0001b16f\U00020000-\U000323af"
)
_WORD: Final = re.compile(rf"[{_SPACELESS}]|[^\W{_SPACELESS}]+")
_ERRORS: Final = ("message", "msg", "detail", "error", "errors")  # fields that have the words of an error
_MOST_ERRORS: Final = 3  # of several that are told
_THOUGHTS: Final = ("reasoning_content", "reasoning", "thinking", "reasoning_details")  # fields of a message


@dataclass(frozen=True)
class Answer:
    """An answer of an endpoint.

    Attributes:
        text: what the model wrote, without its thought; empty where it wrote nothing.
        reasoning: what it thought aloud.
        model: as the server named it.
        fingerprint: of the server's configuration; empty where it gives none.
        finish: why it stopped, in the word of the model's server; `null`, or empty where none is named.
        refusal: the model's own words for why it does not answer.
        tokens_in: tokens of the prompt; None where the endpoint does not report them.
        tokens_out: tokens of the answer; None where it does not report them.
        unparsed: a mark of a chat template, or a kind of content, that shows that the text is none; else empty.
    """

    text: str = ""
    reasoning: str = ""
    model: str = ""
    fingerprint: str = ""
    finish: str = ""
    refusal: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    unparsed: str = ""

    @property
    def is_cut_by_limit(self) -> bool:
        """Whether a higher limit would make it longer."""
        return ending(self.finish) in BY_LIMIT


class AnswerVerdict(NamedTuple):
    """What an answer is worth: the text of a document; or a reason why it is none, with what shows it."""

    text: str
    reason: str = ""
    detail: str = ""


NOTHING: Final = Answer()


def answer_of(data: Any) -> Answer | str:
    """The answer in a response of the protocol, or in words what is wrong with the response."""
    if not isinstance(data, Mapping):
        return f"a JSON {type(data).__name__}, no object"
    if (error := data.get("error")) or ("choices" not in data and _has_words(data)):
        return f"status 200 with an error: {_said(error or data)}"
    choice = _first_choice(data.get("choices"))
    message = choice.get("message")
    if error := choice.get("error"):
        return f"status 200 with an error: {_said(error)}"
    if not isinstance(message, Mapping):
        return f"no choices[0].message in the answer, it has {', '.join(map(str, data))}"
    content = _parts(message.get("content"))
    answer, usage = parted(content.text), data.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    apart = next(filter(None, (_words(message.get(name)) for name in _THOUGHTS)), "")

    def count(name: str) -> int | None:
        value = usage.get(name)
        return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None

    return Answer(
        answer.text,
        "\n\n".join(filter(None, (apart, content.reasoning, answer.reasoning))),
        _text(data, "model"),
        _text(data, "system_fingerprint"),
        _finish(choice, message),
        _text(message, "refusal") or content.refusal,
        count("prompt_tokens"),
        count("completion_tokens"),
        content.unparsed or answer.mark,
    )


def _text(source: Any, name: str) -> str:
    """A field of an object, where it is a text; else an empty one."""
    value = source.get(name) if isinstance(source, Mapping) else None
    return value if isinstance(value, str) else ""


def _has_words(data: Mapping[str, Any]) -> bool:
    """Whether an object is an error itself, as some servers and gateways send it."""
    return any(isinstance(data.get(name), str | list) for name in _ERRORS)


def _said(error: Any) -> str:
    """The message of an error with its place and codes, in the servers' forms.

    What else it has is left out where there is a message: it may be the request, whose text says nothing of the error.
    """
    if isinstance(error, list):
        return "; ".join(dict.fromkeys(map(_said, error[:_MOST_ERRORS])))
    if not isinstance(error, Mapping):
        return str(error)
    words = next((_said(value) for name in _ERRORS if (value := error.get(name))), "")
    place = ".".join(map(str, loc)) if isinstance(loc := error.get("loc"), list) else ""
    codes = (code for name in ("code", "type") if (code := _text(error, name)) and not code.isdigit())
    beside = (f"({note})" for note in (place, *codes) if note and note not in words)
    return " ".join((words, *beside)) if words else str(dict(error))


def _first_choice(choices: Any) -> Mapping[str, Any]:
    """The choice with the lowest index, the only one where one answer is asked for; else an empty one."""
    some = [choice for choice in choices if isinstance(choice, Mapping)] if isinstance(choices, list) else []
    places = [choice["index"] if type(choice.get("index")) is int else place for place, choice in enumerate(some)]
    return some[places.index(min(places))] if some else {}


def _finish(choice: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    """Why an answer ended: in the word of the model's own server, where a gateway has put another in its place."""
    named = choice.get("finish_reason")
    finish = named if isinstance(named, str) else "null" if "finish_reason" in choice else ""
    native = _text(choice.get("provider_specific_fields"), "native_finish_reason") or _text(
        choice, "native_finish_reason"
    )
    if native and ending(finish) in WHOLE | {"", "null"}:
        finish = native
    if ending(finish) in WHOLE and (message.get("tool_calls") or message.get("function_call")):
        return "tool_calls"
    return finish


class _Content(NamedTuple):
    """The content of a message: texts of its parts, joined."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    unparsed: str = ""


def _parts(content: Any) -> _Content:
    """A content as a text or a list of parts: texts, thoughts and refusals; another part is not parsed."""
    if isinstance(content, str):
        return _Content(content)
    parts = [content] if isinstance(content, Mapping) else content if isinstance(content, list) else []
    text, reasoning, refusal, unparsed = list[str](), list[str](), list[str](), ""
    for part in parts:
        kind = "text" if isinstance(part, str) else _text(part, "type") or "text"
        if isinstance(part, str):
            text.append(part)
        elif kind.startswith(("thinking", "reasoning", "thought")):
            reasoning += filter(
                None, (_words(part.get(field_name)) for field_name in (*_THOUGHTS, "text", "summary", "content"))
            )
        elif kind == "refusal":
            refusal.append(_text(part, "refusal"))
        elif (
            kind in ("text", "output_text", "summary_text")
            and isinstance(part, Mapping)
            and isinstance(part.get("text"), str)
        ):
            text.append(part["text"])
        else:
            unparsed = unparsed or f"a part of type {kind}"
    return _Content("".join(text), "\n\n".join(reasoning), "\n".join(refusal), unparsed)


def read_answer(status: int, data: bytes) -> Answer | str:
    """The answer in a response, or what is wrong with it."""
    try:
        value = json.loads(data)
        return answer_of(value) if status == 200 else f"status {status}: {_said(value)}"
    except (ValueError, RecursionError):  # no JSON, or too deep
        words = data[:DETAIL_CHARACTERS].decode(errors="replace")
        return f"status {status}{', and no JSON' if status == 200 else ''}: {words or 'an empty body'}"


def _words(content: Any) -> str:
    """All texts of a thought as content."""
    parts = _parts(content)
    return parts.text or parts.reasoning


def judged(answer: Answer, template: PromptTemplate, parent: str, source: GeneratedSource) -> AnswerVerdict:
    """The text of a usable answer; else the reason why it is none.

    Reasons: refused, cut, unfinished, unparsed, reasoning_only, empty, form, longer, repetitive, copied. An answer in
    another language is left to the rules of the dataset's policy, as these know languages.
    """
    text, word = answer.text.strip(), answer.finish or ABSENT
    usable = text.removeprefix(template.prefix).strip()
    if template.answer_schema is not None and (fenced := _FENCED.fullmatch(usable)) is not None:
        usable = fenced[2]
    data, ended = usable.encode(errors="surrogatepass"), ending(word)
    is_cut, stated = ended in BY_LIMIT | BY_CONTEXT, f"finish_reason {word}"
    is_whole = ended in WHOLE | set(map(ending, source.endpoint.also_whole))
    faults: tuple[tuple[str, str, Callable[[], bool]], ...] = (
        ("refused", answer.refusal or stated, lambda: bool(answer.refusal) or (ended in BY_CONTENT and not is_whole)),
        ("cut", stated, lambda: is_cut and source.on_cut != "keep"),
        ("unfinished", stated, lambda: not is_cut and not is_whole),
        ("unparsed", answer.unparsed, lambda: bool(answer.unparsed)),
        ("reasoning_only", "", lambda: not text and bool(answer.reasoning.strip())),
        ("empty", "", lambda: not usable),
        ("form", "", lambda: not text.startswith(template.prefix) or not _fits(usable, template.answer_schema)),
        ("longer", "", lambda: len(usable) > source.max_longer * max(len(parent), _LEAST_CHARACTERS)),
        ("repetitive", "", lambda: len(data) >= _LEAST_BYTES and len(zlib.compress(data, 1)) < _REPETITIVE * len(data)),
        ("copied", "", lambda: source.max_copied < 1 and copied_share(usable, parent) > source.max_copied),
    )
    fault = next(((reason, detail) for reason, detail, is_so in faults if is_so()), None)
    return AnswerVerdict(usable) if fault is None else AnswerVerdict("", *fault)


def copied_share(text: str, parent: str) -> float:
    """Share of a text's runs of 8 words present in its parent; in scripts without spaces a character is a word.

    An answer shorter than a run is compared as a whole.
    """
    text_words, others = (_WORD.findall(unicodedata.normalize("NFC", prose.casefold())) for prose in (text, parent))
    size = min(_WORDS, len(text_words))
    if not size:
        return 0.0
    theirs = set(_runs(others, size))
    runs = list(_runs(text_words, size))
    return sum(map(theirs.__contains__, runs)) / len(runs)


def _runs(words: list[str], size: int) -> Iterator[tuple[str, ...]]:
    """All runs of `size` words."""
    return zip(*(words[at:] for at in range(size)), strict=False)


def _fits(text: str, schema: Mapping[str, object] | None) -> bool:
    """Whether a text is JSON allowed by a schema; without a schema, every text fits."""
    if schema is None:
        return True
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

    try:
        return bool(Draft202012Validator(dict(schema)).is_valid(json.loads(text, parse_constant=_refuse)))
    except (ValueError, RecursionError):  # no JSON, or too deep
        return False


def _refuse(constant: str) -> None:
    """Refuse a constant read by Python and missing in JSON, such as NaN."""
    raise ValueError(constant)
