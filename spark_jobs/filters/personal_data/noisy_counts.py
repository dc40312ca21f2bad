"""Counts that may leave the lake: with noise, and without small groups.

Cards and reports say how many documents hold what. Such counts can give a single document away, so they leave with
discrete Laplace noise (Dwork et al. 2006, "Calibrating Noise to Sensitivity in Private Data Analysis"), made by OpenDP,
whose sampling is safe against attacks on floating-point numbers. The noise is drawn anew at each call and has no seed:
who publishes the same counts twice has spent twice the epsilon.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.exceptions import ConfigError, InputError


def noisy_counts(counts: pa.Table, epsilon: float, min_group: int, groups_per_document: int = 1) -> pa.Table:
    """Add noise to the counts of groups, and leave out those that are small after it.

    The guarantee is epsilon-differential privacy for documents if the list of groups itself is no secret (kinds, rules,
    languages); leaving groups out looks at noisy counts alone and spends nothing.

    Args:
        counts: a row for each group, with `count`: int64; the other columns name the group.
        epsilon: of the whole table; half of it means noise twice as wide.
        min_group: lowest noisy count that stays.
        groups_per_document: rows in which one document can be counted.

    Returns:
        The rows that stay, with noisy counts; the schema's metadata states epsilon and min_group.

    Raises:
        InputError: there is no column `count`.
        ConfigError: epsilon, min_group or groups_per_document is not above 0.
    """
    import opendp.prelude as dp

    if "count" not in counts.column_names:
        raise InputError(f"noisy_counts: columns are {', '.join(counts.column_names)}; it needs one named count")
    if min(epsilon, min_group, groups_per_document) <= 0:
        given = f"epsilon {epsilon}, min_group {min_group}, groups_per_document {groups_per_document}"
        raise ConfigError(f"noisy_counts: {given}; all must be above 0")
    dp.enable_features("contrib")
    domain, metric = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l1_distance(T=dp.i64)
    laplace = dp.m.make_laplace(domain, metric, scale=groups_per_document / epsilon)
    exact = counts.column("count").to_pylist()
    noisy = pa.array(laplace(exact) if exact else [], type=pa.int64())
    place = counts.column_names.index("count")
    made = counts.set_column(place, "count", noisy)
    stated = {"epsilon": str(epsilon), "min_group": str(min_group), **(counts.schema.metadata or {})}
    return made.filter(pc.greater_equal(noisy, min_group)).replace_schema_metadata(stated)
