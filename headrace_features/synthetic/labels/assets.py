"""Make the assets of a dataset's judges: the sample, the scores, and how far a judge agrees with itself.

A judge is asked when somebody, or the nightly job, runs its tables, never by a sensor: answers cost. Its answers are
kept in `answers_NAME`, the work of no asset.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import dagster as dg

from dagster_project.assets.parts import AddedAssets
from dagster_project.exceptions import DefinitionError
from dagster_project.run_config import bind_config
from dagster_project.table_asset import Presentation, Upkeep, step_asset
from headrace_features.synthetic.labels.agreement import agreement
from headrace_features.synthetic.labels.answers import ask_judge, lacks_answers
from headrace_features.synthetic.labels.judged import judged
from headrace_features.synthetic.labels.rubric import JudgeConfig
from headrace_features.synthetic.labels.sampled import sampled
from spark_jobs.filters.policy import LANGUAGES
from spark_jobs.lake.declare.step import renamed
from spark_jobs.lake.plan.binding import Source
from spark_jobs.lake.run.materialize import Lake

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,21}")  # a longer one, after that of its dataset, is no key of answers


def label_tables(judge: str) -> tuple[str, ...]:
    """Names of the tables of a judge: sampled, judged, agreement and answers, each with `_NAME`."""
    return tuple(f"{table}_{judge}" for table in ("sampled", "answers", "judged", "agreement"))


def label_assets(
    dataset: str, judges: Mapping[str, Mapping[str, Any]], scored: Collection[str], shown: Presentation
) -> Iterator[dg.AssetsDefinition]:
    """The assets `sampled_NAME`, `judged_NAME` and `agreement_NAME` of each judge.

    Args:
        dataset: of the judged documents.
        judges: config by name.
        scored: tables of the dataset's scorers.
        shown: owners, samples and visibility of the dataset.

    Raises:
        DefinitionError: a name or a value cannot be used; the message names it.
    """
    shown = dataclasses.replace(shown, domain="filters", automation=None)
    for name, values in judges.items():
        if not _NAME.fullmatch(name):
            raise DefinitionError(
                f"dataset {dataset}: judged: {name!r} cannot be part of a table's name; write up to 22 of a-z, 0-9 and "
                "_, a letter first"
            )
        config = bind_config(JudgeConfig, f"dataset {dataset}: judged: {name}", values)
        assert isinstance(config, JudgeConfig)
        _refuse_network(dataset, name, config, shown)
        table = {kind: f"{dataset}.{kind}_{name}" for kind in ("sampled", "answers", "judged")}
        read: dict[str, Source] = {"texts": f"{dataset}.texts", "signals": f"{dataset}.signals"}
        read |= {LANGUAGES: f"{dataset}.{LANGUAGES}"} if LANGUAGES in scored else {}
        read |= {"clusters": f"{config.clusters_of}.clusters"} if config.clusters_of is not None else {}
        lacks = functools.partial(lacks_answers, dataset, name)
        yield step_asset(renamed(sampled, f"sampled_{name}"), dataset, read, config, presentation=shown)
        yield step_asset(
            renamed(judged, f"judged_{name}"),
            dataset,
            {"sampled": table["sampled"], "answers": table["answers"]},
            config,
            presentation=shown,
            upkeep=Upkeep(
                before=functools.partial(_ask, dataset=dataset, name=name, judge=config),
                pending=lacks,
                lands=table["answers"],
            ),
        )
        compared = renamed(agreement, f"agreement_{name}")
        yield step_asset(
            compared,
            dataset,
            {"judged": table["judged"]},
            compared.config(),
            presentation=shown,
            upkeep=Upkeep(pending=lacks),  # for no plan knows what the answers will change
        )


def _ask(lake: Lake, dataset: str, name: str, judge: JudgeConfig) -> None:
    ask_judge(dataset, name, judge, lake.catalogue, lake.wait_seconds)


def _refuse_network(dataset: str, name: str, judge: JudgeConfig, shown: Presentation) -> None:
    """Refuse to send texts bound to the device to another machine.

    Raises:
        DefinitionError: names the endpoint.
    """
    url = judge.endpoint.url
    if shown.visibility.kind == "on_device" and urlsplit(url).hostname not in _LOOPBACK:
        raise DefinitionError(
            f"dataset {dataset}: judged: {name}: endpoint {url} is on the network, and {dataset} is on_device; name an "
            "endpoint of this machine, such as http://127.0.0.1:8000/v1"
        )


JUDGED = AddedAssets(label_tables, label_assets)
