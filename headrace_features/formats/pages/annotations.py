"""What stands on a page of a PDF beside its drawing: values of form fields and free texts, with their places.

Values are what the file states, not their pictures: a field not yet drawn by a program has one too. What states none
and is drawn has the text of its drawing. Layers of annotations are not asked: PDFium does not tell them. Hidden ones,
passwords, buttons and signatures are left out; a box to be ticked is ☒ or ☐, a button of several ◉ or ○.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import pypdfium2.raw as pdfium

from headrace_features.formats.pages.glyphs import Insert

_UNSEEN = pdfium.FPDF_ANNOT_FLAG_HIDDEN | pdfium.FPDF_ANNOT_FLAG_NOVIEW
_PASSWORD = 1 << 13  # ISO 32000-1, table 228
_PARAGRAPH = re.compile(r"(?<=[^\s>])(?:\s*<[^>]*>)*?</p>|<br\s*/?>")
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


def draw_unsaid(page: Any, form: Any | None) -> bool:
    """Draw on an open page what fields and free texts show that state no text; whether there are any.

    The page says their text when it is opened anew; it has no other annotations then.
    """
    unsaid, count = set[int](), pdfium.FPDFPage_GetAnnotCount(page.raw)
    for index in range(count):
        annotation = pdfium.FPDFPage_GetAnnot(page.raw, index)
        if annotation:
            if _is_unsaid(annotation, form):
                unsaid.add(index)
            pdfium.FPDFPage_CloseAnnot(annotation)
    if not unsaid:
        return False
    for index in range(count - 1, -1, -1):
        if index not in unsaid:
            pdfium.FPDFPage_RemoveAnnot(page.raw, index)
    return bool(pdfium.FPDFPage_Flatten(page.raw, pdfium.FLAT_NORMALDISPLAY) == pdfium.FLATTEN_SUCCESS)


def _is_unsaid(annotation: Any, form: Any | None) -> bool:
    """Whether an annotation is a field or a free text with an appearance and without a text."""
    kind, flags = pdfium.FPDFAnnot_GetSubtype(annotation), pdfium.FPDFAnnot_GetFlags(annotation)
    if kind == pdfium.FPDF_ANNOT_WIDGET and form is not None:
        field = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
        is_password = pdfium.FPDFAnnot_GetFormFieldFlags(form, annotation) & _PASSWORD
        is_text = field in _CHOICES or (field == pdfium.FPDF_FORMFIELD_TEXTFIELD and not is_password)
    else:
        is_text = kind == pdfium.FPDF_ANNOT_FREETEXT
    return bool(
        is_text
        and pdfium.FPDFAnnot_HasKey(annotation, b"AP")
        and not flags & _UNSEEN
        and not _text(annotation, form).strip()
    )


def _text(annotation: Any, form: Any | None) -> str:
    """What an annotation says; empty for one without words on the page."""
    kind = pdfium.FPDFAnnot_GetSubtype(annotation)
    if kind == pdfium.FPDF_ANNOT_FREETEXT:
        rich = _PARAGRAPH.sub("\n", _string(pdfium.FPDFAnnot_GetStringValue, annotation, b"RC"))
        plain = _string(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents")
        return plain or unescape(_TAG.sub("", rich)).strip()
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
    """A string of PDFium's, asked for its size first."""
    size = function(*arguments, None, 0)
    buffer = ctypes.create_string_buffer(size)
    function(*arguments, ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    return buffer.raw[:size].decode("utf-16-le", "replace").rstrip("\0")
