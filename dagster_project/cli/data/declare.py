"""`headrace dataset add` and `dataset delete --declaration`: write and remove YAML below the folder `defs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagster_project.cli.output import say
from dagster_project.exceptions import CommandError, DefinitionError
from dagster_project.project.declared import CORPUS, DATASET, dataset_file, declarations, refuse_in_corpora
from dagster_project.project.diagnosis import read_yaml, short_path
from dagster_project.project.loading import lake_catalogue, project_folder
from headrace.tables.catalogue import tables_in
from spark_jobs.exceptions import ConfigError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_jobs.sources.config.source_config import Source


_ORIGINS = {  # by kind of source: the field that --from fills, and the page of the documentation
    "files": ("path", "docs/prepare/ingest.md"),
    "web": ("urls", "docs/prepare/ingest.md"),
    "api": ("url", "docs/prepare/ingest_api.md"),
    "stream": ("path", "docs/prepare/ingest_streams.md"),
    "hub": ("repo_id", "docs/prepare/ingest.md"),
    "iceberg": ("table", "docs/prepare/ingest.md"),
    "git": ("repositories", "docs/prepare/ingest_git.md"),
    "packages": ("path", "docs/prepare/ingest_archives.md"),
    "python_code": ("directories", "docs/reference/declarations.md"),
    "python_docs": ("directories", "docs/reference/declarations.md"),
}
_PATHS = {"path", "urls", "url", "directories", "repositories"}
_KINDS = f"what --from is: {', '.join(_ORIGINS)}, one of an installed package, or package.module:Class of yours"


@click.command("add")
@click.argument("name")
@click.option(
    "--from",
    "paths",
    multiple=True,
    help="where its data is: a file, folder, s3://bucket/folder, repository or address; repeated for several "
    "repositories or directories",
)
@click.option("--text-column", help="column of the text, for Parquet, JSONL and CSV")
@click.option("--messages-column", help="instead of it: column of conversations, lists of messages")
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
    callback=lambda _context, _option, texts: _facts(texts),
    help="column of a fact about the repository, e.g. fork_of=parent or stars=stars; may be repeated",
)
@click.option("--repositories", help="file of facts about repositories, one JSON object a line; see the documentation")
@click.option("--metadata-column", "metadata_columns", multiple=True, help="column kept as metadata; may be repeated")
@click.option("--glob", help="only files whose path below --from matches, e.g. *.jsonl.gz")
@click.option("--kind", default="files", show_default=True, help=_KINDS)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=VALUE",
    help="any other field of the declaration, e.g. source.paginator.kind=cursor or landing=copy; may be repeated",
)
@click.option("--samples", default="ids", show_default=True, type=click.Choice(["none", "ids", "text"]))
@click.option("--corpus", "corpora", multiple=True, help="corpus to add it to, declared if it is new; may be repeated")
def add_dataset(
    name: str,
    paths: tuple[str, ...],
    kind: str,
    samples: str,
    corpora: tuple[str, ...],
    settings: tuple[str, ...],
    **columns: Any,
) -> None:
    """Declare a dataset; NAME becomes the namespace of its tables.

    Writes NAME/defs.yaml below the project's folder `defs`, which you may edit. Nothing is computed yet.
    """
    if "" in paths or not (paths or settings):
        raise CommandError("--from is empty; name a file, a directory, s3://bucket/folder, or the address of an API")
    source: dict[str, Any] = {"kind": "files" if kind == "web" else kind}
    if paths:
        field = _ORIGINS[kind][0] if kind in _ORIGINS else _required_field(kind)
        located = [path if field not in _PATHS else _located(path) for path in dict.fromkeys(paths)]
        takes_all = field in ("directories", "repositories")
        if len(located) > 1 and not takes_all:
            raise CommandError(
                f"--from is given {len(located)} times; a source of kind {kind} has one {field}: give the one that "
                "holds all, or declare a dataset for each"
            )
        source[field] = located if takes_all else located[0]
    if columns["repositories"]:
        columns["repositories"] = _located(columns["repositories"])
    source |= {key: list(value) if isinstance(value, tuple) else value for key, value in columns.items() if value}
    attributes = {"name": name, "samples": samples, "source": source}
    _set(attributes, settings)
    page = _ORIGINS.get("web" if source.get("urls") else str(source["kind"]), ("", "docs/extend/extending.md"))[1]
    try:
        _require_usable(name, attributes, corpora)
    except DefinitionError as error:
        reason = str(error).removesuffix("; mend it in YAML or run config")
        raise CommandError(f"{reason}; give it by --set source.FIELD=VALUE, see {page}") from error
    target = project_folder().defs / name / "defs.yaml"
    if target.exists():
        raise CommandError(f"dataset {name}: {short_path(target)} is there already; edit it, or choose another name")
    plans = [(word, *_corpus_with(word, name)) for word in dict.fromkeys(corpora)]
    _write(target, {"type": DATASET, "attributes": attributes}, f"# All that it may say of its source: {page}\n")
    say(f"wrote {short_path(target)}")
    for word, file, text in plans:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        say(f"corpus {word}: {short_path(file)} names {name}")
    say(f"Next: headrace run {' '.join((name, *corpora))}")


def remove_declaration(name: str, tables: bool, yes: bool) -> None:
    """Remove the declaration of a dataset, and its tables from the catalogue; refused while a corpus names it."""
    file = dataset_file(name)
    refuse_in_corpora(name)
    catalogue = lake_catalogue()
    there = tables_in(catalogue, name)
    if not yes:
        dropped = f" and drops {len(there)} tables" if tables and there else ""
        click.confirm(f"This deletes {short_path(file)}{dropped}. Go on?", abort=True)
    file.unlink()
    if not any(file.parent.iterdir()):
        file.parent.rmdir()
    say(f"removed {short_path(file)}")
    if tables:
        for identifier in there:
            catalogue.drop_table(identifier)
        say(f"dropped {len(there)} tables; their files stay in the warehouse")
    elif there:
        say(f"Its {len(there)} tables stay; to drop them: headrace table delete {' '.join(there)}")


def _required_field(kind: str) -> str:
    """The first required field of a package's source, filled by `--from`.

    Raises:
        CommandError: the kind is unknown, or has no required field.
    """
    from spark_jobs.plugins import load
    from spark_jobs.sources.config.file_source import FileSource

    try:
        model: Any = load("sources", kind, FileSource, _ORIGINS)
    except ConfigError as error:
        raise CommandError(f"--kind: {error}") from error
    required: list[str] = [name for name, info in model.model_fields.items() if info.is_required()]
    if not required:
        raise CommandError(f"--from: a source of kind {kind} requires nothing; write --set source.FIELD=VALUE instead")
    return required[0]


def _located(path: str) -> str:
    """The path as an absolute one; a URI stays as it is."""
    return path if "://" in path else str(Path(path).expanduser().absolute())


def _set(attributes: dict[str, Any], settings: tuple[str, ...]) -> None:
    """Set fields of a declaration by `--set`: `source.records=data` sets `records` of `source`; values are YAML."""
    from dagster_project.components import Dataset

    for setting in settings:
        path, is_one, value = setting.partition("=")
        *above, last = path.split(".")
        first = (*above, last)[0]
        if not is_one or not all((*above, last)) or first == "name":
            raise CommandError(f"--set {setting}: write FIELD=VALUE, e.g. --set source.records=data")
        if first not in Dataset.model_fields:
            near = did_you_mean(first, [*Dataset.model_fields])
            raise CommandError(
                f"--set {setting}: a dataset has no field {first}{near}; fields of its source: source.FIELD"
            )
        holder = attributes
        for key in above:
            holder = holder.setdefault(key, {})
            if not isinstance(holder, dict):
                raise CommandError(f"--set {setting}: {key} is a value and has no fields")
        try:
            holder[last] = _yaml().load(value)
        except Exception as error:  # ruamel has no common base of its errors
            raise CommandError(f"--set {setting}: the value is no YAML; quote it") from error


def _facts(texts: tuple[str, ...]) -> dict[str, str]:
    """Map facts to columns: `fork_of=parent` -> {fork_of: parent}. Their names are checked with the source."""
    for text in texts:
        if not all(text.partition("=")[::2]):
            raise CommandError(f"--fact-column {text}: write FACT=COLUMN, e.g. --fact-column fork_of=parent")
    return {fact: column for fact, _, column in (text.partition("=") for text in texts)}


def _require_usable(name: str, attributes: dict[str, Any], corpora: tuple[str, ...]) -> None:
    """Check a declaration like the project does when it loads, and that its source has files, before writing it."""
    from dagster_project.run_config import bind_config
    from spark_jobs.lake.declare.tables import check_identifier
    from spark_jobs.sources.config.file_reading import KINDS
    from spark_jobs.sources.config.paged_source import PagedSource
    from spark_jobs.sources.config.source_config import DocumentsConfig
    from spark_jobs.sources.documents import ARRIVALS
    from spark_jobs.sources.listing.changes import discover

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
    if (kind := attributes["source"].get("record_kind", KINDS[0])) not in KINDS:
        raise CommandError(f"--record-kind {kind}: no kind{did_you_mean(kind, KINDS)}")
    values = {field: value for field, value in attributes.items() if field in DocumentsConfig.model_fields}
    config = bind_config(DocumentsConfig, f"{name}/documents", {**values, "dataset": name})
    if not config.is_fetched and not isinstance(config.source, PagedSource):
        listing = discover(config, ARRIVALS.schema().as_arrow().empty_table(), False)
        _require_usable_file(name, listing)
        _require_columns(config.source, listing)


def _require_usable_file(name: str, listing: pa.Table | None) -> None:
    """Refuse a source all of whose files, packages or repositories would be refused by their names alone."""
    if listing is None or listing["reason"].null_count:
        return
    first, more = listing.slice(0, 1).to_pylist()[0], listing.num_rows - 1
    also = f", and {more:,} more are refused" if more else ""
    raise CommandError(f"dataset {name}: {first['location']}: {first['detail']}{also}; correct --from")


def _require_columns(source: Source, listing: pa.Table | None) -> None:
    """Check that the first file of records has the columns named by options; metadata columns may be missing."""
    import pyarrow.compute as pc

    from spark_jobs.sources.config.file_source import FileSource
    from spark_jobs.sources.listed_file import ListedFile
    from spark_jobs.sources.reading.built_in import COLUMN_READERS
    from spark_jobs.sources.reading.record_files import record_columns
    from spark_jobs.sources.records.records import messages_among

    if listing is None or not isinstance(source, FileSource):
        return
    records = listing.filter(pc.field("reader").isin(COLUMN_READERS)).slice(0, 1).to_pylist()
    if not records:
        return
    first = records[0]
    try:
        columns = record_columns(ListedFile.of(first), source)
    except OSError:
        return  # the run records in `arrivals` why the file was rejected
    for field, column in source.role_columns.items():
        if columns and column not in columns:
            option = f"--{field.replace('_', '-')}"
            messages = messages_among(columns) if field == "text_column" else None
            mend = did_you_mean(column, columns) if messages is None else f"; write --messages-column {messages}"
            raise CommandError(f"{option} {column}: {first['path']} has no such column{mend}")


def _corpus_with(word: str, name: str) -> tuple[Path, str]:
    """The file of a corpus, and its YAML with a dataset added; a new file where the corpus is not declared.

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


def _write(file: Path, content: dict[str, Any], comment: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as out:
        out.write(comment)
        _yaml().dump(content, out)


def _yaml() -> Any:
    """A comment-keeping YAML reader and writer."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 120
    yaml.preserve_quotes = True
    return yaml
