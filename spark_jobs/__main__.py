"""Run one step from the command line, with plain `python` or with `spark-submit`.

    python -m spark_jobs                                   list the steps
    python -m spark_jobs signals --help                    describe the config, inputs and table of one
    python -m spark_jobs signals --input texts=notes.texts --output notes.signals
    python -m spark_jobs verdicts --input signals=signals.parquet --output verdicts.parquet policy=mine.yaml
    spark-submit spark_jobs/__main__.py texts --input documents=docs.parquet --output texts.parquet

Tables are brought up to date as by `headrace run` (increments, audit, ledger). A Parquet output is written under
another name, checked, and renamed.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from headrace.process.interrupts import heed_interrupts
from spark_jobs.exceptions import ConfigError, SparkJobsError
from spark_jobs.registry import config_model, find_step, step_names


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one step; gives the exit status, 0 for success and 2 where an argument, input or result was refused."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for chatty in ("py4j", "pyiceberg"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(f"{__doc__}\nSteps: {', '.join(step_names())}\n")
        return 0
    try:
        return _run(words[0], words[1:])
    except SparkJobsError as error:
        sys.stderr.write(f"{words[0]}: {' '.join(str(error).split())}\n")
        return 2


def _run(name: str, words: list[str]) -> int:
    from spark_jobs.program import run_step

    model = config_model(name)
    parser = _parser(name, model)
    arguments = parser.parse_intermixed_args(words)
    config = read_config(name, model, arguments.config, arguments.settings)
    step = find_step(name, config)
    inputs = dict(_pair(text) for text in arguments.input)
    for line in run_step(step, config, inputs, arguments.output, arguments.follow, arguments.increment):
        sys.stdout.write(f"{line}\n")
    return 0


def _parser(name: str, model: type[BaseModel]) -> argparse.ArgumentParser:
    """Parser of a step's arguments, whose help describes the config from its model."""
    parser = argparse.ArgumentParser(
        prog=f"python -m spark_jobs {name}",
        description=(model.__doc__ or "").strip(),
        epilog="config:\n" + "\n".join(describe_config(model)) + "\n\n" + "\n".join(_describe_tables(name, model)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=TABLE_OR_PARQUET",
        help="an input of the step; of several tables, separated by commas, the union is read",
    )
    parser.add_argument(
        "--output", required=True, metavar="TABLE_OR_PARQUET", help="namespace.table, or a folder of Parquet files"
    )
    parser.add_argument(
        "--follow", metavar="TABLE", help="compute one increment for each increment of this table; default: first input"
    )
    parser.add_argument("--increment", type=int, help="compute this increment only; default: all new or changed ones")
    parser.add_argument("--config", metavar="FILE", help="YAML or JSON file with the config")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="config values; nested ones as a.b=value")
    return parser


def describe_config(model: type[BaseModel], prefix: str = "") -> list[str]:
    """One line for every config value: name, type, default, meaning."""
    lines = []
    for name, info in model.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            lines += describe_config(kind, f"{prefix}{name}.")
            continue
        shown = getattr(kind, "__name__", None) if isinstance(kind, type) else str(kind).replace("typing.", "")
        default = "required" if info.is_required() else f"default {info.get_default(call_default_factory=True)!r}"
        lines.append(f"  {prefix}{name} ({shown}, {default}): {info.description or ''}")
    return lines


def _describe_tables(name: str, model: type[BaseModel]) -> list[str]:
    if name == "packed":
        return ["inputs: tokens, ordered, tokenizer; table: packed_<dataset>_<window_tokens>"]
    step = find_step(name, model.model_construct())
    lines = [f"inputs: {', '.join(step.inputs) or 'none'}; scope: {step.scope.value}"]
    for table in step.tables:
        lines.append(f"table {table.name}: {table.comment}")
        lines += [f"  {column.name} {column.type}: {column.comment}" for column in table.columns]
    return lines


def read_config(name: str, model: type[BaseModel], file: str | None, settings: Sequence[str]) -> BaseModel:
    """The config of a step from a file and from key=value settings, which override the file.

    Raises:
        ConfigError: the file cannot be read, a setting is no key=value, or a value is refused.
    """
    values: dict[str, Any] = {}
    if file is not None:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        try:
            values = YAML(typ="safe").load(Path(file).read_text()) or {}
        except (OSError, YAMLError) as error:
            raise ConfigError(f"--config {file}: {error}; give a YAML or JSON file") from error
        if not isinstance(values, dict):
            raise ConfigError(f"--config {file}: it holds a {type(values).__name__}; write name: value lines")
    for setting in settings:
        key, value = _pair(setting)
        section = values
        *outer, last = key.split(".")
        for part in outer:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise ConfigError(f"{setting}: {part} is a value, it has no parts")
        section[last] = _plain(value)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{name}: config {where}: {first['msg']}; see python -m spark_jobs {name} --help") from error


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"{text!r} is no name=value")
    return name, value


def _plain(text: str) -> Any:
    """The value of a text that is JSON, else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


if __name__ == "__main__":
    heed_interrupts()
    sys.exit(main())
