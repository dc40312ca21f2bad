"""The bytes of a text represented by each token.

The name of a byte-level token has one character for each of its bytes, and tokens follow one another without a gap, so
positions are sums of lengths. For other tokenizers (normalizers, added spaces) the text is encoded again for its
offsets.
"""

from __future__ import annotations

import json

import numpy as np

from headrace.kernels.token_bounds import character_bounds
from spark_jobs.arrays import Int32Array, Int64Array
from spark_jobs.exceptions import TableMismatchError
from spark_jobs.tokens.hf_tokenizer import load_reference

_SHOWN = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that are named by their own character
_NAMED = [*_SHOWN, *(byte for byte in range(256) if byte not in _SHOWN)]
_BYTES = {chr(byte if at < len(_SHOWN) else 256 + at - len(_SHOWN)): byte for at, byte in enumerate(_NAMED)}


def token_byte_lengths(file_text: str) -> Int64Array | None:
    """(V,) bytes of each token of a byte-level tokenizer without normalizer; None for any other."""
    declared = json.loads(file_text)
    parts = _parts(declared.get("pre_tokenizer"), "pretokenizers")
    levels = [part for part in parts if part.get("type") == "ByteLevel"]
    spells_bytes = declared["model"].get("type") in ("BPE", None) and not declared["model"].get("byte_fallback")
    if declared.get("normalizer") is not None or len(levels) != 1 or not spells_bytes:
        return None
    if levels[0].get("add_prefix_space", True):
        return None
    lengths = {token: len(text) for text, token in declared["model"]["vocab"].items()}
    lengths |= {token["id"]: len(token["content"].encode()) for token in declared.get("added_tokens", [])}
    by_id = np.zeros(max(lengths, default=-1) + 1, dtype=np.int64)
    by_id[list(lengths)] = list(lengths.values())
    return by_id


class Spelling:
    """The text of each token of a tokenizer.

    Attributes:
        names: text of each token by id, as the tokenizer writes it.
        specials: ids of its special tokens.
    """

    def __init__(self, file_text: str) -> None:
        """Read the text of a tokenizer.json."""
        tokenizer = load_reference(file_text)
        self.names = {token_id: name for name, token_id in tokenizer.get_vocab(with_added_tokens=True).items()}
        self.specials = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self._spells_bytes = token_byte_lengths(file_text) is not None
        self._added = set(tokenizer.get_added_tokens_decoder())
        self._texts: dict[int, str] = {}

    def text(self, token_id: int) -> str:
        """The text of a token; bytes of only a part of a character are lone surrogates, as `surrogateescape` has.

        Of a tokenizer not byte-level it is the name, perhaps with another character for a space.
        """
        if token_id not in self._texts:
            self._texts[token_id] = self._text(token_id)
        return self._texts[token_id]

    def _text(self, token_id: int) -> str:
        name = self.names.get(token_id, f"[{token_id}]")
        if token_id in self._added or not self._spells_bytes or not all(letter in _BYTES for letter in name):
            return name
        return bytes(_BYTES[letter] for letter in name).decode(errors="surrogateescape")


def encoded_bounds(file_text: str, text: str, input_ids: Int32Array) -> tuple[Int64Array, Int64Array]:
    """Byte ranges of tokens, from the offsets of encoding the whole text again.

    Args:
        file_text: text of a tokenizer.json.
        text: the document.
        input_ids: (T,) its ids as they were stored.

    Returns:
        (T,) starts and (T,) ends in the text's UTF-8; a token for a part of a character has the whole character.

    Raises:
        TableMismatchError: the text does not give these ids.
    """
    tokenizer = load_reference(file_text)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    if not np.array_equal(np.array(encoding.ids, dtype=np.int32), input_ids):
        raise TableMismatchError(
            f"trace: the text encodes to {len(encoding.ids)} tokens other than the {len(input_ids)} in tokens; "
            "materialize tokens again"
        )
    widths = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    utf8 = 1 + (widths >= 0x80).astype(np.int64) + (widths >= 0x800) + (widths >= 0x10000)
    byte_of = np.concatenate([[0], np.cumsum(utf8)])  # by character
    starts, ends = character_bounds(text, encoding.offsets, tokenizer.normalizer and tokenizer.normalizer.normalize_str)
    return byte_of[starts], byte_of[ends]


def _parts(declared: dict[str, object] | None, key: str) -> list[dict[str, object]]:
    """The parts of a declaration that is a sequence, however deep; else the declaration itself."""
    if declared is None:
        return []
    if declared.get("type") != "Sequence":
        return [declared]
    inner = declared.get(key)
    return [part for child in inner for part in _parts(child, key)] if isinstance(inner, list) else []
