r"""The config of a dataset written by a model: documents of another dataset or corpus, rephrased.

source:
  kind: generated
  parents: {dataset: notes}                       # what its policy keeps; or {corpus: main}, its survivors
  templates: [questions, {name: rhyme, user: "Write it in verse: {text}"}]
  endpoint: {url: http://127.0.0.1:8000/v1, model: my-model}
  accepted: 10_000
  asked_at_most: 20_000
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from headrace_features.synthetic.execution_config import ProgramExecution
from spark_jobs.exceptions import did_you_mean
from spark_jobs.sources.config.declared import NO_ROWS, Declared, WithoutSecrets
from spark_jobs.sources.config.paged_source import PagedSource, Variable

_NAME = r"^[a-z][a-z0-9_]{0,40}$"
ABSENT: Final = "absent"  # in `also_whole`: an answer that names no reason for its end
_SEEDS: Final = ("seed", "random_seed")  # fields of a request that endpoints have for it
BEGIN_TEXT: Final = "\n\n----- the text begins -----\n"  # around a text that a judge is asked about
END_TEXT: Final = "\n----- the text ends -----\n\n"
_SYSTEM: Final = "You rewrite texts for training. Use only what the text says. Answer in the language of the text."
# The kinds of tasks are those of Nemotron-CC (Su et al. 2024, arXiv 2412.02595); the wording is our own.
_OWN: Final = {
    "questions": "Write up to eight questions of different kinds about the text below, each followed by its answer. "
    "Begin each question with 'Q: ' and each answer with 'A: '.",
    "distil": "Rewrite the text below in half of its length. Keep every fact and figure; leave out what says nothing.",
    "knowledge": "Write down the knowledge in the text below as complete sentences that can be understood without it. "
    "Leave out opinions, advertisements and what concerns only this text.",
    "list": "Write the information of the text below as a list of short points in order, with headings where needed.",
    "simple": "Rewrite the text below in plain short sentences that a twelve-year-old can follow.",
    "formal": "Rewrite the text below in the style of an encyclopedia.",
}


class PromptTemplate(Declared):
    """The question to a model about a text, and the form of its answer."""

    name: str = Field(pattern=_NAME, description="first part of its documents' paths")
    user: str = Field(description="the message; {text} stands for the text of the parent")
    system: str = Field("", description="the message before it; empty for none")
    prefix: str = Field("", description="how a usable answer begins, white space left out; it is not part of the text")
    answer_schema: dict[str, object] | None = Field(None, description="JSON schema of the answer, checked here")

    @field_validator("answer_schema")
    @classmethod
    def _is_a_schema(cls, schema: dict[str, object] | None) -> dict[str, object] | None:
        """Refuse what is no JSON schema, before an answer is paid for; references lead to parts of itself."""
        if schema is None or find_spec("jsonschema") is None:
            return schema
        from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]
        from referencing import Registry
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import DRAFT202012

        try:
            Draft202012Validator.check_schema(schema)
            inside = Registry[Any]().resolver_with_root(DRAFT202012.create_resource(schema))
            for reference in _references(schema):
                inside.lookup(reference)
        except SchemaError as error:
            raise ValueError(f"no JSON schema: {error.json_path}: {error.message}") from error
        except Unresolvable as error:
            raise ValueError(f"$ref {error.ref!r} is not in the schema; write it below $defs") from error
        return schema

    @model_validator(mode="after")
    def _holds_the_text(self) -> PromptTemplate:
        """Refuse a template with the same question whatever the text."""
        if "{text}" not in self.user:
            raise ValueError(f"template {self.name}: user has no {{text}}, where the parent's text goes")
        return self


def _references(schema: object) -> Iterator[str]:
    """Every `$ref` in a JSON schema, at any depth."""
    if isinstance(schema, dict) and isinstance(to := schema.get("$ref"), str):
        yield to
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for part in parts:
        yield from _references(part)


def template_of(template: str | PromptTemplate) -> PromptTemplate:
    """The template of a name, one of headrace's own; a template of the user's as it is.

    Raises:
        ValueError: headrace has none of this name.
    """
    if isinstance(template, PromptTemplate):
        return template
    if template not in _OWN:
        raise ValueError(
            f"templates: there is no {template!r}{did_you_mean(template, _OWN)}; write {{name: .., user: ..}}"
        )
    return PromptTemplate(name=template, system=_SYSTEM, user=f"{_OWN[template]}\n\n{{text}}", prefix="")


class Parents(Declared):
    """The documents of the questions to a model, or of executed code."""

    dataset: str | None = Field(None, pattern=_NAME, description="a dataset, of which what its policy keeps is taken")
    corpus: str | None = Field(None, pattern=_NAME, description="instead of a dataset: a corpus, with its survivors")

    @model_validator(mode="after")
    def _one_of_them(self) -> Parents:
        """Require exactly one of dataset and corpus."""
        if (self.dataset is None) == (self.corpus is None):
            raise ValueError("parents: name a dataset or a corpus, one of them")
        return self

    @property
    def table(self) -> str:
        """The table of these documents."""
        return f"{self.dataset}.verdicts" if self.dataset is not None else f"{self.corpus}.survivors"


class ModelEndpoint(WithoutSecrets):
    """An endpoint with OpenAI's protocol for chat completions, and the name of its model."""

    url: str = Field(pattern=r"^https?://", description="its address, up to and with /v1")
    model: str = Field(min_length=1, description="name of the model")
    key: Variable | None = Field(None, description="environment variable that holds the key")
    answer_tokens: int = Field(1024, ge=1, description="most tokens of an answer")
    limit_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="field of the request that has answer_tokens"
    )
    reads_characters: int = Field(
        12_000, ge=100, description="characters that the model reads; longer parents are cut at paragraphs"
    )
    temperature: float = Field(0.7, ge=0, le=2, description="sampling temperature")
    more: dict[str, object] = Field(default_factory=dict, description="further fields of each request, e.g. top_p")
    also_whole: tuple[str, ...] = Field(
        (), description="further words (finish_reason) for whole answers; absent: the endpoint names none",
        json_schema_extra=NO_ROWS,
    )  # fmt: skip

    @field_validator("more")
    @classmethod
    def _keeps_the_form(cls, body: dict[str, object]) -> dict[str, object]:
        """Refuse fields declared elsewhere, and those making answers of an unread form."""
        settings = {"model": "endpoint.model", "max_tokens": "endpoint.answer_tokens", "n": "samples"}
        settings |= {"max_completion_tokens": "endpoint.limit_field"}
        settings |= {"temperature": "endpoint.temperature", "messages": "templates", "response_format": "answer_schema"}
        for name in body.keys() & settings.keys():
            raise ValueError(f"more: {name} is not sent from here; declare {settings[name]}")
        if body.get("stream"):
            raise ValueError("more: answers that stream are not read; leave out stream")
        for name in _SEEDS:
            if name in body and type(body[name]) is not int:
                raise ValueError(f"more: {name} is {body[name]!r}; write a whole number, to which samples add theirs")
        return body

    def fields_of(self, sample: int) -> dict[str, object]:
        """The further fields of a request for a sample, by its number; each sample has a seed of its own."""
        seeds = {name: seed + sample for name in _SEEDS if isinstance(seed := self.more.get(name), int)}
        return {**self.more, **seeds}


class Budget(Declared):
    """What a dataset may cost, over all its runs: reserved before a request is sent, then corrected by its usage."""

    tokens: int | None = Field(None, ge=1, description="most tokens of prompts and answers together")
    money: float | None = Field(None, gt=0, description="most money, in the currency of the prices")
    price_in: float | None = Field(None, ge=0, description="price of a million tokens of prompts")
    price_out: float | None = Field(None, ge=0, description="price of a million tokens of answers")

    @model_validator(mode="after")
    def _has_prices(self) -> Budget:
        """Refuse a bound in money without prices: nothing is guessed."""
        if self.money is not None and (self.price_in is None or self.price_out is None):
            raise ValueError("budget: money needs price_in and price_out, of a million tokens each")
        return self

    def price(self, tokens_in: float, tokens_out: float) -> float | None:
        """What tokens cost by the prices; None without prices."""
        if self.price_in is None or self.price_out is None:
            return None
        return (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6


class Asking(Declared):
    """How hard the endpoint is asked."""

    at_once: int = Field(64, ge=1, le=4096, description="most requests in flight")
    requests_a_minute: float = Field(math.inf, gt=0, description="most requests sent in a minute")
    answer_seconds: float = Field(600, gt=0, description="longest wait for a whole answer, to its last byte")
    attempts: int = Field(5, ge=1, description="most attempts at a request, without those that it lets wait")
    backoff_seconds: float = Field(1, gt=0, description="longest wait after the first fault; twice that after the next")
    silence_seconds: float = Field(
        300, gt=0, description="longest time without a success; then the run stops and says why"
    )
    run_minutes: float = Field(math.inf, gt=0, description="longest run; what came by then lands, the next run goes on")
    priority: int = Field(0, description="workers of several datasets take tasks of a higher one first")


class GeneratedSource(PagedSource):
    """Answers of a model about documents of the lake; docs/prepare/generated.md."""

    kind: Literal["generated"] = "generated"
    text_column: str = Field("text", pattern="^text$", description="the answer; there is no other")
    id_column: str = Field("key", pattern="^key$", description="the request's key; there is no other")
    unknown_fields: Literal["ignore", "metadata"] = "metadata"
    parents: Parents = Field(description="which documents are asked about: {dataset: NAME} or {corpus: NAME}")
    templates: tuple[str | PromptTemplate, ...] = Field(
        min_length=1,
        description="names of headrace's (questions, distil, knowledge, list, simple, formal), or one's own: "
        "{name: .., user: '.. {text}'}",
    )
    endpoint: ModelEndpoint = Field(description="who answers")
    samples: int = Field(1, ge=1, description="answers to each parent and template")
    accepted: int | None = Field(
        None, ge=1, description="answers that are wanted; without it one to each parent, template and sample",
        json_schema_extra=NO_ROWS,
    )  # fmt: skip
    asked_at_most: int | None = Field(
        None, ge=1, description="most requests that are made for them", json_schema_extra=NO_ROWS
    )
    seed: int = Field(0, description="seed of the order in which parents are asked about")
    served: Literal["one", "any"] = Field(
        "one", description="whose answers an increment has: those of one model and fingerprint, or of all that answer",
        json_schema_extra=NO_ROWS,
    )  # fmt: skip
    on_cut: Literal["drop", "raise_limit_once", "keep"] = Field(
        "drop", description="what becomes of an answer that reached answer_tokens"
    )
    max_copied: float = Field(0.8, ge=0, le=1, description="largest share of an answer's runs of 8 words in its parent")
    max_longer: float = Field(5, gt=0, description="how many times as long as its parent an answer may be")
    execute: ProgramExecution | None = Field(
        None, description="execute the code of answers and let the model go on; the document is the whole conversation",
        json_schema_extra=NO_ROWS,
    )  # fmt: skip
    budget: Budget = Field(Budget(), description="what the answers may cost", json_schema_extra=NO_ROWS)
    asking: Asking = Field(Asking(), description="how hard the endpoint is asked", json_schema_extra=NO_ROWS)

    @model_validator(mode="after")
    def _templates_are_known(self) -> GeneratedSource:
        """Refuse a name of no template of headrace's, and two templates of one name."""
        names = Counter(template_of(template).name for template in self.templates)
        if twice := [name for name, count in names.items() if count > 1]:
            raise ValueError(f"templates: {twice[0]} is there twice; name one of them otherwise")
        return self

    @model_validator(mode="after")
    def _samples_differ(self) -> GeneratedSource:
        """Refuse several samples where the model is to give its likeliest answer, the same each time."""
        endpoint = self.endpoint
        greedy = "temperature: 0" if endpoint.temperature == 0 else "more: {top_k: 1}"
        if self.samples > 1 and (endpoint.temperature == 0 or endpoint.more.get("top_k") == 1):
            raise ValueError(f"samples: {self.samples} answers of endpoint.{greedy} are equal; raise it, or ask once")
        return self

    @model_validator(mode="after")
    def _conversations_end_when_cut(self) -> GeneratedSource:
        """Refuse to go on from a cut answer: what was executed of it would be half a program."""
        if self.execute is not None and self.on_cut != "drop":
            raise ValueError(f"on_cut: {self.on_cut} is not for conversations (execute); raise endpoint.answer_tokens")
        return self

    @property
    def lake_tables(self) -> tuple[str, ...]:
        """The table of the documents asked about; without the right to read it nobody may read the answers."""
        return (self.parents.table,)

    def address(self, endpoint: str) -> str:
        """What the locations of a template's pages of answers begin with."""
        return f"{self.endpoint.url.rstrip('/')}/{self.endpoint.model}/{endpoint}"
