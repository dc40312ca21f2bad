"""The licences stated by a file about itself: by lines of SPDX, in the comments at its beginning, by a variable.

    # SPDX-License-Identifier: MIT                         both lines hold: MIT AND GPL-3.0-or-later
    # SPDX-License-Identifier: GPL-3.0-or-later
    // Licensed under the Elastic License 2.0; you may ..  Elastic-2.0
    # SPDX-License-Identifier: MIT                         MIT AND LicenseRef-stated-For-non-commercial-use-only
    # For non-commercial use only.
    __license__ = "GPLv3"                                  GPL-3.0-only
    # governed by a BSD-style license, see the LICENSE     nothing: it is the repository's

What is stated is recognised, or stated and unknown; all statements hold together. A sentence naming what a line of SPDX
states says nothing more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from spark_jobs.sources.licences.expressions import UNKNOWN, ids_in, is_recognised, joined, unknown
from spark_jobs.sources.licences.names import families, licence_named, says_nothing, stated

_CHARACTERS = 20_000  # of the comment that a file begins with
_WORDS = 12  # of a name in a sentence

_TAGS: Final = ("SPDX-Lic", "spdx-lic", "Spdx-Lic")  # to look for, before the pattern
_TAG = re.compile(r"(?i)SPDX-Licen[cs]e-Identifier[ \t]*(?P<colon>[:=]?)(?P<value>(?:(?!SPDX-Licen[cs]e-Id)[^\n])*)")
_IGNORED = re.compile(r"REUSE-IgnoreStart.*?(?:REUSE-IgnoreEnd|\Z)", re.DOTALL)
_QUOTES_OF_COMMENTS = re.compile(
    r"""[\s{,]*(?:[A-Za-z]{0,2}(?:""\"|\'\'\')|["'][ \t]|#'|'?\.?\\+"|"[^"\n]*(?://|comment)[^"\n]*"\s*:\s*")"""
)
_BEGINS_COMMENT = re.compile(r"(?i)(?:\A|//|/\*|<!--|#|--|;)\W*(?:rem|dnl|c|comment)?\W*\Z")
_COMMENT_END = re.compile(r"\*/|-->|\*\)")
_EXPRESSION = re.compile(r".*[\w+)]")
_MAX_LINES = 8  # that an expression goes on in
_MAX_VALUE = 5000  # characters; longer ones are no expression
_UNFINISHED = re.compile(r"(?i)(?:\b(?:and|or|with)|\()$")
_FOLLOWING = re.compile(r"\n([^\n]*)")
_COMMENT_BEGIN = re.compile(r"^[\s/*#;%!-]+")
_PLACEHOLDER = re.compile(r"[{}$<>%\\|\[]")  # a template or a pattern, which states nothing
_VARIABLE = re.compile(r"""(?m)^__licen[cs]e__[ \t]*=[ \t]*[urUR]?(?P<quote>["'])(?P<words>[^"'\n]+)(?P=quote)""")

_LINE_MARK = re.compile(
    r"(?://+|#+(?![a-z])|--+|;+|%+|!+|\*+|'|\"(?!\"\")|(?:REM|rem|dnl|@c|C|\.\\\"|\.\.)(?=\s))[ \t]?"
)
_BLOCKS: Final = (
    *(("/*", "*/"), ("<!--", "-->"), ('"""', '"""'), ("'''", "'''"), ("{-", "-}"), ("(*", "*)"), ("--[[", "]]")),
    *(("=begin", "=end"), ("#|", "|#"), ("{#", "#}"), ("<%--", "--%>"), ("{{!--", "--}}"), ("=pod", "=cut")),
)
_BEFORE_COMMENTS = re.compile(
    r"#!|<\?|<!doctype|['\"]use strict|@charset|package\s|#\s?(?:ifndef|define|pragma|if|include)|from __future__",
    re.IGNORECASE,
)

_TRIGGER = re.compile(r"(?i)licen[cs]e|proprietary|confidential|commerc|public domain|\btrain|\bonly\b")
_UNDER = re.compile(
    r"(?i)\b(?:licen[cs]ed|released|distributed|available|provided|published|governed|covered|modify\s+it|used?|subject(?=\s+to))"
    r"\b[^.;:]{0,40}?(?:\bunder|\bby|(?<=subject )to)\s+(?:both\s+|either\s+)?(?:the\s+|a\s+|an\s+|any\s+)?"
    r"(?:(?:terms?|conditions?|provisions?)(?:\s+(?:and|or)\s+(?:terms?|conditions?))?\s+(?:of|in|from)\s+)?"
    r"(?:both\s+|either\s+)?(?:the\s+|a\s+|an\s+|either:?\s+)?"
    r"|(?:^|\s)(?:[@:]licen[cs]e:?|Licen[cs]e:)\s+"
)
_GNU = re.compile(
    r"(?i)GNU\s+(?P<family>(?:Lesser\s+|Library\s+|Affero\s+)?General\s+Public|Free\s+Documentation)\s+Licen[cs]e"
    r"(?P<rest>.{0,220})"
)
_GNU_VERSION = re.compile(r"(?i)\bv(?:ersion)?\.?\s*([0-9](?:\.[0-9])?)")
_LATER = re.compile(r"(?i)any\s+later\s+version|or\s+(?:any\s+)?(?:later|newer)|\+")
_PROPER = re.compile(
    r"((?:[A-Z0-9][\w.&+'-]*\s+){1,8}(?:[a-z]+\s+){0,2}?[Ll]icen[cs]e(?:\s+[Aa]greement)?"
    r"(?:,?\s+(?:[Vv]ersion\s*|v\.?\s*)?[0-9][\w.]*)?)"
)
_ANOTHER = re.compile(r"(?i)[\"'”)]*\s*(?:licen[cs]es?)?[\"'”)]*(?:\s*,)?(?:\s+(?P<word>and/or|or|and))?\s+(?:the\s+)?")
_ARTICLES: Final = ("the", "a", "under")  # words that a name may begin with, and does not end with
_CHOICE = re.compile(
    r"(?i)\bat\s+your\s+(?:election|option|choice)|\beither\b|\bchoice\s+of\b|\bchoose\b|\balternatively\b"
)
_GNU_CHOICE = re.compile(r"(?i)(?:\beither\s+)?version\s+[0-9.]+[^.;]{0,40}?\s+or,?\s+\(?at\s+your\s+option\)?")
_ASIDE = re.compile(r"\s*(?:<[^<>]{1,200}>(?:`_{1,2})?|\((?:LICEN|https?:)[^()]{0,200}\))")  # where a text is
_REFERENCE = re.compile(r"(?i)\b(?:same|this|following|below|found|see|file|LICEN[CS]E(?:\.\w+)?|COPYING)\b")
_FOREIGN = re.compile(r"[^.。;]{0,40}?(?P<words>(?![\0-\u024f])[^\W\d_][^.。;]*)")
"""Words of a script other than Latin behind a name, of which nobody here knows what they add."""
_ADDED = re.compile(  # behind the name of a licence
    r"(?i)[\"'”)\s,]*(?:licen[cs]es?\b[\"'”)\s,]*)?\(?(?P<words>(?:with|plus|except|excluding|but|subject\s+to|provided|modified"
    r"|as\s+modified|limited\s+to|for)\b[^.;]*)"
)
_NO_ADDITION = re.compile(
    r"(?i)^provided\s+in|exceptions?\b|in\s+compliance|as[\s-]+is\b|warrant|copyright|^for\s+(?!.*\bonly\b)|^with\s+(?:this|the\s+license|absolutely)"
)
_PUBLIC = re.compile(r"(?i)\bpublic\s+domain\b")
_SENTENCE_END = re.compile(r"[.;](?:\s|\Z)")
_USE = r"(?:use|usage|purposes?)"
_FORBIDDEN = r"(?:prohibited|forbidden|not\s+(?:allowed|granted|licensed|permitted))"
_RESTRICTED = re.compile(
    r"(?i)\b(?:proprietary\s+(?:and|to|software|information|rights)|is\s+proprietary|confidential\s+(?:and|property)"
    rf"|(?:non-?|no\s+|not\s+for\s+|not\s+be\s+used\s+for\s+)(?:any\s+)?commercial\s+{_USE}"
    rf"|(?:academic|evaluation|personal|research)\s+(?:{_USE}\s+)?only"
    rf"|only\s+(?:be\s+used\s+)?(?:for|in)\s+[^.\n]{{0,40}}(?:non-?commercial|academic|educational|personal|research)"
    rf"|commercial\s+(?:{_USE}|redistribution)\b[^.\n]{{0,60}}(?:{_FORBIDDEN}|requires?|restricted)"
    r"|commons\s+clause|unauthori[sz]ed\s+(?:copying|use)"
    rf"|(?:(?:may|must|shall)\s+not|cannot\s+be\s+used|{_FORBIDDEN})\b[^.\n]{{0,200}}\btrain(?:ing)?\b[^.\n]{{0,200}}\b(?:models?|ai|intelligence)"
    rf"|train(?:ing)?\b[^.\n]{{0,100}}\b(?:models?|ai|intelligence)\b[^.\n]{{0,100}}{_FORBIDDEN}"
    r")\b"
)


def header_licence(text: str, of_repository: str | None = None) -> str | None:
    """The expression stated by a file about itself; None where it states none.

    Args:
        text: of the file.
        of_repository: licence of its repository, the meaning of a vague name ("BSD license") where it fits.
    """
    lines = list(dict.fromkeys(_tagged(text)))
    comment = _leading_comment(text)
    names, restrictions, operator = _sentences(comment)
    if "__licen" in text:
        names += [
            licence
            for variable in _VARIABLE.finditer(text)
            if not says_nothing(variable["words"]) and (licence := stated(variable["words"]))
        ]
    if lines:
        of_lines = joined("AND", lines)
        return joined("AND", [*lines, *(name for name in names if not _repeats(name, of_lines)), *restrictions])
    of_all = ids_in(of_repository or "")
    vague = [name for name in names if of_all and name.startswith(UNKNOWN)]
    names = [name for name in names if name not in vague or not all(_repeats(name, other) for other in of_all)]
    return _together(names, restrictions, operator) or _public_domain(comment)


def sentence_licence(comment: str) -> str | None:
    """What sentences state together: the licences named in them and what restricts; None where they state nothing.

    Args:
        comment: their words, a paragraph a line.
    """
    return _together(*_sentences(comment)) or _public_domain(comment)


def _together(names: list[str], restrictions: list[str], operator: str) -> str | None:
    """Names holding together or as a choice, and restrictions, always holding."""
    parts = [joined(operator, names)] if names else []
    return joined("AND", [*parts, *restrictions]) if parts or restrictions else None


def _public_domain(comment: str) -> str | None:
    """The id of these words: they count where nothing else is stated."""
    words = _PUBLIC.search(comment)
    return unknown(words[0]) if words else None


def _repeats(licence: str, expression: str) -> bool:
    """Whether an expression has the licences of another one, or those possibly meant by a vague name."""
    others = ids_in(expression)
    begins = families(licence.removeprefix(UNKNOWN).replace("-", " "))
    if licence.startswith(f"{UNKNOWN}GNU-"):  # a notice without a version
        return any("GPL-" in name for name in others)
    if begins:
        return any(name.startswith(begins) for name in others)
    bases = {_base(name) for name in others}
    return all(_base(name) in bases for name in ids_in(licence))


def _base(name: str) -> str:
    """An id without what it says of later versions."""
    return name.removesuffix("+").removesuffix("-only").removesuffix("-or-later")


def _tagged(text: str) -> Iterator[str]:
    """The expression of each line of SPDX in comments; one ending in the middle goes on in the next line.

    Strings of code state nothing. Behind other words of a comment, as where lines were filled anew, or without its
    colon, a line counts where it is recognised.
    """
    if not any(tag in text for tag in _TAGS):
        return
    text = _IGNORED.sub("", text)
    for line in _TAG.finditer(text):
        before = text[max(text.rfind("\n", 0, line.start()) + 1, line.start() - 500) : line.start()]
        before = before.removeprefix("\ufeff")
        quotes = _QUOTES_OF_COMMENTS.match(before)
        before = before[quotes.end() :] if quotes else before
        if sum(map(before.count, "\"'`")) % 2:  # in a string
            continue
        value, end = _uncommented(line["value"]), line.end()
        for _ in range(_MAX_LINES):
            following = _FOLLOWING.match(text, end) if _UNFINISHED.search(value) or _is_open(value) else None
            if following is None or not following[1].strip() or _TAG.search(following[1]):
                break
            value, end = f"{value} {_uncommented(_COMMENT_BEGIN.sub('', following[1]))}".strip(), following.end()
        licence = stated(value) if value and not _PLACEHOLDER.search(value) else None
        if licence and (is_recognised(licence) or (line["colon"] and _BEGINS_COMMENT.search(before))):
            yield licence


def _uncommented(value: str) -> str:
    """An expression without the end of a comment behind it."""
    expression = _EXPRESSION.match(_COMMENT_END.split(value[:_MAX_VALUE], maxsplit=1)[0])
    return expression[0].strip(" \t\"'") if expression else ""


def _is_open(value: str) -> bool:
    return value.count("(") > value.count(")")


class CommentLine(NamedTuple):
    """A line of a comment before the first line of code.

    Attributes:
        number: of the line in the file, from 0.
        start: its first character in the file.
        end: the character behind it, its line end left out.
        words: what it says, without the marks.
        opens: whether a block begins with it.
    """

    number: int
    start: int
    end: int
    words: str
    opens: bool


def leading_comments(text: str) -> Iterator[CommentLine]:
    """The lines of comments before the first line of code, and blank ones within a comment."""
    closing, end = "", 0
    for number, line in enumerate(text[:_CHARACTERS].splitlines(keepends=True)):
        words, start, end = line.strip(), end, end + len(line)
        begins = next((block for block in _BLOCKS if words.startswith(block[0])), None) if not closing else None
        is_comment = bool(closing or begins)
        if begins is not None:
            words, closing = words.removeprefix(begins[0]), begins[1]
        elif not closing and words:
            mark = _LINE_MARK.match(words)
            if mark is None and not _BEFORE_COMMENTS.match(words):
                return
            words, is_comment = words[mark.end() :] if mark else "", mark is not None
        if closing and closing in words:
            words = words.partition(closing)[0]
            closing = ""
        if is_comment:
            words, end_of_words = words.strip().lstrip("*#/;%").strip(), start + len(line.rstrip("\r\n"))
            yield CommentLine(number, start, end_of_words, words, begins is not None)


def _leading_comment(text: str) -> str:
    """The words of the comments before the first line of code, a paragraph a line."""
    paragraphs, words, last = list[str](), list[str](), -1
    for line in leading_comments(text):
        if line.number != last + 1 or not line.words or _TAG.search(line.words):
            paragraphs.append(" ".join(words))
            words = []
        if line.words and not _TAG.search(line.words):
            words.append(line.words)
        last = line.number
    return "\n".join([*filter(None, paragraphs), " ".join(words)])


def _sentences(comment: str) -> tuple[list[str], list[str], str]:
    """Licences named in sentences, restrictions in them, and the operator between the names."""
    names, restrictions = dict[str, None](), dict[str, None]()
    for words in comment.split("\n"):
        if _TRIGGER.search(words):
            of_paragraph, restricting = _in_paragraph(words)
            names |= dict.fromkeys(of_paragraph)
            restrictions |= dict.fromkeys(restricting)
    clear = [name for name in names if is_recognised(name)]
    kept = [name for name in names if name in clear or not any(_repeats(name, other) for other in clear)]
    operator = "OR" if len(kept) > 1 and _CHOICE.search(_GNU_CHOICE.sub("", comment)) else "AND"
    return kept, list(restrictions), operator


@lru_cache(1024)  # files of a repository have the same notice
def _in_paragraph(words: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The licences named in a paragraph, and the ids of restricting words in it."""
    words = _ASIDE.sub("", words)
    names = list[str]()
    restrictions = [unknown(_sentence_around(words, restricted)) for restricted in _RESTRICTED.finditer(words)]
    for under in _UNDER.finditer(words):
        sentence = words[under.end() : under.end() + 400]
        listed = _listed_names(sentence)
        licence = listed[0] if listed else _gnu(sentence) if _GNU.match(sentence) else _other_name(sentence)
        if licence is not None:
            names.append(licence)
        added = _ADDED.match(sentence, listed[1]) if listed else None
        if added and not _NO_ADDITION.search(added["words"]) and not _RESTRICTED.search(added["words"]):
            restrictions.append(unknown(added["words"]))
        foreign = _FOREIGN.match(sentence, listed[1]) if listed else None
        if foreign:
            restrictions.append(unknown(foreign["words"]))
    if not names and (licence := _gnu(words)) is not None:
        names.append(licence)
    return tuple(names), tuple(restrictions)


def _sentence_around(comment: str, words: re.Match[str]) -> str:
    """The sentence around words."""
    begin = max((end.end() for end in _SENTENCE_END.finditer(comment, 0, words.start())), default=0)
    end = _SENTENCE_END.search(comment, words.end())
    return comment[begin : end.start() if end else len(comment)][:1000]


def _gnu(text: str) -> str | None:
    """The GNU licence of a notice, with the version behind it or before; unknown without one."""
    gnu = _GNU.search(text)
    if gnu is None:
        return None
    before = re.search(r"(?i)version\s+([0-9](?:\.[0-9])?)\s+of\s+the\s+$", text[: gnu.start()])
    version = before or _GNU_VERSION.search(gnu["rest"])
    name = f"GNU {' '.join(gnu['family'].split())} License"
    more = " or later" if _LATER.search(gnu["rest"]) else ""
    return stated(f"{name} v{version[1]}{more}") if version else unknown(name)


def _listed_names(sentence: str) -> tuple[str, int] | None:
    """The licences at the beginning of a sentence, `MIT or GPL Version 2`, and their end; None where there are none."""
    names, operator, rest, end = list[str](), "OR" if _CHOICE.search(sentence) else "AND", sentence, 0
    while (name := _longest_name(rest)) is not None:
        licence, length = name
        names.append(licence)
        end = len(sentence) - len(rest) + length
        another = _ANOTHER.match(rest, length)
        if another is None or not another[0].strip(" \"'”)"):
            break
        operator = "OR" if another["word"] and "or" in another["word"].lower() else operator
        rest = rest[another.end() :]
    return (joined(operator, names), end) if names else None


def _longest_name(text: str) -> tuple[str, int] | None:
    """The licence named by the most words at the beginning of a text, and their length."""
    for word in reversed([word for word, _ in zip(re.finditer(r"[^\s;]+", text), range(_WORDS), strict=False)]):
        words = text[: word.end()].rstrip(",.;:)")
        licence = licence_named(words.strip("\"'“”`<(")) if word[0].lower() not in _ARTICLES else None
        if licence is not None:
            return licence, len(words)
    return None


def _other_name(sentence: str) -> str | None:
    """The words of the unrecognised licence at the beginning of a sentence; None where it names none."""
    vague = re.match(r"(?i)([\w-]+?)(?:[- ]style)?\s+licen[cs]e\b", sentence)
    if vague and families(vague[1]):
        return None if _REFERENCE.search(sentence[vague.end() :]) else unknown(vague[0])
    proper = _PROPER.match(sentence)
    return unknown(proper[0]) if proper else None
