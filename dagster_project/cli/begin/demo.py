"""`headrace demo`: all stages in one command, from files on this machine to a model trained on them.

tables   every asset of the demo's two datasets and their corpus, as with `headrace run`
blend    code and docs, 3 to 1; the same tables give the same blend
serve    Blender in a process of its own, on a free port of the loopback
train    examples/train_tiny.py in another process, which gets all data over gRPC; once for each blend, since the same
         blend gives the same training. Run and blend have the same name, and the losses are taken over from the run's
         log: `headrace explore` leads from a rise of the loss to the documents of that step
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dagster_project.cli.output import say
from dagster_project.cli.run.execution import execute, require_done
from dagster_project.cli.run.step_lines import StepLine, print_left, print_line
from dagster_project.exceptions import CommandError, RunFailedError
from dagster_project.inspect.lake.training_runs import take_losses
from dagster_project.project.loading import lake_catalogue
from headrace.tables.settings import load_settings

_SELECTION = ("python_code", "python_docs", "main")
_SOURCES = {"main.packed_python_code_512": "3", "main.packed_python_docs_512": "1"}
_EXAMPLE = Path(__file__).parents[3] / "examples" / "train_tiny.py"


@dataclass(frozen=True)
class Training:
    """The training job's results, printed at its end."""

    first_loss: float
    last_loss: float
    tokens: int
    parameters: int
    seconds: float


@click.command()
@click.option("--steps", default=60, show_default=True, type=click.IntRange(min=2), help="training steps")
@click.option("--again", is_flag=True, help="train even if this blend was trained on before")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object at the end, nothing else")
def demo(steps: int, again: bool, as_json: bool) -> None:
    """Build a lake from files on this machine, blend it, and train a tiny transformer on it."""
    started = time.monotonic()
    if not _EXAMPLE.is_file():
        raise CommandError(f"{_EXAMPLE}: not there; run the demo from a checkout of headrace")
    tell = (lambda text: None) if as_json else say
    tell("1/3  tables: ingest, filter, deduplicate, tokenize, pack")
    lines = execute(_SELECTION, None, _tell_failure if as_json else print_line, tell)
    if not as_json:
        print_left(lines)
    require_done(lines, "headrace demo")
    tell("2/3  blend: code and docs, 3 to 1")
    name, blend_id = _create_blend()
    tell(f"     {name}, {blend_id}")
    tell(f"3/3  train: {steps} steps on batches that come over gRPC")
    result = load_settings().home / "demo" / f"{blend_id[:12]}_{steps}_steps.json"
    training = None if again else _trained(result)
    if training is None:
        with _blender() as address:
            result.parent.mkdir(parents=True, exist_ok=True)
            losses = result.with_suffix(".losses.jsonl")
            training = _train(address, blend_id, ["--run", name, "--losses", str(losses), "--steps", str(steps)], tell)
        take_losses(lake_catalogue(), name, losses)
        result.write_text(json.dumps(vars(training)))
    else:
        tell("     trained before on this blend; once more: headrace demo --again")
    utilisation = _utilisation()
    seconds = time.monotonic() - started
    if as_json:
        facts = {"steps": [vars(line) for line in lines], "blend": blend_id, "utilisation": utilisation}
        say(json.dumps({**facts, "training": vars(training), "seconds": round(seconds, 1)}))
        return
    _summarise(utilisation, name, training, seconds)


def _tell_failure(line: StepLine) -> None:
    """Print the error of a failed step; print nothing for other steps."""
    if line.status == "failed":
        say(f"{line.label}: {line.detail}", err=True)


def _trained(result: Path) -> Training | None:
    """The results of an earlier training; None where the file is missing or broken."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Training(**json.loads(result.read_text()))
    return None


def _create_blend() -> tuple[str, str]:
    """Create the blend; its name and its id."""
    from blender_service.blend.requests import BlendSpec, SourceSpec
    from blender_service.catalogue import open_catalogue
    from blender_service.server.blender import Blender

    sources = tuple(SourceSpec(table=table, weight=weight, max_epochs=0) for table, weight in _SOURCES.items())
    blender = Blender(open_catalogue())
    blend_id: str = blender.create(BlendSpec(sources, seed=17)).blend_id
    name = f"demo-{blend_id[:8]}"  # a name is bound for good, and other files of this machine give another blend
    blender.bind(name, blend_id)
    return name, blend_id


@contextlib.contextmanager
def _blender() -> Iterator[str]:
    """Run Blender in a process of its own; give its address."""
    command = [sys.executable, "-m", "dagster_project.cli", "serve", "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            yield _address(server)
        finally:
            server.terminate()


def _address(server: subprocess.Popen[str]) -> str:
    """The address in the server's log once it listens."""
    lines = []
    for line in server.stdout or ():
        lines.append(line.strip())
        for word in line.split():
            host, _, port = word.strip(".,;()").rpartition(":")
            if host == "127.0.0.1" and port.isdigit():
                return f"{host}:{port}"
    raise CommandError(f"Blender did not start: {' '.join(lines)[:500]}; try `headrace serve`")


def _train(address: str, blend_id: str, options: Sequence[str], tell: Any) -> Training:
    """Run the example, and print its progress."""
    command = [sys.executable, str(_EXAMPLE), "--address", address, "--blend", blend_id, *options, "--json"]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        for line in job.stdout or ():
            lines.append(line.rstrip())
            if not line.startswith("{"):
                tell(f"     {line.rstrip()}")
    if job.returncode != 0 or not lines:
        raise RunFailedError(f"training ended with status {job.returncode}: {' '.join(lines[-3:])[:500]}")
    values = json.loads(lines[-1])
    return Training(**{name: values[name] for name in Training.__dataclass_fields__})


def _utilisation() -> dict[str, float]:
    """Share of the positions with a token, not padding, in each packed table."""
    from spark_jobs.packing.utilisation import utilisation

    catalogue = lake_catalogue()
    shares = {}
    for _, name in sorted(catalogue.list_tables("main")):
        if name.startswith("packed_"):
            table = catalogue.load_table(f"main.{name}")
            counts = table.scan(selected_fields=("token_count",)).to_arrow()["token_count"]
            length = int(table.properties["headrace.window-tokens"])
            shares[f"main.{name}"] = utilisation(counts, length)
    return shares


def _summarise(utilisation: dict[str, float], name: str, training: Training, seconds: float) -> None:
    say("\npacking utilisation")
    for table, share in utilisation.items():
        say(f"  {table:<32} {share:8.3%}")
    say(
        f"\ntraining: {training.parameters:,} parameters, {training.tokens:,} tokens served, loss "
        f"{training.first_loss:.3f} at the first step, {training.last_loss:.3f} at the last, {training.seconds:.1f} s"
    )
    say(f"\nDone in {seconds:.0f} s. Next:")
    say(f"  .venv/bin/headrace explore               training runs, {name}: its loss, the documents behind each rise")
    say("  .venv/bin/headrace ui                                    the graph, every table, its rows and checks")
    say("  .venv/bin/headrace dataset add notes --from PATH         your own files as a dataset")
    say(f"  .venv/bin/headrace blend show {name}               what the model was trained on")
