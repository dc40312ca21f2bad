"""Really Simple Licensing 1.0: licences of pages as XML."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_features.rights.signals import Reservation


@dataclass(frozen=True)
class Rsl:
    """An RSL document as it was read.

    Attributes:
        fault: why it cannot be read, else empty; then it says nothing of any page.
    """

    fault: str = ""

    def page(self, url: str) -> Reservation:
        """Whether a page may be trained on (scope `training`)."""
        raise NotImplementedError


def read_rsl(data: bytes) -> Rsl:
    """Read an RSL document; one with a DTD is refused."""
    raise NotImplementedError
