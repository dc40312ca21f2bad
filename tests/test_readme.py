"""README.md and docs/start/tour.md are true: commands and examples run, on a copy, as a new user would."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.tables.settings import settings_at
from spark_jobs.lake.session.catalogue import open_catalogue

_ROOT = Path(__file__).parents[1]
_README = (_ROOT / "README.md").read_text()
_TOUR = (_ROOT / "docs" / "start" / "tour.md").read_text()
_PACKAGES = ("headrace", "headrace_features", "dagster_project", "spark_jobs", "blender_service")


def blocks(language: str, text: str = _TOUR) -> list[str]:
    """Code blocks of a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


class Checkout:
    """A copy of this checkout without its demo data, with a lake of its own."""

    def __init__(self, root: Path) -> None:
        for package in _PACKAGES:
            shutil.copytree(_ROOT / package, root / package, ignore=shutil.ignore_patterns("*.pyc"))
        shutil.copytree(_ROOT / "benchmarks", root / "benchmarks", ignore=shutil.ignore_patterns("*.pyc"))
        for file in ("pyproject.toml", "workspace.yaml"):
            shutil.copy(_ROOT / file, root / file)
        for declared in ("main", "python_code", "python_docs"):
            shutil.rmtree(root / "dagster_project" / "defs" / declared)
        self.root = root
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYICEBERG_")},
            "PYTHONPATH": str(root),
            "HEADRACE_SPARK_MEMORY": "1g",
        }

    def run(self, command: str, expect: int = 0) -> str:
        """Run a README command line; gives what it printed."""
        words = shlex.split(command)
        program = {"headrace": [sys.executable, "-m", "dagster_project.cli"], "python": [sys.executable]}[words[0]]
        done = subprocess.run(
            [*program, *words[1:]],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == expect, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A copy to work in, with a folder of notes beside it: two of a kind each."""
    (tmp_path / "copy").mkdir()
    made = Checkout(tmp_path / "copy")
    notes = tmp_path / "notes"
    notes.mkdir()
    water = "water turns the wheel and the wheel turns the stone. "
    lines = [
        {"id": n, "body": f"Note {n}. {water * (n % 40 + 2)}" + " ".join(f"stone{n // 2}x{at}" for at in range(30))}
        for n in range(60)
    ]
    (notes / "a.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\nthis is no JSON\n")
    return made


def test_the_readme_is_read_in_three_minutes() -> None:
    """What it is, the two commands and what they print stand in the first 30 lines, and all of it has 700 words."""
    first = "\n".join(_README.splitlines()[:30])
    for needed in ("make demo", "make test", "docs/explore_demo.png", "packing utilisation", "loss"):
        assert needed in first
    assert len(_README.split()) <= 700


def test_what_the_readme_types_is_run_from_the_tour() -> None:
    """Its commands and programs stand in the tour too, word for word, where the tests below run them."""
    typed = [line for block in blocks("console", _README) for line in block.strip().splitlines()]
    for text in (*typed, *blocks("yaml", _README), *blocks("python", _README)):
        assert text in _TOUR


def test_every_link_of_the_readme_is_there() -> None:
    """Pictures and files that the README and the tour name exist."""
    for root, text in ((_ROOT, _README), (_ROOT / "docs" / "start", _TOUR)):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (root / target).exists(), target


def test_the_yaml_shown_is_what_the_command_before_it_writes(checkout: Checkout) -> None:
    """Of the corpus, to the letter."""
    add = blocks("console", _README)[0].strip().splitlines()[0]
    checkout.run(add.replace("~/notes", str(checkout.root.parent / "notes")))
    (shown,) = blocks("yaml", _README)
    assert (checkout.root / "dagster_project" / "defs" / "mine" / "defs.yaml").read_text() == shown


@pytest.mark.nightly
def test_own_data_and_an_own_table_work_as_written(checkout: Checkout) -> None:
    """The sections on one's own data, one's own table and reading from a training job, from top to bottom."""
    add, run, listing = blocks("console")[0].strip().splitlines()
    source = checkout.root.parent / "notes"
    said = checkout.run(add.replace("~/notes", str(source)))
    assert "Next: headrace run notes mine" in said
    long_texts = next(block for block in blocks("python") if "LONG_TEXTS" in block)
    named = re.search(r"e\.g\. `(\S+long_texts\.py)`", _TOUR)
    assert named is not None
    file = checkout.root / named[1]
    file.parent.mkdir()
    file.write_text(long_texts)

    said = checkout.run(f"{run} --json")
    steps = {step["table"]: step for step in map(json.loads, said.splitlines())}
    assert {step["status"] for step in steps.values()} == {"computed"}
    assert steps["notes.documents"]["rows"] == 60
    assert steps["notes.arrivals"]["rows"] == 2, "the file, and the line that is no JSON"
    assert 0 < steps["notes.long_texts"]["rows"] < 60
    assert steps["mine.packed_notes_2048"]["rows"] > 0
    assert "notes" in checkout.run(listing)
    assert "bad_record" in checkout.run(blocks("console")[1].strip())
    assert_explains(checkout)

    (source / "b.jsonl").write_text(
        json.dumps({"id": 100, "body": "A new note. " + "rain fills the pond. " * 40}) + "\n"
    )
    said = checkout.run(f"{run} --json")
    again = {step["table"]: step for step in map(json.loads, said.splitlines())}
    assert again["notes.documents"]["detail"] == "increments 1"
    assert again["notes.documents"]["rows"] == 61
    assert again["mine.tokenizer"]["status"] == "unchanged"

    create, _ = blocks("console")[-1].strip().splitlines()
    create = re.sub(r"--source \S+=3 --source \S+=1", "--source mine.packed_notes_2048", create)
    assert "packed_notes_2048" in checkout.run(create)
    assert_reads(checkout, next(block for block in blocks("python") if "BlendDataset" in block))


def assert_explains(checkout: Checkout) -> None:
    """Run the commands on a document that was removed as a near-duplicate, and on the pair that it makes."""
    tables = open_catalogue(settings_at(checkout.root / "warehouse"))
    removal = tables.load_table("mine.removals").scan().to_arrow().sort_by("threshold").to_pylist()[-1]
    doc_id, witness = removal["doc_id"], removal["witness_doc_id"]
    lines = next(block for block in blocks("console") if "doc why" in block).strip().splitlines()
    why, duplicates, thresholds = (checkout.run(line.replace("5f1c02", doc_id[:12])) for line in lines)
    assert "lines or sentences differ" in why and witness in why
    assert witness[:12] in duplicates
    assert "components" in thresholds


def assert_reads(checkout: Checkout, example: str) -> None:
    """Run the tour's training loop against a server on a free port."""
    server = subprocess.Popen(
        [sys.executable, "-m", "dagster_project.cli", "serve", "--port", "0"],
        cwd=checkout.root,
        env=checkout.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = re.search(r"127\.0\.0\.1:\d+", server.stdout.readline())
        assert address is not None
        program = checkout.root / "read.py"
        program.write_text(example.replace("127.0.0.1:7170", address[0]).replace("batch_rows=8", "batch_rows=1"))
        said = checkout.run(f"python {program}")
        assert said.count("torch.Size([1, 2048])") == 12
    finally:
        server.terminate()
        server.communicate(timeout=30)
