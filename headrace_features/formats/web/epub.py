"""Read a book in EPUB 2 or 3: all text of its chapters in the order of reading, and what the book says of itself.

    META-INF/container.xml   names the package document
    package document         title, language, identifiers, date; the files of the book; the order of reading (`spine`)
    META-INF/encryption.xml  names files encrypted or with an obfuscated beginning, as of fonts

Chapters beside the order (`linear="no"`, mostly notes) stand at the end. Left out are the contents, as these are
links to chapters. An unreadable chapter costs that chapter alone, and is counted.

This module is imported in the child of parser_process.py, and needs the extra `ingest`.
"""

from __future__ import annotations

import io
import json
import posixpath
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from html import unescape
from importlib.metadata import version
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from headrace_features.formats.web.main_text import whole_text
from headrace_features.formats.web.xhtml import xml_markup, xml_tree
from spark_jobs.sources.languages import EXTRACTED_BY
from spark_jobs.sources.opening.archives import Unpacking, archive_members
from spark_jobs.sources.opening.limits import ArchiveLimits
from spark_jobs.sources.opening.streams import HashedFile, read_up_to
from spark_jobs.sources.records.extracted import Extracted, cleaned_facts
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError

_CONTAINER: Final = "META-INF/container.xml"
_ENCRYPTION: Final = "META-INF/encryption.xml"
_TEXT_TYPES: Final = (
    *("application/xhtml+xml", "text/html", "text/x-oeb1-document", "application/x-dtbook+xml"),
    *("application/xml", "image/svg+xml"),
)
_BOOK: Final = "application/oebps-package+xml"
_UNSAID: Final = ("", "text/plain", "text/xml", "application/octet-stream")
_KINDS: Final = {
    **dict.fromkeys((".xhtml", ".xht", ".html", ".htm"), "application/xhtml+xml"),
    **{".xml": "application/xml", ".svg": "image/svg+xml", ".ncx": "application/x-dtbncx+xml"},
}
_OUTSIDE: Final = 0.5  # of the characters of a page of contents, at most so many stand in no link
_HEADINGS: Final = ["h1", "h2", "h3", "h4", "h5", "h6"]
_LINK = re.compile(r"""<a\s[^<>]*?href\s*=\s*["']([^"']*)""", re.IGNORECASE)
_TITLE_CHARACTERS: Final = 200
_FIRST_LINKS: Final = 3  # fewer make no contents


class _Item(NamedTuple):
    """A file of the book by its entry in the package document."""

    name: str
    media_type: str
    properties: str
    fallback: str | None


class _Book(NamedTuple):
    """What the package document says.

    Attributes:
        facts: metadata of the document.
        chapters: names of files in the order of reading, those beside it last.
        unknown_count: entries of that order without a file.
        labels: names of the files with the titles of chapters, of EPUB 3 before that of EPUB 2.
        contents: names of the pages called its contents by the book.
    """

    facts: dict[str, str]
    chapters: list[str]
    unknown_count: int
    labels: list[str]
    contents: set[str]


class _Chapter(NamedTuple):
    """The markup of a chapter, and whether it is well-formed."""

    markup: str
    is_xml: bool


def extract_epub(data: bytes, ruby: str, limits: ArchiveLimits, max_bytes: int) -> Extracted | Refusal:
    """The text of a book, a blank line between chapters.

    Args:
        data: the file, a zip of XHTML.
        ruby: as of `extract_page`.
        limits: of what it unpacks to.
        max_bytes: most bytes of all files read of it.
    """
    try:
        return _read(_Files(data, limits, max_bytes), ruby == "brackets")
    except RefusedError as error:
        return error.refusal


class _Files:
    """The files in a book, only the requested ones unpacked."""

    def __init__(self, data: bytes, limits: ArchiveLimits, max_bytes: int) -> None:
        self._data, self._limits, self._bytes_left, self._max_bytes = data, limits, max_bytes, max_bytes
        self.names = [name for name, _ in self._walk(())]

    def read(self, names: Collection[str]) -> dict[str, bytes | Refusal]:
        """The bytes of files, as far as they are there, or why one cannot be read.

        Raises:
            RefusedError: they are too many.
        """
        return {name: content for name, content in self._walk(set(names)) if content is not None}

    def _walk(self, names: Collection[str]) -> Iterator[tuple[str, bytes | Refusal | None]]:
        """All files, with the bytes of the named ones; of two of one name the first."""
        visited = set[str]()
        with HashedFile(io.BytesIO(self._data)) as source:
            for member in archive_members(source, len(self._data), Unpacking(self._limits)):
                name = posixpath.normpath(member.name.replace("\\", "/")) if member.name else None
                if name is None and not visited:
                    assert member.refusal is not None
                    raise RefusedError(Reason.CORRUPT_FILE, f"no zip file: {member.refusal.detail}")
                if name is None or name in visited:
                    continue
                visited.add(name)
                if name not in names:
                    yield name, None
                elif member.stream is None:
                    yield name, member.refusal
                else:
                    try:
                        content = read_up_to(member.stream, self._bytes_left + 1)
                    except RefusedError as error:
                        yield name, error.refusal
                        continue
                    self._bytes_left -= len(content)
                    if self._bytes_left < 0:
                        detail = f"its texts have more than {self._max_bytes} bytes, the max_document_bytes"
                        raise RefusedError(Reason.TOO_LARGE, detail)
                    yield name, content


def _read(files: _Files, readings: bool) -> Extracted | Refusal:
    """The text of a book.

    Raises:
        RefusedError: it is none, or too large.
    """
    root = next((name.removesuffix(_CONTAINER) for name in files.names if name.endswith(_CONTAINER)), "")
    about = files.read((root + _CONTAINER, root + _ENCRYPTION))
    packages = _package_names(about.get(root + _CONTAINER), root, files.names)
    if not packages:
        return Refusal(Reason.CORRUPT_FILE, "no EPUB: there is no package document (.opf) in it")
    books = list[_Book]()
    for package in packages:
        content = files.read((package,))[package]
        if isinstance(content, Refusal):
            return content
        books.append(_book(content, package, files.names))
        if books[-1].chapters:
            break
    book = books[-1] if books[-1].chapters else books[0]
    encrypted = _encrypted(about.get(root + _ENCRYPTION), root)
    wanted = [name for name in book.chapters if name not in encrypted]
    unpacked = files.read({*wanted, *book.labels})
    titles = _titles(unpacked, book.labels)
    texts, shown, faults, left_out_count, html_count = list[str](), list[str](), list[Refusal](), 0, 0
    for name in book.chapters:
        chapter = _chapter(name, encrypted, unpacked)
        if isinstance(chapter, Refusal):
            faults.append(chapter)
            continue
        tree = HTMLTree.parse(chapter.markup)
        if _is_contents(tree, chapter.markup, name, book):
            left_out_count += 1
            continue
        html_count += not chapter.is_xml
        text = whole_text(tree, readings)
        if text:
            texts.append(text)
            shown.append(titles.get(name) or _heading(tree))
    if not texts:
        return faults[0] if faults else Refusal(Reason.EMPTY, "the book has no text")
    encrypted_count = sum(fault.reason == Reason.ENCRYPTED for fault in faults)
    counts = {
        "chapter_count": len(texts),
        "chapters_left_out": left_out_count,
        "chapters_encrypted": encrypted_count,
        "chapters_unreadable": len(faults) - encrypted_count + book.unknown_count,
        "chapters_not_well_formed": html_count,
    }
    facts = {
        **book.facts,
        **{name: str(count) for name, count in counts.items()},
        "headrace.chapters": json.dumps(shown, ensure_ascii=False),
        EXTRACTED_BY: f"resiliparse {version('resiliparse')}",
    }
    return Extracted("\n\n".join(texts), facts)


def _package_names(container: bytes | Refusal | None, folder: str, names: list[str]) -> list[str]:
    """The package documents, one a rendition: those named by the container, else the first there is."""
    root = xml_tree(container) if isinstance(container, bytes) else None
    nodes = [node for node in (() if root is None else root.iter()) if _local(node) == "rootfile"]
    books = [node for node in nodes if node.get("media-type", _BOOK) == _BOOK] or nodes
    by_path = _by_path(names)
    stated = [_held(posixpath.normpath(folder + node.get("full-path", "").lstrip("/")), by_path) for node in books]
    return [name for name in stated if name in by_path] or [name for name in names if name.endswith(".opf")][:1]


def _by_path(names: list[str]) -> dict[str, str]:
    """Names of the files in a book, by themselves and as `_folded` writes them."""
    return {**{_folded(name): name for name in reversed(names)}, **{name: name for name in names}}


def _held(path: str, by_path: Mapping[str, str]) -> str:
    """The name in the book behind a path: as it is written, decoded, or written with other code points or case."""
    decoded = unquote(path)
    return by_path.get(path) or by_path.get(decoded) or by_path.get(_folded(decoded), decoded)


def _folded(name: str) -> str:
    """The common form of names equal to a file system."""
    return unicodedata.normalize("NFC", name).casefold()


def _book(data: bytes, package: str, names: list[str]) -> _Book:
    """What the package document says.

    Raises:
        RefusedError: it is no XML.
    """
    root = xml_tree(data)
    if root is None:
        raise RefusedError(Reason.CORRUPT_FILE, f"its package document {package} is not well-formed")
    items, by_path = dict[str, _Item](), _by_path(names)
    for node in root.iter():
        if _local(node) == "item" and node.get("id"):
            name = _held(_target(node.get("href", ""), package, decode=False), by_path)
            kind = node.get("media-type", "").partition(";")[0].strip().lower()
            kind = kind if kind not in _UNSAID else _KINDS.get(posixpath.splitext(name)[1].lower(), kind)
            items[node.get("id", "").strip()] = _Item(name, kind, node.get("properties") or "", node.get("fallback"))
    order, beside, ncx, unknown_count = list[str](), list[str](), None, 0
    for node in root.iter():
        if _local(node) == "spine":
            ncx = node.get("toc")
        elif _local(node) == "itemref":
            key = node.get("idref", "").strip()
            unknown_count += key not in items
            if item := _readable(key, items):
                (beside if node.get("linear") == "no" else order).append(item.name)
    labels = [item.name for item in items.values() if "nav" in item.properties.split()]
    labels += [item.name for key, item in items.items() if key == ncx or item.media_type == "application/x-dtbncx+xml"]
    stated = {_target(node.get("href", ""), package) for node in root.iter() if node.get("type") == "toc"}
    return _Book(_facts(root), list(dict.fromkeys([*order, *beside])), unknown_count, labels, {*labels, *stated})


def _readable(key: str | None, items: Mapping[str, _Item]) -> _Item | None:
    """The item of the spine, or what stands for it where it is no text (a fallback), else None."""
    visited = set[str | None]()
    while key not in visited and (item := items.get(key or "")):
        if item.media_type in _TEXT_TYPES:
            return item
        visited.add(key)
        key = item.fallback
    return None


def _facts(root: ElementTree.Element) -> dict[str, str]:
    """Title, language, identifiers (the book's own first) and date of publication."""
    id_name = root.get("unique-identifier")
    values = dict[str, list[tuple[bool, str]]]()
    for node in root.iter():
        text = " ".join("".join(node.itertext()).split())
        event = _attribute(node, "event", "publication")
        if _local(node) in ("title", "language", "identifier", "date") and text and event != "modification":
            is_later = node.get("id") != id_name if _local(node) == "identifier" else event != "publication"
            values.setdefault(_local(node), []).append((is_later, text))
    first = {name: [text for _, text in sorted(texts, key=lambda each: each[0])] for name, texts in values.items()}
    facts = {
        "title": first.get("title", [""])[0],
        "language": first.get("language", [""])[0],
        "identifiers": ", ".join(dict.fromkeys(first.get("identifier", []))),
        "published": first.get("date", [""])[0],
    }
    return cleaned_facts(facts)


def _attribute(node: ElementTree.Element, name: str, default: str) -> str:
    """The value of an attribute in whatever namespace."""
    return next((value for key, value in node.attrib.items() if key.rpartition("}")[2] == name), default)


def _encrypted(data: bytes | Refusal | None, folder: str) -> set[str]:
    """Names of the files encrypted, or obfuscated as fonts are: no text of theirs can be read."""
    root = xml_tree(data) if isinstance(data, bytes) else None
    nodes = root.iter() if root is not None else ()
    return {
        posixpath.normpath(folder + unquote(node.get("URI", ""))) for node in nodes if _local(node) == "CipherReference"
    }


def _chapter(name: str, encrypted: set[str], unpacked: Mapping[str, bytes | Refusal]) -> _Chapter | Refusal:
    """The markup of a chapter, or why it cannot be read."""
    if name in encrypted:
        return Refusal(Reason.ENCRYPTED, "its chapters are encrypted (DRM); take a copy without")
    data = unpacked.get(name)
    if data is None:
        return Refusal(Reason.CORRUPT_FILE, f"{name}, which its order of reading names, is not in it")
    if isinstance(data, Refusal):
        return data
    page = xml_markup(data)
    return page if isinstance(page, Refusal) else _Chapter(page.markup, page.fault is None)


def _is_contents(tree: HTMLTree, markup: str, name: str, book: _Book) -> bool:
    """Whether a page is the contents: most of its text stands in links, and most of those lead to chapters.

    Of one called its contents by the book, navigation and headings are no text; the rest of it stays.
    """
    is_stated = name in book.contents
    while is_stated and tree.body and (node := tree.body.query_selector("nav")):
        node.decompose()
    headings = _HEADINGS if is_stated else []
    texts = (
        extract_plain_text(tree, preserve_formatting=False, skip_elements=[*headings, *tags]) for tags in ([], ["a"])
    )
    every, outside = (len("".join(text.split())) for text in texts)
    if is_stated and not every:
        return True
    chapters, targets = {*book.chapters} - {name}, [_target(unescape(link[1]), name) for link in _LINK.finditer(markup)]
    is_list = is_stated or len(targets) >= _FIRST_LINKS
    return is_list and outside <= _OUTSIDE * every and sum(target in chapters for target in targets) > len(targets) / 2


def _titles(unpacked: Mapping[str, bytes | Refusal], names: list[str]) -> dict[str, str]:
    """The title of each chapter, by its file, as the contents of EPUB 3 or 2 have it; of several the first."""
    titles = dict[str, str]()
    for name in names:
        data = unpacked.get(name)
        root = xml_tree(data) if isinstance(data, bytes) else None
        for node in _entries(root) if root is not None else ():
            inner = {_local(child): child for child in node}
            if _local(node) == "a":
                target, label = node.get("href"), "".join(node.itertext())
            else:
                target = inner["content"].get("src") if "content" in inner else None
                label = "".join(inner["navLabel"].itertext()) if "navLabel" in inner else ""
            if target and label.strip():
                titles.setdefault(_target(target, name), " ".join(label.split())[:_TITLE_CHARACTERS])
    return titles


def _entries(root: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The entries of the contents: links of EPUB 3, points of EPUB 2; no numbers of pages, no landmarks."""
    for node in root.iter():
        if _local(node) == "navPoint":
            yield node
        elif _local(node) == "nav" and "toc" in _attribute(node, "type", "toc"):
            yield from (link for link in node.iter() if _local(link) == "a")


def _heading(tree: HTMLTree) -> str:
    """The first heading of a chapter, else nothing."""
    node = tree.body.query_selector(", ".join(_HEADINGS)) if tree.body else None
    return " ".join((node.text or "").split())[:_TITLE_CHARACTERS] if node else ""


def _target(href: str, base: str, decode: bool = True) -> str:
    """The name of the target file of a link in another one; a path from the root is one from the book's."""
    try:
        path = urlsplit(href.strip()).path
    except ValueError:  # an address that is none
        return ""
    path = unquote(path) if decode else path
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), path)).lstrip("/") if path else base


def _local(node: ElementTree.Element) -> str:
    """The name of an element without its namespace."""
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""
