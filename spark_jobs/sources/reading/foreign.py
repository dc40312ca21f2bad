"""Files of formats for readers of packages: the reader runs in the bounded child, and names itself."""

from __future__ import annotations

from typing import Any

from spark_jobs.plugins import load, reference
from spark_jobs.sources.config.reader import OWN_FORMATS, Document, Reader
from spark_jobs.sources.languages import EXTRACTED_BY
from spark_jobs.sources.opening.parser_process import run_apart
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Reason, Refusal


def read_foreign(name: str, data: bytes, seconds: int) -> list[tuple[str, Extracted | Refusal]] | Refusal:
    """The documents of a file of a format unknown to headrace, and what of it cannot be read.

    Args:
        name: of the reader.
        data: bytes of the file.
        seconds: processor time.

    Returns:
        By name of the part. Or why there is none.
    """
    answers = run_apart(_documents, seconds, reference("readers", name, OWN_FORMATS), data)
    if isinstance(answers, Refusal):
        return answers
    if not answers:
        return Refusal(Reason.EMPTY, f"the reader {name} found no document in it")
    try:
        return [
            (part, answer if isinstance(answer, Refusal) else Extracted(answer[0].decode(), *answer[1:]))
            for part, answer in answers
        ]
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        return Refusal(Reason.UNDECODABLE, f"lone surrogate at {error.start} of a text that {name} gave")


def _documents(name: str, data: bytes) -> list[Any]:
    """What a reader makes of a file, in its process: a text is sent as UTF-8."""
    of = load("readers", name, Reader)
    by = {EXTRACTED_BY: f"{name} {of.version}"}
    answers = list[Any]()
    for number, answer in enumerate(of(data), 1):
        if isinstance(answer, Document):
            facts = {str(key): str(value) for key, value in (answer.metadata or {}).items()} | by
            columns = {"kind": answer.kind, "language": answer.language, "media_type": answer.media_type}
            answers.append((answer.name, (answer.text.encode("utf-8", "surrogatepass"), facts, columns)))
        elif isinstance(answer, Refusal):
            answers.append((str(number), answer))
        else:
            raise TypeError(f"{name} gave a {type(answer).__name__}, neither a Document nor a Refusal")
    return answers
