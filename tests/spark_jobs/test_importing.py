"""A package that is there and cannot be imported is told, with the command that mends it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs import importing
from spark_jobs.importing import import_faults, unmet_requirements
from tests.tiers import sampled

NAMES = [f"made-{letter}" for letter in "abcde"]
EXTRAS = ("", "wide_one")
Requirements = dict[str, list[tuple[str, str, str, str]]]


@contextmanager
def installed(folder: Path, requirements: Requirements, code: str = "") -> Iterator[None]:
    """Distributions of version 1 with these requirements: of an extra, name, extra of that, bound."""
    for name, lines in requirements.items():
        module = name.replace("-", "_")
        (folder / module).mkdir()
        (folder / module / "__init__.py").write_text(code)
        about = folder / f"{module}-1.dist-info"
        about.mkdir()
        wanted = [
            f"Requires-Dist: {other}{extra and f'[{extra}]'}{bound}" + (f"; extra == '{of}'" if of else "")
            for of, other, extra, bound in lines
        ]
        extras = [f"Provides-Extra: {extra}" for extra in EXTRAS if extra]
        (about / "METADATA").write_text(
            "\n".join(["Metadata-Version: 2.1", f"Name: {name}", "Version: 1", *extras, *wanted])
        )
        (about / "RECORD").write_text(f"{module}/__init__.py,,\n")
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def unmet_by_hand(requirements: Requirements, name: str) -> set[str]:
    """The same by recursion over every path."""

    def walk(name: str, extra: str, path: tuple[tuple[str, str], ...]) -> set[str]:
        unmet = set[str]()
        for of, other, its_extra, bound in requirements[name]:
            if of not in ("", extra):
                continue
            if other not in requirements or bound == ">=2":
                unmet.add(other + bound)
            if other in requirements and (other, its_extra) not in path:
                unmet |= walk(other, its_extra, (*path, (other, its_extra)))
        return unmet

    return walk(name, "", ((name, ""),))


LINES = st.tuples(
    st.sampled_from(EXTRAS), st.sampled_from(NAMES), st.sampled_from(EXTRAS), st.sampled_from(("", ">=2"))
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(NAMES), st.lists(LINES, max_size=4), min_size=1))
def test_unmet_requirements_are_those_of_every_path(requirements: Requirements) -> None:
    """Whatever requires what, in circles too: what is not there, or of an older version; extras where asked for."""
    first = min(requirements)
    with TemporaryDirectory() as folder, installed(Path(folder), requirements):
        assert set(unmet_requirements(first)) == unmet_by_hand(requirements, first)


@sampled(2)
@pytest.mark.parametrize(
    ("requirements", "code", "text", "mend"),
    [
        ([], "", "", ""),
        ([("", "made-b", "", ">=2")], "import made_b", "No module named 'made_b'", "pip install 'made-b>=2'"),
        ([("", "packaging", "", "")], "1 / 0", "division by zero", "pip install --force-reinstall --no-deps made-a"),
        ([], "raise SystemExit(3)", "SystemExit: 3", "pip install --force-reinstall --no-deps made-a"),
        ([], "import os; os._exit(7)", "status 7", "pip install --force-reinstall --no-deps made-a"),
        ([], "print('noise')", "", ""),
    ],
)
def test_a_package_that_cannot_be_imported_has_its_mend(
    tmp_path: Path, requirements: list[tuple[str, str, str, str]], code: str, text: str, mend: str
) -> None:
    """Whatever it does when it is imported; others beside it are as they are, and one that is mended is at once."""
    importing._importable.clear()
    with installed(tmp_path, {"made-a": requirements}, code):
        faults = import_faults(["json", "made_a", "no_such_package"])
        assert faults.pop() == ("no_such_package", "it is not installed", "")
        assert [fault.package for fault in faults] == (["made_a"] if text else [])
        assert all(text in fault.text and fault.mend == mend for fault in faults)
        (tmp_path / "made_a" / "__init__.py").write_text("# mended")
        assert import_faults(["made_a"]) == []
    importing._importable.clear()
