"""TDM Reservation Protocol: /.well-known/tdmrep.json, the W3C group's report of 2024.

    [{"location": "/blog/*", "tdm-reservation": 1, "tdm-policy": "https://example.org/policy.json"}]

The first rule whose location matches is that of a page; locations are RFC 9309's patterns.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from headrace_features.rights.signals import Reservation, shown, utf_8
from headrace_features.rights.signals.robots import Pattern, path_of


@dataclass(frozen=True)
class TdmRep:
    """A tdmrep.json as it was read.

    Attributes:
        fault: why it cannot be read, else empty; then it says nothing of any page.
        rules: patterns of locations in order, with what is said of their pages.
    """

    fault: str = ""
    rules: tuple[tuple[Pattern, Reservation], ...] = ()

    def page(self, url: str) -> Reservation:
        """Whether a page may be mined (scope `training`)."""
        path = path_of(url)
        silent = Reservation("tdmrep.json", "training", None)
        return next((answer for location, answer in self.rules if location.matches(path)), silent)


def read_tdmrep(data: bytes) -> TdmRep:
    """Read a tdmrep.json."""
    try:
        rules = json.loads(utf_8(data).decode())
    except (ValueError, RecursionError) as error:
        return TdmRep(shown(f"no JSON: {error}"))
    listed = rules if isinstance(rules, list) else [rules]
    kept = [rule for rule in listed if isinstance(rule, dict) and isinstance(rule.get("location"), str)]
    read = [(Pattern.of(path_of(rule["location"], keeps_special=True)), _answer(rule)) for rule in kept]
    return TdmRep("" if read else "no rule of it has a location", tuple(read))


def _answer(rule: dict[str, Any]) -> Reservation:
    names = ("tdm-reservation", "tdm-policy")
    text = ", ".join(f"{name}: {rule[name]}" for name in names if isinstance(rule.get(name), str | int))
    allowed = reservation(rule.get("tdm-reservation"))
    return Reservation("tdmrep.json", "training", allowed, 0, shown(rule["location"]), shown(text))


def reservation(value: Any) -> bool | None:
    """Whether a value of `tdm-reservation` allows to mine: 1 does not, 0 does, any other is unset by the protocol."""
    return {"1": False, "0": True}.get(str(value).strip()) if isinstance(value, str | int) else None
