"""Names in texts, by a model of spaCy or GLiNER named by a dataset: where it is, and its findings as spans.

scorers: {personal_data: {names: {model: people@1, labels: {PERSON: name, GPE: place}}}}
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import Field, field_validator

from headrace_features import require
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import ConfigModel

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace_features.models.name_model import NameModel
    from headrace_features.models.registered import ModelFile
    from headrace_features.privacy.personal_data.find import DetectedSpan

_KIND: Final = re.compile(r"[a-z][a-z_]{0,30}")
RULE: Final = "names"


class NamesConfig(ConfigModel):
    """The model to find names, and what its labels are called."""

    model: str = Field(description="of spaCy or GLiNER: name@version in the registry, or the path of its folder")
    labels: dict[str, str] | None = Field(
        None, description="kind by label of the model, {PERSON: name, GPE: place}; by default people, as name"
    )
    sha256: str = Field("", description="of the folder's model; it is set when the dataset is declared")

    @field_validator("labels")
    @classmethod
    def _kinds_are_names(cls, labels: dict[str, str] | None) -> dict[str, str] | None:
        for label, kind in (labels or {}).items():
            if not _KIND.fullmatch(kind):
                raise ValueError(f"{label}: the kind {kind!r} is no name; write [a-z][a-z_]*, at most 31 letters")
        return labels

    @property
    def is_path(self) -> bool:
        """Whether the model is a folder, not an entry of the registry."""
        return "/" in self.model or self.model.startswith((".", "~"))

    @property
    def kinds(self) -> list[str]:
        """Kinds of personal data added by the model."""
        return sorted({"name"} if self.labels is None else set(self.labels.values()))


def located(config: NamesConfig) -> NamesConfig:
    """Give the config with what its model is identified by, so that another model is another config.

    Raises:
        InputError: there is no such model; the message names the nearest of the registry.
    """
    require("models", "personal_data: names")
    from headrace_features.models.model_file import DIGEST_BYTES
    from headrace_features.models.name_model import pack_name_model

    if not config.is_path:
        _registered(config.model)
        return config
    folder = Path(config.model).expanduser().absolute()
    sha256 = pack_name_model(folder, "names")[-DIGEST_BYTES:].hex()
    return config.model_copy(update={"model": str(folder), "sha256": sha256})


def model_file(config: NamesConfig) -> ModelFile | None:
    """The file of a model of the registry, read by workers; None for a folder, opened by them directly."""
    return None if config.is_path else _registered(config.model)


def read(config: NamesConfig, file: ModelFile | None) -> NameModel:
    """Read a model, once per process."""
    from typing import cast

    from headrace_features.models.name_model import open_name_model
    from headrace_features.models.registered import load_model

    if file is None:
        return open_name_model(Path(config.model), config.sha256)
    return cast("NameModel", load_model(file))


def _registered(reference: str) -> ModelFile:
    """The file of a model of names in the registry.

    Raises:
        InputError: there is none of this name, or it finds no names.
    """
    from headrace.tables.settings import load_settings
    from headrace_features.models.registered import find_models
    from spark_jobs.lake.session.catalogue import open_catalogue

    ((facts, file),) = find_models(open_catalogue(load_settings()), [reference])
    if facts.format != "names":
        raise InputError(f"names: {reference} is a model of format {facts.format}; name one of spaCy or GLiNER")
    return file


def named_spans(
    content: pa.Array, model: NameModel, kinds: dict[str, str], min_confidence: float
) -> list[list[DetectedSpan]]:
    """Find the names of each text.

    Args:
        content: (D,) strings, none of them null.
        model: the model.
        kinds: kind of personal data by label.
        min_confidence: findings below it are left out.

    Returns:
        Spans of each text by start, with the rule `names`.
    """
    from headrace_features.privacy.personal_data.find import DetectedSpan

    spans_of_texts = []
    for text in content.to_pylist():
        spans, at, byte = [], 0, 0
        for name in sorted(model.find(text, tuple(kinds)), key=lambda name: name.start):
            byte += len(text[at : name.start].encode())
            at = name.start
            end = byte + len(text[name.start : name.end].encode())
            if name.confidence >= min_confidence and byte < end:
                spans.append(DetectedSpan(byte, end, kinds[name.label], RULE, name.confidence))
        spans_of_texts.append(spans)
    return spans_of_texts
