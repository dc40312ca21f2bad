"""`headrace policy`: what documents are judged by, and what another policy would keep, before anything runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.completion import complete_names
from dagster_project.cli.output import JSON, print_json, print_rows, print_table, say
from dagster_project.exceptions import CommandError
from dagster_project.inspect.measured import share_of, share_text
from dagster_project.project.declared import declared_columns
from dagster_project.project.loading import lake_catalogue
from dagster_project.project.policies import find_policy, usable_policy

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from dagster_project.inspect.corpora.policy_preview import DocumentVolume, Preview, RuleCount
    from spark_jobs.filters.policy import Policy

_SET = click.option(
    "--set", "changed", multiple=True, metavar="RULE=VALUE", help="another threshold, or off; KIND.RULE for one kind"
)


@click.group()
def policy() -> None:
    """Add, show and preview policies: the rules that documents are judged by."""


@policy.command("add")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def add(file: Path) -> None:
    """Enter the policy of a YAML file into the registry, so that datasets can name it."""
    from spark_jobs.filters.policy import check_signals, signal_columns
    from spark_jobs.filters.policy_files import shipped
    from spark_jobs.filters.policy_registry import record_policy
    from spark_jobs.filters.policy_resolution import resolve
    from spark_jobs.registry import find_scorer, scorer_names

    catalogue = lake_catalogue(make=True)
    entered = find_policy(catalogue, str(file if file.suffix in (".yaml", ".yml", ".json") else f"{file}.yaml"))
    if entered.name in shipped() and resolve(entered.name).content != entered.content:
        raise CommandError(f"policy {entered.label}: headrace brings a policy of this name; choose another")
    # Columns of a scorer like `model_scores` depend on the dataset, which checks the rules that read them.
    scorers = [scorer for name in scorer_names() if (scorer := find_scorer(name)).of_config is None]
    columns = signal_columns(
        {scorer.name: {column.name: column.type for column in scorer.table.columns} for scorer in scorers}
    )
    checked = tuple(rule for rule in entered.rules if rule.source[0] in (*columns, "metadata"))
    check_signals(entered.model_copy(update={"rules": checked}), columns)
    entry = record_policy(catalogue, entered)
    say(f"{entered.label}: {len(entered.rules)} rules, hash {entry.content_hash[:16]}")
    foreign = sorted({rule.source[0] for rule in entered.rules} - {*columns, "metadata"})
    if foreign:
        say(f"It reads {', '.join(foreign)}: a dataset that names it checks the rules on these.")
    say(f"Next: headrace policy preview DATASET {entered.label}, then `policy: {entered.label}` in its declaration")


@policy.command("show")
@click.argument("reference", metavar="[NAME]", required=False)
@JSON
def show(reference: str | None, as_json: bool) -> None:
    """List the policies that headrace brings and those of the registry; of NAME show the rules, with their thresholds.

    NAME may be NAME@VERSION, a hash or a YAML file; what it extends and the source of each threshold are shown too.
    """
    if reference is None:
        _list_policies(as_json)
    else:
        _show_rules(reference, as_json)


def _list_policies(as_json: bool) -> None:
    """Print headrace's policies, and those of the registry."""
    from spark_jobs.filters.policy_files import shipped
    from spark_jobs.filters.policy_resolution import resolve
    from spark_jobs.lake.run.registry import entries

    brought = [(policy.label, len(policy.rules), policy.content_hash, "headrace") for policy in map(resolve, shipped())]
    entered = [
        (entry.label, len(json.loads(entry.content)["rules"]), entry.content_hash, entry.by)
        for entry in entries(lake_catalogue(required=False), "policy")
    ]
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for label, count, digest, by in (*brought, *entered):
        rows.setdefault((label, digest), {"policy": label, "rules": count, "hash": digest[:16], "by": by})
    print_rows(list(rows.values()), as_json, "")


def _show_rules(reference: str, as_json: bool) -> None:
    """Print the rules of a policy."""
    policy = find_policy(lake_catalogue(required=False), reference)
    if as_json:
        say(policy.content.decode())
        return
    say(f"{policy.label}, hash {policy.content_hash}")
    for rule in policy.rules:
        (condition,) = rule.conditions
        applies_to = ", ".join((*rule.kinds, *rule.languages)) or "all"
        say(f"  {rule.rule:<36} {rule.signal} {condition} {_text(rule.value)} ({applies_to}) {rule.why}".rstrip())


@policy.command("preview")
@click.argument("dataset", shell_complete=complete_names)
@click.argument("reference")
@click.argument("other", required=False)
@_SET
@click.option("--rule", "shown", metavar="RULE", help="also show ten documents on each side of its threshold")
@JSON
def preview(
    dataset: str, reference: str, other: str | None, changed: tuple[str, ...], shown: str | None, as_json: bool
) -> None:
    """Say what a policy would keep of a dataset: documents, bytes, tokens, and what each rule drops; nothing runs.

    REFERENCE is a name, NAME@VERSION, a hash, a YAML file, or `.` for what the dataset declares. With OTHER, given
    likewise, the two are compared; --set changes the first.
    """
    from dagster_project.inspect.corpora import policy_preview
    from dagster_project.inspect.corpora.rule_inputs import read_documents
    from dagster_project.restrictions import note_read
    from spark_jobs.exceptions import did_you_mean

    catalogue = lake_catalogue()
    chosen = usable_policy(catalogue, reference, dataset, changed)
    second = None if other is None else usable_policy(catalogue, other, dataset)
    note_read(catalogue, [dataset])
    if second is not None:
        if shown:
            raise CommandError(f"policy preview --rule {shown}: it is of one policy; leave {other} out")
        _compare(catalogue, dataset, (chosen, second), as_json)
        return
    parts = read_documents(catalogue, dataset, [chosen], lambda: declared_columns(dataset))
    preview = policy_preview.preview(parts, chosen)
    if as_json:
        return print_json(preview)
    named = [rule for rule in preview.rules if rule.rule == shown]
    if shown and not named:
        rule_names = dict.fromkeys(rule.rule for rule in preview.rules)
        raise CommandError(f"policy {preview.policy}: there is no rule {shown!r}{did_you_mean(shown, rule_names)}")
    _print(preview)
    for rule in named:
        _print_sides(rule)


def _compare(catalogue: Catalog, dataset: str, policies: Sequence[Policy], as_json: bool) -> None:
    """Print what two policies would keep of a dataset."""
    from dagster_project.inspect.corpora import policy_preview
    from dagster_project.inspect.corpora.rule_inputs import read_documents

    parts = read_documents(catalogue, dataset, policies, lambda: declared_columns(dataset))
    comparison = policy_preview.compare(parts, *policies)
    if as_json:
        return print_json(comparison)
    names = {"first": f"{comparison.first.policy} alone", "second": f"{comparison.second.policy} alone"}
    print_table([_sized(names.get(part, part), size) for part, size in comparison.kept_by.items()], "kept by")
    for kept, dropped, rules in (("first", "second", comparison.lost), ("second", "first", comparison.gained)):
        for rule, count in sorted(rules.items(), key=lambda pair: -pair[1]):
            other = getattr(comparison, dropped).policy
            say(f"{names[kept]}: {count:,} fail {rule} of {other}")
        if some := comparison.examples[kept]:
            say(f"{names[kept]}, e.g. {', '.join(doc_id[:12] for doc_id in some)}")


def _print(preview: Preview) -> None:
    share = share_text(share_of(preview.kept.documents, preview.before.documents), ".2%")
    print_table(
        [_sized("before", preview.before), _sized("kept", preview.kept)], f"{preview.dataset} under {preview.policy}"
    )
    how = "as its corpora counted" if preview.measured else "a guess: no corpus has counted its tokens"
    say(f"{share} of the documents are kept; tokens at {preview.bytes_per_token:.2f} bytes each, {how}\n")
    reviewed = any(rule.precision.right or rule.precision.wrong for rule in preview.rules)
    rows = [
        {
            "rule": rule.rule,
            "kinds": ", ".join(rule.kinds) or "all",
            "fails where": f"{rule.signal} {rule.condition} {_text(rule.threshold)}",
            "drops": rule.drops,
            "alone": rule.alone,
            **({"found right": str(rule.precision)} if reviewed else {}),
        }
        for rule in preview.rules
    ]
    print_table(rows)
    if reviewed:
        say("found right: share of the reviewed documents that it drops rightly, with its 95% interval")
    say("alone: documents that no other rule drops. --rule RULE shows documents on both sides of its threshold")


def _print_sides(rule: RuleCount) -> None:
    for side, documents in (("fail", rule.failing), ("pass", rule.passing)):
        say(f"\n{side} {rule.rule} ({', '.join(rule.kinds) or 'all'}), the nearest to its threshold:")
        for doc_id, value in documents:
            say(f"  {doc_id}  {'' if value is None else f'{value:g}'}".rstrip())


def _sized(name: str, size: DocumentVolume) -> dict[str, Any]:
    return {"": name, "documents": size.documents, "bytes": size.bytes, "tokens, estimated": size.tokens}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
