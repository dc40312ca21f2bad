"""Pages of an API as pure functions: what is asked for at a cursor, and which cursor an answer says is next.

A cursor is a value of JSON: None at the first page, a number of a page or of records, a token of the
server's own as it was written, the address of the next page, or why there can be none (`stop`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urljoin

from headrace_features.apis.api_config import (
    CursorPages,
    LinkHeaderPages,
    NextUrlPages,
    NumberedPages,
    OffsetPages,
    Paginator,
    Since,
)
from spark_jobs.credentials import without_secrets
from spark_jobs.sources.records.paths import value_at

_NO_MORE: tuple[Any, ...] = (None, False, 0, "", "false", "False", "0", [], {})  # what says that a page is the last


class Page(NamedTuple):
    """What a connector written in Python returns: records as dictionaries, and the next cursor, None after the last."""

    records: Sequence[Mapping[str, Any]]
    next_cursor: Any = None


def written_at(text: str, path: str) -> str | None:
    """The value at a path (see `value_at`) of a JSON text as it is written there; None where there is none."""
    members = dict(_members(text))
    if path in members:
        return members[path]
    heads = [path[:place] for place, letter in enumerate(path) if letter == "."]
    head_name = next((head for head in heads if head in members), None)
    return None if head_name is None else written_at(members[head_name], path[len(head_name) + 1 :])


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Keys of a JSON object and the texts of their values."""
    decoder, place = json.JSONDecoder(), _past_blanks(text, 0)
    if text[place : place + 1] != "{":
        return
    place = _past_blanks(text, place + 1)
    while text[place : place + 1] == '"':
        key, place = decoder.raw_decode(text, place)
        start = _past_blanks(text, _past_blanks(text, place) + 1)
        _, place = decoder.raw_decode(text, start)
        yield key, text[start:place]
        place = _past_blanks(text, _past_blanks(text, place) + 1)


def _past_blanks(text: str, place: int) -> int:
    while text[place : place + 1] in (" ", "\t", "\n", "\r"):
        place += 1
    return place


def stop(why: str) -> dict[str, str]:
    """The cursor of an unreachable page: the reason why."""
    return {"stop": why}


def why_stopped(cursor: Any) -> str | None:
    """Why the page at a cursor cannot be asked for; None where it can."""
    return cursor.get("stop") if isinstance(cursor, dict) else None


def first_cursor(paginator: Paginator) -> Any:
    """The cursor of the first page."""
    if isinstance(paginator, NumberedPages):
        return paginator.first
    return 0 if isinstance(paginator, OffsetPages) else None


def is_addressable(paginator: Paginator) -> bool:
    """Whether any page can be asked for without the one before it."""
    return isinstance(paginator, NumberedPages | OffsetPages)


def page_request(paginator: Paginator, url: str, params: Mapping[str, str], cursor: Any) -> tuple[str, dict[str, str]]:
    """Address and parameters of the page at a cursor."""
    query = dict(params)
    if isinstance(paginator, OffsetPages):
        query |= {paginator.limit_param: str(paginator.limit), paginator.param: str(cursor)}
    elif isinstance(paginator, NumberedPages | CursorPages) and cursor is not None:
        query[paginator.param] = str(cursor)
    elif cursor is not None:
        return str(cursor), {}  # the address holds its parameters
    return url, query


def next_cursor(
    paginator: Paginator, url: str, cursor: Any, answer: Any, link: str | None, record_count: int, data: bytes = b"{}"
) -> Any:
    """The cursor after a page, None after the last; `stop` where there is a next page that cannot be asked for.

    A token of the server's own that is neither a text nor a whole number is given as it is written: `1.0`, `[1,  2]`.

    Args:
        paginator: how pages follow each other.
        url: address of the page.
        cursor: that of the page.
        answer: the page, as JSON has it.
        link: the address with rel="next" of the header Link.
        record_count: records of the page.
        data: the page as it came.
    """
    following: Any = None
    if isinstance(paginator, NumberedPages) and record_count:
        following = cursor + 1
    elif isinstance(paginator, OffsetPages) and record_count:
        following = cursor + record_count
    elif isinstance(paginator, CursorPages):
        more = paginator.more is None or value_at(answer, paginator.more) not in _NO_MORE
        following = (value_at(answer, paginator.path) or None) if more else None
        if following is None and more and paginator.more is not None:
            return stop(f"{paginator.more!r} says that there are more pages, and {paginator.path!r} has no cursor")
        if isinstance(following, float) and math.isnan(following):
            return None
        if following is not None and not isinstance(following, str) and type(following) is not int:
            following = written_at(data.decode(json.detect_encoding(data), "surrogatepass"), paginator.path)
    elif isinstance(paginator, NextUrlPages | LinkHeaderPages):
        following = _next_address(
            url, link if isinstance(paginator, LinkHeaderPages) else value_at(answer, paginator.path)
        )
    return following


def _next_address(url: str, stated: Any) -> str | dict[str, str] | None:
    """The next address, as stated by the answer from `url`."""
    if not stated:
        return None
    if not isinstance(stated, str):
        fields = f" with {', '.join(list(stated)[:5])}" if isinstance(stated, dict) else ""
        return stop(f"its next address is a JSON {type(stated).__name__}{fields}, not a text; correct paginator.path")
    try:
        return urljoin(url, stated)
    except ValueError as error:
        return stop(f"its next address {without_secrets(stated)[:200]!r} is none: {error}")


def record_keys(records: Iterable[Any], id_column: str) -> frozenset[str]:
    """A key for each record: a hash of its id, or of the whole record where it has none."""
    keys = set()
    for record in records:
        record_id = value_at(record, id_column)
        keys.add(
            hashlib.sha256(
                json.dumps(record if record_id is None else [record_id], sort_keys=True).encode()
            ).hexdigest()[:32]
        )
    return frozenset(keys)


def largest(values: Iterable[Any]) -> Any:
    """The largest of numbers or of times in ISO 8601, None where there is none; other values are passed over."""
    comparable = [(order, value) for value in values if (order := _order(value)) is not None]
    return max(comparable, key=lambda entry: entry[0])[1] if comparable else None


def since_value(since: Since, value: Any) -> str | None:
    """The value to ask from: the largest one so far, less the lag; the first value where there is none."""
    if value is None:
        return since.first
    if isinstance(value, str):
        moment = _moment(value)
        if moment is None:
            return since.first
        if not since.lag:
            return value
        text = (moment - timedelta(seconds=since.lag)).isoformat()
        return text.replace("+00:00", "Z") if value.endswith(("Z", "z")) else text
    less = value - since.lag
    return str(int(less) if isinstance(value, int) and less == int(less) else less)


def _order(value: Any) -> tuple[int, float] | None:
    """The key ordering values: numbers among numbers, times among times; None for others."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return (0, float(value)) if abs(value) < 1e300 else None
    moment = _moment(value) if isinstance(value, str) else None
    return None if moment is None else (1, moment.timestamp())


def _moment(text: str) -> datetime | None:
    """The time in a text, taken for UTC where it names no zone."""
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError:
        return None
