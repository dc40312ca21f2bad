"""Lists of opt-outs as they are published: every good row is entered, every bad one is told with its line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from headrace_features.rights import command
from headrace_features.rights.register import lists, read_command
from headrace_features.rights.register.register import Entry, author_hash, entries, register_salt
from tests.blender_service.packed_tables import open_lake

Reads = Callable[..., tuple[Result, list[Entry]]]


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """An empty lake."""
    return open_lake(tmp_path / "lake")


@pytest.fixture
def read(catalogue: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Run `rights read` on a file of some bytes; what it says, and the entries."""
    monkeypatch.setattr(read_command, "lake_catalogue", lambda make: catalogue)

    def run(name: str, data: bytes, *options: str) -> tuple[Result, list[Entry]]:
        (tmp_path / name).write_bytes(data)
        shown = CliRunner().invoke(command.rights, ["read", str(tmp_path / name), *options])
        return shown, entries(catalogue)

    return run


def named(found: list[Entry]) -> set[tuple[str, str]]:
    """Kind and value of each entry that is no author's."""
    return {(entry.opt_out.kind, entry.opt_out.values[0]) for entry in found if entry.opt_out.kind != "author"}


REQUESTS = [
    {"issue": 1, "author": "ann", "optout_repos": [], "optout_owners": ["ann"]},
    {"issue": 3, "author": "bob", "optout_repos": ["bob/one", "org-x/two"], "optout_owners": []},
    {"issue": 80, "author": "eve", "optout_repos": ["eve/x"], "optout_owners": ["OpenCard", "lf-"]},
]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_bigcodes_list_is_read_as_it_is_published(read: Reads, catalogue: Catalog, ends: str) -> None:
    """Owners are all of their repositories and an author's name; the request names list and SHA-256."""
    lines = [json.dumps(record) for record in REQUESTS]
    lines[1:1] = [
        "{broken",
        '{"issue": 2}',
        "",
        '{"issue": 9, "author": "x", "optout_repos": [], "optout_owners": []}',
        "7",
    ]
    data = ends.join(lines).encode()
    shown, found = read("optouts.jsonl", data)
    assert shown.exit_code == 0, shown.output
    repositories = ("ann/*", "bob/one", "org-x/two", "eve/x", "OpenCard/*", "lf-/*")
    assert named(found) == {("repository", name) for name in repositories}
    authors = [entry.opt_out for entry in found if entry.opt_out.kind == "author"]
    salt = register_salt(catalogue)
    assert [author.values for author in authors] == [
        (author_hash(salt, "ann"),), tuple(sorted(author_hash(salt, name) for name in ("OpenCard", "lf-"))),
    ]  # fmt: skip
    assert {entry.opt_out.request for entry in found} == {f"optouts.jsonl sha256:{hashlib.sha256(data).hexdigest()}"}
    assert [entry.opt_out.asker for entry in found if entry.opt_out.values == ("bob/one",)] == ["bob"]
    assert {entry.opt_out.evidence for entry in found} == {"line 1: issue 1", "line 7: issue 3", "line 8: issue 80"}
    assert "4 values could not be entered" in shown.output
    for line in (2, 3, 5, 6):
        assert f"line {line}: " in shown.output
    again, same = read("optouts.jsonl", data)
    assert again.exit_code == 0 and "0 of them new" in again.output and len(same) == len(found)


def test_issues_of_bigcode_name_repositories_and_accounts(read: Reads) -> None:
    """As GitHub's API gives them: items of lists; `all` is of the account in the title, or who writes."""
    note = '\n\n_Note_: To exclude everything under your username, replace the list with a single "all" entry.'
    issues = [
        {"number": 1, "title": "Opt-out request for Proj-2", "user": {"login": "mia"}, "body": " - all" + note},
        {"number": 2, "title": "Opt-out request for all", "user": {"login": "big"}, "body": "\r\n - all\r\n" + note},
        {"number": 3, "title": "Remove", "user": {"login": "gab"},
         "body": "- gab/a\n* https://github.com/gab/b.git\n- org1"},
        {"number": 4, "title": "Why?", "user": {"login": "who"}, "body": "Please remove my code"},
        {"number": 5, "title": "Nothing", "user": {"login": "who"}, "body": None},
    ]  # fmt: skip
    shown, found = read("issues.json", json.dumps(issues, indent=1).encode())
    assert named(found) == {("repository", name) for name in ("Proj-2/*", "big/*", "gab/a", "gab/b", "org1/*")}
    assert (
        shown.exit_code == 0
        and "2 values could not be entered" in shown.output
        and "issue 4 names no repository" in shown.output
    )


PUBLISHED = {
    "repo,reason\nann/x,no\nhttps://github.com/bob/y.git,no\nnot a repo,no\n": {"ann/x", "bob/y"},
    "Username\n@ann\nbob\nAnn Lee\n": {"ann/*", "bob/*"},
    "url\nhttps://Example.org/blog/\nexample.net\nftp://x/y\n": {"https://example.org/blog/", "example.net"},
    "domain\nWWW.Example.org\nhttps://example.net\nhttps://e.org/a\n-\t-\n": {
        "www.example.org", "example.net", "https://e.org/a",
    },
    'Publisher/Requester,Date of notice,List of domains/URLs\nThe Paper,2026-09-01,"a.example, b.example\nhttps://c.example/x"\n'
    "Other,2026,d.example e_e.example/\nNobody,2026,\n": {
        "a.example", "b.example", "https://c.example/x", "d.example", "e_e.example",
    },
    "kind,value,asker,scope,since,evidence,aliases\ndomain,e.org,Ann,training,2026-01-02,ticket 7\nplanet,mars,Ann\n": {
        "e.org",
    },
    "dataset,notes,Ann\nrecord,abc\npath,docs/*\nsha256,zz\n": {"notes", "abc", "docs/*"},
    "# comment\nann/x\nhttps://github.com/bob\nexample.org\nhttps://example.org/p?q=1\n???\n": {
        "ann/x", "bob/*", "example.org", "https://example.org/p?q=1",
    },
    "domain;note\ne.org;\"a forgotten quote\nf.org;b\n;c\n": {"e.org", "f.org"},
    "repo\tstars\nann/x\t5\nbad\tlot/of\tcells\n<>\t1\n": {"ann/x"},
}  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("text", PUBLISHED, ids=lambda text: text.partition("\n")[0][:30])
def test_tables_are_read_with_the_names_that_lists_use(text: str, ends: str, encoding: str) -> None:
    """Whatever ends lines and delimits cells; a bad row has its line, and the good ones are read."""
    rows = list(lists.read_csv(text.replace("\n", ends).encode(encoding)))
    read = [(row.line, *part) for row in rows for part in row.opt_outs()]
    values = {canonical(kind, value[0]) for _, kind, value, fault in read if not fault and kind != "author"}
    assert {value for value in values if value} == PUBLISHED[text]
    assert any(fault for _, _, _, fault in read) or None in values or "Date" in text or "#" in text or "forgot" in text


def canonical(kind: str, value: str) -> str | None:
    """The stored form; None for what is refused."""
    from headrace_features.rights.register.subjects import canonical as stored
    from spark_jobs.exceptions import InputError

    try:
        return stored(kind, value)  # type: ignore[arg-type]
    except InputError:
        return None


def test_a_row_names_asker_scope_day_and_aliases(read: Reads, catalogue: Catalog) -> None:
    """All names of a row are one author; what a row leaves out is of the command."""
    text = """name,email,aliases,scope,since,domain,asker
Ann Lee,ann@example.org,A. Lee;ALee,training,2026-01-02,ann.example,Ann Lee
Bob,,,,,,
,,,sometimes,,c.example,
,,,,soon,d.example,
,,,,,"bad host, e.example",
"""
    shown, found = read("people.csv", text.encode(), "--asker", "a law firm", "--scope", "all", "--request", "letter 7")
    assert shown.exit_code == 0 and "4 values could not be entered" in shown.output
    assert named(found) == {("domain", "ann.example"), ("domain", "e.example")}
    ann, bob = (entry.opt_out for entry in found if entry.opt_out.kind == "author")
    salt = register_salt(catalogue)
    assert set(ann.values) == {author_hash(salt, name) for name in ("Ann Lee", "ann@example.org", "A. Lee", "alee")}
    assert ann.scope == "training" and f"{ann.since:%Y-%m-%d}" == "2026-01-02" and ann.asker.startswith("author ")
    assert (bob.asker, bob.scope, bob.since, bob.evidence) == ("a law firm", "all", None, "line 3")
    assert bob.request.startswith("letter 7 sha256:")
    for line, word in ((4, "sometimes"), (5, "soon")):
        assert f"line {line}: " in shown.output and word in shown.output


SITE_FILES = [
    ("robots.txt", "User-agent: GPTBot\nDisallow: /a/\nDisallow: /b/*\nDisallow: /*.pdf$\nAllow: /a/open\n"
     "Content-Signal: ai-train=no\n", {("/a/", "all"), ("/b/", "all"), ("/", "training")}, ["line 4", "line 5"]),
    ("rsl.xml", '<rsl xmlns="https://rslstandard.org/rsl"><content url="/n/"><license><prohibits type="usage">all'
     '</prohibits></license></content><content url="https://other.example/x"><license><permits type="usage">search'
     '</permits></license></content><content url="/*.pdf"><license><prohibits type="usage">all</prohibits></license>'
     "</content></rsl>", {("/n/", "training"), ("https://other.example/x", "training")}, ["*.pdf"]),
    ("tdmrep.json", '[{"location": "/a", "tdm-reservation": 0}, {"location": "/", "tdm-reservation": 1}]',
     {("/", "training")}, ["exception"]),
    ("robots.txt", "User-agent: *\nDisallow: /\nAllow: /\nDisallow: /a\n", {("/a", "all")}, ["0 values"]),
    ("tdmrep.json", '[{"location": "/", "tdm-reservation": 0}, {"location": "/a", "tdm-reservation": 1}, '
     '{"location": "/b", "tdm-reservation": 1}]', set(), ["no row"]),
    ("ai.txt", "User-Agent: *\nDisallow: *.jpg\nDisallow: /\n", {("/", "training")}, ["line 2"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "wanted", "told"), SITE_FILES, ids=[file[0] for file in SITE_FILES])
def test_files_of_sites_are_entered_as_addresses(
    read: Reads, name: str, text: str, wanted: set[tuple[str, str]], told: list[str]
) -> None:
    """What no prefix can hold is told; without the site they are refused."""
    refused, found = read(name, text.encode())
    assert refused.exit_code != 0 and "--site" in str(refused.exception or refused.output) and not found
    shown, found = read(name, text.encode(), "--site", "https://Example.org/a/b?c", "--agent", "GPTBot")
    assert shown.exit_code == (0 if wanted else 1), shown.output
    urls = {(entry.opt_out.values[0], entry.opt_out.scope) for entry in found}
    assert urls == {(f"https://example.org{url}" if url[0] == "/" else url, scope) for url, scope in wanted}
    assert all(word in f"{shown.output}{shown.exception}" for word in told)
    assert {entry.opt_out.kind for entry in found} <= {"url_prefix"}


@pytest.mark.parametrize("text", ["", "colour\nred\n\n???", "[]", "{}", "\0\0"])
def test_a_list_without_an_opt_out_ends_with_status_1(read: Reads, text: str) -> None:
    """It says as what it was read."""
    shown, found = read("list.txt", text.encode())
    assert shown.exit_code == 1 and not found and "--format" in str(shown.exception)


def test_thousands_of_rows_are_one_append(read: Reads, catalogue: Catalog) -> None:
    """Each author is hashed with a salt that is read once."""
    rows = [{"issue": at, "author": f"u{at}", "optout_repos": [], "optout_owners": [f"u{at}"]} for at in range(3_000)]
    shown, found = read("optouts.jsonl", "\n".join(map(json.dumps, rows)).encode())
    assert shown.exit_code == 0 and len(found) == 6_000
    assert len(catalogue.load_table("system.opt_outs").snapshots()) == 1


@given(st.binary(max_size=300) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")), st.text())
def test_any_bytes_are_rows_or_faults(data: bytes, name: str) -> None:
    """Never another error than that of a refused input."""
    assert lists.detect(name, data)
    for rows in (lists.read_csv(data), lists.read_bigcode(data), lists.read_site("robots", data, "https://e.org", "x")):
        for row in rows:
            assert row.line >= 0 and list(row.opt_outs())


def test_letters_that_no_table_holds_stop_no_list(read: Reads) -> None:
    """Half of a surrogate pair is valid in JSON, and in no UTF-8."""
    rows = [
        {"issue": "\ud800", "author": "a\ud800b", "optout_repos": ["x\ud800/y", "ann/x"], "optout_owners": ["\ud800"]}
    ]
    shown, found = read("optouts.jsonl", json.dumps(rows[0]).encode())
    assert shown.exit_code == 0 and named(found) == {("repository", "ann/x")} and found[0].opt_out.asker == "a b"


def test_a_plain_list_is_read_where_its_format_is_named(read: Reads) -> None:
    """A line is an account or a repository; without the name of the format a bare word is nothing."""
    text = b"ann\n@bob\nann/tools\nhttps://github.com/eve/x.git\ntwo words\n"
    shown, found = read("names.txt", text, "--format", "bigcode")
    assert named(found) == {("repository", name) for name in ("ann/*", "bob/*", "ann/tools", "eve/x")}
    assert shown.exit_code == 0 and "line 5: " in shown.output
    guessed, _ = read("names.txt", text)
    assert "line 1: domain 'ann'" in guessed.output
