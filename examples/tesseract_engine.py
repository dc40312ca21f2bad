"""Tesseract as an engine of headrace: one line of text for each of its lines, with the mean confidence of its words."""

import csv
import io
import os
import subprocess
from collections.abc import Iterator
from typing import Any

from PIL import Image

_ASKED = subprocess.run(["tesseract", "--version"], capture_output=True, text=True, check=True)
__version__ = _ASKED.stdout.split()[1]


def read(picture: Any) -> Iterator[tuple[str, float, list[list[int]]]]:
    """Lines of a picture: text, confidence, corners."""
    file = io.BytesIO()
    Image.fromarray(picture[:, :, ::-1]).save(file, "PNG")
    command = ["tesseract", "stdin", "stdout", "-l", "eng", "tsv"]
    one_thread = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    done = subprocess.run(command, input=file.getvalue(), capture_output=True, check=True, env=one_thread, timeout=60)
    lines: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for word in csv.DictReader(io.StringIO(done.stdout.decode()), delimiter="\t", quoting=csv.QUOTE_NONE):
        if word["level"] == "5" and word["text"].strip():
            lines.setdefault((word["block_num"], word["par_num"], word["line_num"]), []).append(word)
    for words in lines.values():
        left, top = (min(int(word[side]) for word in words) for side in ("left", "top"))
        right = max(int(word["left"]) + int(word["width"]) for word in words)
        bottom = max(int(word["top"]) + int(word["height"]) for word in words)
        confidence = sum(float(word["conf"]) for word in words) / len(words) / 100
        text = " ".join(word["text"] for word in words)
        yield text, confidence, [[left, top], [right, top], [right, bottom], [left, bottom]]
