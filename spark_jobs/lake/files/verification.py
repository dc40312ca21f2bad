"""Verification: the rows of a table are read once more, and their data versions compared with the ledger's.

A difference is what another program did: files replaced or lost, rows written, bits flipped. A version of the former
form `v1` is made again by the engine, and what it differs from is damage only where this engine is bound to make it
equal: where no value is nested, or this engine wrote the rows. Else the rows are not judged. Their version of today's
form is then put beside the former one, in a property of the table, and judges them from there on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from headrace.tables.catalogue import commit
from spark_jobs.exceptions import StepRunError
from spark_jobs.lake.engine.choice import SAIL, SPARK
from spark_jobs.lake.engine.embedded import is_embedded
from spark_jobs.lake.files.rows import table_rows
from spark_jobs.lake.ledger.data_version import FORM, FORMER, DataVersion
from spark_jobs.lake.ledger.digests import digest, digests
from spark_jobs.lake.ledger.former_version import former_digests, is_of_engine
from spark_jobs.lake.ledger.lease import table_leases
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.materialization import Materialization
from spark_jobs.lake.session.spark_errors import failure_line
from spark_jobs.spark_sql import DataFrame, SparkSession

RESTATED_PROPERTY = "headrace.restated-versions"
_WHOLE = ""  # the place that stands for all of a table without increments
_LEASE_SECONDS = 5.0


@dataclass(frozen=True)
class Recount:
    """What reading a table again gave, by increment, or at the place "" for all of a table without increments.

    Attributes:
        changed: the version of today where it differs from the ledger's, or nobody recorded one.
        unjudged: the engines of rows this engine cannot judge.
        restated: former versions and those of today of rows as recorded, or not judged.
    """

    changed: Mapping[str, DataVersion]
    unjudged: Mapping[str, str]
    restated: Mapping[str, tuple[DataVersion, DataVersion]]


def recount(
    spark: SparkSession, identifier: str, table: IcebergTable, places: Mapping[str, Materialization]
) -> Recount:
    """Read all rows of a table, and compare their data versions with those of its rows of the ledger.

    Raises:
        StepRunError: a data file cannot be read; the message names it.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return _recount(spark, identifier, table, places)
    except (PySparkException, Py4JError, OSError) as error:
        raise StepRunError(f"{identifier}: {failure_line(error)}") from error


def _recount(
    spark: SparkSession, identifier: str, table: IcebergTable, places: Mapping[str, Materialization]
) -> Recount:
    rows, by_increment = table_rows(spark, identifier), "increment" in table.schema().column_names
    counted = {str(n): version for n, version in digests(rows).items()} if by_increment else {_WHOLE: digest(rows)}
    recorded = {place: row.data_version for place, row in places.items()}
    expected = recorded if by_increment else {_WHOLE: sum(recorded.values(), DataVersion())}
    changed = {place: version for place, version in counted.items() if by_increment and place not in expected}
    former: dict[str, DataVersion] = {}
    beside = restated_versions(table)
    for place, version in expected.items():
        there, wanted = counted.get(place, DataVersion()), beside.get((place, version), version)
        if there.count != wanted.count or (wanted.form == FORM and there != wanted):
            changed[place] = there
        elif wanted.form != FORM and there.count:
            former[place] = version
    unlike = _unlike(rows, table, former, by_increment)
    writers = {place: _engines([places[place]] if by_increment else places.values()) for place in unlike}
    this, depends = SAIL if is_embedded(spark) else SPARK, bool(unlike) and is_of_engine(rows)
    bound = {place for place in unlike if former[place].form == FORMER and (writers[place] == this or not depends)}
    return Recount(
        changed | {place: counted[place] for place in bound},
        {place: writers[place] for place in unlike if place not in bound},
        {place: (version, counted[place]) for place, version in former.items() if place not in bound},
    )


def _engines(rows: Iterable[Materialization]) -> str:
    return " and ".join(sorted({row.engine or "an engine that is not on record" for row in rows}))


def _unlike(rows: DataFrame, table: IcebergTable, former: Mapping[str, DataVersion], by_increment: bool) -> list[str]:
    """Places whose version of the former form, as this engine makes it, is another one; whatever columns came later."""
    left = dict(former)
    schemas = (table.schema(), *reversed(table.metadata.schemas))
    for names in dict.fromkeys(tuple(field.name for field in schema.fields) for schema in schemas):
        if left and set(names) <= set(rows.columns):  # a column that was dropped cannot be hashed again
            chosen = rows.where(rows["increment"].isin(*map(int, left))) if by_increment else rows
            again = former_digests(chosen.select(*names), by_increment)
            left = {place: version for place, version in left.items() if again.get(place) != version}
    return list(left)


def restated_versions(table: IcebergTable) -> dict[tuple[str, DataVersion], DataVersion]:
    """Versions of today's form beside former ones, by place and former version."""
    texts: Mapping[str, list[str]] = json.loads(table.properties.get(RESTATED_PROPERTY, "{}"))
    return {
        (place, DataVersion.parse(former)): DataVersion.parse(version) for place, (former, version) in texts.items()
    }


def restate(ledger: Ledger, identifier: str, restated: Mapping[str, tuple[DataVersion, DataVersion]]) -> None:
    """Put versions of today's form beside former ones, for later readings of the tables.

    Raises:
        LeaseError: somebody writes the table.
    """

    def updates(table: IcebergTable) -> tuple[Any, ...]:
        texts = json.loads(table.properties.get(RESTATED_PROPERTY, "{}"))
        texts |= {place: [str(former), str(version)] for place, (former, version) in restated.items()}
        return (SetPropertiesUpdate(updates={RESTATED_PROPERTY: json.dumps(texts)}),)

    with table_leases(ledger.catalogue, [identifier], _LEASE_SECONDS):
        commit(ledger.catalogue, identifier, lambda table: (AssertTableUUID(uuid=table.metadata.table_uuid),), updates)
