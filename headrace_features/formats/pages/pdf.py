"""Read PDF files by page: the text layer with its score, whether it wants recognition, and the page as a picture.

A page wants it where its layer scores below the rules' least score, and a picture with a line of text on it does too,
such as a scan with a stamp: pictures cover half of it, and its layer has fewer than 200 characters. A layer over such a
picture, itself not painted (text rendering mode 3) was made by a recogniser; the rules say whether it is believed.

PDFium puts lines in order on upright pages, so pages are turned until most of their text does, whatever
their own rotation. Values of form fields and free texts stand where they are seen; switched-off layers are left out.

Glyphs mapped to no character by the file are left out and counted. A page on which they are more than one in twenty is
at fault (`no_unicode`), counted as unreadable, and wants recognition; its score falls by their share.

This module is imported in the child of parser_process.py, and needs the extra `ingest`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING, Any

import pypdfium2
import pypdfium2.raw as pdfium

from headrace_features.formats.pages.annotations import annotated_texts, draw_unsaid
from headrace_features.formats.pages.glyphs import GlyphText, Insert, glyph_text
from headrace_features.formats.pages.layer_score import layer_score
from headrace_features.formats.pages.line_hyphens import MARK, join_lines, join_pages, words_of
from headrace_features.formats.pages.ocr import Layer
from headrace_features.formats.pages.optional_content import hide_layers, may_have_layers
from spark_jobs.sources.languages import EXTRACTED_BY
from spark_jobs.sources.records.extracted import cleaned_facts
from spark_jobs.sources.refusals import Reason, Refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spark_jobs.sources.config.file_reading import OcrRules

_BROKEN_WORD = re.compile(f"{MARK}[ \t]*(\r?\n)?")
_POWER = re.compile(r"(?<=\w)\^(?=[-+−(\w])")
_NO_UNICODE = "no_unicode"
_UNMAPPED = 0.05  # of a page's glyphs; fewer are bullets and the like
_ASKED_CHARACTERS = 200  # of a page, to tell which way it stands
_STAMP_CHARACTERS = 200
_LOOKED_AT = 1000  # objects of a page, to tell whether it is a picture
_HIDDEN = pdfium.FPDF_TEXTRENDERMODE_INVISIBLE
_LARGEST_SCALE = 4  # 288 dots an inch: more does not make small pages more legible


def layers(data: bytes, rules: OcrRules) -> tuple[list[Layer], dict[str, str]] | Refusal:
    """The text layer of every page, and what the file says about itself."""
    document = _opened(data)
    if isinstance(document, Refusal):
        return document
    has_layers, form = may_have_layers(data), None
    if document.get_formtype() != pdfium.FORMTYPE_NONE:
        document.init_forms()
        form = document.formenv.raw
    pages, unmapped_count = list[Layer](), 0
    for number in range(len(document)):
        try:
            layer, unmapped = _layer(document, number, form, has_layers, rules)
        except pypdfium2.PdfiumError:
            layer, unmapped = Layer("", 0.0, wants_ocr=False, fault=Reason.CORRUPT_FILE), 0
        pages.append(layer)
        unmapped_count += unmapped
    texts = join_pages([layer.text for layer in pages])
    words = words_of(texts)
    pages = [layer._replace(text=join_lines(text, words)) for layer, text in zip(pages, texts, strict=True)]
    counts = {"pages_unreadable": str(sum(layer.fault is not None for layer in pages))}
    if unmapped_count:
        counts["glyphs_unmapped"] = str(unmapped_count)
    metadata = document.get_metadata_dict(skip_empty=True)
    facts = cleaned_facts({"title": metadata.get("Title"), "published": metadata.get("CreationDate")})
    by = {EXTRACTED_BY: f"pypdfium2 {version('pypdfium2')}"}
    return pages, {**facts, **counts, **by}


def picture(data: bytes, number: int, side: int) -> NDArray[Any]:
    """A page, drawn so that its longer side has at most so many pixels; (H, W, 3) in blue, green, red."""
    document = _opened(data)
    assert not isinstance(document, Refusal)  # its layers were read
    page = document[number]
    scale = min(_LARGEST_SCALE, side / max(*page.get_size(), 1))
    drawn: NDArray[Any] = page.render(scale=scale).to_numpy()
    return drawn


def _opened(data: bytes) -> Any:
    """The open document, or why it cannot be opened."""
    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code in (pdfium.FPDF_ERR_PASSWORD, pdfium.FPDF_ERR_SECURITY):
            return Refusal(Reason.ENCRYPTED, "it needs a password or a key; save it without one")
        return Refusal(Reason.CORRUPT_FILE, f"PDFium cannot open it: {error}")


def _layer(document: Any, number: int, form: Any | None, has_layers: bool, rules: OcrRules) -> tuple[Layer, int]:
    """The layer of a page, hyphens at line ends marked, and its glyphs without a character."""
    page = document[number]
    inserts = list(annotated_texts(page, form))
    if draw_unsaid(page, form):
        page.close()
        page = document[number]
    glyphs = _upright_text(page, inserts, has_layers)
    text = _BROKEN_WORD.sub(MARK, glyphs.text).replace("\r\n", "\n").strip()
    share = glyphs.unmapped_count / max(1, glyphs.unmapped_count + glyphs.glyph_count)
    score = round(layer_score(_POWER.sub("-", text.replace(MARK, ""))) * (1 - share), 3)
    fault = _NO_UNICODE if share > _UNMAPPED else None
    wants = (score < rules.min_layer_score or fault is not None) and pdfium.FPDFPage_CountObjects(page) > 0
    asks = not wants and rules.engine != "none" and bool(text)
    if asks and (len(text) < _STAMP_CHARACTERS or rules.hidden_layers == "replace"):
        is_picture, is_hidden = _looks(page)
        wants = is_picture and (len(text) < _STAMP_CHARACTERS or is_hidden)
    page.close()
    return Layer(text, score, wants, fault), glyphs.unmapped_count


def _upright_text(page: Any, inserts: list[Insert], has_layers: bool) -> GlyphText:
    """The text of a page in the order of its lines, as PDFium writes it, with what else is seen on it."""
    page.set_rotation(0)
    if has_layers:
        hide_layers(page)
    textpage = page.get_textpage()
    turned = _quarter_turns(textpage)
    if turned:
        page.set_rotation(turned * 90)
        textpage = page.get_textpage()
    return glyph_text(textpage, turned, inserts)


def _quarter_turns(textpage: Any) -> int:
    """How many quarter turns, clockwise, bring most characters upright, by a sample of them."""
    count = textpage.count_chars()
    angles = [
        pdfium.FPDFText_GetCharAngle(textpage, index) for index in range(0, count, max(1, count // _ASKED_CHARACTERS))
    ]
    turns = Counter(-round(angle / (math.pi / 2)) % 4 for angle in angles if angle >= 0)  # -1 where there is none
    return turns.most_common(1)[0][0] if turns else 0


def _looks(page: Any) -> tuple[bool, bool]:
    """Whether pictures cover half of a page, and whether all of its text is invisible, by its first 1,000 objects."""
    area, painted = 0.0, False
    for shape in islice(page.get_objects(max_depth=3), _LOOKED_AT):
        if shape.type == pdfium.FPDF_PAGEOBJ_IMAGE:
            left, bottom, right, top = shape.get_bounds()
            area += (right - left) * (top - bottom)
        elif shape.type == pdfium.FPDF_PAGEOBJ_TEXT:
            painted = painted or pdfium.FPDFTextObj_GetTextRenderMode(shape) != _HIDDEN
    width, height = page.get_size()
    return area >= width * height / 2, not painted
