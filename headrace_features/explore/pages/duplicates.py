"""A corpus with what deduplication removed, and one pair of duplicates side by side with its whole group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup, escape
from pyiceberg.catalog import Catalog
from starlette.requests import Request
from starlette.responses import Response

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.funnel import funnel
from dagster_project.inspect.corpora.kept_at_thresholds import kept_at_thresholds, largest_groups
from dagster_project.inspect.documents.document_lookup import FoundDocument, read_text
from dagster_project.inspect.documents.duplicate_group import (
    DuplicateGroup,
    GroupMember,
    Link,
    duplicate_group,
    why_first,
)
from dagster_project.inspect.documents.side_by_side import GAP, Row, changed_spans, compare
from dagster_project.inspect.lake.corpus_facts import find_corpus
from headrace_features.explore.added_pages import address_of
from headrace_features.explore.answers import answer, explorer_of, principal_of
from headrace_features.explore.explorer import Explorer, Snapshots
from headrace_features.explore.texts import Mark, inline

_GROUPS = 50
_COLUMN = 90  # characters; longer lines are compared by sentences
_MOST_ROWS = 400
_MOST_CHARACTERS = 1 << 19  # of each text that is compared
_DRAWN = 40  # documents of a graph
_LABELLED = 24  # links of a graph that has J on all


def corpus(request: Request) -> Response:
    """What a corpus consists of, what each threshold would keep, its largest groups."""
    explorer, principal = explorer_of(request), principal_of(request)
    facts = explorer.corpus(principal, request.path_params["corpus"])
    explorer.reads(principal, facts.name, *facts.datasets)
    snapshot, whole = explorer.snapshots(facts.name), [explorer.snapshots(name) for name in facts.datasets]
    counted = explorer.computed(_counted, facts.name, snapshot, *whole)
    values = {
        "corpus": facts.name, "datasets": facts.datasets, "goes_from": facts.goes_from, "keep_first": facts.keep_first,
        "_clusters": "centroids" in facts.tables and address_of("clusters", facts.name),
        "counted": counted is not None, **(counted or {}),
    }  # fmt: skip
    return answer(request, "corpus.html", values)


def pair(request: Request) -> Response:
    """A document beside the one for which it was removed, or beside another of its group (`beside`)."""
    explorer, principal = explorer_of(request), principal_of(request)
    facts = explorer.corpus(principal, request.path_params["corpus"])
    subject = explorer.found(principal, request.path_params["doc_id"])
    doc_id = subject.doc_id
    group = duplicate_group(explorer.catalogue, facts, doc_id)
    explorer.reads(principal, facts.name, *{member.dataset for member in group.members})
    members = {member.doc_id: member for member in group.members}
    linked = sorted(_links_of(group, doc_id), key=lambda link: (-link.similarity, link.first, link.second))
    beside = request.query_params.get("beside") or group.witness or next((_other(link, doc_id) for link in linked), "")
    if beside and beside not in members:
        raise CommandError(f"document {beside} is not in the group of {doc_id}; choose one of its list")
    link = next((edge for edge in linked if _other(edge, doc_id) == beside), None)
    left, right = members[doc_id], members.get(beside)
    values: dict[str, Any] = {
        "corpus": facts.name, "document": left, "beside": right, "witness": group.witness,
        "link": link and {**vars(link), "similarity": link.similarity}, "total": group.total,
        "threshold": group.threshold, "members": group.members,
        "links": [{**vars(edge), "similarity": edge.similarity} for edge in group.links],
        "why": "", "rows": [], "equal": False, "rows_left_out": 0, "hidden": "",
        "_graph": _graph(group, doc_id, beside, f"/corpora/{facts.name}/duplicates"), "_rows": [],
        "_numbers": {member.doc_id: number for number, member in enumerate(group.members, 1)},
        "_j": {_other(edge, doc_id): edge.similarity for edge in linked},
    }  # fmt: skip
    if right is not None:
        better, other = sorted((left, right), key=lambda member: member.rank)
        values["why"] = f"{better.path}: {why_first(better, other, facts)}"
        values |= _side_by_side(explorer, subject, explorer.found(principal, right.doc_id))
    return answer(request, "duplicates.html", values)


def _counted(catalogue: Catalog, name: str, *at: Snapshots) -> dict[str, Any]:
    facts = find_corpus(catalogue, name)
    return {
        "stages": funnel(catalogue, facts),
        "thresholds": kept_at_thresholds(catalogue, facts),
        "groups": largest_groups(catalogue, facts, _GROUPS),
    }


def _side_by_side(explorer: Explorer, left: FoundDocument, right: FoundDocument) -> dict[str, Any]:
    """The rows in which two texts differ, where both may be shown."""
    if hidden := explorer.hides_text(left.dataset) or explorer.hides_text(right.dataset):
        return {"hidden": hidden}
    texts = [(read_text(explorer.catalogue, document) or "")[:_MOST_CHARACTERS] for document in (left, right)]
    sides = compare(texts[0], texts[1], _COLUMN, most_rows=_MOST_ROWS)
    return {
        "rows": sides.rows, "equal": texts[0] == texts[1],
        "rows_left_out": sides.rows_left_out, "_rows": [marked(row) for row in sides.rows],
    }  # fmt: skip


def marked(row: Row) -> tuple[str, Markup, Markup]:
    """A row of two texts side by side: its class in the style sheet (gap, same, changed), and both with marks."""
    if row.mark == GAP:
        return "gap", inline(row.left), inline(row.right)
    if row.mark == " ":
        return "same", inline(row.left), inline(row.right)
    spans = changed_spans(row.left, row.right)
    sides = [
        inline(piece, [Mark(start, end, kind) for start, end in some])
        for piece, some, kind in zip((row.left, row.right), spans, ("gone", "kept"), strict=True)
    ]
    return "changed", sides[0], sides[1]


def _other(link: Link, doc_id: str) -> str:
    return link.second if link.first == doc_id else link.first


def _links_of(group: DuplicateGroup, doc_id: str) -> list[Link]:
    return [link for link in group.links if doc_id in (link.first, link.second)]


def _graph(group: DuplicateGroup, doc_id: str, beside: str, base: str) -> Markup:
    """The group as SVG: kept documents in the middle, removed ones around them, J on the links."""
    near = {doc_id, beside, *(_other(link, doc_id) for link in _links_of(group, doc_id))}
    numbers = {member.doc_id: number for number, member in enumerate(group.members, 1)}
    shown = sorted(group.members, key=lambda member: (member.doc_id not in near, member.rank))[:_DRAWN]
    inner, outer = ([member for member in shown if (member.removed is None) == kept] for kept in (True, False))
    places = {**_ring(inner, 0 if len(inner) == 1 else 70), **_ring(outer, 170)}
    links = [link for link in group.links if link.first in places and link.second in places]
    lines, labels, nodes = [], [], []
    for link in links:
        (x1, y1), (x2, y2) = places[link.first], places[link.second]
        kind = "chosen" if {link.first, link.second} == {doc_id, beside} else "link"
        lines.append(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')
        if len(links) <= _LABELLED or kind == "chosen":
            label = link.match if link.match in ("bytes", "letters") else f"{link.similarity:.3f}"
            labels.append(f'<text x="{(x1 + 2 * x2) / 3:.1f}" y="{(y1 + 2 * y2) / 3 - 3:.1f}">{label}</text>')
    for member in shown:
        kinds = ["kept"] * (member.removed is None) + ["asked"] * (member.doc_id in (doc_id, beside))
        (x, y), path, number = places[member.doc_id], escape(member.path), numbers[member.doc_id]
        nodes.append(
            f'<a href="{base}/{member.doc_id}" class="{" ".join(kinds)}" aria-label="{path}"><title>{path}</title>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="11"/><text x="{x:.1f}" y="{y:.1f}">{number}</text></a>'
        )
    drawn = "".join([*lines, *labels, *nodes])
    return Markup(f'<svg class="graph" viewBox="-200 -195 400 390" role="group" aria-label="the group">{drawn}</svg>')


def _ring(members: Sequence[GroupMember], radius: float) -> dict[str, tuple[float, float]]:
    """Places on a circle, by doc_id."""
    angles = [2 * math.pi * at / max(len(members), 1) - math.pi / 2 for at in range(len(members))]
    return {
        member.doc_id: (radius * math.cos(angle), radius * math.sin(angle))
        for member, angle in zip(members, angles, strict=True)
    }


PATHS = {"/corpora/{corpus}": corpus, "/corpora/{corpus}/duplicates/{doc_id}": pair}
