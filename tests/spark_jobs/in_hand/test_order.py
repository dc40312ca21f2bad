"""Files in hand in the order of their dependencies."""

from __future__ import annotations

import itertools
import random
import sysconfig
from pathlib import Path

import pytest

from spark_jobs.exceptions import InputError
from spark_jobs.in_hand.order import order

FILES = {
    "README.md": "what it is",
    "pkg/__init__.py": "",
    "pkg/a.py": "x = 1\n",
    "pkg/b.py": "from pkg.a import x\n",
    "tests/test_b.py": "import pkg.b\n",
    "web/index.js": 'import {f} from "./util.js"\n',
    "web/util.js": "export function f() {}\n",
}


def test_a_file_comes_after_those_that_it_needs() -> None:
    """Tests and documentation last, whatever order the files come in."""
    expected = order(FILES)
    assert sorted(expected) == sorted(FILES)
    for first, second in (("pkg/a.py", "pkg/b.py"), ("web/util.js", "web/index.js"), ("pkg/b.py", "tests/test_b.py")):
        assert expected.index(first) < expected.index(second)
    draw = random.Random(1)
    for _ in range(3):
        assert order(dict(draw.sample(list(FILES.items()), len(FILES)))) == expected
    assert order(FILES, policy="path") == sorted(FILES)
    assert sorted(order(FILES, policy="random", seed=2)) == sorted(FILES) != order(FILES, policy="random", seed=2)
    assert order({}) == []


def test_a_real_package_is_ordered_by_what_it_imports() -> None:
    """Of json, by Python's own list of modules: each import leads to an earlier file."""
    folder = Path(sysconfig.get_path("stdlib"), "json")
    files = {f"json/{path.name}": path.read_text() for path in folder.glob("*.py")}
    places = {path: place for place, path in enumerate(order(files))}
    for needs, needed in itertools.permutations(files, 2):
        name = needed.removeprefix("json/").removesuffix(".py")
        if f"from .{name} import" in files[needs] or f"from json import {name}" in files[needs]:
            assert places[needed] < places[needs]
    assert len(places) >= 5


def test_other_than_texts_by_path_is_refused() -> None:
    """In a line."""
    with pytest.raises(InputError, match="a list is no mapping from paths to texts"):
        order(["a.py"])  # type: ignore[arg-type]
