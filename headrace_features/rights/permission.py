"""The entry point of the group `permissions`: what is under an opt-out of the register while an increment lands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace_features.rights.answers import keep_answers
from headrace_features.rights.matching import ADDRESSES, AUTHORS, Matcher
from headrace_features.rights.register import Entry, entries, register_salt
from headrace_features.rights.sites import HostSite
from spark_jobs.sources.config.permissions import Permission, refusal_of
from spark_jobs.sources.refusals import Refusal

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_WEB = re.compile("https?://", re.I)


@dataclass(frozen=True)
class RegisterOptOuts:
    """The opt-outs of the register that hold, for one dataset.

    Attributes:
        dataset: its name.
        matcher: finds the entry behind a name.
        named: what each entry is about, in words.
        has_hashes: whether any is about the hash of a file.
    """

    dataset: str
    matcher: Matcher
    named: Mapping[str, str]
    has_hashes: bool

    def holds(self, entry: str) -> bool:
        """Whether an entry holds."""
        return entry in self.named

    def refusal(self, facts: Mapping[str, Any]) -> Refusal | None:
        """The refusal of a file or document by what is known of it; see `permissions.OptOuts`."""
        matcher, metadata = self.matcher, facts.get("metadata") or {}
        path, doc_id = facts.get("path") or "", facts.get("doc_id") or ""
        addresses = (facts.get("location"), path, *(metadata.get(name) for name in ADDRESSES))
        entry = (
            matcher.dataset(self.dataset)
            or ((repository := facts.get("repository")) and matcher.repository(repository))
            or (path and matcher.path(path))
            or ((sha256 := facts.get("content_sha256")) and matcher.sha256(sha256))
            or (doc_id and matcher.record(doc_id, path))
            or next(filter(None, (matcher.url(url) for url in addresses if url and _WEB.match(url))), None)
            or next(filter(None, (matcher.author(metadata[name]) for name in AUTHORS if name in metadata)), None)
        )
        return refusal_of(entry, self.named[entry]) if entry else None


def opt_outs(catalogue: Catalog, dataset: str) -> RegisterOptOuts | None:
    """The entries that hold now: neither refused nor withdrawn, and their day has come."""
    now = datetime.now(UTC)
    holding = [entry for entry in entries(catalogue) if entry.holds and (entry.opt_out.since or now) <= now]
    if not holding:
        return None
    named = {entry.entry: _words(entry) for entry in holding}
    has_hashes = any(entry.opt_out.kind == "sha256" for entry in holding)
    return RegisterOptOuts(dataset, Matcher.of(holding, register_salt(catalogue)), named, has_hashes)


def _words(entry: Entry) -> str:
    """What an entry is about; of an author there are hashes alone."""
    opt_out = entry.opt_out
    return opt_out.kind if opt_out.kind == "author" else f"{opt_out.kind} {', '.join(opt_out.values)}"


PERMISSION = Permission(opt_outs, HostSite, keep_answers)
