"""Cursors, values and paces as pure functions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from headrace_features.apis.api_config import ApiSource, Since
from headrace_features.apis.paging import largest, next_cursor, page_request, since_value, written_at
from headrace_features.apis.schema_changes import changes, field_types
from spark_jobs.sources.config.paged_source import RequestLimits
from spark_jobs.sources.paged.rate import Pace, retry_after
from spark_jobs.sources.records.paths import value_at

MAPPING = {"text_column": "t", "id_column": "i"}


def test_values_are_found_by_their_path() -> None:
    """Keys may hold dots themselves; what is not there is None."""
    answer = {"meta": {"next": "x", "a.b": {"c": 1}}, "@odata.nextLink": "y"}
    assert [value_at(answer, path) for path in ("meta.next", "meta.a.b.c", "@odata.nextLink")] == ["x", 1, "y"]
    assert [value_at(answer, path) for path in ("meta.none", "meta.next.more", "none")] == [None, None, None]
    assert value_at([1], "") == [1]


def test_each_paginator_says_what_is_next() -> None:
    """From the answer, the header or the number of records; None is the end."""
    url = "https://h.example/v1/items?kind=a"
    given = {"kind": "api", "url": url, **MAPPING}

    def after(
        kind: str, cursor: object, answer: object, link: str | None = None, count: int = 2, **more: object
    ) -> object:
        source = ApiSource.model_validate({**given, "paginator": {"kind": kind, **more}})
        return next_cursor(source.paginator, url, cursor, answer, link, count)

    assert after("cursor", None, {"next": "abc"}, path="next") == "abc"
    assert after("cursor", None, {"next": "abc", "more": False}, path="next", more="more") is None
    assert after("cursor", None, {"next": ""}, path="next") is None
    assert after("next_url", None, {"next": "?page=2"}) == "https://h.example/v1/items?page=2"
    assert after("link_header", None, {}, link="/v1/items?page=3") == "https://h.example/v1/items?page=3"
    assert after("page_number", 4, {}) == 5 and after("page_number", 4, {}, count=0) is None
    assert after("offset", 40, {}, count=13) == 53
    assert after("single", None, {"next": "abc"}) is None
    numbered = ApiSource.model_validate({**given, "paginator": {"kind": "offset", "limit": 20}})
    assert ApiSource.model_validate({**given, "params": {"size": 100}}).params == {"size": "100"}
    assert page_request(numbered.paginator, url, {"q": "x"}, 40) == (url, {"q": "x", "limit": "20", "offset": "40"})


def test_the_next_fetch_asks_from_the_largest_value_less_the_lag() -> None:
    """Times in ISO 8601 are compared as times, numbers as numbers; a text that is neither counts for nothing."""
    assert largest(["2026-01-01T10:00:00+02:00", "2026-01-01T09:00:00Z", "soon", None]) == "2026-01-01T09:00:00Z"
    assert largest([3, 10, 2.5, True]) == 10 and largest([]) is None
    since = Since(param="since", column="c", first="0", lag=90)
    assert since_value(since, "2026-01-01T00:01:00Z") == "2025-12-31T23:59:30Z"
    assert (since_value(since, 1000), since_value(since, None)) == ("910", "0")


def test_the_pace_rises_slowly_and_is_halved() -> None:
    """About one more a second each second; a burst of faults halves it once; Retry-After is a pause for all."""
    now = [0.0]
    pace = Pace(RequestLimits(start_per_second=2, max_per_second=50), seed=1, clock=lambda: now[0])
    while now[0] < 10:
        now[0] += pace.reserve()
        pace.succeeded()
    assert 10 < pace.per_second < 14
    before = pace.per_second
    pace.overloaded(None)
    pace.overloaded(30)
    assert pace.per_second == before / 2 and pace.reserve() == pytest.approx(30)
    waits = [pace.backoff_seconds(attempt) for attempt in range(1, 9)]
    assert all(0 <= wait <= 2 ** (attempt - 1) for attempt, wait in enumerate(waits, start=1))
    assert waits == [Pace(RequestLimits(), 1).backoff_seconds(1), *waits[1:]]


def test_retry_after_is_seconds_or_a_date() -> None:
    """Anything else is as if it were not there."""
    now = datetime(2026, 11, 24, 12, tzinfo=UTC)
    assert retry_after("120", now) == 120 and retry_after("Tue, 24 Nov 2026 12:00:30 GMT", now) == 30
    assert retry_after("Tue, 24 Nov 2026 11:00:00 GMT", now) == 0
    assert retry_after("soon", now) is None and retry_after(None, now) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "url is missing"),
        ({"url": "https://u:p@h.example/x"}, "holds a user or a password"),
        ({"url": "ftp://h.example/x"}, "url"),
        ({"url": "https://h.example/x", "headers": {"Authorization": "x"}}, "looks like a secret"),
        ({"url": "https://h.example/x", "params": {"api_key": "x"}}, "looks like a secret"),
        ({"url": "https://h.example/x?page=1&apiKey=x"}, "apiKey looks like a secret"),
        ({"endpoints": {"a": {"url": "https://h.example/x", "params": {"token": "x"}}}}, "token looks like a secret"),
        ({"url": "https://h.example/x", "pages": "a:b"}, "pages stands instead of url"),
        ({"endpoints": {"a": {}}}, "endpoints.a: url is missing"),
        ({"endpoints": {"a#b": {"url": "https://h.example/x"}}}, "names of endpoints"),
        ({"url": "https://h.example/x", "auth": {"kind": "bearer", "token": "not a name"}}, "token"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused(given: dict[str, object], told: str) -> None:
    """Before anything is asked."""
    with pytest.raises(ValidationError, match=told):
        ApiSource.model_validate({"kind": "api", **MAPPING, **given})


def test_a_token_that_counts_or_says_where_a_list_goes_on_is_no_secret() -> None:
    """Whatever the style of names; words that hold such a word by chance are secrets still."""
    public = (
        "max_tokens maxTokens max-new-tokens page_token pageToken next_token NextToken $skiptoken continuationToken"
    )
    public += " resumptionToken sync_token token_count tokens_per_page tokenizer n_keys author key start_token"
    secret = "token Token access_token accessToken apiToken API-Token PRIVATE-TOKEN X-Auth-Token admin_token id_token"
    secret += (
        " refreshToken apikey X-Api-Key client_secret password cookie Proxy-Authorization Ocp-Apim-Subscription-Key"
    )
    secret += " context_token accesskey next_access_token db_pwd"
    source = {"kind": "api", "url": "https://h.example/x", **MAPPING}
    for name in public.split():
        assert ApiSource.model_validate({**source, "params": {name: "1"}}).params == {name: "1"}
    for name in secret.split():
        with pytest.raises(ValidationError, match="looks like a secret"):
            ApiSource.model_validate({**source, "headers": {name: "1"}})


def test_a_value_is_found_as_it_is_written() -> None:
    """By the same path as the value itself, whatever is around it; of a key that comes twice the last counts."""
    answer = '{ "a.b" :{"c" : 1.50 , "d":[1,  2.0e1]},"e":{"f.g":{"h":-0.0}}, "x": "}{\\"", "x":  {"y" :null}\n}'
    found = [written_at(answer, path) for path in ("a.b.c", "a.b.d", "e.f.g.h", "x", "x.y", "x.z", "none", "a.b.c.d")]
    assert found == ["1.50", "[1,  2.0e1]", "-0.0", '{"y" :null}', "null", None, None, None]


def test_changes_of_fields_are_rows() -> None:
    """A new field, another type, a field of every record that went and came back; null says nothing of a type."""
    assert field_types([{"a": 1, "b": None}, {"a": "x", "c": {}}]) == [
        ("a", "integer", True),
        ("a", "string", True),
        ("b", "null", False),
        ("c", "object", False),
    ]
    found = [
        ("e", "a", "integer", 0, "p0", True),
        ("e", "a", "string", 2, "p2", True),
        ("e", "b", "null", 0, "p0", True),
    ]
    first = list(changes([], found, {"e": "p2"}))
    assert first == [("e", "a", None, "integer", True, "p0"), ("e", "a", "integer", "string", True, "p2")]
    before = [(0, "e", "a", "integer", True), (0, "e", "a", "string", True), (0, "e", "d", "string", False)]
    gone = list(changes(before, [("e", "c", "array", 3, "p3", False)], {"e": "p3"}))
    assert gone == [("e", "c", None, "array", False, "p3"), ("e", "a", "integer|string", None, False, "p3")]
    back = list(changes([*before, (1, "e", "a", None, False)], [("e", "a", "string", 4, "p4", True)], {"e": "p4"}))
    assert back == [("e", "a", None, "string", True, "p4")]
    assert list(changes(before, [("e", "a", "string", 5, "p5", True)], {"e": "p5"})) == []
