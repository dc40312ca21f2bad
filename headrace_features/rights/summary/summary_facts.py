"""What people state for the public summary of training content: one YAML file, checked before anything is counted.

    provider: {name: Mill GmbH, contact: rights@mill.example}
    model: {name: mill-7b@1, placed: 2026-10-01}
    content: prose and source code
    datasets:
      web: {section: crawled, crawler: MillBot, purpose: training, behaviour: keeps to robots.txt}
      fineweb: {section: public, title: FineWeb, link: https://huggingface.co/datasets/HuggingFaceFW/fineweb}

Whatever a lake knows is not stated here, and whatever is stated neither here nor known is listed as missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dagster_project.exceptions import CommandError
from dagster_project.project.diagnosis import read_yaml
from dagster_project.run_config import refusal
from spark_jobs.exceptions import nearest

Section = Literal["public", "licensed", "private", "crawled", "user", "synthetic", "other"]
KNOWN_SECTIONS: Final[Mapping[str, Section]] = {"hub": "public", "generated": "synthetic", "executed": "synthetic"}
"""Sections of kinds of sources that can be nothing else; of all others people have to say what the data is."""


class _Stated(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Named(_Stated):
    """Something with a name and, where it has one, a link."""

    name: str
    link: str = ""


class Provider(_Stated):
    """Who places the model on the market (1.1)."""

    name: str = ""
    contact: str = ""
    representative: str = Field("", description="authorised representative and contact; `none` where the law asks none")


class Model(_Stated):
    """The model (1.2)."""

    name: str = Field("", description="versioned name or names")
    dependencies: tuple[Named, ...] | None = Field(None, description="models that it was made from; [] for none")
    placed: date | None = Field(None, description="day of its placing on the Union market")


class DatasetFacts(_Stated):
    """What people say of one dataset."""

    section: Section | None = Field(None, description="which part of section 2 it belongs to")
    title: str = Field("", description="its public name")
    link: str = ""
    description: str = ""
    publicly_known: bool | None = Field(None, description="of private data: whether it may be named")
    crawler: str = Field("", description="name or identifier of the crawler")
    purpose: str = Field("", description="of the crawler")
    behaviour: str = Field("", description="of the crawler: robots.txt, captchas, paywalls")
    interactions: bool | None = Field(None, description="of user data: from users' interactions with the model")
    services: str = Field("", description="of user data: the provider's other services that it is from")
    models: tuple[Named, ...] = Field((), description="of synthetic data: generating models, with links")


class OptOuts(_Stated):
    """Measures on reservations of rights (3.1), beside what the lake records."""

    signatory: bool | None = Field(None, description="of the Code of Practice, which commits to keep to reservations")
    measures: str = ""


class SummaryFacts(_Stated):
    """All that people state."""

    version: str = Field("", description="of the summary")
    provider: Provider = Provider()
    model: Model = Model()
    small_firm: bool | None = Field(None, description="an SME, start-up included: a shorter list of domains is due")
    content: str = Field("", description="types of content of the text")
    languages: str = Field("", description="natural languages, where no dataset has them measured")
    other_modalities: str = Field("", description="images, sound, video that the model saw; `none` where it saw none")
    characteristics: str = Field("", description="other characteristics of the data")
    datasets: dict[str, DatasetFacts] = Field(default_factory=dict)
    user_data: str = Field("", description="`none` where no data of users was used")
    opt_outs: OptOuts = OptOuts()
    illegal_content: str = Field("", description="measures against illegal content")
    other: str = Field("", description="anything else on the processing of data")


def read_facts(file: Path | None) -> SummaryFacts:
    """The facts of a file; nothing is stated where there is none.

    Raises:
        CommandError: it is no such file; the message names the field.
    """
    if file is None:
        return SummaryFacts()
    try:
        return SummaryFacts.model_validate(read_yaml(file) or {})
    except ValidationError as error:
        raise CommandError(f"{file}: {refusal(error, SummaryFacts)}") from error


def check_datasets(facts: SummaryFacts, there: Collection[str]) -> None:
    """Refuse facts of datasets that a lake does not have: a name with a typo would be left out unseen.

    Raises:
        CommandError: there is one.
    """
    for name in sorted(facts.datasets.keys() - set(there)):
        raise CommandError(f"facts: datasets.{name}: the lake has no such dataset{nearest(name, there)}")
