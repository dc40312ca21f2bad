"""Whether files, all read again for a change of config or code, came out otherwise than before.

Where nothing did, no increment is made of them: all that is computed from a dataset would get an empty one.
"""

from __future__ import annotations

from typing import Final

from spark_jobs.spark_sql import DataFrame, F

# By table: what its rows are about, and what of them is compared. Sentences of refusals are not, nor
# what is counted, nor the config of the source, which gets fields with each version.
_COMPARED: Final = {
    "repositories": (
        "repository",
        ("revision", "version", "licence", "home_page", "fork_of", "topics", "dependencies", "map_entries(metadata)"),
    ),
    "provenance": ("'dataset'", ("licence", "licence_evidence", "collected_by")),
    "arrivals": (
        "location",
        (
            "repository",
            "path",
            "content_sha256",
            "object",
            "byte_count",
            "modified",
            "CASE WHEN status IN ('landed', 'returned') THEN 'unchanged' ELSE status END",
            "reason",
        ),
    ),
}


def news(table: str, rows: DataFrame, increment: int) -> DataFrame:
    """What an increment says that the newest earlier rows about the same do not; at least a row for each such fact.

    Args:
        table: name of a table of `documents`.
        rows: all rows of the table, of that increment and of earlier ones.
        increment: the newest one.
    """
    if table not in _COMPARED:
        return rows.where(F.col("increment") == increment)
    about, compared = _COMPARED[table]
    facts = rows.select(
        F.col("increment"),
        F.expr(about).alias("about"),
        F.to_json(F.struct(*(F.expr(text).alias(f"fact_{at}") for at, text in enumerate(compared)))).alias("facts"),
    )
    newest = facts.where(F.col("increment") < increment).groupBy("about").agg(F.max("increment").alias("increment"))
    before = facts.join(newest, ["about", "increment"]).select("about", "facts")
    return facts.where(F.col("increment") == increment).select("about", "facts").exceptAll(before)
