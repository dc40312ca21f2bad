"""The scorer `vectors`: the vector of each text by a sentence encoder of the registry.

    headrace model add mini --from FOLDER --encoder         mini@3f2a90c41d07
    scorers: {vectors: {model: mini@3f2a90c41d07}}          the table <dataset>.vectors_mini

A text without a vector has a reason. The name and version mean the same encoder for good, so vectors stay valid: a
text is encoded once, and again only where another encoder is named. Encoders are large and every text goes through
them, so these rows are kept as any table is; the selection `semantic` reads them.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import Field, field_validator

from spark_jobs.arrays import BoolArray
from spark_jobs.exceptions import InputError
from spark_jobs.filters.scorer import Scorer, scorer
from spark_jobs.lake.declare.step import ConfigModel, renamed
from spark_jobs.lake.declare.tables import Check, Column

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace_features.models.registered import ModelFile

_REFERENCE: Final = re.compile(r"([a-z][a-z0-9_]{0,30})@([A-Za-z0-9._-]+)")
_COLUMNS: Final = (
    Column("vector", "binary", "little-endian int16, of a length of about 2030; null where there is a reason"),
    Column("reason", "string", "why there is no vector: no_known_token, or too_long"),
    Column("encoder!", "string", "SHA-256 of the encoder"),
)


class VectorsConfig(ConfigModel):
    """The encoder, and up to which size texts are encoded."""

    model: str = Field("", validate_default=True, description="NAME@VERSION of an encoder in the registry")
    max_text_bytes: int = Field(
        1 << 18,
        ge=1,
        le=1 << 24,
        description="most bytes of a text; a longer one has no vector, for one of its beginning would mislead",
    )

    @field_validator("model")
    @classmethod
    def _names_an_encoder(cls, reference: str) -> str:
        """Refuse what names no model and version."""
        if not _REFERENCE.fullmatch(reference):
            raise ValueError(
                f"it is {reference!r}; write NAME@VERSION of a sentence encoder: headrace model add NAME --from FOLDER "
                "--encoder says it"
            )
        return reference


def located(config: VectorsConfig) -> tuple[ModelFile, int]:
    """Where workers find the encoder, and the size of a too long text.

    Raises:
        InputError: the registry has no such encoder.
    """
    from headrace.tables.settings import load_settings
    from headrace_features.models.registered import find_models
    from spark_jobs.lake.session.catalogue import open_catalogue

    ((facts, file),) = find_models(open_catalogue(load_settings()), [config.model])
    if facts.format != "encoder":
        raise InputError(f"vectors: {config.model} is a model of format {facts.format}, no sentence encoder")
    return file, config.max_text_bytes


def score(content: pa.Array, file_and_limit: tuple[ModelFile, int]) -> dict[str, pa.Array]:
    """Encode texts into vectors."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from headrace_features.models.registered import load_encoder

    file, most = file_and_limit
    encoder = load_encoder(file)
    short = pc.less_equal(pc.binary_length(content), most)
    vectors = np.zeros((len(content), encoder.dimensions), "<i2")
    rows = np.flatnonzero(short)
    vectors[rows] = encoder.encode(content.filter(short).to_pylist())
    there: BoolArray = np.asarray(vectors.any(axis=1))
    reasons = pc.if_else(short, "no_known_token", "too_long")
    values = [row.tobytes() if has else None for row, has in zip(vectors, there, strict=True)]
    return {
        "vector": pa.array(values, pa.binary()),
        "reason": pc.if_else(pa.array(there), pa.scalar(None, pa.string()), reasons),
        "encoder": pa.array([file.sha256] * len(content), pa.string()),
    }


def with_table(config: VectorsConfig) -> Scorer:
    """The scorer with the table of its encoder's name."""
    name = _REFERENCE.fullmatch(config.model)
    return vectors if name is None else renamed(vectors, f"vectors_{name[1]}")


vectors = dataclasses.replace(
    scorer(
        name="vectors",
        version="3",
        columns=_COLUMNS,
        config=VectorsConfig,
        prepare=located,
        checks=[Check("vector_or_reason", "(vector is null) <> (reason is null)", "what has no vector has a reason")],
    )(score),
    of_config=with_table,
)
