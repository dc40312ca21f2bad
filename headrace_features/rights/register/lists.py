"""Lists of opt-outs as they are published, read into rows: a bad one is told with its line, and stops no other.

csv        a table with a header (`repo`, `username`, `domain`, `url`, `email`, ..), or rows of `kind,value`
bigcode    optouts.jsonl of bigcode-project/opt-out-v2, or its issues as GitHub's API gives them
robots, rsl, tdmrep, ai_txt   a file of a site: what it forbids, as addresses of the site
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace_features.rights.register.register import KINDS
from headrace_features.rights.signals import Reservation, shown, utf_8
from headrace_features.rights.signals.ai_txt import read_ai_txt
from headrace_features.rights.signals.robots import Pattern, read_robots
from headrace_features.rights.signals.rsl import Rsl, read_rsl
from headrace_features.rights.signals.tdmrep import read_tdmrep
from spark_jobs.exceptions import InputError

# Columns of published lists. `owner` is all of an account's repositories and the author of that name.
COLUMNS: Final[Mapping[str, str]] = {
    name: meaning
    for meaning, names in {
        "kind": "kind type", "value": "value", "asker": "asker requester publisher publisher/requester requested_by",
        "scope": "scope", "since": "since", "evidence": "evidence reference ticket issue", "aliases": "aliases alias",
        "repository": "repository repo repo_name repository_name full_name repo_url",
        "owner": "owner username user user_name login account organization github github_username",
        "domain": "domain domains host hostname site website list_of_domains/urls", "path": "path file",
        "url_prefix": "url urls url_prefix address", "author": "author author_name author_email email e-mail name",
        "sha256": "sha256 hash content_sha256", "dataset": "dataset", "record": "record doc_id",
    }.items()
    for name in names.split()
}  # fmt: skip
_PLAIN: Final = ["kind", "value", "asker", "scope", "since", "evidence", "aliases"]
_FORGE = re.compile(r"^(?:https?://)?(?:www\.)?(?:github|gitlab|bitbucket|codeberg)\.(?:com|org)/", re.I)
_REPOSITORY = re.compile(r"[\w.-]+/(?:[\w.-]+|\*)(?:/.*)?\Z")
_ACCOUNT = re.compile(r"[A-Za-z0-9][\w-]{0,38}\Z")
_DOMAIN = re.compile(r"[^\s/]+\.[^\s/]+\Z")  # a bare word would be a top-level domain
_ITEM = re.compile(r"^\s*[-*]\s+`?@?([^\s`]+)`?\s*$", re.M)
_QUOTED_LINES: Final = 50  # a cell of more lines is a quote that was forgotten, and must not eat the list


@dataclass(frozen=True)
class Row:
    """A row of a list.

    Attributes:
        line: of the list, from 1.
        things: what it names: kind (or `owner`, or `any` for a value that shows its kind) and value.
        stated: what it says itself: asker, scope, since, evidence, aliases.
        fault: why it is none.
    """

    line: int
    things: list[tuple[str, str]] = field(default_factory=list)
    stated: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""

    def opt_outs(self) -> Iterator[tuple[str, list[str], str]]:
        """Kind, values and what is wrong of each opt-out; all authors of the row are aliases of one."""
        if self.fault or not self.things:
            yield "", [], self.fault or "no cell of it names what to leave out"
        authors = []
        for kind, value in self.things:
            try:
                forms = _forms(kind, value.strip())
            except InputError as error:
                yield kind, [], str(error)
                continue
            authors += [form for of, form in forms if of == "author"]
            yield from ((of, [form], "") for of, form in forms if of != "author")
        if authors:
            aliases = [alias.strip() for alias in re.split("[;|]", self.stated.get("aliases", "")) if alias.strip()]
            yield "author", [*authors, *aliases], ""


def _forms(kind: str, value: str) -> list[tuple[str, str]]:
    """What a value stands for, in kinds of the register."""
    bare = re.sub(r"^https?://|/$", "", value, flags=re.I)
    name = _FORGE.sub("", value).removesuffix(".git").strip("@/")
    if kind == "any":
        kind = _guess(value, bare)
    if kind in ("domain", "url_prefix"):  # lists have addresses among domains, and domains among addresses
        if "/" in bare or (kind == "url_prefix" and bare != value):
            return [("url_prefix", value if "://" in value else f"https://{value}")]
        kind, value = "domain", bare
    is_account = kind == "owner" or (kind == "repository" and "/" not in name and _FORGE.match(value))
    pattern = {"owner": _ACCOUNT, "repository": _ACCOUNT if is_account else _REPOSITORY, "domain": _DOMAIN}.get(kind)
    if kind not in (*KINDS, "owner") or (pattern and not pattern.match(value if kind == "domain" else name)):
        forms = {"owner": "the name of an account", "repository": "owner/name", "domain": "a host such as example.org"}
        raise InputError(f"{kind[:40]} {value[:80]!r}: give {forms.get(kind) or 'a kind: ' + ', '.join(KINDS)}")
    if is_account:
        return [("repository", f"{name}/*"), *([("author", name)] if kind == "owner" else [])]
    return [(kind, "/".join(name.split("/")[:2]) if kind == "repository" else value)]


def _guess(value: str, bare: str) -> str:
    """The kind of a value by its form; a bare word shows none."""
    if _FORGE.match(value) or ("." not in bare.partition("/")[0] and _REPOSITORY.match(bare)):
        return "repository"
    if "@" in value and "/" not in value:
        return "owner" if value.startswith("@") else "author"
    return "sha256" if re.fullmatch(r"[0-9a-fA-F]{64}", value) else "domain"


def detect(name: str, data: bytes) -> str:
    """The format of a file by its name and first bytes."""
    head = utf_8(data[:65_536]).lstrip()
    if head[:1] in (b"[", b"{"):
        return "tdmrep" if b'"location"' in head else "bigcode"
    if name.lower().endswith("ai.txt"):
        return "ai_txt"
    is_robots = re.search(rb"(?im)^[ \t]*user-agent[ \t]*:", head)
    return "rsl" if head[:1] == b"<" else "robots" if is_robots else "csv"


def _text(data: bytes) -> str:
    """The text of a list: UTF-8, UTF-16 with a BOM, else CP1252."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def read_csv(data: bytes) -> Iterator[Row]:
    """Rows of a table; columns without a meaning are passed over. Without a header each cell shows its kind."""
    lines = re.split(r"\r\n|\n|\r", _text(data))
    rows = list(_cells(lines, max(",\t;", key=lines[0].count)))
    rows = [(line, cells) for line, cells in rows if not cells[0].lstrip().startswith("#")]
    columns = [COLUMNS.get("_".join(cell.lower().split()), "") for cell in rows[0][1]] if rows else []
    if all(len(cells) > 1 and cells[0].strip() in KINDS for _, cells in rows[:2]):
        columns = _PLAIN
    elif any(columns):
        del rows[0]
    else:
        columns = ["any"]
    for line, cells in rows:
        named = [(columns[min(at, len(columns) - 1)], cell.strip()) for at, cell in enumerate(cells) if cell.strip()]
        stated = dict(named)
        things = [(name, cell) for name, cell in named if name in (*KINDS, "owner", "any")]
        if "value" in stated:
            things.append((stated.get("kind", "any").lower(), stated["value"]))
        stated["aliases"] = ";".join(cell for name, cell in named if name == "aliases")
        yield Row(line, [part for thing in things for part in _parts(*thing)], stated)


def _parts(kind: str, cell: str) -> Iterator[tuple[str, str]]:
    """Several addresses of a cell; other values have spaces of their own."""
    several = re.split(r"[\s,;]+", cell) if kind in ("domain", "url_prefix") else [cell]
    return ((kind, value) for value in several if value)


def _cells(lines: list[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Cells of each row with the number of its first line; a quote that does not end is that line's alone."""
    at = 0
    while at < len(lines):
        quotes, end = lines[at].count('"'), at + 1
        while quotes % 2 and end < min(len(lines), at + _QUOTED_LINES):
            quotes, end = quotes + lines[end].count('"'), end + 1
        end = at + 1 if quotes % 2 else end
        try:
            rows = list(csv.reader([f"{line}\n" for line in lines[at:end]], delimiter=delimiter))
        except csv.Error:  # a cell above 128 KiB
            rows = [["a cell that is too long"]]
        # Quotes inside of cells made one block of several rows: each is one line then.
        yield from ((at + 1 + number, row) for number, row in enumerate(rows) if any(cell.strip() for cell in row))
        at = end


def read_bigcode(data: bytes) -> Iterator[Row]:
    """Requests, a JSON object each (`optout_repos`, `optout_owners`), or issues (`title`, `user`, `body`)."""
    text = _text(data)
    is_list, is_plain = text.lstrip()[:1] == "[", text.lstrip()[:1] not in "{["  # plain: a name a line
    for line, part in enumerate([text] if is_list else text.split("\n"), 1):
        if is_plain and part.strip():
            yield Row(line, [("repository" if "/" in _FORGE.sub("", part.strip()) else "owner", part)])
            continue
        try:
            records = json.loads(part) if part.strip() else []
            for record in records if isinstance(records, list) else [records]:
                yield _request(line, record)
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
            yield Row(line, fault=shown(f"no request, as optout_repos and optout_owners or as an issue: {error!r}"))


def _request(line: int, record: Any) -> Row:
    number = record.get("issue", record.get("number"))
    login = str(record.get("author") or record["user"]["login"])
    repositories, owners = record.get("optout_repos") or [], record.get("optout_owners") or []
    if "body" in record:
        items = _ITEM.findall(record["body"] or "")
        repositories = [item for item in items if "/" in _FORGE.sub("", item).strip("/")]
        owners = [item for item in items if item not in repositories and item.lower() != "all"]
        if "all" in map(str.lower, items):
            named = re.search(r"request for ([\w-]+)\s*$", record.get("title") or "")
            owners.append(named[1] if named and named[1] != "all" else login)
    things = [("repository", str(name)) for name in repositories] + [("owner", str(name)) for name in owners]
    fault = "" if things else f"issue {number} names no repository and no account; a person has to read it"
    return Row(line, things, {"asker": shown(login), "evidence": shown(f"issue {number}")}, shown(fault))


def read_site(kind: str, data: bytes, site: str, agent: str) -> Iterator[Row]:
    """What a file of a site forbids to an agent; exceptions and patterns that are no prefix have a fault.

    Raises:
        InputError: it is no such file.
    """
    rules, ask = _rules(kind, data, agent)
    closed: list[str] = []
    for host, pattern, answer in sorted(rules, key=lambda rule: rule[2].allowed is not False):
        url = f"{f'https://{host}' if host else site.rstrip('/')}{pattern.parts[0].decode('ascii') or '/'}"
        is_exact = not pattern.has_end and not any(pattern.parts[1:])
        decided = answer if answer.signal == "content-signal" else ask(url)
        if answer.allowed is False and is_exact and decided.allowed is False:
            closed.append(url)
            evidence = {"asker": site, "scope": answer.scope, "evidence": answer.evidence}
            yield Row(answer.line, [("url_prefix", url)], evidence)
        elif answer.allowed is False and not is_exact:
            yield Row(answer.line, fault=f"{answer.evidence}: no prefix of addresses; sources keep to it at ingest")
        elif answer.allowed and any(url.startswith(prefix) for prefix in closed):
            yield Row(answer.line, fault=f"{answer.evidence}: an exception, which the register cannot hold")


Rules = list[tuple[str, Pattern, Reservation]]
"""Host of a rule (empty: any), its pattern, and the reservation of the pages that match."""


def _rules(kind: str, data: bytes, agent: str) -> tuple[Rules, Callable[[str], Reservation]]:
    """Rules of a file, and what it says of an address."""
    rules: Rules
    if kind in ("rsl", "tdmrep"):
        file = read_rsl(data) if kind == "rsl" else read_tdmrep(data)
        if file.fault:
            raise InputError(f"rights read: {file.fault}")
        if isinstance(file, Rsl):
            rules = [(content.host, content.pattern, content.answer) for content in file.contents]
        else:
            rules = [("", *rule) for rule in file.rules]
        return rules, file.page
    read = read_robots(data) if kind == "robots" else read_ai_txt(data)
    return [("", *rule) for rule in read.rules(agent)], lambda url: read.page(agent, url)
