"""What comes before the model: the normalizer, and added tokens, matched here as the reference matches them.

Names with common characters interact: one is longer, or further left, or matched first, or normalized. Each library has
rules of its own for that, invisible to probes of single names. So fast encoders get the tokenizer without its added
tokens (`AddedTokens.plain`), and the texts between their occurrences.

The reference takes the names not normalized, then the others in what is left, each time the leftmost one, and of
several the longest. A special token's name uses up its characters, and is then encoded as text. With `<a>`, `a>b` and
`>>` plain, `b<` and `</s>` special:

    x<a>b    ->   x, id of <a>, b
    xa>b<    ->   x, id of a>b, <       a>b is further left than b<
    </s>>    ->   all of it as text     the first character of >> is used up

A text without a plain name has no match, whatever the rules. No more is claimed for names with further rules
(surroundings that count or are taken in, several tokens of one name): a document with one of these is left to the
reference. So is one with a plain name changed by the normalizer, since some are matched before it and others after.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from spark_jobs.arrays import Int32Array
from spark_jobs.threads import made_once
from spark_jobs.tokens.hf_tokenizer import NFC, load_reference, normalizer_of

_SURROUNDINGS: Final = ("single_word", "lstrip", "rstrip")


def plain_tokenizer(file_text: str) -> str:
    """The tokenizer.json without its added tokens, its normalizer, and dropout."""
    declared = json.loads(file_text)
    model = declared["model"]
    if model.get("dropout") is not None:
        model = {**model, "dropout": None}
    return json.dumps({**declared, "added_tokens": [], "normalizer": None, "model": model})


class _Name(NamedTuple):
    """A name as texts spell it: its pass, and the (1,) id; none of a special token."""

    spelling: str
    number: int
    ids: Int32Array | None
    is_matched_here: bool


class AddedTokens:
    """The added tokens and the normalizer of a tokenizer.

    Attributes:
        plain: the tokenizer without both (`plain_tokenizer`).
        normalizer: as its file declares it; None where there is none.
        names: of all added tokens, as texts spell them.
    """

    def __init__(self, file_text: str) -> None:
        """Read a tokenizer.json."""
        declared = json.loads(file_text)
        self.plain = plain_tokenizer(file_text)
        self.normalizer = normalizer_of(declared)
        reference = None if self.normalizer is None else load_reference(file_text).normalizer
        self._normalize: Callable[[str], str] | None = None if reference is None else reference.normalize_str
        names = _names(file_text, declared.get("added_tokens") or [], self._normalize or (lambda name: name))
        contents = (token["content"] for token in declared.get("added_tokens") or [])
        self.names = tuple(dict.fromkeys([*contents, *(name.spelling for name in names)]))
        by_pass = [[name for name in names if name.number == number] for number in (0, 1)]
        self._ids = tuple({name.spelling: name.ids for name in group} for group in by_pass)
        self._patterns = tuple(map(_any_of, self._ids))
        self._plain = _any_of(name.spelling for name in names if name.ids is not None)
        self._others = _any_of(name.spelling for name in names if not name.is_matched_here)

    def normalized(self, text: str) -> str | None:
        """A text after the normalizer; None where it is left to the reference."""
        if self._others is not None and self._others.search(text) is not None:
            return None
        if self._normalize is None or (self.normalizer == NFC and unicodedata.is_normalized("NFC", text)):
            return text
        normal = self._normalize(text)
        if self._plain is None or (normal == text and self.normalizer == NFC):
            return normal
        return None if self._plain.search(text) or self._plain.search(normal) else normal

    def encode(self, text: str, encode: Callable[[str], Int32Array]) -> Int32Array:
        """(T,) ids of a `normalized` text.

        Args:
            text: the text.
            encode: gives the ids of a text by the tokenizer `plain`.
        """
        if self._plain is None or self._plain.search(text) is None:
            return encode(text)
        parts: list[str | Int32Array] = [text]
        for pattern, ids in zip(self._patterns, self._ids, strict=True):
            if pattern is not None:
                parts = [
                    part
                    for between in parts
                    for part in (_parts(between, pattern, ids) if isinstance(between, str) else (between,))
                ]
        return np.concatenate([encode(part) if isinstance(part, str) else part for part in parts])


def _parts(text: str, pattern: re.Pattern[str], ids: Mapping[str, Int32Array | None]) -> Iterator[str | Int32Array]:
    """The ids of the names found by one pass in a text, and the texts between."""
    at = 0
    for match in pattern.finditer(text):
        added = ids[match[0]]
        if added is not None:
            if match.start() > at:
                yield text[at : match.start()]
            yield added
            at = match.end()
    if at < len(text):
        yield text[at:]


@made_once(most=2)
def load_added_tokens(file_text: str) -> AddedTokens:
    """The added tokens of a tokenizer, cached for the life of the process."""
    return AddedTokens(file_text)


def _names(file_text: str, tokens: list[dict[str, Any]], normalize: Callable[[str], str]) -> list[_Name]:
    """The names of added tokens; an empty one is no name, and where all are special none is ever matched."""
    tokens = [token for token in tokens if token["content"]]
    if all(token.get("special") for token in tokens):
        return []
    reference = load_reference(file_text)
    tokens_by_id = reference.get_added_tokens_decoder()
    normal = {token["content"]: normalize(token["content"]) for token in tokens}
    contents = Counter(token["content"] for token in tokens)
    spellings = Counter(normal[token["content"]] for token in tokens)
    names = []
    for token in tokens:
        content = token["content"]
        number = reference.token_to_id(content)
        is_normalized, is_special = bool(token.get("normalized")), bool(token.get("special"))
        # One content twice, a name that is another one's normal form, or two tokens that the library gave one id.
        is_clear = contents[content] == spellings[normal[content]] == 1
        is_clear = is_clear and number is not None and tokens_by_id[number].content == content
        names.append(
            _Name(
                normal[content] if is_normalized else content,
                int(is_normalized),
                None if is_special else np.array([number], dtype=np.int32),
                is_clear and (is_special or not any(token.get(flag) for flag in _SURROUNDINGS)),
            )
        )
    return names


def _any_of(names: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern for the leftmost of some names, the longest of several; None where there is none."""
    ordered = sorted(names, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None
