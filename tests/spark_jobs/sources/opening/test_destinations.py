"""No answer of a server leads a request into a private network, by whatever form of address and whichever client."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Network, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from headrace.tables.settings import settings_at
from headrace_features.apis.addresses import fetch_addresses
from headrace_features.apis.client import ApiClient, Fault, HttpAnswer
from spark_jobs.exceptions import InputError
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.config.paged_source import RequestLimits
from spark_jobs.sources.config.source_config import FilesSource
from spark_jobs.sources.opening import destinations
from spark_jobs.sources.opening.destinations import Destinations, ForbiddenAddressError, is_public
from spark_jobs.sources.opening.file_trees import find_files
from spark_jobs.sources.paged.checkpoints import Checkpoints
from spark_jobs.sources.refusals import Reason
from tests.tiers import tries

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
PUBLIC = "127.0.0.2"  # plays the public internet
PRIVATE = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
    *("192.0.0.0/24", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
)
KNOWN_PRIVATE = (
    "169.254.169.254",
    "127.0.0.1",
    "0.0.0.0",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "10.0.0.1",
)
LIMITS = RequestLimits(start_per_second=1000, max_per_second=1000, backoff_seconds=0.01, tries=1, timeout_seconds=5)


@dataclass
class Site:
    """A server on one address, with what it was asked; `to` is where it redirects each request."""

    host: str
    port: int = 0
    to: str = ""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)


@pytest.fixture
def sites() -> Iterator[tuple[Site, Site]]:
    """A public site and one that only this machine can reach."""
    started = [_started(Site(PUBLIC)), _started(Site("127.0.0.1"))]
    yield started[0][0], started[1][0]
    for _, server in started:
        server.shutdown()
        server.server_close()


def _started(site: Site) -> tuple[Site, ThreadingHTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

        def do_GET(self) -> None:
            """A redirect, or records."""
            site.asked.append((self.path, dict(self.headers)))
            body = json.dumps([{"id": 1, "text": f"from {site.host}"}]).encode()
            self.send_response(302 if site.to else 200)
            if site.to:
                self.send_header("Location", site.to)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if self.command == "GET" else b"")

        def do_HEAD(self) -> None:
            """The same, without a body."""
            self.do_GET()

    server = ThreadingHTTPServer((site.host, 0), Handler)
    server.daemon_threads = True
    site.port = server.server_port
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return site, server


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What the name server knows, by host; connections to other addresses than these sites' are an error."""
    known = {"public.example": [PUBLIC], "inside.example": ["127.0.0.1"], "mixed.example": ["127.0.0.1", PUBLIC]}
    connect = socket.socket.connect

    async def look_up(host: str, port: int) -> list[str]:
        if host in known:
            return known[host]
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return [str(one[4][0]) for one in infos]

    def only_here(one: socket.socket, address: Any) -> None:
        assert not isinstance(address, tuple) or address[0] in ("127.0.0.1", PUBLIC), address
        connect(one, address)

    monkeypatch.setattr(destinations, "look_up", look_up)
    monkeypatch.setattr(destinations, "is_public", lambda address: address == PUBLIC)
    monkeypatch.setattr(socket.socket, "connect", only_here)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return known


def forms(address: str) -> list[str]:
    """Hosts that all mean one IPv4 address to some client."""
    parts, number = [int(part) for part in address.split(".")], int(ip_address(address))
    return [
        *(address, f"{address}.", str(number), hex(number), f"0{number:o}", ".".join(map(hex, parts))),
        *(".".join(f"0{part:o}" for part in parts), f"{parts[0]}.{number & 0xFFFFFF}"),
        *(f"{parts[0]}.{parts[1]}.{number & 0xFFFF}", f"[::ffff:{address}]", f"[64:ff9b::{address}]"),
        *(
            f"[{IPv6Address(0xFFFF << 32 | number).exploded}]",
            f"[::{address}]",
            f"[2002:{number >> 16:x}:{number & 65535:x}::]",
        ),
        *("".join(chr(ord(letter) + 0xFEE0) if letter.isdigit() else "\u3002" for letter in address),),
        f"me:pass@{address}",
    ]


def private_addresses(count: int) -> list[str]:
    """Addresses of private networks, at random."""
    drawn = random.Random(count)
    networks = [IPv4Network(drawn.choice(PRIVATE)) for _ in range(count)]
    return [*KNOWN_PRIVATE, *(str(one[drawn.randrange(one.num_addresses)]) for one in networks)]


LOCAL = [
    *("[::1]", "[::]", "[fe80::1]", "[fd00:ec2::254]", "[fec0::1]", "[ff02::1]", "[2001:db8::1]", "[64:ff9b:1::1]"),
    *(
        "localhost",
        "LOCALHOST.",
        "metadata.google.internal",
        "printer.local",
        "metadata",
        "x.localhost",
        "nas.home.arpa",
    ),
]


def test_no_form_of_a_private_address_is_a_destination() -> None:
    """Decimal, octal, hexadecimal, short, in IPv6, in other digits; a public address is one in its own form."""
    for address in private_addresses(tries(400, 40)):
        assert not is_public(address), address
        for host in forms(address):
            bare = host.rpartition("@")[2]
            with pytest.raises(ForbiddenAddressError, match=r"leads to .* add .* to source.allowed_hosts"):
                Destinations.of([]).require("http", bare, None)
    for host in LOCAL:
        with pytest.raises(ForbiddenAddressError):
            Destinations.of([]).require("https", host, 8443)
    for address in ("8.8.8.8", "2606:4700::1", "64:ff9b::8.8.8.8", "::ffff:1.1.1.1"):
        assert is_public(address)
    for scheme, port in (("file", None), ("ftp", 21), ("gopher", 70), ("http", 22), ("https", 25)):
        with pytest.raises(ForbiddenAddressError):
            Destinations.of([]).require(scheme, "www.example.org", port)
    Destinations.of([]).require("https", "www.example.org", None)
    Destinations.of(["http://localhost:8000/v1"], ["10.0.0.1"]).require("http", "localhost", 8000)
    Destinations.of(["http://localhost:8000/v1"], ["10.0.0.1"]).require("https", "10.0.0.1", None)
    Destinations.of([], ["straße.intranet"]).require("https", "xn--strae-oqa.intranet", None)  # as clients ask for it
    with pytest.raises(ForbiddenAddressError):  # another port is another service
        Destinations.of(["http://localhost:8000/v1"]).require("http", "localhost", 6379)


def _asked(url: str, named: list[str], **more: Any) -> HttpAnswer | Fault:
    """What a client of APIs gets at an address."""

    async def ask() -> HttpAnswer | Fault:
        client = ApiClient(LIMITS, named=named, **more)
        try:
            return await client.get(url, {}, {})
        finally:
            await client.close()

    return asyncio.run(ask())


@pytest.mark.nightly
def test_a_redirect_of_an_api_never_reaches_a_private_address(
    sites: tuple[Site, Site], names: dict[str, list[str]]
) -> None:
    """Whatever form it is in; the declared host may be private, and so may one that the config allows."""
    public, inside = sites
    url = f"http://public.example:{public.port}/v1"
    hosts = ["inside.example", *LOCAL, *(host for one in KNOWN_PRIVATE[:3] for host in forms(one))]
    for host in hosts:
        public.to = f"http://{host}:{inside.port}/x"
        got = _asked(url, [url])
        assert isinstance(got, Fault), host
        assert got.refusal.reason in (Reason.FORBIDDEN_ADDRESS, Reason.NO_ANSWER), (host, got)
    assert len(public.asked) >= len(hosts) and inside.asked == []
    public.to = f"http://inside.example:{inside.port}/x"
    got = _asked(url, [url])
    assert isinstance(got, Fault) and got.refusal.reason == Reason.FORBIDDEN_ADDRESS and not got.again
    assert f"leads to inside.example:{inside.port} at 127.0.0.1, no public address" in got.refusal.detail
    for named, more in (([url, public.to], {}), ([url], {"allowed": [f"inside.example:{inside.port}"]})):
        assert isinstance(_asked(url, named, **more), HttpAnswer)
    own = f"http://127.0.0.1:{inside.port}/v1"
    assert isinstance(_asked(own, [own]), HttpAnswer)
    inside.to = f"http://127.0.0.1:{public.port}/x"
    assert isinstance(_asked(own, [own]), Fault)


def test_a_name_is_judged_by_the_address_that_is_connected_to(
    sites: tuple[Site, Site], names: dict[str, list[str]]
) -> None:
    """A declared name that was public does not become private between two requests; of several only public ones."""
    public, inside = sites
    url = f"http://public.example:{public.port}/v1"

    async def ask() -> list[HttpAnswer | Fault]:
        client = ApiClient(LIMITS, named=[url])
        got = [await client.get(url, {}, {})]
        names["public.example"] = ["127.0.0.1"]
        got.append(await client.get(url, {}, {}))
        await client.close()
        return got

    first, second = asyncio.run(ask())
    assert isinstance(first, HttpAnswer) and isinstance(second, Fault)
    assert second.refusal.reason == Reason.FORBIDDEN_ADDRESS
    names["public.example"] = [PUBLIC]
    public.to = f"http://mixed.example:{inside.port}/x"  # nobody listens there at the public address
    got = _asked(url, [url])
    assert isinstance(got, Fault) and got.refusal.reason == Reason.NO_ANSWER and inside.asked == []


def test_a_listed_address_in_a_private_network_is_a_row_with_its_reason(
    sites: tuple[Site, Site], names: dict[str, list[str]], tmp_path: Path
) -> None:
    """Lists are made of links; the source's `allowed_hosts` names hosts that are meant."""
    public, inside = sites
    public.to = ""
    urls = [f"http://public.example:{public.port}/a", f"http://inside.example:{inside.port}/b"]
    (tmp_path / "urls.txt").write_text("\n".join([*urls, f"http://127.0.0.1:{inside.port}/c"]))
    fields = {"kind": "files", "urls": str(tmp_path / "urls.txt"), "limits": LIMITS.model_dump()}
    catalogue = open_catalogue(settings_at(tmp_path))
    refusals = _fetched(catalogue, fields)
    assert len(refusals) == 2 and all("(forbidden_address)" in one for one in refusals)
    assert inside.asked == [] and len(public.asked) == 1
    hosts = [f"inside.example:{inside.port}", f"127.0.0.1:{inside.port}"]
    assert _fetched(catalogue, fields | {"allowed_hosts": hosts}) == []
    assert {path for path, _ in inside.asked} == {"/b", "/c"}


def _fetched(catalogue: Catalog, fields: dict[str, Any]) -> list[str]:
    source = FilesSource.model_validate(fields)
    return fetch_addresses(source, Checkpoints(catalogue, "web"), ObjectFolder.of(catalogue, "web")).refusals


def test_files_of_a_web_server_are_not_read_from_a_private_address(
    sites: tuple[Site, Site], names: dict[str, list[str]]
) -> None:
    """A redirect of the listing ends it with one line; a server that is declared is read, wherever it is."""
    pytest.importorskip("aiohttp", reason="aiohttp is in the extra ingest")
    public, inside = sites
    for host in ("127.0.0.1", "inside.example", "[::ffff:127.0.0.1]", "localhost"):
        public.to = f"http://{host}:{inside.port}/a.txt"
        root = f"http://public.example:{public.port}/a.txt"
        try:
            refusals = [one.refusal for one in find_files(root)]
        except InputError as error:
            assert "leads to" in str(error)
        else:
            assert [one and one.reason for one in refusals] == [Reason.FORBIDDEN_ADDRESS]
    assert public.asked and inside.asked == []
    assert [one.refusal for one in find_files(f"http://127.0.0.1:{inside.port}/a.txt")] == [None]


def test_a_proxy_of_the_environment_is_not_asked_for_a_private_address(
    sites: tuple[Site, Site], names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for all else, and it may be anywhere: who sets the environment answers for it."""
    public, inside = sites
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{inside.port}")
    got = _asked("http://public.example/v1", ["http://public.example/v1"])
    assert isinstance(got, HttpAnswer) and [path for path, _ in inside.asked] == ["http://public.example/v1"]
    assert isinstance(_asked("http://elsewhere.example/v1", ["http://elsewhere.example/v1"]), HttpAnswer)
    for url in ("http://169.254.169.254/x", "http://inside.example/x", "http://metadata.google.internal/"):
        got = _asked(url, [])
        assert isinstance(got, Fault) and got.refusal.reason == Reason.FORBIDDEN_ADDRESS
    assert len(inside.asked) == 2 and public.asked == []
