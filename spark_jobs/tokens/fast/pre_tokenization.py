"""How a tokenizer.json splits texts into words before byte pairs are merged, read from the file without loading it.

Three splittings are known here by name. All depend only on whether a character is a letter, a number, white space or
none of these (and on a few ASCII characters themselves), which is what the probes of a certificate can compare.

    gpt2     "it's 2026"  ->  it  's  Ġ2026         ByteLevel with its own pattern
    llama3   "it's 2026"  ->  it  's  Ġ  202  6     Split by a pattern, then ByteLevel
    qwen2    "it's 2026"  ->  it  's  Ġ  2  0  2  6
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_WORDS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLIT_PATTERNS: Final[Mapping[str, str]] = {
    "llama3": rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}",
    "qwen2": rf"{_WORDS}|\p{{N}}|{_REST}",
}
"""Patterns of a `Split` step, by the model that made each known."""


def _byte_names() -> tuple[str, ...]:
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in visible else next(others)) for byte in range(256))


BYTE_NAMES: Final = _byte_names()
"""The character that stands for each byte in a byte-level vocabulary (GPT-2's table)."""
_BYTES: Final = {name: byte for byte, name in enumerate(BYTE_NAMES)}


def splitting_name(declared: Mapping[str, Any]) -> str | None:
    """Name of the splitting that a tokenizer uses; None for any other, or where a normalizer changes texts first."""
    pre_tokenizer = declared.get("pre_tokenizer") or {}
    if declared.get("normalizer") is not None:
        return None
    if _is_byte_level(pre_tokenizer, use_regex=True):
        return "gpt2"
    parts = pre_tokenizer.get("pretokenizers") or []
    if pre_tokenizer.get("type") != "Sequence" or len(parts) != 2 or not _is_byte_level(parts[1], use_regex=False):
        return None
    split = parts[0]
    plain = split.get("type") == "Split" and split.get("behavior") == "Isolated" and not split.get("invert")
    pattern = (split.get("pattern") or {}).get("Regex")
    return next((name for name, known in SPLIT_PATTERNS.items() if plain and known == pattern), None)


def _is_byte_level(part: Mapping[str, Any], use_regex: bool) -> bool:
    return (
        part.get("type") == "ByteLevel"
        and part.get("add_prefix_space") is False
        and part.get("use_regex", True) is use_regex
    )


def token_name(data: bytes) -> str:
    """The name of a token in a byte-level vocabulary: b" a" -> "Ġa"."""
    return "".join(BYTE_NAMES[byte] for byte in data)


def token_bytes(name: str) -> bytes | None:
    """The inverse of `token_name`: "Ġa" -> b" a"; None where a character of the name represents no byte."""
    found = [_BYTES.get(character) for character in name]
    return None if None in found else bytes(byte for byte in found if byte is not None)
