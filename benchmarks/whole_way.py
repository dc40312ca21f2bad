"""The whole way from files to packed windows, over one dataset and one corpus, in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from headrace.tables.settings import LakeSettings


def use_lake(folder: Path) -> LakeSettings:
    """Make assets of this process read and write the lake in a folder."""
    from headrace.tables.settings import settings_at

    settings = settings_at(folder)
    for name, value in settings.properties.items():
        os.environ[f"PYICEBERG_CATALOG__LAKE__{name.upper()}"] = value
    return settings


def quiet(steps_at_once: int | None) -> dict[str, Any]:
    """The config of a run that prints nothing."""
    console = {"console": {"config": {"log_level": "CRITICAL"}}}
    return {"loggers": console, "execution": {"config": {"max_concurrent": steps_at_once}}}


def run_whole_way(
    texts: Path,
    lake: Path,
    spark_config: Mapping[str, str] = MappingProxyType({}),
    steps_at_once: int | None = None,
    declared: Mapping[str, Any] = MappingProxyType({}),
) -> Catalog:
    """Bring a new lake from files of JSONL (`text`) to windows; dataset `notes` in two shards, corpus `main`.

    Args:
        texts: folder of the files.
        lake: folder of the lake.
        spark_config: settings of Spark.
        steps_at_once: most steps side by side.
        declared: further attributes of the corpus, as in YAML.
    """
    import dagster as dg

    from dagster_project.assets.corpora import CorpusDeclaration, corpus_assets
    from dagster_project.assets.datasets import DatasetDeclaration, dataset_assets
    from dagster_project.assets.deduplication import Deduplication
    from dagster_project.definitions import build
    from dagster_project.executor import run_here
    from dagster_project.resources import LakeResource
    from spark_jobs.lake.session.catalogue import open_catalogue

    lake.mkdir()
    settings = use_lake(lake)
    source = {"kind": "files", "path": str(texts), "text_column": "text"}
    dataset = DatasetDeclaration(name="notes", source=source, shards=2)
    further = {**declared, "deduplication": Deduplication(**declared.get("deduplication", {}))}
    tokenizer = {"train": {"vocabulary_size": 8192, "sample_bytes": 20_000_000}}
    corpus = CorpusDeclaration(name="main", datasets=("notes",), tokenizer=tokenizer, **further)
    assets = dg.Definitions(assets=[*dataset_assets(dataset), *corpus_assets(corpus)])
    with dg.DagsterInstance.ephemeral() as instance:
        job = build(assets, LakeResource(spark_config=dict(spark_config))).resolve_job_def("everything")
        result = run_here(job, instance, quiet(steps_at_once))
    assert result.success
    return open_catalogue(settings)
