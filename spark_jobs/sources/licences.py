"""Recognise licences in the metadata of distributions and records, as SPDX expressions.

A declared SPDX expression or a licence field with a known name counts first, then the trove classifiers. A licence that
is not recognised for certain is None: "BSD" alone names four licences. Ids are those of the SPDX licence list.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_jobs.sources.licence_texts import known_text

LICENCE_FILE: Final = re.compile(r"(?i:LICEN[CS]E|COPYING|UNLICENSE)(?:[-._][^/]*)?")
"""Names of files that are texts of licences."""
MAX_LICENCE_BYTES: Final = 1 << 18

_IDS = (
    "0BSD AGPL-3.0-only AGPL-3.0-or-later Apache-1.1 Apache-2.0 Artistic-2.0 BlueOak-1.0.0 BSD-2-Clause "
    "BSD-3-Clause BSD-3-Clause-Clear BSD-4-Clause BSL-1.0 CC-BY-3.0 CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CC0-1.0 "
    "CDDL-1.0 CDDL-1.1 CNRI-Python ECL-2.0 EPL-1.0 EPL-2.0 EUPL-1.1 EUPL-1.2 GPL-2.0-only GPL-2.0-or-later "
    "GPL-3.0-only GPL-3.0-or-later HPND ISC LGPL-2.0-only LGPL-2.0-or-later LGPL-2.1-only LGPL-2.1-or-later "
    "LGPL-3.0-only LGPL-3.0-or-later LPPL-1.3c MIT MIT-0 MIT-CMU MPL-1.1 MPL-2.0 MS-PL MulanPSL-2.0 NCSA "
    "ODC-By-1.0 OFL-1.1 OpenSSL OSL-3.0 PostgreSQL PSF-2.0 Python-2.0 Python-2.0.1 Unicode-3.0 Unicode-DFS-2016 "
    "Unlicense UPL-1.0 W3C WTFPL X11 Zlib ZPL-2.1"
)
_EXCEPTIONS = "LLVM-exception GCC-exception-3.1 Classpath-exception-2.0 Autoconf-exception-3.0 Bison-exception-2.2"
_LICENCES = {name.lower(): name for name in _IDS.split()}
_LICENCE_EXCEPTIONS = {name.lower(): name for name in _EXCEPTIONS.split()}
_OPERATORS = {"and": "AND", "or": "OR", "with": "WITH"}
_HEADER = re.compile(r"SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+()\- ]+)")
_HEADER_CHARACTERS = 4096
_REFERENCE = re.compile(r"LicenseRef-.+")  # how SPDX names a licence that is not on its list
_TOKEN = re.compile(r"\s*(\(|\)|[A-Za-z0-9.+-]+)")

_CLASSIFIERS = {
    "License :: CC0 1.0 Universal (CC0 1.0) Public Domain Dedication": "CC0-1.0",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: BSD License": None,
    "License :: OSI Approved :: Boost Software License 1.0 (BSL-1.0)": "BSL-1.0",
    "License :: OSI Approved :: Eclipse Public License 2.0 (EPL-2.0)": "EPL-2.0",
    "License :: OSI Approved :: GNU Affero General Public License v3": "AGPL-3.0-only",
    "License :: OSI Approved :: GNU Affero General Public License v3 or later (AGPLv3+)": "AGPL-3.0-or-later",
    "License :: OSI Approved :: GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "License :: OSI Approved :: GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "License :: OSI Approved :: GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "License :: OSI Approved :: GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "License :: OSI Approved :: GNU Lesser General Public License v3 or later (LGPLv3+)": "LGPL-3.0-or-later",
    "License :: OSI Approved :: Historical Permission Notice and Disclaimer (HPND)": "HPND",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: MIT No Attribution License (MIT-0)": "MIT-0",
    "License :: OSI Approved :: Mozilla Public License 1.1 (MPL 1.1)": "MPL-1.1",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "License :: OSI Approved :: PostgreSQL License": "PostgreSQL",
    "License :: OSI Approved :: Python Software Foundation License": "PSF-2.0",
    "License :: OSI Approved :: The Unlicense (Unlicense)": "Unlicense",
    "License :: OSI Approved :: Universal Permissive License (UPL)": "UPL-1.0",
    "License :: OSI Approved :: zlib/libpng License": "Zlib",
}

_NAMES = {
    name: licence
    for licence, names in {
        "Apache-2.0": "apache|apache 2|apache 2.0|apache license|apache license 2.0|apache license v2.0|"
        "apache license version 2.0|apache software license|apache software license 2.0",
        "MIT": "expat|mit license|the mit license|mit license (mit)|the mit license (mit)",
        "BSD-2-Clause": "2-clause bsd|2-clause bsd license|bsd 2-clause|bsd 2-clause license|simplified bsd license",
        "BSD-3-Clause": "3-clause bsd|3-clause bsd license|bsd 3-clause|bsd 3-clause license|bsd-3-clause license|"
        "modified bsd|modified bsd license|new bsd|new bsd license",
        "ISC": "isc license",
        "MPL-2.0": "mpl 2.0|mozilla public license 2.0|mozilla public license 2.0 (mpl 2.0)",
        "PSF-2.0": "psf|psf license|python software foundation license",
        "GPL-2.0-only": "gplv2|gpl-2.0",
        "GPL-3.0-only": "gplv3|gpl-3.0",
        "LGPL-3.0-only": "lgplv3|lgpl-3.0",
        "AGPL-3.0-only": "agplv3|agpl-3.0",
        "LGPL-2.1-only": "lgpl-2.1",
        "GPL-2.0-or-later": "gpl-2.0+",
        "GPL-3.0-or-later": "gpl-3.0+",
        "Unlicense": "unlicense|the unlicense",
        "Zlib": "zlib license",
    }.items()
    for name in names.split("|")
}


def spdx_expression(text: str | None) -> str | None:
    """An SPDX expression in its canonical letters, or None where the text is none.

    Args:
        text: `mit`, `Apache-2.0 WITH LLVM-exception`, `(MIT OR Apache-2.0) AND Zlib`, `LicenseRef-Ours`, or one of the
            usual names ("New BSD License"); longer texts are never an expression.
    """
    if text is None or not text.strip() or len(text) > 500:
        return None
    named = _NAMES.get(" ".join(text.replace(",", " ").lower().split()))
    return named or _canonical(text.strip())


def header_licence(text: str) -> str | None:
    """The expression after `SPDX-License-Identifier:` in the first 4,096 characters of a file; None without one."""
    found = _HEADER.search(text, 0, _HEADER_CHARACTERS)
    return spdx_expression(found[1].rstrip(" -")) if found else None


def allows(expression: str, licences: frozenset[str]) -> bool:
    """Whether one may choose among some licences under a canonical SPDX expression: `MIT OR X` allows MIT, `AND` both.

    An exception (`WITH`) only gives more rights, so the licence that it belongs to decides.
    """
    text, chosen = re.sub(r" WITH \S+", "", expression), licences | {"yes"}

    def holds(flat: str) -> bool:
        return any(all(word in chosen for word in part.split(" AND ")) for part in flat.split(" OR "))

    while "(" in text:  # of brackets in brackets the inner ones first
        text = re.sub(r"\(([^()]*)\)", lambda inner: "yes" if holds(inner[1]) else "no", text)
    return holds(text)


def spdx_licence(expression: str | None, classifiers: Sequence[str], text: str | None) -> str | None:
    """The licence that a distribution declares, as an SPDX expression.

    Args:
        expression: `License-Expression` of the metadata.
        classifiers: all trove classifiers; several licences give `A AND B`, as nothing says that either will do.
        text: `License` of the metadata, a name or a whole licence text.

    Returns:
        The expression, or None where none is recognised for certain.
    """
    declared = spdx_expression(expression) or spdx_expression(text)
    if declared is not None:
        return declared
    licences = [c for c in classifiers if c.startswith("License ::") and c != "License :: OSI Approved"]
    known = sorted({spdx for c in licences if (spdx := _CLASSIFIERS.get(c))})
    if not known or any(_CLASSIFIERS.get(c) is None for c in licences):
        return None
    return " AND ".join(known)


def declared_licence(name: str, data: bytes) -> str | None:
    """The licence that a manifest (package.json, Cargo.toml, pyproject.toml) declares, or None."""
    is_json, is_crate = name.endswith(".json"), name == "Cargo.toml"
    try:
        said: Any = (json.loads if is_json else tomllib.loads)(data.decode())
        licence = (said if is_json else said.get("package" if is_crate else "project", {})).get("license")
    except (ValueError, RecursionError, AttributeError):
        return None
    if isinstance(licence, dict):
        licence = licence.get("text")
    if not isinstance(licence, str):
        return None
    return spdx_expression(licence.replace("/", " OR ") if is_crate else licence)


def licence_of_text(data: bytes) -> str | None:
    """The SPDX id of the licence whose text this is, or None; see `licence_texts`."""
    return spdx_expression(known_text(data))


def licence_of_texts(texts: Mapping[str, bytes]) -> tuple[str | None, str | None]:
    """The licence that some files of licence texts state, and their names; None where one is not recognised.

    Several give `A AND B`, as nothing says that either will do.
    """
    found = {name: licence_of_text(texts[name]) for name in sorted(texts)}
    if not found or None in found.values():
        return None, None
    return " AND ".join(sorted({licence for licence in found.values() if licence})), ", ".join(found)


def _canonical(text: str) -> str | None:
    """Parse ids, operators and brackets; None at the first unknown word or where they do not alternate."""
    words: list[str] = []
    depth, position, wants_id = 0, 0, True
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            return None
        position, token = found.end(), found[1]
        known = _LICENCE_EXCEPTIONS if words[-1:] == ["WITH"] else _LICENCES
        if token == "(" and wants_id and words[-1:] != ["WITH"]:
            depth += 1
            words.append("(")
        elif token == ")" and not wants_id and depth:
            depth -= 1
            words.append(")")
        elif wants_id and (name := known.get(token.lower()) or (token if _REFERENCE.fullmatch(token) else None)):
            words.append(name)
            wants_id = False
        elif not wants_id and token.lower() in _OPERATORS:
            words.append(_OPERATORS[token.lower()])
            wants_id = True
        else:
            return None
    return None if wants_id or depth else " ".join(words).replace("( ", "(").replace(" )", ")")
