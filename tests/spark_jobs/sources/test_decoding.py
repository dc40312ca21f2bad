"""Every byte that is read can be written again; what cannot be is refused, never guessed."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.sources.encodings.decoding import Decoded, decode
from spark_jobs.sources.refusals import Reason, Refusal

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        (b"", "", "utf-8"),
        (b"plain\r\ntext\r", "plain\r\ntext\r", "utf-8"),
        ("größe\n".encode(), "größe\n", "utf-8"),
        (codecs.BOM_UTF8 + "größe".encode(), "größe", "utf-8-sig"),
        (codecs.BOM_UTF8, "", "utf-8-sig"),
        (codecs.BOM_UTF16_LE + "größe".encode("utf-16-le"), "größe", "utf-16"),
        (codecs.BOM_UTF16_BE + "größe".encode("utf-16-be"), "\ufeffgröße", "utf-16-be"),
        (codecs.BOM_UTF32_LE + "größe".encode("utf-32-le"), "größe", "utf-32"),
        (codecs.BOM_UTF32_BE + "größe".encode("utf-32-be"), "\ufeffgröße", "utf-32-be"),
    ],
)
def test_marked_and_plain_texts_decode_to_golden_values(data: bytes, text: str, encoding: str) -> None:
    """The codec named gives the bytes back; line ends stay as they were."""
    assert decode(data) == Decoded(text, encoding)
    assert text.encode(encoding) == data


def test_python_declares_its_encoding() -> None:
    """PEP 263 decides for Python, and for Python only."""
    data = b"# -*- coding: latin-1 -*-\nname = 'gr\xf6\xdfe'\n"
    decoded = decode(data, declares_encoding=True)
    assert decoded == Decoded("# -*- coding: latin-1 -*-\nname = 'größe'\n", "iso-8859-1")
    assert decoded.text.encode(decoded.encoding) == data
    assert isinstance(refused := decode(data), Refusal) and refused.reason == Reason.UNDECODABLE


def test_a_declared_encoding_does_not_matter_for_ascii() -> None:
    """A file of ASCII is UTF-8, whatever it declares."""
    assert decode(b"# coding: latin-1\nx = 1\n", declares_encoding=True).encoding == "utf-8"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", Reason.BINARY),
        ("größe".encode("utf-16-le"), Reason.BINARY),
        (b"caf\xe9 au lait", Reason.UNDECODABLE),
        (b"\xed\xa0\x80 is half a character", Reason.UNDECODABLE),
        (codecs.BOM_UTF16_LE + b"\x00\xd8", Reason.UNDECODABLE),
        (codecs.BOM_UTF16_LE + b"odd", Reason.UNDECODABLE),
        (b"# coding: no-such-codec\n\xe9", Reason.UNDECODABLE),
        (b"# coding: rot13\n\xe9", Reason.UNDECODABLE),
        (b"# coding: unicode_escape\n\\ud800\xe9", Reason.UNDECODABLE),
        (b"# coding: utf-7\n\xe9", Reason.UNDECODABLE),
        (b"# coding: cp932\n\x87\x90", Reason.UNDECODABLE),  # this codec has two ways to write one character
    ],
)
def test_bytes_that_are_no_text_are_refused(data: bytes, reason: Reason) -> None:
    """Null bytes are binary; bytes beyond the declared codec, and codecs that are none, are undecodable."""
    refused = decode(data, declares_encoding=True)
    assert isinstance(refused, Refusal) and refused.reason == reason
    assert "\n" not in refused.detail


@given(TEXTS, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]))
def test_every_text_comes_back_from_its_bytes(text: str, codec: str) -> None:
    """What was encoded decodes to itself, unless a null or a mark at its start makes it look like something else."""
    decoded = decode(text.encode(codec))
    if isinstance(decoded, Refusal):
        assert "\0" in text
    else:
        assert decoded.text.encode(decoded.encoding) == text.encode(codec)
        assert decoded.text == text or text.startswith(("\ufeff", "\0"))  # UTF-16's mark and a null are UTF-32's mark


@given(st.binary(), st.booleans())
def test_whatever_decodes_gives_its_bytes_back(data: bytes, declares: bool) -> None:
    """Over arbitrary bytes: refused, or lossless and free of half characters."""
    decoded = decode(data, declares_encoding=declares)
    if isinstance(decoded, Decoded):
        assert decoded.text.encode(decoded.encoding) == data
        decoded.text.encode()


@given(st.sampled_from(["latin-1", "cp1252", "koi8-r", "shift_jis", "utf-7", "raw_unicode_escape"]), st.binary())
def test_a_declared_codec_must_prove_that_it_is_lossless(codec: str, body: bytes) -> None:
    """Codecs that write one text in two ways lose bytes; such files are refused."""
    data = b"# coding: " + codec.encode() + b"\n" + body
    decoded = decode(data, declares_encoding=True)
    if isinstance(decoded, Decoded):
        assert decoded.text.encode(decoded.encoding) == data
