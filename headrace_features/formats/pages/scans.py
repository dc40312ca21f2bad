"""Read pictures of pages: PNG, JPEG, and TIFF, perhaps with many pages.

This module is imported in the child of parser_process.py, and needs the extra `ocr`.
"""

from __future__ import annotations

import io
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from headrace_features.formats.pages.ocr import Layer
from spark_jobs.sources.languages import EXTRACTED_BY
from spark_jobs.sources.refusals import Reason, Refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spark_jobs.sources.config.file_reading import OcrRules

Image.MAX_IMAGE_PIXELS = None  # `picture` has a limit of its own
_MAX_PIXELS = 150_000_000  # a page of A3 at 800 dots an inch; 450 MB decompressed


def layers(data: bytes, rules: OcrRules) -> tuple[list[Layer], dict[str, str]] | Refusal:
    """Each page, always without a text layer; nothing is decompressed here."""
    image: Any = _opened(data)
    if isinstance(image, Refusal):
        return image
    count = image.n_frames if image.format == "TIFF" else 1
    by = {EXTRACTED_BY: f"Pillow {version('pillow')}"}
    return [Layer("", 0.0, wants_ocr=True) for _ in range(count)], by


def picture(data: bytes, number: int, side: int) -> NDArray[Any] | None:
    """A page upright on white, its longer side at most so many pixels; None where it has too many to decompress."""
    image: Any = _opened(data)
    if image.format == "TIFF":
        image.seek(number)
    if image.width * image.height > _MAX_PIXELS:
        return None
    image.draft("RGB", (side, side))
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    if image.mode in ("L", "RGB"):  # before it is copied
        image.thumbnail((side, side), reducing_gap=3.0)
    image = ImageOps.exif_transpose(image.convert("RGB"))
    image.thumbnail((side, side), reducing_gap=3.0)
    return np.ascontiguousarray(np.asarray(image)[:, :, ::-1])


def _opened(data: bytes) -> Image.Image | Refusal:
    """The open picture, its pixels still compressed, or why it cannot be opened."""
    try:
        return Image.open(io.BytesIO(data), formats=("PNG", "JPEG", "TIFF"))
    except UnidentifiedImageError:
        return Refusal(Reason.CORRUPT_FILE, "no picture in PNG, JPEG or TIFF")
