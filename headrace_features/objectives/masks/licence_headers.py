"""The rule `licence_header`: comments at the head of a file that state its licence or copyright.

    #!/usr/bin/env python                    trained
    # Copyright 2021 Ada Lovelace            from here
    # SPDX-License-Identifier: MIT           to here
    \"\"\"Areas of shapes.\"\"\"                trained
    import math

Of comments with nothing but blank lines between them it is what stands from the first paragraph that speaks of a
licence to the last, where they state one (`header_licence`) or a copyright: a description beside it is trained.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from headrace_features.objectives.masks.rules import MaskedText, mask_rule
from spark_jobs.sources.licences.headers import CommentLine, header_licence, leading_comments

_COPYRIGHT: Final = re.compile(r"(?i)\bcopyright\b.{0,80}\d{4}|(?:©|\(c\))\s*\d{4}|^\W*copyright\b|all rights reserved")
_SPEAKS: Final = re.compile(
    r"(?i)licen[cs]e|copyright|©|\(c\)\s*\d{4}|all rights reserved|warrant(?:y|ies)|redistribut|merchantab|"
    r"permission (?:is hereby|to use)|free software|public domain|spdx|liab(?:le|ility)|proprietary|confidential"
)


@mask_rule(version="1")
def licence_header(document: MaskedText) -> Iterator[tuple[int, int]]:
    """Comments at the head of a file that state its licence or copyright."""
    text = document.text
    for run in _runs(text):
        licensing = [bool(_SPEAKS.search(" ".join(line.words for line in lines))) for lines in run]
        lines = [line for paragraph in run for line in paragraph]
        states = any(_COPYRIGHT.search(line.words) for line in lines)
        if any(licensing) and (states or header_licence(text[lines[0].start : lines[-1].end])):
            first, last = licensing.index(True), len(run) - 1 - licensing[::-1].index(True)
            yield run[first][0].start, run[last][-1].end


def _runs(text: str) -> Iterator[list[list[CommentLine]]]:
    """Comments with nothing but blank lines between them, each as its paragraphs.

    Lines of marks alone belong to the paragraph before them, or to the first.
    """
    run, end, is_open = list[list[CommentLine]](), 0, False
    for line in leading_comments(text):
        if text.startswith("#!", line.start):  # names the program that runs the file
            continue
        if run and text[end : line.start].strip():
            yield run
            run = []
        goes_on = is_open and line.start == end and not line.opens
        if not run or (line.words and not goes_on and any(part.words for part in run[-1])):
            run.append([])
        run[-1].append(line)
        end, is_open = line.end + 1, bool(line.words)
    if run:
        yield run
