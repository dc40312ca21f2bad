"""A book is one document: all text of its chapters in the order of reading, what it says of itself, what is lost."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("resiliparse")

from headrace_features.formats.web.epub import extract_epub
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.opening.limits import ArchiveLimits
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Refusal
from tests.tiers import sampled

Configs = Callable[..., DocumentsConfig]
MIB = 1 << 20
CONTAINER = """<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0">
<rootfiles><rootfile full-path="%s" media-type="application/oebps-package+xml"/></rootfiles></container>"""


class Book(NamedTuple):
    """A made book, and what is to be read of it."""

    data: bytes
    chapters: list[str]
    titles: list[str]


def chapter(text: str, title: str = "") -> str:
    """A page of XHTML whose head would empty it as HTML."""
    heading = f"<h2>{title}</h2>" if title else ""
    return (
        '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/>'
        f'<script src="a.js"/></head><body>{heading}<p>{text}</p><p><a id="end"/></p></body></html>'
    )


def packed(files: Mapping[str, str | bytes]) -> bytes:
    """A zip file whose first member is the type of books."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        for name, content in files.items():
            book.writestr(name, content)
    return held.getvalue()


def package(manifest: str, spine: str, metadata: str = "", attributes: str = "", guide: str = "") -> str:
    """A package document."""
    return (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="own">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:opf="http://www.idpf.org/2007/opf">'
        f"{metadata}</metadata><manifest>{manifest}</manifest><spine{attributes}>{spine}</spine>{guide}</package>"
    )


def item(key: str, href: str, kind: str = "application/xhtml+xml", more: str = "") -> str:
    """An entry of the manifest."""
    return f'<item id="{key}" href="{href}" media-type="{kind}" {more}/>'


def ncx(points: list[tuple[str, str]]) -> str:
    """The contents of EPUB 2."""
    inner = "".join(
        f'<navPoint><navLabel><text>{label}</text></navLabel><content src="{to}"/></navPoint>' for to, label in points
    )
    return f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{inner}</navMap></ncx>'


def nav(points: list[tuple[str, str]]) -> str:
    """The contents of EPUB 3."""
    links = "".join(f'<li><a href="{to}">{label}</a></li>' for to, label in points)
    return (
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"><body>'
        f'<nav epub:type="toc"><h1>All that is in the book</h1><ol>{links}</ol></nav>'
        '<nav epub:type="landmarks"><h2>Landmarks</h2><a href="x0.xhtml">Start of it</a></nav></body></html>'
    )


def made_book(seed: int) -> Book:
    """A book of either version in some folder, its files in any order, with contents, notes beside and pictures."""
    rng = random.Random(seed)
    count, folder, is_new = rng.randint(1, 9), rng.choice(["", "OEBPS/", "a b/ü/"]), rng.random() < 0.5
    texts = [f"Chapter text {number} says &amp; tells né {rng.random()}." for number in range(count)]
    names = [rng.choice([f"x{number}.xhtml", f"text/part {number}.html"]) for number in range(count)]
    titles = [rng.choice(["", f"Title {number}"]) for number in range(count)]
    beside = {number for number in range(1, count) if rng.random() < 0.2}
    hrefs = [name.replace(" ", "%20") for name in names]
    order = rng.sample(range(count), count)
    read = [number for number in order if number not in beside] + [number for number in order if number in beside]
    manifest = [item(f"c{number}", hrefs[number]) for number in range(count)]
    marks = ["", ' linear="no"']
    spine = [f'<itemref idref="c{number}"{marks[number in beside]}/>' for number in order]
    files: dict[str, str | bytes] = {
        f"{folder}{names[number]}": chapter(texts[number], titles[number]) for number in range(count)
    }
    points = [(f"{hrefs[number]}#end", f"Label {number}") for number in range(count)]
    guide = ""
    if is_new:
        manifest.append(item("nav", "nav.xhtml", more='properties="nav"'))
        files[f"{folder}nav.xhtml"] = nav(points)
    else:
        manifest += [item("ncx", "toc.ncx", "application/x-dtbncx+xml"), item("nav", "contents.xhtml")]
        links = "".join(f'<p><a href="{to}">{label}</a></p>' for to, label in points)
        files |= {f"{folder}toc.ncx": ncx(points), f"{folder}contents.xhtml": chapter(links, "Contents")}
        guide = '<guide><reference type="toc" href="contents.xhtml"/></guide>'
    spine.insert(rng.randint(0, count), '<itemref idref="nav"/>')
    manifest += [item("cover", "c.png", "image/png"), item("plate", "p.png", "image/png", 'fallback="c0"')]
    files[f"{folder}c.png"] = b"\x89PNG\0"
    spine += ['<itemref idref="cover"/>', '<itemref idref="plate"/>']
    rng.shuffle(manifest)
    attributes = "" if is_new else ' toc="ncx"'
    outer, slash = rng.choice(["", "", "", "book/", "./"]), rng.choice(["/", "/", "/", "\\"])
    shuffled = dict(rng.sample(list(files.items()), len(files)))
    shuffled[f"{folder}b.opf"] = package("".join(manifest), "".join(spine), attributes=attributes, guide=guide)
    shuffled["META-INF/container.xml"] = CONTAINER % f"{folder}b.opf"
    said = [f"{titles[number]}\n\n".lstrip() + texts[number].replace("&amp;", "&") for number in read]
    renamed = {f"{outer}{name}".replace("/", slash): content for name, content in shuffled.items()}
    return Book(packed(renamed), said, [f"Label {number}" for number in read])


def read(data: bytes, max_bytes: int = 100 * MIB) -> Extracted | Refusal:
    """The book with the default limits."""
    return extract_epub(data, "brackets", ArchiveLimits(), max_bytes)


@sampled(8)
@pytest.mark.parametrize("seed", range(30))
def test_a_book_is_its_chapters_in_the_order_of_reading(seed: int) -> None:
    """Whatever the files are called, in whatever order they lie, without contents and landmarks, notes at the end."""
    book = made_book(seed)
    found = read(book.data)
    assert isinstance(found, Extracted), found
    assert found.text == "\n\n".join(book.chapters)
    assert json.loads(found.metadata["headrace.chapters"]) == book.titles
    counts = {name: found.metadata[name] for name in found.metadata if name.startswith("chapter")}
    assert counts == {
        "chapter_count": str(len(book.chapters)),
        "chapters_left_out": "1",
        "chapters_encrypted": "0",
        "chapters_unreadable": "0",
        "chapters_not_well_formed": "0",
    }


def test_what_a_book_says_of_itself() -> None:
    """The book's own identifier first, the date of publication of several, one line each; ampersands as they come."""
    metadata = (
        "<dc:title>Tom & Jerry\n <b/>&eacute;</dc:title><dc:title>Other</dc:title><dc:language>de-AT</dc:language>"
        '<dc:identifier>isbn:1</dc:identifier><dc:identifier id="own">urn:uuid:2</dc:identifier>'
        '<dc:date opf:event="modification">2020</dc:date><dc:date opf:event="creation">1999</dc:date>'
        "<dc:date>2001-02-03</dc:date>"
    )
    data = packed({"b.opf": package(item("a", "a.html"), '<itemref idref="a"/>', metadata), "a.html": chapter("Said.")})
    found = read(data)  # without a container the package document is the one that there is
    assert isinstance(found, Extracted) and found.text == "Said."
    facts = {name: found.metadata[name] for name in ("title", "language", "identifiers", "published")}
    assert facts == {
        "title": "Tom & Jerry é",
        "language": "de-AT",
        "identifiers": "urn:uuid:2, isbn:1",
        "published": "2001-02-03",
    }


def broken(fault: str) -> bytes:
    """A book of three chapters, the second of which has a fault."""
    files: dict[str, str | bytes] = {f"{name}.xhtml": chapter(f"Text of {name}.") for name in ("a", "b", "c")}
    keys = [*"abc"] if fault != "unlisted" else [*"adc"]
    opf = package(
        "".join(item(key, f"{key}.xhtml") for key in "abc"), "".join(f'<itemref idref="{key}"/>' for key in keys)
    )
    if fault == "missing":
        del files["b.xhtml"]
    elif fault == "binary":
        files["b.xhtml"] = b"\0\1\2" * 1000
    elif fault == "html":
        files["b.xhtml"] = "<html><head><title>b</title></head><body><p>Text of b.<br>more & more"
    elif fault == "drm":
        encrypted = '<e:EncryptedData xmlns:e="e"><e:CipherReference URI="%s"/></e:EncryptedData>'
        files["b.xhtml"] = random.Random(0).randbytes(2000)
        files["META-INF/encryption.xml"] = (
            f"<encryption>{encrypted % 'b.xhtml'}{encrypted % 'fonts/f.otf'}</encryption>"
        )
    data = packed({**files, "b.opf": opf, "META-INF/container.xml": CONTAINER % "b.opf"})
    if fault == "checksum":
        at = zipfile.ZipFile(io.BytesIO(data)).getinfo("b.xhtml").header_offset + 30 + len("b.xhtml") + 20
        return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
    return data


@pytest.mark.parametrize("fault", ["missing", "unlisted", "binary", "checksum", "drm", "html"])
def test_a_broken_chapter_costs_itself_and_is_counted(fault: str) -> None:
    """What is encrypted is told from what is damaged; tags that do not match are read as HTML."""
    found = read(broken(fault))
    assert isinstance(found, Extracted), found
    by = {"drm": "chapters_encrypted", "html": "chapters_not_well_formed"}.get(fault, "chapters_unreadable")
    counts = {name: int(found.metadata[name]) for name in found.metadata if name.startswith("chapters_")}
    assert {name for name, count in counts.items() if count} == {by} and counts[by] == 1
    lost = fault != "html"
    assert found.text.replace("\nmore & more", "").split("\n\n") == [
        "Text of a.",
        *([] if lost else ["Text of b."]),
        "Text of c.",
    ]


@pytest.mark.nightly
def test_a_book_that_cannot_be_read_says_why(files_config: Configs, data: Path, landing: Any) -> None:
    """Encrypted as a whole, empty, cut, no book at all, or one that unpacks to more than a document may have."""
    one = {
        "b.opf": package(item("a", "a.xhtml"), '<itemref idref="a"/>'),
        "META-INF/container.xml": CONTAINER % "b.opf",
    }
    lock = '<encryption><CipherReference URI="a.xhtml"/></encryption>'
    files = {
        "good.epub": packed({**one, "a.xhtml": chapter("Good.")}),
        "drm.epub": packed({**one, "a.xhtml": b"\x8a" * 999, "META-INF/encryption.xml": lock}),
        "blank.epub": packed({**one, "a.xhtml": chapter("")}),
        "none.epub": b"Once upon a time.",
        "zip.epub": packed({"a.txt": "no book"}),
        "tags.epub": packed({**one, "b.opf": "<package><manifest>"}),
        "large.epub": packed({**one, "a.xhtml": chapter("ha " * MIB)}),
        "bomb.epub": packed({**one, "a.xhtml": b" " * (64 * MIB)}),
        "cut.epub": packed({**one, "a.xhtml": chapter("Good too.")})[:-90],
    }
    for name, content in files.items():
        (data / name).write_bytes(content)
    documents, arrivals = landing.land(files_config(max_document_bytes=MIB))
    assert {(row["path"], row["content"], row["kind"], row["media_type"]) for row in documents} == {
        ("good.epub", "Good.", "prose", "text/plain"),
        ("cut.epub", "Good too.", "prose", "text/plain"),
    }
    reasons = {row["path"]: row["reason"] for row in arrivals if row["status"] == "rejected"}
    assert reasons == {
        **{"drm.epub": "encrypted", "blank.epub": "empty", "large.epub": "too_large", "bomb.epub": "too_large"},
        **{"none.epub": "corrupt_file", "zip.epub": "corrupt_file", "tags.epub": "corrupt_file"},
    }
    assert not any("headrace/" in (row["detail"] or "") for row in arrivals)


def test_a_book_is_known_by_its_content(files_config: Configs, data: Path, landing: Any) -> None:
    """And lands from an archive as it does alone."""
    book = made_book(1)
    (data / "book").write_bytes(book.data)
    with zipfile.ZipFile(data / "all.zip", "w") as archive:
        archive.writestr("folder/b.epub", book.data)
    documents, _ = landing.land(files_config(unknown="detect"))
    assert {row["path"] for row in documents} == {"book", "all.zip#folder/b.epub"}
    assert {row["content"] for row in documents} == {"\n\n".join(book.chapters)}


def test_a_chapter_of_many_links_is_no_long_work(files_config: Configs, data: Path, landing: Any) -> None:
    """Notes that lead back to chapters are text; whether a page is the contents is told in one pass."""
    notes = "".join(f'<p><a href="a.xhtml#n{number}">{number}</a> A note of some words.</p>' for number in range(5000))
    opf = package(item("a", "a.xhtml") + item("b", "b.xhtml"), '<itemref idref="a"/><itemref idref="b"/>')
    (data / "b.epub").write_bytes(packed({"b.opf": opf, "a.xhtml": chapter("Said."), "b.xhtml": chapter(notes)}))
    ((document,), _) = landing.land(files_config(extract_seconds=5))
    assert document["content"].count("A note of some words.") == 5000


HREFS = {
    "from the root": ("/Text/a.xhtml", "Text/a.xhtml"),
    "from above": ("../Text/a%20b.xhtml", "Text/a b.xhtml"),
    "named with a per cent sign": ("a%20b.xhtml", "OEBPS/a%20b.xhtml"),
    "composed otherwise": ("caf\u00e9.xhtml", "OEBPS/cafe\u0301.xhtml"),
    "in another case": ("A.XHTML", "OEBPS/a.xhtml"),
    "with a place in it": ("a.xhtml#top", "OEBPS/a.xhtml"),
}
KINDS = {"application/xhtml+xml", "application/xhtml+xml; charset=utf-8", "text/plain", "application/octet-stream", ""}


@pytest.mark.parametrize("way", HREFS)
def test_a_chapter_is_told_however_it_is_named(way: str) -> None:
    """Paths of every form, types that say nothing of it, white space around ids, another rendition before."""
    href, name = HREFS[way]
    for kind in sorted(KINDS):
        manifest = f'<item id=" a " href="{href}" media-type="{kind}"/>'
        pictures = package('<item id="i" href="i.jpg" media-type="image/jpeg"/>', '<itemref idref="i"/>')
        first = '<rootfile full-path="a.pdf" media-type="application/pdf"/><rootfile full-path="i.opf"/>'
        files = {
            "META-INF/container.xml": CONTAINER.replace("<rootfiles>", f"<rootfiles>{first}") % "OEBPS/a.opf",
            "i.opf": pictures,
            "OEBPS/a.opf": package(manifest, '<itemref idref="a"/>'),
            name: chapter("The text."),
        }
        book = extract_epub(packed(files), "brackets", ArchiveLimits(), MIB)
        assert isinstance(book, Extracted) and book.text == "The text.", (kind, book)


def test_notes_that_open_are_text() -> None:
    """A note is hidden until its mark is touched; other hidden elements stay so."""
    page = (
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"><body><p>Text.</p>'
        '<aside epub:type="footnote" hidden="hidden">A note.</aside><p hidden="">Hidden.</p></body></html>'
    )
    files = {
        "META-INF/container.xml": CONTAINER % "a.opf",
        "a.opf": package('<item id="a" href="a.xhtml" media-type="application/xhtml+xml"/>', '<itemref idref="a"/>'),
        "a.xhtml": page,
    }
    book = extract_epub(packed(files), "brackets", ArchiveLimits(), MIB)
    assert isinstance(book, Extracted) and book.text.split() == ["Text.", "A", "note."]
