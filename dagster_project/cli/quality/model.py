"""`headrace model`: the models that texts are scored by."""

from __future__ import annotations

import io
from pathlib import Path

import click

from dagster_project.cli.completion import complete_names
from dagster_project.cli.output import JSON, print_json, print_rows, print_table, say
from dagster_project.exceptions import CommandError
from dagster_project.inspect.measured import share_of, share_text
from dagster_project.project.loading import lake_catalogue

_SHOWN_LABELS = 12


@click.group()
def model() -> None:
    """Add, train and show the models that score texts or find names; fit the weights of `quality`."""


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
@click.option("--version", help="a name and version always mean the same model; by default 12 digits of its hash")
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
    entry = add_model(lake_catalogue(make=True), name, data, version)
    facts = ModelFacts.of(entry)
    say(f"{entry.label}: {facts.format}, {len(facts.labels)} labels, {facts.byte_count / 1e6:.1f} MB")
    say(_next(entry.label, facts.labels))


@model.command()
@click.argument("name")
@click.option(
    "--from",
    "file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Parquet or JSONL: content, and spans with start, end (bytes) and kind",
)
@click.option(
    "--list", "lists", multiple=True, metavar="NAME=FILE", help="words that are a hint, such as cities, one a line"
)
@click.option("--seed", default=7, show_default=True, help="of the order in which texts are learnt")
@click.option("--version", default="1", show_default=True, help="a name and version always mean the same model")
def train(name: str, file: Path, lists: tuple[str, ...], seed: int, version: str) -> None:
    """Train a tagger, which finds names and the like: learn the kinds labelled in a file, and enter it as NAME.

    It learns from four fifths of the texts, and is measured on the fifth that it was not shown.
    """
    from spark_jobs.filters.personal_data.registered_tagger import read_labelled, read_list, train_measured
    from spark_jobs.lake.run.registry import record

    table = read_labelled(file)
    model, measured = train_measured(table, seed, dict(map(read_list, lists)))
    entry = record(lake_catalogue(make=True), "tagger", name, version, model)
    say(f"{entry.label}: {len(model) / 1000:,.0f} kB of {len(table):,} texts. On the fifth that it was not shown:")
    print_table(
        [
            {
                "kind": kind,
                "labelled": one.labelled,
                "precision": share_text(share_of(one.right, one.found), ".3f"),
                "recall": share_text(share_of(one.right, one.labelled), ".3f"),
            }
            for kind, one in measured.items()
        ]
    )
    redact = f"redact: {{{next(iter(measured))}: replace}}"
    say(f"Next, in a dataset: `scorers: {{personal_data: {{tagger: {entry.label}}}}}` and `{redact}`")


@model.command("show")
@click.argument("reference", metavar="[NAME]", required=False)
@JSON
def show(reference: str | None, as_json: bool) -> None:
    """List the models that score texts, then those that find names; of NAME show labels, and how well it did.

    NAME is the newest of a name, or NAME@VERSION.
    """
    if reference is None:
        _list_models(as_json)
    else:
        _show_model(reference, as_json)


def _list_models(as_json: bool) -> None:
    """Print the models of the registry: those that score texts, then those that find names and the like."""
    from spark_jobs.filters.personal_data.tagger import load
    from spark_jobs.lake.run.registry import Entry, entries
    from spark_jobs.models.registered import ModelFacts

    catalogue = lake_catalogue()
    found: list[tuple[Entry, str, int, int, str]] = []
    for one in entries(catalogue, "model"):
        facts = ModelFacts.of(one)
        found.append((one, facts.format, len(facts.labels), facts.byte_count, facts.sha256))
    for one in entries(catalogue, "tagger"):
        found.append((one, "tagger", len(load(one.content).kinds), len(one.content), one.content_hash))
    rows = [
        {"model": one.label, "format": kind, "labels": labels, "bytes": size, "hash": digest[:12], "by": one.by}
        for one, kind, labels, size, digest in found
    ]
    nothing = "the registry has no model; headrace model add NAME --from FILE, or headrace model train NAME --from FILE"
    print_rows(rows, as_json, nothing)


def _show_model(reference: str, as_json: bool) -> None:
    """Print labels, size and measured accuracy of a model."""
    from spark_jobs.exceptions import nearest
    from spark_jobs.lake.run.registry import entries
    from spark_jobs.models.registered import ModelFacts

    there = entries(lake_catalogue(), "model")
    found = [one for one in there if reference in (one.name, one.label)]
    if not found:
        known = dict.fromkeys(label for one in there for label in (one.name, one.label))
        raise CommandError(f"model {reference} is not in the registry{nearest(reference, known)}; headrace model show")
    entry = found[-1]
    facts = ModelFacts.of(entry)
    if as_json:
        return print_json({"model": entry.label, "by": entry.by, **facts.model_dump(mode="json")})
    say(f"{entry.label}: {facts.format}, {facts.byte_count / 1e6:.1f} MB, hash {facts.sha256}, by {entry.by}")
    more = f" and {len(facts.labels) - _SHOWN_LABELS} more" if len(facts.labels) > _SHOWN_LABELS else ""
    say(f"{len(facts.labels)} labels: {', '.join(facts.labels[:_SHOWN_LABELS])}{more}")
    if facts.evaluation:
        rows = [
            {
                "label": one.label,
                "texts held back": one.test_count,
                **{
                    name.replace("_", " "): share_text(value, ".3f")
                    for name, value in one.model_dump(exclude={"label", "test_count"}).items()
                },
            }
            for one in facts.evaluation
        ]
        print_table(rows)
    if facts.accuracy is not None and (held_back := sum(one.test_count for one in facts.evaluation)):
        commonest = max(one.test_count for one in facts.evaluation) / held_back
        say(
            f"agrees with the labels of {facts.accuracy:.1%} of {held_back:,} texts held back; always the commonest "
            f"label would agree with {commonest:.1%}"
        )
    say(_next(entry.label, facts.labels))


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
@click.option("--signal", "signals", multiple=True, required=True, help="a signal, named as in rules; may be repeated")
def weigh(dataset: str, label: str, signals: tuple[str, ...]) -> None:
    """Fit the weights of `quality` on labelled documents of DATASET, whose signals have been computed; nothing runs."""
    from ruamel.yaml import YAML

    from dagster_project.inspect.corpora.fitted_weights import fit_weights
    from dagster_project.restrictions import note_read

    name, equals, good = label.partition("=")
    if not equals or name.partition(".")[0] not in ("metadata", "documents"):
        raise CommandError(f"--label {label}: write metadata.KEY=GOOD or documents.COLUMN=GOOD")
    catalogue = lake_catalogue()
    note_read(catalogue, [dataset])
    found = fit_weights(catalogue, dataset, name, good, signals)
    say(
        f"AUC {found.auc:.3f} on {found.held_back:,} documents held back; fitted on {found.fitted:,}, "
        f"{found.left_out:,} without a label or a value left out"
    )
    say("Next, in a dataset's declaration:")
    text = io.StringIO()
    yaml = YAML()
    yaml.width = 120
    yaml.default_flow_style = None
    yaml.dump(
        {"quality": {"weights": found.weights, "ranges": {key: list(one) for key, one in found.ranges.items()}}}, text
    )
    say(text.getvalue().rstrip())
