"""Pages in the encodings of the web, declared truly, falsely or not at all."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("resiliparse")

from spark_jobs.sources.encodings.page_encoding import DecodedPage, decode_page
from spark_jobs.sources.encodings.prescan import declared_codec
from spark_jobs.sources.refusals import Reason, Refusal
from tests.tiers import tries

RUSSIAN = "<p>Съешь же ещё этих мягких французских булок, да выпей чаю"
JAPANESE = "<p>いろはにほへと ちりぬるを わかよたれそ つねならむ"


def meta(label: str) -> bytes:
    """A declaration in a page."""
    return f'<html><head><meta http-equiv=Content-Type content="text/html; charset={label}">'.encode()


@pytest.mark.parametrize(
    ("data", "charset", "named_by", "text"),
    [
        (RUSSIAN.encode(), None, "its bytes", RUSSIAN),
        (RUSSIAN.encode(), "iso-8859-1", "its bytes", RUSSIAN),
        (RUSSIAN.encode("cp1251"), "windows-1251", "http", RUSSIAN),
        (RUSSIAN.encode("koi8-r"), "utf-8", "detected", RUSSIAN),
        (RUSSIAN.encode("utf-16"), "koi8-r", "byte order mark", RUSSIAN),
        (RUSSIAN.encode("utf-8-sig"), None, "byte order mark", RUSSIAN),
        (JAPANESE.encode("iso2022_jp"), "iso-2022-jp", "http", JAPANESE),
        (JAPANESE.encode("shift_jis"), '"Shift_JIS"', "http", JAPANESE),
        ("<p>€ “x”".encode("cp1252"), "latin1", "http", "<p>€ “x”"),
        (b"<p>plain", "nonsense", "its bytes", "<p>plain"),
    ],
)
def test_the_first_codec_that_fits_all_bytes_decodes(data: bytes, charset: str, named_by: str, text: str) -> None:
    """Marks, then the bytes themselves, then the server, then the page, then a guess."""
    page = decode_page(data, charset)
    assert isinstance(page, DecodedPage) and (page.text, page.named_by) == (text, named_by)


def test_a_page_names_its_own_encoding() -> None:
    """By any of the forms of the meta element, and in the declaration of XML."""
    for head in (meta("koi8-r"), b'<meta charset="koi8-r">', b"<?xml version='1.0' encoding='koi8-r'?>"):
        page = decode_page(head + RUSSIAN.encode("koi8-r"), "nonsense")
        assert isinstance(page, DecodedPage) and page.named_by == "meta" and page.text.endswith(RUSSIAN)


def test_text_in_iso_2022_jp_is_told_by_its_bytes_and_other_escapes_are_not() -> None:
    """It is ASCII to every check; colours of a terminal begin with the same byte."""
    said = "この町は川の北岸にあり、古い市場と美しい庭園で知られています。"
    assert decode_page(said.encode("iso-2022-jp")) == (said, "iso2022_jp", "detected")
    assert decode_page(b"\x1b[31mred\x1b[0m") == ("\x1b[31mred\x1b[0m", "utf-8", "its bytes")


def test_bytes_that_no_codec_takes_are_refused_and_none_is_dropped() -> None:
    """Nor are they replaced: a text with replacement characters is another text."""
    found = decode_page(meta("utf-8") + "größe".encode() + b"\xff\x81", None)
    assert isinstance(found, Refusal) and found.reason == Reason.UNDECODABLE and "utf-8" in found.detail
    assert decode_page(b"GIF89a\0\1", None).reason == Reason.BINARY  # type: ignore[union-attr]


def test_a_page_that_was_cut_loses_at_most_its_last_character() -> None:
    """Crawlers cut at a number of bytes, also inside of a character."""
    data = RUSSIAN.encode()[:-1]
    assert isinstance(decode_page(data, None), Refusal) or decode_page(data, None).named_by != "its bytes"  # type: ignore[union-attr]
    page = decode_page(data, None, cut=True)
    assert isinstance(page, DecodedPage) and page.text == RUSSIAN[:-1]


DECOYS = (
    b"<!-- <meta charset=%s> -->",
    b"<!--> <!-- <meta charset=%s> -->",
    b'<meta name=description content="say charset=%s of a page">',
    b'<meta name="charset" content="text/html; charset=%s">',
    b'<meta http-equiv=refresh content="0; charset=%s">',
    b"<link title='<meta charset=%s>'>",
    b'<a data="charset=%s"/>',
    b"<?php <meta charset=%s ?>",
    b"<!doctype html charset=%s>",
    b"</meta charset=%s>",
    b"<metadata charset=%s>",
    b"<meta charset=nonsense content='text/html; charset=%s' http-equiv=content-type>",
    b"<meta charset=nonsense charset=%s>",
    b"&lt;meta charset=%s>",
)
DECLARATIONS = (
    b"<meta charset=%s>",
    b"<META\tCharSet = '%s'/>",
    b'<meta/charset="%s">',
    b"<meta name=x charset=%s charset=big5>",
    b"<meta http-equiv='Content-Type' content='text/html; charset=%s'>",
    b"<meta content=\"charset charset = '%s'; x\"\nhttp-equiv=CONTENT-TYPE>",
    b"<meta content=text/html;charset=%s http-equiv=content-type>",
)


@pytest.mark.parametrize("seed", range(tries(400, 20)))
def test_only_what_declares_an_encoding_declares_it(seed: int) -> None:
    """Comments, descriptions, attributes of others and what is misspelt do not, before and behind the declaration."""
    rng = random.Random(seed)
    for declaration in DECLARATIONS:
        decoys = rng.choices([decoy % rng.choice((b"iso-8859-1", b"utf-8", b"koi8-u")) for decoy in DECOYS], k=6)
        head = [*decoys[:3], declaration % b"windows-1251", *decoys[3:]]
        rng.shuffle(decoys)
        xml = rng.choice((b"", b"<?xml version='1.0' encoding='koi8-r'?>"))
        page = decode_page(xml + b"<html><head>" + b"\n".join(head) + RUSSIAN.encode("cp1251"))
        assert isinstance(page, DecodedPage) and page[1:] == ("cp1251", "meta") and page.text.endswith(RUSSIAN)
        undeclared = decode_page(b"\n".join(decoys) + RUSSIAN.encode("cp1251"))
        assert isinstance(undeclared, DecodedPage) and undeclared.named_by == "detected"


def test_labels_of_declarations_mean_what_browsers_take_them_for() -> None:
    """A page whose bytes could be read as ASCII is in no UTF-16, and what is known to nobody is no declaration."""
    said = b"<meta charset=%s>"
    for label, codec in ((b" KOI8 ", "koi8-r"), (b"utf-16", "utf-8"), (b"x-user-defined", "cp1252"), (b"utf-7", None)):
        assert declared_codec(said % (b"'" + label + b"'")) == codec
    assert declared_codec(b"<?xml version='1.0' encoding = \"koi8-r\"?><meta charset=nonsense>") == "koi8-r"
    assert declared_codec(b"<!-- " + said % b"koi8-r") is None
