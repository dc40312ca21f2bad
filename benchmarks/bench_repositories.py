"""Repositories as bags of what their files contain: which items find versions, forks and vendored copies best.

    python benchmarks/bench_repositories.py [FOLDER]

FOLDER holds one directory per release, `name@version`; without it the releases below are fetched with pip into a
cache in the temporary folder, and where that fails the benchmark says so and ends; with `--small` they are
made. What a release vendors (`_vendor/name`) is a repository of its own. Truth: two repositories are the same if they
have the same name.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import command
import numpy as np
import pyarrow as pa
from bench_dedup_kernels import rows_of
from corpora import python_files
from depsort_truth import run
from numpy.typing import NDArray

from spark_jobs.dedup.bags.bag_arrays import Bags, total_weights
from spark_jobs.dedup.bags.features import kind_salt
from spark_jobs.dedup.bags.token_counts import count_tokens
from spark_jobs.dedup.graph.in_memory import component_labels
from spark_jobs.dedup.near.bucket_records import group_by_key, pairs_within
from spark_jobs.dedup.repository.bags import MOST_UNIT, WEIGHT_STEP
from spark_jobs.dedup.sketches.bands import band_keys, solve_bands
from spark_jobs.dedup.sketches.darts import make_darts
from spark_jobs.dedup.sketches.similarity import agreement_counts, overlaps
from spark_jobs.dedup.sketches.weighted_minhash import signatures
from spark_jobs.lexing.lexers import lexer_of

RELEASES = """
requests 2.19.1 2.25.1 2.31.0 2.32.3    urllib3 1.26.18 2.0.7 2.2.2    click 7.1.2 8.0.4 8.1.7
flask 1.1.4 2.0.3 2.3.3 3.0.3    jinja2 2.11.3 3.0.3 3.1.4    werkzeug 2.0.3 2.3.8 3.0.3
httpx 0.23.3 0.25.2 0.27.2    httpcore 0.16.3 1.0.5    rich 12.6.0 13.5.3 13.7.1    attrs 21.4.0 22.2.0 23.2.0
packaging 21.3 23.2 24.1    setuptools 65.7.0 69.5.1 72.1.0    pip 22.3.1 23.3.2 24.2    networkx 2.8.8 3.1 3.3
sympy 1.11.1 1.12 1.13.2    pygments 2.13.0 2.16.1 2.18.0    django 3.2.25 4.2.16 5.1.1    aiohttp 3.8.6 3.9.5
starlette 0.27.0 0.37.2 0.38.5    fastapi 0.95.2 0.103.2 0.112.2    pytest 6.2.5 7.4.4 8.3.2    tqdm 4.64.1 4.66.5
certifi 2023.7.22 2024.7.4    idna 3.4 3.7    tomli 1.2.3 2.0.1    colorama 0.4.4 0.4.6    psutil 5.9.8
typing-extensions 4.5.0 4.12.2    pydantic 1.10.17 2.5.3 2.8.2    sqlalchemy 1.4.53 2.0.32
python-dateutil 2.8.2 2.9.0    six 1.15.0 1.16.0    distlib 0.3.6 0.3.8    platformdirs 2.5.4 4.2.2    msgpack 1.0.8
cachecontrol 0.13.1 0.14.0    dateutils 0.6.12    resolvelib 0.8.1 1.0.1    pyparsing 3.0.9 3.1.2    wheel 0.38.4 0.44.0
"""
SUFFIXES = {".py": "code", ".pyi": "code", ".md": "prose", ".rst": "prose", ".txt": "prose", "": "prose"}
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
APPLIED = 0.8
MIN_FILES = 2
UNITS: dict[str, Callable[[NDArray[np.int64]], NDArray[np.float64]]] = {
    "each one": lambda weights: np.ones(len(weights)),
    "log of size": lambda weights: 8 * np.log2(weights + 1.0),
    "root of size": lambda weights: np.sqrt(weights) / 4,
    "size": lambda weights: weights / WEIGHT_STEP,
}
_VENDORED = re.compile(r"(?:^|/)_vendor/([A-Za-z0-9_]+)(?:/|\.py$)")


@dataclass(frozen=True)
class Files:
    """Texts of all repositories.

    Attributes:
        repositories: (R,) names with versions.
        packages: (R,) names alone: the truth.
        owner: (F,) repository of each file.
        texts: (F,) contents.
        kinds: (F,) code or prose.
    """

    repositories: list[str]
    packages: list[str]
    owner: NDArray[np.int64]
    texts: list[str]
    kinds: list[str]


def releases() -> Iterator[str]:
    """`name==version` of the list above."""
    for part in re.split(r"\s{4,}|\n", RELEASES.strip()):
        name, *versions = part.split()
        yield from (f"{name}=={version}" for version in versions)


def fetched() -> Path:
    """A folder with the releases, fetched once."""
    folder = Path(tempfile.gettempdir()) / "headrace-bench-releases"
    for release in releases():
        target = folder / release.replace("==", "@")
        if target.is_dir():
            continue
        with tempfile.TemporaryDirectory() as wheels:
            run(["pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", wheels, release])
            target.mkdir(parents=True)
            for wheel in Path(wheels).glob("*.whl"):
                zipfile.ZipFile(wheel).extractall(target)
    return folder


def read(folder: Path) -> Files:
    """Files of all releases; those of a vendored package belong to a repository of their own."""
    found: dict[str, list[tuple[str, str]]] = {}
    for release in sorted(path for path in folder.iterdir() if path.is_dir()):
        for path in sorted(release.rglob("*")):
            kind = SUFFIXES.get(path.suffix)
            if kind is None or not path.is_file():
                continue
            inner = path.relative_to(release).as_posix()
            vendored = _VENDORED.search(inner)
            name = f"{vendored[1].replace('_', '-')}@{release.name}" if vendored else release.name
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            found.setdefault(name, []).append((kind, text))
    kept = {name: files for name, files in sorted(found.items()) if len(files) >= MIN_FILES}
    flat = [(number, *file) for number, files in enumerate(kept.values()) for file in files]
    owner, kinds, texts = zip(*flat, strict=True)
    packages = [name.split("@")[0].lower() for name in kept]
    return Files(list(kept), packages, np.array(owner, np.int64), list(texts), list(kinds))


def file_bags(files: Files) -> Bags:
    """Bags of the words of all files; a file without tokens has none."""
    kinds = ("code", "prose")
    lexers = np.array([lexer_of(kind, "python") for kind in files.kinds], np.uint8)
    salts = np.array([kind_salt(kind) for kind in kinds], np.uint64)[[kinds.index(kind) for kind in files.kinds]]
    counted = count_tokens(pa.array(files.texts), lexers, salts)
    _, inverse, frequency = np.unique(counted.hashes, return_inverse=True, return_counts=True)
    units = np.clip(np.rint(8 * np.log((len(files.texts) + 1) / (frequency + 1))), 1, 255).astype(np.uint8)
    return Bags(counted.offsets, counted.hashes, units[inverse], np.minimum(counted.counts, 4).astype(np.uint8))


def exact_classes(texts: Sequence[str]) -> NDArray[np.int64]:
    """(F,) the first file with the same text."""
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(hashlib.sha256(t.encode()).digest(), n) for n, t in enumerate(texts)], np.int64)


def components(bags: Bags, exact: NDArray[np.int64], threshold: float) -> NDArray[np.int64]:
    """(F,) component of each file: linked by J of at least the threshold, or by the same text."""
    rows = np.flatnonzero((np.diff(bags.offsets) > 0) & (exact == np.arange(len(exact))))
    some = rows_of(bags, rows)
    values = signatures(some, make_darts(1, 4))
    scheme = solve_bands(np.array([10**6] + [0] * 1000), len(rows), threshold, 0.9999)
    keys = band_keys(values, scheme, np.zeros(len(rows), np.uint64))
    places = np.repeat(np.arange(len(rows)), keys.shape[1])
    found = group_by_key(keys.ravel(), places, np.zeros(places.size, np.bool_))
    everyone = np.diff(found.new_offsets)
    left, right = pairs_within(found.new_offsets, found.new, found.earlier_offsets, found.earlier, everyone)
    left, right = np.unique(np.stack([left, right]), axis=1)
    close = agreement_counts(values[left], values[right]) >= 148
    left, right = left[close], right[close]
    shared, united = overlaps(rows_of(some, left), rows_of(some, right))
    linked = shared >= threshold * united
    labels: NDArray[np.int64] = component_labels(rows[left[linked]], rows[right[linked]], len(exact))[exact]
    return labels


def identity_bags(files: Files, identity: NDArray[np.int64], weights: NDArray[np.int64], rule: str) -> Bags:
    """Repositories as bags of what their files are duplicates of."""
    some = weights[identity] > 0
    pairs, count = np.unique(np.stack([files.owner[some], identity[some]]), axis=1, return_counts=True)
    offsets = np.searchsorted(pairs[0], np.arange(len(files.repositories) + 1))
    units = np.clip(np.rint(UNITS[rule](weights[pairs[1]])), 1, MOST_UNIT).astype(np.uint8)
    levels = np.minimum(count, 4).astype(np.uint8)
    return Bags(offsets, (pairs[1].astype(np.uint64) + np.uint64(1)), units, levels)


def token_bags(files: Files, bags: Bags, whole: bool) -> Bags:
    """Repositories as bags of their files' tokens: each once, or summed up to the cap."""
    owners = np.repeat(files.owner, np.diff(bags.offsets))
    order = np.lexsort((bags.hashes, owners))
    owner, hashes, levels = owners[order], bags.hashes[order], bags.levels[order].astype(np.int64)
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(owner) != 0) | (np.diff(hashes) != 0)]))
    summed = np.minimum(np.add.reduceat(levels, starts), 4) if whole else np.maximum.reduceat(levels, starts)
    offsets = np.searchsorted(owner[starts], np.arange(len(files.repositories) + 1))
    return Bags(offsets, hashes[starts], bags.units[order][starts], summed.astype(np.uint8))


def judge(name: str, made: Callable[[], Bags], packages: list[str]) -> None:
    """Print one line: average precision, precision and recall at each threshold, cost."""
    started = time.perf_counter()
    bags = made()
    spent = time.perf_counter() - started
    rows = np.flatnonzero(total_weights(bags) > 0)
    started = time.perf_counter()
    signatures(rows_of(bags, rows), make_darts(1, 4))
    signing = time.perf_counter() - started
    left, right = (np.asarray(side, np.int64) for side in np.triu_indices(len(packages), 1))
    labels = np.unique(packages, return_inverse=True)[1]
    same = labels[left] == labels[right]
    started = time.perf_counter()
    j = np.zeros(len(left))
    for part in np.array_split(np.arange(len(left)), max(1, len(left) // 500)):
        shared, united = overlaps(rows_of(bags, left[part]), rows_of(bags, right[part]))
        j[part] = shared / np.maximum(united, 1)
    comparing = time.perf_counter() - started
    ranked = same[np.argsort(-j, kind="stable")]
    precision = np.cumsum(ranked) / np.arange(1, len(ranked) + 1)
    average = precision[ranked].sum() / same.sum()
    cells = []
    for threshold in THRESHOLDS:
        found = j >= threshold
        cells.append(f"{(same & found).sum() / max(1, found.sum()):5.3f} {(same & found).sum() / same.sum():5.3f}")
    items = len(bags.hashes) / len(packages)
    cost = f"{items:8,.0f} {spent:7.2f} {signing:7.2f} {1e6 * comparing / len(left):8.1f}"
    print(f"{name:42} {average:5.3f}  {'   '.join(cells)}  {cost}")


def made(packages: int = 5) -> Path:
    """A folder of packages of real files in two releases each, of which the second changes half of them."""
    folder, texts = Path(tempfile.mkdtemp(prefix="bench-releases-")), python_files(8 * packages)
    for package in range(packages):
        for release in range(2):
            target = folder / f"package{package}@{release}"
            target.mkdir()
            for number, text in enumerate(texts[8 * package : 8 * package + 8]):
                changed = text.replace("self", f"own{release}") if number % 2 else text
                (target / f"module{number}.py").write_text(changed, encoding="utf-8")
    return folder


def main() -> None:
    """Read the command line."""
    parser = command.parser(__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    given = command.read(parser)
    folder = given.folder or (made() if given.small else command.attempt(fetched))
    if folder:
        compare(folder)


def compare(folder: Path) -> None:
    """Compare the kinds of bags."""
    files = read(folder)
    count = Counter(files.packages)
    started = time.perf_counter()
    bags = file_bags(files)
    exact = exact_classes(files.texts)
    size = sum(map(len, files.texts)) / 1e6
    print(
        f"{len(files.repositories)} repositories of {len(count)} packages, {len(files.texts):,} files, {size:,.0f} MB; "
        f"{sum(n * (n - 1) // 2 for n in count.values())} true pairs"
    )
    identities = {f"component at {t:g}": components(bags, exact, t) for t in (0.7, 0.8, 0.9)}
    print(f"bags and components of files: {time.perf_counter() - started:.1f} s")
    for name, one in {"exact class": exact, **identities}.items():
        print(f"  {name}: {len(np.unique(one)):,} groups, the largest of {np.bincount(one).max():,} files")
    heads = "   ".join(f"P    R @{t:g}" for t in THRESHOLDS)
    print(f"{'items':42} {'AP':5}   {heads}  {'items':>8} {'s made':>7} {'signed':>7} {'us/pair':>8}")
    weights = total_weights(bags)
    for whole, name in ((False, "tokens, most of a file"), (True, "tokens, summed to 4")):
        judge(name, partial(token_bags, files, bags, whole), files.packages)
    for rule in UNITS:
        for name, identity in {"exact class": exact, **identities}.items():
            judge(f"{name}, {rule}", partial(identity_bags, files, identity, weights, rule), files.packages)


if __name__ == "__main__":
    main()
