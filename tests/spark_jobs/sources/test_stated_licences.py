"""What documents and repositories state about their licences, from files to what a policy of a quarantine allows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace_features.privacy.scans.scans import ScansConfig, _judge
from spark_jobs.sources.config.source_config import DocumentsConfig

from .git_repositories import Repository

_MIT_SENTENCE = "This project is licensed under the MIT License.\n"
_STATED = {
    "// Copyright (c) Example Corp.\n// SPDX-License-Identifier: BUSL-1.1\n": "BUSL-1.1",
    "/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */\n": "GPL-2.0-only WITH Linux-syscall-note",
    "// SPDX-License-Identifier: (GPL-2.0 OR BSD-3-Clause)\n": "GPL-2.0-only OR BSD-3-Clause",
    "// SPDX-License-Identifier: MIT\n// SPDX-License-Identifier: GPL-3.0-or-later\n": "MIT AND GPL-3.0-or-later",
    "// SPDX-License-Identifier: Foo-1.0\n": "LicenseRef-stated-Foo-1.0",
    "// Licensed under the Elastic License 2.0; ask.\n": "Elastic-2.0",
    "// Proprietary and confidential.\n": "LicenseRef-stated-Proprietary-and-confidential",
    "// Adds two numbers.\n": "MIT",
}


def test_what_a_file_states_is_never_its_repositorys(tmp_path: Path, landing: Any) -> None:
    """A header decides, recognised or not; a file that states nothing has the licence of the repository."""
    contents = {f"f{k}_c": f"{header}int f{k}(void);\n" for k, header in enumerate(_STATED)}
    Repository(tmp_path / "repos" / "a").commit(LICENSE=_MIT_SENTENCE, **contents)
    source = {"kind": "git", "repositories": [f"{tmp_path}/repos/*"], "cache": f"{tmp_path}/cache"}
    documents, _ = landing.land(DocumentsConfig.model_validate({"dataset": "code", "source": source}))
    licences = {row["path"]: row["licence"] for row in documents if row["path"].endswith(".c")}
    assert licences == {f"f{k}.c": licence for k, licence in enumerate(_STATED.values())}


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"package_json": '{"license": "BUSL-1.1"}', "LICENSE": _MIT_SENTENCE}, "licence BUSL-1.1; licences are MIT"),
        ({"package_json": '{"license": "Foo-1.0"}', "LICENSE": _MIT_SENTENCE}, "licence LicenseRef-stated-Foo-1.0; "),
        ({"Cargo_toml": "[package]\nlicense = 'MIT AND GPL-2.0'\n"}, "licence MIT AND GPL-2.0-only; licences are MIT"),
        ({"LICENSE": "Ask Ada.\n" * 80}, "licence LicenseRef-stated-text-"),
        ({}, "licence not recognised; licences are MIT"),
        ({"package_json": '{"license": "(GPL-2.0 WITH Linux-syscall-note) OR MIT"}'}, None),
    ],
)
def test_select_takes_what_is_recognised_and_chosen(
    tmp_path: Path, landing: Any, files: dict[str, str], reason: str | None
) -> None:
    """What a manifest states and nobody recognises is refused, whatever the text beside it says."""
    Repository(tmp_path / "repos" / "a").commit(a_py="a = 1\n", **files)
    source = {"kind": "git", "repositories": [f"{tmp_path}/repos/*"], "cache": f"{tmp_path}/cache"}
    chosen = source | {"select": {"licences": ["mit"]}}
    documents, arrivals = landing.land(DocumentsConfig.model_validate({"dataset": "code", "source": chosen}))
    details = [row["detail"] for row in arrivals if row["reason"] == "not_selected"]
    assert [str(detail)[: len(str(reason))] for detail in details] == ([reason] if reason else [])
    assert bool(documents) == (reason is None)


def test_the_licence_of_a_record_keeps_its_words(
    data: Path, files_config: Callable[..., DocumentsConfig], landing: Any
) -> None:
    """A row that says cc-by-nc in a dataset of CC-BY is not allowed; one that says nothing is as the dataset."""
    said = {
        "cc-by-nc-4.0": "CC-BY-NC-4.0",
        "ours alone": "LicenseRef-stated-ours-alone",
        "": None,
        "MIT License": "MIT",
    }
    lines = [json.dumps({"text": f"A record of {words}.", "licence": words}) for words in said]
    (data / "a.jsonl").write_text("\n".join(lines))
    documents, _ = landing.land(files_config(text_column="text", licence_column="licence"))
    assert {row["licence"] for row in documents} == set(said.values())
    kept = {row["licence"]: dict(row["metadata"]).get("licence") for row in documents}
    assert kept["LicenseRef-stated-ours-alone"] == "ours alone"
    of_dataset = [row["licence"] or "CC-BY-4.0" for row in documents]
    allowed = dict(zip(of_dataset, _allowed(of_dataset, "cc-by-4.0"), strict=True))
    assert allowed == {
        "CC-BY-NC-4.0": False,
        "LicenseRef-stated-ours-alone": False,
        "CC-BY-4.0": True,
        "MIT": False,
    }


def test_a_quarantine_reads_expressions_as_select_does() -> None:
    """With exceptions, brackets, names in words, and null where nothing is declared."""
    expressions = [
        *("MIT", "MIT OR GPL-2.0-only", "MIT AND GPL-2.0-only", "(GPL-2.0-only WITH Linux-syscall-note) OR MIT"),
        *("MIT WITH LLVM-exception", "((MIT))", "MIT License", "MIT OR LicenseRef-stated-Foo", None, "nothing known"),
    ]
    answers = [True, True, False, True, True, True, True, True, False, False]
    assert _allowed(expressions, "mit") == answers
    assert _allowed(expressions) == [None] * len(expressions)
    with pytest.raises(ValueError, match="Apach is no SPDX id; did you mean"):
        ScansConfig(licences_allowed=("Apach",))


def _allowed(licences: list[str | None], *allowed: str) -> list[bool | None]:
    """What the step says of rows with some licences."""
    named = ScansConfig(licences_allowed=allowed).licences_allowed
    rows = pa.record_batch({"licence": licences, "licence_allowed": pa.nulls(len(licences), pa.bool_())})
    (batch,) = _judge([rows], frozenset(named))
    return batch.column("licence_allowed").to_pylist()  # type: ignore[no-any-return]
