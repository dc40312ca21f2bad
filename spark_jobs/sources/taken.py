"""Which files of a repository a source takes, by `kinds`, and why it leaves out the others: each one is an arrival.

.github/x.yml, node_modules/a.js   hidden           by the path
guide.md, with kinds [code]        other_kind       by the name, where none of its languages is of a kind taken
qt_de.ts, a translation            other_kind       by the content, XML
logo.png, run without a first line unknown_format   neither name nor content says a language
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from spark_jobs.sources.languages import Language, is_manifest, kinds_of, language_of_text
from spark_jobs.sources.opening.file_trees import LEFT_OUT
from spark_jobs.sources.refusals import Reason, Refusal

BY_PATH: Final = (str(Reason.HIDDEN), str(Reason.OTHER_KIND))
"""Reasons for which a file is left out by its path."""
_TAKEN = "kinds taken are "
_SNIFFED = 8000  # bytes in which git looks for a null character

UNKNOWN = Refusal(Reason.UNKNOWN_FORMAT, "no language by its name, nor by its content")


def left_out(path: str, kinds: Collection[str]) -> Refusal | None:
    """Why a file is left out by its path; None for one that is read, be it to see what is in it."""
    for part in path.split("/"):
        if part in LEFT_OUT or (part.startswith(".") and part not in (".", "..")):
            return Refusal(Reason.HIDDEN, f"{part} in its path")
    found = kinds_of(path)
    if not found or not found.isdisjoint(kinds) or is_manifest(path):
        return None
    return _other_kind(", ".join(sorted(found)), "name", kinds)


def language_taken(path: str, data: bytes, kinds: Collection[str]) -> Language | Refusal:
    """The language of a file by its name and content, or why it is left out.

    Args:
        path: of the file.
        data: its bytes.
        kinds: that the source takes.
    """
    language = None if not kinds_of(path) and b"\0" in data[:_SNIFFED] else language_of_text(path, data)
    if language is None:
        return UNKNOWN
    if language.kind in kinds or is_manifest(path):
        return language
    return _other_kind(language.kind, "content", kinds)


def is_left_out_still(reason: str | None, detail: str, kinds: Collection[str]) -> bool:
    """Whether what a file was left out for, by its reason and detail in `arrivals`, holds for the kinds taken now."""
    by_kind = reason == Reason.OTHER_KIND and _TAKEN in detail
    return not by_kind or detail.endswith(_taken(kinds))


def _other_kind(kind: str, by: str, kinds: Collection[str]) -> Refusal:
    return Refusal(Reason.OTHER_KIND, f"{kind} by its {by}; {_taken(kinds)}")


def _taken(kinds: Collection[str]) -> str:
    return f"{_TAKEN}{', '.join(sorted(kinds))}"
