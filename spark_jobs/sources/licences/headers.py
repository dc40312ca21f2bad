"""The licence that a file states about itself, in the comments that it begins with.

    # SPDX-License-Identifier: MIT                         both lines hold: MIT AND GPL-3.0-or-later
    # SPDX-License-Identifier: GPL-3.0-or-later
    // Licensed under the Elastic License 2.0; you may ..  Elastic-2.0
    /* Confidential and proprietary. (c) Example Corp. */  LicenseRef-stated-Confidential-and-proprietary.
    # governed by a BSD-style license, see the LICENSE     nothing: it is the repository's

Lines of SPDX count before sentences. What a line or a sentence states is recognised, or stated and unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from spark_jobs.sources.licences.expressions import UNKNOWN, ids_in, is_recognised, joined, unknown
from spark_jobs.sources.licences.names import families, licence_named, stated

_CHARACTERS = 4096  # of the beginning of a file; the notice of the GPL with its copyright lines has some 900
_WORDS = 12  # of a name in a sentence

_TAG = "SPDX-License-Identifier"
_TAG_LINE = re.compile(
    rf"""(?m)^(?:[^\w\n"'`]*|[ \t]*(?:""\"|'''|"[ \t])[ \t]*|[ \t]*(?i:rem|dnl|c|@c|@comment|::)[ \t]+"""
    rf"""|(?P<words>[ \t]*(?:\*|\#|//)[^\n"'`]*[ \t])){_TAG}:[ \t]*(?P<value>[^\n]*)"""
)
_COMMENT_END = re.compile(r"\s*(?:\*+/|-->|--\}\}|#\}|%>|\*\)|-\}|\]\]|\"\"\"|'''|#|\*\|?|-)+\s*$|\s*\*+/.*$")
_COMMENT_BEGIN = re.compile(r"^[\s/*#;%!-]+")
_PLACEHOLDER = re.compile(r"[{}$<>%\\|\[]")  # a template or a pattern, which states nothing

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

_TRIGGER = re.compile(r"(?i)licen[cs]e|proprietary|confidential|non-?commercial|public domain|\btrain")
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
_CHOICE = re.compile(r"(?i)\bat\s+your\s+(?:election|option|choice)|\beither\b|\bchoice\s+of\b")
_REFERENCE = re.compile(r"(?i)\b(?:same|this|following|below|found|see|file|LICEN[CS]E(?:\.\w+)?|COPYING)\b")
_RESTRICTED = re.compile(
    r"(?i)\b(?:proprietary\s+(?:and|to|software|information|rights)|is\s+proprietary|confidential\s+(?:and|property)"
    r"|non-?commercial\s+(?:use|purposes)|unauthori[sz]ed\s+copying"
    r"|(?:may|must|shall|not|prohibited)\b[^.\n]{0,200}\btrain(?:ing)?\b[^.\n]{0,200}\b(?:models?|ai|intelligence)"
    r"|public\s+domain)\b"
)


def header_licence(text: str, of_repository: str | None = None) -> str | None:
    """The expression that the comments at the beginning of a file state; None where they state none.

    Args:
        text: of the file, of which the first 4,096 characters are read.
        of_repository: licence of its repository, which a vague name ("BSD license") is taken for where it fits.
    """
    head = text[:_CHARACTERS]
    lines = list(_tagged(head)) if _TAG in head else []
    if lines:
        return joined("AND", lines)
    if not _TRIGGER.search(head):
        return None
    comment = _leading_comment(head)
    licence = sentence_licence(comment) if _TRIGGER.search(comment) else None
    if licence is not None and licence.startswith(UNKNOWN) and of_repository is not None:
        begins = families(licence.removeprefix(UNKNOWN).replace("-", " "))
        if begins and all(name.startswith(begins) for name in ids_in(of_repository)):
            return None
    return licence


def _tagged(head: str) -> Iterator[str]:
    """The expression of each line of SPDX; one that ends in the middle goes on in the next line.

    Behind other words of a comment, as where lines were filled anew, it counts where it is recognised.
    """
    for line in _TAG_LINE.finditer(head):
        value, end = _COMMENT_END.sub("", line["value"]).strip().rstrip(".,;"), line.end()
        while re.search(r"(?i)(?:\b(?:and|or|with)|\()$", value) or value.count("(") > value.count(")"):
            following = re.compile(r"\n([^\n]*)").match(head, end)
            if following is None or not following[1].strip():
                break
            more = _COMMENT_END.sub("", _COMMENT_BEGIN.sub("", following[1]))
            value, end = f"{value} {more}".strip(), following.end()
        licence = stated(value) if not _PLACEHOLDER.search(value) else None
        if licence is not None and (line["words"] is None or is_recognised(licence)):
            yield licence


def _leading_comment(head: str) -> str:
    """The words of the comments before the first line of code, a paragraph a line, without the marks."""
    paragraphs, words, closing = list[str](), list[str](), ""
    for line in head.splitlines():
        text = line.strip()
        begins = next((block for block in _BLOCKS if text.startswith(block[0])), None) if not closing else None
        if begins is not None:
            text, closing = text.removeprefix(begins[0]), begins[1]
        elif not closing and text:
            mark = _LINE_MARK.match(text)
            if mark is None and not _BEFORE_COMMENTS.match(text):
                break
            text = text[mark.end() :] if mark else ""
        if closing and closing in text:
            text = text.partition(closing)[0]
            closing = ""
        text = text.strip().lstrip("*#/;%").strip()
        if text:
            words.append(text)
        else:
            paragraphs.append(" ".join(words))
            words = []
    return "\n".join([*filter(None, paragraphs), " ".join(words)])


def sentence_licence(comment: str) -> str | None:
    """What the sentences of a header state: names of licences, else words that restrict.

    Args:
        comment: its words, a paragraph a line.
    """
    found = [_in_paragraph(words) for words in comment.split("\n") if _TRIGGER.search(words)]
    named = (licence for licence, _ in found if licence is not None)
    return next(named, None) or next((restricted for _, restricted in found if restricted is not None), None)


@lru_cache(1024)  # files of a repository have the same notice
def _in_paragraph(words: str) -> tuple[str | None, str | None]:
    """The licence that a paragraph names, and the id of words in it that restrict."""
    restricted = _RESTRICTED.search(words)
    other = unknown(_sentence_around(words, restricted)) if restricted else None
    for under in _UNDER.finditer(words):
        sentence = words[under.end() : under.end() + 400]
        licence = _listed_names(sentence) or (_gnu(sentence) if _GNU.match(sentence) else _other_name(sentence))
        if licence is not None:
            return licence, other
    return _gnu(words), other


def _sentence_around(comment: str, words: re.Match[str]) -> str:
    """The sentence in which words stand; of `public domain` the words alone, as sentences around it add nothing."""
    if words[0].lower().startswith("public"):
        return words[0]
    begin = comment.rfind(".", 0, words.start()) + 1
    return comment[begin : begin + 1000].partition(".")[0]


def _gnu(text: str) -> str | None:
    """The GNU licence of a notice, whose version stands behind it or before; unknown without one."""
    gnu = _GNU.search(text)
    if gnu is None:
        return None
    before = re.search(r"(?i)version\s+([0-9](?:\.[0-9])?)\s+of\s+the\s+$", text[: gnu.start()])
    version = before or _GNU_VERSION.search(gnu["rest"])
    name = f"GNU {' '.join(gnu['family'].split())} License"
    more = " or later" if _LATER.search(gnu["rest"]) else ""
    return stated(f"{name} v{version[1]}{more}") if version else unknown(name)


def _listed_names(sentence: str) -> str | None:
    """The licences that a sentence begins with, `MIT or GPL Version 2`; None where it begins with none."""
    names, operator, rest = list[str](), "OR" if _CHOICE.search(sentence) else "AND", sentence
    while (name := _longest_name(rest)) is not None:
        licence, length = name
        names.append(licence)
        another = _ANOTHER.match(rest, length)
        if another is None or not another[0].strip(" \"'”)"):
            break
        operator = "OR" if another["word"] and "or" in another["word"].lower() else operator
        rest = rest[another.end() :]
    return joined(operator, names) if names else None


def _longest_name(text: str) -> tuple[str, int] | None:
    """The licence that the most words at the beginning of a text name, and their length."""
    for word in reversed([word for word, _ in zip(re.finditer(r"[^\s;]+", text), range(_WORDS), strict=False)]):
        words = text[: word.end()].rstrip(",.;:)")
        licence = licence_named(words.strip("\"'“”`<(")) if word[0].lower() not in _ARTICLES else None
        if licence is not None:
            return licence, len(words)
    return None


def _other_name(sentence: str) -> str | None:
    """The words of the licence that a sentence begins with and that is not recognised; None where it names none."""
    vague = re.match(r"(?i)([\w-]+?)(?:[- ]style)?\s+licen[cs]e\b", sentence)
    if vague and families(vague[1]):
        return None if _REFERENCE.search(sentence[vague.end() :]) else unknown(vague[0])
    proper = _PROPER.match(sentence)
    return unknown(proper[0]) if proper else None
