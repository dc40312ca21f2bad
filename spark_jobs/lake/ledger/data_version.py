"""Data versions: an order-independent digest of rows, computed while they are written.

A row is hashed to 64 bits over the values of its columns (`lake.ledger.row_hashes`); a version is `v2:count:sum:xor` of
those hashes. Sum and xor do not depend on order, files or partitions, and versions add up: that of a table is the sum
of those of its increments. The sum keeps what the xor alone loses (a duplicate row).

Lakes from before have versions of the form `v1`, of another hash (`lake.ledger.former_version`). They stay as they are,
because step keys are made of them. A version is of one form; that of a table with increments of both is `v1+v2:..`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_jobs.exceptions import TableMismatchError

FORM, FORMER = "v2", "v1"
_FORMS = (FORM, FORMER, f"{FORMER}+{FORM}")


@dataclass(frozen=True)
class DataVersion:
    """Digest of a set of rows.

    Attributes:
        count: rows.
        sum: sum of the signed 64-bit row hashes.
        xor: xor of the same.
        form: of the hash.
    """

    count: int = 0
    sum: int = 0
    xor: int = 0
    form: str = FORM

    def __add__(self, other: DataVersion) -> DataVersion:
        """The version of both sets of rows together; no rows are of any form."""
        forms = {form for version in (self, other) if version.count for form in version.form.split("+")}
        form = "+".join(sorted(forms)) or min(self.form, other.form)
        return DataVersion(self.count + other.count, self.sum + other.sum, self.xor ^ other.xor, form)

    def __sub__(self, other: DataVersion) -> DataVersion:
        """The version of the rows without some of them, in the same form."""
        return DataVersion(self.count - other.count, self.sum - other.sum, self.xor ^ other.xor, self.form)

    def __str__(self) -> str:
        """`v2:count:sum:xor`, the xor as 16 hex digits."""
        return f"{self.form}:{self.count}:{self.sum}:{self.xor & (2**64 - 1):016x}"

    @classmethod
    def of_hashes(cls, hashes: npt.NDArray[np.int64]) -> DataVersion:
        """The version of rows with these (N,) signed hashes."""
        # In two halves, because a sum of 64-bit hashes overflows.
        total = (int((hashes >> 32).sum()) << 32) + int((hashes & 0xFFFFFFFF).sum())
        return cls(len(hashes), total, int(np.bitwise_xor.reduce(hashes)) if len(hashes) else 0)

    @classmethod
    def parse(cls, text: str) -> DataVersion:
        """Read what `str` wrote.

        Raises:
            TableMismatchError: the text is no data version of this form.
        """
        parts = text.split(":")
        try:
            form, (count, total, xor) = parts[0], (int(parts[1]), int(parts[2]), int(parts[3], 16))
        except (ValueError, IndexError) as error:
            raise TableMismatchError(f"data version {text!r}: expected {FORM}:count:sum:xor") from error
        if len(parts) != 4 or form not in _FORMS:
            raise TableMismatchError(f"data version {text!r}: expected {FORM}:count:sum:xor")
        return cls(count, total, xor - 2**64 if xor >= 2**63 else xor, form)
