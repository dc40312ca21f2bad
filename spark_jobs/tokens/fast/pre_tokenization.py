r"""How a tokenizer.json splits texts into words before byte pairs are merged, read from the file without loading it.

    "pre_tokenizer": Sequence      Split by a pattern, Digits, ..    words are cut once more by each
                                   ByteLevel                         the last: each byte becomes a letter

A pattern here asks of a character only whether it is in some classes, of the pattern itself or of Unicode. Those are
its `atoms`. Two encoders that agree on all texts of one character for each combination of atoms can differ only in
their tables of classes, compared by a certificate one by one (`certificate_probes`)::

    [^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}    ->    [^\r\n\p{L}\p{N}]    \p{L}    \p{N}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_WORDS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST: Final = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED: Final = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+SUFFIX"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*SUFFIX"
)
_CONTRACTION: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
SPLIT_PATTERNS: Final[Mapping[str, str]] = {
    "llama3": rf"{_WORDS}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}",
    "qwen2": rf"{_WORDS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}",
    "qwen3.5": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_REST}",
    "o200k": rf"{_CASED.replace('SUFFIX', _CONTRACTION)}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}",
    "tekken": rf"{_CASED.replace('SUFFIX', '')}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}",
}
"""Patterns of a `Split` step, by the model that made each known. In them, as in `DEEPSEEK_PATTERNS`, a line feed before
a visible character ends a word, unless that character is a slash."""
DEEPSEEK_PATTERNS: Final = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)
"""Patterns of the three `Split` steps of DeepSeek V3 and V4."""


def _byte_names() -> tuple[str, ...]:
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in visible else next(others)) for byte in range(256))


BYTE_NAMES: Final = _byte_names()
"""The character that stands for each byte in a byte-level vocabulary (GPT-2's table)."""
_BYTES: Final = {name: byte for byte, name in enumerate(BYTE_NAMES)}

_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTED: Final = frozenset("sdmtlrve")  # letters of 's 'd 'm 't 'll 're 've, which every context of a probe tries
_MOST_REPEATED: Final = 3  # probes have up to four characters
_PART: Final = re.compile(
    r"""(?P<class>\[(?:\\.|&(?!&)|[^\[\]\\&])+\]|\\[pP]\{\^?\w+\}|\\[sSdDwW]|\.)   # a class of characters
      | (?P<group>\((?:\?(?:i?:|[!=])|(?!\?))|[)|$])                           # (  (?:  (?i:  (?!  (?=  )  |  $
      | (?P<repeat>[*+?]|\{(?:\d+,)?(?P<most>\d+)\})
      | (?P<literal>\\[rnt]|\\?[^\w\\\[\](){}*+?|^$.&]|[sdmtlrve])
    """,
    re.VERBOSE,
)


class UnknownSplittingError(ValueError):
    """A pre-tokenizer not made of steps and patterns on classes of characters alone."""


def atoms(pre_tokenizer: Mapping[str, Any]) -> list[str]:
    r"""Patterns of one character each, `\p{L}` or `[\r\n]`, on which alone it depends how a text is split.

    Args:
        pre_tokenizer: as in a tokenizer.json.

    Raises:
        UnknownSplittingError: it has a step, or a part of a pattern, unknown here; the message names it.
    """
    steps = list(_steps(pre_tokenizer))
    if not steps or steps[-1].get("type") != "ByteLevel" or any(s.get("type") == "ByteLevel" for s in steps[:-1]):
        raise UnknownSplittingError("its pre-tokenizer does not end in one step ByteLevel")
    return list(dict.fromkeys(atom for step in steps for pattern in _patterns(step) for atom in _atoms(pattern)))


def _steps(part: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The steps of a pre-tokenizer, in order."""
    if part.get("type") == "Sequence":
        for inner in part.get("pretokenizers") or []:
            yield from _steps(inner)
    else:
        yield part


def _patterns(step: Mapping[str, Any]) -> list[str]:
    """Regular expressions to split by in a step."""
    kind, pattern = step.get("type"), step.get("pattern")
    if kind == "ByteLevel":
        if step.get("add_prefix_space", True):
            raise UnknownSplittingError("its pre-tokenizer adds a space before a text")
        return [_GPT2] if step.get("use_regex", True) else []
    if kind == "Digits":
        return [r"\p{N}"]
    if kind == "Punctuation":
        return [r"[\p{P}$+<=>^`|~]"]
    if kind == "Split" and isinstance(pattern, Mapping) and step.get("behavior") != "Removed":
        if isinstance(pattern.get("Regex"), str):
            return [pattern["Regex"]]
        if isinstance(pattern.get("String"), str):
            return [re.escape(pattern["String"])]
    raise UnknownSplittingError(f"its pre-tokenizer has a step {kind or step} that the probes do not know")


def _atoms(pattern: str) -> Iterator[str]:
    """The classes and the literal characters of a regular expression."""
    at = 0
    while at < len(pattern):
        part = _PART.match(pattern, at)
        if part is None or int(part["most"] or 0) > _MOST_REPEATED:
            raise UnknownSplittingError(f"its pattern has {pattern[at : at + 16]!r}, which the probes do not know")
        if part["class"] or (part["literal"] and part["literal"] not in _CONTRACTED):
            yield part["class"] or part["literal"]
        at = part.end()


def ends_words_at_lines(pre_tokenizer: Mapping[str, Any]) -> bool:
    """Whether it is known that no word goes on after a line feed before a visible character other than a slash."""
    steps = list(_steps(pre_tokenizer))
    if not steps or steps[-1].get("type") != "ByteLevel" or steps[-1].get("add_prefix_space", True):
        return False
    if steps[-1].get("use_regex", True):
        return len(steps) == 1
    plain = all(
        step.get("type") == "Split" and step.get("behavior") == "Isolated" and not step.get("invert")
        for step in steps[:-1]
    )
    patterns = tuple((step.get("pattern") or {}).get("Regex") for step in steps[:-1])
    return plain and (patterns == DEEPSEEK_PATTERNS or (len(patterns) == 1 and patterns[0] in SPLIT_PATTERNS.values()))


def token_name(data: bytes) -> str:
    """The name of a token in a byte-level vocabulary: b" a" -> "Ġa"."""
    return "".join(BYTE_NAMES[byte] for byte in data)


def token_bytes(name: str) -> bytes | None:
    """The inverse of `token_name`: "Ġa" -> b" a"; None where a character of the name represents no byte."""
    byte_values = [_BYTES.get(character) for character in name]
    return None if None in byte_values else bytes(byte for byte in byte_values if byte is not None)
