"""Read what is declared below `defs` of the project, without loading it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster_project.exceptions import CommandError
from dagster_project.project.diagnosis import COMPONENTS, component_type, read_yaml, short_path
from dagster_project.project.loading import load_definitions, project_folder
from spark_jobs.exceptions import nearest

if TYPE_CHECKING:
    from dagster_project.keeping import Keeping
    from spark_jobs.filters.policy import Columns

DATASET, CORPUS = COMPONENTS[:2]
_NEEDED: dict[str, dict[str, type]] = {
    DATASET: {"name": str, "source": dict},
    CORPUS: {"name": str, "datasets": list},
}


def declarations(component: str) -> list[tuple[Path, dict[str, Any]]]:
    """File and attributes of every declaration of a component, such as headrace.Dataset, in the order of their names.

    Raises:
        CommandError: a file is not YAML.
    """
    pairs: list[tuple[Path, dict[str, Any]]] = []
    for file in sorted(project_folder().defs.glob("**/defs.yaml")):
        content = read_yaml(file)
        if component_type(content) != component:
            continue
        attributes = content.get("attributes")
        attributes = attributes if isinstance(attributes, dict) else {}
        for field, kind in _NEEDED.get(component, {"name": str}).items():
            if not isinstance(attributes.get(field), kind):
                raise CommandError(
                    f"{short_path(file)}: attributes: {field} is missing, or no {kind.__name__}; mend the file"
                )
        pairs.append((file, attributes))
    return sorted(pairs, key=lambda pair: str(pair[1]["name"]))


def declaration(component: str, name: str, mend: str = "") -> tuple[Path, dict[str, Any]]:
    """The file that declares a component of a name, and its attributes.

    Raises:
        CommandError: none does; the message ends with `mend`.
    """
    by_name = {str(declared["name"]): (file, declared) for file, declared in declarations(component)}
    if name not in by_name:
        noun = component.rpartition(".")[2].lower()
        mend = mend or f"`headrace {noun} show` lists those that are"
        raise CommandError(f"{noun} {name} is not declared{nearest(name, by_name)}; {mend}")
    return by_name[name]


def dataset_file(name: str) -> Path:
    """The file that declares a dataset.

    Raises:
        CommandError: none does.
    """
    return declaration(DATASET, name)[0]


def declared_keeping() -> dict[str, Keeping]:
    """How long each declared dataset keeps what landed.

    Raises:
        DefinitionError: a declaration says something that cannot be used.
    """
    from dagster_project.keeping import keeping_of  # imports Dagster, so not at the top

    return {attributes["name"]: keeping_of(attributes["name"], attributes) for _, attributes in declarations(DATASET)}


def declared_sources() -> dict[str, dict[str, Any]]:
    """The source of each declared dataset."""
    return {str(attributes["name"]): attributes["source"] for _, attributes in declarations(DATASET)}


def refuse_in_corpora(name: str) -> None:
    """Refuse to delete a dataset that a declared corpus names.

    Raises:
        CommandError: names the first such corpus, and its file.
    """
    for where, declared in declarations(CORPUS):
        if name in declared["datasets"]:
            mend = f"take it out of {short_path(where)} first"
            raise CommandError(f"dataset {name}: corpus {declared['name']} names it; {mend}")


def texts_are_shown(dataset: str) -> bool:
    """Whether texts of a dataset may be shown: its declaration says `samples: text`.

    The project is loaded only for a dataset that no YAML declares.

    Raises:
        CommandError: no row may be shown, or nothing declares the dataset.
    """
    shown = {attributes["name"]: attributes.get("samples", "ids") for _, attributes in declarations(DATASET)}
    samples = shown.get(dataset)
    if samples in ("ids", "text"):
        return bool(samples == "text")
    return "content" not in hidden_columns(f"{dataset}.texts")


def hidden_columns(identifier: str) -> list[str]:
    """Columns with texts of documents that may not be shown, by the declaration of a table.

    Raises:
        CommandError: no row may be shown, or the table is not declared any more.
    """
    from dagster_project.lake_asset import declared_asset
    from dagster_project.metadata import Samples

    if identifier.startswith("system."):
        return []
    graph = load_definitions().resolve_asset_graph()
    asset = declared_asset(graph, identifier)
    if asset is None:
        raise CommandError(f"{identifier}: nothing declares it any more, so which columns hold texts is not known")
    samples = asset.samples(graph)
    if samples is Samples.NONE:
        raise CommandError(f"{identifier}: its declaration says `samples: none`, so no row is shown; change it to ids")
    return list(asset.declared(identifier).sampled) if samples is Samples.IDS else []


def declared_columns(dataset: str) -> Columns:
    """Types of the columns that the project declares for a dataset, by table."""
    from dagster_project.lake_asset import assets_of

    assets = assets_of(load_definitions())
    tables = [table for asset in assets if asset.namespace == dataset for table in asset.step.tables]
    return {table.name: {column.name: column.type for column in table.columns} for table in tables}
