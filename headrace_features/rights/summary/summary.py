"""The public summary of training content: the fields of the Commission's template for Art. 53(1)(d) of the AI Act.

Sections and numbers are those of the template of 24 July 2025. A value is counted in the lake, stated by people
(`summary_facts`), or missing, and then it is listed; nothing is inferred: a dataset belongs to the part of section 2
that somebody says, but for what can be nothing else, and a question is answered no only where every dataset has a part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo

from dagster_project.inspect.lake.corpus_facts import landed_source, namespaces_with
from headrace_features.rights.register.register import entries
from headrace_features.rights.summary.summary_counts import Counts
from headrace_features.rights.summary.summary_facts import (
    KNOWN_SECTIONS,
    DatasetFacts,
    Section,
    SummaryFacts,
    check_datasets,
)
from headrace_features.rights.summary.summary_fields import Part, Summary, Value, missing, rows_of, stated, yes_or_no
from spark_jobs.lake.files.lookups import read_columns, read_rows
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.ledger.ledger_table import LEDGER

_LARGE: Final = 0.03  # share of all public datasets from which one is named (2.1)
_RANGES: Final = ((10**9, "less than 1 billion tokens"), (10**13, "1 billion to 10 trillion tokens"))
_MOST: Final = "more than 10 trillion tokens"
_SMALL_FIRM_DOMAINS: Final = 1_000
_SCREENS: Final = {"scans": "malware and secrets", "personal_data": "personal data", "profanity": "profanity"}
_SHOWN_LANGUAGES: Final = 40


def size_range(tokens: int) -> str:
    """The template's range of a count of tokens."""
    return next((name for below, name in _RANGES if tokens < below), _MOST)


def build(catalogue: Catalog, counts: Counts, facts: SummaryFacts) -> Summary:
    """Fill the template in; facts of datasets that are not there stop it (`CommandError`)."""
    check_datasets(facts, namespaces_with(catalogue, "documents"))
    builder = _Builder(catalogue, counts, facts)
    parts = (
        Part("1.1", "Provider identification", tuple(builder.provider())),
        Part("1.2", "Model identification", tuple(builder.model())),
        Part("1.3", "Modalities, overall training data size and other characteristics", tuple(builder.size())),
        Part("2.1", "Publicly available datasets", tuple(builder.public())),
        Part("2.2.1", "Datasets commercially licensed by rightsholders", tuple(builder.private("licensed"))),
        Part("2.2.2", "Private datasets obtained from other third parties", tuple(builder.private("private"))),
        Part("2.3", "Data crawled and scraped from online sources", tuple(builder.crawled())),
        Part("2.4", "User data", tuple(builder.user())),
        Part("2.5", "Synthetic data", tuple(builder.synthetic())),
        Part("2.6", "Other sources of data", tuple(builder.private("other"))),
        Part("3.1", "Respect of reservations of rights", tuple(builder.opt_outs())),
        Part("3.2", "Removal of illegal content", tuple(builder.illegal())),
        Part("3.3", "Other information", tuple(builder.other())),
    )
    return Summary(counts.subject, facts.version, parts)


@dataclass(frozen=True)
class _Builder:
    catalogue: Catalog
    counts: Counts
    facts: SummaryFacts

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger.fresh(self.catalogue)

    @cached_property
    def datasets(self) -> list[str]:
        """Datasets with a counted document, the most tokens first."""
        return [str(name) for name, *_ in self.counts.by("dataset")]

    @cached_property
    def sources(self) -> Mapping[str, Mapping[str, Any]]:
        """The source of each, as its newest increment was landed with."""
        return {name: landed_source(self.ledger, name) for name in self.datasets}

    @cached_property
    def sections(self) -> Mapping[str, Section | None]:
        """The part of section 2 that each belongs to; None where nobody says."""
        return {
            name: self.stated(name).section or KNOWN_SECTIONS.get(str(self.sources[name].get("kind")))
            for name in self.datasets
        }

    def stated(self, name: str) -> DatasetFacts:
        return self.facts.datasets.get(name, DatasetFacts())

    def of(self, section: Section) -> list[str]:
        return [name for name, part in self.sections.items() if part == section]

    def provider(self) -> Iterator[Value]:
        provider = self.facts.provider
        yield stated("Provider name", provider.name, "provider.name")
        yield stated("Contact details", provider.contact, "provider.contact")
        yield stated("Authorised representative", provider.representative, "provider.representative (or `none`)")

    def model(self) -> Iterator[Value]:
        model = self.facts.model
        yield stated("Versioned model name(s)", model.name, "model.name")
        if model.dependencies is None:
            yield missing("Model dependencies", "model.dependencies ([] for none)")
        else:
            named = [dependency.model_dump() for dependency in model.dependencies]
            yield Value("Model dependencies", named or "none", "stated")
        placed = model.placed.isoformat() if model.placed else ""
        yield stated("Date of placement on the Union market", placed, "model.placed")

    def size(self) -> Iterator[Value]:
        rows, counts = self.counts.documents, self.counts
        tokens = int(pc.sum(rows["tokens"]).as_py() or 0)
        text = (
            f"{size_range(tokens)}: {tokens:,} tokens of {rows.num_rows:,} documents, of the tokenizer that they were "
            f"packed with; {counts.tokens_read:,} with repeats"
        )
        yield Value("Text: training data size", text, "lake")
        if counts.unknown_tokens:
            gone = f"{counts.unknown_tokens:,} tokens read are of datasets that are not in the lake any more"
            yield Value("Text: left out of this summary", gone, "lake")
        yield stated("Text: types of content", self.facts.content, "content")
        yield Value("Text: kinds of documents", rows_of(counts.by("kind"), "kind"), "lake")
        yield stated("Image, audio, video", self.facts.other_modalities, "other_modalities (or `none`)")
        latest = self.latest_acquisition()
        yield (
            Value("Latest date of data acquisition", latest, "lake")
            if latest
            else missing("Latest date of data acquisition", "land the datasets again: the ledger has no row of them")
        )
        yield self.languages()
        code = self.counts.by("language", of=rows.filter(pc.equal(rows["kind"], "code")))
        if code:
            yield Value("Programming languages", rows_of(code, "language")[:_SHOWN_LANGUAGES], "lake")
        yield Value("Licences", rows_of(counts.by("licence"), "licence")[:_SHOWN_LANGUAGES], "lake")
        if self.facts.characteristics:
            yield Value("Other characteristics", self.facts.characteristics, "stated")

    def latest_acquisition(self) -> str:
        """Month of the newest increment with a counted document."""
        landed = []
        groups = self.counts.documents.group_by("dataset").aggregate([("increment", "max")]).to_pylist()
        for row in groups:
            place = And(EqualTo("table", f"{row['dataset']}.documents"), EqualTo("place", str(row["increment_max"])))
            times = [landing["recorded_at"] for landing in read_rows(self.catalogue, LEDGER, ("recorded_at",), place)]
            landed += [min(times)] if times else []  # later rows are of the same documents, computed anew
        return f"{max(landed):%m/%Y}" if landed else ""

    def languages(self) -> Value:
        """Natural languages by tokens, of what is no code; what was not measured is told."""
        rows = self.counts.documents
        prose = rows.filter(pc.not_equal(rows["kind"], "code"))
        groups = [row for row in self.counts.by("natural", of=prose) if row[0] is not None]
        if prose.num_rows and not groups:
            if self.facts.languages:
                return Value("Natural languages", self.facts.languages, "stated")
            return missing(
                "Natural languages", "languages, or run `languages` of the datasets (headrace run DATASET.languages)"
            )
        listed = rows_of(groups, "language")[:_SHOWN_LANGUAGES]
        unmeasured = prose.filter(pc.is_null(prose["natural"]))
        if unmeasured.num_rows:
            tokens = int(pc.sum(unmeasured["tokens"]).as_py())
            listed.append({"language": "not measured", "documents": unmeasured.num_rows, "tokens": tokens})
        return Value("Natural languages", listed or "no document that is not code", "lake")

    def used(self, *sections: Section) -> Value:
        """Whether data of a kind was used; no only where every dataset is of a stated kind."""
        names = [name for section in sections for name in self.of(section)]
        if names:
            return Value("Used", "yes", "lake")
        unknown = [name for name, section in self.sections.items() if section is None]
        if unknown:
            some = ", ".join(unknown[:5]) + (", .." if len(unknown) > 5 else "")
            return missing("Used", f"datasets.NAME.section of {some}")
        if gone := self.counts.unknown_tokens:
            return missing("Used", f"{gone:,} tokens are of datasets that are gone; say it in other")
        return Value("Used", "no", "lake")

    def listed(self, names: list[str], **columns: str) -> list[dict[str, Any]]:
        """A row for each dataset: title, link, description and its counts."""
        sizes = {str(name): row for name, *row in self.counts.by("dataset")}
        rows = []
        for name in names:
            facts, repo_id = self.stated(name), str(self.sources[name].get("repo_id") or "")
            link = facts.link or (f"https://huggingface.co/datasets/{repo_id}" if repo_id else "")
            rows.append(
                {
                    "dataset": facts.title or repo_id or name, "link": link,
                    "description": facts.description, "documents": sizes[name][0], "tokens": sizes[name][1],
                    **{label: getattr(facts, attribute) for label, attribute in columns.items()},
                }
            )  # fmt: skip
        return rows

    def public(self) -> Iterator[Value]:
        yield self.used("public")
        names = self.of("public")
        if not names:
            return
        yield Value("Modality", "text", "lake")
        rows = self.listed(names)
        whole = sum(row["tokens"] for row in rows)
        yield Value("Large datasets", [row for row in rows if row["tokens"] > _LARGE * whole], "lake")
        if small := [row for row in rows if row["tokens"] <= _LARGE * whole]:
            yield Value("Other datasets", small, "lake")
        for name, row in zip(names, rows, strict=True):
            if not row["link"] and row["tokens"] > _LARGE * whole:
                yield missing(f"Link of {row['dataset']}", f"datasets.{name}.link")

    def private(self, section: Section) -> Iterator[Value]:
        """Licensed, other private and other data: whether, and a description."""
        yield self.used(section)
        if self.of(section):
            yield Value("Modality", "text", "lake")
        for name, row in zip(self.of(section), self.listed(self.of(section)), strict=True):
            if section == "private" and self.stated(name).publicly_known is None:
                yield missing(f"Whether {row['dataset']} is publicly known", f"datasets.{name}.publicly_known")
            if section != "licensed" and not row["description"]:
                yield missing(f"Description of {row['dataset']}", f"datasets.{name}.description")
        named = [name for name in self.of(section) if section != "private" or self.stated(name).publicly_known]
        if named:
            yield Value("Datasets", self.listed(named), "lake")
        if unnamed := [name for name in self.of(section) if name not in named]:
            texts = "; ".join(filter(None, (self.stated(name).description for name in unnamed)))
            yield Value("Datasets that are not publicly known", texts or f"{len(unnamed)} datasets", "stated")

    def crawled(self) -> Iterator[Value]:
        yield self.used("crawled")
        names = self.of("crawled")
        if not names:
            return
        for label, attribute in (("Crawler", "crawler"), ("Purpose", "purpose"), ("Behaviour", "behaviour")):
            values = {name: getattr(self.stated(name), attribute) for name in names}
            for name, value in values.items():
                yield stated(f"{label} of {name}", value, f"datasets.{name}.{attribute}")
        rows = self.counts.of_datasets(names)
        yield from (self.period(name) for name in names)
        yield Value("Types of content and sources", self.listed(names), "lake")
        yield Value("Modality", "text", "lake")
        by_domain = self.counts.by("domain", of=rows)
        domains = [row for row in by_domain if row[0] is not None]
        if self.facts.small_firm is None:
            yield missing("Whether the provider is an SME", "small_firm; the longer list is given until then")
        most = math.ceil(len(domains) / (20 if self.facts.small_firm else 10))
        most = min(most, _SMALL_FIRM_DOMAINS) if self.facts.small_firm else most
        rule = "5% or 1,000" if self.facts.small_firm else "10%"
        label = f"Top {rule} of {len(domains):,} domain names by tokens (host without www.)"
        yield Value(label, rows_of(domains[:most], "domain"), "lake")
        nameless = next((row for row in by_domain if row[0] is None), None)
        if nameless is not None:
            yield Value("Without address", f"{nameless[1]:,} documents of {nameless[2]:,} tokens", "lake")

    def period(self, name: str) -> Value:
        """When the documents of a dataset were fetched, as their archive or answer says."""
        fetched = pc.min_max(self.counts.of_datasets([name])["fetched"]).as_py()
        first, last = (str(fetched[side] or "")[:7] for side in ("min", "max"))
        if not first and self.sources[name].get("urls"):
            times = read_columns(self.catalogue, f"{name}.arrivals", ("modified",))
            ends = pc.min_max(times["modified"]).as_py() if times is not None else {"min": None, "max": None}
            first, last = (f"{ends[side]:%Y-%m}" if ends[side] else "" for side in ("min", "max"))
        label = f"Period of collection of {name}"
        if not first:
            return missing(label, f"records of {name} do not say when they were fetched; say it in its description")
        return Value(label, " to ".join(f"{month[5:]}/{month[:4]}" for month in (first, last)), "lake")

    def user(self) -> Iterator[Value]:
        if self.of("user"):
            yield Value("Used", "yes", "lake")
            yield Value("Modality", "text", "lake")
            for name in self.of("user"):
                facts = self.stated(name)
                answer = yes_or_no(facts.interactions)
                yield stated(f"{name}: from interactions with the model", answer, f"datasets.{name}.interactions")
                yield stated(f"{name}: other services", facts.services, f"datasets.{name}.services (or `none`)")
            yield Value("Datasets", self.listed(self.of("user")), "lake")
        elif self.facts.user_data == "none":
            yield Value("Used", "no", "stated")
        else:
            yield missing("Used", "user_data: none, or datasets.NAME.section: user")

    def synthetic(self) -> Iterator[Value]:
        yield self.used("synthetic")
        names = self.of("synthetic")
        if not names:
            return
        yield Value("Modality", "text", "lake")
        rows = self.counts.of_datasets(names)
        named = self.counts.by("model", of=rows)
        links = {model.name: model.link for name in names for model in self.stated(name).models}
        models = [
            {**row, "link": links.get(row["model"], "")} for row in rows_of(named, "model") if row["model"] != "none"
        ]
        recorded = {row["model"] for row in models}
        models += [{"model": name, "link": link} for name, link in links.items() if name not in recorded]
        if models:
            yield Value("Generating models", models, "lake" if recorded else "stated")
        for name in names:
            of_dataset = self.counts.of_datasets([name])["model"]
            if of_dataset.null_count and not self.stated(name).models:
                yield missing(f"Generating model of {name}", f"datasets.{name}.models")
        yield Value("Datasets", self.listed(names), "lake")

    def opt_outs(self) -> Iterator[Value]:
        facts = self.facts.opt_outs
        yield stated("Signatory to the Code of Practice", yes_or_no(facts.signatory), "opt_outs.signatory")
        yield stated("Measures", facts.measures, "opt_outs.measures")
        states: dict[str, int] = {}
        for entry in entries(self.catalogue):
            states[entry.state] = states.get(entry.state, 0) + 1
        by_state = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
        yield Value("Recorded: entries of the opt-out register", by_state or "none", "lake")
        answers = read_columns(self.catalogue, "system.rights_answers", ("state",))
        if answers is not None:
            counts = pc.value_counts(answers["state"]).to_pylist()
            by_state = ", ".join(sorted(f"{row['counts']:,} {row['values']}" for row in counts))
            yield Value("Recorded: answers of sites that were asked", by_state, "lake")
        refused = {name: count for name in self.datasets if (count := self.refused(name))}
        if refused:
            rows = [{"dataset": name, "refused": count} for name, count in refused.items()]
            yield Value("Recorded: files and records refused at ingest", rows, "lake")

    def refused(self, name: str) -> int:
        """Arrivals of a dataset that an opt-out refused."""
        arrivals = read_columns(self.catalogue, f"{name}.arrivals", ("reason",))
        return 0 if arrivals is None else int(pc.sum(pc.equal(arrivals["reason"], "opted_out")).as_py() or 0)

    def illegal(self) -> Iterator[Value]:
        yield stated("Measures", self.facts.illegal_content, "illegal_content")
        screens = {
            name: [words for table, words in _SCREENS.items() if self.ledger.places(f"{name}.{table}")]
            for name in self.datasets
        }
        rows = [{"dataset": name, "looked for": ", ".join(words) or "nothing"} for name, words in screens.items()]
        yield Value("Recorded: what datasets were searched for", rows, "lake")

    def other(self) -> Iterator[Value]:
        if self.facts.other:
            yield Value("Other information", self.facts.other, "stated")
