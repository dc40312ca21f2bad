"""Encodings that lie: found without loss of a byte, or refused."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("resiliparse")
pytest.importorskip("charset_normalizer")

from spark_jobs.sources.encodings.decoding import Recoded
from spark_jobs.sources.formats.legacy_encoding import tell_encoding
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Reason, Refusal

TEXTS = {
    "cp1252": "Die Straße führt über die Brücke – „schön“, sagte er, und der Weg war für alle zu weit.\n",
    "cp1251": "Съешь же ещё этих мягких французских булок, да выпей чаю. Это было давно.\n",
    "koi8-u": "Съешь же ещё этих мягких французских булок, да выпей чаю. Это было давно.\n",
    "cp1250": "Příliš žluťoučký kůň úpěl ďábelské ódy. Všechno bylo jinak, než jsme čekali.\n",
    "cp932": "これは日本語の文章です。文字コードを判定するためのテストです。\n",
    "gb18030": "这是一个中文文本,用来测试编码检测的准确性。今天天气很好。\n",
    "big5hkscs": "這是一個中文文本,用來測試編碼檢測的準確性。今天天氣很好。\n",
    "cp949": "이것은 한국어 문장입니다. 인코딩을 판별하는 시험에 쓰입니다.\n",
    "utf-16-le": "Plain text, grüßt: здравствуй, 你好\n",
    "utf-16-be": "Plain text, grüßt: здравствуй, 你好\n",
}


def test_files_are_decoded_without_loss_by_policy(landing: Any, files_config: Any, data: Path) -> None:
    """Each in its own encoding, told by its bytes; `strict` refuses all of them, and UTF-8 has nothing to tell."""
    for encoding, text in TEXTS.items():
        (data / f"{encoding}.txt").write_bytes(text.encode(encoding))
    (data / "plain.txt").write_text("grüßt")
    documents, _ = landing.land(files_config(encoding="detect"))
    rows = {row["path"].removesuffix(".txt"): row for row in documents}
    assert {path: row["content"] for path, row in rows.items()} == {**TEXTS, "plain": "grüßt"}
    for encoding in TEXTS:
        row = rows[encoding]
        assert row["content"].encode(row["encoding"]) == (data / row["path"]).read_bytes()
        assert row["metadata"]["source_encoding"] == row["encoding"]
    assert (rows["plain"]["encoding"], rows["plain"]["metadata"]) == ("utf-8", {})
    documents, _ = landing.__class__().land(files_config())
    assert [row["path"] for row in documents] == ["plain.txt"]


def test_a_stated_codec_is_taken_where_utf8_fails(landing: Any, files_config: Any, data: Path) -> None:
    """No detector tells a few Icelandic words; who knows, says so. Codecs that do not exist are no config."""
    (data / "a.txt").write_bytes("það er gott".encode("cp1252"))
    (data / "b.txt").write_text("það er gott")
    documents, _ = landing.land(files_config(encoding="cp1252"))
    assert [(row["content"], row["encoding"]) for row in documents] == [
        ("það er gott", "cp1252"),
        ("það er gott", "utf-8"),
    ]
    for codec in ("cp9999", "hex", "guess"):
        with pytest.raises(ValueError, match="is no codec"):
            files_config(encoding=codec)


def test_what_is_no_text_stays_refused(landing: Any, files_config: Any, data: Path) -> None:
    """A single null byte, null bytes between words, a picture, UTF-8 with a wrong byte, and noise."""
    import random

    (data / "null.txt").write_bytes(b"\0")
    (data / "words.txt").write_bytes(b"abc\0def" * 100)
    (data / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0" + random.Random(1).randbytes(4000))
    (data / "cut.txt").write_bytes("grüße für alle, schöne Tage".encode() + b"\xc3 end")
    (data / "noise.txt").write_bytes(bytes(1 + b % 255 for b in random.Random(2).randbytes(5000)))
    (data / "mark.txt").write_bytes("a\ufeffb".encode())
    documents, arrivals = landing.land(files_config(encoding="detect"))
    assert [row["content"] for row in documents] == ["a\ufeffb"]
    reasons = {row["path"]: row["reason"] for row in arrivals}
    assert reasons == {
        "null.txt": "binary",
        "words.txt": "binary",
        "picture.txt": "binary",
        "cut.txt": "undecodable",
        "noise.txt": "undecodable",
        "mark.txt": None,
    }


@pytest.mark.nightly
def test_records_of_a_file_in_a_legacy_encoding_land(landing: Any, files_config: Any, data: Path) -> None:
    """CSV as spreadsheets write it: UTF-16 with a mark, windows-1252 whose first accent comes late."""
    rows = [{"body": "plain"}] * 30_000 + [{"body": text} for text in ("Straße über Brücke", "für alle größer" * 100)]
    table = io.StringIO()
    writer = csv.DictWriter(table, ["body"])
    writer.writeheader()
    writer.writerows(rows)
    (data / "a.csv").write_bytes(table.getvalue().encode("utf-16"))
    (data / "b.csv").write_bytes(table.getvalue().encode("cp1252") + b"odd \x81 byte\r\n")
    documents, arrivals = landing.land(files_config(encoding="detect", text_column="body"))
    found = [(row["path"][:5], row["content"]) for row in documents]
    expected = {(name, row["body"]) for name in ("a.csv", "b.csv") for row in rows}
    assert set(found) == expected
    assert {row["metadata"]["source_encoding"] for row in documents if row["content"] != "plain"} == {
        "utf-16",
        "cp1252",
    }
    assert [row["reason"] for row in arrivals if row["reason"] not in ("repeated_record", None)] == ["undecodable"]


def test_a_null_byte_in_one_record_loses_no_other(landing: Any, files_config: Any, data: Path) -> None:
    """It is not taken for UTF-16, in which no line would be one."""
    (data / "a.jsonl").write_bytes('{"body": "first, grün"}\n{"body": "\0"}\n{"body": "last"}\n'.encode())
    documents, arrivals = landing.land(files_config(encoding="detect", text_column="body"))
    assert [row["content"] for row in documents] == ["first, grün", "last"]
    assert [row["reason"] for row in arrivals] == ["bad_record", None]


@pytest.mark.parametrize("size", [3, 8, 1 << 16])
def test_a_stream_is_the_same_text_however_it_is_read(size: int) -> None:
    """Characters of several bytes are not cut; UTF-8 comes as it is, and so does what nothing decodes."""

    def detect(data: bytes) -> Extracted | Refusal:
        return tell_encoding(data, "detect", is_whole=False)

    def read(data: bytes) -> bytes:
        stream, pieces = Recoded(io.BytesIO(data), detect), []
        while piece := stream.read(size):
            pieces.append(piece)
        return b"".join(pieces)

    for encoding in ("gb18030", "utf-16-le", "cp1251"):
        assert read(TEXTS[encoding].encode(encoding)).decode() == TEXTS[encoding]
    for data in ("ascii, grüßt\n".encode(), b"\xef\xbb\xbfgr\xc3\xbc\xc3\x9ft", b""):
        assert read(data) == data


def test_refusals_say_what_was_tried() -> None:
    """The sentence names the encodings."""
    found = tell_encoding(b"\x81\x8d\x8f\x90\x9d", "cp1252", is_whole=True)
    assert isinstance(found, Refusal) and found.reason == Reason.UNDECODABLE and "cp1252" in found.detail
