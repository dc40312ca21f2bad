"""Lists whose manners are odd: cursors of every kind, pages that are capped, addresses that lead elsewhere."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from headrace.tables.settings import settings_at
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.paged.checkpoints import Checkpoints
from tests.headrace_features.apis.api_server import Api, records, serving
from tests.headrace_features.apis.conftest import PAGINATORS, Inbox, api_config, texts_of
from tests.tiers import sampled, tries

Answer = Callable[[dict[str, str]], tuple[int, str]]


@dataclass
class Odd:
    """A server whose answers are a function of the parameters; `asked` counts the parameters that came."""

    answer: Answer
    asked: list[dict[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    port: int = 0
    style: str = "cursor"

    @property
    def url(self) -> str:
        """Address of the list."""
        return f"http://127.0.0.1:{self.port}/v1/items"


@contextmanager
def odd(answer: Answer) -> Iterator[Odd]:
    """Serve while the block runs."""
    server = Odd(answer)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

        def do_GET(self) -> None:
            """The answer."""
            params = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
            server.asked.append(params)
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, text = server.answer(params)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.port = http.server_port
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def config_of(server: Odd, **more: Any) -> Any:
    """A dataset of the server's records, which says no total."""
    api = Api({})
    api.port = server.port
    limits = {"timeout_seconds": 20, **more.pop("limits", {})}
    return api_config(api, total=None, error=None, limits=limits, **more)


def inbox_at(folder: Path) -> Inbox:
    """A lake that holds nothing."""
    return Inbox(open_catalogue(settings_at(folder)))


def odd_cursor(kind: str, number: int, draw: random.Random) -> tuple[str, str]:
    """A cursor as JSON that no other number gives, and the text that is to be sent back."""
    if kind == "integer":
        text = draw.choice([str(number), str(-number), f"{number}{'0' * 40}"])
    elif kind == "float":
        text = draw.choice([f"{number}.0", f"{number}.500", f"{number}e2", f"-{number}.25E+3", f"{number}.{'1' * 30}"])
    elif kind == "list":
        text = draw.choice([f"[{number}, 1.0]", f'["a",{number}.50]', f"[[ {number} ]]", f'[{number},null,"\\u00e9"]'])
    elif kind == "object":
        text = draw.choice(
            [f'{{"a":{number}}}', f'{{ "b" : [1.0, {number}] , "a":"}}"}}', f'{{"\\u00e9": {number}.0}}']
        )
    else:
        made = draw.choice(["", " ", "a b+c&d=e", "é/?#%41", "0", "null", '"']) + str(number)
        return json.dumps(made), made
    return text, text


@sampled()
@pytest.mark.parametrize("kind", ["integer", "float", "list", "object", "string"])
def test_cursors_of_every_kind_are_sent_as_they_were_written(kind: str, tmp_path: Path) -> None:
    """The server takes exactly what it gave; each page is asked for once, and each record lands once."""
    for seed in range(tries(60, 3)):
        draw, inbox = random.Random(seed), inbox_at(tmp_path / str(seed))
        size, count = draw.randint(1, 9), draw.randint(10, 40)
        cursors = [odd_cursor(kind, number, draw) for number in range(1, count + 1)]
        end = draw.choice(["null", '""', "false", "0", "[]", "{}", "NaN"])

        def answer(params: dict[str, str]) -> tuple[int, str]:
            starts = {sent: number for number, (_, sent) in enumerate(cursors, start=1)}  # noqa: B023
            start = starts.get(params.get("cursor", ""), None if "cursor" in params else 0)
            if start is None:
                return 400, "{}"
            rows = [{"id": key, "text": f"text {key}"} for key in range(start, min(start + size, count))]  # noqa: B023
            following = cursors[start + size - 1][0] if start + size < count else end  # noqa: B023
            return 200, f'{{"meta": {{"x": "}}", "next" : {following} }}, "data": {json.dumps(rows)}}}'

        with odd(answer) as server:
            config = config_of(server)
            done = inbox.fetch(config)
            landed = inbox.land(config)
            assert landed is not None and done.refusals == [], (kind, seed)
            assert sorted(texts_of(landed[0])) == list(range(count)) and done.requests == -(-count // size)


@sampled(2)
@pytest.mark.parametrize(
    ("following", "told"),
    [
        ('{"href": "/v1/items?cursor=1"}', "a JSON dict with href, not a text"),
        ("17", "a JSON int, not a text"),
        ("true", "a JSON bool, not a text"),
        ('"http://[::1"', "is none"),
        ('"http://h:x/"', "is none"),
        ('"ftp://127.0.0.1/x"', "leads to another host"),
        ('"//other.example/v1"', "add other.example to source.allowed_hosts"),
        ('"https://127.0.0.1:1/v1"', "add 127.0.0.1:1 to source.allowed_hosts"),
    ],
)
def test_an_address_that_is_none_or_leads_elsewhere_is_a_refusal(following: str, told: str, inbox: Inbox) -> None:
    """The page that names it lands, the reading is not whole, and the next run asks what is next again."""
    said = [following]
    with odd(lambda _: (200, f'{{"data": [{{"id": 1, "text": "a"}}], "meta": {{"next": {said[0]}}}}}')) as server:
        config = config_of(server, paginator=PAGINATORS["next_url"], lists_all=True, limits={"tries": 2})
        for count in (1, 2):
            done = inbox.fetch(config)
            assert told in done.refusals[0] and "page 2" in done.refusals[0] and len(server.asked) >= count
        landed = inbox.land(config)
        assert landed is not None and [row["content"] for row in landed[0]] == ["a"]
        assert Checkpoints(inbox.catalogue, "items").reading("items", "whole") is None
        said[0] = "null"
        assert inbox.fetch(config).refusals == []


def test_more_pages_without_a_cursor_are_a_refusal(inbox: Inbox) -> None:
    """The answer says that the list goes on, and not where."""
    with odd(lambda _: (200, '{"data": [{"id": 1, "text": "a"}], "more": true}')) as server:
        config = config_of(server, paginator={"kind": "cursor", "path": "meta.next", "more": "more"})
        assert "'meta.next' has no cursor" in inbox.fetch(config).refusals[0]
        assert inbox.land(config) is not None


@pytest.mark.parametrize("style", ["next_url", "link_header"])
def test_a_next_page_on_another_host_is_asked_if_it_is_allowed(
    style: str, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never with credentials or the headers of the config."""
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    monkeypatch.setenv("MINE", "m1ne")
    with serving(Api(records(20), style=style)) as other, serving(Api(records(20), style=style)) as api:
        more = {"auth": {"kind": "bearer", "token": "MY_TOKEN"}, "headers": {"X-Mine": "${MINE}"}}
        config = api_config(api, **more)
        api.next_port = other.port
        done = inbox.fetch(config)
        assert f"add 127.0.0.1:{other.port} to source.allowed_hosts" in done.refusals[0] and other.asked == []
        config = api_config(api, **more, allowed_hosts=[f"127.0.0.1:{other.port}"])
        assert inbox.fetch(config).refusals == [] and len(other.asked) == 2
        landed = inbox.land(config)
        assert landed is not None and sorted(texts_of(landed[0])) == list(range(20))
        assert not any({"authorization", "x-mine"} & set(headers) for _, _, headers in other.asked)
        assert all(headers["authorization"] == "Bearer s3cret" for _, _, headers in api.asked)


@pytest.mark.nightly
def test_capped_pages_by_offset_are_read_once(tmp_path: Path) -> None:
    """Whatever the server makes of the size that is asked for: about a request a page, and no record on two pages."""
    for seed in range(tries(80, 8)):
        draw, inbox = random.Random(seed), inbox_at(tmp_path / str(seed))
        count, asked = draw.randint(0, 200), draw.choice([5, 20, 100])
        cap, fixed = draw.randint(1, 120), draw.random() < 0.2
        varies = draw.random() < 0.3

        def answer(params: dict[str, str]) -> tuple[int, str]:
            start = int(params["offset"])
            size = cap if fixed else min(cap, int(params["limit"]))  # noqa: B023
            size = max(1, size - start % 3) if varies else size  # noqa: B023
            rows = [{"id": key, "text": f"t{key}"} for key in range(start, min(start + size, count))]  # noqa: B023
            return 200, json.dumps({"data": rows})

        with odd(answer) as server:
            config = config_of(server, paginator={"kind": "offset", "limit": asked})
            done = inbox.fetch(config)
            landed = inbox.land(config)
            found = {} if landed is None else texts_of(landed[0])
            case = (seed, count, asked, cap, fixed, varies)
            assert done.refusals == [] and sorted(found) == list(range(count)), case
            assert done.records == count, case
            size = cap if fixed else min(cap, asked)
            needed = count / max(1, size - 1 if varies else size)
            assert done.requests <= 2 * needed + 6 if varies else done.requests <= -(-count // size) + 5, case


@sampled(3)
@pytest.mark.parametrize("style", PAGINATORS)
@pytest.mark.parametrize("page", [0, 1, 3])
def test_a_page_that_failed_twice_is_asked_for_at_the_next_run(style: str, page: int, inbox: Inbox) -> None:
    """Once the server is well a run asks it, and what it has lands."""
    with serving(Api(records(26), style=style)) as api:
        config = api_config(api, limits={"tries": 1, "timeout_seconds": 20}, total=None)
        if style == "single" and page:
            return
        place = {"offset": ("offset", str(7 * page)), "page_number": ("page", str(page + 1))}
        name, value = place.get(style, ("cursor", f"0:{7 * page - 1}"))
        broken = [True]

        def draw() -> str:
            params = api.asked[-1][1]
            return "error_500" if broken[0] and params.get(name, "0:-1") == value else ""

        api.draw = draw  # type: ignore[method-assign]
        for _ in range(2):
            assert inbox.fetch(config).refusals
        inbox.land(config)
        broken[0] = False
        count = len(api.asked)
        assert inbox.fetch(config).refusals == [] and len(api.asked) > count
        landed = inbox.land(config)
        assert landed is not None
        found = {row["doc_id"] for row in landed[0]}
        assert found and ObjectFolder.of(inbox.catalogue, "items").older(float("inf"))
        everything = inbox.land(config, reread=True)
        assert everything is not None and sorted(texts_of(everything[0])) == list(range(26))


def test_since_does_not_go_past_a_page_that_was_not_read(inbox: Inbox) -> None:
    """What was on it is asked for again, though later records are newer."""
    with serving(Api(records(26), style="page_number")) as api:
        since = {"param": "since", "column": "updated", "first": "2026-01-01T00:00:00Z"}
        config = api_config(api, since=since, total=None, limits={"tries": 1, "readings": 1, "timeout_seconds": 20})
        api.draw = lambda: "error_500" if api.asked[-1][1]["page"] == "2" else ""  # type: ignore[method-assign]
        for _ in range(4):
            inbox.fetch(config)
        assert {params["since"] for _, params, _ in api.asked} == {"2026-01-01T00:00:00Z"}
