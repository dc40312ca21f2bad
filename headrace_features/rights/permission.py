"""The entry point of the group `permissions`: what is under an opt-out of the register while an increment lands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace_features.rights.answers import keep_answers
from headrace_features.rights.matching import ADDRESSES, AUTHORS, Matcher
from headrace_features.rights.register import Entry, Kind, entries, register_salt
from headrace_features.rights.sites import HostSite
from spark_jobs.sources.config.permissions import Permission, refusal_of
from spark_jobs.sources.refusals import Refusal

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_WEB: Final = re.compile("https?://", re.I)


@dataclass(frozen=True)
class RegisterOptOuts:
    """The opt-outs of the register that hold, for one dataset.

    Attributes:
        dataset: its name.
        matcher: finds the entry behind a name.
        kinds: of which there is an entry.
        words: what each entry is about.
    """

    dataset: str
    matcher: Matcher
    kinds: frozenset[Kind]
    words: Mapping[str, str]

    @property
    def has_hashes(self) -> bool:
        """Whether any is of a SHA-256."""
        return "sha256" in self.kinds

    def holds(self, entry: str) -> bool:
        """Whether an entry holds."""
        return entry in self.words

    def refusal(self, facts: Mapping[str, Any]) -> Refusal | None:
        """The refusal of a file or document by what is known of it; see `permissions.OptOuts`."""
        entry = next(filter(None, self._named_by(facts)), None)
        return None if entry is None else refusal_of(entry, self.words[entry])

    def _named_by(self, facts: Mapping[str, Any]) -> Iterator[str | None]:
        """The entries that name a file or document, where there is one of the kind at all."""
        matcher, kinds, metadata = self.matcher, self.kinds, facts.get("metadata") or {}
        path, repository = facts.get("path") or "", facts.get("repository") or ""
        if "dataset" in kinds:
            yield matcher.dataset(self.dataset)
        if "repository" in kinds and repository:
            yield matcher.repository(repository)
        if "path" in kinds:
            yield matcher.path(path)
        if "sha256" in kinds:
            yield matcher.sha256(facts.get("content_sha256") or "")
        if "record" in kinds:
            yield matcher.record(facts.get("doc_id") or "", path)
        if not kinds.isdisjoint(("domain", "url_prefix")):
            addresses = (facts.get("location"), path, *(metadata.get(name) for name in ADDRESSES))
            yield from (matcher.url(address) for address in addresses if address and _WEB.match(address))
        if "author" in kinds:
            owner = repository.rpartition("/")[0].rpartition("/")[2]
            yield from map(matcher.author, filter(None, [owner, *(metadata.get(name) for name in AUTHORS)]))


def opt_outs(catalogue: Catalog, dataset: str) -> RegisterOptOuts | None:
    """The entries that hold now: neither refused nor withdrawn, and their day has come."""
    register = entries(catalogue)
    if not register:
        return None
    matcher = Matcher.of(register, register_salt(catalogue))
    holding = {entry for found in matcher.named.values() for entry in found}
    words = {entry.entry: _words(entry) for entry in register if entry.entry in holding}
    return RegisterOptOuts(dataset, matcher, matcher.kinds(), words) if words else None


def _words(entry: Entry) -> str:
    """What an entry is about; of an author there are hashes alone."""
    opt_out = entry.opt_out
    return opt_out.kind if opt_out.kind == "author" else f"{opt_out.kind} {', '.join(opt_out.values)}"


PERMISSION = Permission(opt_outs, HostSite, keep_answers)
