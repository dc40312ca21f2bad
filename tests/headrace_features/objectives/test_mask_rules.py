"""Rules of masks: what they find and what they leave; their spans over tokens against a walk over bytes."""

from __future__ import annotations

import base64
import functools
import random
import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from headrace_features.objectives.layout import Header, LaidOut, LayoutEncoder, Sentinel, Span, whole
from headrace_features.objectives.masks.placeholders import placeholders_of
from headrace_features.objectives.masks.rules import MaskedText, MaskRule, find_rules, mask_rule, spans_of, token_rules
from headrace_features.privacy.personal_data.find import DetectedSpan
from headrace_features.privacy.personal_data.redacted_texts import redact
from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.selection.cuts import without
from spark_jobs.text.normalization import RULES, compose, normalize
from spark_jobs.tokens.certificate import Certificate, certify
from tests.blender_service.tables.test_trainable import FORMS, LETTERS, WORDS, aligned, spelled
from tests.tiers import sampled, tries

GPT2 = Path(__file__).parents[4] / "shared" / "data" / "tokenizers" / "gpt2.json"
_BYTES = random.Random(3).randbytes(599)
_BASE64 = base64.b64encode(_BYTES).decode()
_LINES = "\n".join(_BASE64[at : at + 64] for at in range(0, len(_BASE64), 64))
_EDIT = ("rule", "start", "end", "replacement_length")
_PROSE = "The mill grinds what the water brings, and nobody asks it why. " * 40


def found(name: str, text: str, **facts: object) -> list[str]:
    """What a rule of headrace finds in a text."""
    document = MaskedText(text, "d", **facts)  # type: ignore[arg-type]
    (rule,) = find_rules([name]).values()
    return [text[start:end] for start, end in spans_of(name, rule, document).tolist()]


_PYTHON = "# Copyright 2021 Ada\n# SPDX-License-Identifier: MIT"
_GO = "// Copyright 2020 The Mill Authors. All rights reserved."
_APACHE = """/*
 * Copyright (c) 2020 The Mill
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 *
 * Unless required by applicable law, WITHOUT WARRANTIES of any kind
 */
"""
_GPL = """# This program is free software: you can redistribute it and/or modify
# it under the terms of the GNU General Public License as published by
# the Free Software Foundation, either version 3 of the License.

# This program is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY
"""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"#!/usr/bin/env python\n{_PYTHON}\n\nimport a\n", _PYTHON),
        (f"{_APACHE}package mill;\n/** Grinds. */\n", _APACHE.rstrip()),
        (f"{_GPL}\n# Grinds.\nimport os\n# Copyright 2020 nobody\n", _GPL.rstrip()),
        (f"{_GO}\n\n// Package mill grinds.\npackage mill\n", _GO),
        ("/* Grinds.\n *\n * Copyright 2020 Ada\n */\nint x;\n", " * Copyright 2020 Ada\n */"),
        ("<!-- SPDX-License-Identifier: CC0-1.0 -->\n<p>\n", "<!-- SPDX-License-Identifier: CC0-1.0 -->"),
        ('"""Reads licences of SPDX."""\nimport os\n', None),
        ("# Grinds flour.\nimport os\n", None),
        ("import os\n# Copyright 2020 Ada\n", None),
        ("", None),
    ],
)  # fmt: skip
def test_licence_headers(text: str, wanted: str | None) -> None:
    """The comments that state one, with what belongs to it; neither shebangs, descriptions nor later comments."""
    assert found("licence_header", text) == ([] if wanted is None else [wanted])


@pytest.mark.parametrize(
    "blob",
    [
        f"data:image/png;base64,{_BASE64[:200]}",
        _LINES,
        _BYTES[:20].hex(),
        ", ".join(f"0x{byte:02x}" for byte in _BYTES[:32]),
        "".join(f"\\x{byte:02x}" for byte in _BYTES[:32]),
        "".join(f"\\u{byte:04x}" for byte in _BYTES[:16]),
        ", ".join(str(byte * 1.5) for byte in _BYTES[:64]),
        "function(e,t){return e<t?e:t};" * 34,
        "https://mill.org/?" + "a=1&" * 60,
    ],
)
@pytest.mark.parametrize("around", [("", ""), ("x = ", "\n"), ("Text before.\n", "\nand behind it\n")])
def test_blobs(blob: str, around: tuple[str, str]) -> None:
    """Each form of data, whatever stands around it, and nothing of that but what is one word with it."""
    before, after = around
    (whole_blob,) = found("blob", before + blob + after)
    assert whole_blob.strip() == blob or (len(blob) >= 1000 and whole_blob == (before + blob).split("\n")[-1])


@pytest.mark.parametrize(
    "text",
    [
        _PROSE,
        _PROSE.replace("\n", " "),
        "这是没有空格的文字。" * 300,
        "uuid 550e8400-e29b-41d4-a716-446655440000, short hash d41d8cd98f00b204",
        "test_that_the_quick_brown_fox_jumps_over_the_lazy_dog_and_comes_back_again_in_the_evening",
        "TestThatTheQuickBrownFoxJumpsOverTheLazyDogAndComesBackAgainInTheEveningOfTheSameDay",
        "src/main/java/org/apache/commons/configuration/reloading/ManagedReloadingDetector/Factory",
        "primes = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]\nflags = {0x01, 0x02, 0x04, 0x08}\n",
        "-" * 120 + "\n" + "=" * 120,
        "for i in range(10):\n    print(i)\n" * 50,
        _BASE64[:59],
    ],
)
def test_no_blobs(text: str) -> None:
    """Prose of any script, code, short hashes, long names and rulers are learnt."""
    assert found("blob", text) == []


@pytest.mark.parametrize(
    ("line", "is_boilerplate"),
    [
        ("Home | About us | Contact", True),
        ("We use cookies to give you the best experience.", True),
        ("© 2020 Mill Inc. All rights reserved.", True),
        ("Read more »", True),
        ("Datenschutz", True),
        ("I went home and read more about mills.", False),
        ("Cookies are small files; " + "a history of web sites follows. " * 9, False),
        ("def login(self):", False),
        ("    close()", False),
        (':LOGOUT "search".', False),
        ("", False),
    ],
)
def test_boilerplate_lines(line: str, is_boilerplate: bool) -> None:
    """Lines of menus and banners, alone or between others."""
    assert found("boilerplate", f"A text.\n{line}\nIt goes on.") == ([line] if is_boilerplate else [])


def test_lines_of_templates() -> None:
    """Those of the table of the document's dataset, whatever white space is around them."""
    import pyarrow as pa

    from spark_jobs.filters.heuristics.template_kernel import count_lines

    hashes = np.sort(
        count_lines(pa.array(["Subscribe to the mill's letter\nAnother line of it"]))["line_hash"].to_numpy()
    )
    text = "Its text.\n  Subscribe to the mill's letter \nAnother line of it, longer\nAnother line of it"
    assert found("template_lines", text, template_lines=hashes) == [
        "  Subscribe to the mill's letter ",
        "Another line of it",
    ]
    assert found("template_lines", text) == []


_NAMES = ("licence_header", "blob", "boilerplate")
_HARD = [
    "a", "1", "1,", "A1b", "/*\n", "# \n", " ", "\n", "0x1", "\\x41", "\\u004", "data:", "data:a;", "A" * 39 + "\n",
    "A1b" * 20 + "\n ", "1.e", "%41", "home ", "accept cookies", "\"\"\"\n", "// (c)\n",
]  # fmt: skip


@pytest.mark.parametrize("name", _NAMES)
def test_rules_take_linear_time(name: str) -> None:
    """Twice a text takes about twice the time, for runs of whatever begins a pattern."""
    for piece in _HARD:
        seconds = []
        for size in (100_000, 400_000):
            text = piece * (size // len(piece))
            started = time.process_time()
            found(name, text)
            seconds.append(time.process_time() - started)
        assert seconds[1] < 10 * seconds[0] + 0.3, (piece, seconds)


@settings(max_examples=tries(200), deadline=None)
@given(st.lists(st.sampled_from([*LETTERS, *_HARD, _APACHE, _LINES, "Home | About\n"]), max_size=12).map("".join))
def test_spans_are_apart_and_inside(text: str) -> None:
    """Of every rule, for any text."""
    for name in _NAMES:
        (rule,) = find_rules([name]).values()
        spans = spans_of(name, rule, MaskedText(text, "d"))
        flat = spans.ravel().tolist()
        assert flat == sorted(flat) and all(0 <= place <= len(text) for place in flat)
        assert (spans[:, 0] < spans[:, 1]).all() and (spans[1:, 0] > spans[:-1, 1]).all()


@settings(max_examples=tries(200), deadline=None)
@given(
    st.lists(st.sampled_from(["e\u0301 ", "\r\n", "語", "<MAIL_1>", "ada@x.org", "a "]), max_size=9),
    st.sets(st.integers(0, 60), max_size=4),
)
def test_placeholders_are_where_redaction_wrote_them(pieces: list[str], places: set[int]) -> None:
    """After other edits and cuts, of which none is in a placeholder; such names in the source are text."""
    middle, first = normalize("".join(pieces))
    mails = [DetectedSpan(*at.span(), "mail", "r", 1.0) for at in re.finditer(rb"ada@x\.org", middle.encode())]
    text, second = redact(middle, mails)
    edits = compose(first, second)
    numbers = zip(*(getattr(edits, name).tolist() for name in _EDIT), strict=True)
    rows = [dict(zip(_EDIT, (RULES[rule], *of), strict=True)) for rule, *of in numbers]
    at, written = 0, np.zeros(len(text), bool)
    for part in re.split(r"(ada@x\.org)", middle):
        size = len(re.match(r"<MAIL_\d+>", text[at:])[0]) if part == "ada@x.org" else len(part)  # type: ignore[index]
        written[at : at + size] = part == "ada@x.org"
        at += size
    assert at == len(text)
    cuts = sorted({min(place, len(text)) for place in places})
    spans = [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    left, cut = without(text, spans, "passage")
    stays = np.ones(len(text), bool)
    for start, end in spans:
        stays[start:end] = False
    masked = np.zeros(len(left), bool)
    for start, end in placeholders_of(left, rows, cut if spans else None):
        masked[start:end] = True
    assert masked.tolist() == written[stays].tolist()


@mask_rule(version="3")
def _vowels(document: MaskedText) -> list[tuple[int, int]]:
    return [at.span() for at in re.finditer("[aeiou]+", document.text)]


def test_rules_of_users() -> None:
    """By reference; unknown names are refused with the nearest, wrong spans and failures with the document."""
    place = f"{__name__}:_vowels"
    assert find_rules([place, "blob"])[place].version == "3"
    with pytest.raises(ConfigError, match="mask_rule 'blobs' is not known; did you mean 'blob'"):
        find_rules(["blobs"])
    for wrong in ([(0, 9)], [(-1, 2)], [(2, 1)]):
        with pytest.raises(InputError, match="rule mine: document d7: gives a span outside of its 4 characters"):
            spans_of("mine", MaskRule(lambda _, spans=wrong: spans, "1"), MaskedText("text", "d7"))  # type: ignore[misc]
    with pytest.raises(InputError, match=r"rule mine: document d7: ZeroDivisionError: .*mend the rule"):
        spans_of("mine", MaskRule(lambda _: 1 // 0, "1"), MaskedText("text", "d7"))  # type: ignore[arg-type, return-value]


@settings(max_examples=tries(300), deadline=None)
@given(st.data())
def test_the_first_rule_with_a_character_of_a_token_is_its_rule(data: st.DataObject) -> None:
    """Against sets of characters, one token at a time."""
    bounds = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted).map(tuple)
    tokens = data.draw(st.lists(bounds, max_size=20))
    drawn = data.draw(st.lists(st.lists(bounds, max_size=4), max_size=4))
    spans = {
        number: spans_of("r", MaskRule(lambda _, of=of: of, "1"), MaskedText("x" * 30))
        for number, of in enumerate(drawn, 1)  # type: ignore[misc]
    }
    starts, ends = (np.array([token[side] for token in tokens], np.int64) for side in (0, 1))
    covered = [{place for start, end in of for place in range(start, end)} for of in drawn]
    truth = [
        next((number for number, places in enumerate(covered, 1) if places & {*range(start, end)}), 0)
        for start, end in tokens
    ]
    assert token_rules(starts, ends, spans).tolist() == truth


class _Walked(NamedTuple):
    """A tokenizer, and characters [start, end) of each token of a text by a walk over its bytes."""

    file_text: str
    bounds: Callable[[str], list[tuple[int, int]]]
    before: str = ""


def _by_bytes(text: str, pieces: list[bytes]) -> list[tuple[int, int]]:
    """Bounds of tokens that spell a text, letters of which a token has a part taken whole."""
    assert b"".join(pieces) == text.encode()
    letter = [at for at, character in enumerate(text) for _ in character.encode()]
    ends = np.cumsum([0, *map(len, pieces)]).tolist()
    return [(letter[a], letter[b - 1] + 1) for a, b in pairwise(ends)]


def _gpt2_with_words() -> _Walked:
    tokenizer = Tokenizer.from_file(str(GPT2))
    tokenizer.add_tokens(["hello world", "y = 1"])

    def bounds(text: str) -> list[tuple[int, int]]:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        added = tokenizer.get_added_tokens_decoder()
        return _by_bytes(text, [added[i].content.encode() if i in added else spelled(tokenizer, i) for i in ids])

    return _Walked(tokenizer.to_str(), bounds)


def _unigram() -> _Walked:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    letters = sorted({*"".join(LETTERS), "▁"})
    trainer = trainers.UnigramTrainer(
        vocab_size=400, initial_alphabet=letters, special_tokens=["<unk>"], unk_token="<unk>"
    )
    tokenizer.train_from_iterator([*WORDS, *LETTERS], trainer)
    known = {*tokenizer.get_vocab()}

    def bounds(text: str) -> list[tuple[int, int]]:
        names = [tokenizer.id_to_token(i) for i in tokenizer.encode(text, add_special_tokens=False).ids]
        assert known.issuperset(letters)
        return _by_bytes(text.replace(" ", "▁"), [name.encode() for name in names])

    return _Walked(tokenizer.to_str(), bounds)


def _word_piece() -> _Walked:
    """Lower case, without white space; every letter is in its vocabulary, at the head of a word and inside."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=200))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    letters = sorted({letter for one in LETTERS for letter in one.lower()})
    names = ["[UNK]", *letters, *(f"##{letter}" for letter in letters), "hel", "##lo", "wor", "##ld", "return"]
    tokenizer.model = models.WordPiece(
        {n: at for at, n in enumerate(names)}, unk_token="[UNK]", max_input_chars_per_word=200
    )  # type: ignore[assignment]

    def bounds(text: str) -> list[tuple[int, int]]:
        low = [(at, letter) for at, character in enumerate(text) for letter in character.lower()]
        letters_of, at, made = "".join(letter for _, letter in low), 0, []
        for token in tokenizer.encode(text, add_special_tokens=False).ids:
            name = tokenizer.id_to_token(token).removeprefix("##")
            at = letters_of.index(name, at)
            made.append((low[at][0], low[at + len(name) - 1][0] + 1))
            at += len(name)
        return made

    return _Walked(tokenizer.to_str(), bounds)


def _form(name: str) -> _Walked:
    form = FORMS[name]()
    return _Walked(form.tokenizer.to_str(), functools.partial(aligned, form), form.before)


_TOKENIZERS: dict[str, Callable[[], _Walked]] = {
    "gpt2 with words": _gpt2_with_words,
    "unigram": _unigram,
    "word pieces": _word_piece,
    **{name: functools.partial(_form, name) for name in FORMS},
}


@sampled(8)
@pytest.mark.parametrize("name", _TOKENIZERS)
def test_masks_are_those_of_a_walk_over_bytes(name: str) -> None:
    """A token is without loss where one of its bytes lies in a span, in any layout, and its ids are those without."""
    if name == "gpt2 with words" and not GPT2.exists():
        pytest.skip("the tokenizer is not there")
    walked, draw = _TOKENIZERS[name](), random.Random(7)
    certificate = certify(walked.file_text) if name in ("gpt2 with words", "plain") else Certificate.refused("", "test")
    encoder, masked = LayoutEncoder(walked.file_text, certificate, 1 << 18), 0
    for _ in range(tries(300, 20)):
        text = "".join(draw.choices(LETTERS, k=draw.randrange(14)))
        if walked.before and (not text or text[0] in " ▁\t\n\u3000\u00a0"):
            text = f"h{text}"
        (row,) = encoder.encode([LaidOut(text, whole(text), "d")])
        bounds = walked.bounds(text)
        assert len(bounds) == len(row.ids)
        cuts = [sorted(draw.choices(range(len(text) + 1), k=2)) for _ in range(draw.randrange(4))]
        spans = spans_of("r", MaskRule(lambda _, of=cuts: of, "1"), MaskedText(text))  # type: ignore[misc]
        places = {place for start, end in cuts for place in range(start, end)}
        starts, ends = encoder.characters(text, row)
        numbers = token_rules(starts, ends, {1: spans})
        assert numbers.tolist() == [int(bool(places & {*range(start, end)})) for start, end in bounds], text
        masked += int(numbers.sum())
    assert masked > tries(100, 5)


def test_masks_go_with_pieces() -> None:
    """Of a text that is cut and moved, each token has the rule of its characters; sentinels have none."""
    file_text = FORMS["plain"]().tokenizer.to_str()
    encoder, draw = LayoutEncoder(file_text, Certificate.refused("", "test"), 1 << 18), random.Random(5)
    for _ in range(tries(100, 20)):
        text = "".join(draw.choices("hello wor\n", k=draw.randrange(1, 30)))
        first, second = sorted(draw.choices(range(len(text) + 1), k=2))
        layout = (Header("w h"), Sentinel(1), Span(second, len(text)), Span(0, first), Sentinel(2), Span(first, second))
        (row,) = encoder.encode([LaidOut(text, layout, "d")])
        starts, ends = encoder.characters(text, row)
        numbers = token_rules(starts, ends, {1: spans_of("r", _vowels, MaskedText(text))})
        pieces, at = row.pieces(), dict.fromkeys(range(len(layout)), 0)
        names = [bytes(spelled(Tokenizer.from_str(file_text), i)).decode() for i in row.ids]
        for token, piece in enumerate(pieces.tolist()):
            if isinstance(layout[piece], Span):
                begin = layout[piece].start + at[piece]  # type: ignore[union-attr]
                assert text[begin : begin + len(names[token])] == names[token]
                assert numbers[token] == bool(re.search("[aeiou]", names[token]))
                at[piece] += len(names[token])
            elif isinstance(layout[piece], Sentinel):
                assert numbers[token] == 0
