"""Extract prose from Python distributions: the docstring of a module, and the long description in core metadata.

A docstring is found without parsing the module: tokens are read up to the end of the first statement, and only that is
parsed. So a large module costs no more than a small one, and a syntax error after the docstring does no harm.
"""

from __future__ import annotations

import ast
import email
import inspect
import io
import re
import tokenize

from spark_jobs.sources.encodings.decoding import decode
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Reason, Refusal
from spark_jobs.threads import without_warnings

_FOLD = re.compile(r"\n(?: {8}\|?|\t)")
_BEFORE_A_STATEMENT = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING)


def module_docstring(_reader: str, data: bytes, _source: object) -> Extracted | Refusal:
    """The docstring of a Python module with its indentation removed (PEP 257)."""
    decoded = decode(data, declares_encoding=True)
    if isinstance(decoded, Refusal):
        return decoded
    try:
        statement = _first_statement(decoded.text)
        if statement is None:
            return Refusal(Reason.NO_DOCSTRING, "the module does not start with a string")
        with without_warnings():  # Python warns of invalid escapes in the sources it parses
            tree = ast.parse(statement)
    except (SyntaxError, tokenize.TokenError, ValueError, RecursionError, MemoryError) as error:
        return Refusal(Reason.SYNTAX_ERROR, f"the first statement cannot be parsed: {type(error).__name__}")
    docstring = ast.get_docstring(tree, clean=False)
    if docstring is None or not docstring.strip():
        return Refusal(Reason.NO_DOCSTRING, "the module does not start with a string that says anything")
    return _extracted(inspect.cleandoc(docstring))


def long_description(_reader: str, data: bytes, _source: object) -> Extracted | Refusal:
    """The long description in a METADATA or PKG-INFO file, with its media type (PEP 566)."""
    decoded = decode(data)
    if isinstance(decoded, Refusal):
        return decoded
    message = email.message_from_string(decoded.text)
    header = message.get("Description")
    body = message.get_payload()
    text = body if isinstance(body, str) and body.strip() else _FOLD.sub("\n", header or "")
    if not text.strip() or text.strip() == "UNKNOWN":
        return Refusal(Reason.EMPTY, "the metadata has no description")
    media_type = (message.get("Description-Content-Type") or "text/x-rst").partition(";")[0].strip()
    return _extracted(text, media_type=media_type)


def _first_statement(text: str) -> str | None:
    """The source of the first statement where it starts with a string or a bracket."""
    source, rows = io.StringIO(text), list[str]()
    start = end = None

    def readline() -> str:
        rows.append(source.readline())
        return rows[-1]

    for token in tokenize.generate_tokens(readline):
        if token.type in _BEFORE_A_STATEMENT:
            continue
        if start is None:
            if token.type != tokenize.STRING and token.string != "(":
                return None
            start = token.start
        if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER) or token.string == ";":
            break
        end = token.end
    return None if start is None or end is None else _cut(rows, start, end)


def _cut(rows: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """The text between two positions (row from 1, column from 0)."""
    first, last = start[0] - 1, end[0] - 1
    if first == last:
        return rows[first][start[1] : end[1]]
    return "".join([rows[first][start[1] :], *rows[first + 1 : last], rows[last][: end[1]]])


def _extracted(text: str, **columns: str | None) -> Extracted | Refusal:
    r"""The text, or a refusal where escapes such as \ud800 put a lone surrogate into it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return Refusal(Reason.UNDECODABLE, f"lone surrogate at character {error.start}: no text in any encoding")
    return Extracted(text, {}, columns)
