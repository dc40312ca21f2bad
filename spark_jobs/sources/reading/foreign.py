"""Files of formats that readers of packages take: the reader runs in the bounded child, and names itself."""

from __future__ import annotations

from typing import Any

from spark_jobs.plugins import load, reference
from spark_jobs.sources.config.reader import OWN_FORMATS, Document, Reader
from spark_jobs.sources.languages import EXTRACTED_BY
from spark_jobs.sources.opening.parser_process import run_apart
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Reason, Refusal


def read_foreign(name: str, data: bytes, seconds: int) -> list[tuple[str, Extracted | Refusal]] | Refusal:
    """The documents of a file of a format that headrace does not know, and what of it cannot be read.

    Args:
        name: of the reader.
        data: bytes of the file.
        seconds: processor time.

    Returns:
        By name of the part. Or why there is none.
    """
    found = run_apart(_documents, seconds, reference("readers", name, OWN_FORMATS), data)
    if isinstance(found, Refusal):
        return found
    if not found:
        return Refusal(Reason.EMPTY, f"the reader {name} found no document in it")
    try:
        return [
            (part, one if isinstance(one, Refusal) else Extracted(one[0].decode(), *one[1:])) for part, one in found
        ]
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        return Refusal(Reason.UNDECODABLE, f"lone surrogate at {error.start} of a text that {name} gave")


def _documents(name: str, data: bytes) -> list[Any]:
    """What a reader makes of a file, in its process: a text is sent as UTF-8."""
    of = load("readers", name, Reader)
    by = {EXTRACTED_BY: f"{name} {of.version}"}
    found = list[Any]()
    for number, one in enumerate(of(data), 1):
        if isinstance(one, Document):
            facts = {str(key): str(value) for key, value in (one.metadata or {}).items()} | by
            columns = {"kind": one.kind, "language": one.language, "media_type": one.media_type}
            found.append((one.name, (one.text.encode("utf-8", "surrogatepass"), facts, columns)))
        elif isinstance(one, Refusal):
            found.append((str(number), one))
        else:
            raise TypeError(f"{name} gave a {type(one).__name__}, neither a Document nor a Refusal")
    return found
