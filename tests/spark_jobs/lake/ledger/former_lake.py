"""Tables of lakes from before: what the ledger says of them gets data versions of the form `v1`."""

from __future__ import annotations

import dataclasses

from spark_jobs.lake.files.rows import table_rows
from spark_jobs.lake.ledger.data_version import FORMER, DataVersion
from spark_jobs.lake.ledger.former_version import former_digests
from spark_jobs.lake.run.materialize import Lake


def age(lake: Lake, identifier: str, engine: str | None = None, off: int = 0) -> None:
    """Record the increments of a table with the versions that this engine's `v1` gives them.

    Args:
        lake: of the table.
        identifier: the table.
        engine: that the ledger shall name; as it is by default.
        off: what is added to the sums, as the JSON of another engine would.
    """
    versions = former_digests(table_rows(lake.session(), identifier), by_increment=True)
    rows = []
    for place, row in lake.ledger.places(identifier).items():
        version = versions.get(place, DataVersion(form=FORMER))
        changed = dataclasses.replace(version, sum=version.sum + off)
        rows.append(dataclasses.replace(row, data_version=changed, engine=engine or row.engine))
    lake.ledger.record(rows)
    lake.ledger.refresh()
