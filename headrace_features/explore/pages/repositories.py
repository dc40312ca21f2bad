"""Repositories of a dataset; the files of one in dependency order, what they need, and cycles of files."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora.repository_files import repository_files
from headrace.tables.catalogue import load_table
from headrace_features.explore.answers import address, answer, explorer_of, principal_of
from spark_jobs.lake.files.lookups import EVERYTHING, read_rows

_PAGE: Final = 100
_NEEDS_SHOWN: Final = 12


def repositories(request: Request) -> Response:
    """The repositories of a dataset by name; `q` is a part of the name, `after` the last of the page before."""
    explorer, query = explorer_of(request), dict(request.query_params)
    dataset = request.path_params["dataset"]
    explorer.reads(principal_of(request), dataset)
    columns = ("repository", "version", "licence", "fork_of")
    rows = read_rows(explorer.catalogue, f"{dataset}.repositories", columns, EVERYTHING)
    newest = {row["repository"]: row for row in rows}
    words, after = query.get("q", "").lower(), query.get("after", "")
    wanted = sorted(name for name in newest if words in name.lower())
    page = [newest[name] for name in wanted if name > after][: _PAGE + 1]
    more = address(request.url.path, query, after=page[_PAGE - 1]["repository"]) if len(page) > _PAGE else None
    shown = {"dataset": dataset, "total": len(newest), "found": len(wanted), "repositories": page[:_PAGE]}
    return answer(request, "repositories.html", {**shown, "next": more})


def repository(request: Request) -> Response:
    """The files of a repository by their rank in a corpus, a hundred a page; `after` is how many come before."""
    explorer, principal, query = explorer_of(request), principal_of(request), dict(request.query_params)
    dataset, name = request.path_params["dataset"], request.path_params["repository"]
    explorer.reads(principal, dataset)
    corpora = [
        facts.name for facts in explorer.corpora(principal) if dataset in facts.datasets and "ordered" in facts.tables
    ]
    corpus = query.get("corpus") or next(iter(corpora), None)
    if corpus is not None and corpus not in corpora:
        raise CommandError(f"corpus {corpus} orders no files of {dataset}; choose among {', '.join(corpora) or 'none'}")
    contents = repository_files(explorer.catalogue, dataset, name, corpus)
    if not contents.files:
        raise CommandError(f"repository {name} has no document in {dataset}")
    after = query.get("after", "")
    start = int(after) if after.isdecimal() and len(after) < 12 else 0
    shown = contents.files[start : start + _PAGE]
    needs: dict[str, list[dict[str, Any]]] = {file.doc_id: [] for file in shown}
    ranks = {file.doc_id: file.rank for file in contents.files}
    for need in contents.needs:
        if need.doc_id in needs:
            needs[need.doc_id].append({**vars(need), "is_later": _later(ranks, need.doc_id, need.needed_doc_id)})
    cycles: dict[int, list[dict[str, str]]] = {}
    for file in contents.files:
        if file.cycle is not None:
            cycles.setdefault(file.cycle, []).append({"doc_id": file.doc_id, "path": file.path})
    end = start + len(shown)
    values = {
        "dataset": dataset, "repository": name, "corpus": corpus, "corpora": corpora, "start": start,
        "total": len(contents.files), "files": [{**vars(file), "needs": needs[file.doc_id]} for file in shown],
        "cycles": dict(sorted(cycles.items())), "edges": len(contents.needs),
        "next": address(request.url.path, query, after=end) if end < len(contents.files) else None,
        "previous": address(request.url.path, query, after=max(0, start - _PAGE) or None) if start else None,
        "_most": _NEEDS_SHOWN,
        "_has_dependencies": load_table(explorer.catalogue, f"{dataset}.dependencies") is not None,
    }  # fmt: skip
    return answer(request, "repository.html", values)


def _later(ranks: dict[str, int | None], doc_id: str, needed: str) -> bool:
    """Whether a file comes before one that it needs, as some files of a cycle must."""
    rank, other = ranks.get(doc_id), ranks.get(needed)
    return rank is not None and other is not None and other > rank


PATHS = {
    "/datasets/{dataset}/repositories": repositories,
    "/datasets/{dataset}/repositories/{repository:path}": repository,
}
