"""Pages in Chromium: keys, hostile documents, what needs script, accessibility in both themes and two sizes."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace_features.models.vectors import vectors
from spark_jobs.lake.declare.step import renamed
from tests.headrace_features.explore.planted import TOKEN, KeptLake, Planted, drawn, plant

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None, reason="Chromium or Playwright is not there"
)
NIGHTLY = pytest.mark.nightly
ROWS = drawn(120, seed=4)
HOSTILE = "e" * 32
PEOPLE = {TOKEN: "ada", "another-token": "bea"}
TEXT = (
    '</mark><script>document.title = "run"</script><img src=x onerror="document.title = 1">\n\u202eevil\n' + "x" * 9000
)


@contextlib.contextmanager
def served(lake: Planted) -> Iterator[str]:
    """A server of a lake, in a thread."""
    import uvicorn

    from dagster_project.pages_guard import LOCAL_HOSTS
    from headrace_features.explore.app import make_app

    lake.index()
    app = make_app(lake.explorer(), frozenset(LOCAL_HOSTS), lambda token: PEOPLE.get(token, ""))
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of a dataset of chance, with a hostile document."""
    rows = [*ROWS, {"doc_id": HOSTILE, "path": "<b>bad</b>.txt", "content": TEXT}]
    with served(KeptLake(tmp_path_factory.mktemp("lake"), lambda lake: lake.add("notes", rows)).again()) as there:
        yield there


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def page_of(browser: Any, address: str, token: str = TOKEN, **options: Any) -> Any:
    """A page that is signed in; errors of scripts and refusals of the policy fail the test."""
    page = browser.new_context(**options).new_page()
    page.wrong = []
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("console", lambda said: page.wrong.append(f"{said.text} {said.location}") if said.type == "error" else None)
    page.goto(f"{address}/?token={token}")
    assert page.url == f"{address}/"
    return page


def test_a_reader_moves_by_keys(browser: Any, address: str) -> None:
    """Rows, pages, the field, the lake, the list of keys; counts come later, and a bar of them filters."""
    page = page_of(browser, address)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/datasets/notes/documents")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.locator("tr.at").count() == 1
    first = page.locator("tbody a").first.inner_text()
    page.keyboard.press("n")
    page.wait_for_url("**after=**")
    assert page.locator("tbody a").first.inner_text() != first
    page.keyboard.press("/")
    page.keyboard.type("text 7")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=text**")
    assert page.locator("mark.hit").count() >= 1
    page.locator("aside a").first.wait_for()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.wait_for_url(f"{address}/")
    assert page.wrong == []


@pytest.mark.nightly
def test_a_reader_curates_on_a_phone(browser: Any, address: str) -> None:
    """A search, its documents one after the other, the list with counts behind a button; nothing is cut."""
    page = page_of(browser, address, viewport={"width": 400, "height": 800})

    def whole() -> bool:
        return bool(
            page.evaluate(
                "document.documentElement.scrollWidth <= innerWidth"
                " && [...document.querySelectorAll('.scroll')].every((box) => box.scrollWidth <= box.clientWidth)"
            )
        )

    page.keyboard.press("/")
    page.keyboard.type("text words")
    page.keyboard.press("Enter")
    page.get_by_text("120 documents").wait_for()
    assert whole() and page.locator("mark.hit").count() >= 20 and not page.locator("#side").is_visible()
    page.locator("[data-row] a").first.click()
    page.wait_for_url("**/documents/*?**")  # and its script, which listens to keys
    first = page.locator("h1").inner_text()
    press(page, ".")
    assert page.locator("h1").inner_text() != first and whole()
    press(page, ",")
    assert page.locator("h1").inner_text() == first
    page.goto(f"{address}/datasets/notes/documents?sort=word_count")
    assert whole() and page.locator("[data-name='verdict']").count() >= 40
    assert not page.locator("#side").is_visible()
    page.get_by_role("button", name="counts and filters").click()
    page.locator("#late .axes .up").first.wait_for()
    assert page.locator("#side").is_visible() and whole()
    page.locator("#side .facet a", has_text="code").first.click()
    page.wait_for_url("**kind=code**")
    page.goto(f"{address}/datasets/notes")
    page.locator("#late").wait_for()
    assert whole() and page.wrong == []


@NIGHTLY
def test_documents_are_ticked_by_keys_and_taken_along(browser: Any, lake_env: Path, tmp_path: Path) -> None:
    """One by `x`, all of a page by one box; keys go on after a file came; a rectangle of the map is a list."""
    lake = plant(tmp_path)
    lake.add("notes", judged(60))
    draw, encoder = random.Random(2), {"encoder": "0" * 64, "reason": None, "shard": 0, "kind": "prose"}
    vectors_of = [bytes(draw.randrange(256) for _ in range(16)) for _ in range(60)]
    named = [{"doc_id": row["doc_id"], "vector": vector} for row, vector in zip(judged(60), vectors_of, strict=True)]
    lake.write("notes", renamed(vectors, "vectors_mini").table, 0, [{**encoder, **row} for row in named])
    with served(lake) as address:
        page = page_of(browser, address)
        page.goto(f"{address}/datasets/notes/documents")
        ticked = page.locator('[name^="doc."]:checked')
        page.keyboard.press("j")
        page.keyboard.press("x")
        assert ticked.count() == 1
        page.check("[data-ticks]")
        assert ticked.count() == 50
        with page.expect_download() as kept:
            page.click("text=export")
        assert kept.value.suggested_filename.endswith(".zip")
        page.keyboard.press("x")
        assert ticked.count() == 49
        page.fill("[name=tag]", "seen")
        page.click("button[value=tag]")
        page.locator("a.chip", has_text="seen 49").wait_for()
        page.goto(f"{address}/datasets/notes/map")
        box = page.locator("svg.map").bounding_box()
        page.mouse.move(box["x"] + 1, box["y"] + 1)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] - 1, box["y"] + box["height"] / 2, steps=4)
        page.mouse.up()
        page.wait_for_url("**map=vectors_mini**")
        assert 0 < page.locator("tr[data-row]").count() < 50
        assert page.wrong == []


@NIGHTLY
def test_a_hostile_document_does_nothing(browser: Any, address: str) -> None:
    """Its script does not run, its image is not asked for, its path is text, its long line wraps."""
    page = page_of(browser, address, viewport={"width": 400, "height": 800})
    for path in (
        f"/documents/{HOSTILE}?q=evil",
        "/datasets/notes/documents?path=bad",
        "/find?q=%3Cb%3Ebad%3C/b%3E.txt",
    ):
        page.goto(address + path)
        assert page.title() != "run" and page.locator("main img, main script, main b b").count() == 0
        assert "<b>bad</b>" in page.inner_text("main")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), path
    assert page.wrong == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scheme", "width"),
    [("light", 1280), ("dark", 400), *(pytest.param(*one, marks=NIGHTLY) for one in (("light", 400), ("dark", 1280)))],
)
def test_pages_are_accessible(browser: Any, address: str, scheme: str, width: int) -> None:
    """By axe-core's rules, contrast among them, in both themes, wide and on a phone."""
    axe = importlib.util.find_spec("axe_core_python")
    if axe is None or axe.origin is None:
        pytest.skip("axe-core-python is not there")
    script = Path(axe.origin).with_name("axe.min.js").read_text()
    page = page_of(browser, address, color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    for path in (
        "/",
        "/datasets/notes/documents?sort=word_count&path=11",
        "/datasets/notes/documents?rule=too_long&sort=distance&q=text&path=1",
        "/datasets/notes/facets",
        "/datasets/notes",
        "/datasets/notes/refused",
        "/find?q=text",
        f"/documents/{ROWS[1]['doc_id']}?q=text",
        f"/documents/{HOSTILE}?q=evil",
        "/sql?q=SELECT%20kind%2C%20count(*)%20FROM%20notes.documents%20GROUP%20BY%20ALL",
        "/datasets/notes/tags",
        "/nothing",
    ):
        page.goto(address + path)
        page.locator("[data-toggle]:visible").evaluate_all("buttons => buttons.forEach((button) => button.click())")
        if page.locator("[data-late]").count():
            page.locator("#late").wait_for(state="attached")
        if page.locator("button.narrow:visible").count():  # counts and filters stand behind a button
            page.locator("button.narrow").click()
        page.evaluate("document.querySelectorAll('.chart').forEach((one, at) => at < 2 || one.remove())")  # all alike
        page.evaluate(script)
        found = page.evaluate("axe.run()")["violations"]
        assert [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in found] == [], path


@NIGHTLY
def test_pages_work_without_script(browser: Any, address: str) -> None:
    """Lists, counts by their link, searches."""
    page = page_of(browser, address, java_script_enabled=False)
    page.goto(f"{address}/datasets/notes/documents")
    page.get_by_text("counts and histograms").click()
    assert page.locator(".histogram").count() >= 1
    page.locator(".facet a").first.click()
    assert page.locator("tbody tr").count() >= 1


def judged(count: int) -> list[dict[str, Any]]:
    """Documents that failed one rule, one farther from its threshold than the other."""
    return [
        {
            "doc_id": f"{number:032x}",
            "path": f"{number}.txt",
            "content": f"text {number}",
            "scores": {"word_count": number},
            "failed": [{"rule": "too_short", "value": float(number), "threshold": 1000.0}],
        }
        for number in range(count)
    ]


def press(page: Any, key: str) -> None:
    """A key that leads to another page."""
    with page.expect_navigation():
        page.keyboard.press(key)


QUEUE = "/datasets/notes/review?rule=too_short&sort=distance"


def recorded(lake: Planted) -> list[tuple[str, int, str]]:
    """Who decided what of which document, in the order of time."""
    rows = lake.catalogue.load_table("notes.reviews").scan().to_arrow().sort_by("reviewed_at").to_pylist()
    return [(row["person"], int(row["doc_id"], 16), row["decision"]) for row in rows]


@NIGHTLY
def test_two_people_review_at_once(browser: Any, lake_env: Path, tmp_path: Path) -> None:
    """One queue, two browsers: neither sees the other's decisions or figures, each takes back only their own."""
    lake = plant(tmp_path)
    lake.add("notes", judged(3))
    with served(lake) as address:
        ada, bea = (page_of(browser, address, token) for token in PEOPLE)
        for page in (ada, bea):
            page.goto(address + QUEUE)
            assert page.locator("h1").inner_text() == "2.txt"
        ada.keyboard.press("r")
        ada.keyboard.press("w")  # in haste, before the next document is there: it is no decision on either
        ada.get_by_role("link", name="1.txt").wait_for()
        bea.reload()
        assert "0 of 3 decided by bea" in bea.inner_text(".decide") and "nothing decided" in bea.inner_text(".decide")
        press(bea, "w")
        press(bea, "u")
        assert "2 of 3 decided by bea" in bea.inner_text(".decide") and "0.00 (0.00 to 0.79)" in bea.inner_text(
            ".decide"
        )
        press(ada, "r")
        assert "2 of 3 decided by ada" in ada.inner_text(".decide") and "1.00 (0.34 to 1.00)" in ada.inner_text(
            ".decide"
        )
        press(ada, "z")
        assert "1 of 3 decided by ada" in ada.inner_text(".decide") and ada.locator("h1").inner_text() == "1.txt"
        bea.reload()
        assert "2 of 3 decided by bea" in bea.inner_text(".decide") and "ada" not in bea.inner_text("main")
        press(ada, "w")
        for page in (ada, bea):
            press(page, "r")
        assert "You disagree on" in bea.inner_text("main") and "ada" in bea.inner_text("main")
        assert ada.wrong == bea.wrong == []
    ours = recorded(lake)
    assert [one[1:] for one in ours if one[0] == "ada"] == [
        (2, "right"), (1, "right"), (1, "undone"), (1, "wrong"), (0, "right"),
    ]  # fmt: skip
    assert [one[1:] for one in ours if one[0] == "bea"] == [(2, "wrong"), (1, "unsure"), (0, "right")]


@pytest.mark.nightly
def test_two_hundred_decisions_by_keys(browser: Any, lake_env: Path, tmp_path: Path) -> None:
    """Each is there once, with its document, some taken back and decided anew; nobody touches a mouse."""
    lake = plant(tmp_path)
    lake.add("notes", judged(200))
    expected = []
    with served(lake) as address:
        page = page_of(browser, address)
        page.goto(address + QUEUE)
        for number in reversed(range(200)):
            assert page.locator("h1").inner_text() == f"{number}.txt"
            key, said = ("r", "right") if number % 3 else ("w", "wrong")
            press(page, key)
            expected.append(("ada", number, said))
            if number % 20 == 10:
                press(page, "z")
                press(page, "u")
                expected += [("ada", number, "undone"), ("ada", number, "unsure")]
        assert "200 of 200 decided by ada" in page.inner_text(".decide") and page.wrong == []
    assert recorded(lake) == expected
