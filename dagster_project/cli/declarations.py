"""`headrace dataset` and `headrace corpus`: declarations in YAML below `defs` of the project, and what they hold."""

from __future__ import annotations

import dataclasses
import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.declared import CORPUS, DATASET, complete_names, dataset_file, declarations
from dagster_project.cli.diagnosis import read_yaml, short_path
from dagster_project.cli.landing import freeze
from dagster_project.cli.output import print_rows
from dagster_project.cli.project import project_folder
from dagster_project.cli.versions import diff_command
from dagster_project.exceptions import CheckFailedError, CommandError
from spark_jobs.exceptions import did_you_mean, nearest
from spark_jobs.lake.declare.quarantined import quarantine_of
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import open_catalogue, tables_in
from spark_jobs.lake.session.settings import load_settings, user_name

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_jobs.sources.source_config import Source


@click.group()
def dataset() -> None:
    """Declare, list, follow, verify and remove datasets."""


@click.group()
def corpus() -> None:
    """List corpora, show their funnel, refreeze them, excise superseded documents."""


@dataset.command("add")
@click.argument("name")
@click.option("--from", "path", required=True, help="file or directory; s3://bucket/folder too")
@click.option("--text-column", help="column of the text, for Parquet, JSONL and CSV")
@click.option("--id-column", help="column of the record's id; by default the hash of the text")
@click.option("--repository-column", help="column of the repository that a record belongs to")
@click.option("--language-column", help="column of the language")
@click.option("--licence-column", help="column of the licence")
@click.option("--kind-column", help="column of the kind of each record: code, prose, markup or data")
@click.option("--record-kind", help="kind of all records, or of those whose kind column is empty; by default prose")
@click.option(
    "--fact-column",
    "fact_columns",
    multiple=True,
    metavar="FACT=COLUMN",
    callback=lambda _context, _option, given: _facts(given),
    help="column of a fact about the repository, e.g. fork_of=parent or stars=stars; may be repeated",
)
@click.option("--repositories", help="file of facts about repositories, one JSON object a line; see the documentation")
@click.option("--metadata-column", "metadata_columns", multiple=True, help="column kept as metadata; may be repeated")
@click.option("--glob", help="only files whose path below --from matches, e.g. *.jsonl.gz")
@click.option("--kind", default="files", show_default=True, type=click.Choice(["files", "python_code", "python_docs"]))
@click.option("--samples", default="ids", show_default=True, type=click.Choice(["none", "ids", "text"]))
@click.option("--corpus", "corpora", multiple=True, help="corpus to add it to, declared if it is new; may be repeated")
def add_dataset(name: str, path: str, kind: str, samples: str, corpora: tuple[str, ...], **columns: Any) -> None:
    """Declare a dataset of files; NAME becomes the namespace of its tables.

    Writes NAME/defs.yaml below the project's folder `defs`, which you may edit. Nothing is computed yet.
    """
    if not path:
        raise CommandError("--from is empty; name a file, a directory or s3://bucket/folder")
    source: dict[str, Any] = {"kind": kind}
    source |= {"path": _located(path)} if kind == "files" else {"directories": [_located(path)]}
    if columns["repositories"]:
        columns["repositories"] = _located(columns["repositories"])
    source |= {key: list(value) if isinstance(value, tuple) else value for key, value in columns.items() if value}
    _require_usable(name, source, corpora)
    target = project_folder().defs / name / "defs.yaml"
    if target.exists():
        raise CommandError(f"dataset {name}: {short_path(target)} is there already; edit it, or choose another name")
    plans = [(word, *_corpus_with(word, name)) for word in dict.fromkeys(corpora)]
    _write(target, {"type": DATASET, "attributes": {"name": name, "samples": samples, "source": source}})
    click.echo(f"wrote {short_path(target)}")
    for word, file, text in plans:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        click.echo(f"corpus {word}: {short_path(file)} names {name}")
    click.echo(f"Next: headrace run {' '.join((name, *corpora))}")


@dataset.command("remove")
@click.argument("name", shell_complete=complete_names)
@click.option("--tables", is_flag=True, help="also drop its tables from the catalogue; their files stay")
@click.option("--yes", is_flag=True, help="do not ask")
def remove_dataset(name: str, tables: bool, yes: bool) -> None:
    """Remove the declaration of a dataset; refused while a corpus names it."""
    file = dataset_file(name)
    users = [(where, declared["name"]) for where, declared in declarations(CORPUS) if name in declared["datasets"]]
    if users:
        where, corpus_name = users[0]
        raise CommandError(f"dataset {name}: corpus {corpus_name} names it; take it out of {short_path(where)} first")
    catalogue = open_catalogue(load_settings())
    there = tables_in(catalogue, name)
    if not yes:
        dropped = f" and drops {len(there)} tables" if tables and there else ""
        click.confirm(f"This deletes {short_path(file)}{dropped}. Go on?", abort=True)
    file.unlink()
    if not any(file.parent.iterdir()):
        file.parent.rmdir()
    click.echo(f"removed {short_path(file)}")
    if tables:
        for identifier in there:
            catalogue.drop_table(identifier)
        click.echo(f"dropped {len(there)} tables; their files stay in the warehouse")
    elif there:
        click.echo(f"Its {len(there)} tables stay; to drop them: headrace table drop {' '.join(there)}")


@dataset.command("delete")
@click.argument("name", shell_complete=complete_names)
@click.option("--plan", "only_plan", is_flag=True, help="say what would go and what depends on it; nothing is done")
@click.option("--reason", help="why; it is kept in system.audit")
@click.option("--yes", is_flag=True, help="do it; without it only the plan is shown")
def delete_command(name: str, only_plan: bool, reason: str | None, yes: bool) -> None:
    """Delete all that the lake holds of a dataset, for good: rows, files, kept bytes, and its part of packed tables.

    What was killed in the middle is finished by the same command. The declaration stays: headrace dataset remove NAME.
    """
    from dagster_project.deletion import delete_dataset, plan_deletion
    from spark_jobs.lake.run.materialize import Lake
    from spark_jobs.lake.session.session import start_session

    settings = load_settings()
    catalogue = open_catalogue(settings)
    plan = plan_deletion(catalogue, name)
    for line in plan.lines():
        click.echo(line)
    if only_plan:
        return
    users = [(where, one["name"]) for where, one in declarations(CORPUS) if name in one["datasets"]]
    if users:
        where, corpus_name = users[0]
        raise CommandError(f"dataset {name}: corpus {corpus_name} names it; take it out of {short_path(where)} first")
    if not yes or not (reason or "").strip():
        raise CommandError(f'dataset delete {name}: it cannot be undone; to do it, give --yes --reason "WHY"')
    run_id = f"headrace dataset delete by {user_name()}, {uuid.uuid4().hex}"
    lake = Lake(catalogue, Ledger(catalogue), lambda: start_session(settings), run_id)
    for line in delete_dataset(lake, plan, str(reason)):
        click.echo(line)
    packed = [table for of_corpus in plan.corpora.values() for table in of_corpus]
    again = f", headrace table expire {' '.join(packed)} --days 0 for their old files" if packed else ""
    again += f", then headrace run {' '.join(plan.corpora)}" if plan.corpora else ""
    click.echo(f"{name} is deleted. Next: headrace dataset remove {name}{again}")


@dataset.command("verify")
@click.argument("name", shell_complete=complete_names)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def verify_dataset(name: str, as_json: bool) -> None:
    """Read what landed and all rows again; compare hashes with `arrivals`, and data versions with the ledger."""
    from dagster_project.inspect.landed_source import landed_faults
    from spark_jobs.exceptions import StepRunError
    from spark_jobs.lake.files.verification import changed_places
    from spark_jobs.lake.session.session import start_session

    dataset_file(name)
    settings = load_settings()
    catalogue = open_catalogue(settings)
    ledger = Ledger(catalogue)
    ledger.refresh()
    spaces = (name, quarantine_of(name))
    tables = {one: ledger.places(one) for space in spaces for one in tables_in(catalogue, space)}
    if not tables:
        raise CommandError(f"dataset {name} has no tables yet; fill it: headrace run {name}")
    spark = start_session(settings)
    lines = []
    for identifier, places in tables.items():
        table, fault = ledger.table(identifier), ""
        try:
            expected = {place: row.data_version for place, row in places.items()}
            changed = changed_places(spark, identifier, table, expected) if table is not None else {}
            fault = "; ".join(
                f"increment {place or 'all'}: {found.count:,} rows of another version"
                for place, found in changed.items()
            )
        except StepRunError as error:
            fault = " ".join(str(error).split())
        rows = sum(row.row_count for row in places.values())
        lines.append({"table": identifier, "rows": rows, "verdict": fault or "as recorded"})
        if not as_json:
            click.echo(f"{identifier:<36} {rows:>12,} rows  {fault or 'as recorded'}")
    faults = landed_faults(spark, catalogue, ledger, name)
    if as_json:
        click.echo(json.dumps([*lines, *({"location": where, "verdict": fault} for where, fault in faults)], indent=2))
    else:
        click.echo("\n".join(f"{where}: {fault}" for where, fault in faults) or "what landed is as it landed")
    bad = [line["table"] for line in lines if line["verdict"] != "as recorded"]
    if bad:
        raise CheckFailedError(
            f"{len(bad)} of {len(lines)} tables are not as recorded, first {bad[0]}; compute them anew: "
            f"headrace table drop {' '.join(map(str, bad))}, then headrace run {name}"
        )
    if faults:
        raise CheckFailedError(f"{len(faults)} of what landed are not as they landed, first {': '.join(faults[0])}")


@dataset.command("follow")
@click.argument("name", shell_complete=complete_names)
@click.option("--once", is_flag=True, help="end when all that is there has been read")
def follow_dataset(name: str, once: bool) -> None:
    """Follow a dataset whose source is a stream: keep what comes, and seal it by size or age; Ctrl-C ends it.

    Each sealed increment runs the dataset's steps, as `headrace run NAME` does. What was kept and not sealed is sealed
    by the next run or the next follow.
    """
    from dagster_project.cli.project import load_definitions
    from dagster_project.cli.run import execute, print_line, require_done
    from dagster_project.table_asset import declared_source
    from spark_jobs.lake.declare.quarantined import quarantine_of
    from spark_jobs.lake.files.objects import ObjectFolder
    from spark_jobs.lake.run.decisions import refuse_around_quarantine
    from spark_jobs.lake.session.session import start_session
    from spark_jobs.sources.source_config import DocumentsConfig, StreamSource
    from spark_jobs.sources.streams import follow, follower_state, session_settings

    dataset_file(name)
    load_definitions()
    binding = declared_source(f"{quarantine_of(name)}.documents") or declared_source(f"{name}.documents")
    config = binding.config if binding is not None else None
    if binding is None or not isinstance(config, DocumentsConfig) or not isinstance(config.source, StreamSource):
        raise CommandError(f"dataset {name}: its source is no stream; bring it up to date by `headrace run {name}`")
    settings = load_settings()
    refuse_around_quarantine(_ledger(), binding)
    spark = start_session(settings, extra=session_settings(config.source, settings))

    def seal() -> None:
        require_done(execute((name,), None, print_line))

    catalogue = open_catalogue(settings)
    objects = ObjectFolder.of(catalogue, binding.namespace)
    count = follow(name, config.source, catalogue, objects, spark, seal, follower_state(name), once)
    click.echo(f"{count} records kept and sealed. Look: headrace dataset list")


dataset.add_command(diff_command("dataset"))
dataset.add_command(freeze)


@dataset.command("list")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def list_datasets(as_json: bool) -> None:
    """List the declared datasets, with counts of increments, documents and bytes."""
    ledger = _ledger()
    rows = []
    for _, declared in declarations(DATASET):
        name = declared["name"]
        increments = ledger.increments(f"{name}.documents")
        rows.append(
            {
                "dataset": name,
                "source": declared["source"].get("kind", ""),
                "increments": len(increments),
                "documents": sum(row.row_count for row in increments.values()),
                "bytes": sum(row.byte_count for row in increments.values()),
            }
        )
    print_rows(rows, as_json, "No dataset is declared. Declare one: headrace dataset add NAME --from PATH")


@corpus.command("list")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def list_corpora(as_json: bool) -> None:
    """List the declared corpora, with counts of increments, documents and windows."""
    ledger = _ledger()
    rows = []
    for _, declared in declarations(CORPUS):
        name = declared["name"]
        going_on = "survivors" if declared.get("shape") is None else "shaped"
        rows.append(
            {
                "corpus": name,
                "datasets": ", ".join(declared["datasets"]),
                "increments": len(ledger.increments(f"{name}.increments")),
                "documents": sum(row.row_count for row in ledger.increments(f"{name}.{going_on}").values()),
                "windows": {
                    length: sum(
                        row.row_count
                        for part in declared["datasets"]
                        for row in ledger.increments(f"{name}.packed_{part}_{length}").values()
                    )
                    for length in declared.get("window_tokens", [2048])
                },
            }
        )
    print_rows(
        rows, as_json, "No corpus is declared. Declare one: headrace dataset add NAME --from PATH --corpus CORPUS"
    )


@corpus.command("funnel")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def corpus_funnel(name: str, as_json: bool) -> None:
    """Print how many documents, bytes and tokens are left after each step of a corpus."""
    from dagster_project.inspect.corpus_facts import find_corpus
    from dagster_project.inspect.funnel import funnel

    catalogue = open_catalogue(load_settings())
    stages = funnel(catalogue, find_corpus(catalogue, name))
    if as_json:
        print_rows([dataclasses.asdict(stage) for stage in stages], as_json, "")
        return
    rows = []
    for stage in stages:
        share = stage.tokens / max(stages[0].tokens, 1)
        counts = {"documents": stage.documents, "bytes": stage.byte_count, "tokens": stage.tokens}
        rows.append({"step": stage.step, **counts, "of tokens": f"{share:6.1%} {'#' * round(12 * share)}"})
    print_rows(rows, as_json, "")
    if any(stage.estimated_tokens for stage in stages):
        click.echo("Tokens of documents that were not tokenized are estimated from their bytes.")


@corpus.command("refreeze")
@click.argument("name")
@click.option("--yes", is_flag=True, help="do not ask")
def refreeze(name: str, yes: bool) -> None:
    """Begin a new generation, whose vocabulary, tokenizer and other frozen tables see all increments there are.

    The next run takes in all increments again, as one. Snapshots that blends have pinned are served as before.
    """
    from dagster_project.inspect.dependent_blends import dependent_blends, effect_of_repacking
    from dagster_project.inspect.document_windows import packed_tables
    from spark_jobs.lake.run.materialize import Lake
    from spark_jobs.lake.run.refreeze import refreeze as forget
    from spark_jobs.lake.run.refreeze import refrozen_tables
    from spark_jobs.lake.session.session import start_session

    if name not in (known := [declared["name"] for _, declared in declarations(CORPUS)]):
        near = nearest(name, known)
        raise CommandError(f"corpus {name} is not declared{near}; `headrace corpus list` shows those that are")
    settings = load_settings()
    catalogue = open_catalogue(settings)
    lake = Lake(catalogue, Ledger(catalogue), lambda: start_session(settings))
    lake.ledger.refresh()
    refrozen_tables(lake.ledger, name, tables_in(catalogue, name))
    packed = [table for table in packed_tables(catalogue) if table.startswith(f"{name}.")]
    for table, blends in dependent_blends(catalogue, packed).items():
        if blends:
            click.echo(f"{table}: {effect_of_repacking(blends)}")
    if not yes:
        click.confirm("The next run computes the corpus anew, of all increments there are. Go on?", abort=True)
    chosen = forget(lake, name)
    click.echo(f"{len(chosen)} tables of {name} are to be computed anew. Next: headrace run {name}")


corpus.add_command(diff_command("corpus"))


@corpus.command("supersede")
@click.argument("name")
@click.option("--deleted", is_flag=True, help="also excise documents whose file is gone")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.confirmation_option(prompt="Superseded documents go from packed tables for good. Go on?")
def supersede(name: str, deleted: bool, as_json: bool) -> None:
    """Excise packed documents that a newer revision has replaced, whatever policy the corpus declares."""
    from dagster_project.inspect.corpus_facts import find_corpus
    from dagster_project.inspect.document_windows import packed_tables
    from spark_jobs.lake.run.materialize import Lake
    from spark_jobs.lake.session.session import start_session
    from spark_jobs.packing.supersede import excise_superseded

    settings = load_settings()
    catalogue = open_catalogue(settings)
    facts = find_corpus(catalogue, name)
    lake = Lake(catalogue, Ledger(catalogue), lambda: start_session(settings))
    standing = ("superseded", "gone") if deleted else ("superseded",)
    tables = [table for table in packed_tables(catalogue) if table.split(".")[0] == name]
    done = [excise_superseded(lake, table, facts.applied, standing) for table in tables]
    if as_json:
        click.echo(json.dumps([{**vars(one.excised), "staying": one.staying} for one in done], indent=2))
        return
    for one in done:
        gone = one.excised
        click.echo(
            f"{gone.identifier}: {len(gone.doc_ids):,} documents, {gone.tokens_removed:,} tokens out of "
            f"{len(gone.ordinals):,} windows"
        )
        if one.staying:
            click.echo(
                f"  {len(one.staying):,} stay, first {one.staying[0]}: a document that is still there was removed as a "
                "duplicate of it, or what replaced it is out of the table"
            )
    changed = [one.excised.identifier for one in done if one.excised.doc_ids]
    if changed:
        click.echo(f"Next: headrace table expire {' '.join(changed)} --days 0, which deletes the old files")


def _located(path: str) -> str:
    """The path as an absolute one; a URI stays as it is."""
    return path if "://" in path else str(Path(path).expanduser().absolute())


def _facts(given: tuple[str, ...]) -> dict[str, str]:
    """Columns by fact, from `FACT=COLUMN`; names of facts are checked with the rest of the source."""
    for one in given:
        if not all(one.partition("=")[::2]):
            raise CommandError(f"--fact-column {one}: write FACT=COLUMN, e.g. --fact-column fork_of=parent")
    return {fact: column for fact, _, column in (one.partition("=") for one in given)}


def _require_usable(name: str, source: dict[str, Any], corpora: tuple[str, ...]) -> None:
    """Check a declaration like the project does when it loads, and that its source has files, before writing it."""
    from dagster_project.run_config import bind_config
    from spark_jobs.lake.declare.tables import check_identifier
    from spark_jobs.sources.documents import ARRIVALS
    from spark_jobs.sources.listing import discover
    from spark_jobs.sources.source_config import KINDS, DocumentsConfig

    datasets = {str(declared["name"]) for _, declared in declarations(DATASET)}
    check_identifier(f"{name}.documents")
    if name in datasets | {str(declared["name"]) for _, declared in declarations(CORPUS)}:
        raise CommandError(f"{name}: a dataset or corpus of this name is declared already; choose another")
    for word in corpora:
        check_identifier(f"{word}.increments")
        if word in datasets | {name}:
            raise CommandError(
                f"--corpus {word}: this is the name of a dataset; datasets and corpora share one pool of names"
            )
    if (kind := source.get("record_kind", KINDS[0])) not in KINDS:
        raise CommandError(f"--record-kind {kind}: no kind{did_you_mean(kind, KINDS)}")
    config = bind_config(DocumentsConfig, f"{name}/documents", {"dataset": name, "source": source})
    _require_columns(config.source, discover(config, ARRIVALS.schema().as_arrow().empty_table(), False))


def _require_columns(source: Source, listing: pa.Table | None) -> None:
    """Check that the first file of records has the columns that options name; metadata columns may be missing."""
    import pyarrow.compute as pc

    from spark_jobs.sources.record_reading import record_columns
    from spark_jobs.sources.source_config import COLUMN_READERS, FilesSource

    if listing is None or not isinstance(source, FilesSource):
        return
    records = listing.filter(pc.field("reader").isin(COLUMN_READERS)).slice(0, 1).to_pylist()
    if not records:
        return
    first = records[0]
    try:
        columns = record_columns(first["location"], first["reader"])
    except OSError:
        return  # the run records in `arrivals` why the file was rejected
    for field, column in source.role_columns.items():
        if columns and column not in columns:
            option = f"--{field.replace('_', '-')}"
            raise CommandError(f"{option} {column}: {first['path']} has no such column{did_you_mean(column, columns)}")


def _corpus_with(word: str, name: str) -> tuple[Path, str]:
    """The file of a corpus and its text with one more dataset; a new corpus where there is none.

    Raises:
        CommandError: the file of a new corpus exists already and declares something else.
    """
    import io

    text = io.StringIO()
    for file, declared in declarations(CORPUS):
        if declared["name"] == word:
            content = read_yaml(file, _yaml())
            content["attributes"]["datasets"].append(name)
            _yaml().dump(content, text)
            return file, text.getvalue()
    target = project_folder().defs / word / "defs.yaml"
    if target.exists():
        raise CommandError(
            f"--corpus {word}: {short_path(target)} is there already and declares something else; choose another"
        )
    _yaml().dump({"type": CORPUS, "attributes": {"name": word, "datasets": [name], "window_tokens": [2048]}}, text)
    return target, text.getvalue()


def _write(file: Path, content: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as out:
        _yaml().dump(content, out)


def _yaml() -> Any:
    """A YAML reader and writer that keeps comments."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 120
    yaml.preserve_quotes = True
    return yaml


def _ledger() -> Ledger:
    ledger = Ledger(open_catalogue(load_settings()))
    ledger.refresh()
    return ledger
