"""What executors of a cluster are sent; `tests/main_path/test_cluster.py` runs on one."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from spark_jobs.lake.session import cluster
from spark_jobs.lake.session.cluster import is_local, own_code

ROOT = Path(__file__).parents[4]


def test_what_is_sent_is_the_code_from_outside_of_site_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packages of headrace, a module of the user's, and a package without `__init__`; nothing that is installed."""
    (tmp_path / "own_rules.py").write_text("LIMIT = 3\n")
    (tmp_path / "own_namespace").mkdir()
    (tmp_path / "own_namespace" / "words.py").write_text("WORDS = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own_rules")
    importlib.import_module("own_namespace.words")
    importlib.import_module("dagster_project.table_asset")
    sent = own_code()
    assert {
        ROOT / "spark_jobs",
        ROOT / "dagster_project",
        ROOT / "headrace",
        tmp_path / "own_rules.py",
        tmp_path / "own_namespace",
    } <= {*sent}
    assert not [path for path in sent if "site-packages" in path.parts or path.name in ("json", "numpy", "pytest")]


def test_of_a_package_all_files_are_sent_but_what_tools_keep_there(tmp_path: Path) -> None:
    """Data goes with the code; compiled code and hidden files of this machine do not."""
    for name in ("a.py", "data/words.txt", "__pycache__/a.nbi", ".git/config", ".hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert [str(file.relative_to(tmp_path)) for file in cluster._files(tmp_path)] == ["a.py", "data/words.txt"]


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local-cluster[2,1,900]", True), ("spark://host:7077", False)],
)
def test_executors_of_this_machine_have_the_code(master: str, local: bool) -> None:
    """They are started with the driver's environment; those of a cluster are not."""
    assert is_local(master) == local
