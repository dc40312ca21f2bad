"""Documents get the reference's ids whichever way they take, and a wrong fast encoder is found out."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from spark_jobs.arrays import Int32Array
from spark_jobs.exceptions import InputError
from spark_jobs.tokens.certificate import Certificate
from spark_jobs.tokens.document_encoder import DocumentColumn, DocumentEncoder
from spark_jobs.tokens.fast.fast_encoder import FastEncoder, encoder_version, reference_version
from spark_jobs.tokens.hf_tokenizer import ExactEncoder, load_reference
from tests.spark_jobs.packing.encoders import (
    HARD_TEXT,
    SOURCES,
    changed,
    needs_fast_encoder,
    reference_ids,
    trained_tokenizer,
)
from tests.tiers import tries

pytestmark = needs_fast_encoder
EXCLUDED = "\u088f"  # a letter of Unicode 17


@cache
def certificate() -> Certificate:
    """As `certify` gives it (its own test), written down, so that no test waits for it."""
    excluded = (
        (0x088F, 0x088F),
        (0x0C5C, 0x0C5C),
        (0x0CDC, 0x0CDC),
        (0x1ACF, 0x1AFF),
        (0xA7CE, 0xA7FF),
        (0x10000, 0x10FFFF),
    )
    return Certificate("ab", reference_version(), encoder_version(), None, excluded, 1)


def encoder(**parts: Any) -> DocumentEncoder:
    """An encoder of one task."""
    return replace(DocumentEncoder(trained_tokenizer(), certificate(), 1000), **parts)


def column(texts: list[str | bytes]) -> DocumentColumn:
    """Texts as Arrow has them; bytes as they are."""
    raw = pa.array([text if isinstance(text, bytes) else text.encode() for text in texts], pa.binary())
    doc_ids = [hashlib.sha256(f"{number}".encode()).hexdigest()[:32] for number in range(len(texts))]
    content = pa.Array.from_buffers(pa.string(), len(texts), raw.buffers())
    return DocumentColumn(content, pa.array(doc_ids, pa.string()))


def ids(made: DocumentEncoder, texts: list[str | bytes]) -> list[list[int]]:
    """Ids of texts."""
    return [found.tolist() for found in made.encode(column(texts))]


@settings(max_examples=tries(200))
@given(st.lists(HARD_TEXT, max_size=5))
def test_any_documents_have_the_references_ids(texts: list[str]) -> None:
    """Whichever of them take the fast path."""
    assert ids(encoder(), [*texts]) == [reference_ids(trained_tokenizer(), text) for text in texts]


def test_documents_with_an_excluded_code_point_take_the_slow_path() -> None:
    """They alone; the order stays, and the empty document has no ids."""
    made = encoder()
    texts: list[str | bytes] = ["plain", f"?{EXCLUDED}'s 0", "é漢", "", EXCLUDED * 3, "x"]
    assert ids(made, texts) == [reference_ids(trained_tokenizer(), str(text)) for text in texts]
    assert (made.tally.fast, made.tally.reference) == (4, 2)
    assert ids(made, ["a \U0001f642"]) == [reference_ids(trained_tokenizer(), "a \U0001f642")]


NORMALIZERS = ({"type": "NFC"}, {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Sequence", "normalizers": []})


@pytest.mark.parametrize("normalizer", NORMALIZERS, ids=str)
def test_normalized_documents_take_the_fast_path(normalizer: dict[str, object]) -> None:
    """NFC, as Qwen 2 has it, or any other: what is not excluded is normalized first, and all ids are the same."""
    file = changed(trained_tokenizer(), normalizer=normalizer)
    made = encoder(file_text=file)
    known: list[str | bytes] = ["plain", "é漢字 größer", "e\u0301", "\u1100\u1161", "\u212b"]
    assert ids(made, known) == [reference_ids(file, str(text)) for text in known]
    assert (made.tally.fast, made.tally.reference) == (5, 0)
    right = load_reference(file)

    @settings(max_examples=tries(100))
    @given(st.lists(HARD_TEXT, max_size=5))
    def holds(texts: list[str]) -> None:
        assert ids(made, [*texts]) == [right.encode(text, add_special_tokens=False).ids for text in texts]

    holds()


@pytest.mark.parametrize(
    "refused",
    [
        replace(certificate(), refusal="its model is another"),
        replace(certificate(), encoder="another 0.0"),
        replace(certificate(), reference="tokenizers 0.0"),
    ],
)
def test_without_a_valid_certificate_the_reference_encodes_all(refused: Certificate) -> None:
    """A refusal, or other versions than those installed: nothing goes through the fast encoder."""
    made = encoder(certificate=refused)
    assert ids(made, ["a b", "é"]) == [reference_ids(trained_tokenizer(), text) for text in ("a b", "é")]
    assert (made.tally.fast, made.tally.reference) == (0, 2)


class Wrong(FastEncoder):
    """A fast encoder that forgets the last id of long texts."""

    def encode(self, text: str) -> Int32Array:
        """Ids without the last one."""
        return super().encode(text)[: -1 if len(text) > 10 else None]


class Panics(FastEncoder):
    """A fast encoder that fails on a text."""

    def encode(self, text: str) -> Int32Array:
        """Ids, unless there is a question."""
        if "?" in text:
            raise BaseExceptionGroup("as a panic of Rust is", [RuntimeError()])
        return super().encode(text)


def test_where_the_fast_encoder_fails_the_reference_encodes() -> None:
    """That text, in its place, and it is counted."""
    texts: list[str | bytes] = ["a b", f"c {EXCLUDED}", "why?", "d", f"e {EXCLUDED}", "f"]
    made = encoder(load_fast=Panics)
    assert ids(made, texts) == [reference_ids(trained_tokenizer(), str(text)) for text in texts]
    assert (made.tally.fast, made.tally.reference) == (3, 3)


def test_where_the_reference_fails_the_error_names_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with what it raised, a panic of Rust as well, instead of the end of the process."""

    def fails(self: ExactEncoder, texts: object, batch_characters: int) -> None:
        raise BaseExceptionGroup("as a panic of Rust is", [RuntimeError()])

    monkeypatch.setattr(ExactEncoder, "encode", fails)
    with pytest.raises(InputError, match=r"fails on one of 2 documents, the first is [0-9a-f]{32}: as a panic of Rust"):
        ids(encoder(), [EXCLUDED, EXCLUDED])


def test_a_difference_in_a_checked_document_names_it() -> None:
    """About a thousandth is checked, whatever its batch; a wrong encoder does not get far."""
    texts: list[str | bytes] = ["short", *(f"document number {number}" for number in range(5000))]
    doc_ids = column(texts).doc_ids
    with pytest.raises(InputError, match=r"document [0-9a-f]{32}: fastokens .* from token \d+ on") as caught:
        ids(encoder(load_fast=Wrong), texts)
    assert any(doc_id in str(caught.value) for doc_id in doc_ids)


def test_what_is_checked_follows_from_the_documents_ids() -> None:
    """The first document of a task, and then the same thousandth however documents are batched."""
    texts: list[str | bytes] = ["x"] * 20_000
    whole = encoder()
    ids(whole, texts)
    assert 5 <= whole.tally.checked <= 50
    assert whole.tally.fast == 20_000
    one = encoder()
    ids(one, ["a b"])
    assert one.tally.checked == 1


def test_special_text_stays_text_and_added_tokens_match() -> None:
    """What a document says of `<|endoftext|>` is text; `<think>` was added as no special token and is one."""
    tokenizer = Tokenizer.from_str(trained_tokenizer())
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    file = tokenizer.to_str()
    texts: list[str | bytes] = ["a <|endoftext|> b<|padding|>", "x<think>y <think>", "<thi nk>", "<|endoftext|>"]
    found = ids(encoder(file_text=file), texts)
    assert found == [reference_ids(file, str(text)) for text in texts]
    assert tokenizer.token_to_id("<think>") in found[1]
    assert not {0, 1} & {number for document in found for number in document}


@pytest.mark.parametrize("text", [b"a \xff b", b"\xed\xa0\x80 surrogate", b"cut \xe6\xbc"])
def test_bytes_that_are_no_utf8_are_refused(text: bytes) -> None:
    """A lone surrogate and broken bytes are an error that names the document, not silent ids."""
    with pytest.raises(InputError, match=r"document [0-9a-f]{32} is not UTF-8 at byte"):
        ids(encoder(), ["fine", text])


def test_nul_is_a_character_like_others() -> None:
    """Documents with NUL are encoded whole."""
    assert ids(encoder(), ["a\0b\0\0"]) == [reference_ids(trained_tokenizer(), "a\0b\0\0")]


@pytest.mark.nightly
def test_a_long_document_has_the_references_ids() -> None:
    """Megabytes of real code, on both ways: the slow one in pieces cut at line ends."""
    text = "".join(SOURCES).replace("\U0001f642", "")
    expected = reference_ids(trained_tokenizer(), text)
    made = encoder()
    assert ids(made, [text]) == [expected]
    assert made.tally.fast == 1
    slow = encoder()
    (found,) = ids(slow, [f"{text}\n{EXCLUDED}"])
    assert found == reference_ids(trained_tokenizer(), f"{text}\n{EXCLUDED}")
    assert slow.tally.reference == 1


def test_one_word_of_16_megabytes_is_encoded() -> None:
    """It ends in seconds; ids decode to the word, and a shorter word's ids are the reference's."""
    file = trained_tokenizer()
    fast = FastEncoder(file)
    assert fast.encode("a" * 20_000).tolist() == reference_ids(file, "a" * 20_000)
    found = fast.encode("a" * (16 << 20))
    names, counts = np.unique(found, return_counts=True)
    tokens = Tokenizer.from_str(file)
    assert (
        sum(len(tokens.id_to_token(int(name)) or "") * count for name, count in zip(names, counts, strict=True))
        == 16 << 20
    )


FORKED = """
import os, sys
from spark_jobs.tokens.fast.fast_encoder import FastEncoder
data = "def f(x): return x + 1\\n" * 200_000
file = open(sys.argv[1]).read()
before = FastEncoder(file)
expected = before.encode(data).tolist()
child = os.fork()
if child == 0:
    after = FastEncoder(file)
    os._exit(0 if after.encode(data).tolist() == expected and before.encode(data).tolist() == expected else 1)
assert os.waitpid(child, 0)[1] == 0
"""


def test_encoding_works_after_a_fork(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Spark forks its workers; a pool of threads, which long texts make, has none of its threads there."""
    path = tmp_path_factory.mktemp("fork") / "tokenizer.json"
    path.write_text(trained_tokenizer())
    subprocess.run([sys.executable, "-c", FORKED, str(path)], check=True, timeout=60)


LONG = """
import resource, sys
import numpy as np
import pyarrow as pa
from spark_jobs.tokens.certificate import Certificate
from spark_jobs.tokens.document_encoder import DocumentColumn, DocumentEncoder
from spark_jobs.tokens.fast.fast_encoder import encoder_version, reference_version
certificate = Certificate("", reference_version(), encoder_version(), None, ((0x88F, 0x88F),), 0)
encoder = DocumentEncoder(open(sys.argv[1]).read(), certificate, 1 << 18)
block = open(sys.argv[2], "rb").read()
count = 100_000_000 // len(block) + 1
(expected,) = encoder.encode(DocumentColumn(pa.array([block.decode()]), pa.array(["a"])))
column = DocumentColumn(pa.array([block * count], pa.large_binary()).cast(pa.large_string()), pa.array(["a"]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(found,) = encoder.encode(column)
assert encoder.tally.reference == 0
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
assert np.array_equal(found.reshape(count, -1), np.broadcast_to(expected, (count, len(expected))))
"""


@pytest.mark.nightly
def test_a_document_of_100_megabytes_needs_few_times_its_size(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its ids are those of the block that it repeats (which ends where a cut is safe), in at most 700 MB more."""
    folder = tmp_path_factory.mktemp("long")
    (folder / "tokenizer.json").write_text(trained_tokenizer())
    (folder / "block").write_text("# é\n" + "".join(SOURCES).strip() + "\n")
    command = [sys.executable, "-c", LONG, str(folder / "tokenizer.json"), str(folder / "block")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert int(done.stdout) < 700
