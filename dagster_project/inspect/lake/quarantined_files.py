"""The quarantine of a command's input file, wherever it lies."""

from __future__ import annotations

import os
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from headrace.tables.quarantine import SUFFIX, is_quarantine, quarantine_of_path
from spark_jobs.lake.files.lookups import read_rows
from spark_jobs.lake.files.objects import sha256_of
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.plan.decisions import RELEASE, increments_of
from spark_jobs.lake.session.catalogue import catalogue_errors


def quarantine_of_file(catalogue: Catalog, file: Path) -> str:
    """The quarantine of a file; empty without any.

    It lies in the quarantine's folder of the warehouse (the data files of its tables, what it keeps), or has the bytes
    of a file that landed there in an increment that is not released.
    """
    with catalogue_errors():
        spaces = sorted(space[0] for space in catalogue.list_namespaces() if is_quarantine(space[0]))
        inside = quarantine_of_path(str(catalogue.properties.get("warehouse", "")), [str(file)])
        if inside:
            return next(part for part in Path(os.path.realpath(file)).parts if is_quarantine(part))
        if not spaces or not file.is_file():
            return ""
        with file.open("rb") as stream:
            sha256 = sha256_of(stream)
        ledger = Ledger.fresh(catalogue)
        for space in spaces:
            rows = read_rows(catalogue, f"{space}.arrivals", ("increment",), EqualTo("content_sha256", sha256))
            every = increments_of(ledger, space.removesuffix(SUFFIX))
            waiting = {increment.increment for increment in every if increment.state != RELEASE}
            if waiting & {row["increment"] for row in rows}:
                return space
    return ""
