"""The pages of the site that are made of the code and of the files beside README.md: a hook of MkDocs (see mkdocs.yml).

Nothing is written to disk, so no page can be older than what it describes. What a page says comes from where it is said
already: fields of config models, `Table` declarations, comments of the protos, `--help`, docstrings.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic import BaseModel

_ROOT = Path(__file__).resolve().parents[1]
_SCALARS = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "null": "none"}
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_ELSEWHERE = ("FilesSource", "PythonCodeSource", "PythonDocsSource")  # models that declarations.md describes


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List all decisions in the navigation, so that a new one is a new file and no more."""
    numbered = sorted((_ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    for group in config.nav or ():
        for entry in next(iter(group.values())):
            if "Decisions" in entry and isinstance(entry, dict):
                entry["Decisions"] = ["decisions/README.md", *(f"decisions/{file.name}" for file in numbered)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for name, text in pages():
        files.append(File.generated(config, name, content=text))
    return files


def pages() -> Iterator[tuple[str, str]]:
    """Each page that is made: its place in the site and its Markdown."""
    for file, name in (
        ("README", "index"),
        *((word, word.lower()) for word in ("AGENTS", "CONTRIBUTING", "CHANGELOG", "SECURITY")),
    ):
        yield f"{name}.md", _from_root((_ROOT / f"{file}.md").read_text())
    yield "reference/commands.md", _commands()
    yield "reference/declarations.md", _declarations()
    yield "reference/steps.md", _steps()
    yield "reference/tables.md", _tables()
    yield "reference/protocol.md", _protocol()
    yield "reference/python.md", _python()


def _from_root(text: str) -> str:
    """Links of a file in the root, as links of a page in docs/; one that shows its own path shows the page's name."""
    text = re.sub(r"\]\(([A-Z]+\.md)\)", lambda found: f"]({found[1].lower()})", text)
    named = re.sub(r"\[docs/(?:\w+/)*(\w+)(?:\.md)?\](?=\()", r"[\1]", text)
    return re.sub(r"\]\(docs/([^)]*)\)", r"](\1)", named)


def _commands() -> str:
    """The tree of commands, then what `--help` says of each."""
    from dagster_project.cli import headrace

    walked = list(_walk(headrace, ()))
    verbs = {words[0]: [verb for noun, verb in filter(_is_pair, walked) if noun == words[0]] for words in walked[1:]}
    tree = "\n".join(f"{noun:<10}  {'  '.join(below)}".rstrip() for noun, below in verbs.items())
    parts = [
        "# Commands\n\nA noun, then a verb; `show` lists all, `show NAME` has one. A mistake of yours is one line and "
        f"exit status 2.\n\n```text\n{tree}\n```\n\nWhat `--help` prints:\n"
    ]
    for words in walked:
        arguments = [*words, "--help"]
        said = CliRunner(env={"COLUMNS": "80"}).invoke(headrace, arguments, prog_name="headrace").output
        parts.append(f"## {' '.join(('headrace', *words))}\n\n```text\n{said.strip()}\n```\n")
    return "\n".join(parts)


def _is_pair(words: tuple[str, ...]) -> bool:
    return len(words) == 2


def _walk(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from _walk(found, (*words, name))


def _declarations() -> str:
    """What `defs.yaml` may say."""
    from dagster_project.assets.deduplication import Deduplication
    from dagster_project.components import Blend, Corpus, Dataset
    from headrace_features.apis.api_config import ApiSource
    from headrace_features.apis.stream_config import StreamSource
    from headrace_features.hub.hub_source import HubSource
    from headrace_features.models.component import Model
    from spark_jobs.registry import find_selection, selection_names
    from spark_jobs.sources.config.iceberg_source import IcebergSource
    from spark_jobs.sources.config.source_config import (
        FilesSource,
        GitSource,
        PackagesSource,
        PythonCodeSource,
        PythonDocsSource,
    )
    from spark_jobs.tokens.tokenizer import TokenizerConfig

    parts = [
        "# Declarations\n\nWhat a `defs.yaml` below `dagster_project/defs` may say: `type` names a component, "
        "`attributes` are its fields.\n"
    ]

    def describe(model: type[BaseModel], title: str, about: str) -> None:
        parts.append(f"{title} {model.__name__}\n\n{about}{inspect.getdoc(model)}\n\n{_fields(model)}")

    components: tuple[Any, ...] = (Dataset, Corpus, Model, Blend)
    for component in components:
        describe(component, "##", f"`type: headrace.{component.__name__}`\n\n")
        if component is Dataset:
            sources = (FilesSource, IcebergSource, GitSource, PackagesSource, ApiSource, StreamSource, HubSource)
            for source in (*sources, PythonCodeSource, PythonDocsSource):
                describe(source, "###", f"`source`, kind `{source.model_fields['kind'].default}`: ")
        if component is Corpus:
            describe(Deduplication, "###", "`deduplication`: ")
            for name in selection_names():
                describe(find_selection(name).config, "###", f"`select`, `{name}`: ")
            describe(TokenizerConfig, "###", "`tokenizer`; all but `file` stand below `train`: ")
    return "\n".join(parts)


def _python() -> str:
    """What users' code imports: every name of the front door with the first line of its docstring."""
    import headrace

    found = {name: getattr(headrace, name) for name in sorted(headrace.__all__)}
    said = {name: inspect.getdoc(one) or "" if callable(one) else f"`{one!r}`" for name, one in found.items()}
    rows = [(f"`{name}`", _escaped(text.split("\n\n")[0])) for name, text in said.items()]
    return f"# Python\n\nAll that your code imports: `from headrace import NAME`.\n\n{_grid('name | what it is', rows)}"


def _steps() -> str:
    """Every step: what it does, what it reads, what it writes, its config."""
    parts = [
        "# Steps\n\nIn the order in which data flows. `steps: {NAME: {FIELD: VALUE}}` of a dataset or a corpus sets "
        "the config; `python -m spark_jobs NAME` runs a step by itself. "
        "The [scope](../extend/architecture.md#increments) says which increments of the inputs one depends on.\n"
    ]
    for step in _all_steps():
        inputs = ", ".join(f"`{name}`" for name in step.inputs) or "none"
        written = ", ".join(f"[`{table.name}`](tables.md#{table.name})" for table in step.tables)
        parts.append(f"## {re.sub('^packed_.*', 'packed', step.name)}\n\n{_summary(step.function)}\n")
        parts.append(f"Inputs: {inputs}. Writes: {written}. Scope: {step.scope.value}. Version: {step.version}.\n")
        if step.config.model_fields:
            parts.append(f"{_summary(step.config)}\n\n{_fields(step.config)}")
    return "\n".join(parts)


def _tables() -> str:
    """Every table with its columns, as declared."""
    from spark_jobs.lake.declare.tables import Table

    parts = [
        "# Tables\n\nEvery table that a step writes, in the order in which data flows, and those of the lake itself. "
        "`packed_notes_2048` stands for the packed tables of all datasets and window lengths.\n"
    ]
    shown = {table.name: table for step in _all_steps() for table in step.tables}
    lake = pkgutil.walk_packages(importlib.import_module("spark_jobs.lake").__path__, "spark_jobs.lake.")
    for module in (*(one.name for one in lake), "spark_jobs.filters.policy_registry"):
        found = vars(importlib.import_module(module)).values()
        shown |= {table.name: table for table in found if isinstance(table, Table) and table.name not in shown}
    for table in shown.values():
        columns = [
            (f"`{one.name}`", f"`{one.type}`", "yes" if one.required else "", _escaped(one.comment))
            for one in table.all_columns
        ]
        parts.append(f"## {table.name}\n\n{_escaped(table.comment)}\n")
        parts.append(_grid("column | type | required | meaning", columns))
        facts = {"Key": table.key, "Sorted by": table.sort, "Partitioned by": table.partition}
        said = [f"{title}: {', '.join(f'`{name}`' for name in names)}." for title, names in facts.items() if names]
        parts.append(f"{' '.join(said)}\n")
        checks = [f"- `{check.name}`: {_escaped(check.description)}" for check in (*table.checks, *table.proofs)]
        if checks:
            parts.append("Checked before rows are published:\n\n" + "\n".join(checks) + "\n")
    return "\n".join(parts)


def _all_steps() -> Iterator[Any]:
    from spark_jobs.registry import config_model, find_step, step_names

    for name in step_names():
        given: dict[str, Any] = {"dataset": "notes", "window_tokens": 2048} if name == "packed" else {}
        yield find_step(name, config_model(name).model_construct(None, **given))


def _summary(thing: Any) -> str:
    """A docstring up to its first section of Google's form."""
    text = inspect.getdoc(thing) or ""
    return re.split(r"^(?:Args|Attributes|Returns|Raises|Yields):$", text, flags=re.MULTILINE)[0].strip()


def _fields(model: type[BaseModel]) -> str:
    """A table of a model's fields; models that are types of fields follow."""
    schema = model.model_json_schema()
    for name, info in model.model_fields.items():
        if info.default_factory is not None:
            default = info.get_default(call_default_factory=True, validated_data={})
            schema["properties"][name]["default"] = getattr(default, "label", default)  # of a policy its name
    parts = [_schema_table(schema)]
    for name, inner in schema.get("$defs", {}).items():
        if "properties" in inner and name not in _ELSEWHERE:
            parts.append(f"`{name}`: {_escaped(inner.get('description', ''))}\n\n{_schema_table(inner)}")
    return "\n".join(parts)


def _schema_table(schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    rows = [
        (f"`{name}`", _type(field), _default(field, name in needed), _escaped(field.get("description", "")))
        for name, field in schema["properties"].items()
    ]
    return _grid("field | type | default | meaning", rows)


def _default(field: Mapping[str, Any], required: bool) -> str:
    value = field.get("default")
    return "required" if required else "none" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"


def _type(field: Mapping[str, Any]) -> str:
    """A type of JSON Schema in words, with its bounds."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[`{name}`](declarations.md#{name.lower()})" if name in _ELSEWHERE else f"`{name}`"
    if "anyOf" in field or "oneOf" in field:
        return " or ".join(_type(one) for one in field.get("anyOf", field.get("oneOf", ())))
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", (field.get("const"),)))
    if field.get("type") == "array":
        inner = f"list of {_type(field['items'])}" if field.get("items") else "list"
    elif field.get("type") == "object":
        values = field.get("additionalProperties")
        inner = f"map to {_type(values)}" if isinstance(values, dict) else "map"
    else:
        inner = _SCALARS.get(field.get("type", ""), "anything")
    bounds = [f"{sign} {field[key]}" for key, sign in _BOUNDS.items() if key in field]
    bounds += ["not empty"] if field.get("minLength") or field.get("minItems") else []
    bounds += [f"like `{field['pattern']}`"] if "pattern" in field else []
    return ", ".join([inner, *bounds])


def _grid(head: str, rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, " | ".join("---" for _ in head.split("|")), *(" | ".join(row) for row in rows)]
    return "".join(f"| {line} |\n" for line in lines)


def _escaped(text: str) -> str:
    """Plain text as Markdown, but for `code`, which stays code."""
    return re.sub(r"(`[^`]*`)|([*_<|\[\]{}])", lambda found: found[1] or f"\\{found[2]}", " ".join(text.split()))


def _protocol() -> str:
    """Services, messages and enumerations of the protos, with their comments."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    protos = _ROOT / "protos"
    names = sorted(str(path.relative_to(protos)) for path in protos.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "descriptors"
        flags = [f"--proto_path={protos}", f"--descriptor_set_out={made}", "--include_source_info"]
        if protoc.main(["protoc", *flags, *names]) != 0:
            raise RuntimeError(f"protoc refused {', '.join(names)}; its message is above")
        found = FileDescriptorSet.FromString(made.read_bytes()).file
    top = "# Protocol\n\nThe files lie in `protos/`. A field without a comment is what its name says.\n"
    return "\n".join([top, *(text for file in found for text in _proto_file(file))])


def _proto_file(file: FileDescriptorProto) -> Iterator[str]:
    """A file, thing by thing; comments are found by the path of field numbers that descriptor.proto gives a thing."""
    said = {tuple(one.path): _escaped(one.leading_comments) for one in file.source_code_info.location}
    yield f"## {Path(file.name).name}\n\n{said.get((12,), '')} Package `{file.package}`.\n"
    for at, service in enumerate(file.service):
        yield f"### {service.name}\n\n{said.get((6, at), '')}\n"
        rows = []
        for number, call in enumerate(service.method):
            answer = f"{'stream of ' if call.server_streaming else ''}{_linked(call.output_type)}"
            rows.append((f"`{call.name}`", _linked(call.input_type), answer, said.get((6, at, 2, number), "")))
        yield _grid("call | request | answer | meaning", rows)
    for at, message in enumerate(file.message_type):
        yield f"### {message.name}\n\n{said.get((4, at), '')}\n"
        rows = [
            (f"`{field.name}`", str(field.number), _field_type(field), said.get((4, at, 2, number), ""))
            for number, field in enumerate(message.field)
        ]
        yield _grid("field | number | type | meaning", rows)
    for at, enumeration in enumerate(file.enum_type):
        yield f"### {enumeration.name}\n\n{said.get((5, at), '')}\n"
        values = enumerate(enumeration.value)
        constants = [(f"`{value.name}`", str(value.number), said.get((5, at, 2, n), "")) for n, value in values]
        yield _grid("value | number | meaning", constants)


def _field_type(field: FieldDescriptorProto) -> str:
    scalar = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    name = _linked(field.type_name) if field.type_name else scalar
    repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
    return f"repeated {name}" if repeated else f"optional {name}" if field.proto3_optional else name


def _linked(type_name: str) -> str:
    name = type_name.rpartition(".")[2]
    return f"[{name}](#{name.lower()})"
