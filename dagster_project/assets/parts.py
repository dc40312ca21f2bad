"""Parts of features in declarations of datasets and corpora, by their field.

The entry point NAME of the group `parts` makes of the values of a field what stands in the chain of a dataset or
corpus; a field of a missing feature is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import dagster as dg

from dagster_project.exceptions import DefinitionError
from dagster_project.keeping import Keeping
from dagster_project.table_asset import Link, Presentation
from spark_jobs.exceptions import ConfigError
from spark_jobs.lake.declare.step import Step
from spark_jobs.lake.plan.binding import Source
from spark_jobs.plugins import load


def part(name: str, where: str) -> Any:
    """What a feature brings for a field; `where` begins the message.

    Raises:
        DefinitionError: its feature is not there.
    """
    try:
        return load("parts", name, object)
    except ConfigError as error:
        raise DefinitionError(f"{where}: {error}") from error


@dataclass(frozen=True)
class RewrittenTexts:
    """What stands between the texts of documents, then `raw_texts`, and the table `texts`.

    Attributes:
        measures: steps on raw texts, with tables for rules to read, in place of scorers of those names.
        links: the steps from `raw_texts` to `texts`; none where texts are not rewritten.
        judged: tables of `measures` among every policy's inputs.
    """

    measures: tuple[Step, ...] = ()
    links: tuple[Link, ...] = ()
    judged: frozenset[str] = frozenset()


class Intake(Protocol):
    """How documents land, where it is not by the step `documents` alone."""

    def assets(
        self, name: str, intake: Mapping[str, Any], presentation: Presentation, keeping: Keeping
    ) -> list[dg.AssetsDefinition]:
        """The assets up to `NAME.documents`.

        Args:
            name: of the dataset.
            intake: config of the step `documents`.
            presentation: owners, pace, and the dataset's readers.
            keeping: how long what landed is kept.
        """


class MaskedTokens(NamedTuple):
    """The step that gives the tokens of a corpus with masks (`MASKED_TOKENS`), in place of the step `tokens`.

    The part `conversations` makes it of the corpus's name, the mapping of the field, the inputs of the step `tokens`,
    and what names a table of each of its datasets.

    Attributes:
        step: its main table is `tokens`.
        inputs: by parameter.
        config: of the step.
        rules: names of the rules of its masks, where tokens have the column `mask_rule`.
    """

    step: Step
    inputs: Mapping[str, Source]
    config: Mapping[str, Any]
    rules: tuple[str, ...] = ()


class AddedAssets(NamedTuple):
    """Assets of a field, a mapping by name, beside the chain of a dataset.

    Attributes:
        tables: names of the tables of an entry of the mapping.
        assets: makes them of the dataset, the mapping, tables of its scorers, and what it shows; refuses a mistake.
    """

    tables: Callable[[str], tuple[str, ...]]
    assets: Callable[
        [str, Mapping[str, Mapping[str, Any]], Collection[str], Presentation], Iterator[dg.AssetsDefinition]
    ]
