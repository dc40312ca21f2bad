"""TDM Reservation Protocol: /.well-known/tdmrep.json."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_features.rights.signals import Reservation


@dataclass(frozen=True)
class TdmRep:
    """A tdmrep.json as it was read.

    Attributes:
        fault: why it cannot be read, else empty; then it says nothing of any page.
    """

    fault: str = ""

    def page(self, url: str) -> Reservation:
        """Whether a page may be mined (scope `training`)."""
        raise NotImplementedError


def read_tdmrep(data: bytes) -> TdmRep:
    """Read a tdmrep.json."""
    raise NotImplementedError
