"""`headrace model`: the models that texts are scored by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dagster_project.cli.output import JSON, print_json, print_rows, print_table, say
from dagster_project.exceptions import CommandError
from dagster_project.inspect.measured import share_text
from dagster_project.project.loading import lake_catalogue

if TYPE_CHECKING:
    from headrace_features.models.registered import ModelFacts

_SHOWN_LABELS = 12


@click.group(short_help="Add and show models that score texts or find names.")
def model() -> None:
    """Add and show the models that score texts or find names."""


@model.command("add", epilog="\b\nExample: headrace model add educational --from classifier.bin")
@click.argument("name")
@click.option(
    "--from",
    "file",
    required=True,
    type=click.Path(path_type=Path, exists=True),
    help="fastText (.bin, .ftz), ARPA, or the folder of a model",
)
@click.option("--encoder", is_flag=True, help="the folder is a sentence encoder: static vectors, or a transformer")
@click.option("--version", help="a name and version always mean the same model; by default 12 digits of its hash")
def add(name: str, file: Path, encoder: bool, version: str | None) -> None:
    """Enter a model into the registry as NAME: fastText (supervised), ARPA (n-grams), headrace's own, or a folder.

    A folder is a causal model in the layout of Hugging Face: config.json, tokenizer.json and weights as safetensors.
    With --encoder it makes vectors of texts: tokenizer.json beside one table of vectors (model2vec, StaticEmbedding;
    safetensors or embeddings.npy), or a transformer as above, pooled by mean or by `1_Pooling/config.json`. A folder of
    spaCy or GLiNER finds names for `personal_data`.
    """
    from headrace_features.models.encoder import pack_encoder
    from headrace_features.models.model_file import pack_folder
    from headrace_features.models.name_model import library_of, pack_name_model
    from headrace_features.models.registered import ModelFacts, add_model

    if encoder and not file.is_dir():
        raise CommandError(f"--encoder: {file} is no folder; give the one with tokenizer.json and the weights")
    pack = pack_encoder if encoder else pack_name_model if library_of(file) else pack_folder
    data = pack(file, f"model {name}") if file.is_dir() else file.read_bytes()
    entry = add_model(lake_catalogue(make=True), name, data, version)
    facts = ModelFacts.of(entry)
    say(f"{entry.label}: {facts.format}, {len(facts.labels)} labels, {facts.byte_count / 1e6:.1f} MB")
    say(_next(entry.label, facts))


@model.command("show", epilog="\b\nExample: headrace model show educational")
@click.argument("reference", metavar="[NAME]", required=False)
@JSON
def show(reference: str | None, as_json: bool) -> None:
    """List the models that score texts or find names; of NAME show labels, and how well it did.

    NAME is the newest of a name, or NAME@VERSION.
    """
    if reference is None:
        _list_models(as_json)
    else:
        _show_model(reference, as_json)


def _list_models(as_json: bool) -> None:
    """Print the models of the registry."""
    from headrace_features.models.registered import ModelFacts
    from spark_jobs.lake.run.registry import entries

    rows = [
        {
            "model": entry.label,
            "format": facts.format,
            "labels": len(facts.labels),
            "bytes": facts.byte_count,
            "hash": facts.sha256[:12],
            "by": entry.by,
        }
        for entry in entries(lake_catalogue(), "model")
        for facts in [ModelFacts.of(entry)]
    ]
    print_rows(rows, as_json, "the registry has no model; headrace model add NAME --from FILE")


def _show_model(reference: str, as_json: bool) -> None:
    """Print labels, size and measured accuracy of a model."""
    from headrace_features.models.registered import ModelFacts
    from spark_jobs.exceptions import nearest
    from spark_jobs.lake.run.registry import entries

    there = entries(lake_catalogue(), "model")
    matching = [entry for entry in there if reference in (entry.name, entry.label)]
    if not matching:
        names = dict.fromkeys(label for entry in there for label in (entry.name, entry.label))
        raise CommandError(f"model {reference} is not in the registry{nearest(reference, names)}; headrace model show")
    entry = matching[-1]
    facts = ModelFacts.of(entry)
    if as_json:
        return print_json({"model": entry.label, "by": entry.by, **facts.model_dump(mode="json")})
    say(f"{entry.label}: {facts.format}, {facts.byte_count / 1e6:.1f} MB, hash {facts.sha256}, by {entry.by}")
    more = f" and {len(facts.labels) - _SHOWN_LABELS} more" if len(facts.labels) > _SHOWN_LABELS else ""
    say(f"{len(facts.labels)} labels: {', '.join(facts.labels[:_SHOWN_LABELS])}{more}")
    if facts.evaluation:
        rows = [
            {
                "label": label.label,
                "texts held back": label.test_count,
                **{
                    name.replace("_", " "): share_text(value, ".3f")
                    for name, value in label.model_dump(exclude={"label", "test_count"}).items()
                },
            }
            for label in facts.evaluation
        ]
        print_table(rows)
    if facts.accuracy is not None and (held_back := sum(label.test_count for label in facts.evaluation)):
        commonest = max(label.test_count for label in facts.evaluation) / held_back
        say(
            f"agrees with the labels of {facts.accuracy:.1%} of {held_back:,} texts held back; always the commonest "
            f"label would agree with {commonest:.1%}"
        )
    say(_next(entry.label, facts))


def _next(label: str, facts: ModelFacts) -> str:
    """Say how a dataset uses a model."""
    from headrace_features.models.classifier_step import HIGH
    from headrace_features.models.static_vectors import StaticVectors

    labels = facts.labels
    if facts.format == "names":
        names = f"scorers: {{personal_data: {{names: {{model: {label}}}}}}}"
        return f"Next, in a dataset: `{names}` and `redact: {{name: replace}}`"
    if labels == StaticVectors.labels:
        return f"Next, in a dataset's declaration: `scorers: {{vectors: {{model: {label}}}}}`"
    wanted = HIGH if HIGH in labels else labels[-1]
    chosen = f"[{wanted}]" if len(labels) <= 2 else f"[{labels[0]}, ..]"
    return f"Next, in a dataset's declaration: `scorers: {{model_scores: {{models: {{{label}: {chosen}}}}}}}`"
