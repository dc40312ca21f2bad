"""What manifests, metadata and texts of licences state; only what says nothing is passed over."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from spark_jobs.sources.licences.expressions import UNKNOWN
from spark_jobs.sources.licences.statements import LicenceStatement, of_distribution, of_repository, of_texts
from tests.spark_jobs.sources.licences.variants import official_texts
from tests.tiers import sampled

MIT = b"""MIT License

Copyright (c) 2020 Ada

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""
GPL = official_texts()["GPL-3.0-only"].encode()
OSI = "License :: OSI Approved :: "


def _of(files: Mapping[str, str | bytes | None]) -> LicenceStatement:
    contents = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
    return of_repository(contents.get, list(contents))


def _manifests(words: str) -> dict[str, str]:
    """A manifest of each kind and form that states words."""
    quoted = json.dumps(words)
    return {
        "package.json": f'{{"license": {quoted}}}',
        "package.json (object)": f'{{"license": {{"type": {quoted}, "url": "x"}}}}',
        "package.json (several)": f'{{"licenses": [{{"type": {quoted}, "url": "x"}}]}}',
        "package.json (texts)": f'{{"licenses": [{quoted}]}}',
        "package.json (mark)": f'\ufeff{{"license": {quoted}}}',
        "Cargo.toml": f"[package]\nname = 'a'\nlicense = {quoted}\n",
        "Cargo.toml (workspace)": f"[workspace.package]\nlicense = {quoted}\n[package]\nlicense.workspace = true\n",
        "Cargo.toml (virtual)": f"[workspace]\nmembers = []\n[workspace.package]\nlicense = {quoted}\n",
        "pyproject.toml": f"[project]\nname = 'a'\nlicense = {quoted}\n",
        "pyproject.toml (text)": f"[project]\nlicense = {{text = {quoted}}}\n",
        "pyproject.toml (poetry)": f"[tool.poetry]\nname = 'a'\nlicense = {quoted}\n",
        "composer.json": f'{{"license": {quoted}}}',
        "composer.json (several)": f'{{"license": [{quoted}]}}',
        "pyproject.toml (flit)": f"[tool.flit.metadata]\nlicense = {quoted}\n",
        "setup.cfg": f"[metadata]\nname = a\nlicense = {words}\n[options]\nzip_safe = no\n",
        "setup.cfg (next line)": f"[metadata]\nLicense:\n    {words}\n",
        "setup.py": f"from setuptools import setup\nsetup(name='a', license={quoted})\n",
    }


@pytest.mark.parametrize("form", _manifests(""))
@pytest.mark.parametrize(
    ("words", "licence"),
    [
        ("MIT", "MIT"),
        ("mit", "MIT"),
        ("(MIT OR Apache-2.0) AND GPL-2.0", "(MIT OR Apache-2.0) AND GPL-2.0-only"),
        ("BUSL-1.1", "BUSL-1.1"),
        ("CC BY-NC 4.0", "CC-BY-NC-4.0"),
        ("Foo Corp License", f"{UNKNOWN}Foo-Corp-License"),
        ("UNLICENSED", f"{UNKNOWN}UNLICENSED"),
        ("MIT AND Foo-1.0", f"MIT AND {UNKNOWN}Foo-1.0"),
    ],
)
def test_a_manifest_decides_over_the_text_beside_it(form: str, words: str, licence: str) -> None:
    """Recognised or not, in any form that manifests have had; the words that are not known are kept."""
    name = form.partition(" ")[0]
    statement = _of({name: _manifests(words)[form], "LICENSE": MIT})
    assert statement.licence == licence
    assert statement.evidence == name
    assert (words in statement.detail) == (UNKNOWN in licence)


@pytest.mark.parametrize("form", [form for form in _manifests("") if "workspace" not in form and "several" not in form])
def test_a_manifest_that_cannot_be_parsed_still_states(form: str) -> None:
    """A comma too many, an end that is missing, UTF-16: the words count; one that is too large is unknown."""
    name, manifest = form.partition(" ")[0], _manifests("GPL-3.0-only")[form]
    assert _of({name: manifest.encode("utf-16"), "LICENSE": MIT}).licence == "GPL-3.0-only"
    if "object" not in form and "texts" not in form and "next line" not in form and name != "setup.cfg":
        assert _of({name: f"{manifest}\n{{,", "LICENSE": MIT}).licence == "GPL-3.0-only"
    assert _of({name: None, "LICENSE": MIT}).licence == f"{UNKNOWN}file-{name}"


@pytest.mark.parametrize("name", ["setup.cfg", "setup.py", "pyproject.toml"])
def test_classifiers_of_a_manifest_state(name: str) -> None:
    """As those of a distribution do, also where no other words are."""
    classifier = "License :: OSI Approved :: GNU General Public License v3 (GPLv3)"
    manifest = {
        "setup.cfg": f"[metadata]\nclassifiers =\n    Topic :: X\n    {classifier}\n",
        "setup.py": f"setup(classifiers=['Topic :: X', '{classifier}'])",
        "pyproject.toml": f"[project]\nclassifiers = ['{classifier}']\n",
    }[name]
    assert _of({name: manifest, "LICENSE": MIT}).licence == "GPL-3.0-only"


@sampled(5)
@pytest.mark.parametrize("form", _manifests(""))
def test_a_manifest_that_states_nothing_leaves_it_to_texts(form: str) -> None:
    """Also one that cannot be read."""
    name = form.partition(" ")[0]
    for manifest in (_manifests("")[form], "{", "[", "null", "license = 3", '{"license": 3}', '{"license": []}'):
        assert _of({name: manifest, "LICENSE": MIT}) == LicenceStatement("MIT", "LICENSE")


def test_several_licences_of_old_manifests_are_a_choice() -> None:
    """As npm's documentation has it, and Composer's; a list in a bracket stays one."""
    licences = [{"type": "MIT", "url": "x"}, {"type": "GPL-2.0 OR Zlib"}, "Foo-1.0"]
    assert _of({"package.json": json.dumps({"licenses": licences})}).licence == (
        f"MIT OR GPL-2.0-only OR Zlib OR {UNKNOWN}Foo-1.0"
    )
    assert _of({"composer.json": '{"license": ["LGPL-2.1-only", "GPL-3.0-or-later"]}'}).licence == (
        "LGPL-2.1-only OR GPL-3.0-or-later"
    )
    assert _of({"package.json": '{"license": "MIT", "licenses": ["GPL-3.0"]}'}).licence == "MIT AND GPL-3.0-only"
    assert _of({"Cargo.toml": "[package]\nlicense = 'MIT/Apache-2.0'"}).licence == "MIT OR Apache-2.0"
    assert _of({"Cargo.toml": "[package]\nlicense = 'MIT / Apache-2.0 AND Zlib'"}).licence == (
        "(MIT OR Apache-2.0) AND Zlib"
    )


def test_manifests_that_differ_hold_together() -> None:
    """Nothing says that either will do."""
    files = {"package.json": '{"license": "MIT"}', "pyproject.toml": "[project]\nlicense = 'Apache-2.0'"}
    assert _of(files).licence == "Apache-2.0 AND MIT"
    assert _of(files | {"pyproject.toml": "[project]\nlicense = 'MIT'"}).licence == "MIT"


@pytest.mark.parametrize(
    "manifest",
    [
        {"package.json": '{"license": "SEE LICENSE IN EULA.txt"}'},
        {"Cargo.toml": "[package]\nlicense-file = 'EULA.txt'"},
        {"Cargo.toml": "[package]\nlicense-file.workspace = true\n[workspace.package]\nlicense-file = 'EULA.txt'"},
        {"pyproject.toml": "[project]\nlicense = {file = 'EULA.txt'}"},
    ],
)
def test_a_file_that_a_manifest_names_is_read(manifest: dict[str, str]) -> None:
    """Beside the usual ones; one that is not there is unknown."""
    assert _of(manifest | {"EULA.txt": MIT}).licence == "MIT"
    both = _of(manifest | {"EULA.txt": "All rights reserved. Ask us for every use of this.", "LICENSE": MIT})
    assert both.licence is not None
    assert both.licence.startswith("LicenseRef-stated-text-")
    assert both.licence.endswith(" AND MIT")
    assert _of(manifest).licence == f"{UNKNOWN}file-EULA.txt"


def test_a_text_with_more_in_it_is_near_a_licence_and_unknown() -> None:
    """Told are the nearest and what is added; equal texts have one id, whatever their white space."""
    text = MIT + b"\nThe Software may not be used to train machine learning models.\n"
    statement = _of({"LICENSE": text})
    assert statement.licence is not None
    assert statement.licence.startswith(f"{UNKNOWN}near-MIT-")
    assert "train machine learning models" in statement.detail
    assert _of({"COPYING": text.replace(b"\n", b"\r\n")}).licence == statement.licence
    assert _of({"LICENSE": text, "LICENSE-MIT": MIT}).licence == f"{statement.licence} AND MIT"
    assert _of({"LICENSE": None}).licence == f"{UNKNOWN}file-LICENSE"


@pytest.mark.parametrize("text", ["", " \n", "See the LICENSE file.\n", "\ufeff"])
def test_a_file_that_says_nothing_is_passed_over(text: str) -> None:
    """Empty, or a reference."""
    assert _of({"LICENSE": text}) == LicenceStatement()
    assert _of({"COPYING": text, "LICENSE": MIT}) == LicenceStatement("MIT", "LICENSE")


def test_a_file_may_hold_a_name_or_a_sentence() -> None:
    """Instead of the text of the licence."""
    assert _of({"LICENSE": "Apache-2.0\n"}).licence == "Apache-2.0"
    assert _of({"LICENSE.md": "This project is licensed under the MIT License."}).licence == "MIT"


@pytest.mark.parametrize(
    "more",
    [
        *("Non-commercial use only.", "You owe Acme a share.", "Not for training.", "The ee folder is proprietary."),
        *("Except the ee folder, which has another license.", "Use it for good.", "A commercial license is required."),
        "You must buy a license.",
    ],
)
@pytest.mark.parametrize("sentence", ["This project is licensed under the MIT License", "MIT License", "License: MIT"])
def test_a_short_text_with_more_in_it_is_unknown(sentence: str, more: str) -> None:
    """A sentence that names a licence counts alone, or beside such as add nothing."""
    for text in (
        f"{sentence}. {more}",
        f"{more} {sentence}.",
        f"{sentence}\n\n{more}\n",
        f"{sentence}, {more.lower()}",
    ):
        licence = _of({"LICENSE": text}).licence
        assert licence is not None and UNKNOWN in licence, text
    text = (
        "This project is dual-licensed under the Unlicense and MIT licenses.\n\nYou may use it under either license.\n"
    )
    assert _of({"COPYING": text}).licence == "Unlicense OR MIT"


@pytest.mark.parametrize(
    ("name", "is_text"),
    [
        *(("MIT-LICENSE", True), ("GPL-LICENSE.txt", True), ("COPYING3", True), ("LICENSE3", True), ("LICENSES", True)),
        *(("LICENSE.APACHE2", True), ("licence", True), ("UNLICENSE", True), ("COPYING.LIB", True), ("LICENSE", True)),
        *(("license.py", False), ("license.go", False), ("LICENSE.spdx", False), ("LICENSES.third-party", False)),
        *(("license-checker.json", False), ("README", False), ("relicense.md", False)),
    ],
)
def test_names_of_files_that_are_texts_of_licences(name: str, is_text: bool) -> None:
    """Before or behind the word stands which one; code is none."""
    statement = _of({name: GPL})
    assert (statement.licence == "GPL-3.0-only") == is_text and (statement == LicenceStatement()) != is_text


def test_the_lesser_licence_comes_with_the_text_of_the_other() -> None:
    """LGPL 3 adds permissions to GPL 3, whose text lies beside it; LGPL 2.1 is whole."""
    lesser = {name: official_texts()[name].encode() for name in ("LGPL-3.0-only", "LGPL-2.1-only")}
    assert _of({"COPYING": GPL, "COPYING.LESSER": lesser["LGPL-3.0-only"]}).licence == "LGPL-3.0-only"
    assert _of({"COPYING": GPL, "COPYING.LIB": lesser["LGPL-2.1-only"]}).licence == "GPL-3.0-only AND LGPL-2.1-only"


@pytest.mark.parametrize(
    ("expression", "classifiers", "text", "licence"),
    [
        ("MIT", ["BSD License"], None, "MIT"),
        ("Foo-1.0 AND MIT", ["MIT License"], "MIT", f"{UNKNOWN}Foo-1.0 AND MIT"),
        (None, ["MIT License"], None, "MIT"),
        (None, ["Apache Software License"], "see LICENSE", "Apache-2.0"),
        (None, ["Apache Software License", "MIT License"], None, "Apache-2.0 AND MIT"),
        (None, ["Apache Software License", "MIT License"], "MIT OR Apache-2.0", "MIT OR Apache-2.0"),
        (None, ["Apache Software License", "MIT License"], "MIT", "Apache-2.0 AND MIT"),
        (None, ["BSD License"], "3-Clause BSD License", "BSD-3-Clause"),
        (None, ["BSD License"], None, f"{UNKNOWN}BSD-License"),
        (None, ["BSD License"], "MIT", f"{UNKNOWN}MIT-or-BSD-License"),
        (None, [], "BSD", f"{UNKNOWN}BSD"),
        (None, ["GNU General Public License v2 or later (GPLv2+)"], "GPLv2", "GPL-2.0-or-later"),
        (None, ["GNU General Public License v3 (GPLv3)"], "MIT", f"{UNKNOWN}MIT-or-GPL-3.0-only"),
        (None, ["GNU Lesser General Public License v2 or later (LGPLv2+)"], "LGPL-2.1-or-later", "LGPL-2.1-or-later"),
        (None, ["BSD License", "MIT License"], "BSD-3-Clause", f"{UNKNOWN}BSD-3-Clause-or-MIT-and-BSD-License"),
        (None, ["BSD License", "MIT License"], "BSD-3-Clause OR MIT", "BSD-3-Clause OR MIT"),
        (None, ["MIT License"], "Proprietary", f"MIT AND {UNKNOWN}Proprietary"),
        (None, ["MIT License"], "MIT-style, ask Ada", "MIT"),
        (None, [], "Ask Ada", f"{UNKNOWN}Ask-Ada"),
        (None, [], "UNKNOWN", None),
        (None, [], None, None),
    ],
)
def test_exact_classifiers_count_before_loose_words(
    expression: str | None, classifiers: list[str], text: str | None, licence: str | None
) -> None:
    """An expression before both; where they contradict each other there is none that a policy has."""
    assert of_distribution(expression, [OSI + name for name in classifiers], text, {}).licence == licence


def test_texts_are_asked_where_metadata_say_nothing_or_a_family() -> None:
    """A text that does not fit the family does not decide."""
    bsd = "BSD License"
    texts = {"a/LICENSE": MIT}
    near = of_distribution(None, [OSI + bsd], None, {"a/LICENSE": MIT + b"\nDo no evil, or pay.\n"})
    assert near.licence == f"{UNKNOWN}BSD-License" and "a/LICENSE is nearest to" in near.detail
    assert of_distribution(None, [], None, texts) == LicenceStatement("MIT", "a/LICENSE")
    assert of_distribution(None, [], "see LICENSE", texts).licence == "MIT"
    assert of_distribution(None, [OSI + bsd], None, texts).licence == f"{UNKNOWN}MIT-or-BSD-License"
    assert of_distribution(None, [], "Dual License", texts).licence == "MIT"
    assert of_distribution(None, ["License :: Other/Proprietary License"], "LicenseRef-Ours", texts).licence == (
        "LicenseRef-Ours"
    )
    assert UNKNOWN in str(of_distribution(None, ["License :: Other/Proprietary License"], None, texts).licence)


def test_texts_of_one_name_count_each() -> None:
    """As in a wheel that vendors others."""
    apache = b"Apache-2.0"
    statement = of_texts({"licenses/LICENSE": MIT, "licenses/vendored/LICENSE": apache})
    assert statement == LicenceStatement("Apache-2.0 AND MIT", "licenses/LICENSE, licenses/vendored/LICENSE")
