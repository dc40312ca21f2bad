"""Fetching: nothing lost and nothing twice, whatever the server does, compared with the server's own truth."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace_features.apis.paging import Page
from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.sources.landing.landed import find_document
from spark_jobs.sources.paged.checkpoints import Checkpoints, StoredPage
from spark_jobs.sources.refusals import Reason, Refusal
from tests.headrace_features.apis.api_server import MOVES, TRANSIENT, Api, records, serving
from tests.headrace_features.apis.conftest import PAGINATORS, Inbox, api_config, texts_of
from tests.tiers import sampled, tries

LATER = ("next_url", "link_header", "offset", "single")  # what is tried of them nightly alone


@sampled(2)
@pytest.mark.parametrize("style", PAGINATORS)
def test_every_record_lands_once_by_every_paginator(style: str, inbox: Inbox) -> None:
    """Of a server that is well; a second fetch reads the list once, brings no page, and lands nothing."""
    with serving(Api(records(45), style=style)) as api:
        config = api_config(api)
        first = inbox.fetch(config)
        landed = inbox.land(config)
        assert landed is not None
        assert texts_of(landed[0]) == {key: [text] for key, text in api.truth.items()}
        assert len(landed[0]) == 45 and first.refusals == []
        kept = ObjectFolder.of(inbox.catalogue, "items").older(float("inf"))
        again = inbox.fetch(config)
        assert (again.pages, again.refusals) == (0, []) and again.requests <= first.requests + 4
        assert ObjectFolder.of(inbox.catalogue, "items").older(float("inf")) == kept, "though answers are other bytes"
        assert inbox.land(config) is None


@sampled()
@pytest.mark.parametrize(
    "style", ["cursor", "page_number", *(pytest.param(one, marks=pytest.mark.nightly) for one in LATER)]
)
def test_a_server_that_misbehaves_loses_nothing(style: str, inbox: Inbox) -> None:
    """Random faults in a random order until the server is well: each record is there, and none that never was."""
    for seed in range(tries(25, 1)):
        with serving(Api(records(60), style=style, seed=seed, faults=TRANSIENT + MOVES, budget=12)) as api:
            config = api_config(api)
            for _ in range(20):
                inbox.fetch(config, seed)
                if api.budget <= 0:
                    break
            inbox.fetch(config, seed)
            landed = inbox.land(config)
            assert landed is not None
            found = {(key, text) for key, texts in texts_of(landed[0]).items() for text in texts}
            assert set(api.truth.items()) <= found, (style, seed, api.done)
            assert found <= api.every, (style, seed)


def test_every_record_leads_back_to_its_page(inbox: Inbox) -> None:
    """Whichever of all pages of an increment it is; damage of one page hides its own records alone, and is named."""
    with serving(Api(records(45), style="cursor")) as api:
        config = api_config(api)
        inbox.fetch(config)
    landed = inbox.land(config)
    assert landed is not None
    documents, arrivals = landed
    assert len({row["path"] for row in arrivals}) == 1 < len(arrivals)
    objects = ObjectFolder.of(inbox.catalogue, "items")
    damaged = Path(arrivals[-1]["object"].removeprefix("file://"))
    lost = {row["id"] for row in json.loads(damaged.read_bytes())["data"]}
    damaged.chmod(0o644)
    damaged.write_bytes(b"{}")
    for document in documents:
        key = int(document["path"].partition("#")[2])
        if key in lost:
            with pytest.raises(InputError, match=r"its copy .* is damaged"):
                find_document(arrivals, document["doc_id"], config, objects)
            continue
        arrival, row, place = find_document(arrivals, document["doc_id"], config, objects)
        with objects.open(arrival["object"]) as file:
            assert place.number is not None
            record = json.loads(bytes(file.read()))["data"][place.number - 1]
        assert (record["id"], record["text"], place.unit) == (key, row["content"], "item")


@sampled()
@pytest.mark.parametrize("style", ["cursor", "page_number"])
def test_a_second_fetch_is_one_conditional_listing(style: str, inbox: Inbox) -> None:
    """Each page that holds records is asked for with the validator that the server gave."""
    with serving(Api(records(20), style=style, etags=True)) as api:
        config = api_config(api)
        inbox.fetch(config)
        count = len(api.asked)
        assert inbox.fetch(config).pages == 0
        second = api.asked[count:]
        known = [headers for _, _, headers in second if "if-none-match" in headers]
        assert len(known) >= 3 and len(second) <= count + 4


def test_a_changed_record_is_a_new_document_and_so_is_one_that_changes_back(inbox: Inbox) -> None:
    """The page is new both times, though its records were there before."""
    with serving(Api(records(5))) as api:
        config, seen = api_config(api), list[str]()
        for text in ("one", "two", "one"):
            api.put(3, text)
            inbox.fetch(config)
            landed = inbox.land(config)
            assert landed is not None
            seen += texts_of(landed[0])[3]
        assert seen == ["one", "two", "one"]


@sampled()
@pytest.mark.parametrize("style", ["cursor", "page_number"])
def test_deleted_pages_neither_land_nor_are_kept_again(style: str, inbox: Inbox) -> None:
    """Though the server still gives them, in other bytes of the same records; a page that changed is new."""
    with serving(Api(records(20), style=style)) as api:
        config, objects = api_config(api), ObjectFolder.of(inbox.catalogue, "items")
        inbox.fetch(config)
        assert inbox.land(config) is not None
        names = {Path(path).name for path in objects.older(float("inf"))}
        Checkpoints(inbox.catalogue, "items").forget(names)
        assert len(names) >= 3 and all(map(objects.delete, names))
        for reread in (False, True):
            assert inbox.fetch(config).refusals == [] and inbox.land(config, reread) is None
            assert objects.older(float("inf")) == []
        before = api.records[3]
        api.put(3, "other")
        assert inbox.fetch(config).pages == len(objects.older(float("inf"))) == 1
        landed = inbox.land(config)
        assert landed is not None and texts_of(landed[0])[3] == ["other"]
        api.records[3] = before
        inbox.fetch(config)
        assert inbox.land(config) is None and len(objects.older(float("inf"))) == 1
        gone = api_config(api, lists_all=True)
        inbox.fetch(gone)
        landed = inbox.land(gone)
        assert landed is not None and {row["status"] for row in landed[1]} == {"gone"}, "other is in the list no more"


def test_a_broken_reading_goes_on_where_it_stopped(inbox: Inbox) -> None:
    """What was fetched lands; the page that could not be read is a row with the reason, and is asked for first."""
    with serving(Api(records(60), faults=("error_500",))) as api:
        config = api_config(api, limits={"tries": 2})
        api.draw = lambda: "error_500" if len(api.asked) > 4 else ""  # type: ignore[method-assign]
        done = inbox.fetch(config)
        assert "status 500" in done.refusals[0]
        landed = inbox.land(config)
        assert landed is not None and len(texts_of(landed[0])) == 28
        refused = [row for row in landed[1] if row["status"] == "rejected"]
        assert [(row["reason"], row["detail"]) for row in refused] == [("http_error", "page 5: status 500")]
        api.draw = lambda: ""  # type: ignore[method-assign]
        count = len(api.asked)
        assert inbox.fetch(config).refusals == []
        assert api.asked[count][1]["cursor"] == "0:27"
        landed = inbox.land(config)
        assert landed is not None and sorted(texts_of(landed[0])) == list(range(28, 60))


@pytest.mark.nightly
@pytest.mark.parametrize("style", ["cursor", "offset"])
def test_a_fetch_that_takes_too_long_lands_what_came(style: str, inbox: Inbox) -> None:
    """And the next one goes on behind it."""
    with serving(Api(records(45), style=style)) as api:
        config = api_config(api, limits={"fetch_seconds": 1e-9})
        pages = list[int]()
        for _ in range(30):
            done = inbox.fetch(config)
            pages.append(done.pages)
            if not done.paused:
                break
        landed = inbox.land(config)
        assert landed is not None and texts_of(landed[0]) == {key: [text] for key, text in api.truth.items()}
        assert len(pages) > 2 and len(landed[0]) == 45


def test_only_what_is_new_is_asked_for(inbox: Inbox) -> None:
    """`since` is the largest value of a whole reading, less the lag."""
    with serving(Api(records(45))) as api:
        since = {"param": "updated_since", "column": "updated", "first": "2026-01-01T00:00:00Z", "lag": 60}
        config = api_config(api, since=since, total=None)
        inbox.fetch(config)
        inbox.fetch(config)
        asked = [params["updated_since"] for _, params, _ in api.asked]
        assert asked == ["2026-01-01T00:00:00Z"] * 7 + ["2026-01-01T00:43:00Z"] * 7


def test_endpoints_are_read_side_by_side(inbox: Inbox) -> None:
    """The name of an endpoint is the first part of its documents' paths, so equal ids are no conflict."""
    with serving(Api(records(10))) as api:
        config = api_config(
            api, url=None, endpoints={"a": {"url": api.url}, "b": {"url": api.url, "params": {"q": "1"}}}
        )
        inbox.fetch(config)
        landed = inbox.land(config)
        assert landed is not None
        assert sorted(row["path"] for row in landed[0]) == sorted(f"{one}#{key}" for one in "ab" for key in range(10))
        assert {params.get("q") for _, params, _ in api.asked} == {None, "1"}


def test_records_that_cannot_be_used_are_rows_with_reasons(inbox: Inbox) -> None:
    """The page beside them lands; unknown fields go to metadata when that is asked for."""
    made: dict[int, Any] = records(4)
    made[1] = {"id": 1, "other": "x"}
    made[2] = {"text": "no id"}
    made[3] |= {"nested": {"deep": [1]}, "stars": 5}
    made[4] = "no object"
    with serving(Api(records(1), style="single")) as api:
        api.records = made
        config = api_config(api, unknown_fields="metadata", metadata_columns=["nested.deep"], total=None)
        inbox.fetch(config)
        landed = inbox.land(config)
        assert landed is not None
        documents, arrivals = landed
        assert sorted(row["path"] for row in documents) == ["items#0", "items#3"]
        said = {"nested.deep": "[1]", "stars": "5", "updated": "2026-01-01T00:03:00Z"}
        assert documents[1]["metadata"] == {**said, "headrace.page": "0#item:4"}
        refused = {row["location"].rpartition("#")[2]: row["reason"] for row in arrivals if row["status"] == "rejected"}
        assert refused == {"item:2": "missing_column", "item:3": "missing_column", "item:5": "bad_record"}


@sampled()
@pytest.mark.parametrize("style", ["cursor", "offset"])
def test_what_a_whole_list_does_not_have_any_more_is_gone(style: str, inbox: Inbox) -> None:
    """Once, wherever its page is; nothing is while a page cannot be read, or where the list is empty."""

    def gone() -> list[str]:
        inbox.fetch(config)
        landed = inbox.land(config) or ([], [])
        return sorted(row["path"] for row in landed[1] if row["status"] == "gone" and row["path"])

    with serving(Api(records(30), style=style)) as api:
        config = api_config(api, lists_all=True, limits={"tries": 1})
        assert gone() == []
        del api.records[3], api.records[29]
        well, api.draw = api.draw, lambda: "error_500" if len(api.asked) % 4 == 0 else ""  # type: ignore[method-assign]
        assert gone() == []
        api.draw = well  # type: ignore[method-assign]
        assert gone() == ["items#29", "items#3"] and gone() == []
        api.put(29, "text 29 é")
        del api.records[8]
        assert gone() == ["items#8"]
        there = dict(api.records)
        api.records.clear()
        assert gone() == []
        api.records |= there
        assert gone() == []
        del api.records[29]
        assert gone() == ["items#29"]


def test_pages_are_read_again_without_asking(inbox: Inbox) -> None:
    """Another mapping of columns is applied to the bytes that were kept."""
    with serving(Api(records(10))) as api:
        config = api_config(api)
        inbox.fetch(config)
        inbox.land(config)
    landed = inbox.land(api_config(api, text_column="updated"), reread=True)
    assert landed is not None and landed[0][0]["content"].startswith("2026-01-01")


CALLS: list[Any] = []


def counted_pages(cursor: int | None) -> Page:
    """Three pages of two records; the second fails once."""
    CALLS.append(cursor)
    start = cursor or 0
    if start == 2 and CALLS.count(2) == 1:
        raise OSError("gone for a moment")
    return Page([{"id": start + k, "text": f"t{start + k}"} for k in range(2)], start + 2 if start < 4 else None)


def test_a_connector_in_python_is_checkpointed_likewise(inbox: Inbox) -> None:
    """`pages(cursor)` is called with what the page before it returned."""
    CALLS.clear()
    limits = {"start_per_second": 1000, "max_per_second": 1000, "backoff_seconds": 0.01}
    with serving(Api(records(1))) as api:
        own = {"url": None, "records": "", "pages": f"{__name__}:counted_pages", "paginator": {"kind": "single"}}
        config = api_config(api, **own, total=None, limits=limits)
    inbox.fetch(config)
    landed = inbox.land(config)
    assert landed is not None
    assert sorted(row["path"] for row in landed[0]) == [f"counted_pages#{key}" for key in range(6)]
    assert CALLS == [None, 2, 2, 4]


def test_secrets_come_from_the_environment_alone(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of authentication; a variable that is not set is an error before anything is asked."""
    kinds: list[tuple[dict[str, str], dict[str, str]]] = [
        ({"kind": "bearer", "token": "MY_TOKEN"}, {"Authorization": "Bearer s3cret"}),
        ({"kind": "key", "key": "MY_TOKEN", "name": "X-Key"}, {"X-Key": "s3cret"}),
        ({"kind": "basic", "user": "MY_USER", "password": "MY_TOKEN"}, {"Authorization": "Basic bWU6czNjcmV0"}),
    ]
    for auth, needed in kinds:
        with serving(Api(records(9), needed=needed)) as api:
            config = api_config(api, auth=auth)
            monkeypatch.delenv("MY_TOKEN", raising=False)
            with pytest.raises(ConfigError, match="MY_TOKEN is not set"):
                inbox.fetch(config)
            assert api.asked == []
            monkeypatch.setenv("MY_TOKEN", "s3cret")
            monkeypatch.setenv("MY_USER", "me")
            assert inbox.fetch(config).records == 9
            assert "s3cret" not in config.model_dump_json()
    with serving(Api(records(9), needed={"Authorization": "Bearer t0ken"})) as api:
        monkeypatch.setenv("MY_ID", "x")
        token_url = f"http://127.0.0.1:{api.port}/token"
        auth = {"kind": "oauth2", "token_url": token_url, "client_id": "MY_ID", "client_secret": "MY_TOKEN"}
        assert inbox.fetch(api_config(api, auth=auth)).records == 9
    with serving(Api(records(9))) as api:
        auth = {"kind": "key", "key": "MY_TOKEN", "name": "key", "place": "query"}
        inbox.fetch(api_config(api, auth=auth))
        assert {params["key"] for _, params, _ in api.asked} == {"s3cret"}


def test_credentials_are_not_sent_to_another_host(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a redirect nor by the address of a next page; another port is another host."""
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    with serving(Api(records(20), style="link_header")) as other, serving(Api(records(3))) as api:
        api.redirect = other.url
        other_host = (f"127.0.0.1:{other.port}",)
        auth = {"kind": "bearer", "token": "MY_TOKEN"}
        config = api_config(api, auth=auth, paginator=PAGINATORS["link_header"], allowed_hosts=other_host)
        assert inbox.fetch(config).records == 20
        assert all(headers["authorization"] == "Bearer s3cret" for _, _, headers in api.asked)
        assert other.asked and not any("authorization" in headers for _, _, headers in other.asked)


@pytest.mark.nightly
def test_an_answer_that_is_too_long_or_that_is_refused_is_a_row(inbox: Inbox) -> None:
    """The detail says what to change."""
    with serving(Api(records(60), style="single")) as api:
        done = inbox.fetch(api_config(api, limits={"max_page_bytes": 500, "tries": 2}))
        assert "limits.max_page_bytes" in done.refusals[0] and len(api.asked) == 2
        done = inbox.fetch(api_config(api, records="rows", limits={"tries": 1}))
        assert "no list at 'rows', the source.records; it has: data, total, meta, at" in done.refusals[0]
    with serving(Api(records(3), needed={"X-Key": "k"})) as api:
        done = inbox.fetch(api_config(api))
        assert "status 401; check auth" in done.refusals[0] and len(api.asked) == 1
    done = inbox.fetch(api_config(api, limits={"tries": 2}))
    assert "no_answer" in done.refusals[0]


@pytest.mark.nightly
def test_pages_and_refusals_that_come_at_the_same_time_have_a_number_each(inbox: Inbox) -> None:
    """A page is noted in a thread while the loop notes that another one was refused."""
    store = Checkpoints(inbox.catalogue, "items")
    refusal = Refusal(Reason.HTTP_ERROR, "status 500")

    def note(number: int) -> None:
        page = StoredPage(str(number), number, digest=str(number), record_count=1)
        if number % 2:
            store.refuse("items", "all", replace(page, refusal=refusal, record_count=0, digest=None))
        else:
            store.save("items", "all", page)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(note, range(200)))
    assert sorted(page.sequence for page in store.pages("items", "all")) == list(range(200))
