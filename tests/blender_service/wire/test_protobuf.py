"""Batches travel as messages of `rows.proto`; nothing that comes over a wire is taken for rows it does not hold."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blender_service.exceptions import MalformedMessageError
from blender_service.wire.row_batch import RowBatch, decode, empty_batch, encode
from headrace.blender.v1 import rows_pb2
from tests.tiers import tries


def random_batch(rows: int, window_tokens: int, token_bytes: int, offset: int, seed: int) -> RowBatch:
    """Make a batch of random rows with none to three segments each, and document ids of any letters."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, 4, rows).astype(np.int32)
    segments = int(counts.sum())
    doc_ids = ["é" * int(n) + "x" for n in random.integers(0, 4, segments)]
    return RowBatch(
        offset=offset,
        input_ids=random.integers(0, 1 << 8 * token_bytes, (rows, window_tokens)).astype(f"u{token_bytes}"),
        token_counts=random.integers(0, 1 << 31, rows).astype(np.int32),
        source_names=("code", "prosé"),
        sources=random.integers(0, 2, rows).astype(np.uint8),
        epochs=random.integers(0, 1 << 62, rows),
        ordinals=random.integers(0, 1 << 62, rows),
        segment_counts=counts,
        doc_id_bytes="".join(doc_ids).encode(),
        doc_id_lengths=np.array([len(doc_id.encode()) for doc_id in doc_ids], dtype=np.int32),
        document_starts=random.integers(0, 1 << 62, segments),
        segment_token_counts=random.integers(0, 1 << 31, segments).astype(np.int32),
        window_starts=random.integers(0, 1 << 31, segments).astype(np.int32),
        end_of_blend=bool(seed % 2),
    )


def generated_of(batch: RowBatch) -> rows_pb2.RowBatch:
    """Say the same with the generated class alone, field by field."""
    return rows_pb2.RowBatch(
        offset=batch.offset,
        rows=batch.rows,
        window_tokens=batch.input_ids.shape[1],
        token_bytes=batch.input_ids.dtype.itemsize,
        input_ids=batch.input_ids.tobytes(),
        token_counts=batch.token_counts.tobytes(),
        source_names=batch.source_names,
        sources=batch.sources.tobytes(),
        epochs=batch.epochs.tobytes(),
        ordinals=batch.ordinals.tobytes(),
        segments=rows_pb2.Segments(
            counts=batch.segment_counts.tobytes(),
            doc_ids=batch.doc_id_bytes,
            doc_id_lengths=batch.doc_id_lengths.tobytes(),
            document_starts=batch.document_starts.tobytes(),
            token_counts=batch.segment_token_counts.tobytes(),
            window_starts=batch.window_starts.tobytes(),
        ),
        end_of_blend=batch.end_of_blend,
    )


def assert_same(one: RowBatch, other: RowBatch) -> None:
    """All fields are equal, arrays in type and shape too."""
    for field in dataclasses.fields(RowBatch):
        a, b = getattr(one, field.name), getattr(other, field.name)
        np.testing.assert_array_equal(a, b)
        if isinstance(a, np.ndarray):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), field.name


batches = st.builds(
    random_batch,
    rows=st.integers(0, 12) | st.just(300),
    window_tokens=st.integers(1, 40),
    token_bytes=st.sampled_from([2, 4]),
    offset=st.integers(0, (1 << 62) - 1),
    seed=st.integers(0, 1 << 32),
)


@given(batch=batches)
@settings(max_examples=tries(150))
def test_generated_classes_read_and_write_the_same(batch: RowBatch) -> None:
    """What is framed by hand parses into the very message that generated code makes, and the other way round."""
    message = encode(batch)
    generated = generated_of(batch)
    parsed = rows_pb2.RowBatch.FromString(message)
    # No Segments message and an empty one mean the same; generated code writes the one it was given.
    assert parsed == generated or batch.rows == 0
    assert_same(decode(message), batch)
    assert_same(decode(generated.SerializeToString()), batch)
    assert_same(decode(parsed.SerializeToString(deterministic=True)), batch)


@pytest.mark.parametrize("token_bytes", [2, 4])
def test_ids_are_read_where_they_lie_in_the_message(token_bytes: int) -> None:
    """No copy is made of them, and the array is aligned, as torch wants it."""
    for rows in (1, 16, 300, 40_000):  # lengths of one to five bytes
        message = encode(random_batch(rows, 7, token_bytes, 0, 1))
        ids = decode(message).input_ids
        assert np.shares_memory(ids, np.frombuffer(message, np.uint8))
        assert ids.flags.aligned and not ids.flags.writeable


def test_ids_that_come_twice_are_the_last_ones() -> None:
    """As generated code has it, wherever the first ones stand."""
    batch = random_batch(3, 5, 2, 17, 2)
    later = rows_pb2.RowBatch(input_ids=(batch.input_ids + 1).tobytes()).SerializeToString()
    assert_same(decode(encode(batch) + later), dataclasses.replace(batch, input_ids=batch.input_ids + 1))


def test_fields_of_a_later_version_are_skipped() -> None:
    """Numbers, bytes and fixed-width values with numbers that nobody knows yet change nothing."""
    batch = random_batch(3, 5, 2, 17, 2)
    unknown = bytes.fromhex("c00c05 ca0c03 616263 d10c 0000000000000000 dd0c 00000000")  # fields 200 to 203
    assert_same(decode(unknown + encode(batch) + unknown), batch)


def test_what_a_stream_waits_for_travels_without_rows() -> None:
    """A batch without rows says what it waits for, or that the blend ends."""
    waiting = dataclasses.replace(empty_batch(5, 8, 2, ("a",)), end_of_blend=False, waiting_for="row 9 of prosé")
    assert_same(decode(encode(waiting)), waiting)
    assert not decode(encode(empty_batch(5, 8, 2, ("a",)))).end_of_blend


def test_a_message_that_was_cut_is_refused_or_has_all_rows() -> None:
    """A prefix of a message gives all rows or none, or the named error; names and the end of the blend may be cut."""
    whole = random_batch(4, 8, 2, 1 << 40, 3)
    message, refused = encode(whole), 0
    for length in range(1, len(message)):
        try:
            cut = decode(message[:length])
        except MalformedMessageError:
            refused += 1
        else:
            if not cut.rows:
                continue
            named = {name: getattr(whole, name) for name in ("source_names", "end_of_blend", "offset")}
            assert_same(dataclasses.replace(cut, **named), whole)
    assert refused > len(message) - 10


@given(content=st.binary(max_size=200))
@settings(max_examples=tries(300))
def test_any_bytes_are_a_batch_or_the_named_error(content: bytes) -> None:
    """Nothing that comes over a wire raises anything but MalformedMessageError."""
    try:
        decode(content)
    except MalformedMessageError:
        return


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
@settings(max_examples=tries(300))
def test_a_changed_message_is_a_batch_or_the_named_error(at: int, bit: int) -> None:
    """The same for a real message with one bit changed."""
    message = bytearray(encode(random_batch(4, 8, 4, 1 << 40, 3)))
    message[at % len(message)] ^= 1 << bit
    try:
        decode(bytes(message))
    except MalformedMessageError:
        return
