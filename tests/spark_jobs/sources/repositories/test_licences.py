"""Licences as people write them become SPDX expressions, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.sources.licences import header_licence, spdx_expression, spdx_licence


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("MIT", "MIT"),
        ("mit", "MIT"),
        ("The MIT License (MIT)", "MIT"),
        ("apache-2.0", "Apache-2.0"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("Apache 2.0", "Apache-2.0"),
        ("BSD 3-Clause License", "BSD-3-Clause"),
        ("New BSD License", "BSD-3-Clause"),
        ("MPL-2.0 AND MIT", "MPL-2.0 AND MIT"),
        ("mit or apache-2.0", "MIT OR Apache-2.0"),
        ("Apache-2.0 WITH LLVM-exception", "Apache-2.0 WITH LLVM-exception"),
        ("( MIT OR Apache-2.0 )AND BSD-3-Clause", "(MIT OR Apache-2.0) AND BSD-3-Clause"),
        ("LicenseRef-NVIDIA-Proprietary", "LicenseRef-NVIDIA-Proprietary"),
    ],
)
def test_expressions_and_usual_names_are_recognised(text: str, expression: str) -> None:
    """Letters and spaces do not matter; the answer has SPDX's own letters."""
    assert spdx_expression(text) == expression


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "  ",
        "BSD",
        "GPL",
        "Dual License",
        "UNKNOWN",
        "Copyright (c) 2011 A. Uthor\n\nPermission is hereby granted",
        "MIT OR",
        "MIT MIT",
        "(MIT",
        "MIT)",
        "AND MIT",
        "MIT WITH Apache-2.0",
        "LLVM-exception",
        "LicenseRef-",
        "MIT/Apache-2.0",
    ],
)
def test_what_is_not_certain_is_null(text: str | None) -> None:
    """A family of licences, a whole text, or a broken expression is no SPDX expression."""
    assert spdx_expression(text) is None


OSI = "License :: OSI Approved :: "


@pytest.mark.parametrize(
    ("expression", "classifiers", "text", "licence"),
    [
        ("MIT", [OSI + "BSD License"], None, "MIT"),
        (None, [OSI + "MIT License", "Topic :: Text Processing"], None, "MIT"),
        (None, ["License :: OSI Approved", OSI + "Apache Software License"], "see LICENSE", "Apache-2.0"),
        (None, [OSI + "Apache Software License", OSI + "MIT License"], None, "Apache-2.0 AND MIT"),
        (None, [OSI + "BSD License"], "3-Clause BSD License", "BSD-3-Clause"),
        (None, [OSI + "BSD License"], None, None),
        (None, [OSI + "BSD License", OSI + "Apache Software License"], "Dual License", None),
        (None, ["License :: Other/Proprietary License"], None, None),
        (None, [], None, None),
    ],
)
def test_the_best_declaration_decides(
    expression: str | None, classifiers: list[str], text: str | None, licence: str | None
) -> None:
    """An expression, then the licence field, then classifiers, every one of which must be recognised."""
    assert spdx_licence(expression, classifiers, text) == licence


@given(st.text())
def test_an_expression_is_its_own_canonical_form(text: str) -> None:
    """Whatever is recognised is recognised again, unchanged."""
    expression = spdx_expression(text)
    assert expression is None or spdx_expression(expression) == expression


@given(
    st.recursive(
        st.sampled_from(["MIT", "Zlib", "0BSD"]),
        lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
    )
)
def test_every_expression_of_the_grammar_is_recognised(expression: str) -> None:
    """Nested brackets come out as they went in."""
    if len(expression) <= 500:
        assert spdx_expression(expression.lower()) == expression


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */\nint x;", "(GPL-2.0-only OR BSD-2-Clause)"),
        ("<!-- SPDX-License-Identifier: MIT -->", "MIT"),
        ("#!/bin/sh\n# SPDX-License-Identifier:\tapache-2.0\r\n", "Apache-2.0"),
        ("# SPDX-License-Identifier: Proprietary\n", None),
        ("x" * 5000 + "SPDX-License-Identifier: MIT", None),
        ("", None),
    ],
)
def test_a_file_may_state_its_own_licence(text: str, licence: str | None) -> None:
    """In the comments of any language, near its start; what is no expression says nothing."""
    assert header_licence(text) == licence
