"""Take the front matter off Markdown.

It is parsed in the child of parser_process.py: YAML can be built to take much memory.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

from spark_jobs.sources.languages import EXTRACTED_BY
from spark_jobs.sources.records.extracted import Extracted, cleaned_facts
from spark_jobs.sources.records.plain_values import value_text
from spark_jobs.sources.refusals import Refusal, first_line

_FRONT_MATTER: Final = re.compile(r"(---|\+\+\+)[ \t]*\r?\n(.*?)(?:(?<=\n)|^)\1[ \t]*(?:\r?\n|\Z)", re.S)
_FRONT_MATTER_CHARACTERS: Final = 1 << 16
_FACTS: Final = 50  # keys of front matter that are kept


def extract_front_matter(data: bytes) -> Extracted | Refusal:
    """The text below the front matter of Markdown (its keys become metadata); without front matter the whole text.

    A block other than a mapping is no front matter; where it is not YAML or TOML, the text keeps it and `front_matter`
    says why.

    Args:
        data: the text in UTF-8.
    """
    text = data.decode()
    match = _FRONT_MATTER.match(text)
    if match is None:
        return Extracted(text, {})
    if len(match[2]) > _FRONT_MATTER_CHARACTERS:
        return Extracted(text, {"front_matter": f"more than {_FRONT_MATTER_CHARACTERS} characters"})
    try:
        settings = tomllib.loads(match[2].replace("\r\n", "\n")) if match[1] == "+++" else _yaml(match[2])
    except Exception as error:  # noqa: BLE001 - YAML's own errors, and those of the types that it makes
        detail = " ".join(str(error).split())[:200]
        return Extracted(text, {"front_matter": f"not {'TOML' if match[1] == '+++' else 'YAML'}: {detail}"})
    if not isinstance(settings, dict):
        return Extracted(text, {})
    try:
        facts = {key: value_text(value) for key, value in list(settings.items())[:_FACTS] if _is_plain(key)}
    except ValueError as error:  # a value that holds itself
        return Extracted(text, {"front_matter": first_line(error)})
    offset = {"offset": str(len(text[: match.end()].encode()))}
    return Extracted(text[match.end() :], {**cleaned_facts(facts), **offset, EXTRACTED_BY: "headrace (front matter)"})


def _is_plain(key: object) -> bool:
    """Whether a key may stand in `metadata`: a text other than headrace's own keys."""
    return isinstance(key, str) and 0 < len(key) <= 100 and not key.startswith("headrace.")


def _yaml(text: str) -> Any:
    """The value of a YAML text, of plain types alone."""
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).load(text)
