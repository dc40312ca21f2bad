"""Recognise the text of pages that have none, or none to be believed, and say of each page where its text is from.

    file -> layers of its pages -> for each page wanting it: picture -> lines -> text in order -> the better text

The first arrow runs in the child of parser_process.py that all extraction runs in; the others in a child of their own
with the memory that models need, one call for each page: a page taking too long or too much ends that child, is
counted, and the next page is read. The engine is loaded once in a child, and runs on one thread.

An engine is a function from a picture, a (H, W, 3) array of bytes in blue, green, red, to lines: (text, confidence,
four corners (x, y) with the top left first). docs/prepare/ingest_ocr.md has one for Tesseract.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_jobs.plugins import attribute
from spark_jobs.sources.languages import EXTRACTED_BY
from spark_jobs.sources.opening.parser_process import run_apart
from spark_jobs.sources.records.extracted import Extracted, call_extractor
from spark_jobs.sources.refusals import Reason, Refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace_features.formats.pages.reading_order import Line
    from spark_jobs.sources.config.file_reading import FileReading, OcrRules

Engine = Callable[["NDArray[Any]"], Iterable[tuple[str, float, Any]]]

PAGES = "headrace.pages"
"""Key in the metadata of a document of pages: a JSON list with a report of each, the rows of `ocr_report`."""
_BLANK_CONTRAST = 24  # of 255: a page whose pixels differ by less has nothing on it
_ONE_THREAD = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
_TOO_MANY = "max_pages"
_UNSURE = "min_confidence"
_LAYERS = {
    "pdf": "headrace_features.formats.pages.pdf:layers",
    "picture": "headrace_features.formats.pages.scans:layers",
}


class Layer(NamedTuple):
    """The text layer of a page with its score; whether the page wants recognition; why it cannot be read."""

    text: str
    score: float
    wants_ocr: bool
    fault: str | None = None


class Recognised(NamedTuple):
    """What an engine read on a page: the text in order, its score, how sure the engine is, and the engine."""

    text: str
    score: float
    confidence: float
    engine: str


def read_pages(reader: str, data: bytes, source: FileReading) -> Extracted | Refusal:
    """The text of a file of pages, a blank line between them; the metadata has a report of each.

    Args:
        reader: pdf or picture.
        data: bytes of the file.
        source: what the user chose; `extract_seconds` of processor time are for all text layers together.
    """
    rules = source.ocr
    text_layers = run_apart(call_extractor, source.extract_seconds, _LAYERS[reader], data, rules)
    if isinstance(text_layers, Refusal):
        return text_layers
    layers, facts = [Layer(*layer) for layer in text_layers[0]], text_layers[1]
    texts, reports, engine, read_count = list[str](), list[dict[str, Any]](), "", 0
    for number, layer in enumerate(layers):
        wants = layer.wants_ocr and rules.engine != "none"
        read = _read_page(reader, data, number, rules) if wants and read_count < rules.max_pages else None
        if isinstance(read, Refusal) and read.reason == Reason.NOT_INSTALLED:
            return read  # else the engine's being there would decide the text
        read_count += read is not None
        used = {"used": "layer" if layer.text else "none", "character_count": len(layer.text)}
        report = {
            "page": number + 1,
            "layer_score": layer.score,
            **used,
            **({"fault": layer.fault} if layer.fault else {}),
        }
        if isinstance(read, Recognised):
            engine = read.engine or engine
            report |= {"ocr_score": read.score, "confidence": read.confidence}
            if read.text and read.confidence < rules.min_confidence:
                report["fault"] = _UNSURE
            elif read.text and (read.score > layer.score or layer.score >= rules.min_layer_score):
                report |= {"used": "ocr", "character_count": len(read.text)}
        elif wants:
            report["fault"] = read.reason if read is not None else _TOO_MANY
        texts.append(read.text if isinstance(read, Recognised) and report["used"] == "ocr" else layer.text)
        reports.append(report)
    if not any(texts):
        return _nothing(reports, rules)
    if any(report["used"] == "ocr" for report in reports):
        facts[EXTRACTED_BY] += f" and {engine}"
    return Extracted("\n\n".join(filter(None, texts)), {**facts, **_summary(reports, engine)})


def recognise(reader: str, data: bytes, number: int, rules: OcrRules) -> Recognised | Refusal:
    """The text of one page by the engine; runs in a child."""
    from headrace_features.formats.pages.layer_score import layer_score
    from headrace_features.formats.pages.reading_order import Line, text_in_order

    module, _, _ = _LAYERS[reader].partition(":")
    picture = attribute(f"{module}:picture")(data, number, rules.max_side_pixels)
    if picture is None:
        return Refusal(Reason.TOO_LARGE, "more pixels than are decompressed")
    if int(picture.max()) - int(picture.min()) < _BLANK_CONTRAST:
        return Recognised("", 0.0, 0.0, "")
    name, engine = load_engine(rules.engine)
    lines = [Line(*line) for line in engine(picture)]
    text = text_in_order(lines).encode(errors="replace").decode().replace("\0", "").strip()
    return Recognised(text, layer_score(text), _confidence(lines), name)


@cache
def load_engine(name: str) -> tuple[str, Engine]:
    """An engine, and its name with its version."""
    if name == "rapidocr":
        return f"rapidocr {version('rapidocr')}", _rapidocr()
    module_name, _, function = name.partition(":")
    module = importlib.import_module(module_name)
    return f"{name} {getattr(module, '__version__', '')}".strip(), getattr(module, function)


def _rapidocr() -> Engine:
    """RapidOCR with the models in its wheel."""
    import cv2
    from rapidocr import RapidOCR

    cv2.setNumThreads(1)
    engine: Any = RapidOCR(params={**_ONE_THREAD, "Global.log_level": "critical"})

    def read(picture: NDArray[Any]) -> Iterable[tuple[str, float, Any]]:
        lines = engine(picture)
        return zip(lines.txts or (), lines.scores or (), () if lines.boxes is None else lines.boxes, strict=True)

    return read


def _read_page(reader: str, data: bytes, number: int, rules: OcrRules) -> Recognised | Refusal:
    """The text of one page, by the engine in its child."""
    arguments = ("headrace_features.formats.pages.ocr:recognise", reader, data, number, rules)
    recognised = run_apart(call_extractor, rules.page_seconds, *arguments, memory_bytes=rules.memory_mb << 20)
    return recognised if isinstance(recognised, Refusal) else Recognised(*recognised)


def _confidence(lines: list[Line]) -> float:
    """Mean confidence of lines, weighted by their characters; 0 without any."""
    count = sum(len(line.text) for line in lines)
    return round(float(sum(line.confidence * len(line.text) for line in lines)) / count, 3) if count else 0.0


def _summary(reports: list[dict[str, Any]], engine: str) -> dict[str, str]:
    """What the metadata of a document says about its pages."""
    used = [report["used"] for report in reports]
    by_ocr = [report["confidence"] for report in reports if report["used"] == "ocr"]
    counts = {"page_count": len(reports), "pages_without_text": used.count("none")}
    counts |= {"pages_by_layer": used.count("layer"), "pages_by_ocr": len(by_ocr)}
    facts = {name: str(count) for name, count in counts.items()}
    facts[PAGES] = json.dumps(reports, separators=(",", ":"))
    if engine:
        facts["ocr_engine"] = engine
    if by_ocr:
        facts["ocr_confidence"] = f"{sum(by_ocr) / len(by_ocr):.3f}"
    return facts


def _nothing(reports: list[dict[str, Any]], rules: OcrRules) -> Refusal:
    """The refusal of a file of pages without any recognised text."""
    faults = [report["fault"] for report in reports if "fault" in report]
    listed = "".join(f", {fault} on {faults.count(fault)}" for fault in sorted(set(faults)))
    count = f"none of its {len(reports)} pages has"
    if rules.engine == "none":
        return Refusal(Reason.EMPTY, f"{count} a text layer{listed}; `ocr: rapidocr` in the source reads scans")
    return Refusal(Reason.EMPTY, f"{count} text that {rules.engine} reads{listed}")
