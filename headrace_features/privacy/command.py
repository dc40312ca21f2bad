"""`headrace quarantine`: increments of untrusted datasets that wait, and decisions about them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import JSON, print_json, print_rows, print_table, say
from dagster_project.exceptions import CommandError
from dagster_project.project.loading import lake_catalogue

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.plan.decisions import Waiting

_SHOWN_DOCUMENTS = 10
_RELEASE, _REFUSE = "release", "refuse"  # acts of `spark_jobs.lake.plan.decisions`, which is not light to import


@click.group(short_help="Show what of untrusted data waits; release or refuse it.")
def quarantine() -> None:
    """Show increments of untrusted datasets that wait, and what scans found in them; release or refuse them."""


@quarantine.command("show", epilog="\b\nExample: headrace quarantine show web --increment 3")
@click.argument("names", nargs=-1)
@click.option("--increment", type=click.IntRange(min=0), help="of one NAME: what scans found in this increment")
@JSON
def show(names: tuple[str, ...], increment: int | None, as_json: bool) -> None:
    """List the increments of quarantined datasets (or of NAMES alone), with what was decided about each.

    With --increment say what scans found in it: how often, in how many documents, and in which most. No text is shown;
    to read some: headrace table show NAME_quarantine.documents --rows 5 --quarantined
    """
    from spark_jobs.lake.ledger.ledger import Ledger
    from spark_jobs.lake.plan.decisions import increments_of, quarantined_datasets

    catalogue = lake_catalogue()
    ledger = Ledger.fresh(catalogue)
    if increment is not None:
        if len(names) != 1:
            raise CommandError("quarantine show --increment: name the one dataset that it is of")
        _show_findings(catalogue, names[0], _increment(ledger, names[0], increment), as_json)
        return
    rows = [
        {
            "dataset": name,
            "increment": waiting.increment,
            "documents": waiting.documents,
            "stored bytes": waiting.byte_count,
            "state": _state(waiting),
            "by": waiting.who,
            "when": f"{waiting.at:%Y-%m-%d %H:%M}" if waiting.at is not None else "",
            "why": waiting.why,
        }
        for name in names or quarantined_datasets(ledger)
        for waiting in increments_of(ledger, name)
    ]
    print_rows(rows, as_json, "Nothing is in quarantine. A dataset waits there with `trust: quarantine`")


def _increment(ledger: Ledger, name: str, number: int) -> Waiting:
    """An increment of a quarantined dataset.

    Raises:
        CommandError: it has none of this number.
    """
    from spark_jobs.lake.plan.decisions import increments_of

    for waiting in increments_of(ledger, name):
        if waiting.increment == number:
            return waiting
    raise CommandError(f"quarantine show: {name} has no increment {number}; see headrace quarantine show {name}")


def _show_findings(catalogue: Catalog, name: str, waiting: Waiting, as_json: bool) -> None:
    """Print what scans found in an increment."""
    from pyiceberg.expressions import EqualTo

    from headrace.tables.quarantine import quarantine_of
    from spark_jobs.lake.files.lookups import read_rows

    increment = waiting.increment
    columns = ("doc_id", "findings", "licence", "licence_allowed")
    rows = read_rows(catalogue, f"{quarantine_of(name)}.scans", columns, EqualTo("increment", increment))
    for row in rows:
        row["findings"] = dict(row["findings"])
    documents = Counter(rule for row in rows for rule in row["findings"])
    times: Counter[str] = Counter()
    for row in rows:
        times.update(row["findings"])
    worst = sorted(rows, key=lambda row: (-_gravity(row["findings"]), row["doc_id"]))[:_SHOWN_DOCUMENTS]
    facts: dict[str, Any] = {
        "dataset": name,
        "increment": increment,
        "state": _state(waiting),
        "documents": waiting.documents,
        "scanned": len(rows),
        "findings": {rule: {"documents": count, "times": times[rule]} for rule, count in sorted(documents.items())},
        "licences": dict(Counter(str(row["licence"] or "none") for row in rows).most_common(_SHOWN_DOCUMENTS)),
        "worst": [{"doc_id": row["doc_id"], "findings": row["findings"]} for row in worst if row["findings"]],
    }
    if as_json:
        return print_json(facts)
    say(f"{name}, increment {increment}: {waiting.documents:,} documents, {len(rows):,} scanned; {_state(waiting)}")
    if documents:
        print_table([{"finding": rule, **counts} for rule, counts in facts["findings"].items()])
    say(f"licences: {', '.join(f'{licence} {count:,}' for licence, count in facts['licences'].items())}")
    for document in facts["worst"]:
        say(f"{document['doc_id']}  {', '.join(f'{rule} {count}' for rule, count in document['findings'].items())}")


def _gravity(findings: dict[str, int]) -> int:
    """How severe a document's findings are, as a number: any malware outweighs secrets, any secret the rest."""
    weights = {"malware": 1_000_000, "secret": 1_000}
    return sum(weights.get(rule.partition(".")[0], 1) * min(count, 100) for rule, count in findings.items())


def _decision(act: str, text: str, reason: str) -> click.Command:
    example = f"headrace quarantine {act} web --increment 3 --reason '{reason}'"

    @click.command(act, help=text, epilog=f"\b\nExample: {example}")
    @click.argument("name")
    @click.option(
        "--increment", "increments", multiple=True, required=True, type=click.IntRange(min=0), help="may be repeated"
    )
    @click.option("--reason", required=True, help="why; it is kept in system.audit")
    def command(name: str, increments: tuple[int, ...], reason: str) -> None:
        from spark_jobs.lake.plan.decisions import decide

        before = decide(lake_catalogue(), name, increments, act, reason)
        for waiting in before:
            same = ", as before" if waiting.state == act else ""
            say(f"{name}, increment {waiting.increment}: {'released' if act == _RELEASE else 'refused'}{same}")
        if act == _RELEASE:
            say(f"Next: headrace run {name}, which carries it over")

    return command


quarantine.add_command(
    _decision(
        _RELEASE, "Release increments of NAME: the next run carries them over into NAME.documents.", "looked at fifty"
    )
)
quarantine.add_command(
    _decision(
        _REFUSE,
        "Refuse increments of NAME: they stay where they are, also where rules would release them.",
        "holds secrets",
    )
)


def _state(waiting: Waiting) -> str:
    if waiting.carried:
        return "released"
    return {_RELEASE: "released, not carried over yet", _REFUSE: "refused"}.get(waiting.state, "waits")
