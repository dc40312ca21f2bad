"""SPDX's templates of licences as trees of words, and the file of all of them.

    python -m spark_jobs.sources.licences.texts.templates FOLDER

writes the table from a folder `license-list-data` (https://github.com/spdx/license-list-data, under CC0-1.0; the crate
`license` holds it as a registry's package). A template is a list of parts:

    "permission is hereby granted"    required words
    ["o", part, ..]                   optional parts
    ["a", [part, ..], [part, ..]]     one of several lists of parts
    ["b"] ["c"] ["f"] ["d"] ["n"]     the number of an item; notices of copyright; a name or a title; what a program
                                      does, in a line; numbers

SPDX's `match` of a replaceable part is a regular expression. What it allows at will (`.+`) stands for names here, never
for any words: `.+` for the holder also matches a condition more.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from spark_jobs.sources.licences.texts.words import LicenceWords

Part: TypeAlias = "str | list[Any]"

VERSION: Final = "3.29.0"  # of SPDX's list
# Of the table, so that another one is other code.
DIGEST: Final = "ab0bf73e12237449982a457379fd1216a7d453cd9cade466bc2829df0ce243e1"
TABLE: Final = Path(__file__).with_name(f"spdx_{VERSION}.json.xz")
_TAG: Final = re.compile(r'<<(beginOptional|endOptional|var;name=".*?";original="(.*?)";match="(.*?)")>>', re.DOTALL)
_ITEM: Final = re.compile(r"(?m)^[ \t]*(?:\(?(?:\d{1,2}(?:\.\d{1,2})*|[a-z]|[ivx]{1,4})[.)]+)[ \t]+")
_NOTICE: Final = re.compile(r"(?i)(?:\A|\n)\s*Copyright(?: \(C\))?\s*\Z")  # before the holder's name


class LicenceTemplate(NamedTuple):
    """A licence, an exception or a licence's notice.

    Attributes:
        name: the id in force on SPDX's list.
        kind: `text`, `exception` or `notice`.
        parts: what its text consists of.
    """

    name: str
    kind: str
    parts: list[Part]


def read_templates() -> list[LicenceTemplate]:
    """All templates, the preferred one of several with the same text first."""
    return [LicenceTemplate(*row) for row in json.loads(lzma.decompress(TABLE.read_bytes()))]


def parsed(template: str) -> list[Part]:
    """The parts of a template in SPDX's own notation."""
    stack: list[list[Part]] = [[]]
    place = 0
    for tag in _TAG.finditer(template):
        fixed = template[place : tag.start()]
        notice = _NOTICE.search(fixed) if tag[1] not in ("beginOptional", "endOptional") else None
        stack[-1] += _fixed(fixed[: notice.start()] if notice else fixed)
        place = tag.end()
        if tag[1] == "beginOptional":
            stack.append(["o"])
        elif tag[1] == "endOptional":
            optional = stack.pop()
            stack[-1].append(optional)
        else:
            stack[-1] += [["c"]] if notice else _replaceable(tag[2], tag[3])
    stack[-1] += _fixed(template[place:])
    if len(stack) > 1:
        raise ValueError(f"templates: a template has {len(stack) - 1} optional parts without an end")
    return stack[0]


def _fixed(text: str) -> list[Part]:
    """Required words; the numbers of items at the begin of lines may differ."""
    parts: list[Part] = []
    place = 0
    for item in _ITEM.finditer(text):
        parts += [_words(text[place : item.start()]), ["b"]]
        place = item.end()
    return [part for part in [*parts, _words(text[place:])] if part]


def _words(text: str) -> str:
    return " ".join(LicenceWords(text).words)


def _replaceable(original: str, match: str) -> list[Part]:
    """The original of a replaceable part, or what its expression allows."""
    words = _words(original)
    if words.startswith("one line to give the"):
        return [["o", ["d"]], ["o", words]]
    if match == ".{0,20}":
        is_number = len(words) < 8 and re.fullmatch(r"(?:[0-9a-z]{0,4} ?)*", words)
        return [["b"]] if is_number else [["a", [["b"]], [words]]]
    if match == ".{0,5000}":
        return [["a", [["c"]], [words]]] if words else [["c"]]
    allowed = _allowed(match)
    options: list[list[Part]] = allowed[0][1:] if len(allowed) == 1 and allowed[0][0] == "a" else [allowed]  # type: ignore[assignment]
    options = [option for k, option in enumerate(options) if option not in options[:k]]
    fixed: list[Part] = [words] if words else []
    return fixed if options == [fixed] else [["a", *(option for option in options if option != fixed), fixed]]


def _allowed(match: str) -> list[Part]:
    """The parts allowed by a regular expression."""
    import re._parser as parser  # type: ignore[import-not-found]  # the standard library's own reader of expressions

    return _of_tokens(parser.parse(match, re.DOTALL))


def _of_tokens(tokens: Iterable[tuple[Any, Any]]) -> list[Part]:
    parts: list[Part] = []
    fixed = ""
    for operator, argument in tokens:
        name = str(operator)
        if name == "LITERAL":
            fixed += chr(argument)
        elif name == "IN" and (character := _equal_characters(argument)) is not None:
            fixed += character
        else:
            more = _of_token(name, argument)
            parts += [_words(fixed), *more] if more else []
            fixed = "" if more else f"{fixed} "
    return [part for part in [*parts, _words(fixed)] if part]


def _of_token(name: str, argument: Any) -> list[Part]:
    if name == "ANY":
        return []
    if name == "SUBPATTERN":
        return _of_tokens(argument[3])
    if name == "BRANCH":
        return [["a", *(_of_tokens(branch) for branch in argument[1])]]
    if name == "MAX_REPEAT":
        return _repeated(*argument)
    if name == "IN":
        return [["a", *([_words(chr(value))] for _, value in argument)]]
    raise ValueError(f"templates: cannot read {name} of an expression")


def _equal_characters(choice: Any) -> str | None:
    """A character for several, where they are equal as words."""
    if any(str(kind) != "LITERAL" for kind, _ in choice):
        return None if any(str(kind) in ("NEGATE", "RANGE") for kind, _ in choice) else " "
    letters = {_words(chr(value)) for _, value in choice} - {""}
    return " " if not letters else letters.pop() if len(letters) == 1 else None


def _repeated(least: int, most: int, tokens: Any) -> list[Part]:
    pattern = list(tokens)
    name, argument = str(pattern[0][0]), pattern[0][1]
    if len(pattern) == 1 and name in ("ANY", "NOT_LITERAL"):
        return [["f"]] if least else [["o", ["f"]]]
    if len(pattern) == 1 and name == "IN" and any(str(kind) == "NEGATE" for kind, _ in argument):
        return [["f"]]
    if "RANGE" in str(pattern):
        return [["n"]] if least else [["o", ["n"]]]
    inner = _of_tokens(pattern)
    return inner if not inner or least else [["o", *inner]]


def _official(folder: Path) -> Iterator[LicenceTemplate]:
    """The templates of SPDX's list: ids in force alone."""
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("json/details/*.json"))]
    for row in rows:
        if not row["isDeprecatedLicenseId"]:
            yield LicenceTemplate(row["licenseId"], "text", parsed(row["standardLicenseTemplate"]))
            if header := row.get("standardLicenseHeaderTemplate"):
                yield LicenceTemplate(row["licenseId"], "notice", parsed(header))
    for path in sorted(folder.glob("json/exceptions/*.json")):
        row = json.loads(path.read_text())
        if not row["isDeprecatedLicenseId"]:
            yield LicenceTemplate(row["licenseExceptionId"], "exception", parsed(row["licenseExceptionTemplate"]))


def _preference(template: LicenceTemplate) -> tuple[bool, int, str, str]:
    """Of ids with the same text the one with the fewest grants goes first, of these the shortest."""
    return (template.name.endswith("-or-later"), len(template.name), template.name, template.kind)


if __name__ == "__main__":
    distinct: dict[str, LicenceTemplate] = {}
    for template in sorted(_official(Path(sys.argv[1])), key=_preference):
        distinct.setdefault(json.dumps([template.kind, template.parts]), template)
    templates = list(distinct.values())
    table = json.dumps(templates, ensure_ascii=False, separators=(",", ":")).encode()
    TABLE.write_bytes(lzma.compress(table, preset=9 | lzma.PRESET_EXTREME))
    digest = hashlib.sha256(TABLE.read_bytes()).hexdigest()
    print(f"{len(templates)} templates, {TABLE.stat().st_size} bytes, DIGEST {digest}")  # noqa: T201  # a command
