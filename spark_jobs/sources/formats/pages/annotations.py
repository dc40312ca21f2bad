"""What stands on a page of a PDF beside its drawing: values of form fields and free texts, with their places.

Values are what the file states, not their pictures: a field that no program has drawn yet has one too. Hidden ones,
passwords, buttons and signatures are left out; a box that may be ticked is ☒ or ☐, a button of several ◉ or ○.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from typing import Any

import pypdfium2.raw as pdfium

from spark_jobs.sources.formats.pages.glyphs import Insert

_UNSEEN = pdfium.FPDF_ANNOT_FLAG_HIDDEN | pdfium.FPDF_ANNOT_FLAG_NOVIEW
_PASSWORD = 1 << 13  # ISO 32000-1, table 228
_TAG = re.compile("<[^>]*>")
_TICKED = {pdfium.FPDF_FORMFIELD_CHECKBOX: "☒☐", pdfium.FPDF_FORMFIELD_RADIOBUTTON: "◉○"}
_CHOICES = (pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX)


def annotated_texts(page: Any, form: Any | None) -> Iterator[Insert]:
    """The texts of fields and notes on an open page.

    Args:
        page: pypdfium2's.
        form: PDFium's handle of the document's form; None where it has none.
    """
    for index in range(pdfium.FPDFPage_GetAnnotCount(page.raw)):
        annotation = pdfium.FPDFPage_GetAnnot(page.raw, index)
        if not annotation:
            continue
        try:
            text = "" if pdfium.FPDFAnnot_GetFlags(annotation) & _UNSEEN else _text(annotation, form)
            if text.strip():
                box = pdfium.FS_RECTF()
                pdfium.FPDFAnnot_GetRect(annotation, box)
                yield Insert(" ".join(text.split(" ")).replace("\r", "\n"), box.left, box.bottom, box.top)
        finally:
            pdfium.FPDFPage_CloseAnnot(annotation)


def _text(annotation: Any, form: Any | None) -> str:
    """What an annotation says; empty for one that says nothing on the page."""
    kind = pdfium.FPDFAnnot_GetSubtype(annotation)
    if kind == pdfium.FPDF_ANNOT_FREETEXT:
        return _string(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents") or _TAG.sub(
            "", _string(pdfium.FPDFAnnot_GetStringValue, annotation, b"RC")
        )
    return _value(annotation, form) if kind == pdfium.FPDF_ANNOT_WIDGET and form is not None else ""


def _value(annotation: Any, form: Any) -> str:
    """The value of a field, as it is shown."""
    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind in _TICKED:
        return _TICKED[kind][not pdfium.FPDFAnnot_IsChecked(form, annotation)]
    if kind in _CHOICES:
        options = range(max(0, pdfium.FPDFAnnot_GetOptionCount(form, annotation)))
        chosen = [
            _string(pdfium.FPDFAnnot_GetOptionLabel, form, annotation, index)
            for index in options
            if pdfium.FPDFAnnot_IsOptionSelected(form, annotation, index)
        ]
        return ", ".join(chosen) or _string(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation)
    if kind != pdfium.FPDF_FORMFIELD_TEXTFIELD or pdfium.FPDFAnnot_GetFormFieldFlags(form, annotation) & _PASSWORD:
        return ""
    return _string(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation)


def _string(function: Callable[..., int], *arguments: Any) -> str:
    """A string of PDFium's, which is asked for its size first."""
    size = function(*arguments, None, 0)
    buffer = ctypes.create_string_buffer(size)
    function(*arguments, ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    return buffer.raw[:size].decode("utf-16-le", "replace").rstrip("\0")
