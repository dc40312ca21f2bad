"""What is known about a repository, and such facts as a source states: lines of `repositories.jsonl`, or columns.

    {"repository": "valkey", "fork_of": "redis", "stars": 24000, "licence": "BSD-3-Clause", "topics": ["database"]}

Only `repository` must be there. Stars, and whatever is no column of the table `repositories`, go into its map
`metadata`, as text or JSON. An unreadable value is kept there too; a line with one is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from spark_jobs.sources.licences.expressions import is_recognised
from spark_jobs.sources.licences.names import stated
from spark_jobs.sources.records.plain_values import value_text
from spark_jobs.sources.records.records import Refused, json_object, numbered_lines
from spark_jobs.sources.refusals import Reason, Refusal

_MAX_LINE_BYTES = 1 << 20
_TEXTS = ("revision", "version", "home_page", "fork_of")
_LISTS = ("topics", "dependencies")


@dataclass(frozen=True)
class Facts:
    """Facts about one repository; a row of `repositories`."""

    repository: str
    revision: str | None = None
    version: str | None = None
    licence: str | None = None
    home_page: str | None = None
    fork_of: str | None = None
    topics: list[str] = field(default_factory=list)
    dependencies: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)


def stated_facts(repository: str, values: Mapping[str, object]) -> tuple[Facts, str | None]:
    """Read the facts stated about a repository; nulls and empty texts are left out.

    Args:
        repository: its name.
        values: the facts by key: columns of `repositories`, `stars`, or any other.

    Returns:
        The facts, and the first unreadable value, in words; None where all could.
    """
    facts: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    fault: str | None = None
    for key, value in values.items():
        if value in (None, "") or (isinstance(value, float) and math.isnan(value)) or key == "repository":
            continue
        fact = _read(key, value)
        if key == "metadata" and isinstance(value, dict):
            metadata |= {name: text for name, inner in value.items() if (text := value_text(inner)) is not None}
        elif fact is None:
            wanted = "a list of texts" if key in _LISTS else "a whole number" if key == "stars" else "a text"
            fault = fault or f"{key} is {value_text(value)}, not {wanted}"
            metadata[key] = value_text(value) or ""
        elif key in (*_TEXTS, *_LISTS):
            facts[key] = fact
        elif key == "licence":
            facts[key] = stated(fact)
            metadata |= {} if is_recognised(facts[key]) else {"licence": fact}
        else:
            metadata[key] = fact
    return Facts(repository, **facts, metadata=metadata), fault


def stated_lines(stream: pa.NativeFile) -> Iterator[Facts | Refused]:
    """Facts of a file with one JSON object on each line; of lines about one repository the first counts."""
    repositories = set[str]()
    for line in numbered_lines(stream, _MAX_LINE_BYTES):
        if isinstance(line, Refused):
            yield line
            continue
        fields = json_object(line.data)
        facts = fields if isinstance(fields, Refusal) else _facts_or_refusal(fields, repositories)
        yield Refused(line.number, facts) if isinstance(facts, Refusal) else facts


def facts_json(facts: Facts, stated: bool = False, touches: bool = True) -> str:
    """Facts as JSON, for the step to merge them.

    Args:
        facts: of one repository.
        stated: whether a source states them; then they have precedence over those of a repository's own files.
        touches: whether they give the repository a row in this increment.
    """
    return json.dumps({**asdict(facts), "stated": stated, "touches": touches}, ensure_ascii=False, sort_keys=True)


def _facts_or_refusal(fields: Mapping[str, object], repositories: set[str]) -> Facts | Refusal:
    """The facts of one line, or its refusal; the repository is added to those seen."""
    repository = fields.get("repository")
    if not isinstance(repository, str) or not repository:
        what = "no key 'repository'" if repository is None else f"'repository' is {json.dumps(repository)}, not a name"
        return Refusal(Reason.BAD_RECORD, f'{what}; write {{"repository": "name", "fork_of": ..., "stars": ...}}')
    try:
        facts, fault = stated_facts(repository, fields)
        json.dumps(asdict(facts), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Refusal(Reason.UNDECODABLE, "a value holds a lone surrogate")
    except RecursionError:
        return Refusal(Reason.BAD_RECORD, "a value is nested too deeply")
    if fault is not None:
        return Refusal(Reason.WRONG_TYPE, f"repository {repository}: {fault}")
    if repository in repositories:
        return Refusal(Reason.REPEATED_RECORD, f"repository {repository} is on an earlier line, which counts")
    repositories.add(repository)
    return facts


def _read(key: str, value: object) -> Any:
    """A value in the form required by its key, or None where it has another form."""
    if key in _LISTS:
        return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else None
    if key == "stars":
        return _whole_number(value)
    if key in _TEXTS:
        return value if isinstance(value, str) else None
    return value_text(value)


def _whole_number(value: object) -> str | None:
    """The digits of a number of stars; Parquet files of other tools hold them as floats, decimals or text."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(Decimal(repr(value)))  # of 1e30 the digits that were written
    match = re.fullmatch(r"([0-9]+)(\.0*)?", str(value).strip())  # a decimal comes as 12.00
    return None if match is None else match[1]
