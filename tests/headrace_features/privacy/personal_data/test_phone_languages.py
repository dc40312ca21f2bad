"""Phones of every language: words for phone, mobile and fax, and digits of every script."""

from __future__ import annotations

import random
import string
import sys
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_features.privacy.personal_data.digits import has_other_digits, with_ascii_digits
from headrace_features.privacy.personal_data.find import score
from headrace_features.privacy.personal_data.phone_words import CLDR_PHONE_WORDS
from spark_jobs.text.text_columns import utf8_arrays

ZEROS = [chr(point) for point in range(sys.maxunicode + 1) if unicodedata.decimal(chr(point), None) == 0]
LABELS = [
    "Τηλέφωνο: {}", "ΤΗΛΕΦΩΝΟ {}", "Τηλ. {}", "Κινητό: {}", "Φαξ {}", "تلفن: {}",
    "شماره تلفن همراه: {}", "موبایل {}", "فکس: {}", "نمابر {}", "Điện thoại: {}",
    "ĐIỆN THOẠI: {}", "SĐT: {}", "ĐT {}", "số điện thoại di động {}", "fax: {}",
    "هاتف: {}", "الجوال {}", "ფაქსი: {}", "ტელეფონი {}", "Հեռախոս: {}", "ტელეფონი: {}",
    "Телефон: {}", "ТЭЛЕФОН {}", "Telefón: {}", "TÉLÉPHONE : {}", "Sími: {}",
    "โทรศัพท์ {}", "電話：{}", "手机{}", "전화 {}", "फ़ोन: {}", "টেলিফোন: {}", "டெலிஃபோன்: {}",
    "ስልክ {}", "ទូរស័ព្ទ {}", "טלפון: {}", "פקס {}", "Puhelin: {}", "Telefono {}",
    "Simu: {}", "Ponsel: {}", "Tālrunis: {}", "Puh. {}", "Mob: {}", "טל' {}", "טל: {}", "ტელ. {}", "Հեռ.՝ {}",
    "тэл. {}",
    "tālr. {}", "Telefonszám: {}", "telefonní číslo {}", "telefoonnummer {}", "телефонен номер {}", "WhatsApp {}",
    "ＴＥＬ：{}", "Ｔｅｌ．{}", "☎ {}", "☎\ufe0f{}", "✆ {}", "📞 {}", "📱{}", "📠: {}",
]  # fmt: skip


def in_digits(number: str, zero: str) -> str:
    """A number in the digits of another script."""
    return "".join(chr(ord(zero) + int(one)) if one.isascii() and one.isdigit() else one for one in number)


def phones(texts: list[str]) -> list[list[str]]:
    """What is found of each text, as text."""
    spans = score(pa.array(texts))["spans"].to_pylist()
    return [
        [text.encode()[span["start"] : span["end"]].decode() for span in of_text if span["kind"] == "phone"]
        for text, of_text in zip(texts, spans, strict=True)
    ]


@pytest.mark.parametrize("zero", ["0", "\u0660", "\u06f0", "\uff10"], ids=["ascii", "arabic", "persian", "wide"])
def test_a_number_beside_a_word_for_phone_is_one(zero: str) -> None:
    """Also in capitals, and in the digits that Arabic and Persian write."""
    number = in_digits("021 8765 4321", zero)
    # Wide letters are folded beside digits that are.
    labels = [label for label in LABELS if zero != "0" or not set("ＴＬｌ") & set(label)]
    found = phones([label.format(number) for label in labels])
    assert [label for label, of_label in zip(labels, found, strict=True) if of_label != [number]] == []


def test_every_word_of_the_table_tells_a_phone() -> None:
    """As it stands, and in capitals where its script has some."""
    words = CLDR_PHONE_WORDS.split()
    texts = [f"{word}: 021 8765 4321" for word in words] + [f"{word.upper()}: 021 8765 4321" for word in words]
    missing = [text for text, found in zip(texts, phones(texts), strict=True) if found != ["021 8765 4321"]]
    assert len(words) > 350 and missing == []


def test_digits_of_every_script_are_digits() -> None:
    """Unicode's some seventy sets: phones with their country, cards, addresses; spans are whole characters."""
    draw = random.Random(5)
    assert len(ZEROS) > 65
    for zero in ZEROS:
        values = [
            f"+49 30 {draw.randrange(10**6, 10**7)}",
            "4111 1111 1111 1111",
            f"81.169.145.{draw.randrange(100, 250)}",
        ]
        text = " ; ".join(in_digits(value, zero) for value in values)
        spans = score(pa.array([text]))["spans"].to_pylist()[0]
        found = [(span["kind"], text.encode()[span["start"] : span["end"]].decode()) for span in spans]
        assert found == [*zip(["phone", "card", "ip"], (in_digits(value, zero) for value in values), strict=True)], zero


def test_marks_of_direction_inside_of_a_number_are_part_of_it() -> None:
    """As Arabic pages write numbers from left to right."""
    text = "هاتف: \u2066+\u0669\u0666\u0666 \u0665\u0660\u200e \u0661\u0662\u0663 \u0664\u0665\u0666\u0667\u2069."
    assert phones([text]) == [
        ["+\u0669\u0666\u0666 \u0665\u0660\u200e \u0661\u0662\u0663 \u0664\u0665\u0666\u0667\u2069"]
    ]


@given(
    st.lists(
        st.text(
            st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from([*ZEROS, "\u200e", "Ａ", "ｚ"])),
            max_size=30,
        )
    )
)
def test_a_folded_text_leads_back_to_the_text(texts: list[str]) -> None:
    """Each byte has its place in the text; digits are those that Python reads, all else stays."""
    data, offsets = utf8_arrays(pa.array(texts, pa.string()))
    flags = has_other_digits(data, offsets)
    for row, text in enumerate(texts):
        assert flags[row] == any(unicodedata.decimal(one, None) is not None and not one.isascii() for one in text)
        folded, places = with_ascii_digits(data[offsets[row] : offsets[row + 1]])
        wanted = "".join(str(unicodedata.decimal(one, one)) for one in text)
        for mark in ("\u061c", "\u200e", "\u200f", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))):
            wanted = wanted.replace(mark, "")
        wanted = wanted.translate({ord(one) + 0xFEE0: one for one in string.ascii_letters})
        assert bytes(folded).decode() == wanted
        assert places[-1] == len(text.encode()) and (places[1:] > places[:-1]).all()
