"""Repositories of every language with import rules, from files on disk to the order of their documents.

They come as directories of which only code is asked for, and as records of one JSONL file. In both cases what manifests
say is known, though none of them is training text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.code.dependencies import DependenciesConfig, dependencies
from spark_jobs.code.ordered import OrderedConfig, ordered
from spark_jobs.filters.verdicts import VerdictsConfig, verdicts
from spark_jobs.lake.session.cluster import checkpointed
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.documents import ARRIVALS, DOCUMENTS, documents
from spark_jobs.sources.languages import is_manifest
from spark_jobs.sources.listing.changes import discover
from spark_jobs.text.signals import SignalsConfig, signals
from spark_jobs.text.texts import TextsConfig, texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPOSITORIES = {
    "python": {
        "pyproject.toml": '[project]\nname = "acme"\n[tool.setuptools.package-dir]\nacme = "sources"\n',
        "sources/__init__.py": "",
        "sources/app.py": "from acme.text import upper\n",
        "sources/text.py": "from . import zero\n\ndef upper(): pass\n",
        "sources/zero.py": "ZERO = 0\n",
    },
    "typescript": {
        "package.json": '{"private": true, "workspaces": ["packages/*"]}\n',
        "tsconfig.json": '{"compilerOptions": {"paths": {"~util/*": ["./packages/util/lib/*"]}}}\n',
        "packages/app/package.json": '{"name": "@acme/app"}\n',
        "packages/app/main.ts": 'import { core } from "@acme/core";\n',
        "packages/core/package.json": '{"name": "@acme/core", "exports": {".": "./entry.ts"}}\n',
        "packages/core/entry.ts": 'import { pad } from "~util/pad";\nexport const core = pad;\n',
        "packages/util/lib/pad.js": "export const pad = 1;\n",
    },
    "go": {
        "go.mod": "module go.acme.io/bolt\n\ngo 1.22\n",
        "cmd/main.go": 'package main\n\nimport "go.acme.io/bolt"\n\nfunc main() { bolt.Open() }\n',
        "db.go": 'package bolt\n\nimport "go.acme.io/bolt/internal/page"\n\nfunc Open() { page.Page() }\n',
        "internal/page/page.go": "package page\n\nfunc Page() {}\n",
    },
    "java": {
        "pom.xml": "<project><artifactId>acme</artifactId></project>\n",
        "src/main/java/org/acme/App.java": (
            "package org.acme;\n\nimport org.acme.text.Upper;\n\nclass App { Upper upper; }\n"
        ),
        "src/main/java/org/acme/text/Upper.java": "package org.acme.text;\n\npublic class Upper {}\n",
    },
    "kotlin": {
        "settings.gradle.kts": 'include(":core")\n',
        "build.gradle": "plugins {}\n",
        "app/src/main/kotlin/App.kt": "package acme.app\n\nimport acme.core.upper\n\nfun main() { upper() }\n",
        "core/src/main/kotlin/Upper.kt": "package acme.core\n\nfun upper() {}\n",
    },
    "rust": {
        "Cargo.toml": '[workspace]\nmembers = ["app", "text"]\n',
        "app/Cargo.toml": (
            '[package]\nname = "app"\nedition = "2021"\n[dependencies]\nwords = { package = "acme-text" }\n'
        ),
        "app/src/main.rs": "use words::Upper;\n\nfn main() { Upper; }\n",
        "text/Cargo.toml": '[package]\nname = "acme-text"\nedition = "2021"\n[lib]\npath = "code/all.rs"\n',
        "text/code/all.rs": "mod upper;\npub use upper::Upper;\n",
        "text/code/upper.rs": "pub struct Upper;\n",
    },
    "c": {
        "compile_commands.json": (
            '[{"directory": "/b/acme/build",\n"file": "../app/main.cc",\n'
            '"command": "c++ -I../posix -I ../include -c x"}]\n'
        ),
        "CMakeLists.txt": "project(acme)\n",
        "app/main.cc": '#include "acme/text.h"\n#include "os.h"\n',
        "app/windows/os.h": "#define WINDOWS\n",
        "include/acme/text.h": "#pragma once\n",
        "posix/os.h": "#define POSIX\n",
    },
}
NEEDS = {
    ("python", "sources/app.py", "sources/text.py"),
    ("python", "sources/text.py", "sources/zero.py"),
    ("typescript", "packages/app/main.ts", "packages/core/entry.ts"),
    ("typescript", "packages/core/entry.ts", "packages/util/lib/pad.js"),
    ("go", "cmd/main.go", "db.go"),
    ("go", "db.go", "internal/page/page.go"),
    ("java", "src/main/java/org/acme/App.java", "src/main/java/org/acme/text/Upper.java"),
    ("kotlin", "app/src/main/kotlin/App.kt", "core/src/main/kotlin/Upper.kt"),
    ("rust", "app/src/main.rs", "text/code/upper.rs"),
    ("rust", "text/code/all.rs", "text/code/upper.rs"),
    ("c", "app/main.cc", "include/acme/text.h"),
    ("c", "app/main.cc", "posix/os.h"),
}


def from_directories(root: Path) -> tuple[dict[str, Any], VerdictsConfig]:
    """Source and verdicts of a dataset that takes code alone."""
    for repository, files in REPOSITORIES.items():
        for path, text in files.items():
            file = root / repository / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    return {"kind": "python_code", "directories": [f"{root}/*"], "kinds": ["code"]}, VerdictsConfig()


def from_records(root: Path) -> tuple[dict[str, Any], VerdictsConfig]:
    """Source and verdicts of a dataset of records, whose manifests the policy leaves out."""
    records = [
        {"repo": repository, "path": path, "content": text}
        for repository, files in REPOSITORIES.items()
        for path, text in files.items()
    ]
    (root / "stack.jsonl").write_text("\n".join(map(json.dumps, records)))
    columns = {"text_column": "content", "id_column": "path", "repository_column": "repo", "record_kind": "code"}
    return {"kind": "files", "path": str(root), **columns}, VerdictsConfig(manifests="leave_out")


@pytest.mark.parametrize("source_of", [from_directories, pytest.param(from_records, marks=pytest.mark.nightly)])
def test_every_language_is_ordered_dependencies_first_and_manifests_are_only_evidence(
    spark: SparkSession, tmp_path: Path, source_of: Callable[[Path], tuple[dict[str, Any], VerdictsConfig]]
) -> None:
    """The edges that manifests decide are found, what is needed comes first, and no manifest is training text."""
    source, policy = source_of(tmp_path)
    landed = land(spark, DocumentsConfig.model_validate({"dataset": "code", "source": source}))
    normal = checkpointed(texts(landed, TextsConfig()).frames["texts"])
    edges = checkpointed(dependencies(landed, normal, DependenciesConfig()).frames["dependencies"])
    found = {(row.repository, inside(row.path), inside(row.needed_path)) for row in edges.collect()}
    assert found >= NEEDS
    assert ("c", "app/main.cc", "app/windows/os.h") not in found

    judged = verdicts(signals(normal, SignalsConfig()), policy, landed)
    about = landed.select("shard", "doc_id", "repository", "path", "kind", "language")
    rows = checkpointed(judged.join(about, ["shard", "doc_id"]))
    left_out = {
        (row.repository, inside(row.path)): [one.rule for one in row.failed] for row in rows.where("not kept").collect()
    }
    manifests = {
        (repository, path)
        for repository, files in REPOSITORIES.items()
        for path in files
        if is_manifest(path) and (policy.manifests == "leave_out" or not path.endswith(".kts"))
    }
    empty = {("python", "sources/__init__.py"): ["too_few_words"]}
    assert left_out == {**{place: ["manifest"] for place in manifests}, **empty}

    members = rows.where("kept").selectExpr("'code' AS dataset", "*")
    survivors = members.select("dataset", "shard", "doc_id")
    ranked = ordered(survivors, members, OrderedConfig(), edges.selectExpr("'code' AS dataset", "*"))
    ranks = {
        (row.repository, inside(row.path)): row["rank"]
        for row in ranked.drop("repository").join(about, ["shard", "doc_id"]).collect()
    }
    late = [edge for edge in NEEDS if ranks[edge[0], edge[1]] < ranks[edge[0], edge[2]]]
    assert late == []
    assert ranks.keys().isdisjoint(manifests)


def land(spark: SparkSession, config: DocumentsConfig) -> DataFrame:
    """Documents of the first increment of a dataset."""
    nothing = ARRIVALS.schema().as_arrow().empty_table()
    listing = discover(config, nothing)
    assert listing is not None
    known = spark.createDataFrame([], "doc_id string, increment int")
    output = documents(spark.createDataFrame(listing), known, spark.createDataFrame(nothing), 0, config)
    landed: DataFrame = checkpointed(output.frames[DOCUMENTS.name])
    for frame in output.persisted:
        frame.unpersist()
    return landed


def inside(path: str) -> str:
    """Path inside a repository: of a record, its id."""
    return path.removeprefix("stack.jsonl#")
