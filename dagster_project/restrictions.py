"""Who may see which rows: `visibility` as datasets, corpora and tables of one's own declare it.

It is a property of a namespace. What may not flow is refused when definitions load, again before a run (with what other
projects recorded in the same lake), and again by Blender, which reads the record. See docs/operate/access.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import In

from blender_service.auth.visibility import PUBLIC, VISIBILITY_TABLE, Visibility, recorded_visibility
from dagster_project.exceptions import CommandError, DefinitionError
from headrace.tables.catalogue import load_table
from headrace.tables.quarantine import SUFFIX, is_quarantine, quarantine_of, quarantine_that_holds
from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.declare.tables import Column, Table
from spark_jobs.lake.ledger.acts import note_act
from spark_jobs.lake.session.catalogue import SCOPE_PROPERTY, catalogue_errors, ensure_table

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from dagster_project.dagster_core import BaseAssetGraph

VISIBILITY = "headrace/visibility"  # metadata of an asset
ENVIRONMENT = "headrace/environment"  # test, where the rows are test data
GATE = "headrace/gate"  # who releases what the asset carries out of quarantine
_KINDS = ("public", "restricted", "on_device")
_MAIN_TABLES = ("documents", "members")  # a dataset has the one, a corpus the other
_TEAM = re.compile(r"[A-Za-z0-9_.-]{1,64}")
RECORD = Table(
    name="visibility",
    comment="One row per namespace that is not public or holds test data: who may see its rows, as last declared.",
    columns=(
        Column("namespace!", "string", "dataset, corpus or namespace of a table"),
        Column("visibility!", "string", "public (for test data), restricted, on_device or quarantine"),
        Column("teams!", "string", "teams that may see the rows, joined by commas; empty where not restricted"),
        Column("environment", "string", "test, where the rows are test data"),
    ),
    key=("namespace",),
)


def parse_visibility(where: str, value: Any, environment: str = "production") -> Visibility:
    """Read a declaration: `public`, `on_device`, or `{restricted: [team, ..]}`.

    Args:
        where: dataset or corpus, for messages.
        value: plain values, as in YAML.
        environment: production or test.

    Raises:
        DefinitionError: it has another form.
    """
    form = "write public, on_device or {restricted: [TEAM, ..]}"
    if isinstance(value, str) and value in ("public", "on_device"):
        return Visibility(value, test=environment == "test")
    if isinstance(value, Mapping) and list(value) == ["restricted"]:
        teams = value["restricted"]
        if not isinstance(teams, list | tuple) or not teams:
            raise DefinitionError(f"{where}: visibility.restricted names no team; {form}")
        for team in teams:
            if not isinstance(team, str) or not _TEAM.fullmatch(team):
                raise DefinitionError(
                    f"{where}: visibility.restricted: {team!r} is no team's name; use letters, digits, `_`, `.` and `-`"
                )
        return Visibility("restricted", frozenset(teams), environment == "test")
    word = value if isinstance(value, str) else next(iter(value), "") if isinstance(value, Mapping) else ""
    raise DefinitionError(f"{where}: visibility {value!r}{did_you_mean(str(word), _KINDS)}; {form}")


def declared_visibility(graph: BaseAssetGraph[Any]) -> dict[str, Visibility]:
    """The visibility of every namespace that assets of headrace declare.

    Raises:
        DefinitionError: two assets of a namespace declare different ones.
    """
    spaces: dict[str, Visibility] = {}
    for key in sorted(graph.get_all_asset_keys()):
        metadata = graph.get(key).metadata
        if VISIBILITY not in metadata and ENVIRONMENT not in metadata:
            continue
        kind, *teams = str(metadata.get(VISIBILITY, "public")).split(" ")
        visibility = Visibility(kind, frozenset(teams), ENVIRONMENT in metadata)
        space = key.path[0]
        if spaces.setdefault(space, visibility) != visibility:
            raise DefinitionError(
                f"{'.'.join(key.path)}: is {visibility}, other tables of {space} are {spaces[space]}; a namespace has "
                "one visibility"
            )
    return spaces


def _decided(graph: BaseAssetGraph[Any]) -> dict[str, Visibility]:
    """The visibility of every namespace that the assets decide about.

    A table of one's own in the namespace of another project's dataset says nothing of that namespace, unless it
    declares a visibility: else it would make the dataset public.
    """
    keys = graph.get_all_asset_keys()
    computed = {key for key in keys if graph.get(key).is_materializable}
    whole = {key.path[0] for key in computed if key.path[-1] in _MAIN_TABLES}
    shared = {key.path[0] for key in keys - computed} - whole
    declared = declared_visibility(graph)
    spaces = {key.path[0] for key in computed}
    return {space: declared.get(space, PUBLIC) for space in spaces if space in declared or space not in shared}


def visibility_metadata(where: str, visibility: Visibility) -> dict[str, str]:
    """Metadata of the assets of a namespace that is not public.

    Raises:
        DefinitionError: YAML could not declare it, such as a team whose name would be read as two.
    """
    teams = sorted(visibility.teams)
    if visibility.kind != "quarantine" or not is_quarantine(where.partition(".")[0]):
        parse_visibility(where, {visibility.kind: teams} if teams else visibility.kind)
    shown = {} if visibility.is_public else {VISIBILITY: " ".join([visibility.kind, *teams])}
    return {**shown, **({ENVIRONMENT: "test"} if visibility.test else {})}


def refuse_forbidden_reads(graph: BaseAssetGraph[Any], recorded: Mapping[str, Visibility] | None = None) -> None:
    """Refuse tables that are more visible than their inputs.

    Args:
        graph: all assets.
        recorded: namespaces of the lake that are not public; those that the assets declare are as declared.

    Raises:
        DefinitionError: names the first such table, what it reads, and how to mend it.
    """
    visible = {**(recorded or {}), **declared_visibility(graph), **_decided(graph)}
    for key in graph.toposorted_asset_keys:
        ours = visible.get(key.path[0], PUBLIC)
        for parent in sorted(graph.get(key).parent_keys):
            theirs, space, source = visible.get(parent.path[0], PUBLIC), key.path[0], parent.path[0]
            if is_quarantine(source):
                if space == source or (GATE in graph.get(key).metadata and source == quarantine_of(space)):
                    continue
                raise DefinitionError(
                    f"{'.'.join(key.path)} reads {'.'.join(parent.path)}, which is quarantined; read "
                    f"{source.removesuffix(SUFFIX)}, which has what was released"
                )
            if space == "blends":  # a blend holds no row; Blender asks who reads it
                if theirs.test != all(
                    visible.get(parent_key.path[0], PUBLIC).test for parent_key in graph.get(key).parent_keys
                ):
                    raise DefinitionError(
                        f"{'.'.join(key.path)} mixes {source}, test data, with production; take it out"
                    )
                continue
            if theirs.test and not ours.test:
                raise DefinitionError(
                    f"{'.'.join(key.path)} reads {'.'.join(parent.path)}: {source} is test data, {space} is "
                    f"production; take {source} out of it, or declare `environment: test` for {space}"
                )
            if not ours.may_hold(theirs):
                form = (
                    "on_device"
                    if theirs.kind == "on_device"
                    else f"{{restricted: [{', '.join(sorted(theirs.teams & ours.teams) or sorted(theirs.teams))}]}}"
                )
                raise DefinitionError(
                    f"{'.'.join(key.path)} reads {'.'.join(parent.path)}: {source} is {theirs}, {space} is {ours}; "
                    f"declare `visibility: {form}` for {space}, or take {source} out of it"
                )


def record_visibility(catalogue: Catalog, graph: BaseAssetGraph[Any]) -> dict[str, Visibility]:
    """Record what the assets declare, where it differs from what is recorded, and give all that is.

    Raises:
        CatalogueError: the catalogue's database fails.
    """
    recorded = recorded_visibility(catalogue)
    changed = {
        space: visibility for space, visibility in _decided(graph).items() if recorded.get(space, PUBLIC) != visibility
    }
    computed = {".".join(key.path) for key in graph.get_all_asset_keys() if graph.get(key).is_materializable}
    for space in [space for space, visibility in changed.items() if visibility == PUBLIC]:
        main = {f"{space}.{table}" for table in _MAIN_TABLES}
        if not main & computed and any(catalogue.table_exists(table) for table in main):
            del changed[space]  # another project's dataset or corpus, beside which a table of this one lies
    if not changed:
        return recorded
    rows = [
        {
            "namespace": space,
            "visibility": visibility.kind,
            "teams": ",".join(sorted(visibility.teams)),
            "environment": "test" if visibility.test else None,
        }
        for space, visibility in changed.items()
        if visibility != PUBLIC
    ]
    with catalogue_errors():
        table = ensure_table(catalogue, VISIBILITY_TABLE, RECORD, {SCOPE_PROPERTY: "visibility"})
        with table.transaction() as both:
            if stale := sorted(recorded.keys() & changed.keys()):
                both.delete(In("namespace", stale))
            if rows:
                both.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    return {space: visibility for space, visibility in {**recorded, **changed}.items() if visibility != PUBLIC}


def note_read(catalogue: Catalog, names: Iterable[str], quarantined: bool = False, who: str | None = None) -> None:
    """Write a row of `system.audit` where rows of namespaces that are not public are about to be shown.

    Args:
        catalogue: the lake's.
        names: namespaces or tables.
        quarantined: whether the user asked for what is in quarantine; else that is refused.
        who: looks at them; None for the user of this process.

    Raises:
        CatalogueError: the row cannot be written; then nothing is to be shown.
        CommandError: a table or namespace is quarantined.
    """
    from blender_service.auth.access import CorpusDatasets

    distinct = set(names)
    quarantines = {quarantine_that_holds(name, _properties(catalogue, name)) for name in distinct} - {""}
    if quarantines and not quarantined:
        first = min(quarantines)
        raise CommandError(
            f"{first} is quarantined, so its rows are not shown; to look at some: headrace table show "
            f"{first}.documents --rows 5 --quarantined, which leaves a row of system.audit"
        )
    restricted = {space for space, visibility in recorded_visibility(catalogue).items() if not visibility.is_public}
    spaces = {name.split(".")[0] for name in distinct}
    if restricted:  # a corpus holds rows of its datasets, also where it was computed before they were restricted
        spaces = spaces.union(*(CorpusDatasets(catalogue).of(space) or () for space in spaces))
    if subject := sorted((spaces & restricted) | quarantines):
        note_act(catalogue, "read", ",".join(subject), who=who)


def _properties(catalogue: Catalog, name: str) -> Mapping[str, str]:
    table = load_table(catalogue, name) if name.count(".") == 1 else None
    return table.properties if table is not None else {}
