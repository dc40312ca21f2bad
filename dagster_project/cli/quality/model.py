"""`headrace model`: the models that texts are scored by."""

from __future__ import annotations

import io
import json
from pathlib import Path

import click

from dagster_project.cli.declared import complete_names
from dagster_project.cli.output import print_rows, print_table
from dagster_project.cli.quality.tagger import train
from dagster_project.exceptions import CommandError
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.lake.session.settings import load_settings

_SHOWN_LABELS = 12


@click.group()
def model() -> None:
    """Add, train, list and show the models that score texts or find names; fit the weights of `quality`."""


model.add_command(train)


@model.command("add")
@click.argument("name")
@click.option(
    "--from",
    "file",
    required=True,
    type=click.Path(path_type=Path, exists=True),
    help="fastText (.bin, .ftz), ARPA, or a folder of a causal model",
)
@click.option("--encoder", is_flag=True, help="the folder is a sentence encoder: static vectors, or a transformer")
@click.option("--version", help="a name and version never mean another model; by default 12 digits of its hash")
def add(name: str, file: Path, encoder: bool, version: str | None) -> None:
    """Enter a model into the registry as NAME: fastText (supervised), ARPA (n-grams), headrace's own, or a folder.

    A folder is a causal model in the layout of Hugging Face: config.json, tokenizer.json and weights as safetensors.
    With --encoder it makes vectors of texts: tokenizer.json beside one table of vectors (model2vec, StaticEmbedding;
    safetensors or embeddings.npy), or a transformer as above, pooled by mean or by `1_Pooling/config.json`.
    """
    from spark_jobs.models.encoder import pack_encoder
    from spark_jobs.models.model_file import pack_folder
    from spark_jobs.models.registered import ModelFacts, add_model

    if encoder and not file.is_dir():
        raise CommandError(f"--encoder: {file} is no folder; give the one with tokenizer.json and the weights")
    pack = pack_encoder if encoder else pack_folder
    data = pack(file, f"model {name}") if file.is_dir() else file.read_bytes()
    entry = add_model(open_catalogue(load_settings()), name, data, version)
    facts = ModelFacts.of(entry)
    click.echo(f"{entry.label}: {facts.format}, {len(facts.labels)} labels, {facts.byte_count / 1e6:.1f} MB")
    click.echo(_next(entry.label, facts.labels))


@model.command("list")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def list_models(as_json: bool) -> None:
    """List the models of the registry: those that score texts, then those that find names and the like."""
    from spark_jobs.filters.personal_data.tagger import load
    from spark_jobs.lake.run.registry import entries
    from spark_jobs.models.registered import ModelFacts

    catalogue, rows = open_catalogue(load_settings()), []
    for one in entries(catalogue, "model"):
        facts = ModelFacts.of(one)
        rows.append(
            {
                "model": one.label,
                "format": facts.format,
                "labels": len(facts.labels),
                "bytes": facts.byte_count,
                "hash": facts.sha256[:12],
                "by": f"{one.recorded_by}, {one.recorded_at:%Y-%m-%d}",
            }
        )
    for one in entries(catalogue, "tagger"):
        rows.append(
            {
                "model": one.label,
                "format": "tagger",
                "labels": len(load(one.content).kinds),
                "bytes": len(one.content),
                "hash": one.content_hash[:12],
                "by": f"{one.recorded_by}, {one.recorded_at:%Y-%m-%d}",
            }
        )
    nothing = "the registry has no model; headrace model add NAME --from FILE, or headrace model train NAME --from FILE"
    print_rows(rows, as_json, nothing)


@model.command("show")
@click.argument("reference")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def show(reference: str, as_json: bool) -> None:
    """Show a model, given as NAME (then the newest) or NAME@VERSION: its labels, and how well it was seen to do."""
    from spark_jobs.exceptions import nearest
    from spark_jobs.lake.run.registry import entries
    from spark_jobs.models.registered import ModelFacts

    there = entries(open_catalogue(load_settings()), "model")
    found = [one for one in there if reference in (one.name, one.label)]
    if not found:
        known = dict.fromkeys(label for one in there for label in (one.name, one.label))
        raise CommandError(f"model {reference} is not in the registry{nearest(reference, known)}; headrace model list")
    entry = found[-1]
    facts = ModelFacts.of(entry)
    by = f"{entry.recorded_by}, {entry.recorded_at:%Y-%m-%d}"
    if as_json:
        click.echo(json.dumps({"model": entry.label, "by": by, **facts.model_dump(mode="json")}, indent=2))
        return
    click.echo(f"{entry.label}: {facts.format}, {facts.byte_count / 1e6:.1f} MB, hash {facts.sha256}, by {by}")
    more = f" and {len(facts.labels) - _SHOWN_LABELS} more" if len(facts.labels) > _SHOWN_LABELS else ""
    click.echo(f"{len(facts.labels)} labels: {', '.join(facts.labels[:_SHOWN_LABELS])}{more}")
    if facts.evaluation:
        rows = [
            {
                "label": one.label,
                "texts held back": one.test_count,
                **{
                    name.replace("_", " "): "" if value is None else f"{value:.3f}"
                    for name, value in one.model_dump(exclude={"label", "test_count"}).items()
                },
            }
            for one in facts.evaluation
        ]
        print_table(rows)
    if facts.accuracy is not None and (held_back := sum(one.test_count for one in facts.evaluation)):
        commonest = max(one.test_count for one in facts.evaluation) / held_back
        click.echo(
            f"agrees with the labels of {facts.accuracy:.1%} of {held_back:,} texts held back; always the commonest "
            f"label would agree with {commonest:.1%}"
        )
    click.echo(_next(entry.label, facts.labels))


def _next(label: str, labels: tuple[str, ...]) -> str:
    from spark_jobs.models.classifier_step import HIGH
    from spark_jobs.models.static_vectors import StaticVectors

    if labels == StaticVectors.labels:
        return f"Next, in a dataset's declaration: `scorers: {{vectors: {{model: {label}}}}}`"
    wanted = HIGH if HIGH in labels else labels[-1]
    chosen = f"[{wanted}]" if len(labels) <= 2 else f"[{labels[0]}, ..]"
    return f"Next, in a dataset's declaration: `scorers: {{model_scores: {{models: {{{label}: {chosen}}}}}}}`"


@model.command("weigh")
@click.argument("dataset", shell_complete=complete_names)
@click.option("--label", required=True, metavar="metadata.KEY=GOOD", help="which documents should score high")
@click.option("--signal", "signals", multiple=True, required=True, help="as rules name it; to be repeated")
def weigh(dataset: str, label: str, signals: tuple[str, ...]) -> None:
    """Fit the weights of `quality` on labelled documents of DATASET, whose signals have been computed; nothing runs."""
    from ruamel.yaml import YAML

    from dagster_project.inspect.corpora.fitted_weights import fit_weights
    from dagster_project.restrictions import note_read

    name, equals, good = label.partition("=")
    if not equals or name.partition(".")[0] not in ("metadata", "documents"):
        raise CommandError(f"--label {label}: write metadata.KEY=GOOD or documents.COLUMN=GOOD")
    catalogue = open_catalogue(load_settings())
    note_read(catalogue, [dataset])
    found = fit_weights(catalogue, dataset, name, good, signals)
    click.echo(
        f"AUC {found.auc:.3f} on {found.held_back:,} documents held back; fitted on {found.fitted:,}, "
        f"{found.left_out:,} without a label or a value left out"
    )
    click.echo("Next, in a dataset's declaration:")
    text = io.StringIO()
    yaml = YAML()
    yaml.width = 120
    yaml.default_flow_style = None
    yaml.dump(
        {"quality": {"weights": found.weights, "ranges": {key: list(one) for key, one in found.ranges.items()}}}, text
    )
    click.echo(text.getvalue().rstrip())
