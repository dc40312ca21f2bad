"""The entry point of the group `permissions`: what is under an opt-out of the register while an increment lands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace_features.rights.hits.matching import Matcher
from headrace_features.rights.landing.answers import keep_answers
from headrace_features.rights.landing.sites import HostSite
from headrace_features.rights.register.register import Entry, entries, register_salt
from spark_jobs.sources.config.permissions import Permission, refusal_of
from spark_jobs.sources.refusals import Refusal

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(frozen=True)
class RegisterOptOuts:
    """The opt-outs of the register that hold, for one dataset.

    Attributes:
        dataset: its name.
        matcher: finds the entry behind a name.
        words: what each entry is about.
    """

    dataset: str
    matcher: Matcher
    words: Mapping[str, str]

    @property
    def has_hashes(self) -> bool:
        """Whether any is of a SHA-256."""
        return "sha256" in self.matcher.kinds()

    def holds(self, entry: str) -> bool:
        """Whether an entry holds."""
        return entry in self.words

    def refusal(self, facts: Mapping[str, Any]) -> Refusal | None:
        """The refusal of a file or document by its facts; see `permissions.OptOuts`."""
        entry = next(self.matcher.naming(self.dataset, facts), None)
        return None if entry is None else refusal_of(entry, self.words[entry])


def opt_outs(catalogue: Catalog, dataset: str) -> RegisterOptOuts | None:
    """The entries that hold now: neither refused nor withdrawn, and their day has come."""
    register = entries(catalogue)
    if not register:
        return None
    matcher = Matcher.of(register, register_salt(catalogue))
    holding = {entry for named in matcher.named.values() for entry in named}
    words = {entry.entry: _words(entry) for entry in register if entry.entry in holding}
    return RegisterOptOuts(dataset, matcher, words) if words else None


def _words(entry: Entry) -> str:
    """What an entry is about; of an author there are hashes alone."""
    opt_out = entry.opt_out
    return opt_out.kind if opt_out.kind == "author" else f"{opt_out.kind} {', '.join(opt_out.values)}"


PERMISSION = Permission(opt_outs, HostSite, keep_answers)
