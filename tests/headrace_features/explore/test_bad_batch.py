"""The tutorial about a bad batch, walked in Chromium as its page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.headrace_features.explore.test_browser import browser, pytestmark  # noqa: F401
from tests.test_readme import Checkout
from tests.test_tutorials import type_commands

PAGE = Path(__file__).parents[3] / "docs" / "tutorials" / "bad-batch.md"


@pytest.mark.nightly
def test_from_the_loss_to_the_rule(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    """Training, batch, window, document, rule, the saved policy as the page shows it, a run by it, what went."""
    checkout = Checkout(tmp_path)
    before, after = PAGE.read_text().split("## From the loss to the document")
    type_commands(before, checkout.root, checkout.environment)
    command = [sys.executable, "-m", "dagster_project.cli", "explore", "--port", "0"]
    with subprocess.Popen(
        command, cwd=checkout.root, env=checkout.environment, stdout=subprocess.PIPE, text=True
    ) as explorer:
        assert explorer.stdout is not None
        try:
            address = next(found for line in explorer.stdout if (found := re.search(r"http\S+", line))).group()
            page = browser.new_page()
            page.goto(address)
            walk_to_the_rule(page)
            saved = (checkout.root / "dagster_project/defs/reports/reports_2.yaml").read_text()
            said = saved.partition("\n")[2]  # below the line with the date
            assert f'reports_2.yaml"\n{said}```' in after
            type_commands(after, checkout.root, checkout.environment)
            page.goto(address.partition("?")[0] + "datasets/reports/rules")
            page.get_by_role("link", name="documents that were rejected").click()
            page.wait_for_url("**/documents?verdict=rejected")
            assert page.locator("tbody tr[data-row]").count() == 5
            page.go_back()
            page.get_by_role("link", name="compare with another policy").click()
            page.get_by_label("second").fill("headrace@1")
            page.get_by_role("button", name="compare").click()
            page.get_by_text("kept by headrace@1 alone").first.wait_for()
            assert page.get_by_role("row", name="headrace@1 alone").inner_text().split()[2] == "5"
        finally:
            explorer.terminate()


def walk_to_the_rule(page: Any) -> None:
    """From the lake to a policy that is saved, by links alone."""
    page.get_by_role("link", name="training runs").click()
    page.get_by_role("link", name="river-1").click()
    page.get_by_role("heading", name="Largest rises").wait_for()
    page.get_by_role("link", name="row ").first.click()
    assert page.get_by_role("link", name="river-1").count() == 1
    strange = page.locator("section.batch").filter(has_text=re.compile(r"(\b[A-Za-z0-9+/]{6} ){8}"))
    strange.locator("h2 a").click()
    page.get_by_text("river-mix at ").wait_for()
    page.locator(".segment", has_text=re.compile("[A-Z]{2}")).first.locator(".bound").click()
    page.get_by_text("no rule failed").wait_for()
    first = page.locator(".values li").first
    assert first.inner_text().startswith("too_many_digits 0.1") and "fails above 0.3" in first.inner_text()
    path = page.locator("h1").inner_text()
    first.locator("a").click()
    page.locator("section[aria-label='they pass'] li").first.wait_for()
    assert path in page.locator("section[aria-label='they pass'] li").first.inner_text()
    page.get_by_label("threshold").last.fill("0.1")
    page.get_by_text("5 of 400 documents fail it at 0.1").wait_for()
    page.get_by_role("button", name="write the YAML file").click()
    page.get_by_role("link", name="what it would change").click()
    page.get_by_text("kept by headrace@1 alone").first.wait_for()
