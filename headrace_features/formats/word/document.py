"""Extract the text of a Word document: that of its paragraphs and tables in order, then that of its notes.

Each is a line, with a tab between cells, as if every tracked change were accepted. Text stands wherever a run can: in
insertions, fields, content controls, text boxes; foreign parts (`altChunk`) land in their place. What is deleted, moved
away or hidden is left out, and so are headers, footers, comments and codes of fields.

This module is imported in the child of parser_process.py; pages in foreign parts need the extra `office`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from xml.etree.ElementTree import Element

from headrace_features.formats.raised import scripted, with_scripts
from headrace_features.formats.word.chunks import chunk_text
from headrace_features.formats.word.fields import Fields, field_text
from headrace_features.formats.word.formulas import linear
from headrace_features.formats.word.numbering import Numbering
from headrace_features.formats.word.package import Package, opened
from headrace_features.formats.word.styles import Look, Styles, is_on
from headrace_features.formats.word.symbols import is_of_symbols, symbol
from spark_jobs.sources.languages import EXTRACTED_BY
from spark_jobs.sources.records.extracted import Extracted, cleaned_facts
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError

_LEFT_OUT: Final = ("w_del", "w_moveFrom")
_CHARACTERS: Final = {"w_tab": "\t", "w_ptab": "\t", "w_br": "\n", "w_cr": "\n", "w_noBreakHyphen": "-"}
_LEAVES: Final = (*_CHARACTERS, "w_t", "a_t", "m_oMath", "w_sym", "w_altChunk")
_NOTES: Final = ("footnotes", "endnotes")
_CHUNK_DEPTH = 3
_CREATED = re.compile(r"[^\s]+")


def extract_docx(data: bytes) -> Extracted | Refusal:
    """The paragraphs, tables and notes of a Word document, a line each; cells of a row have a tab between them."""
    package = opened(data)
    if isinstance(package, Refusal):
        return package
    left_out = Counter[str]()
    try:
        text = _text(package, left_out)
        facts = _facts(package)
    except RefusedError as error:
        return error.refusal
    if isinstance(text, Refusal):
        return text
    if not text:
        return Refusal(Reason.EMPTY, "the document has no text" + "".join(f"; {name}" for name in left_out))
    counts = {name: str(count) for name, count in left_out.items()}
    return Extracted(text, {**facts, **counts, EXTRACTED_BY: "headrace (Office Open XML)"})


def _text(package: Package, left_out: Counter[str], depth: int = 0) -> str | Refusal:
    """The text of an open document; `left_out` counts what is not read."""
    main = package.part("officeDocument")
    root = package.xml(main)
    if main is None or root is None:
        return Refusal(Reason.CORRUPT_FILE, "no Word document: its package has no main part")
    if root.tag != "w_document":
        kind = package.content_type(main) or f"an element {root.tag}"
        return Refusal(Reason.CORRUPT_FILE, f"no Word document: its main part is {kind}")
    parts = {target.kind: target.part for target in package.targets(main)}
    styles = Styles(package.xml(parts.get("styles")))
    body = _Body(package, styles, Numbering(package.xml(parts.get("numbering")), styles), left_out, depth)
    pieces = list[str]()
    body.write_part(main, root, [root], pieces)
    for part in filter(None, map(parts.get, _NOTES)):
        notes = package.xml(part)
        if notes is not None:  # others than normal ones are lines between notes and text
            normal = (note for note in notes if note.get("w_type", "normal") == "normal")
            body.write_part(part, notes, normal, pieces)
    return with_scripts("".join(pieces)).strip()


def _facts(package: Package) -> dict[str, str]:
    """Title, language and date of creation, as far as the document states them."""
    about = package.xml(package.part("core-properties"))
    stated = {} if about is None else {item.tag: item.text for item in about}
    created = _CREATED.search(stated.get("created") or "")
    return cleaned_facts(
        {
            "title": stated.get("title"),
            "language": stated.get("language"),
            "published": created and created[0].removesuffix("Z") + "+00:00" * created[0].endswith("Z"),
        }
    )


class _Body:
    """Writes the text of a document's elements; paragraphs of lists are counted on the way."""

    def __init__(
        self, package: Package, styles: Styles, numbering: Numbering, left_out: Counter[str], depth: int
    ) -> None:
        self._package, self._styles, self._numbering = package, styles, numbering
        self._left_out, self._depth = left_out, depth
        self._targets = dict[str, str | None]()
        self._fields = Fields(())
        self._paragraph: Element | None = None
        self._table: str | None = None
        self._look = Look()
        self._writers: dict[str, Callable[[Element, list[str]], None]] = {
            "w_r": self._write_run,
            "w_p": self._write_paragraph,
            "w_tbl": self._write_table,
            "w_tr": self._write_row,
            "w_sym": self._write_symbol,
            "w_ruby": self._write_ruby,
            "w_altChunk": self._write_chunk,
            "mc_AlternateContent": self._write_first,
            **dict.fromkeys(("chart", "relIds"), self._write_drawn),
        }

    def write_part(self, part: str, root: Element, elements: Iterable[Element], pieces: list[str]) -> None:
        """Append the text of elements of a part with fields and relationships of its own."""
        self._targets = {target.id: target.part for target in self._package.targets(part)}
        self._fields = Fields(root.iter())
        for element in elements:
            self.write(element, pieces)

    def write(self, element: Iterable[Element], pieces: list[str]) -> None:
        """Append the text in an element; a paragraph and a row of a table are a line each."""
        for child in element:
            tag = child.tag
            if tag in _LEAVES and self._fields.is_code(child):
                continue
            if tag in self._writers:
                self._writers[tag](child, pieces)
            elif tag in ("w_t", "m_t", "a_t"):
                pieces += filter(None, [self._shown(child.text or "")])
            elif tag in _CHARACTERS:
                pieces.append(_CHARACTERS[tag])
            elif tag == "m_oMath":
                pieces += filter(None, [linear(child)])
            elif tag == "w_fldChar":
                pieces += filter(None, [self._fields.drawn(child)])
            elif tag == "w_fldSimple" and not len(child):
                pieces += filter(None, [field_text(child.get("w_instr", ""))])
            elif tag == "textpath":
                pieces += filter(None, [child.get("string", "")])
            elif tag not in _LEFT_OUT and not tag.endswith("Pr"):  # properties hold no text, but marks such as tabs
                if tag in ("w_txbxContent", "a_p"):
                    _begin_line(pieces)
                self.write(child, pieces)
                if tag == "a_p":
                    _begin_line(pieces)

    def _write_row(self, row: Element, pieces: list[str]) -> None:
        """Append a row of a table, unless it is deleted or hidden."""
        if not (_is_deleted(row, "w_trPr") or _is_hidden(row)):
            _begin_line(pieces)
            pieces += ["\t".join(self._cells(row)), "\n"]

    def _write_table(self, table: Element, pieces: list[str]) -> None:
        """Append a table; its runs have its style below those of their own."""
        style = table.find("w_tblPr/w_tblStyle")
        outer, self._table = self._table, None if style is None else style.get("w_val")
        self.write(table, pieces)
        self._table = outer

    def _write_drawn(self, element: Element, pieces: list[str]) -> None:
        """Append what a chart or a diagram says, from a part of its own, a line a paragraph."""
        root = self._package.xml(self._targets.get(element.get("r_dm") or element.get("r_id") or ""))
        for paragraph in () if root is None else root.iter("a_p"):
            self.write([paragraph], pieces)

    def _write_paragraph(self, paragraph: Element, pieces: list[str]) -> None:
        """Append a paragraph with its number; a deleted or hidden end lets the next one go on in this line."""
        outer = self._paragraph, self._look
        self._paragraph, self._look = paragraph.find("w_pPr"), Look()
        start = len(pieces)
        begins = not pieces or pieces[-1].endswith("\n")
        self.write(paragraph, pieces)
        mark = None if self._paragraph is None else self._paragraph.find("w_rPr")
        is_hidden = self._styles.of_run(mark, self._paragraph, self._table).is_hidden
        if begins and (len(pieces) > start or not is_hidden) and (label := self._numbering.label(self._paragraph)):
            pieces.insert(start, label)
        if not (is_hidden or _is_deleted(paragraph, "w_pPr", "w_rPr")):
            pieces.append("\n")
        self._paragraph, self._look = outer

    def _write_run(self, run: Element, pieces: list[str]) -> None:
        """Append a run, unless it is hidden; one at another height between the marks of it."""
        look = self._styles.of_run(run.find("w_rPr"), self._paragraph, self._table)
        if look.is_hidden:
            return
        outer, self._look = self._look, look
        start = len(pieces)
        self.write(run, pieces)
        text = "".join(pieces[start:])
        if look.height and text and "\n" not in text:
            pieces[start:] = [scripted(text, look.height)]
        self._look = outer

    def _shown(self, text: str) -> str:
        """A text as its font shows it; an unknown character of a font of symbols is counted, and left out."""
        if not is_of_symbols(self._look.font):
            return text
        return "".join(self._symbol(ord(character), self._look.font) for character in text)

    def _write_symbol(self, element: Element, pieces: list[str]) -> None:
        """Append a character named by its font and its place there."""
        try:
            code = int(element.get("w_char", ""), 16)
        except ValueError:
            code = 0
        pieces += filter(None, [self._symbol(code, element.get("w_font"))])

    def _symbol(self, code: int, font: str | None) -> str:
        """The character of a font; nothing, and a count, where it is not known."""
        character = symbol(code, font) if code else None
        if character is None:
            self._left_out["symbols_unknown"] += 1
        return character or ""

    def _write_ruby(self, ruby: Element, pieces: list[str]) -> None:
        """Append a text, and its reading in brackets (before it in the file)."""
        self.write(ruby.iterfind("w_rubyBase"), pieces)
        pieces.append("(")
        self.write(ruby.iterfind("w_rt"), pieces)
        pieces.append(")")

    def _write_first(self, alternatives: Iterable[Element], pieces: list[str]) -> None:
        """Append the first of several alternative forms with a text."""
        before = len(pieces)
        for form in alternatives:
            self.write(form, pieces)
            if any(not piece.isspace() for piece in pieces[before:]):
                return
            del pieces[before:]

    def _write_chunk(self, chunk: Element, pieces: list[str]) -> None:
        """Append the text of a foreign part; an unreadable one is counted."""
        part = self._targets.get(chunk.get("r_id", ""))
        data = self._package.read(part) if part else None
        text = None
        if part is not None and data is not None:
            kind = self._package.content_type(part)
            text = self._inner_document(data) if data.startswith(b"PK") else chunk_text(data, kind, part)
        if text is None:
            self._left_out["chunks_unread"] += 1
        elif text.strip():
            _begin_line(pieces)
            pieces += [text.strip("\n"), "\n"]

    def _inner_document(self, data: bytes) -> str | None:
        """The text of a Word document in this one; None of what is none, or too deep."""
        package = opened(data) if self._depth < _CHUNK_DEPTH else None
        if not isinstance(package, Package):
            return None
        try:
            text = _text(package, self._left_out, self._depth + 1)
        except RefusedError:
            return None
        return None if isinstance(text, Refusal) else text

    def _cells(self, element: Iterable[Element]) -> Iterator[str]:
        """The cells of a row, each once however many columns and rows it covers, with single spaces."""
        for child in element:
            if child.tag == "w_tc":
                if child.find("w_tcPr/w_cellDel") is None:
                    pieces = list[str]()
                    self.write(child, pieces)
                    yield " ".join("".join(pieces).split())
            elif child.tag not in _LEFT_OUT:
                yield from self._cells(child)


def _begin_line(pieces: list[str]) -> None:
    """End the begun line, if there is one."""
    if pieces and not pieces[-1].endswith("\n"):
        pieces.append("\n")


def _is_hidden(row: Element) -> bool:
    """Whether a row of a table is hidden."""
    mark = row.find("w_trPr/w_hidden")
    return mark is not None and is_on(mark.get("w_val", "1"))


def _is_deleted(element: Element, *properties: str) -> bool:
    """Whether the end of a paragraph, or a row, is deleted or moved away, by these properties of it."""
    path = "/".join(properties)
    return any(element.find(f"{path}/{tag}") is not None for tag in _LEFT_OUT)
