"""The order of versions is that of the registry's own tools, pair by pair."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from spark_jobs.sources.repositories.package_versions import version_key
from tests.tiers import tries

SEMANTIC = [
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1-next.1",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0-0",
    "2.0.0-1",
    "2.0.0--",
    "2.0.0-1a",
    "2.0.0-A",
    "2.0.0-a",
    "2.0.0",
]
PYTHON = [
    "1.0.dev1",
    "1.0a1.dev2",
    "1.0a2",
    "1.0b1",
    "1.0rc1",
    "1.0",
    "1.0+local.1",
    "1.0+local.10",
    "1.0.post1.dev3",
    "1.0.post1",
    "1.0.1",
    "1.1",
    "2024.1",
    "1!0.1",
    "1!1.0",
]


def made(seed: int, count: int) -> list[str]:
    """Semantic versions of few parts, so that many are near to one another."""
    draw = random.Random(seed)
    parts = ["0", "1", "2", "10", "9007199254740991", "a", "A", "rc", "rc1", "x-1", "-", "0a", "beta", "alpha"]

    def version() -> str:
        core = ".".join(draw.choices(parts[:4], k=3))
        pre = "-" + ".".join(draw.choices(parts, k=draw.randint(1, 3))) if draw.random() < 0.7 else ""
        return core + pre + ("+" + draw.choice(["1", "2.a", "sha"]) if draw.random() < 0.2 else "")

    return [version() for _ in range(count)]


def order(one: str, other: str, kind: str = "npm") -> int:
    """-1, 0 or 1, by the keys."""
    left, right = version_key(kind, one), version_key(kind, other)
    return (left > right) - (left < right)


def by_the_clauses(one: str, other: str) -> int:
    """Clause 11 of Semver 2.0, step by step."""
    parts = [text.partition("+")[0].partition("-") for text in (one, other)]
    cores, pres = [core for core, _, _ in parts], [pre for _, _, pre in parts]
    for left, right in zip(*(core.split(".") for core in cores), strict=True):
        if int(left) != int(right):
            return 1 if int(left) > int(right) else -1
    if not all(pres):
        return (pres[1] != "") - (pres[0] != "")
    for left, right in itertools.zip_longest(*(pre.split(".") for pre in pres)):
        if left is None or right is None:
            return 1 if right is None else -1
        if left != right:
            if left.isdigit() and right.isdigit():
                return 1 if int(left) > int(right) else -1
            if left.isdigit() or right.isdigit():
                return -1 if left.isdigit() else 1
            return 1 if left > right else -1
    return 0


@pytest.mark.parametrize("kind", ["npm", "crate"])
def test_semantic_versions_have_the_order_of_semver(kind: str) -> None:
    """Its own example, and random pairs by the clauses."""
    assert sorted(sorted(SEMANTIC), key=lambda one: version_key(kind, one)) == SEMANTIC
    versions = made(1, tries(3000))
    for one, other in itertools.pairwise(versions):
        assert order(one, other, kind) == by_the_clauses(one, other), (one, other)


def test_semantic_versions_have_the_order_of_npm() -> None:
    """By npm's own semver, where npm is there."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("needs node and npm")
    root = Path(subprocess.run([npm, "root", "-g"], capture_output=True, text=True, check=True).stdout.strip())
    module = root / "npm" / "node_modules" / "semver"
    if not module.exists():
        pytest.skip("npm's own semver lies elsewhere")
    versions = [*made(2, 4000), *SEMANTIC]
    pairs = list(itertools.pairwise(versions))
    script = (
        f"const semver = require({json.dumps(str(module))});"
        "const pairs = JSON.parse(require('fs').readFileSync(0));"
        "console.log(JSON.stringify(pairs.map(pair => semver.compare(...pair))))"
    )
    given = json.dumps(pairs)
    said = subprocess.run(["node", "-e", script], input=given, capture_output=True, text=True, check=True).stdout
    assert [order(*pair) for pair in pairs] == json.loads(said)


def test_versions_of_python_have_the_order_of_packaging() -> None:
    """Epochs and local versions too; sdists and wheels of a name are compared."""
    assert sorted(sorted(PYTHON), key=lambda one: version_key("sdist", one)) == PYTHON
    for one, other in itertools.product(PYTHON, PYTHON):
        left, right = version_key("sdist", one), version_key("wheel", other)
        assert (left < right, left == right) == (Version(one) < Version(other), Version(one) == Version(other))


@pytest.mark.parametrize("kind", ["npm", "crate", "sdist", "wheel"])
@pytest.mark.parametrize(
    "odd", ["", "latest", "1.0.0.0.0-?", "01.2.3.x", "1.0.0-01-\u0661", "\u0661.0.0", "9" * 5000, "a" * 10**5]
)
def test_what_is_no_version_is_before_all_versions(kind: str, odd: str) -> None:
    """It has an order all the same, and no version makes the key fail."""
    assert version_key(kind, odd) < version_key(kind, "0.0.0-0" if kind in ("npm", "crate") else "0.dev0")
    assert version_key(kind, "first 1") < version_key(kind, "first 2")
