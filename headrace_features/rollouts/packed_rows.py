"""Rows of the packed table, made of published groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from blender_service.arrays import Int64Array
from headrace.blender.v1 import rollouts_pb2
from headrace.tables.window_facts import WindowFacts
from headrace_features.rollouts.events import Published


def packed_rows(groups: Sequence[Published], window: WindowFacts, schema: pa.Schema) -> pa.RecordBatch:
    """Make the rows of published groups with consecutive ordinals."""
    events = [event for group in groups for event in group.members]
    rollouts = [rollouts_pb2.Rollout.FromString(event.payload or b"") for event in events]
    counts = np.array([len(rollout.input_ids) // 4 for rollout in rollouts], dtype=np.int64)
    spans = [
        [{"token_count": span.token_count, "policy_version": span.policy_version} for span in rollout.spans]
        for rollout in rollouts
    ]
    segments = [
        [
            {
                "doc_id": f"{rollout.group}/{rollout.member}",
                "document_start": 0,
                "token_count": count,
                "window_start": 0,
            }
        ]
        for rollout, count in zip(rollouts, counts.tolist(), strict=True)
    ]
    of_rows = [group for group in groups for _ in group.members]
    padded = {
        "input_ids": _padded([rollout.input_ids for rollout in rollouts], counts, window, "<i4", window.padding_id),
        "trainable": _padded([rollout.trainable for rollout in rollouts], counts, window, "?", False, missing=True),
        "log_probability": _padded([rollout.log_probabilities for rollout in rollouts], counts, window, "<f4", 0.0),
        "advantage": _padded([rollout.advantages for rollout in rollouts], counts, window, "<f4", 0.0),
    }
    first = groups[0].ordinal
    columns = {
        "ordinal": pa.array(range(first, first + len(events)), pa.int64()),
        "token_count": pa.array(counts, pa.int64()),
        **padded,
        "segments": segments,
        "spans": spans,
        "group": [event.group for event in events],
        "member": [event.member for event in events],
        "group_size": [event.group_size for event in events],
        "group_reason": [group.reason for group in of_rows],
        "reward": [event.reward for event in events],
        "published_version": [group.version for group in of_rows],
    }
    arrays = [
        column.cast(attribute.type)
        if isinstance(column := columns[attribute.name], pa.Array)
        else pa.array(column, attribute.type)
        for attribute in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _padded(
    values: Sequence[bytes], counts: Int64Array, window: WindowFacts, dtype: str, padding: Any, missing: Any = 0
) -> pa.Array:
    """Put the values of each rollout into a row of the window's length.

    Args:
        values: of each rollout, a value a token; empty where the worker gave none.
        counts: (R,) tokens of each.
        window: facts of the rows.
        dtype: of a value.
        padding: value behind the tokens.
        missing: value of the tokens of a rollout without values.
    """
    rows = np.full((len(values), window.window_tokens), padding, dtype=dtype)
    for row, (content, count) in enumerate(zip(values, counts.tolist(), strict=True)):
        rows[row, :count] = np.frombuffer(content, dtype) if content else missing
    flat = pa.array(rows.reshape(-1))
    offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32) * window.window_tokens)
    return pa.ListArray.from_arrays(offsets, flat)
