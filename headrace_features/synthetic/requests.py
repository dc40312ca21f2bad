"""Requests: what is sent about a part of a parent, and the key tying an answer to it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace_features.synthetic.answers import Answer
from headrace_features.synthetic.generated_config import ModelEndpoint, PromptTemplate
from spark_jobs.lake.ledger.step_key import canonical_json

_BREAKS: Final = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"(?<=[.!?。！？])\s*"), re.compile(r"\s+"))


@dataclass(frozen=True)
class Parent:
    """A part of a document to ask a model about.

    Attributes:
        dataset: of the document.
        doc_id: its identity.
        text: of the part.
        start: its first byte in the document's text, as UTF-8.
        end: the byte after its last.
    """

    dataset: str
    doc_id: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Turn:
    """An answer with code in a conversation, and what the code gave: the next message.

    Attributes:
        key: of the answered request.
        answer: of the model.
        output: the message for the model about its execution; None before that.
        status: of the program's exit, or why it was stopped.
    """

    key: str
    answer: Answer
    output: str | None = None
    status: str = ""


@dataclass(frozen=True)
class Request:
    """A request as it is sent to the endpoint.

    Attributes:
        key: SHA-256 of the body and of the number of the sample, in hex.
        body: as JSON: rendered messages, model, limit, parameters, schema.
        parent: what it asks about.
        template: name of the template.
        sample: number of the answer to this body, from 0.
        turns: of its conversation before it.
    """

    key: str
    body: dict[str, Any]
    parent: Parent
    template: str
    sample: int = 0
    turns: tuple[Turn, ...] = ()

    @property
    def first_key(self) -> str:
        """The key of the first request of its conversation: the key in its task and of its document."""
        return self.turns[0].key if self.turns else self.key

    @property
    def answer_tokens(self) -> int:
        """The most tokens of the answer."""
        return int(next(self.body[name] for name in ("max_tokens", "max_completion_tokens") if name in self.body))


def request_of(
    parent: Parent, template: PromptTemplate, endpoint: ModelEndpoint, sample: int = 0, answer_tokens: int | None = None
) -> Request:
    """The request about a part of a parent; another limit, template or sample makes another key."""
    messages = [{"role": "system", "content": template.system}] if template.system else []
    messages.append({"role": "user", "content": template.user.replace("{text}", parent.text)})
    body: dict[str, Any] = {
        **endpoint.fields_of(sample),
        "model": endpoint.model,
        "messages": messages,
        endpoint.limit_field: answer_tokens or endpoint.answer_tokens,
        "temperature": endpoint.temperature,
    }
    if template.answer_schema is not None:
        schema = {"name": template.name, "schema": template.answer_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return Request(_key(body, sample), body, parent, template.name, sample)


def next_request(request: Request, turn: Turn) -> Request:
    """The next request of a conversation: all messages so far, the answer, and the output of its code."""
    messages = [{"role": "assistant", "content": turn.answer.text}, {"role": "user", "content": turn.output}]
    body = {**request.body, "messages": [*request.body["messages"], *messages]}
    return replace(request, key=_key(body, request.sample), body=body, turns=(*request.turns, turn))


def _key(body: dict[str, Any], sample: int) -> str:
    text = canonical_json({"body": body, "sample": sample})
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def parts_of(dataset: str, doc_id: str, text: str, most_characters: int) -> Iterator[Parent]:
    """Cut a text into parts of at most so many characters: at paragraphs, else lines, sentences, words, else anywhere.

    Parts of white space alone are left out: there is nothing to ask about.
    """
    at, byte = 0, 0
    while at < len(text):
        end = at + most_characters
        if end < len(text):
            end = next((cut for pattern in _BREAKS if (cut := _last_break(pattern, text, at, end)) is not None), end)
        part = text[at:end]
        size = len(part.encode(errors="surrogatepass"))
        if part.strip():
            yield Parent(dataset, doc_id, part, byte, byte + size)
        at, byte = end, byte + size


def _last_break(pattern: re.Pattern[str], text: str, start: int, end: int) -> int | None:
    """Where the last break in the second half of a range ends; None where there is none."""
    breaks = [match.end() for match in pattern.finditer(text, start + (end - start) // 2, end)]
    return breaks[-1] if breaks else None
