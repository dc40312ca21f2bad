"""Take text of switched-off layers out of a page of a PDF (optional content, ISO 32000-1, 8.11).

PDFium draws what is on and gives the text of all. So what may be off, marked content and forms, is drawn alone, in
black: where no ink comes of it, its text is made inactive. Documents without layers are told by their bytes.
"""

from __future__ import annotations

import ctypes
import re
import zlib
from collections import defaultdict
from typing import Any

import pypdfium2.raw as pdfium

_LAYERS = b"/OCProperties"
_OBJECTS = re.compile(rb"/ObjStm\b.{0,400}?stream\r?\n", re.DOTALL)
_INFLATED = 16 << 20
_SIDE = 800  # pixels; a letter of 4 points is still ink on A4
_INK = 200
_DEPTH = 8
_TRIED = 300  # groups of a page; what is beyond is taken to be seen


def may_have_layers(data: bytes) -> bool:
    """Whether a file may have layers, by its bytes: its catalogue says so, which may be compressed or encrypted."""
    if _LAYERS in data or b"/Encrypt" in data:
        return True
    return any(_LAYERS in _inflated(data, start.end()) for start in _OBJECTS.finditer(data))


def hide_layers(page: Any) -> bool:
    """Make text in switched-off layers of an open page inactive; whether there is any."""
    objects = list(page.get_objects(max_depth=_DEPTH))
    groups = defaultdict[tuple[int, ...], list[Any]](list)
    for item in objects:
        if item.type == pdfium.FPDF_PAGEOBJ_TEXT and (key := _key(item)):
            groups[key].append(item)
    hidden = list[Any]()
    for members in list(groups.values())[:_TRIED]:
        if not _is_drawn(page, objects, members):
            hidden += members
    for item in objects:
        pdfium.FPDFPageObj_SetIsActive(item.raw, not any(item is other for other in hidden))
    return bool(hidden)


def _inflated(data: bytes, start: int) -> bytes:
    """A compressed stream of a file, at most 16 MB of it; empty where it is none."""
    try:
        return zlib.decompressobj().decompress(memoryview(data)[start:], _INFLATED)
    except zlib.error:
        return b""


def _key(item: Any) -> tuple[int, ...]:
    """The marks of optional content and the forms around an object, by their addresses; empty without any."""
    key = list[int]()
    while item is not None:
        raw = item.raw
        for index in range(pdfium.FPDFPageObj_CountMarks(raw)):
            mark = pdfium.FPDFPageObj_GetMark(raw, index)
            if pdfium.FPDFPageObjMark_CountParams(mark) > 0:
                key.append(_address(mark))
        item = item.container
        if item is not None:
            key.append(_address(item.raw))
    return tuple(key)


def _address(pointer: Any) -> int:
    """Where a pointer of PDFium's points to."""
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def _is_drawn(page: Any, objects: list[Any], members: list[Any]) -> bool:
    """Whether any of some texts leaves ink on an otherwise empty page."""
    active = set[int]()
    for item in members:
        pdfium.FPDFPageObj_SetFillColor(item.raw, 0, 0, 0, 255)
        pdfium.FPDFTextObj_SetTextRenderMode(item.raw, pdfium.FPDF_TEXTRENDERMODE_FILL)
        above = item
        while above is not None:
            active.add(_address(above.raw))
            above = above.container
    for item in objects:
        pdfium.FPDFPageObj_SetIsActive(item.raw, _address(item.raw) in active)
    scale = _SIDE / max(*page.get_size(), 1)
    return int(page.render(scale=scale, may_draw_forms=False, draw_annots=False).to_numpy().min()) < _INK
