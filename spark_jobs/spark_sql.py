"""The names of Spark that steps are written with: `F`, the functions of columns, and types for annotations.

pyspark is imported at the first use of `F`, so that definitions load in seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import functions as F
else:
    Column = DataFrame = SparkSession = Any

    class _Functions:
        def __getattr__(self, name: str) -> Any:
            from pyspark.sql import functions

            return getattr(functions, name)

    F = _Functions()

__all__ = ["Column", "DataFrame", "F", "SparkSession"]
