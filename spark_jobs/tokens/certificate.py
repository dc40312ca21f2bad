"""The certificate: for which texts the fast encoder gives the reference's ids, with one tokenizer and given versions.

    texts without an excluded code point    the fast encoder, after the reference's own normalizer, and between added
                                            tokens, unless their names have rules of their own
    all others                              the reference (Hugging Face's `tokenizers`)

Both libraries carry tables of characters, from different versions of Unicode, so they disagree on characters assigned
as letters in one and unassigned in the other, and every upgrade of either changes which these are. So the certificate
is measured: the class of every code point is probed (`certificate_probes`), and code points with a difference are
excluded. Everything else must agree without exception, or there is no certificate: how classes follow one another, all
tokens of the vocabulary, texts of many words, the cuts in long documents. Added tokens are matched by `added_tokens`
and kept from the fast encoder; its rules are compared with the reference on names in all kinds of company.

A certificate decides no row of `tokens`, since ids are the same with and without it. It is valid for the versions named
in it; where others are installed a new one is made (a few seconds) and not stored.

Nearly all probes test how text is cut into words: by the pre-tokenizer alone. So their results are cached in the Python
environment (`share/headrace/certificates`), by pre-tokenizer, versions and the code of the probes; for a second
tokenizer with this pre-tokenizer only its vocabulary is probed, half a second.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from spark_jobs.arrays import BoolArray, Int32Array
from spark_jobs.tokens.added_tokens import AddedTokens, plain_tokenizer
from spark_jobs.tokens.certificate_probes import (
    boundaries,
    cased_as_ascii,
    character_probes,
    code_point_blocks,
    first_probe,
    line_ends,
    name_probes,
    newly_composing,
    representatives,
    structure_probes,
    whole_words,
)
from spark_jobs.tokens.fast.fast_encoder import NO_ENCODER, FastEncoder, encoder_version, reference_version
from spark_jobs.tokens.fast.pre_tokenization import UnknownSplittingError, token_bytes
from spark_jobs.tokens.hf_tokenizer import NFC, can_cut_at_lines, load_reference

_log = logging.getLogger(__name__)
_FOLDER: Final = Path(sys.prefix) / "share" / "headrace" / "certificates"
_BATCH: Final = 4096
_CODE_POINTS: Final = 0x110000  # of Unicode, and of Python's `chr`
_MOST_EXCLUDED: Final = 1 << 16  # 14,049 are measured; many more mean that something else is wrong
_PLAIN_MODEL: Final[dict[str, tuple[object, ...]]] = {
    "type": ("BPE",),
    "unk_token": (None,),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (False, None),
}


class Encodes(Protocol):
    """A fast encoder of documents."""

    def encode(self, text: str) -> Int32Array:
        """(T,) ids of a text."""
        ...


Loader = Callable[[str], Encodes]
"""Text of a tokenizer.json -> its fast encoder."""


@dataclass(frozen=True)
class Certificate:
    """The texts allowed to the fast encoder, with one tokenizer and given versions.

    Attributes:
        tokenizer_sha256: of the tokenizer's file.
        reference: name and version of the library with the ids that count.
        encoder: name and version of the fast encoder; `none` where none is installed.
        refusal: why there is no fast path; None where there is one.
        excluded: code points with documents left to the reference, as (first, last), ascending.
        probe_count: texts encoded by both for the comparison.
    """

    tokenizer_sha256: str
    reference: str
    encoder: str
    refusal: str | None
    excluded: tuple[tuple[int, int], ...]
    probe_count: int

    @property
    def is_for_this_installation(self) -> bool:
        """Whether the installed versions are the compared ones."""
        return (self.reference, self.encoder) == (reference_version(), encoder_version())

    @classmethod
    def refused(cls, tokenizer_sha256: str, reason: str) -> Certificate:
        """A certificate without a fast path, for a reason known without probes."""
        return cls(tokenizer_sha256, reference_version(), encoder_version(), reason, (), 0)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Certificate:
        """The certificate of a row of the table `tokenizer_certificate`."""
        ranges = tuple((int(part["first"]), int(part["last"])) for part in row["excluded"])
        return cls(
            row["tokenizer_sha256"],
            row["reference"],
            row["encoder"],
            row["refusal"],
            ranges,
            int(row["probe_count"]),
        )

    def row(self) -> dict[str, Any]:
        """The certificate as a row of the table `tokenizer_certificate`."""
        ranges = [{"first": first, "last": last} for first, last in self.excluded]
        return {**dataclasses.asdict(self), "excluded": ranges}

    def excluded_table(self) -> BoolArray:
        """(0x110000,) whether a text with this code point goes to the reference."""
        table = np.zeros(_CODE_POINTS, dtype=np.bool_)
        for first, last in self.excluded:
            table[first : last + 1] = True
        return table


class _RefusedError(Exception):
    """The fast encoder may not be used at all; the message says why."""


def certify(file_text: str, load: Loader = FastEncoder) -> Certificate:
    """Compare the fast encoder with the reference, over all code points.

    Takes about 5 seconds for a vocabulary of 50,000 (benchmarks/bench_tokens.py), 1 where the result for its
    pre-tokenizer is cached.

    Args:
        file_text: text of a tokenizer.json.
        load: makes the fast encoder; another one than the default bypasses the cache.

    Returns:
        A certificate; its `refusal` says why where the fast encoder may not be used.
    """
    started = time.monotonic()
    plain = plain_tokenizer(file_text)
    comparison = _Comparison(load)
    excluded: list[int] = []
    refusal = None
    try:
        kind = _Kind(_require_known(plain), can_cut_at_lines(plain))
        probing = _cached(kind, comparison.probed) if load is FastEncoder else comparison.probed(kind)
        comparison.probe_count = probing.probe_count
        if probing.refusal is not None:
            raise _RefusedError(probing.refusal)
        excluded = list(probing.excluded)
        added = AddedTokens(file_text)
        if added.normalizer == NFC:
            excluded = sorted({*excluded, *newly_composing()})
        named = _covered(name_probes(added.names), added, {*excluded})
        comparison.require_equal(plain, [*_vocabulary_probes(plain, {*excluded}), *named], "vocabulary")
        comparison.require_equal_names(file_text, added, named)
    except _RefusedError as error:
        refusal, excluded = str(error), []
    sha256 = hashlib.sha256(file_text.encode()).hexdigest()
    _log.info(
        "tokenizer %.8s: %s after %d probes in %.1f s",
        sha256,
        refusal or f"certified without {len(excluded)} code points",
        comparison.probe_count,
        time.monotonic() - started,
    )
    return Certificate(
        tokenizer_sha256=sha256,
        reference=reference_version(),
        encoder=encoder_version(),
        refusal=refusal,
        excluded=_ranges(excluded),
        probe_count=comparison.probe_count,
    )


def _require_known(file_text: str) -> dict[str, Any]:
    """The pre-tokenizer of a tokenizer.json, if it is of a kind covered completely by the probes.

    Raises:
        _RefusedError: the tokenizer is of another kind, or no fast encoder is installed.
    """
    if encoder_version() == NO_ENCODER:
        raise _RefusedError("no fast encoder is installed; pip install fastokens==0.3.5")
    declared = json.loads(file_text)
    model = declared["model"]
    other = sorted(name for name, plain in _PLAIN_MODEL.items() if model.get(name) not in plain)
    if other:
        raise _RefusedError(f"its model is no plain byte-level BPE ({', '.join(other)})")
    byte_tokens = {token_bytes(name) for name in model["vocab"]}
    if any(bytes([byte]) not in byte_tokens for byte in range(256)):
        raise _RefusedError("its vocabulary lacks a byte")
    pre_tokenizer: dict[str, Any] = declared["pre_tokenizer"] or {}
    return pre_tokenizer


@dataclass(frozen=True)
class _Kind:
    """The part of tokenizers to cut text into words: the key of cached probes.

    Attributes:
        pre_tokenizer: as in their tokenizer.json.
        is_cut: whether long documents are cut at line ends.
    """

    pre_tokenizer: dict[str, Any]
    is_cut: bool


@dataclass(frozen=True)
class _Probed:
    """Result of the probes without a vocabulary: as in `Certificate`, but `excluded` lists each code point."""

    refusal: str | None
    excluded: tuple[int, ...]
    probe_count: int


def _cached(kind: _Kind, probe: Callable[[_Kind], _Probed]) -> _Probed:
    """The cached result of a kind for this code and these versions; else probe, and cache the result if possible."""
    facts = [dataclasses.asdict(kind), reference_version(), encoder_version(), _code_digest()]
    name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
    path = _FOLDER / f"{name}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        values = json.loads(path.read_text())
        return _Probed(values["refusal"], tuple(map(int, values["excluded"])), int(values["probe_count"]))
    probing = probe(kind)
    with contextlib.suppress(OSError):  # an environment without write access: nothing is cached
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f"{uuid.uuid4().hex}.half")
        half.write_text(json.dumps(dataclasses.asdict(probing)))
        os.replace(half, path)
    return probing


@functools.cache
def _code_digest() -> str:
    """Digest of the probing code."""
    folder = Path(__file__).parent
    sources = [Path(__file__), *sorted(folder.glob("*probes.py")), *sorted(folder.glob("fast/*.py"))]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


class _Comparison:
    """Encodes probes by the reference and by the fast encoder, and counts them."""

    def __init__(self, load: Loader) -> None:
        self._load = load
        self.probe_count = 0

    def probed(self, kind: _Kind) -> _Probed:
        """Run the probes independent of the vocabulary."""
        excluded = list[int]()
        try:
            characters = representatives(kind.pre_tokenizer)
            probes = structure_probes(characters)
            self.require_equal(whole_words(kind.pre_tokenizer, probes), probes, "structure")
            excluded = self.differing_code_points(boundaries(kind.pre_tokenizer))
            if kind.is_cut:
                self.require_equal_pieces(kind.pre_tokenizer, line_ends(characters))
        except (_RefusedError, UnknownSplittingError) as error:
            return _Probed(str(error), (), self.probe_count)
        return _Probed(None, tuple(excluded), self.probe_count)

    def require_equal(self, file_text: str, probes: Sequence[str], what: str) -> None:
        """Refuse the tokenizer if the ids of a probe differ; the message names the first."""
        for number, (expected, ids) in enumerate(self._ids(file_text, probes)):
            if expected != ids:
                raise _RefusedError(f"{what}: ids of {probes[number][:80]!r} differ")

    def require_equal_names(self, file_text: str, added: AddedTokens, probes: Sequence[str]) -> None:
        """Refuse the tokenizer if the reference finds other added tokens than `added` does."""
        reference, plain = load_reference(file_text), load_reference(added.plain)
        self.probe_count += len(probes)

        def encode(text: str) -> Int32Array:
            return np.array(plain.encode(text, add_special_tokens=False).ids, dtype=np.int32)

        expected = reference.encode_batch_fast(list(probes), add_special_tokens=False)
        for probe, encoding in zip(probes, expected, strict=True):
            if encoding.ids != added.encode(probe, encode).tolist():
                raise _RefusedError(f"added tokens: ids of {probe[:80]!r} differ")

    def require_equal_pieces(self, pre_tokenizer: Mapping[str, Any], pairs: Sequence[tuple[str, str]]) -> None:
        """Refuse the tokenizer if the reference's ids on one side of a line end depend on what is on the other side."""
        reference = load_reference(whole_words(pre_tokenizer, [left + right for left, right in pairs]))
        self.probe_count += len(pairs)
        whole, lefts, rights = (
            [encoding.ids for encoding in reference.encode_batch_fast(texts)]
            for texts in ([left + right for left, right in pairs], *([pair[side] for pair in pairs] for side in (0, 1)))
        )
        for number, (left, right) in enumerate(pairs):
            if whole[number] != lefts[number] + rights[number]:
                raise _RefusedError(f"cuts: ids of {left!r} and {right!r} are not those of both together")

    def differing_code_points(self, file_text: str) -> list[int]:
        """Code points beyond ASCII with different classes in the reference and a fast encoder, ascending."""
        texts = [(block, text) for block in code_point_blocks() for text in block.texts]
        differing = {
            texts[at][0]
            for at, (expected, ids) in enumerate(self._ids(file_text, [text for _, text in texts]))
            if expected != ids
        }
        doubtful = sorted({*cased_as_ascii(), *(n for block in differing for n in range(block.first, block.last + 1))})
        # One context shows nearly all that differ; only the code points that it does not show need the others.
        excluded = self._differing(file_text, doubtful, lambda character: [first_probe(character)])
        excluded |= self._differing(file_text, sorted({*doubtful} - excluded), character_probes)
        if len(excluded) > _MOST_EXCLUDED:
            raise _RefusedError(f"the two differ in {len(excluded)} code points")
        return sorted(excluded)

    def _differing(self, file_text: str, numbers: Sequence[int], probes_of: Callable[[str], list[str]]) -> set[int]:
        """The code points with a probe of other ids by a fast encoder than by the reference."""
        probes = [(number, probe) for number in numbers for probe in probes_of(chr(number))]
        ids = self._ids(file_text, [probe for _, probe in probes])
        return {probes[at][0] for at, (expected, actual) in enumerate(ids) if expected != actual}

    def _ids(self, file_text: str, probes: Sequence[str]) -> Iterable[tuple[list[int], list[int]]]:
        """For each probe (reference's ids, fast encoder's ids)."""
        reference = load_reference(file_text)
        with _refusing("the fast encoder does not load it"):
            encoder = self._load(file_text)
        for start in range(0, len(probes), _BATCH):
            batch = list(probes[start : start + _BATCH])
            self.probe_count += len(batch)
            expected = reference.encode_batch_fast(batch, add_special_tokens=False)
            with _refusing("the fast encoder fails on a probe"):
                encodings = [encoder.encode(probe) for probe in batch]
            yield from ((encoding.ids, ids.tolist()) for encoding, ids in zip(expected, encodings, strict=True))


@contextlib.contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn any error of a foreign library into a refusal.

    `BaseException`, because a panic in Rust is raised as one other than `Exception`.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        message = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise _RefusedError(f"{what}: {message}") from error


def _vocabulary_probes(file_text: str, excluded: set[int]) -> list[str]:
    """Probes from the vocabulary: each token alone, 32 random ones in a row."""
    declared = json.loads(file_text)
    tokens = (token_bytes(name) for name in declared["model"]["vocab"])
    texts = [text for text in map(_as_text, tokens) if text is not None and not excluded.intersection(map(ord, text))]
    draw = random.Random(0)
    mixed = draw.choices(texts, k=min(1 << 15, 32 * len(texts)))
    rows = ["".join(mixed[start : start + 32]) for start in range(0, len(mixed), 32)]
    return [*texts, *rows]


def _covered(probes: Iterable[str], added: AddedTokens, excluded: Set[int]) -> list[str]:
    """The probes that documents of this text would let the fast encoder encode as they are."""
    return [probe for probe in probes if added.normalized(probe) == probe and not excluded & {*map(ord, probe)}]


def _as_text(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def _ranges(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Ascending numbers as ranges: [1, 2, 3, 7] -> ((1, 3), (7, 7))."""
    if not numbers:
        return ()
    ascending = np.array(numbers, dtype=np.int64)
    starts = np.flatnonzero(np.diff(ascending, prepend=ascending[0] - 2) > 1)
    ends = np.append(starts[1:], len(ascending)) - 1
    return tuple(zip(ascending[starts].tolist(), ascending[ends].tolist(), strict=True))
