"""Open a package of Office Open XML (ECMA-376 part 2), transitional or strict: parts by their relationships.

Names of elements and attributes are short: `w_p` is a paragraph in either form. A part is found by what a relationship
says that it is, never by its name; of the type of a relationship the last word counts: the same in both forms.
"""

from __future__ import annotations

import io
import posixpath
import zipfile
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from spark_jobs.sources.refusals import Reason, Refusal, RefusedError

_PREFIXES: Final = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "w",
    "http://purl.oclc.org/ooxml/wordprocessingml/main": "w",
    "http://schemas.openxmlformats.org/officeDocument/2006/math": "m",
    "http://purl.oclc.org/ooxml/officeDocument/math": "m",
    "http://schemas.openxmlformats.org/drawingml/2006/main": "a",
    "http://purl.oclc.org/ooxml/drawingml/main": "a",
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships": "r",
    "http://purl.oclc.org/ooxml/officeDocument/relationships": "r",
    "http://schemas.openxmlformats.org/markup-compatibility/2006": "mc",
    "http://www.w3.org/XML/1998/namespace": "xml",
}
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


class Target(NamedTuple):
    """What a relationship leads to: the last word of its type, its id, and the part's name; None outside the file."""

    kind: str
    id: str
    part: str | None


class Package:
    """An open package; parts are read on request."""

    def __init__(self, data: bytes) -> None:
        self._zip = zipfile.ZipFile(io.BytesIO(data))
        self._members = {f"/{name.replace(chr(92), '/').lstrip('/')}".lower(): name for name in self._zip.namelist()}
        types = self.xml("/[Content_Types].xml")
        self._types = {_key(item): item.get("ContentType", "") for item in (() if types is None else types)}

    def read(self, part: str) -> bytes | None:
        """The bytes of a part; None where there is none of that name, whatever its letter case."""
        member = self._members.get(part.lower()) or self._members.get(unquote(part).lower())
        return None if member is None else self._zip.read(member)

    def xml(self, part: str | None) -> Element | None:
        """The root of a part with short names; None where there is no such part.

        Raises:
            RefusedError: it is no XML.
        """
        data = self.read(part) if part is not None else None
        if data is None:
            return None
        try:
            root = ElementTree.fromstring(data)
        except (ElementTree.ParseError, LookupError, ValueError) as error:  # the latter two of unknown encodings
            raise RefusedError(Reason.CORRUPT_FILE, f"its part {part} is not well-formed: {error}") from error
        for element in root.iter():
            element.tag = _short(element.tag)
            if any("{" in name for name in element.attrib):
                element.attrib = {_short(name): value for name, value in element.attrib.items()}
        return root

    def content_type(self, part: str) -> str:
        """The content type of a part, by its name or its extension; empty where none is stated."""
        lowered = part.lower()
        return self._types.get(lowered, self._types.get(lowered.rpartition(".")[2], "")).lower()

    def targets(self, part: str = "/") -> Iterator[Target]:
        """The relationships of a part, in the order of the file."""
        folder, name = posixpath.split(part)
        relations = self.xml(posixpath.join(folder, "_rels", f"{name}.rels"))
        for relation in () if relations is None else relations:
            to, is_outside = relation.get("Target", ""), relation.get("TargetMode") == "External"
            to = posixpath.normpath(posixpath.join(folder, to.replace("\\", "/").partition("#")[0]))
            yield Target(
                relation.get("Type", "").rpartition("/")[2], relation.get("Id", ""), None if is_outside else to
            )

    def part(self, kind: str, of: str = "/") -> str | None:
        """The target part of the first relationship of a kind."""
        return next((target.part for target in self.targets(of) if target.kind == kind), None)


def opened(data: bytes) -> Package | Refusal:
    """The open package, or why it is none."""
    if data.startswith(_COMPOUND_FILE):
        if "EncryptedPackage".encode("utf-16-le") in data:
            return Refusal(Reason.ENCRYPTED, "it needs a password; save it without one")
        return Refusal(Reason.CORRUPT_FILE, "an old Word document (.doc), not Office Open XML; save it as .docx")
    try:
        return Package(data)
    except RefusedError as error:
        return error.refusal
    except zipfile.BadZipFile as error:
        return Refusal(Reason.CORRUPT_FILE, f"no package of Office Open XML: {error}")


def _short(name: str) -> str:
    """A name with the prefix of its namespace; of an unknown one the local name."""
    if not name.startswith("{"):
        return name
    space, _, local = name[1:].partition("}")
    prefix = _PREFIXES.get(space)
    return f"{prefix}_{local}" if prefix else local


def _key(item: Element) -> str:
    """The name of a part, or the extension, that a content type is stated for."""
    return (item.get("PartName") or item.get("Extension") or "").lower()
