"""Texts of licences as projects write them, and texts that only look like them."""

from __future__ import annotations

import random
import re
import textwrap

import pytest
from identify.vendor.licenses import LICENSES

from spark_jobs.sources.licence_texts import known_text
from tests.tiers import tries

TEXTS = dict(LICENSES)
_HOLDERS = ["Ada Lovelace", "the Regents", "ACME, Inc. and others", "Jürgen Müller <j@m.de>", "The Go Authors"]


def varied(text: str, draw: random.Random) -> str:
    """The same licence with other holders, widths, marks of comments and lists, and what stands around it."""
    holder = draw.choice(_HOLDERS)
    text = re.sub(r"\[(?:fullname|name of copyright owner)\]", holder, text)
    text = re.sub(r"\[(?:year|yyyy)\]", draw.choice(["2013", "1998-2020", "2001, 2004"]), text)
    if draw.random() < 0.5:
        paragraphs = re.split(r"\n\s*\n", text)
        width = draw.choice([50, 68, 79, 120, 100_000])
        text = "\n\n".join(textwrap.fill(" ".join(one.split()), width, break_on_hyphens=False) for one in paragraphs)
    if draw.random() < 0.3:
        text = re.sub(r"(?i)the copyright holder(?=[ \n])", draw.choice(["Ada", "the author", "ACME Corp"]), text)
    if draw.random() < 0.3:
        text = text.replace('"', draw.choice(["``", "''", "“", ""]))
    lines = text.split("\n")
    head = draw.choice(
        [[], ["Copyright (c) 2010-2012 X Y and contributors. All rights reserved.", ""], ["AUTHORS: see AUTHORS", ""]]
    )
    tail = draw.choice([[], ["", "Copyright 2019 Z"], ["", "See https://example.org/project for more."]])
    mark = draw.choice(["", "", "", "# ", "// ", " * ", "> ", "    "])
    return draw.choice(["\n", "\r\n"]).join(mark + line for line in head + lines + tail)


@pytest.mark.parametrize(
    "name", ["MIT", "Apache-2.0", "BSD-3-Clause", "BSD-2-Clause", "ISC", "MPL-2.0", "0BSD", "Zlib"]
)
def test_a_text_is_recognised_however_it_is_written(name: str) -> None:
    """In 97 of 100 variants, and never as another licence."""
    draw, count = random.Random(name), tries(400, 40)
    found = [known_text(varied(TEXTS[name], draw).encode()) for _ in range(count)]
    assert set(found) <= {name, None} and found.count(name) >= 0.97 * count


def test_every_known_text_is_itself() -> None:
    """Also where one holds most of another: GPL and AGPL, BSD with two, three and four clauses."""
    assert {name: known_text(text.encode()) for name, text in LICENSES} == {name: name for name, _ in LICENSES}


def test_an_apache_licence_needs_no_appendix_and_its_notice_is_enough() -> None:
    """Both are how projects state it; half of the terms is not."""
    text = TEXTS["Apache-2.0"]
    terms = text[: text.index("END OF TERMS AND CONDITIONS")]
    notice = text[text.index("   Licensed under the Apache License") :]
    assert known_text(terms.encode()) == known_text(notice.encode()) == "Apache-2.0"
    assert known_text(terms[: len(terms) // 2].encode()) is None


@pytest.mark.parametrize(
    "text",
    [
        TEXTS["MIT"] + "\nThe Software shall be used for Good, not Evil.\n",
        TEXTS["MIT"].replace("THE SOFTWARE IS", "The Software shall be used for Good, not Evil.\n\nTHE SOFTWARE IS"),
        TEXTS["MIT"] + "\nExcept as contained in this notice, the name of X shall not be used in advertising.\n",
        "Dual licensed under the GPL and MIT licenses.\n\n" + TEXTS["MIT"],
        TEXTS["MIT"] + "\n\n" + TEXTS["ISC"],
        TEXTS["Apache-2.0"] + "\nCommons Clause License Condition v1.0: you may not Sell the Software.\n",
        TEXTS["BSD-3-Clause"]
        + "\nYou acknowledge that this software is not designed for use in any nuclear facility.\n",
        TEXTS["MIT"].partition("THE SOFTWARE IS")[0],
        "MIT",
        "",
        "Copyright (c) 2020 Ada",
    ],
)
def test_other_terms_make_a_text_none(text: str) -> None:
    """A condition more, another licence beside it, or less than all of it."""
    assert known_text(text.encode()) is None
