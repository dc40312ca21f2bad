"""N-gram models: how well a text is predicted, word by word, by the words before; made here or read from ARPA files.

`ngram_kernel` splits words, `ngram_training` makes models. The perplexity of a text is that of its lines, each a
sentence with its end predicted too, as in CCNet (Wenzek et al. 2020, "CCNet: Extracting High Quality Monolingual
Datasets from Web Crawl Data"):

    perplexity = 10 ^ (-(sum of log10 p(word | words before it in the line)) / (words + lines))

Blank lines are skipped, and a text of them alone has no perplexity. A model is a file of canonical bytes, and its
identity is their SHA-256:

    magic, version, length of the header | header: JSON | hashes | log10 p | log10 back-off | SHA-256 of all before

with the hashes of all n-grams (uint64) in ascending order, then two float32 for each, all little-endian. Workers build
a hash table when they read it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from headrace_features.models.model_file import DIGEST_BYTES, read_model_file, write_model_file
from spark_jobs.arrays import Float32Array, Float64Array, Int64Array, UInt64Array
from spark_jobs.exceptions import InputError, SetupError
from spark_jobs.lake.declare.step import ConfigModel

if TYPE_CHECKING:
    from headrace_features.models.ngram_kernel import NgramTable, WordSplitting

Splitting = Literal["folded", "white_space"]

MAGIC: Final = b"headrace n-grams\n"
_MOST_ORDER: Final = 5


class NgramConfig(ConfigModel):
    """The length of n-grams, and which are kept."""

    text_column: str = Field("content", description="name of the column of texts")
    order: int = Field(5, ge=1, le=5, description="most words of an n-gram")
    min_counts: tuple[int, ...] = Field(
        (2, 1, 2, 2, 2),
        description="fewest occurrences of an n-gram by its length in words; the last number holds for longer ones too",
    )
    max_ngrams: int = Field(
        8_000_000,
        ge=1,
        le=1 << 28,
        description="most n-grams kept; with more, all of min_counts but the first are raised alike until they fit. A "
        "worker holds 40 bytes each",
    )

    @field_validator("min_counts")
    @classmethod
    def _usable(cls, counts: tuple[int, ...]) -> tuple[int, ...]:
        if not counts or min(counts) < 1:
            raise ValueError(f"min_counts {counts}: at least one number, each at least 1")
        return counts


@dataclass(frozen=True)
class NgramModel:
    """An n-gram model.

    Attributes:
        order: most words of an n-gram.
        words: how texts are split; see `ngram_kernel`.
        hashes: (G,) the n-grams, ascending.
        log10_probabilities: (G,) of each one's last word, given the words before it.
        log10_backoffs: (G,) back-off weight: factor for the next word if the n-gram extended by it is not in the model.
    """

    order: int
    words: Splitting
    hashes: UInt64Array
    log10_probabilities: Float32Array
    log10_backoffs: Float32Array

    @property
    def sha256(self) -> str:
        """Identity of the model: the hash at the end of its file."""
        return self.to_bytes()[-DIGEST_BYTES:].hex()

    def score(self, content: pa.Array) -> dict[str, pa.Array]:
        """Perplexity of texts.

        Returns:
            perplexity: (D,) float64; null in a text without a word. word_count: (D,) int64, line ends left out.
        """
        from headrace_features.models.ngram_kernel import score_texts
        from spark_jobs.text.text_columns import utf8_arrays

        return _columns(*score_texts(splitting(self.words), self._table, self.order, *utf8_arrays(content)))

    def to_bytes(self) -> bytes:
        """The bytes of its file; equal models have equal bytes."""
        columns = (
            self.hashes.astype("<u8"),
            self.log10_probabilities.astype("<f4"),
            self.log10_backoffs.astype("<f4"),
        )
        header = {"order": self.order, "words": self.words, "ngrams": len(self.hashes)}
        return write_model_file(MAGIC, header, b"".join(column.tobytes() for column in columns))

    @cached_property
    def _table(self) -> NgramTable:
        from headrace_features.models.ngram_kernel import ngram_table

        pairs = np.column_stack([self.log10_probabilities, self.log10_backoffs])
        return ngram_table(self.hashes, pairs.view(np.uint64)[:, 0])


def read_ngram_model(data: bytes, name: str) -> NgramModel:
    """Read a model from its file.

    Raises:
        InputError: the bytes are no model, of another version, or damaged.
    """
    header, body = read_model_file(MAGIC, data, name, "`read_arpa` reads ARPA")
    count = header["ngrams"]
    hashes, numbers = np.frombuffer(body, "<u8", count), np.frombuffer(body, "<f4", 2 * count, 8 * count)
    return NgramModel(header["order"], header["words"], hashes, numbers[:count], numbers[count:])


def read_arpa(data: bytes, name: str, words: Splitting = "white_space") -> NgramModel:
    r"""Read a model from the text format of ARPA, as written by KenLM, SRILM and IRSTLM.

    Args:
        data: the file, unpacked.
        name: name of the model in errors.
        words: how texts are split; `white_space` gives KenLM's scores of lines, `folded` fits a model that was
            trained on folded texts.

    Raises:
        InputError: a line is malformed (the message names it), or the counts in `\data\` are not those of the lines.
    """
    from headrace_features.models.ngram_kernel import hash_ngram

    counts: dict[int, int] = {}
    hashes: list[int] = []
    values: list[tuple[float, float]] = []
    order = 0
    for number, line in _lines(data, name):
        wrong = InputError(f"{name}: line {number} is {line[:80]!r}, which is no line of an ARPA file; write it again")
        try:
            if line.startswith("\\"):
                section = line.strip("\\:")
                order = int(section.removesuffix("-grams")) if section.endswith("-grams") else 0
            elif order == 0:
                length, count = line.removeprefix("ngram ").split("=")
                counts[int(length)] = int(count)
            else:
                fields = line.split("\t") if "\t" in line else line.split(" ")
                ngram = fields[1].split(" ") if "\t" in line else fields[1 : 1 + order]
                rest = fields[2:] if "\t" in line else fields[1 + order :]
                if len(ngram) != order or len(rest) > 1:
                    raise wrong
                hashes.append(hash_ngram(ngram))
                values.append((float(fields[0]), float(rest[0]) if rest else 0.0))
        except (ValueError, IndexError) as error:
            raise wrong from error
    if sum(counts.values()) != len(hashes) or not hashes:
        promised = f"{sum(counts.values()):,} n-grams are promised, {len(hashes):,} are there"
        raise InputError(f"{name}: {promised}; the file is cut off or no ARPA file, copy it again")
    if max(counts) > _MOST_ORDER:
        raise InputError(f"{name}: has n-grams of {max(counts)} words, {_MOST_ORDER} are read; train a lower order")
    sorted_hashes = np.array(hashes, np.uint64)
    at = np.argsort(sorted_hashes)
    numbers = np.array(values, np.float32)[at]
    return NgramModel(max(counts), words, sorted_hashes[at], numbers[:, 0].copy(), numbers[:, 1].copy())


_CONTROLS: Final = frozenset({b"<s>", b"</s>"})  # to kenlm, of which a text has none


@dataclass(frozen=True)
class KenlmModel:
    """A model in a file for the package kenlm: its binary formats, or ARPA of any order.

    Attributes:
        model: `kenlm.Model`; it splits lines at ASCII white space.
    """

    model: Any

    def score(self, content: pa.Array) -> dict[str, pa.Array]:
        """Perplexity of texts, as `NgramModel.score`; each line is a call of kenlm, most of the time."""
        sums, words, lines = np.zeros(len(content)), np.zeros(len(content), np.int64), np.zeros(len(content), np.int64)
        for text, value in enumerate(content):
            split = [line.split() for line in value.as_py().encode().split(b"\n")]
            kept = [[b"<unk>" if word in _CONTROLS else word for word in line] for line in split if line]
            sums[text] = sum(self.model.score(b" ".join(line)) for line in kept)
            words[text], lines[text] = sum(map(len, kept)), len(kept)
        return _columns(sums, words, lines)


def read_kenlm(path: str) -> KenlmModel:
    """Read a model by the package kenlm, from a path: it maps the file into memory.

    Raises:
        SetupError: kenlm is not installed.
        InputError: kenlm cannot read the file.
    """
    try:
        kenlm = importlib.import_module("kenlm")  # in no extra: it comes as source
    except ImportError as error:
        raise SetupError(f"{path}: needs the package kenlm; pip install kenlm, or write the model as ARPA") from error
    try:
        return KenlmModel(kenlm.Model(path))
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{path}: kenlm cannot read it ({' '.join(str(error).split())[:200]}); copy it again"
        ) from error


def splitting(words: Splitting) -> WordSplitting:
    """Arguments of compiled code for a way of splitting texts."""
    from headrace_features.models.ngram_kernel import FOLDED, WHITE_SPACE, WordSplitting
    from spark_jobs.lexing.word_characters import word_tables

    tables = word_tables()
    return WordSplitting(FOLDED if words == "folded" else WHITE_SPACE, tables.classes, tables.lower)


def _columns(sums: Float64Array, words: Int64Array, lines: Int64Array) -> dict[str, pa.Array]:
    """The columns of `score`, from (D,) sums of log10 probabilities, words and lines."""
    with np.errstate(invalid="ignore", over="ignore"):
        perplexities = 10 ** (-sums / (words + lines))
    return {"perplexity": pa.array(perplexities, from_pandas=True), "word_count": pa.array(words)}


def _lines(data: bytes, name: str) -> Iterator[tuple[int, str]]:
    """(number, text) of each non-blank line of an ARPA file, from its data section to its end mark."""
    begin = data.find(b"\\data\\")
    if begin < 0:
        raise InputError(f"{name}: has no line \\data\\, so it is no ARPA file; headrace's own are read otherwise")
    first = data.count(b"\n", 0, begin) + 1
    for number, line in enumerate(data[begin:].split(b"\n"), first):
        text = line.decode("utf-8", "replace").rstrip("\r")
        if text == "\\end\\":
            return
        if text.strip() and number > first:
            yield number, text
