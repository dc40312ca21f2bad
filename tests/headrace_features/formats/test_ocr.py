"""Pages without a believable text layer are recognised, in the order of reading, and reported on one by one."""

from __future__ import annotations

import io
import json
import random
import struct
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pypdfium2")
pytest.importorskip("PIL")

from PIL import Image, ImageDraw
from pydantic import ValidationError

from headrace_features.formats.pages.layer_score import layer_score
from headrace_features.formats.pages.reading_order import Line, text_in_order
from spark_jobs.child_processes import end_idle_children
from spark_jobs.sources.config.source_config import DocumentsConfig, FilesSource
from spark_jobs.sources.reading.built_in import extract
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Refusal
from tests.headrace_features.formats.made_pdf import pdf

Configs = Callable[..., DocumentsConfig]
PROSE = "The quick brown fox jumps over the lazy dog, and then it rests for a while in the long grass near the river. "
ENGINE = """
__version__ = "7"
def read(picture):
    height, width, _ = picture.shape
    if width < height:
        raise ValueError("a page that stands")
    for left, text in ((0.6, "right"), (0.0, "left")):
        for row in range(2):
            x, y = left * width, row * 40
            yield f"{text} {row}", 0.95, [[x, y], [x + 9, y], [x + 9, y + 20], [x, y + 20]]
def spin(picture):
    while True:
        pass
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's engine: reads two columns on a page that lies, and fails on one that stands."""
    end_idle_children()  # its path is that of this process when it started
    (tmp_path / "own_engine.py").write_text(ENGINE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return "own_engine:read"


def scan(*sizes: tuple[int, int], kind: str = "TIFF", ink: bool = True) -> bytes:
    """A file with a page of each size, with a line drawn on it where there is to be ink."""
    pages = [Image.new("L", size, 255) for size in sizes]
    for page in pages if ink else ():
        ImageDraw.Draw(page).line((5, 5, 50, 5), fill=0, width=4)
    file = io.BytesIO()
    pages[0].save(file, kind, **({"save_all": True, "append_images": pages[1:]} if len(pages) > 1 else {}))
    return file.getvalue()


def shown(text: str) -> str:
    """The drawing of a text."""
    return f"BT /F1 8 Tf 10 50 Td ({text}) Tj ET"


def png(width: int, height: int) -> bytes:
    """A PNG picture of one bit a pixel that says it is so large, with few rows in it."""
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0" * 9999)),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def pages_of(found: Extracted | Refusal) -> list[dict[str, Any]]:
    """The reports of the pages of a document."""
    assert isinstance(found, Extracted), found
    reports: list[dict[str, Any]] = json.loads(found.metadata["headrace.pages"])
    return reports


def columns(lines: Iterable[tuple[str, float, float, float]], lean: float = 0.0) -> list[Line]:
    """Lines of height 20 by text, left, top and width, on a page that leans by a fraction."""
    return [
        Line(text, 1.0, [[x + lean * -b, b + lean * x] for x, b in ((a, y), (a + w, y), (a + w, y + 20), (a, y + 20))])
        for text, a, y, w in lines
    ]


@pytest.mark.parametrize("lean", [0.0, 0.03, -0.05])
def test_columns_are_read_one_after_the_other(lean: float) -> None:
    """A headline, two columns, a line across, two columns again: on a page that leans too, in any order of lines."""
    order = [("head", 0, 0, 600), *((f"a{n}", 0, 40 + 30 * n, 280) for n in range(4))]
    order += [*((f"b{n}", 320, 40 + 30 * n, 280 - 40 * n) for n in range(4)), ("across", 0, 180, 600)]
    order += [
        *((f"c{n}", 0, 220 + 30 * n, 250) for n in range(3)),
        *((f"d{n}", 330, 222 + 30 * n, 270) for n in range(3)),
    ]
    for seed in range(5):
        mixed = random.Random(seed).sample(order, len(order))
        assert text_in_order(columns(mixed, lean)).split() == [text for text, *_ in order]


def test_parts_of_one_line_stay_together() -> None:
    """Two boxes beside each other once are a line with a gap, not columns; no line gives no text."""
    assert (
        text_in_order(columns([("world", 300, 2, 50), ("hello", 0, 0, 50), ("below", 0, 40, 500)]))
        == "hello world\nbelow"
    )
    assert text_in_order([]) == ""


def test_layers_that_went_wrong_score_low_and_others_high() -> None:
    """The ways in which text layers break, and writing in other scripts, with codes, names and addresses."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    shuffled = "".join(random.Random(3).sample(letters, 26))
    text = PROSE * 5
    wrong = {
        "codes of glyphs": "".join(chr(ord(letter) - 29) for letter in text),
        "exchanged letters": text.translate(str.maketrans(letters, shuffled)),
        "private use": "".join(chr(0xF000 + ord(letter)) if letter != " " else " " for letter in text),
        "out of order": "".join(random.Random(1).sample(text, len(text))),
        "without spaces": text.replace(" ", "").replace(",", "").replace(".", ""),
        "spaced out": " ".join(text),
        "replacements": text.replace("o", "\ufffd"),
        "nothing": "",
    }
    good = (
        text,
        "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 5,
        "本教程文档已被重写为另外的 Debian 维护者指导 (https://www.debian.org/doc/)，其中包含了更新的内容。" * 5,
        "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. " * 5,
        "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। " * 5,
        "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ " * 5,
        "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. " * 5,
        "asn1_array2tree . . . . . . 9\nTable 3: 12.5 % of 1,024 files (see O'Brien et al.)\ndh_prep --parallel\n" * 3,
    )
    assert {name: layer_score(layer) for name, layer in wrong.items() if layer_score(layer) >= 0.6} == {}
    assert [layer for layer in good if layer_score(layer) < 0.6] == []


def test_every_page_says_where_its_text_is_from(engine: str) -> None:
    """A page with a layer keeps it; one without is recognised, or counted: it failed, is blank, or is one too many."""
    streams = (shown(PROSE), "0 0 m 99 99 l S", "", "0 0 m 99 99 l S", shown("kept"))
    source = FilesSource.model_validate({"path": ".", "ocr": {"engine": engine, "max_pages": 1}})
    found = extract("pdf", pdf("400 100", *streams), source=source)
    pages = pages_of(found)
    assert isinstance(found, Extracted)
    assert found.text == f"{PROSE.strip()}\n\nleft 0\nleft 1\nright 0\nright 1\n\nkept"
    assert [page["used"] for page in pages] == ["layer", "ocr", "none", "none", "layer"]
    assert [page.get("fault") for page in pages] == [None, None, None, "max_pages", None]
    assert (pages[1]["confidence"], found.metadata["ocr_engine"]) == (0.95, "own_engine:read 7")
    assert (found.metadata["pages_by_layer"], found.metadata["pages_by_ocr"]) == ("2", "1")
    without = FilesSource.model_validate({"path": ".", "ocr": "none"})
    assert [page["used"] for page in pages_of(extract("pdf", pdf("400 100", *streams), source=without))] == [
        *("layer", "none", "none", "none", "layer")
    ]


@pytest.mark.nightly
def test_the_better_text_of_a_page_is_taken(engine: str) -> None:
    """Recognised text replaces a worse layer; a layer stays where nothing better was read."""
    source = FilesSource.model_validate({"path": ".", "ocr": engine})
    rubbish = "x|q zz~k kk}q a^b"
    lying, standing = (extract("pdf", pdf(box, shown(rubbish)), source=source) for box in ("400 100", "100 400"))
    assert isinstance(lying, Extracted) and lying.text.startswith("left 0") and "own_engine" in str(lying.metadata)
    assert isinstance(standing, Extracted) and standing.text == rubbish
    assert pages_of(standing)[0]["fault"] == "corrupt_file"
    unsure = FilesSource.model_validate({"path": ".", "ocr": {"engine": engine, "min_confidence": 0.96}})
    (page,) = pages_of(extract("pdf", pdf("400 100", shown(rubbish)), source=unsure))
    assert (page["used"], page["fault"], page["confidence"]) == ("layer", "min_confidence", 0.95)


@pytest.mark.nightly
def test_a_picture_with_a_stamp_is_recognised_and_a_hidden_layer_where_that_is_said(engine: str) -> None:
    """A line on a scan is not its text; a long layer is, painted or not, unless hidden ones are to be replaced."""
    grey = "q 400 0 0 100 0 0 cm BI /W 2 /H 1 /CS /G /BPC 8 ID a~ EI Q "
    long = f"/F1 1 Tf 10 50 Td ({PROSE * 3}) Tj ET"
    streams = (grey + shown("Downloaded today"), grey + "BT 3 Tr " + long, grey + "BT " + long, shown("Part Two"))
    for hidden, used in (("keep", "ocr layer layer layer"), ("replace", "ocr ocr layer layer")):
        source = FilesSource.model_validate({"path": ".", "ocr": {"engine": engine, "hidden_layers": hidden}})
        assert [
            page["used"] for page in pages_of(extract("pdf", pdf("400 100", *streams), source=source))
        ] == used.split()


@pytest.mark.nightly
def test_a_hostile_page_is_counted_and_the_others_are_read(engine: str) -> None:
    """Pages without end, an engine without end, bombs, what is no picture."""
    source = FilesSource.model_validate({"path": ".", "ocr": {"engine": engine, "page_seconds": 2}})
    pages = pages_of(extract("picture", scan((300, 100), (100, 300), (300, 100)), source=source))
    assert [page["used"] for page in pages] == ["ocr", "none", "ocr"]
    assert pages_of(extract("pdf", pdf("1000000 1000000", "0 0 m 500000 500000 l S", shown("x")), source=source))
    blank = extract("picture", scan((300, 100), ink=False), source=source)
    assert isinstance(blank, Refusal) and blank.reason == "empty"
    for bomb in (png(10**9, 10**9), png(60_000, 60_000)):
        refused = extract("picture", bomb, source=source)
        assert isinstance(refused, Refusal) and ("too_large" in refused.detail or refused.reason == "corrupt_file")
    for broken in (b"", b"text", scan((300, 100), kind="PNG")[:40]):
        assert isinstance(extract("picture", broken, source=source), Refusal)
    endless = FilesSource.model_validate({"path": ".", "ocr": {"engine": "own_engine:spin", "page_seconds": 1}})
    refused = extract("picture", scan((300, 100)), source=endless)
    assert isinstance(refused, Refusal) and refused.detail.endswith("too_complex on 1")
    assert isinstance(extract("picture", scan((300, 100)), source=source), Extracted)


def test_scans_are_documents_where_an_engine_is_named(
    files_config: Configs, data: Path, landing: Any, engine: str
) -> None:
    """Without one they are told of, and land once it is named; config that cannot be meant is refused."""
    (data / "a.tif").write_bytes(scan((300, 100), (300, 100)))
    (data / "b.PNG").write_bytes(scan((300, 100), kind="PNG"))
    (data / "c.pdf").write_bytes(pdf("400 100", "0 0 m 99 99 l S"))
    documents, arrivals = landing.land(files_config())
    assert documents == [] and all("`ocr: rapidocr`" in row["detail"] for row in arrivals)
    documents, _ = landing.land(files_config(ocr=engine), reread=True)
    assert [row["path"] for row in documents] == ["a.tif", "b.PNG", "c.pdf"]
    assert documents[0]["content"].count("left 0") == 2 and documents[0]["metadata"]["page_count"] == "2"
    for wrong in ("rapid ocr", "module", {"engine": "none", "min_layer_score": 2}):
        with pytest.raises(ValidationError, match="ocr"):
            files_config(ocr=wrong)


@pytest.mark.nightly
def test_rapidocr_reads_real_scans(real_data: Path) -> None:
    """Two scans of Tesseract's tests, as people typed them but for quotation marks that are missing or straight."""
    pytest.importorskip("rapidocr")
    source = FilesSource.model_validate({"path": ".", "ocr": "rapidocr"})
    for name, gold in (("phototest.tif", "phototest.gold.txt"), ("eurotext.tif", "eurotext.txt")):
        found = extract("picture", (real_data / "ocr" / name).read_bytes(), source=source)
        assert isinstance(found, Extracted)
        words = (real_data / "ocr" / gold).read_text(encoding="utf-8").split()
        assert len(set(words) - set(found.text.split())) <= 2
        assert found == extract("picture", (real_data / "ocr" / name).read_bytes(), source=source)
