"""Who may open a page, and what every answer carries, tried as another site would."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from dagster_project.pages_guard import LOCAL_HOSTS
from headrace_features.explore.app import make_app
from headrace_features.explore.guard import ExplorerGuard, one_token
from tests.headrace_features.explore.planted import TOKEN, KeptLake, Planted, drawn
from tests.tiers import sampled

SIGNED = {"Cookie": f"{ExplorerGuard.cookie}={TOKEN}"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> KeptLake:
    """A dataset of one document."""
    return KeptLake(tmp_path_factory.mktemp("lake"), lambda lake: lake.add("notes", drawn(1)))


@pytest.fixture
def lake(kept: KeptLake, monkeypatch: pytest.MonkeyPatch) -> Planted:
    """The same for each test, and a page that takes decisions."""
    from headrace_features.explore.pages import lake as first

    def fails(request: Request) -> Response:
        raise ValueError("a secret")

    paths = {**first.PATHS, "/decide": lambda request: PlainTextResponse("done"), "/fails": fails}
    monkeypatch.setattr(first, "PATHS", paths)
    monkeypatch.setattr(first, "POSTED", ("/decide",), raising=False)
    return kept.again()


@sampled(3)
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:4141", 200),
        ("127.0.0.1", 200),
        ("[::1]:4141", 200),
        ("LOCALHOST:1", 200),
        ("evil.example:4141", 421),
        ("localhost.evil.example", 421),
        ("localhost:4141@evil.example", 421),
        ("127.0.0.1.nip.io:4141", 421),
        ("0.0.0.0:4141", 421),
        ("", 421),
    ],
)
def test_a_name_that_was_bound_anew_is_refused(lake: Planted, host: str, status: int) -> None:
    """The browser names the site that it believes it is on, also where that name leads to this machine."""
    for path in ("/", "/static/explore.js", "/nothing"):
        found = lake.client().get(path, headers={"Host": host}).status_code
        assert found == (status if status == 421 or path != "/nothing" else 404)


def test_the_token_goes_from_the_address_into_a_cookie(lake: Planted) -> None:
    """One redirect to the same address without it; the cookie is for this site alone, and scripts do not see it."""
    client = lake.client({})
    for path in ("/", "/datasets/notes/documents?q=a%26b&token=TOKEN&path=x%3Dy&empty="):
        given = path.replace("TOKEN", TOKEN) if "TOKEN" in path else f"{path}?token={TOKEN}"
        answer = client.get(given)
        assert answer.status_code == 303
        assert answer.headers["location"] == given.replace(f"token={TOKEN}&", "").replace(f"?token={TOKEN}", "")
        assert TOKEN not in answer.text
        cookie = answer.headers["set-cookie"]
        assert all(
            said in cookie for said in (f"{ExplorerGuard.cookie}={TOKEN}", "HttpOnly", "SameSite=strict", "Path=/")
        )
    assert client.get("/", headers=SIGNED).status_code == 200


@pytest.mark.parametrize(
    "path", ["//evil.example", "/%2Fevil.example", "///evil.example/x", "/%5Cevil.example", "/%09/evil.example"]
)
def test_no_redirect_leads_to_another_site(lake: Planted, path: str) -> None:
    """A path that begins as another site's address stays on this one."""
    answer = lake.client({}).get(f"http://localhost:4141{path}?token={TOKEN}")
    assert answer.status_code == 303
    to = answer.headers["location"]
    assert to.startswith("/") and not to.startswith(("//", "/\\", "/\t"))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer other"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer "},
        {"Cookie": f"{ExplorerGuard.cookie}="},
        {"Cookie": f"{ExplorerGuard.cookie}=other"},
        {"Cookie": f"other={TOKEN}"},
        {"Cookie": "\x22;;=,"},
        {"Authorization": "Bearer \xfc\xff"},
    ],
)
def test_nothing_is_told_without_a_token(lake: Planted, headers: dict[str, str]) -> None:
    """Neither pages nor whether they are there, nor JSON."""
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    for path in ("/", "/lake.json", "/nothing", "/documents/abc", "/find?q=x", "/?token=other", "/?token=%FF%00"):
        answer = lake.client({}).get(path, headers=encoded)
        assert answer.status_code == 401 and "notes" not in answer.text


@sampled(2)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({**SIGNED, "Origin": "http://localhost:4141"}, 200),
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
        (SIGNED, 403),
        ({**SIGNED, "Origin": "null"}, 403),
        ({**SIGNED, "Origin": "http://localhost:8888"}, 403),
        ({**SIGNED, "Origin": "http://evil.example"}, 403),
        ({**SIGNED, "Origin": "http://localhost:4141.evil.example"}, 403),
        ({"Origin": "http://localhost:4141"}, 401),
    ],
)
def test_a_decision_comes_from_our_own_pages(lake: Planted, headers: dict[str, str], status: int) -> None:
    """A form of another site, of another port of this machine, or of a page without an origin decides nothing."""
    assert lake.client({}).post("/decide", headers=headers).status_code == status
    assert lake.client(SIGNED).get("/decide").status_code == 405
    assert lake.client({}).post(f"/decide?token={TOKEN}", headers=headers).status_code == status


def test_every_answer_says_what_a_page_may_load(lake: Planted) -> None:
    """Pages, JSON, errors, refusals, redirects and files alike."""
    client = lake.client()
    cases = {
        "/": 200,
        "/lake.json": 200,
        "/static/explore.css": 200,
        "/static/nothing.css": 404,
        "/static/../app.py": 404,
        "/nothing": 404,
        "/nothing.json": 404,
        "/documents/nothing": 404,
        "/datasets/nothing/documents": 404,
        "/fails": 500,
        "/fails.json": 500,
        f"/?token={TOKEN}": 303,
        "/?token=no": 401,
    }
    for path, status in cases.items():
        answer = client.get(path)
        assert answer.status_code == status, path
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert "a secret" not in answer.text
        if path.endswith(".json"):
            assert answer.headers["content-type"] == "application/json" and isinstance(answer.json(), dict)
    assert lake.client({}).get("/").headers["content-security-policy"]
    assert client.get("/", headers={"Host": "evil.example"}).headers["content-security-policy"]
    assert client.post("/decide").status_code == 200 and client.put("/decide").status_code == 405


def test_pages_hold_no_script_and_no_style_of_their_own(lake: Planted) -> None:
    """The policy would refuse them, so a page with one is broken."""
    client = lake.client()
    for path in ("/", "/datasets/notes/documents", "/datasets/notes/facets", f"/documents/{drawn(1)[0]['doc_id']}"):
        page = client.get(path)
        assert page.status_code == 200, page.text
        text = page.text.replace('<script src="/static/explore.js" type="module"></script>', "")
        assert not any(said in text for said in ("<script", "<style", " style=", " onclick=", "javascript:", "//cdn"))


def test_a_token_is_of_one_principal() -> None:
    """Each start makes another; only the whole of it counts."""
    token, holder = one_token("ada")
    assert holder(token) == "ada" and one_token("ada")[0] != token
    assert [holder(other) for other in ("", token[:-1], token + "x", "\udcff", "ü")] == [""] * 5


def test_a_query_of_broken_bytes_is_answered(lake: Planted) -> None:
    """Bytes that are no UTF-8, in an address that others can make the browser open."""
    app = make_app(lake.explorer(), frozenset(LOCAL_HOSTS), lambda token: "ada" if token == TOKEN else "")
    found: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        found.append(message)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    import asyncio

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": f"token={TOKEN}&q=".encode() + b"\xff",
        "headers": [(b"host", b"localhost")],
    }
    asyncio.run(app(scope, receive, send))
    assert found[0]["status"] == 303
