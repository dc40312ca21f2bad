"""robots.txt: by the RFC's letter, with line and group, both readings where they differ, any bytes have an answer."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_features.rights.signals.robots import Pattern, Robots, path_of, read_robots
from tests.headrace_features.rights.robots_files import FILES, File

AGENTS = ("GPTBot", "CCBot", "AI2Bot", "img2dataset", "Kangaroo Bot", "Googlebot-News", "360Spider", "anthropic-ai")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_answers_are_those_of_the_rfc(file: File, ends: bytes) -> None:
    """Whatever the line ends, with and without a BOM; the line that decided is named."""
    lines = re.split(rb"\r\n|\r|\n", file.data.removeprefix(b"\xef\xbb\xbf"))
    for mark in (b"", b"\xef\xbb\xbf"):
        robots = read_robots(mark + (ends.join(lines) if len(file.data) < 100_000 else file.data))
        for agent, path, is_allowed, line in file.questions:
            for url in (path, f"https://example.org{path}", f"http://example.org:8080{path}#part"):
                answer = robots.page(agent, url)
                assert (answer.allowed, answer.line) == (is_allowed, line), (file.clause, agent, url, answer)


@pytest.mark.parametrize(
    "record", ["Crawl-delay: 10", "Content-Signal: ai-train=no", "Noindex: /a", "Request-rate: 1/5"]
)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_group_without_rules_is_told_in_both_readings(record: str, agent: str) -> None:
    """By the letter it is part of the next group; the stricter is the answer, for any agent and other record."""
    robots = read_robots(f"User-agent: *\n{record}\n\nUser-agent: {agent}\nDisallow: /\n".encode())
    answer = robots.page("SomeOther", "/a")
    assert answer.allowed is False and answer.line == 5 and answer.group == f"*, {agent}"
    letter, common = answer.stricter_of
    assert letter.allowed is False and common.allowed is True and common.group == "*"
    named = robots.page(agent, "/a")
    assert named.allowed is False and not named.stricter_of


@pytest.mark.parametrize("agent", AGENTS)
def test_names_are_compared_whole_and_without_versions(agent: str) -> None:
    """A name is neither a part of another nor found in one."""
    robots = read_robots(f"User-agent: {agent}/2.1 (+https://example.org)\nDisallow: /\n".encode())
    token = agent.partition(" ")[0]
    for name in (token, token.upper(), f"{token}/1.0", f" {token}"):
        assert robots.page(name, "/").allowed is False, name
    for name in (token[:-1], token[1:], f"{token}s", f"x{token}", f"{token}-News", ""):
        assert robots.page(name, "/").allowed is True, name


def test_content_signals_are_of_their_group_and_change_none() -> None:
    """The signal of all is not that of an agent with a group; no wins over yes; rules are as without the lines."""
    lines = [
        "Content-signal: ai-input=no", "User-agent: *", "Content-Signal: search=yes,ai-train=no", "Allow: /",
        "User-agent: GPTBot", "content-signal: AI-Train = YES ; search=no", "Content-Signal: ai-train=no",
        "Disallow: /p", "User-agent: CCBot", "Disallow: /q",
    ]  # fmt: skip
    robots = read_robots("\n".join(lines).encode())
    signals = {
        (agent, use): (answer.allowed, answer.line)
        for agent in ("Any", "GPTBot", "CCBot")
        for use in ("ai-train", "search", "ai-input")
        for answer in [robots.content_signal(agent, use)]
    }
    assert signals == {
        ("Any", "ai-train"): (False, 3), ("Any", "search"): (True, 3), ("Any", "ai-input"): (False, 1),
        ("GPTBot", "ai-train"): (False, 7), ("GPTBot", "search"): (False, 6), ("GPTBot", "ai-input"): (None, 0),
        ("CCBot", "ai-train"): (None, 0), ("CCBot", "search"): (None, 0), ("CCBot", "ai-input"): (None, 0),
    }  # fmt: skip
    without = read_robots("\n".join(line for line in lines if "ignal" not in line).encode())
    for agent in ("Any", "GPTBot", "CCBot"):
        assert [robots.page(agent, path).allowed for path in ("/", "/p", "/q")] == [
            without.page(agent, path).allowed for path in ("/", "/p", "/q")
        ]


def test_licences_are_named_and_a_long_file_is_cut_at_a_whole_line() -> None:
    """The half of a rule is no rule: `Disallow: /` of `Disallow: /x` would close a site."""
    robots = read_robots(b"License: https://example.org/a.xml\nUser-agent: *\nDisallow:\nlicense:/b.xml")
    assert robots.licences == ("https://example.org/a.xml", "/b.xml") and not robots.is_cut
    head = b"User-agent: *\nDisallow: /kept\n"
    rule = b"Disallow: /secret\n"
    long = head + b"\n" * (512 * 1024 - len(head) - len(b"Disallow: /")) + rule
    robots = read_robots(long)
    assert robots.is_cut and robots.page("A", "/kept").line == 2 and robots.page("A", "/").allowed is True


@given(st.binary(max_size=400), st.text(max_size=20), st.text(max_size=40))
def test_any_bytes_have_an_answer(data: bytes, agent: str, url: str) -> None:
    """Never an error, for any agent and address."""
    check(read_robots(data), agent, url)


LINE = st.tuples(
    st.sampled_from(
        ["User-agent", "user-agent ", "Disallow", "Allow", "Crawl-delay", "Content-Signal", "Sitemap", "x"]
    ),
    st.sampled_from(
        ["*", "GPTBot", "gptbot/1", "bot", "", "/", "/a", "/a*$", "*.pdf", "/%7e", "ai-train=no", "/b # c"]
    ),
)


@given(st.lists(LINE, max_size=12), st.sampled_from(["GPTBot", "bot", "x"]), st.sampled_from(["/", "/a", "/a/b.pdf"]))
def test_lines_of_any_order_have_the_stricter_answer(lines: list[tuple[str, str]], agent: str, url: str) -> None:
    """It forbids where either reading does, and names a line of the file that says so."""
    text = [f"{key}: {value}" for key, value in lines]
    robots = read_robots("\r\n".join(text).encode())
    check(robots, agent, url)
    answer = robots.page(agent, url)
    if answer.line:
        assert answer.text == text[answer.line - 1].strip()
        assert text[answer.line - 1].lower().startswith("allow" if answer.allowed else "disallow")
    if answer.stricter_of:
        assert answer.allowed is False and {one.allowed for one in answer.stricter_of} == {True, False}


def check(robots: Robots, agent: str, url: str) -> None:
    """It answers."""
    assert robots.page(agent, url).allowed in (True, False)
    assert robots.content_signal(agent).allowed in (True, False, None)


@given(st.text("ab*$/", max_size=8), st.text("ab/$*", max_size=10))
def test_patterns_match_as_an_expression_does(pattern: str, path: str) -> None:
    """`*` is anything, `$` at the end is the end, every other character is itself."""
    body = pattern.removesuffix("$")
    expression = "".join(".*" if character == "*" else re.escape(character) for character in body)
    wanted = re.match(f"(?s:{expression}{'$' if pattern.endswith('$') else ''})", f"/{path}")
    assert Pattern.of(f"{pattern}".encode()).matches(path_of(f"/{path}")) == bool(wanted)
