"""Which files of a repository a source takes, by `kinds`, and why it leaves out the others: each one is an arrival.

.github/x.yml, node_modules/a.js   hidden           by the path
guide.md, with kinds [code]        other_kind       by the name, where none of its languages is of a kind taken
qt_de.ts, a translation            other_kind       by the content, XML
logo.png, run without a first line unknown_format   neither name nor content says a language

With `unknown: detect` magika is asked where Linguist has no answer, or several.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Literal, Protocol, TypeAlias

from spark_jobs.sources.languages import Language, is_manifest, kinds_of, language_of_text
from spark_jobs.sources.opening.file_trees import LEFT_OUT
from spark_jobs.sources.refusals import Reason, Refusal

BY_PATH: Final = (str(Reason.HIDDEN), str(Reason.OTHER_KIND), str(Reason.OUTSIDE_LINK))
"""Reasons for which a file is left out by its path."""
_TAKEN = "kinds taken are "
_BY_CONTENT = " by its content"
_BY_MODEL = "no text by magika"
_SNIFFED = 8000  # bytes in which git looks for a null character

UNKNOWN = Refusal(Reason.UNKNOWN_FORMAT, "no language by its name, nor by its content")
UNKNOWN_TO_MODEL = Refusal(Reason.UNKNOWN_FORMAT, f"no language by its name, nor by its content; {_BY_MODEL}")

Model: TypeAlias = Callable[[bytes], Language | None]
"""What the beginning of a text is taken for; None for what is no text."""


class Taking(Protocol):
    """The part of a source's declaration on the files taken of a repository."""

    @property
    def kinds(self) -> Collection[str]:
        """Kinds of text."""

    @property
    def unknown(self) -> Literal["refuse", "detect"]:
        """Whether a model is asked."""


def left_out(path: str, kinds: Collection[str]) -> Refusal | None:
    """Why a file is left out by its path; None for one to be read, be it to see what is in it."""
    for part in path.split("/"):
        if part in LEFT_OUT or (part.startswith(".") and part not in (".", "..")):
            return Refusal(Reason.HIDDEN, f"{part} in its path")
    file_kinds = kinds_of(path)
    if not file_kinds or not file_kinds.isdisjoint(kinds) or is_manifest(path):
        return None
    return _other_kind(", ".join(sorted(file_kinds)), "name", kinds)


def language_taken(path: str, data: bytes, kinds: Collection[str], model: Model | None = None) -> Language | Refusal:
    """The language of a file by its name and content, or why it is left out.

    Args:
        path: of the file.
        data: its bytes.
        kinds: that the source takes.
        model: asked where Linguist has no answer, or several.
    """
    is_binary = not kinds_of(path) and b"\0" in data[:_SNIFFED]
    language = None if is_binary else language_of_text(path, data, model)
    if language is None and model is not None and not is_binary:
        language = model(data)
    if language is None:
        return UNKNOWN if model is None else UNKNOWN_TO_MODEL
    if language.kind in kinds or is_manifest(path):
        return language
    return _other_kind(language.kind, "content", kinds)


def kind_by_content(path: str, kind: str) -> str | None:
    """The detail of a landed file, where its name leaves open whether it is of the kind it landed as."""
    return None if kinds_of(path) == {kind} or is_manifest(path) else f"{kind}{_BY_CONTENT}"


def is_taken_as_before(reason: str | None, detail: str, source: Taking) -> bool:
    """Whether a file lands now if it landed, and is left out if it was, by its reason and detail in `arrivals`."""
    if reason is None:
        kind, by_content, _ = detail.partition(_BY_CONTENT)
        return not by_content or kind in source.kinds
    if reason == Reason.OTHER_KIND:
        return _TAKEN not in detail or detail.endswith(taken(source.kinds))
    return reason != Reason.UNKNOWN_FORMAT or detail.endswith(_BY_MODEL) == (source.unknown == "detect")


def _other_kind(kind: str, by: str, kinds: Collection[str]) -> Refusal:
    return Refusal(Reason.OTHER_KIND, f"{kind} by its {by}; {taken(kinds)}")


def taken(kinds: Collection[str]) -> str:
    """The kinds taken by a source, in words."""
    return f"{_TAKEN}{', '.join(sorted(kinds))}"
