"""Requests: what is sent about a part of a parent, and the key by which an answer belongs to it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from spark_jobs.lake.ledger.step_key import canonical_json
from spark_jobs.sources.config.generated_config import ModelEndpoint, Template

_BREAKS: Final = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"(?<=[.!?。！？])\s*"), re.compile(r"\s+"))


@dataclass(frozen=True)
class Parent:
    """A part of a document that a model is asked about.

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
class Request:
    """What is sent.

    Attributes:
        key: SHA-256 of the body and of the number of the sample, in hex.
        body: as JSON: rendered messages, model, limit, parameters, schema.
        parent: what it asks about.
        template: name of the template.
        sample: number of the answer to this body, from 0.
    """

    key: str
    body: dict[str, Any]
    parent: Parent
    template: str
    sample: int = 0


def request_of(
    parent: Parent, template: Template, endpoint: ModelEndpoint, sample: int = 0, answer_tokens: int | None = None
) -> Request:
    """The request about a part of a parent; another limit, template or sample makes another key."""
    messages = [{"role": "system", "content": template.system}] if template.system else []
    messages.append({"role": "user", "content": template.user.replace("{text}", parent.text)})
    body: dict[str, Any] = {
        **endpoint.more,
        "model": endpoint.model,
        "messages": messages,
        "max_tokens": answer_tokens or endpoint.answer_tokens,
        "temperature": endpoint.temperature,
    }
    if template.answer_schema is not None:
        schema = {"name": template.name, "schema": template.answer_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    key = hashlib.sha256(canonical_json({"body": body, "sample": sample}).encode()).hexdigest()
    return Request(key, body, parent, template.name, sample)


def parts_of(dataset: str, doc_id: str, text: str, most_characters: int) -> Iterator[Parent]:
    """Cut a text that is too long at paragraphs, else at lines, sentences, words, else anywhere; nothing is left out.

    Parts of white space alone are left out: there is nothing to ask about.
    """
    at, byte = 0, 0
    while at < len(text):
        end = at + most_characters
        if end < len(text):
            end = next((cut for one in _BREAKS if (cut := _last_break(one, text, at, end)) is not None), end)
        part = text[at:end]
        size = len(part.encode(errors="surrogatepass"))
        if part.strip():
            yield Parent(dataset, doc_id, part, byte, byte + size)
        at, byte = end, byte + size


def _last_break(pattern: re.Pattern[str], text: str, start: int, end: int) -> int | None:
    """Where the last break in the second half of a range ends; None where there is none."""
    breaks = [found.end() for found in pattern.finditer(text, start + (end - start) // 2, end)]
    return breaks[-1] if breaks else None
