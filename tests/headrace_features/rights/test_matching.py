"""Opt-outs are found by look-ups, and the look-ups find what a comparison of all entries finds."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_features.rights.hits.matching import Matcher
from headrace_features.rights.register.register import Entry, Kind, OptOut, author_hash
from headrace_features.rights.register.subjects import canonical

NOW = datetime(2026, 9, 1, tzinfo=UTC)
HOSTS = st.lists(st.sampled_from(["a", "b", "www"]), min_size=1, max_size=3).map(
    lambda labels: ".".join([*labels, "org"])
)
PATHS = st.lists(st.sampled_from(["x", "xy", "z"]), max_size=3).map("/".join)
URLS = st.builds(
    lambda scheme, host, path: f"{scheme}://{host}/{path}", st.sampled_from(["http", "https"]), HOSTS, PATHS
)


def entry(kind: Kind, *values: str, decision: str | None = None, since: datetime | None = None) -> Entry:
    """An entry of the register about some values."""
    opt_out = OptOut("list", kind, values, since=since)
    return Entry(opt_out, opt_out.entry, 0, NOW, decision)


def matcher(*entries: Entry) -> Matcher:
    """What an executor has of entries."""
    copy: Matcher = pickle.loads(pickle.dumps(Matcher.of(entries, "salt", NOW)))
    return copy


@given(st.lists(HOSTS, max_size=5), st.lists(URLS, max_size=5), URLS)
def test_a_url_has_the_entries_that_a_comparison_with_all_has(
    domains: list[str], prefixes: list[str], url: str
) -> None:
    """A domain has all hosts below it, a prefix what begins with it, and http and https are the same page."""
    asked = [entry("domain", domain) for domain in domains] + [entry("url_prefix", prefix) for prefix in prefixes]
    host, plain = str(urlsplit(url).hostname), f"{_bare(url).rstrip('/')}/"
    below = {at.entry for at in asked if f".{host}".endswith(f".{at.opt_out.values[0]}")}
    below |= {at.entry for at in asked if at.opt_out.values[0] == f"www.{host}"}
    begun = {at.entry for at in asked if plain.startswith(_bare(at.opt_out.values[0]))}
    domain = {at.entry for at in asked if at.opt_out.kind == "domain"}
    chosen, wanted = matcher(*asked), (below & domain) | (begun - domain)
    assert {*chosen.hits("domain", url), *chosen.hits("url_prefix", url)} == wanted
    assert set(chosen.naming("d", {"location": url})) == wanted and set(chosen.host(host)) <= wanted


def _bare(url: str) -> str:
    return url.partition("://")[2].removeprefix("www.")


@given(st.text("aé~/ü%(", max_size=6), st.data())
def test_a_prefix_has_its_page_however_its_address_is_written(path: str, data: st.DataObject) -> None:
    """Characters that %xx may stand for, `www.`, a default port, another scheme and a slash that was left out."""
    path = path.replace("%", "%25").strip("/") or "x"
    asked = entry("url_prefix", canonical("url_prefix", f"https://ann.org/{path}/"))
    written = "".join(
        quote(sign, safe="") if sign not in "/%" and data.draw(st.booleans()) else sign for sign in path
    ).replace("%c3", "%C3")
    start = data.draw(st.sampled_from(["http://", "https://www.", "HTTPS://WWW.", "https://user@"]))
    end = data.draw(st.sampled_from(["", "/", "/#top", "/below?x=1"]))
    assert matcher(asked).hits("url_prefix", f"{start}ann.org/{written}{end}") == (asked.entry,)


@pytest.mark.parametrize(
    "text",
    [
        '["Bob Ray", "Ann Lee"]', "['Ann Lee', 'Bob Ray']", "Ray, Bob and Lee, Ann", "Lee, Ann and Ray, Bob",
        '["Lee, Ann", "Ray, Bob"]', "['ann@example.org']", "Mail of ann@example.org.",
    ],
)  # fmt: skip
def test_an_author_in_a_list_that_became_text_is_an_author(text: str) -> None:
    """As JSONL has lists of authors, and bibliographies several families first."""
    asked = entry("author", *(author_hash("salt", name) for name in ("Ann Lee", "ann@example.org")))
    assert matcher(asked).hits("author", text) == (asked.entry,)


@pytest.mark.parametrize(
    "url",
    ["https://github.com/Ann/Tools", "http://gitlab.com/ann/tools.git", "https://github.com/ann/tools/tree/main/x?y"],
)
def test_a_repository_may_be_named_by_its_address(url: str) -> None:
    """An entry that names no document of any lake would be taken for one that hits nothing."""
    asked = entry("repository", canonical("repository", url))
    assert matcher(asked).hits("repository", "ann/tools") == (asked.entry,)


@given(st.lists(PATHS.filter(bool), max_size=5), PATHS.filter(bool), st.booleans())
def test_a_path_has_the_entries_of_its_folders_and_of_its_file(paths: list[str], path: str, record: bool) -> None:
    """`x/*` has all below x and not x."""
    asked = [entry("path", value + end) for value in paths for end in ("", "/*")]
    below = {at.entry for at in asked if path.startswith(at.opt_out.values[0].removesuffix("*"))}
    folders = {at.entry for at in asked if at.opt_out.values[0].endswith("/*")}
    wanted = (below & folders) | {at.entry for at in asked if at.opt_out.values[0] == path}
    assert set(matcher(*asked).hits("path", f"{path}#7" if record else path)) == wanted


def test_names_of_repositories_have_no_case_and_owners_have_all_of_theirs() -> None:
    """As forges see them; an owner is not the beginning of another."""
    whole, one = entry("repository", "Ann/*"), entry("repository", "bob/Tools.git")
    chosen = matcher(whole, one)
    assert chosen.hits("repository", "ann/a") == (whole.entry,)
    assert chosen.hits("repository", "BOB/tools") == (one.entry,)
    assert not chosen.hits("repository", "anna/a") and not chosen.hits("repository", "bob/tools2")


@pytest.mark.parametrize(
    "text",
    [
        "Ann Miller", "ANN  miller <x@y.org>", "Bob <b@z.org>, Ann Miller <q@y.org>", "Miller, Ann",
        "Bob Lee; Miller, Ann", "Bob and Ann Miller", "x <ann@example.org>", "ann@EXAMPLE.org",
    ],
)  # fmt: skip
def test_an_author_is_met_under_every_alias_and_among_others(text: str) -> None:
    """However a file writes its authors; who only shares a part of the name is somebody else."""
    asked = entry("author", author_hash("salt", "ann miller"), author_hash("salt", "Ann@example.org"))
    chosen = matcher(asked)
    assert chosen.hits("author", text) == (asked.entry,)
    assert not chosen.hits("author", "Ann Millers") and not chosen.hits("author", "Joann Miller <bob@example.org>")


def test_what_does_not_hold_or_not_yet_names_nothing() -> None:
    """Refused, withdrawn, and from later on."""
    asked = [
        entry("sha256", "AB" * 32, decision="refused"), entry("dataset", "notes", decision="withdrawn"),
        entry("record", "a#1", since=NOW + timedelta(seconds=1)),
        entry("record", "a#2", since=NOW, decision="accepted"),
    ]  # fmt: skip
    chosen = matcher(*asked)
    assert chosen.kinds() == {"record"} and not chosen.hits("sha256", "ab" * 32)
    facts = {"doc_id": "f" * 32, "content_sha256": "ab" * 32}
    assert not list(chosen.naming("notes", facts | {"path": "a#1"}))
    assert list(chosen.naming("notes", facts | {"path": "a#2"})) == [asked[3].entry]


@pytest.mark.parametrize(
    "url", ["", "file:///a", "http://", "dns:a.org", "s3://a.org/x", "http://[::1", "https://exa mple.a.org/x"]
)
def test_odd_addresses_raise_nothing(url: str) -> None:
    """And one whose host cannot be read is compared by its labels."""
    asked = entry("domain", "a.org")
    chosen, named = matcher(asked), [asked.entry] if "exa mple" in url else []
    assert [*chosen.hits("domain", url), *chosen.hits("url_prefix", url)] == named
    assert list(chosen.naming("d", {"path": url})) == named
