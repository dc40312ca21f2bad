"""Take the text out of Jupyter notebooks (nbformat 3 and 4).

They are parsed in the child of parser_process.py: JSON can be built to take much memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from spark_jobs.sources.languages import EXTRACTED_BY, language_named
from spark_jobs.sources.records.extracted import Extracted, cleaned_facts
from spark_jobs.sources.refusals import Reason, Refusal

_KERNELS: Final = {"ir": "r", "ipython": "python", "pyodide": "python"}


def extract_notebook(data: bytes) -> Extracted | Refusal:
    """The Markdown and code cells of a notebook in order, a blank line between them, without outputs and raw cells.

    It is code of the kernel's language where it has a code cell, and prose in Markdown else.
    """
    try:
        notebook = json.loads(data)
    except (ValueError, RecursionError) as error:
        return Refusal(Reason.CORRUPT_FILE, f"no notebook: not JSON: {str(error)[:200]}")
    version = notebook.get("nbformat") if isinstance(notebook, dict) else None
    if version not in (3, 4):
        problem = "there is no nbformat" if version is None else f"nbformat is {version!r:.20}"
        return Refusal(Reason.CORRUPT_FILE, f"no notebook that is read: {problem}; 3 and 4 are")
    try:
        cells = [cell for cell in _cells(notebook) if cell[1].strip()]
        kernel = _kernel(notebook)
    except (AttributeError, KeyError, TypeError) as error:
        return Refusal(Reason.CORRUPT_FILE, f"no notebook of nbformat {version}: {type(error).__name__}: {error}"[:300])
    if not cells:
        return Refusal(Reason.EMPTY, "the notebook has no text in a Markdown or code cell")
    code_count = sum(kind == "code" for kind, _ in cells)
    language = language_named(kernel) if kernel else None
    code = {"kind": "code", "language": language and language.name, "media_type": language and language.media_type}
    facts = {
        "kernel_language": kernel,
        "code_cell_count": str(code_count),
        "markdown_cell_count": str(len(cells) - code_count),
        EXTRACTED_BY: f"headrace (nbformat {version})",
    }
    text = "\n\n".join(text.strip("\n") for _, text in cells)
    prose = {"kind": "prose", "language": None, "media_type": "text/markdown"}
    return Extracted(text, cleaned_facts(facts), code if code_count else prose)


def _cells(notebook: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and text of the read cells."""
    if notebook["nbformat"] == 4:
        cells = notebook["cells"]
    else:
        cells = [cell for sheet in notebook["worksheets"] for cell in sheet["cells"]]
    for cell in cells:
        kind = cell["cell_type"]
        if kind in ("markdown", "code", "heading"):
            stored = cell["input"] if kind == "code" and "input" in cell else cell["source"]
            source = stored if isinstance(stored, str) else "".join(stored)
            yield (
                ("code", source)
                if kind == "code"
                else ("markdown", "#" * cell.get("level", 0) + " " * (kind == "heading") + source)
            )


def _kernel(notebook: dict[str, Any]) -> str:
    """The language of the kernel in lower case, by what the versions and tools say of it; empty where they do not."""
    about = notebook.get("metadata") or {}
    spec, info = (about.get(key) or {} for key in ("kernelspec", "language_info"))
    stated = [info.get("name"), spec.get("language"), spec.get("name")]
    if notebook["nbformat"] == 3:
        stated += [cell.get("language") for sheet in notebook["worksheets"] for cell in sheet["cells"]]
    language = next((name for name in stated if name and isinstance(name, str)), "")
    name = re.sub(r"[\d.-]+$", "", language.lower())
    return _KERNELS.get(name, name)
