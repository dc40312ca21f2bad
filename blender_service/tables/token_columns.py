"""Columns of packed tables with a value for each token; rows carry those named by a read.

`trainable` (list<boolean>) says on which tokens a loss is taken. A table without such a column, and a file
that is older than it, is trained on as a whole: its tokens are true, its padding is false. Any other column, such as
`log_probability` (list<float>) of a table of rollouts, has to be in the tables of all read sources; so has `mask_rule`
(list<int>), the number of the rule behind each token without loss, but that a source without masks has none: 0, and -1
in its padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyiceberg.table import Table
from pyiceberg.types import BooleanType, FloatType, IntegerType, ListType

from blender_service.arrays import Int32Array
from blender_service.exceptions import InvalidReadError

TRAINABLE: Final = "trainable"
MASK_RULE: Final = "mask_rule"
_DTYPE_OF: Final[Mapping[type[Any], str]] = {BooleanType: "?", FloatType: "<f4", IntegerType: "<i4"}
_FIXED: Final = {TRAINABLE: "?", "input_ids": None}  # types that columns of these names must have
_NAME_OF: Final = {"?": "bool", "<f4": "float", "<i4": "int"}


class TokenColumn(NamedTuple):
    """A column named by a read.

    Attributes:
        name: of the column.
        dtype: NumPy's, `?`, `<f4` or `<i4`.
        field_id: of the column in its table; 0 where the table has none.
    """

    name: str
    dtype: str
    field_id: int = 0


def columns_of(
    tables: Mapping[str, Table | None], wanted: Sequence[str], is_text: bool = False
) -> dict[str, tuple[TokenColumn, ...]]:
    """Find the columns named by a read in the tables of its sources.

    Args:
        tables: by name of the source; a missing one is left out.
        wanted: names of columns.
        is_text: whether they are tables of text, without columns of tokens.

    Raises:
        InvalidReadError: a table has no such column, or two have it of different types.
    """
    there = {source: _columns(table, source, wanted, is_text) for source, table in tables.items() if table is not None}
    for of_sources in zip(*there.values(), strict=True):
        by_type = {column.dtype: source for source, column in zip(there, of_sources, strict=True)}
        if len(by_type) > 1:
            kinds = " and ".join(
                f"{_NAME_OF[kind]} in source {by_type[kind]}" for kind in sorted(by_type, reverse=True)
            )
            raise InvalidReadError(f"read: column {of_sources[0].name} is {kinds}; read it of one of them")
    return there


def _columns(table: Table, source: str, wanted: Sequence[str], is_text: bool) -> tuple[TokenColumn, ...]:
    present = {} if is_text else _of_tokens(table)
    if is_text or TRAINABLE not in table.schema().column_names:
        derived = (TokenColumn(TRAINABLE, "?"), *([] if is_text else [TokenColumn(MASK_RULE, "<i4")]))
        present = {column.name: column for column in derived} | present
    missing = [name for name in wanted if name not in present]
    if missing:
        raise InvalidReadError(
            f"read: source {source} has no column {missing[0]} with a bool, float or int for each token; it has "
            f"{', '.join(present) or 'none'}"
        )
    return tuple(present[name] for name in wanted)


def _of_tokens(table: Table) -> dict[str, TokenColumn]:
    """The columns of lists of bool, float32 or int32, but for the ids."""
    return {
        field.name: TokenColumn(field.name, dtype, field.field_id)
        for field in table.schema().fields
        if isinstance(field.field_type, ListType)
        and (dtype := _DTYPE_OF.get(type(field.field_type.element_type))) is not None
        and dtype == _FIXED.get(field.name, dtype)
    }


def all_trainable(row_tokens: Int32Array, window_tokens: int) -> NDArray[np.bool_]:
    """(R, L) true for each token, false in the padding."""
    return np.arange(window_tokens) < row_tokens[:, np.newaxis]


def without_masks(name: str, row_tokens: Int32Array, window_tokens: int) -> NDArray[Any] | None:
    """(R, L) values of a column in a file that is older than it; None where they are not known."""
    trainable = all_trainable(row_tokens, window_tokens)
    return {TRAINABLE: trainable, MASK_RULE: trainable.astype("<i4") - 1}.get(name)
