"""TDM Reservation Protocol: /.well-known/tdmrep.json, the W3C group's report of 2024.

    [{"location": "/blog/*", "tdm-reservation": 1, "tdm-policy": "https://example.org/policy.json"}]

The first rule whose location matches is that of a page; locations are RFC 9309's patterns.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from headrace_features.rights.signals import Reservation, shown
from headrace_features.rights.signals.robots import Pattern, path_of


@dataclass(frozen=True)
class TdmRep:
    """A tdmrep.json as it was read.

    Attributes:
        fault: why it cannot be read, else empty; then it says nothing of any page.
        rules: pattern of the location, whether mining is allowed (None where the value is none of the protocol), the
            rule as it is written.
    """

    fault: str = ""
    rules: tuple[tuple[Pattern, bool | None, str], ...] = ()

    def page(self, url: str) -> Reservation:
        """Whether a page may be mined (scope `training`)."""
        path = path_of(url)
        for number, (location, allowed, text) in enumerate(self.rules, 1):
            if location.matches(path):
                return Reservation("tdmrep.json", "training", allowed, 0, f"rule {number}", text)
        return Reservation("tdmrep.json", "training", None)


def read_tdmrep(data: bytes) -> TdmRep:
    """Read a tdmrep.json."""
    try:
        rules = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        return TdmRep(shown(f"no JSON: {error}"))
    listed = rules if isinstance(rules, list) else [rules]
    kept = [
        (
            Pattern.of(path_of(rule["location"], keeps_special=True)),
            reservation(rule.get("tdm-reservation")),
            _text(rule),
        )
        for rule in listed
        if isinstance(rule, dict) and isinstance(rule.get("location"), str)
    ]
    return TdmRep("", tuple(kept)) if kept else TdmRep("no rule of it has a location")


def reservation(value: Any) -> bool | None:
    """Whether a value of `tdm-reservation` allows to mine: 1 does not, 0 does, any other is unset by the protocol."""
    return {"1": False, "0": True}.get(str(value).strip()) if isinstance(value, str | int) else None


def _text(rule: dict[str, Any]) -> str:
    named = {key: rule[key] for key in ("location", "tdm-reservation", "tdm-policy") if key in rule}
    return shown(repr(named))
