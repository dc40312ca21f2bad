"""Train, read and apply tokenizers with the `tokenizers` library.

A tokenizer is handled as the text of its tokenizer.json; its SHA-256 is its identity. Training gives the same text for
the same set of documents, whatever their order and the number of threads: the trainer counts words, and breaks ties of
equally frequent pairs by their ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace.kernels.tokenizer_file import open_tokenizer
from spark_jobs.arrays import Int32Array
from spark_jobs.exceptions import InputError
from spark_jobs.threads import made_once
from spark_jobs.tokens.fast.pre_tokenization import ends_words_at_lines

if TYPE_CHECKING:
    from tokenizers import Tokenizer


END_OF_DOCUMENT = "<|endoftext|>"
PADDING = "<|padding|>"
END_OF_DOCUMENT_NAMES = (END_OF_DOCUMENT, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]")
PADDING_NAMES = (PADDING, "<|pad|>", "<pad>", "[PAD]", "<|finetune_right_pad_id|>")

NFC: Final = {"type": "NFC"}
"""The normalizer of Qwen, OLMo and others, which changes no text that is in NFC already."""

_PIECES_PER_BATCH = 8  # at least, so that one long document keeps several threads busy
_UP_TO_SPACE = re.compile(r"(?s).*\S(?=[ \t\n\r])")
_SAFE_CUT = re.compile(r"(?<=\S\n)(?=[^\s/])")  # in the patterns of o200k and tekken symbols take in what follows: ?\n/


@dataclass(frozen=True)
class TokenizerFacts:
    """The facts of a tokenizer recorded in the tables.

    Attributes:
        vocabulary_size: every id is below it (the largest id plus one, so gaps count).
        special_tokens: id of every special token by its text.
        end_of_document_id: the token after a document.
        padding_id: the token after the last segment of a window.
    """

    vocabulary_size: int
    special_tokens: dict[str, int]
    end_of_document_id: int
    padding_id: int


def train_byte_pairs(texts: Iterable[str], vocabulary_size: int, min_frequency: int) -> str:
    """Train a byte-level BPE; any text can be encoded and decoded without loss.

    Words are split by GPT-2's pattern: a leading space stays with its word. The special tokens have ids 0 and 1.

    Args:
        texts: documents, in any order.
        vocabulary_size: most tokens of the vocabulary, 256 bytes and 2 special tokens included; it has fewer where the
            texts have no more frequent pairs.
        min_frequency: least occurrences of a merged pair.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        special_tokens=[END_OF_DOCUMENT, PADDING],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return str(tokenizer.to_str())


def cut_before_spaces(text: str, most_characters: int) -> Iterator[str]:
    """Cut a text into pieces of at most so many characters, each before the last fitting white space.

    GPT-2's pattern ends a word before white space behind a visible character, so the words of the pieces are those of
    the text. A run without white space longer than a piece is cut at the limit, a word split in two.
    """
    start = 0
    while len(text) - start > most_characters:
        end = start + most_characters
        match = _UP_TO_SPACE.match(text, start, end + 1)
        cut = end if match is None else match.end()
        yield text[start:cut]
        start = cut
    yield text[start:]


def read_facts(file_text: str, end_of_document: str | None = None, padding: str | None = None) -> TokenizerFacts:
    """Read vocabulary size and special tokens from a tokenizer.json.

    Args:
        file_text: text of a tokenizer.json.
        end_of_document: text of the end-of-document token; by default the first known name in the file.
        padding: text of the padding token; by default the first known name, else the end-of-document token itself
            (harmless: which positions are padding follows from the window's token count, never from the id).

    Raises:
        InputError: the file is no tokenizer, or lacks a named token.
    """
    tokenizer = _parse(file_text)
    special_tokens = {t.content: i for i, t in sorted(tokenizer.get_added_tokens_decoder().items()) if t.special}
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    end_of_document_id = _find(vocabulary, end_of_document, END_OF_DOCUMENT_NAMES, "end_of_document")
    if end_of_document_id is None:
        raise InputError(
            f"tokenizer: none of {', '.join(END_OF_DOCUMENT_NAMES)} is in the file; name its end-of-document token in "
            f"end_of_document (its special tokens: {', '.join(special_tokens) or 'none'})"
        )
    padding_id = _find(vocabulary, padding, PADDING_NAMES, "padding")
    return TokenizerFacts(
        vocabulary_size=max(vocabulary.values()) + 1,
        special_tokens=special_tokens,
        end_of_document_id=end_of_document_id,
        padding_id=end_of_document_id if padding_id is None else padding_id,
    )


def _find(vocabulary: dict[str, int], wanted: str | None, names: Sequence[str], setting: str) -> int | None:
    """Id of the token `wanted`, else of the first of `names` in the vocabulary; None where it has none of these."""
    if wanted is not None:
        if wanted not in vocabulary:
            raise InputError(
                f"tokenizer: {setting} names {wanted!r}, which the file does not have; name one of its tokens"
            )
        return vocabulary[wanted]
    return next((vocabulary[name] for name in names if name in vocabulary), None)


def _parse(file_text: str) -> Tokenizer:
    """The library's tokenizer for a tokenizer.json (`open_tokenizer`); an InputError if it is none."""
    try:
        return open_tokenizer(file_text)
    except ValueError as error:
        raise InputError(f"tokenizer: {error}") from error


def load_reference(file_text: str) -> Tokenizer:
    """The library's tokenizer for a tokenizer.json, without truncation, padding, dropout or special tokens in texts.

    Names of special tokens in a document are encoded as text, as any other characters are. The post-processor, which
    adds special tokens and trims offsets, is switched off.
    """
    tokenizer = _parse(file_text)
    tokenizer.encode_special_tokens = True
    tokenizer.post_processor = None
    return tokenizer


@made_once(most=2)
def load_encoder(file_text: str) -> ExactEncoder:
    """An encoder of the tokenizer, cached for the life of the process, since Spark's workers run many tasks."""
    return ExactEncoder(file_text)


class ExactEncoder:
    """Exact ids of whole documents, without special tokens, in bounded memory (see `load_reference`)."""

    def __init__(self, file_text: str) -> None:
        self._tokenizer = load_reference(file_text)
        self.cuts_lines = can_cut_at_lines(file_text)

    def encode(self, texts: Iterable[str], batch_characters: int) -> Iterator[Int32Array]:
        """Encode documents in order; the library needs about 115 bytes of memory per byte of a batch.

        Args:
            texts: documents.
            batch_characters: most characters encoded at once. Longer documents are cut where the tokenizer provably
                cuts too (see `can_cut_at_lines`); text without such a position is encoded whole.

        Yields:
            (T,) ids of each document.
        """
        ids: list[Int32Array] = []
        for batch in _batches(self._pieces(texts, max(1, batch_characters // _PIECES_PER_BATCH)), batch_characters):
            encodings = self._tokenizer.encode_batch_fast([piece for piece, _ in batch], add_special_tokens=False)
            for (_, ends), encoding in zip(batch, encodings, strict=True):
                ids.append(np.array(encoding.ids, dtype=np.int32))
                if ends:
                    yield np.concatenate(ids)
                    ids = []

    def _pieces(self, texts: Iterable[str], target_characters: int) -> Iterator[tuple[str, bool]]:
        """(piece, whether it is the last of its document) for all documents."""
        for text in texts:
            pieces = cut_at_lines(text, target_characters) if self.cuts_lines else [text]
            for number, piece in enumerate(pieces, start=1):
                yield piece, number == len(pieces)


def _batches(pieces: Iterable[tuple[str, bool]], batch_characters: int) -> Iterator[list[tuple[str, bool]]]:
    """Batches of neighbouring pieces, of at most `batch_characters` together or one longer piece."""
    batch: list[tuple[str, bool]] = []
    size = 0
    for piece in pieces:
        if batch and size + len(piece[0]) > batch_characters:
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += len(piece[0])
    if batch:
        yield batch


def can_cut_at_lines(file_text: str) -> bool:
    r"""Whether a text may be cut after any line feed between visible characters, the next no `/`, and keep its ids.

    True for known patterns without a normalizer if all added tokens are special ones (encoded as text). In GPT-2's
    splitting a lone line feed is a word by itself: `\s+(?!\S)` cannot match it before a visible character, `\s+`
    matches it alone, at the end of a text as well. In the others it ends a word, by `[\r\n]*` after symbols and by
    `\s*[\r\n]+` elsewhere, and no longer word begins with it. No pattern looks back over it.
    """
    declared = json.loads(file_text)
    return (
        normalizer_of(declared) is None
        and ends_words_at_lines(declared.get("pre_tokenizer") or {})
        and all(token.get("special") for token in declared.get("added_tokens") or [])
    )


def normalizer_of(declared: Mapping[str, Any]) -> dict[str, Any] | None:
    """The normalizer of a parsed tokenizer.json; None where it is a sequence of none."""
    normalizer: dict[str, Any] | None = declared.get("normalizer")
    return None if normalizer == {"type": "Sequence", "normalizers": []} else normalizer


def cut_at_lines(text: str, target_characters: int) -> list[str]:
    """Cut a text at safe line ends into pieces of at least `target_characters`; the last one may be shorter."""
    pieces = []
    start = 0
    while len(text) - start > target_characters:
        match = _SAFE_CUT.search(text, start + target_characters)
        if match is None:
            break
        pieces.append(text[start : match.start()])
        start = match.start()
    pieces.append(text[start:])
    return pieces
