"""The rules that a dataset was judged by, and for one of them what every other threshold would keep."""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dagster_project.exceptions import CommandError
from dagster_project.inspect.corpora import policy_preview
from dagster_project.inspect.corpora.policy_preview import Preview, RuleCount
from dagster_project.inspect.corpora.rule_curve import RuleCurve, find_rule, judged_policy, reference_of, rule_curve
from dagster_project.inspect.corpora.rule_inputs import read_documents
from dagster_project.project.declared import dataset_file
from headrace_features.explore.answers import address, answer, explorer_of, on_form, principal_of
from headrace_features.explore.charts import histogram
from headrace_features.explore.dataset_at import DatasetVersion
from headrace_features.explore.explorer import Explorer, Snapshots
from spark_jobs.exceptions import SparkJobsError
from spark_jobs.filters.judge import judged
from spark_jobs.filters.policy import Policy, Rule
from spark_jobs.filters.policy_files import shipped
from spark_jobs.filters.policy_registry import policy_finder, refuse_other_policy
from spark_jobs.filters.policy_resolution import resolve
from spark_jobs.lake.run.registry import entries

_BESIDE = 10  # documents on each side of a threshold
_BINS, _STEPS = 60, 240
_LONG_SECONDS = 20.0
_VERSION = re.compile("[A-Za-z0-9]{1,20}")


def rules(request: Request) -> Response:
    """Every rule of the policy, with what it drops."""
    explorer, dataset, policy, inputs = _opened(request)
    preview = explorer.computed(_previewed, *inputs)
    shown = [{**_facts(policy, rule), "why": rule.why} for rule in policy.rules]
    if preview is not None:
        beyond = [_counted_facts(count) for count in preview.rules[len(shown) :]]
        shown = [{**facts, **_counts(count)} for facts, count in zip([*shown, *beyond], preview.rules, strict=True)]
    values = {
        "dataset": dataset, "policy": policy.label, "content_hash": policy.content_hash, "rules": shown,
        "counted": preview is not None, "before": preview and preview.before, "kept": preview and preview.kept,
        **_state(request, explorer, dataset),
    }  # fmt: skip
    return answer(request, "rules.html", values)


def rule(request: Request) -> Response:
    """One rule: its documents by value, and what another threshold would keep.

    While the slider moves, `x-live: moving` asks for sums alone; texts, and the row of the audit, come when it rests.
    """
    is_moving = request.headers.get("x-live") == "moving"
    explorer, dataset, policy, inputs = _opened(request, sums_alone=is_moving)
    query, chosen = dict(request.query_params), find_rule(policy, request.path_params["rule"])
    values: dict[str, Any] = {
        "dataset": dataset, "policy": policy.label, "rule": _facts(policy, chosen), "why": chosen.why,
        **_state(request, explorer, dataset), "hidden": explorer.hides_text(dataset),
        "list": address(f"/datasets/{dataset}/documents", rule=chosen.rule, sort="distance"),
        "_saved": _saved(dataset, query.get("saved", "")),
        "_suggested": ("", "") if "x-live" in request.headers else _suggested(explorer.catalogue, dataset, policy),
    }  # fmt: skip
    failing: Sequence[tuple[str, float | None]] = ()
    passing: Sequence[tuple[str, float | None]] = ()
    if chosen.below is None and chosen.above is None:
        preview = explorer.computed(_previewed, *inputs)
        values |= {"counted": preview is not None, "threshold": None}
        if preview is not None:
            count = preview.rules[policy.rules.index(chosen)]
            failing, passing = count.failing, count.passing
            values |= _counts(count)
    else:
        curve = explorer.computed(_curve, *inputs, values["rule"]["reference"])
        threshold = _threshold(query.get("threshold", ""), chosen)
        values |= {"counted": curve is not None, "threshold": threshold}
        if curve is not None:
            failing, passing = curve.nearest(threshold, _BESIDE)
            values |= _moved(curve, threshold, request.url.path, query)
    if is_moving:
        failing = passing = ()
    about = explorer.index(dataset, values["at"]).by_id([doc_id for doc_id, _ in (*failing, *passing)])
    nothing = {"path": "", "preview": None, "kept": None}
    for side, documents in (("failing", failing), ("passing", passing)):
        values[side] = [{**about.get(doc_id, nothing), "doc_id": doc_id, "value": value} for doc_id, value in documents]
    return answer(request, "rule.html", {**values, "_moving": is_moving})


def document_rules(request: Request) -> Response:
    """What each rule says of a document, the nearest to its threshold first: a piece of its page that may come late."""
    explorer, principal = explorer_of(request), principal_of(request)
    subject = explorer.document(principal, request.path_params["doc_id"])
    values: dict[str, Any] = {"doc_id": subject.doc_id, "path": subject.path, "dataset": subject.dataset, "unknown": ""}
    shown: list[dict[str, Any]] = []
    try:
        policy = judged_policy(explorer.catalogue, subject.dataset)
        values["policy"] = policy.label
        for documents in read_documents(explorer.catalogue, subject.dataset, [policy], where=subject.row):
            for outcome in judged(documents.rows, policy.rules):
                if outcome.applies.any():
                    (value,), fails = outcome.values.to_pylist(), bool(outcome.fails[0])
                    near = _near(value, outcome.rule.threshold)
                    shown.append({**_facts(policy, outcome.rule), "has": value, "fails": fails, "near": near})
    except (CommandError, SparkJobsError) as error:  # such as a dataset that nothing has judged yet
        values["unknown"] = str(error)
    values["rules"] = sorted(shown, key=lambda facts: (not facts["fails"], -facts["near"]))
    return answer(request, "document_rules.html", values)


def save(request: Request, fields: Mapping[str, str]) -> Response:
    """Write another threshold as a new version of the policy, beside the declaration of the dataset."""
    explorer, dataset, policy, _ = _opened(request)
    chosen = find_rule(policy, request.path_params["rule"])
    threshold = _threshold(fields.get("threshold", ""), chosen)
    reference = reference_of(policy, chosen)
    named = [reference] if reference == chosen.rule else [f"{kind}.{chosen.rule}" for kind in chosen.judged_kinds]
    written: dict[str, Any] = {
        "name": fields.get("name", ""), "version": fields.get("version", ""), "extends": [policy.label],
        "set": dict.fromkeys(named, threshold),
    }  # fmt: skip
    if not _VERSION.fullmatch(written["version"]):
        raise CommandError(f"version {written['version']!r} names a file; write letters and digits")
    if written["name"] in shipped():
        raise CommandError(f"headrace brings a policy named {written['name']}; choose another name")
    changed = resolve(written, policy_finder(lambda: explorer.catalogue))
    refuse_other_policy(explorer.catalogue, changed)
    file = dataset_file(dataset).parent / f"{changed.name}_{changed.version}.yaml"
    changes = ", ".join(f"{name}: {threshold:.10g}" for name in named)
    heading = f"# {datetime.now(UTC):%Y-%m-%d}, from the explorer: {reference} was {chosen.threshold:.10g}\n"
    content = f'name: {changed.name}\nversion: "{changed.version}"\nextends: ["{policy.label}"]\nset: {{{changes}}}\n'
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(heading + content)
    except FileExistsError as error:
        if file.read_text(encoding="utf-8").partition("\n")[2] != content:
            raise CommandError(f"{file.name} is there already, with other rules; write another version") from error
    place = request.url.path.removesuffix("/save")
    return RedirectResponse(address(place, threshold=f"{threshold:.10g}", saved=file.name), 303)


_Given = tuple[str, Policy, Snapshots]


def _opened(request: Request, sums_alone: bool = False) -> tuple[Explorer, str, Policy, _Given]:
    """The explorer, the dataset, the policy that judged it, and the key of its counts: dataset, policy, snapshots."""
    explorer, dataset = explorer_of(request), request.path_params["dataset"]
    explorer.reads(principal_of(request), dataset, sums_alone=sums_alone)
    at = explorer.snapshots(dataset)
    policy = explorer.computed(_judged, dataset, at, wait_seconds=_LONG_SECONDS)
    if policy is None:
        raise CommandError(f"{dataset}: the ledger of the lake is not read within {_LONG_SECONDS:g} s; try again")
    return explorer, dataset, policy, (dataset, policy, at)


def _judged(catalogue: Catalog, dataset: str, at: Snapshots) -> Policy:
    return judged_policy(catalogue, dataset)


def _state(request: Request, explorer: Explorer, dataset: str) -> dict[str, str]:
    """The newest state of the dataset, which counts are of, and the state that the address names."""
    newest = str(DatasetVersion.newest(explorer.catalogue, dataset))
    return {"at": newest, "asked_at": request.query_params.get("at", newest)}


def _previewed(catalogue: Catalog, dataset: str, policy: Policy, at: Snapshots) -> Preview:
    return policy_preview.preview(read_documents(catalogue, dataset, [policy]), policy)


def _curve(catalogue: Catalog, dataset: str, policy: Policy, at: Snapshots, reference: str) -> RuleCurve:
    parts = read_documents(catalogue, dataset, [policy])
    return rule_curve(parts, policy, find_rule(policy, reference))


def _facts(policy: Policy, rule: Rule) -> dict[str, Any]:
    """A rule for its page: name, signal, condition, threshold."""
    (condition,) = rule.conditions
    holds = ", ".join((*rule.kinds, *rule.languages)) or "all"
    facts = {"rule": rule.rule, "reference": reference_of(policy, rule), "signal": rule.signal, "holds_for": holds}
    return {**facts, "condition": condition, "value": rule.value}


def _counted_facts(count: RuleCount) -> dict[str, Any]:
    """`_facts` of a rule that every policy has and that has no page."""
    facts = {"rule": count.rule, "reference": "", "signal": count.signal, "holds_for": ", ".join(count.kinds) or "all"}
    return {**facts, "condition": count.condition, "value": count.threshold, "why": ""}


def _near(value: float | None, threshold: float | None) -> float:
    """How near two numbers are, of one sign: 1 where they are equal; 0 where one is missing or zero."""
    if value is None or threshold is None or value * threshold <= 0:
        return float(value is not None and value == threshold)
    return min(value / threshold, threshold / value)


def _counts(count: RuleCount) -> dict[str, Any]:
    """What a rule does to the documents."""
    return {"judged": count.judged, "drops": count.drops, "alone": count.alone, "found_right": str(count.precision)}


def _moved(curve: RuleCurve, threshold: float, path: str, query: Mapping[str, str]) -> dict[str, Any]:
    """What a threshold keeps, beside what the rule's own keeps; the histogram, and the places of the slider."""
    now = curve.rule.threshold
    assert now is not None
    gone, edges = curve.failing(threshold), curve.edges(_BINS)
    counts, failed = curve.histogram(edges, threshold)
    steps = [float(f"{edge:.4g}") for edge in curve.edges(_STEPS)]

    def link(low: float | None, high: float | None) -> str:
        return address(path, query, threshold=f"{edges[0] if low is None else low:.4g}", saved=None)

    chart = histogram(edges.tolist(), counts, failed, link, curve.rule.signal, threshold, 720, 120)
    return {
        "judged": len(curve.values), "drops": gone.stop - gone.start, "kept": curve.kept(threshold),
        "kept_now": curve.kept(now), "edges": edges.tolist(), "counts": counts, "failed": failed,
        "_svg": chart, "_steps": steps, "_step": min(bisect.bisect_left(steps, threshold), len(steps) - 1),
    }  # fmt: skip


def _threshold(text: str, rule: Rule) -> float:
    if not text and rule.threshold is not None:
        return rule.threshold
    try:
        threshold = float(text)
    except ValueError as error:
        raise CommandError(f"threshold={text[:40]} is no number") from error
    if (rule.below is None and rule.above is None) or threshold - threshold != 0:
        raise CommandError(f"threshold={text[:40]}: rule {rule.rule} compares with no such number")
    return threshold


def _saved(dataset: str, name: str) -> dict[str, str] | None:
    """The file of a policy that was written, and the declaration to name it in; None where there is no such file."""
    if not name or Path(name).name != name or not name.endswith(".yaml"):
        return None
    declared = dataset_file(dataset)
    file = declared.parent / name
    return {"file": str(file), "name": name, "declaration": str(declared)} if file.is_file() else None


def _suggested(catalogue: Catalog, dataset: str, policy: Policy) -> tuple[str, str]:
    """A name for a changed policy, and its first free version; both empty where nothing declares the dataset."""
    name = dataset if policy.name in shipped() else policy.name
    taken = {entry.version for entry in entries(catalogue, "policy", name)} | {policy.version}
    try:
        folder = dataset_file(dataset).parent
    except CommandError:
        return "", ""
    free = (str(n) for n in range(2, 10_000) if str(n) not in taken and not (folder / f"{name}_{n}.yaml").exists())
    return name, next(free)


PATHS = {
    "/datasets/{dataset}/rules": rules,
    "/documents/{doc_id}/rules": document_rules,
    "/datasets/{dataset}/rules/{rule}": rule,
    "/datasets/{dataset}/rules/{rule}/save": on_form(save),
}
POSTED = ("/datasets/{dataset}/rules/{rule}/save",)
