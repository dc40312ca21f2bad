"""What texts are compared by: the letters of prose, the lines of other kinds."""

from __future__ import annotations

import hashlib
import random
import re
import unicodedata
from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels import sha256
from spark_jobs.text.compared_texts import compared_texts, letters_column
from tests.tiers import tries

texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=60) | st.text(
    alphabet="aB12$ \n\t.,-+=%/*:;()ΣσςİIıßẞé\u0301\u200b\ue000\u0378「」٣–½", max_size=40
)
UNITS = "%\u066a\uff05\ufe6a‰‱°′″‴"
wordy = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=["N", "Sc"], exclude_characters=UNITS), max_size=60
)
POINTS = ".,\u066b\uff0e\uff0c"


def compared_text(utf8: bytes, kind: str) -> bytes:
    """What a text alone is compared by."""
    ((start,), (end,)), data = (bounds := compared_texts(pa.array([utf8.decode()]), pa.array([kind])))[1:], bounds[0]
    return bytes(data[start:end])


def letters(utf8: bytes) -> bytes:
    """What prose alone is compared by."""
    return compared_text(utf8, "prose")


def letters_sha256(utf8: bytes, kind: str, min_letters: int) -> str | None:
    """The hash of a text alone."""
    (found,) = letters_column(pa.array([utf8.decode()]), pa.array([kind]), min_letters).to_pylist()
    return None if found is None else str(found)


def obvious(text: str) -> str:
    """The definition, character by character."""
    lowered = "".join(character.lower() for character in text).replace("ς", "σ")
    seen = [one for one in lowered if unicodedata.category(one) != "Cf"]
    kept = []
    for at, one in enumerate(seen):
        before, after = ("".join(seen[:at]), "".join(seen[at + 1 :]))
        is_sign = unicodedata.category(one) == "Pd" or one in "/*\uff0f\uff0a"
        if counts(one):
            kept.append(one)
        elif between_numbers(before, after):
            if not is_space(one):
                kept.append(one)
            elif not is_space(before[-1]):
                kept.append(" ")
        elif (is_sign and (is_number(before[-1:]) or is_number(after[:1]))) or (one in POINTS and is_number(after[:1])):
            kept.append(one)
    return "".join(kept)


def is_number(character: str) -> bool:
    """Whether it is of a number; an empty text is not."""
    return character != "" and (
        unicodedata.category(character)[0] == "N" or unicodedata.category(character) == "Sc" or character in UNITS
    )


def is_space(character: str) -> bool:
    """White space and controls."""
    return unicodedata.category(character)[0] == "Z" or unicodedata.category(character) == "Cc"


def counts(character: str) -> bool:
    """Whether it counts wherever it stands."""
    left_out = unicodedata.category(character)[0] in "ZP" or unicodedata.category(character) == "Cc"
    return not left_out or character in UNITS


def between_numbers(before: str, after: str) -> bool:
    """Whether the nearest characters that count on both sides are numbers."""
    left = next((one for one in reversed(before) if counts(one)), "")
    right = next((one for one in after if counts(one)), "")
    return is_number(left) and is_number(right)


@given(texts)
def test_letters_follow_their_definition(text: str) -> None:
    """The quick way gives what the definition says."""
    assert letters(text.encode()).decode() == obvious(text)


@given(wordy, wordy)
def test_letters_of_a_whole_are_those_of_its_parts(left: str, right: str) -> None:
    """Without numbers, no character's fate depends on its neighbours."""
    assert letters((left + right).encode()) == letters(left.encode()) + letters(right.encode())


@given(wordy)
def test_letters_ignore_case_and_space(text: str) -> None:
    """Lower-casing, or white space and punctuation at any place outside of numbers, changes nothing."""
    spread = " \n".join(text) + ".,"
    assert letters(spread.encode()) == letters(text.encode())
    assert letters(text.lower().encode()) == letters(text.encode())


@given(texts, st.integers(1, 40))
def test_texts_with_few_letters_have_no_hash(text: str, min_letters: int) -> None:
    """Null below `min_letters` characters, else SHA-256 of the letters."""
    kept = obvious(text)
    expected = hashlib.sha256(kept.encode()).hexdigest() if len(kept) >= min_letters else None
    assert letters_sha256(text.encode(), "prose", min_letters) == expected


NUMBERS = ["5", "12", "3.75", "1,000", "12:30", "2026", "7/8"]
MARKED: dict[str, Callable[[str], Iterable[str]]] = {
    "sign": lambda number: (
        f"-{number}",
        f"–{number}",
        f"−{number}",
        f"+{number}",
        f"±{number}",
        f"-${number}",
        f"${number}",
    ),
    "per cent": lambda number: (f"{number}%", f"{number}‰", f"{number}% - 6%", f"{number}% / 6%"),
    "point": lambda number: (f"{number[0]}.{number}", f"{number[0]},{number}", f".{number}"),
    "time": lambda number: (f"{number}:15", f"{number} 15"),
    "operator": lambda number: (f"{number} * 2", f"{number} / 2", f"{number} - 2", f"{number} × 2", f"{number}2"),
}


def test_prose_whose_numbers_differ_in_one_mark_is_not_the_same() -> None:
    """Of each sort of mark, and of the bare number; in any case and wrapped anywhere else it is the same."""
    rng = random.Random(9)
    for _ in range(tries(300)):
        number, words = rng.choice(NUMBERS), [f"word{chr(97 + rng.randrange(26))}" for _ in range(rng.randrange(2, 9))]
        for sort, marked in MARKED.items():
            at = rng.randrange(1, len(words))
            forms = [" ".join([*words[:at], form, *words[at:]]) for form in (number, *marked(number))]
            keys = [letters(form.encode()) for form in forms]
            assert len(set(keys)) == len(keys), (sort, forms)
            wrapped = [re.sub(r"(?<=[a-z]) (?=[a-z])", ",\n", form).upper() + "." for form in forms]
            assert [letters(form.encode()) for form in wrapped] == keys


CODE = "def rest_of(left, right):\n    return not left - right[0], 'a  b'\n"


@pytest.mark.parametrize("kind", ["code", "markup", "data"])
def test_other_kinds_that_differ_in_one_character_are_not_the_same(kind: str) -> None:
    """Any character but spaces at the ends of lines; each left out, doubled or exchanged for another."""
    whole = compared_text(CODE.encode(), kind)
    for at, one in enumerate(CODE.rstrip()):
        for other in ("", one * 2, "!", one.swapcase()):
            changed = CODE[:at] + other + CODE[at + 1 :]
            is_same = other == one or (one == "\n" and other == "\n\n")
            assert (compared_text(changed.encode(), kind) == whole) == is_same, changed
    assert compared_text((CODE.replace("\n", "  \n\n \n") + "\n").encode(), kind) == whole
    assert compared_text(b"a\t\n", kind) != compared_text(b"a\n", kind)  # an empty field is one


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Hello, World!\n", b"helloworld"),
        ("a + b = c_d", b"a+b=cd"),
        ("From -1.25 to 3/4, at 12:30.", b"from-1.25to3/4at12:30"),
        ("(1998) 1. Two,  3 \n(4); 5% - 6 %.", b"1998) 1two3 (4); 5% - 6 %"),
        ("x$y^z|~`<>", b"x$y^z|~`<>"),
        ("ΟΔΟΣ ΟΔΟΣ", "οδοσοδοσ".encode()),
        ("Ünï\u00a0cö\u00addé", "ünïcödé".encode()),
        ("\ue000\u0378", "\ue000\u0378".encode()),
    ],
)
def test_letters_of_examples(text: str, kept: bytes) -> None:
    """Golden values: symbols, private use and unassigned characters stay; soft hyphens and no-break spaces go."""
    assert letters(text.encode()) == kept


def obvious_lines(text: str) -> str:
    """The definition for other kinds than prose."""
    return "\n".join(line for line in (line.rstrip(" ") for line in text.split("\n")) if line)


columns = st.lists(st.tuples(texts, st.sampled_from(["prose", "code", "data"])), max_size=8)
arrow_types = st.sampled_from([pa.string(), pa.large_string()])


@given(columns, arrow_types, st.integers(0, 3), st.integers(1, 12), st.booleans())
def test_a_column_has_the_hashes_of_its_texts(
    rows: list[tuple[str, str]], kind: pa.DataType, skipped: int, min_letters: int, has_openssl: bool
) -> None:
    """Every row as if it were alone, also in a slice of a larger column, with OpenSSL's functions and without."""
    content = pa.array(["5é-"] * skipped + [text for text, _ in rows], kind).slice(skipped)
    kinds = pa.array(["code"] * skipped + [name for _, name in rows], pa.string()).slice(skipped)
    kept = [obvious(text) if name == "prose" else obvious_lines(text) for text, name in rows]
    hashes = [hashlib.sha256(one.encode()).hexdigest() if len(one) >= min_letters else None for one in kept]
    with pytest.MonkeyPatch.context() as patch:
        if not has_openssl:
            patch.setattr(sha256, "_functions", lambda: None)
        assert letters_column(content, kinds, min_letters).to_pylist() == hashes


@given(st.lists(st.text(alphabet="a \n\t", max_size=12), max_size=6))
def test_other_kinds_are_compared_by_their_lines(texts: list[str]) -> None:
    """Spaces at ends of lines and blank lines are left out, and nothing else."""
    data, starts, ends = compared_texts(pa.array(texts, pa.string()), pa.array(["markup"] * len(texts), pa.string()))
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    assert [bytes(data[start:end]).decode() for start, end in spans] == list(map(obvious_lines, texts))
