"""A text is the licence that it equals after SPDX's matching guidelines, else none with the nearest."""

from __future__ import annotations

import hashlib
import html
import random
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_jobs.sources.licences.texts import known_text, recognised
from spark_jobs.sources.licences.texts.known import known
from spark_jobs.sources.licences.texts.templates import DIGEST, TABLE, VERSION
from tests.spark_jobs.sources.licences.variants import (
    CONDITIONS,
    decorated,
    joined,
    official_texts,
    pieces,
    with_other_terms,
)
from tests.tiers import sampled, tries

TEXTS = official_texts()
LLVM = "\n\n--- LLVM Exceptions to the Apache 2.0 License ----\n\n" + (
    "As an exception, if, as a result of your compiling your source code, portions of this Software are embedded into "
    "an Object form of such source code, you may redistribute such embedded portions in such Object form without "
    "complying with the conditions of Sections 4(a), 4(b) and 4(d) of the License.\n\nIn addition, if you combine or "
    'link compiled forms of this Software with software that is licensed under the GPLv2 ("Combined Software") and if '
    "a court of competent jurisdiction determines that the patent provision (Section 3), the indemnity provision "
    "(Section 9) or other Section of the License conflicts with the conditions of the GPLv2, you may retroactively and "
    "prospectively choose to deem waived or otherwise exclude such Section(s) of the License, but only in their "
    "entirety and only with respect to the Combined Software.\n"
)
FMT = (
    "\n\n--- Optional exception to the license ---\n\nAs an exception, if, as a result of your compiling your source "
    "code, portions of this Software are embedded into a machine-executable object form of such source code, you may "
    "redistribute such embedded portions in such object form without including the above copyright and permission "
    "notices.\n"
)
GPL_HEADER = (
    "frobnicate - make things frob\nCopyright (C) 2020  Ada Lovelace\n\n"
    "This program is free software{comma} you can redistribute it and/or modify it under the terms of the GNU General "
    "Public License as published by the Free Software Foundation; either version {version} of the License, or (at "
    "your option) any later version.\n\nThis program is distributed in the hope that it will be useful, but WITHOUT "
    "ANY WARRANTY; without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the "
    "GNU General Public License for more details.\n\nYou should have received a copy of the GNU General Public "
    "License along with this program; if not, {where}\n"
)

# Texts that no template of the list equals: they are several licences, or only an exception, or have other words.
NONE = {
    "BSD-2-Clause-NetBSD",  # the notice of its authors is a sentence of its own
    "GPL-2.0-with-GCC-exception",  # the exception alone, with "insert GPL v2 license text here"
    "GPL-2.0-with-autoconf-exception",
    "GPL-2.0-with-bison-exception",
    "GPL-2.0-with-classpath-exception",
    "GPL-2.0-with-font-exception",
    "GPL-3.0-with-GCC-exception",
    "GPL-3.0-with-autoconf-exception",
    "KiCad-libraries-exception",  # an exception alone
    "Net-SNMP",  # six texts with notices between
    "Python-2.0.1",  # has the word ACCEPT, which its template lacks
    "SPL-1.0",  # blanks of a form in a notice
    "bzip2-1.0.5",  # deprecated, with a sentence more than bzip2-1.0.6
    "eCos-2.0",  # deprecated: a notice with an exception
    "wxWindows",
}
# Texts that differ in their titles alone, which may be left out.
TWINS = [
    {"NBPL-1.0", "OLDAP-1.1", "OLDAP-1.2"},
    {"OLDAP-2.0", "Plexus"},
    {"OLDAP-2.2.2", "OLDAP-2.3"},
    {"BitTorrent-1.0", "BitTorrent-1.1"},
]
RENAMED = {"BSD-2-Clause-FreeBSD": "BSD-2-Clause-Views", "Nunit": "zlib-acknowledgement", "StandardML-NJ": "SMLNJ"}


def family(name: str) -> str:
    """What ids with one text have in common."""
    name = re.sub(r"(?:-or-later|-only|\+)$", "", RENAMED.get(name, name))
    return re.sub(r"(?:-(?:no-)?(?:invariants|RFN)|-no-copyleft-exception|-Combined-Work-Exception)$", "", name)


@pytest.mark.nightly
def test_every_official_text_is_itself_or_none() -> None:
    """Of 728 texts 713 are recognised, none as another's; of ids with one text it is the one that grants least."""
    licences = {name: known_text(text.encode()) for name, text in TEXTS.items()}
    assert {name for name, licence in licences.items() if licence is None} == NONE
    assert [n for n, licence in licences.items() if licence and family(licence) != family(n)] == []
    assert [licence for licence in licences.values() if licence and licence.endswith(("-or-later", "+"))] == []
    assert licences["GPL-2.0"] == "GPL-2.0-only" and licences["MPL-2.0-no-copyleft-exception"] == "MPL-2.0"
    assert licences["GFDL-1.3-invariants-or-later"] == "GFDL-1.3-only" and licences["OFL-1.1-RFN"] == "OFL-1.1"


def test_the_code_names_its_table() -> None:
    """The digest of the table stands in the code: what decides rows is part of the step's version."""
    assert hashlib.sha256(TABLE.read_bytes()).hexdigest() == DIGEST and VERSION in TABLE.name


def test_threads_that_ask_at_once_get_the_same() -> None:
    """Tasks of the embedded engine share the table alone, which never changes."""
    known.forget()
    texts = [TEXTS[name].encode() for name in ("MIT", "Apache-2.0", "BSD-3-Clause", "ISC", "Zlib")] * 4
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(known_text, texts)) == ["MIT", "Apache-2.0", "BSD-3-Clause", "ISC", "Zlib"] * 4


def test_ids_are_those_in_force() -> None:
    """No template has an id that the list calls deprecated, such as GPL-2.0."""
    from packaging.licenses._spdx import EXCEPTIONS, LICENSES

    listed = {row["id"]: row["deprecated"] for row in [*LICENSES.values(), *EXCEPTIONS.values()]}
    names = [template.name for template in known().templates]
    assert len(names) > 800 and not [name for name in names if listed.get(name)]


def test_a_template_is_recognised_however_it_is_written() -> None:
    """With optional parts and without, other names, widths, marks of comments, ends of lines, quotes, spelling."""
    draw = random.Random(53)
    templates = [template for template in known().templates if template.kind != "exception"]
    for template in draw.sample(templates, tries(len(templates), 60)):
        for _ in range(tries(4, 1)):
            text = decorated(joined(pieces(template.parts, draw)), draw)
            licence = known_text(text.encode())
            names = {licence and family(licence), family(template.name)}
            assert len(names) == 1 or any(names <= twins for twins in TWINS), (template.name, licence, text[:2000])


def test_other_terms_make_any_template_none() -> None:
    """A condition more at any place, one `not` more, or five words of the terms less."""
    draw = random.Random(54)
    templates = [template for template in known().templates if template.kind != "exception"]
    for template in draw.sample(templates, tries(len(templates), 60)):
        for _ in range(tries(12, 4)):
            text = with_other_terms(pieces(template.parts, draw), draw)
            licence = known_text(text.encode())
            is_older = template.kind == "notice" and licence == template.name.replace("-or-later", "-only")
            assert licence is None or is_older, (template.name, licence, text[-3000:])  # without "or any later version"


@pytest.mark.parametrize("name", ["MIT", "Apache-2.0", "BSD-3-Clause", "MulanPSL-2.0", "CECILL-2.1", "CC0-1.0"])
def test_files_of_other_forms_are_texts_too(name: str) -> None:
    """HTML, rich text, UTF-16, UTF-32, Latin-1, entities and links of Markdown."""
    text = TEXTS[name]
    page = "".join(f"<p class='a'>{html.escape(part)}</p>\n" for part in text.split("\n\n"))
    page = f"<!DOCTYPE html><html><head><title>x</title><style>p {{}}</style></head><body>{page}</body></html>"
    rich = re.sub(r"[^\x00-\xff]", "", text) if name == "CECILL-2.1" else text
    rich = "".join(c if ord(c) < 128 and c not in "\\{}" else f"\\'{ord(c):02x}" if ord(c) < 256 else "" for c in rich)
    rich = "{\\rtf1\\ansi{\\fonttbl{\\f0 Arial;}}\\f0\\fs20 " + rich.replace("\n", "\\par\n") + "}"
    assert known_text(page.encode()) == name
    assert known_text(text.encode("utf-16")) == known_text(text.encode("utf-32")) == name
    assert known_text(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()) == name
    if name != "MulanPSL-2.0":
        assert known_text(rich.encode("latin-1")) == name
        assert known_text(("Copyright © 2020 Jürgen Müller\n\n" + text).encode("cp1252", "ignore")) == name
    assert known_text(("# [License](https://example.org/license)\n\n" + text).encode()) == name


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        (TEXTS["Apache-2.0"] + LLVM, "Apache-2.0 WITH LLVM-exception"),
        (TEXTS["MIT"] + FMT, "MIT WITH fmt-exception"),
        (TEXTS["MIT"] + "\n\n-----\n\n" + TEXTS["Apache-2.0"], "Apache-2.0 AND MIT"),
        (TEXTS["MIT"] + "\n\nlib/x.c:\n\n" + TEXTS["MIT"], "MIT"),
        (GPL_HEADER.format(comma=";", version=2, where="write to the Free Software Foundation, Inc., 59 Temple Place, "
         "Suite 330, Boston, MA  02111-1307  USA"), "GPL-2.0-or-later"),
        (GPL_HEADER.format(comma=":", version=3, where="see <https://www.gnu.org/licenses/>."), "GPL-3.0-or-later"),
        (GPL_HEADER.format(comma=";", version=2, where="see <http://www.gnu.org/licenses/>.") + TEXTS["GPL-2.0-only"],
         "GPL-2.0-or-later"),
        (TEXTS["LGPL-3.0-only"] + "\n\n" + TEXTS["GPL-3.0-only"], "LGPL-3.0-only"),
        ("This project is licensed under the MIT License.\n\n" + TEXTS["MIT"], "MIT"),
        (TEXTS["BSD-3-Clause"].replace("<year> <owner>", "2009 The Go Authors")
         .replace("the copyright holder nor", "Google Inc. nor"), "BSD-3-Clause"),
        (TEXTS["MIT"].replace("<year> <copyright holders>", "2015 Human Who Codes; 2016 jonschlinkert"), "MIT"),
    ],
)  # fmt: skip
def test_several_texts_in_a_file_are_all_of_them(text: str, licence: str) -> None:
    """Licences with their exceptions, one behind the other, notices before texts, and what says that this is it."""
    expected = {"LGPL-3.0-only": {"LGPL-3.0-only", "GPL-3.0-only AND LGPL-3.0-only"}}.get(licence, {licence})
    assert known_text(text.encode()) in expected


@sampled(12)
@pytest.mark.parametrize(
    "holder",
    [
        *("Mozilla Foundation", "The Apache Software Foundation", "Eclipse Foundation, Inc. and its licensors"),
        *("Internet Systems Consortium (ISC)", "GNU Project developers", "MIT, npm, Inc., and jni-rs contributors"),
        *("Isaac Z. Schlueter, npm, Inc.", "Kim (python-dotenv), 2013, Lee (django-dotenv-rw), 2013, Ann (x-y-z)"),
        *("The Python Markdown Project (v. 1.7 and later)", "Boost.org, Elastic N.V. and others", "Jo St. John, x-rs"),
    ],
)
@pytest.mark.parametrize("name", ["MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "MIT-0"])
def test_holders_may_have_names_of_licences_and_small_letters(name: str, holder: str) -> None:
    """A foundation, a project, an abbreviation with a point; in their notice terms and other licences are none."""
    text = re.sub(r"Copyright .*\n", "", TEXTS[name], count=1)
    assert known_text(f"Copyright (c) 2020 {holder}\n\n{text}".encode()) == name
    for more in (*(condition.lower() for condition in CONDITIONS), "GPL", "GPLv3", "Elastic License", "BUSL"):
        notice = f"Copyright (c) 2020 {holder}, {more}\n\n"
        assert known_text((notice + text).encode()) is None, notice


@sampled(8)
@pytest.mark.parametrize(
    "more",
    [
        *(
            "仅限非商业用途。",
            "禁止商用",
            "商用利用は禁止します。",
            "仅供学习",
            "상업적 사용 금지",
            "Только для некоммерческого использования",
        ),
        *("ТОЛЬКО ДЛЯ НЕКОММЕРЧЕСКОГО ИСПОЛЬЗОВАНИЯ", "للاستخدام غير التجاري فقط", "Nur für nichtkommerzielle Nutzung"),
        *(
            "Uso Comercial Prohibido",
            "USAGE COMMERCIAL INTERDIT",
            "ΜΟΝΟ ΓΙΑ ΜΗ ΕΜΠΟΡΙΚΗ ΧΡΗΣΗ",
            "Kommerzielle Nutzung Verboten",
        ),
    ],
)
@pytest.mark.parametrize("name", ["MIT", "BSD-3-Clause", "Apache-2.0"])
def test_conditions_of_other_languages_make_a_text_none(name: str, more: str) -> None:
    """Words of other scripts are names in a line with `copyright` alone."""
    for text in (
        f"{TEXTS[name]}\n\n{more}\n",
        f"{more}\n\n{TEXTS[name]}",
        f"Copyright 2020 张三 {more}\n\n{TEXTS[name]}",
    ):
        assert known_text(text.encode()) is None
    for holder in ("张三", "株式会社エース", "Иван Иванов", "김철수", "Γιώργος Π."):
        assert known_text(f"Copyright (c) 2020 {holder}\n\n{TEXTS[name]}".encode()) == name


@pytest.mark.parametrize(
    ("text", "nearest", "added", "missing"),
    [
        (TEXTS["MIT"] + "\n" + CONDITIONS[0], "MIT", CONDITIONS[0][:-1], ""),
        (TEXTS["Apache-2.0"] + "\n" + CONDITIONS[0], "Apache-2.0", CONDITIONS[0][:-1], ""),
        (TEXTS["MIT"] + "\nThe Software shall be used for Good, not Evil.\n", "MIT", "Evil", ""),
        (TEXTS["Apache-2.0"] + "\n“Commons Clause” License Condition v1.0", "Apache-2.0", "Commons Clause", ""),
        ("Dual licensed under the GPL and MIT licenses.\n\n" + TEXTS["MIT"], "MIT", "Dual licensed", ""),
        (TEXTS["MIT"].partition("THE SOFTWARE IS")[0], "MIT", "", "without warranty of any kind"),
        (TEXTS["MIT"].replace("publish, distribute,", "publish,"), "MIT", "", "distribute"),
        (TEXTS["BSD-3-Clause"] + "\nYou acknowledge that this software is not designed for use in any nuclear "
         "facility.", "BSD-3-Clause", "nuclear", ""),
        (TEXTS["Apache-2.0"].replace("do not pertain", "don't pertain", 1), "Apache-2.0", "don't", "not pertain"),
        (TEXTS["MIT"] + LLVM, "MIT", "As an exception", ""),
        (TEXTS["ISC"].replace("and/or distribute", "but not distribute"), "ISC", "but not", ""),
    ],
)  # fmt: skip
def test_the_nearest_is_told_with_what_differs(text: str, nearest: str, added: str, missing: str) -> None:
    """A condition more, another licence's name, less than all of it: none, and what a person has to look at."""
    match = recognised(text.encode())
    assert match.licence is None and match.nearest == nearest
    assert added in match.added and missing in match.missing
    assert bool(added) == bool(match.added) and bool(missing) == bool(match.missing)


def test_near_texts_are_told_apart() -> None:
    """What was taken for the more permissive one: each is itself, and with another's clause none."""
    for name in ("CC-BY-NC-ND-4.0", "CC-BY-ND-4.0", "CC-BY-4.0", "BSD-4-Clause", "Pixar", "CC0-1.0", "MIT-0"):
        assert known_text(TEXTS[name].encode()) == name
    for name in ("BlueOak-1.0.0", "MulanPSL-2.0", "BUSL-1.1", "SSPL-1.0", "Elastic-2.0", "JSON", "X11"):
        assert known_text(TEXTS[name].encode()) == name
    assert known_text(TEXTS["CC-BY-4.0"].replace("reproduce and Share", "reproduce but not Share").encode()) is None


@pytest.mark.parametrize("data", [b"", b"MIT", b"Copyright (c) 2020 Ada", b"\0" * 999, bytes(range(256)), b"{\\rtf"])
def test_what_is_no_licence_is_none(data: bytes) -> None:
    """Names, notices and bytes of no text."""
    assert recognised(data).licence is None


def test_time_grows_with_the_text_alone() -> None:
    """Texts that make patterns and searches go back and forth end; with a square of 100 kB it would take hours."""
    size = tries(100_000, 6_000)
    mit, bsd = TEXTS["MIT"], TEXTS["BSD-3-Clause"]
    repeated = ["Copyright 2020 ", "(c) ", "1. ", "A ", "is under the mit ", "<script ", "[a](", "http://a.b/", mit]
    repeated += [bsd[:900], bsd, "IN NO EVENT SHALL ", "write to the Free Software Foundation ", "許", "é", "dnl\n"]
    repeated += ["permission is hereby granted free of charge to any person obtaining a copy of this "]
    for text in repeated:
        known_text((text * (size // len(text))).encode())
        known_text(("{\\rtf<p>" + text * (size // len(text))).encode())
