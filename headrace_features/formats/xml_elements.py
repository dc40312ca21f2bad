"""Read the elements of one name in an XML file as records, in bounded memory: dumps of 100 GB are read as they come.

    xml_element: page, text_column: revision/text, id_column: id, metadata_columns: [title, revision/@sha1]

A path leads down from the element; each step is a name as the file has it, with its prefix (`dc:title`) or without
(`title` is both), and the last may be an attribute (`@sha1`). What is found is all text below. A path that several
elements have gives them all: a text with a blank line between them, a JSON list elsewhere.

The parser is Python's expat. It reads no other file and expands nothing here: an entity of HTML (`&eacute;`) or one
declared as at most 1,000 plain characters is those characters, and an element that needs any other is refused, as is
one having an entity without declaration in a read attribute. The elements behind it are read, whatever the
file says of its declarations. Documents may stand one behind the other, each with declarations and an encoding of its
own; a broken one costs what is left of it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any
from xml.parsers import expat

import pyarrow as pa

from headrace_features.formats.xml_text import ElementText
from spark_jobs.sources.config.file_reading import FileReading
from spark_jobs.sources.opening.streams import Stream
from spark_jobs.sources.records.records import Record, RecordFile, Refused, usable_record
from spark_jobs.sources.refusals import Reason, Refusal, first_line

_CHUNK_BYTES = 1 << 16
_STANDALONE = re.compile(rb"""(<\?xml\s[^>]*?)standalone\s*=\s*(?:"yes"|'yes')""")
_BLANKS = re.compile(rb"\A(?:[ \t\r\n]\0|\0[ \t\r\n]|[ \t\r\n])*")  # in UTF-16 too
_HEAD_BYTES = 8  # by which a parser tells the encoding
_DECLARATION = re.compile(
    rb"(?:\xef\xbb\xbf)?<\?xml[ \t\r\n]|(?:\xff\xfe)?<\0\?\0x\0m\0l\0[ \t\r\n]\0|"
    rb"(?:\xfe\xff)?\0<\0\?\0x\0m\0l\0[ \t\r\n]"
)
_DECLARATION_BYTES = 14
_NAME_BYTES = 2000
_TAG = re.compile(rb"""<(?:[^'">]|"[^"]*"|'[^']*')*""")
_QUOTED = re.compile(rb"""=\s*("[^"]*"|'[^']*')""")
_NAMED = re.compile(rb"&(?!(?:amp|lt|gt|quot|apos);)([^#;&<\s]+);")
_TOKEN_BYTES = 4 << 20  # a tag or comment that is longer hides where the next element begins
_DEPTH = 1000
_ENTITY_CHARACTERS = 1000
_ELEMENT_CHARACTERS = 16  # that an element is counted for
_PATHS = 4096  # different paths whose columns are remembered
_OTHER_CHARACTERS = 1 << 20  # beside the text


class _FileFaultError(Exception):
    """A fault ending the reading of the file."""


class _Elements:
    """Handlers of the parser, and their completed records."""

    def __init__(self, source: FileReading, max_bytes: int) -> None:
        self._parser: Any = None
        self._done: list[Record | Refused] = []
        self.is_complete = False  # the document's outermost element has ended
        self.number = 0
        self.unread: str | None = None  # an entity between elements, which is not expanded
        self._source, self._max_bytes = source, max_bytes
        self._text = source.body_column or "."
        columns = dict.fromkeys((*source.mapped_columns, *([] if source.body_column else ["."])))
        self._wanted = {column: tuple(step for step in column.split("/") if step != ".") for column in columns}
        self._names: list[str] = []  # of all open elements
        self._depth = 0  # at which the record's element is, 0 outside
        self._open: list[tuple[int, ElementText]] = []  # texts that are being read, with the depth of their element
        self._fields: dict[str, list[ElementText]] = {}
        self._size = 0
        self._refusal: Refusal | None = None
        self._columns: dict[tuple[str, ...], list[str]] = {}
        self._entities: dict[str, str | None] = {}

    def begin(self, parser: expat.XMLParserType) -> None:
        """A document begins."""
        self._parser, self._names, self._open, self._entities = parser, [], [], {}
        self._depth, self.is_complete, self._refusal = 0, False, None

    def take(self) -> list[Record | Refused]:
        """The complete records, each once."""
        done, self._done = self._done, []
        return done

    def broken(self, refusal: Refusal) -> Refused:
        """The refusal of the record, or of the document without one, that is broken."""
        self.number += not self._depth
        return Refused(self.number, refusal)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        self._names.append(name)
        if len(self._names) > _DEPTH:
            raise _FileFaultError(f"elements are nested more than {_DEPTH} deep")
        if not self._depth:
            if not _is_named(name, self._source.xml_element or ""):
                return
            self._depth, self.number = len(self._names), self.number + 1
            self._fields, self._size, self._refusal = {}, 0, None
        path = tuple(self._names[self._depth :])
        for _, text in self._open:
            text.start(name, attributes)
        if self._open:
            self._count(" " * _ELEMENT_CHARACTERS)
        for column in self._columns_at(path):
            self._open.append((len(self._names), self._value(column)))
        read = {key: mapped for key in attributes if (mapped := self._columns_at((*path, f"@{key}")))}
        for key, columns in read.items():
            for column in columns:
                self._value(column).characters(attributes[key])
                self._count(attributes[key])
        if read and (lost := self._lost_entity([name in read for name in attributes])):
            self._refuse(Refusal(Reason.BAD_RECORD, f"entity &{lost:.50}; in an attribute has no declaration"))

    def _lost_entity(self, read: Sequence[bool]) -> str | None:
        """The name of an entity without declaration (the parser leaves it out) in attributes of this tag.

        Args:
            read: whether a column has the attribute, in the order of the tag.
        """
        tag = _TAG.match((self._parser.GetInputContext() or b"").replace(b"\0", b""))
        values = compress(_QUOTED.findall(tag[0] if tag else b""), read)
        names = (name.decode(errors="replace") for value in values for name in _NAMED.findall(value))
        return next((name for name in names if name not in self._entities), None)

    def end(self, _: str) -> None:
        """An element ends; with the record's own, the record is complete."""
        while self._open and self._open[-1][0] == len(self._names):
            self._open.pop()
        for value in self._open:
            value[1].end()
        if self._depth == len(self._names):
            self._depth = 0
            self._done.append(self._record())
            self._fields = {}
        self._names.pop()
        self.is_complete = not self._names

    def characters(self, data: str) -> None:
        """Text between tags."""
        if self._open:
            self._count(data)
            for _, text in self._open:
                text.characters(data)

    def declared(self, name: str, is_parameter: int, value: str | None, *_: object) -> None:
        """An entity is declared, with a value or somewhere else."""
        for other in _NAMED.findall((value or "").encode()):
            replacement = self._entities.get(other.decode())
            value = (
                value and replacement and value.replace(f"&{other.decode()};", replacement)[: _ENTITY_CHARACTERS + 1]
            )
        plain = value is not None and len(value) <= _ENTITY_CHARACTERS and not set("&<") & set(value)
        if not is_parameter:
            self._entities.setdefault(name, value if plain else None)

    def other(self, data: str) -> None:
        """Skip comments; give an entity such as `&eacute;` as its text, or refuse the record where it is not known."""
        if not data.startswith("&") or (self._depth and not self._open):
            return
        name = data[1:-1]
        text = self._entities[name] if name in self._entities else html.entities.html5.get(f"{name};")
        if not self._depth:
            self.unread = self.unread or (f"entity &{name:.50}; between elements" if text is None else None)
        elif text is None:
            self._refuse(Refusal(Reason.BAD_RECORD, f"entity &{name:.50}; is neither known nor a few plain characters"))
        else:
            self.characters(text)

    def _columns_at(self, path: tuple[str, ...]) -> list[str]:
        """Columns of this path."""
        if path not in self._columns:
            if len(self._columns) >= _PATHS:
                self._columns.clear()
            self._columns[path] = [
                column
                for column, steps in self._wanted.items()
                if len(steps) == len(path) and all(map(_is_named, path, steps))
            ]
        return self._columns[path]

    def _value(self, column: str) -> ElementText:
        """Begin one more value of a column."""
        text = ElementText()
        self._fields.setdefault(column, []).append(text)
        return text

    def _count(self, data: str) -> None:
        """Count held characters; a record with too many is refused."""
        self._size += len(data)
        if self._size > self._max_bytes + _OTHER_CHARACTERS:
            self._refuse(Refusal(Reason.TOO_LARGE, f"more than {self._max_bytes} bytes, the max_document_bytes"))

    def _refuse(self, refusal: Refusal) -> None:
        """Refuse the open record, and drop what was read of it."""
        self._refusal = self._refusal or refusal
        self._open, self._fields, self._size = [], {}, 0

    def _record(self) -> Record | Refused:
        """The record just ended."""
        if self._refusal is not None:
            return Refused(self.number, self._refusal)
        texts_by_column = {column: [value.text() for value in values] for column, values in self._fields.items()}
        if self._text not in texts_by_column:
            detail = f"no element {self._text!r} in {self._source.xml_element!r}"
            return Refused(self.number, Refusal(Reason.MISSING_COLUMN, detail))
        fields: dict[str, Any] = {
            name: texts[0] if len(texts) == 1 else texts for name, texts in texts_by_column.items()
        }
        return usable_record(
            self.number, "\n\n".join(texts_by_column[self._text]), fields, self._source, self._max_bytes
        )


def read_xml(file: RecordFile) -> Iterator[Record | Refused]:
    """Records of a file; see `xml_records`."""
    return xml_records(file.plain(), file.source, file.max_bytes)


def xml_records(stream: Stream, source: FileReading, max_bytes: int) -> Iterator[Record | Refused]:
    """The elements `xml_element` of a file, numbered from 1; what is inside of one is no record of its own.

    Args:
        stream: the file, decompressed.
        source: the name of the element, and the mapping of what is in it.
        max_bytes: longest text in UTF-8.
    """
    elements = _Elements(source, max_bytes)
    document: _Document | None = _Document(stream, elements, b"", 0)
    while document is not None:
        yield from document.records()
        document = _Document(stream, elements, document.rest, document.line_count) if document.rest else None
    if elements.unread is not None:
        detail = f"{elements.unread} is not expanded; write what it stands for into the file"
        yield Refused(None, Refusal(Reason.BAD_RECORD, detail))


class _Document:
    """One of several documents behind one another in a file.

    `rest` is what was read behind it, and `line_count` the lines of the file before it, then before what is behind it.
    """

    def __init__(self, stream: Stream, elements: _Elements, head: bytes, line_count: int) -> None:
        self._stream, self._elements, self._window, self.rest = stream, elements, head, b""
        self.line_count = line_count
        self._parser = parser = expat.ParserCreate()
        parser.UseForeignDTD(True)  # whatever is declared, more may be elsewhere: an unknown entity ends no file
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = elements.start, elements.end
        parser.CharacterDataHandler, parser.EntityDeclHandler = elements.characters, elements.declared
        parser.DefaultHandler = elements.other  # with it, expat does not expand what a file declares
        elements.begin(parser)

    def records(self) -> Iterator[Record | Refused]:
        """Its records, and what ended it where that was no end."""
        elements, parser, fed_bytes = self._elements, self._parser, 0
        try:
            chunk, self._window = self._head(), b""
            chunk = _STANDALONE.sub(lambda match: match[1].ljust(len(match[0])), chunk, count=1)  # else an
            while True:  # unknown entity would end a document that stands alone
                self._window, fed_bytes = self._window + chunk, fed_bytes + len(chunk)
                parser.Parse(chunk, not chunk)
                yield from elements.take()
                self._window = self._window[len(self._window) - (fed_bytes - parser.CurrentByteIndex) :]
                if len(self._window) > _TOKEN_BYTES:
                    raise _FileFaultError(f"a tag, comment or instruction has more than {_TOKEN_BYTES >> 20} MB")
                if not chunk:
                    return
                chunk = self._stream.read(_CHUNK_BYTES)
        except (expat.ExpatError, _FileFaultError, OSError, pa.ArrowException) as error:
            yield from elements.take()
            damaged = isinstance(error, OSError | pa.ArrowException)
            line = self.line_count + parser.CurrentLineNumber
            if isinstance(error, expat.ExpatError):
                behind = self._window[_unread(self._window, parser.ErrorByteIndex - (fed_bytes - len(self._window))) :]
                self.line_count = line - 1
                if elements.is_complete and _BLANKS.sub(b"", behind):
                    self.rest = behind
                    return
                self.rest = self._next_document(behind)
            where = f"breaks off or is not XML in line {line}"
            detail = f"{where}: {first_line(error).partition(': line ')[0]}; elements before it are read"
            if self.rest:
                yield elements.broken(Refusal(Reason.BAD_RECORD, detail))
            else:
                yield Refused(None, Refusal(Reason.CORRUPT_ARCHIVE if damaged else Reason.CORRUPT_FILE, detail))
        except (LookupError, ValueError) as error:  # of the encoding that the file declares
            detail = f"{first_line(error)}; save the file as UTF-8"
            self.rest = self._next_document(self._window[5:])
            refusal = Refusal(Reason.UNDECODABLE, detail)
            yield elements.broken(refusal) if self.rest else Refused(None, refusal)

    def _head(self) -> bytes:
        """The first bytes of the document, without the blanks before it."""
        head = self._window
        while len(start := _BLANKS.sub(b"", head)) < _HEAD_BYTES and (chunk := self._stream.read(_CHUNK_BYTES)):
            if not start and len(head) % 2 == 0:
                self.line_count += head.count(b"\n")
                head = b""
            head += chunk
        self.line_count += head[: len(head) - len(start)].count(b"\n")
        return start

    def _next_document(self, behind: bytes) -> bytes:
        """What is read from the declaration of the next document on, empty where there is none."""
        while (start := _DECLARATION.search(behind)) is None:
            try:
                chunk = self._stream.read(_CHUNK_BYTES)
            except (OSError, pa.ArrowException):  # the file is refused anyway, for the fault before
                return b""
            if not chunk:
                return b""
            self.line_count += behind[:-_DECLARATION_BYTES].count(b"\n")
            behind = behind[-_DECLARATION_BYTES:] + chunk
        self.line_count += behind[: start.start()].count(b"\n")
        return behind[start.start() :]


def _unread(data: bytes, fault: int) -> int:
    """Where begins what is no part of a document in UTF-16, where two letters of UTF-8 may have been read as one."""
    ends = {pair for end in b"> \t\r\n" for pair in (bytes((end, 0)), bytes((0, end)))}
    starts = range(fault := max(0, fault), max(1, fault - _NAME_BYTES), -2)
    return next((start for start in starts if data[start - 2 : start] in ends), fault)


def _is_named(name: str, wanted: str) -> bool:
    """Whether a name in the file is the wanted one, perhaps given without the prefix."""
    is_attribute = name.startswith("@")
    local = name.rpartition(":")[2]
    return name == wanted or ("@" + local.removeprefix("@") if is_attribute else local) == wanted
