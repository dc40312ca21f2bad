"""Tell from the name and the bytes of a file its kind of text, language and media type.

Languages are those of GitHub's Linguist (`linguist.py`; The Stack v2 has them too), and kinds its types, with the few
exceptions of `_OTHER_KINDS`. Markdown and reStructuredText are `prose`, with the media type of their light markup;
`markup` is text made mostly of tags (HTML, XML, TeX).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from spark_jobs.sources import linguist
from spark_jobs.threads import made_once


class Language(NamedTuple):
    """Kind of a file (code, prose, markup or data), name of its language (None for prose), and media type."""

    kind: str
    name: str | None
    media_type: str


_KINDS: Final = {"programming": "code", "markup": "markup", "data": "data", "prose": "prose"}
_OTHER_KINDS: Final = {
    **dict.fromkeys(("Gradle Kotlin DSL", "Protocol Buffer", "SQL"), "code"),
    **dict.fromkeys(("Maven POM", "SVG", "XML"), "markup"),
    "Jupyter Notebook": "data",
    "MDX": "prose",
}
"""Languages whose files are of another kind here than Linguist's type says."""
_MEDIA_TYPES: Final = {
    **dict.fromkeys(("Markdown", "MDX", "RMarkdown"), "text/markdown"),
    **dict.fromkeys(("Maven POM", "XML", "XML Property List", "XSLT"), "application/xml"),
    "CSV": "text/csv",
    "Makefile": "text/x-makefile",
    "SQL": "application/sql",
    "SVG": "image/svg+xml",
    "TOML": "application/toml",
    "TSV": "text/tab-separated-values",
    "YAML": "application/yaml",
}
"""Media types that are registered (Makefiles have none), where Linguist states the mode of an editor."""
MANIFEST: Final = (
    r"(^|[/#])(go\.(mod|work)|Cargo\.toml|package\.json|[jt]sconfig[^/]*\.json|pyproject\.toml|setup\.cfg|pom\.xml"
    r"|(build|settings)\.gradle(\.kts)?|compile_commands\.json)$"
)
"""Paths of manifests, as a pattern for Python and Java: files that say what the modules and packages of a repository
are called and where they begin. A `#` comes before the id of a record."""
LOCK_FILE: Final = (
    r"(?i)(^|[/#])([^/#]*\.lock(b|file)?(\.(json|ya?ml|hcl|toml))?"
    r"|\.?(package|pnpm|conda|deno|npm)-lock(\.[^/.]+)?\.(json|ya?ml)|npm-shrinkwrap\.json|pylock(\.[^/.]+)?\.toml"
    r"|go(\.work)?\.sum|(package|cartfile)\.resolved|gems\.locked|dub\.selections\.json|cabal\.project\.freeze)$"
)
"""Paths of files in which a package manager writes the versions and hashes that it found; for Python and Java."""
VENDORED: Final = (
    r"(?i)(^|/)(_?vendor(s|ed)?|_?(third|3rd)[-_]?party|extern(als?)?|_?bundled?|node_modules|bower_components|godeps)/"
)
"""Paths in folders that hold other people's code, of those that Linguist's vendor.yml lists; for Python and Java."""
EVIDENCE: Final = "headrace.evidence"
"""Key in the metadata of a document that landed only because others need it to be understood."""
PAST: Final = "headrace.past_version"
"""Key in the metadata of a document that landed when its path had a later version already, or none any more."""
PAGE: Final = "headrace.page"
"""Metadata of a document of an API or a stream: number of its page and its place there, `12#item:3`."""
EXTRACTED_BY: Final = "headrace.extracted_by"
"""Key in the metadata of a document whose text was extracted: what extracted it, with its version. Bytes of such a
text are no bytes of a file."""
PAGE_START: Final = re.compile(rb"(?is)\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b")
"""How a page of HTML begins, whatever it is called."""
DETECTED: Final = "headrace.detected"
"""Key in the metadata of a document whose file's name said nothing: what its content is taken for, and by whom."""
PLAIN_TEXT = Language("prose", None, "text/plain")
DECLARES_ENCODING = frozenset({"Python", "Cython"})
"""Languages whose sources may declare their encoding in a comment (PEP 263)."""


@made_once
def code_language_names() -> frozenset[str]:
    """Names of all Linguist's languages of code, markup and data."""
    return frozenset(name for name, language in _languages().items() if language.name)


@made_once
def _languages() -> Mapping[str, Language]:
    """Kind, language and media type of files in each language, by Linguist's name of it."""
    tables = linguist.tables()
    languages = {}
    for name, stated in tables.types.items():
        kind = _OTHER_KINDS.get(name) or _KINDS[stated]
        media_type = _MEDIA_TYPES.get(name) or tables.media_types.get(name, "text/plain")
        languages[name] = Language(kind, None if kind == "prose" else name, media_type)
    return languages


def language_of(path: str) -> Language | None:
    """The language of a file by its name, the likeliest of several; None where the name says nothing."""
    name = linguist.preferred(path, linguist.by_name(path))
    return None if name is None else _languages()[name]


def language_of_text(
    path: str, data: bytes, model: Callable[[bytes], Language | None] | None = None
) -> Language | None:
    """The language of a file by its name and its bytes; None where neither says anything.

    Args:
        path: of the file.
        data: its bytes.
        model: asked where Linguist's rules leave several languages; what it says counts if it is one of them.
    """
    names = linguist.by_content(path, data)
    if model is not None and len(names) > 1 and (guess := model(data)) in [_languages()[name] for name in names]:
        return guess
    name = linguist.preferred(path, names)
    return None if name is None else _languages()[name]


def language_named_by(
    path: str, data: bytes, model: Callable[[bytes], Language | None] | None = None
) -> Language | None:
    """As `language_of_text`, but None where the name says nothing, whatever is in the file."""
    return language_of_text(path, data, model) if linguist.by_name(path) else None


def kinds_of(path: str) -> frozenset[str]:
    """The possible kinds of text of a file of this name; none where the name says nothing."""
    return frozenset(_languages()[name].kind for name in linguist.by_name(path))


def language_columns(reader: str | None, language: Language | None) -> dict[str, str | None]:
    """Columns of the listing on how a file is read and what its documents are."""
    kind, name, media_type = language or (None, None, None)
    return {"reader": reader, "kind": kind, "language": name, "media_type": media_type or None}


def language_named(name: str) -> Language | None:
    """The language of a name or an alias, in whatever letters, or None where there is none."""
    name_of_alias = linguist.tables().aliases.get(name.lower())
    return None if name_of_alias is None else _languages()[name_of_alias]


def is_manifest(path: str) -> bool:
    """Whether a file is a manifest, by its path."""
    return re.search(MANIFEST, path) is not None
