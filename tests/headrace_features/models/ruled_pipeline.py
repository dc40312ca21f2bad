"""A pipeline of spaCy without weights: rules that name phrases, saved as any model is."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path


def ruled_pipeline(folder: Path, phrases: Mapping[str, str]) -> Path:
    """Save a pipeline that finds one phrase for each label; returns its folder."""
    import spacy

    shutil.rmtree(folder, ignore_errors=True)
    pipeline = spacy.blank("en")
    rules = pipeline.add_pipe("entity_ruler")
    rules.add_patterns([{"label": label, "pattern": phrase} for label, phrase in phrases.items()])  # type: ignore[attr-defined]
    pipeline.to_disk(folder)
    return folder
