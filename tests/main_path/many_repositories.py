"""What the steps of code make of many small repositories by eight tasks at once, as data versions on this engine.

`python -m tests.main_path.many_repositories FOLDER ROUNDS` prints a JSON list with the versions of each round.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.tables.settings import settings_at
from spark_jobs.code.dependencies import DependenciesConfig, dependencies
from spark_jobs.code.ordered import OrderedConfig, ordered
from spark_jobs.lake.engine import embedded
from spark_jobs.lake.engine.arrangement import release
from spark_jobs.lake.ledger.digests import digest
from spark_jobs.lake.session.session import start_session
from spark_jobs.spark_sql import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASKS = 8
REPOSITORIES, FILES = 4, 6
"""Of each language; of each repository, every file of which needs the next one."""
LANGUAGES = {  # its extension, how a comment begins, and a file that defines a name and uses that of the next one
    "Ruby": ("rb", "#", "class {own}\n  def go(x)\n    {next}.new.go(x)\n  end\nend\n"),
    "PHP": ("php", "//", "<?php\nclass {own} {{ function go($x) {{ return (new {next})->go($x); }} }}\n"),
    "C#": ("cs", "//", "class {own} {{ int Go(int x) {{ return new {next}().Go(x); }} }}\n"),
    "Scala": ("scala", "//", "class {own} {{ def go(x: Int): Int = new {next}().go(x) }}\n"),
    "Swift": ("swift", "//", "class {own} {{ func go(x: Int) -> Int {{ return {next}().go(x: x) }} }}\n"),
    "Lua": ("lua", "--", "function {own}(x)\n  return {next}(x)\nend\n"),
    "Shell": ("sh", "#", '{own}() {{\n  {next} "$1"\n}}\n'),
    "Kotlin": ("kt", "//", "class {own} {{ fun go(x: Int): Int = {next}().go(x) }}\n"),
    "Python": ("py", "#", "import {next}\n\ndef {own}(x):\n    return {next}.{next}(x)\n"),
    "JavaScript": (
        "js",
        "//",
        "import {{ {next} }} from './{next}.js'\nexport function {own}(x) {{ return {next}(x) }}\n",
    ),
}
_DOCUMENT = "shard int, doc_id string, repository string, path string, kind string, language string, byte_count long"
_DOCUMENT += ", metadata map<string, string>, dataset string, content string"


def rows() -> list[tuple[Any, ...]]:
    """A document for each file; their lengths differ, so that tasks are not in step."""
    found = []
    for number, (language, (extension, comment, text)) in enumerate(LANGUAGES.items()):
        for repository in range(REPOSITORIES):
            names = [f"{language[:2].strip('#').title()}R{repository}Thing{at}" for at in range(FILES + 1)]
            for at in range(FILES):
                note = " ".join(f"{word * 7}" for word in range(40 * at * (repository + 1)))
                content = f"{text.format(own=names[at], next=names[at + 1])}{comment} {note}\n"
                where, path = f"{language.lower()}-{repository}", f"{names[at]}.{extension}"
                doc_id = f"{number:02x}{repository:02x}{at:02x}"
                facts = (repository % 2, doc_id, where, path, "code", language, len(content))
                found.append((*facts, dict[str, str](), "code", content))
    return found


def versions(session: Any) -> dict[str, str]:
    """Data versions of what the steps make."""
    files: DataFrame = session.createDataFrame(rows(), _DOCUMENT).repartition(TASKS)
    output = dependencies(files.drop("content"), files.select("shard", "doc_id", "content"), DependenciesConfig())
    edges = output.frames["dependencies"].withColumn("dataset", F.lit("code"))
    made = {**output.frames, "ordered": ordered(files, files, OrderedConfig(), edges)}
    found = {name: str(digest(frame)) for name, frame in made.items()}
    for frame in output.persisted:
        release(frame)
    return found


if __name__ == "__main__":
    embedded.parallelism = lambda: TASKS
    session = start_session(settings_at(Path(sys.argv[1])), f"local[{TASKS}]")
    sys.stdout.write(json.dumps([versions(session) for _ in range(int(sys.argv[2]))]))
