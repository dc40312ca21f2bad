"""Why a place that exists is computed again, or differs from its declaration: what of code, config, inputs changed."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Any

from spark_jobs.credentials import without_literals
from spark_jobs.lake.declare.step import Scope
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.plan.reads import Reads, changed_places
from spark_jobs.lake.session.table_columns import column_difference

_SHOWN = 3
UNKNOWN = "its step key differs"


def why_again(row: Materialization, binding: Binding, reads: Reads, settings: bool = True) -> str:
    """Why a place that exists is computed again: changed code, config or inputs, with their names."""
    changed = changed_settings(row, binding) if settings else []
    now = {read.table: read for parts in reads.values() for read in parts}
    for table in sorted(now.keys() | (row.inputs.keys() if row.inputs else now.keys())):
        if table.startswith("system."):
            continue
        if table not in now or table not in row.inputs:
            if row.inputs:
                changed.append(f"input {table} is {'read now' if table in now else 'no longer read'}")
            continue
        differ = changed_places(row.inputs[table], now[table])
        if differ:
            changed.append(f"input {some([f'{table}[{place}]' if place else table for place in differ])} changed")
    return "; ".join(changed) or UNKNOWN


def changed_settings(row: Materialization, binding: Binding) -> list[str]:
    """Changes of code and config since a place was computed."""
    changed = []
    if row.code_version != binding.step.version:
        changed.append(f"code version {row.code_version} -> {binding.step.version}")
    had, wanted = json.loads(row.config), json.loads(binding.config_json)
    return [*changed, *_differences(had, wanted, "")]


def keeps_rows(ledger: Ledger, binding: Binding) -> bool:
    """Whether tables of a step keep their rows where their columns change: what came from a source, or is frozen.

    A frozen table whose rows cannot have the declared columns is computed anew.
    """
    if binding.step.scope is Scope.FROZEN:
        return not _column_mismatch(ledger, binding, True)
    return binding.step.discover is not None or binding.step.scope is Scope.INTAKE


def changed_columns(ledger: Ledger, binding: Binding) -> str:
    """Why all rows of a step's tables are computed anew, where their columns are not the declared ones; else empty."""
    mismatch = "" if keeps_rows(ledger, binding) else _column_mismatch(ledger, binding, False)
    return f"its columns changed: {mismatch}" if mismatch else ""


def refused_columns(ledger: Ledger, binding: Binding) -> str:
    """The table of a step with other columns than declared, beyond a run's repair, and the mend; else empty."""
    mismatch = _column_mismatch(ledger, binding, True) if keeps_rows(ledger, binding) else ""
    return f"{mismatch}; run first: headrace table delete {mismatch.partition(':')[0]}" if mismatch else ""


def _column_mismatch(ledger: Ledger, binding: Binding, keeping: bool) -> str:
    """The first difference of a step's tables from their declaration, as `column_difference` tells it."""
    for declared, identifier in zip(binding.step.tables, binding.tables, strict=True):
        table = ledger.table(identifier)
        if table is not None and (difference := column_difference(table, declared, keeping)):
            return f"{identifier}: {difference}"
    return ""


def other_settings(ledger: Ledger, binding: Binding) -> str:
    """One line on how a frozen table's declared config and code differ from those it was computed with; else empty.

    Such a table is kept, because everything that is computed from it would change.
    """
    row = ledger.places(binding.tables[0]).get("0") if binding.step.scope is Scope.FROZEN else None
    if row is None:
        return ""
    had, wanted = json.loads(row.config), json.loads(binding.config_json)
    changed = [
        f"{name} {_shown(name, had.get(name))} (declared: {_shown(name, wanted.get(name))})"
        for name in sorted(had.keys() | wanted.keys())
        if had.get(name) != wanted.get(name)
    ]
    if row.code_version != binding.step.version:
        changed.append(f"code version {row.code_version} (now {binding.step.version})")
    return f"frozen with {', '.join(changed)}; {_how_anew(binding)}" if changed else ""


def stays_as(ledger: Ledger, binding: Binding, again: Collection[str]) -> str:
    """One line on a frozen table that stays though rows that it was computed from changed, or may; else empty.

    Args:
        ledger: what was computed.
        binding: a step that stays (`Step.stays`).
        again: places of its inputs that a run may compute again, as `table[place]`.
    """
    table = binding.tables[0]
    if not again and not changed_since(ledger, table):
        return ""
    row, iceberg = ledger.places(table)["0"], ledger.table(table)
    snapshot = iceberg.snapshot_by_id(row.snapshot_id) if iceberg is not None else None
    at = f" on {datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC):%Y-%m-%d}" if snapshot is not None else ""
    read = some([f"{name}[{place}]" for name, facts in row.inputs.items() for place in facts.get("versions", ())])
    return f"as computed{at} from {read}; {_how_anew(binding)}"


def changed_since(ledger: Ledger, table: str) -> list[str]:
    """Places that the first increment of a table was computed from and that have other rows now, as `table[place]`."""
    row = ledger.places(table).get("0")
    return [
        f"{name}[{place}]"
        for name, facts in (row.inputs if row is not None else {}).items()
        for place, version in facts.get("versions", {}).items()
        if (now := ledger.places(name).get(place)) is not None and str(now.data_version) != version
    ]


def _how_anew(binding: Binding) -> str:
    of_corpus = (binding.driving_table or "").endswith(".increments")
    anew = f"corpus refresh {binding.namespace}" if of_corpus else f"table delete {binding.tables[0]}"
    return f"to compute it anew: headrace {anew}"


def _differences(had: Any, wanted: Any, path: str) -> Iterator[str]:
    """Values of two configs that differ, as `path old -> new`; equally ordered rules are compared value by value."""
    if isinstance(had, list) and isinstance(wanted, list):
        before, after = ([_rule_name(rule) for rule in many] for many in (had, wanted))
        if before == after and all(before):
            had, wanted = (dict(zip(before, many, strict=True)) for many in (had, wanted))
    if path and not (isinstance(had, dict) and isinstance(wanted, dict)):
        if had != wanted:
            yield f"{path} {_shown(path, had)} -> {_shown(path, wanted)}"
        return
    for name in sorted(had.keys() | wanted.keys()):
        yield from _differences(had.get(name), wanted.get(name), f"{path}.{name}" if path else name)


def _shown(path: str, value: Any) -> str:
    """A setting as JSON; what a lake of before noted in it as a literal may be a secret."""
    *above, name = path.split(".")
    return json.dumps(without_literals({name: value}, above[-1] if above else "")[name])


def _rule_name(rule: Any) -> str:
    """What a rule of a policy is called among those of other kinds; empty where the value is no rule."""
    return ".".join([*rule.get("kinds", ()), rule.get("rule", "")]) if isinstance(rule, dict) else ""


def some(names: list[str]) -> str:
    """The first few of some names."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
