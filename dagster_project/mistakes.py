"""Find mistakes in declarations that a run would refuse, before anything is fetched, computed or written.

    restrictions   a table reads rows that those who see the table may not see
    quarantine     a dataset lands what a quarantine keeps, or was declared otherwise before
    binding        an input of a table of one's own is not there, or nothing says which increments it follows
    columns        a table of the lake has other columns than are declared, or a selection names one that none has
    names          a policy's version stands for other rules; a model, label or benchmark is not in the
                   registry; the file of a tokenizer cannot be used

`headrace plan`, `run` and `doctor` ask here, so that none of them says yes where another says no. Whether a source or
an input table is there is no mistake of a declaration: a forecast says it (`spark_jobs.lake.plan.forecast`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import ValidationError

from dagster_project.exceptions import DefinitionError
from dagster_project.lake_asset import LakeAsset, declared_asset, declared_assets
from dagster_project.restrictions import refuse_forbidden_reads
from headrace.tables.exceptions import CatalogueError
from spark_jobs.exceptions import DeclarationError, SparkJobsError
from spark_jobs.lake.declare.tables import INCREMENT
from spark_jobs.lake.ledger.step_key import config_json
from spark_jobs.lake.plan.binding import tables_of
from spark_jobs.lake.plan.decisions import refuse_around_quarantine
from spark_jobs.lake.plan.reasons import refused_columns

if TYPE_CHECKING:
    from blender_service.auth.visibility import Visibility
    from dagster_project.dagster_core import BaseAssetGraph
    from spark_jobs.lake.ledger.ledger import Ledger

_SHOWN = 3
_TRAINED = ("classifier", "ngrams")  # steps that enter a model of their namespace's name into the registry


def refuse_mistakes(
    graph: BaseAssetGraph[Any], keys: Sequence[dg.AssetKey], ledger: Ledger, recorded: Mapping[str, Visibility]
) -> None:
    """Refuse declarations that a run of some assets would fail by.

    Args:
        graph: all assets.
        keys: those of the run.
        ledger: refreshed.
        recorded: namespaces of the lake that are not public.

    Raises:
        CatalogueError: the lake does not answer.
        DefinitionError: names the tables, the first few with how to mend it.
    """
    refuse_forbidden_reads(graph, recorded)
    assets = declared_assets(graph, keys)
    trained = [asset.namespace for asset in assets if asset.step.name in _TRAINED]
    mistakes = {asset.tables[0]: mistake for asset in assets if (mistake := _mistake(asset, graph, ledger, trained))}
    if mistakes:
        more = f"; and in {', '.join([*mistakes][_SHOWN:])}" if len(mistakes) > _SHOWN else ""
        raise DefinitionError("; also ".join([*mistakes.values()][:_SHOWN]) + more)


def _mistake(asset: LakeAsset, graph: BaseAssetGraph[Any], ledger: Ledger, trained: Collection[str]) -> str:
    """What is wrong with the declaration of a step; empty where nothing is."""
    try:
        _refuse(asset, graph, ledger, trained)
    except CatalogueError:
        raise
    except SparkJobsError as error:
        table, text = asset.tables[0], str(error)
        return text if text.startswith((f"{table}:", f"{asset.namespace}:")) else f"{table}: {text}"
    return ""


def _refuse(asset: LakeAsset, graph: BaseAssetGraph[Any], ledger: Ledger, trained: Collection[str]) -> None:
    """Refuse the declaration of one step.

    What was computed with the same settings was found to be usable, so names are not looked up again. Nor are those of
    models that the run itself trains.
    """
    try:
        config = asset.config or asset.step.config()
    except ValidationError:
        return  # fields without a default, which the run config gives
    binding = asset.bound(config, graph, ledger.catalogue, None)
    if asset.step.discover is not None:
        refuse_around_quarantine(ledger, binding)
    if refused := refused_columns(ledger, binding):
        raise DeclarationError(refused)
    refuse_columns, refuse_types = asset.step.refuse_columns, asset.step.refuse_types
    if (refuse_columns or refuse_types) and (read := _columns(asset, graph, ledger)) is not None:
        if refuse_columns is not None:
            refuse_columns({name: frozenset(columns) for name, columns in read.items()})
        if refuse_types is not None:
            refuse_types(read)
    settings = config_json(config)
    computed = ledger.places(asset.tables[0]).values()
    if computed and all(row.config == settings for row in computed):
        return
    if asset.upkeep is not None and asset.upkeep.refuse is not None:
        asset.upkeep.refuse(ledger.catalogue)
    if asset.step.refuse is not None and not any(f'"{name}@' in settings for name in trained):
        asset.step.refuse(config)


def _columns(asset: LakeAsset, graph: BaseAssetGraph[Any], ledger: Ledger) -> dict[str, dict[str, str]] | None:
    """Types of the columns of each input of a step, as declared, else as they are; None where one is not known yet."""
    columns = {}
    for name, source in asset.inputs.items():
        of_tables = []
        for identifier in tables_of(source):
            declaring, table = declared_asset(graph, identifier), ledger.table(identifier)
            if declaring is not None:
                of_tables.append({column.name: column.type for column in declaring.declared(identifier).columns})
            elif table is not None:
                types = {field.name: str(field.field_type) for field in table.schema().fields}
                of_tables.append({name: kind for name, kind in types.items() if name != INCREMENT.name})
            else:
                return None
        # Of several tables a step reads their union.
        common = set.intersection(*map(set, of_tables)) if of_tables else set()
        columns[name] = {column: of_tables[0][column] for column in common}
    return columns
