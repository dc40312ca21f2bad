"""The explorer in a browser: from navigation to the last paint of each page, on a lake of planted rows.

Two datasets are written by PyIceberg alone: `narrow`, many rows with tiny texts, and `wide`, real texts (`--texts`, a
Parquet file with a column `text`) cut to pieces of 4 KB and repeated with words of their own to the size asked.
Chromium is driven by Playwright; without either, the time until the last byte came stands in its place.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import command
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.tables.catalogue import load_table
from headrace.tables.settings import settings_at
from headrace_features.explore.dataset_at import DatasetAt, DatasetVersion
from headrace_features.explore.row_index import RowIndex
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.declare.tables import Table
from spark_jobs.lake.session.catalogue import ensure_table, open_catalogue
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.text.signals import SIGNALS
from spark_jobs.text.texts import TEXTS

_CHUNK = 500_000
_PIECE = 4096
_STARTS = 5
_LANGUAGES = ("English", "German", "Python", "C", "Welsh")
_PAINTED = """() => new Promise((done) => {
  new PerformanceObserver((list) => {}).observe({ type: "largest-contentful-paint", buffered: true });
  requestAnimationFrame(() => setTimeout(() => {
    const seen = ["paint", "largest-contentful-paint"].flatMap((kind) => performance.getEntriesByType(kind));
    const loaded = performance.getEntriesByType("navigation")[0].loadEventEnd;
    done(Math.max(loaded, ...seen.map((one) => one.startTime)));
  }, 0));
})"""


def main() -> None:
    """Plant, serve, open each page."""
    arguments = command.parser(__doc__)
    arguments.add_argument("--rows", type=int, default=10_000_000, help="of the dataset of tiny texts")
    arguments.add_argument("--megabytes", type=int, default=1000, help="of the dataset of real texts; 0 for none")
    arguments.add_argument(
        "--texts", type=Path, default=Path("../shared/data/rfc.parquet"), help="where these are from"
    )
    arguments.add_argument("--lake", type=Path, help="a folder of an embedded lake, instead of a planted one")
    arguments.add_argument("--keep", type=Path, help="folder of the planted lake and its indexes, which stay")
    given = command.read(arguments, rows=20_000, megabytes=2)
    with contextlib.ExitStack() as stack:
        root = given.lake or given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        catalogue = open_catalogue(settings_at(root))
        if given.lake is None:
            if load_table(catalogue, "narrow.verdicts") is None:
                plant(catalogue, "narrow", given.rows, tiny)
            pieces = pieces_of(given.texts, given.megabytes * 1_000_000) if given.megabytes else None
            if pieces is not None and load_table(catalogue, "wide.verdicts") is None:
                plant(catalogue, "wide", pieces[0], pieces[1])
        names = [space[0] for space in catalogue.list_namespaces() if load_table(catalogue, f"{space[0]}.documents")]
        opened = stack.enter_context(browser())
        with set_aside(root / "explore"):
            for _ in range(_STARTS):
                with served(root) as (address, began, busy):
                    say("first page after the command", time.perf_counter() - began + opened(address), used(busy()))
                    opened(f"{address}lake")
                    say("and its cards", time.perf_counter() - began, used(busy()))
            for name in names:
                with served(root) as (address, _, busy):
                    opened(f"{address}lake")
                    before = busy()
                    took = opened(f"{address}datasets/{name}/facets")
                    say(f"{name}, no index: counts at first", took, used(busy() - before))
                shutil.rmtree(root / "explore", ignore_errors=True)
            with served(root) as (address, _, busy):
                opened(f"{address}lake")
                measure_all({} if given.lake else without_index(address, names), opened, busy)
        for name in names:
            index(catalogue, name, root / "explore")
        with served(root) as (address, _, busy):
            opened(f"{address}lake")
            for name in names:
                measure(opened, address, name, busy)
            measure_others(opened, address, names, busy)


@contextlib.contextmanager
def set_aside(folder: Path) -> Iterator[None]:
    """Have no indexes meanwhile."""
    aside = folder.with_name("explore.aside")
    if folder.exists() and not aside.exists():  # where it does, a run was killed
        folder.rename(aside)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if aside.exists():
            aside.rename(folder)


def without_index(address: str, names: list[str]) -> dict[str, str]:
    """Pages of datasets whose index is being built."""
    pages = {}
    for name in names:
        base = f"{address}datasets/{name}/"
        asked = {"list": "documents", "filtered": "documents?language=Welsh", "sorted": "documents?sort=byte_count"}
        asked |= {"a word": "documents?q=number", "rules": "rules", "repositories": "repositories"}
        pages |= {f"{name}, no index: {said}": base + page for said, page in asked.items()}
        shown = fetched(f"{base}documents.json")["rows"]
        pages |= {f"{name}, no index: document": f"{address}documents/{one['doc_id']}" for one in shown[:1]}
    return pages


def plant(catalogue: Any, dataset: str, rows: int, texts: Callable[[int, int], pa.Array]) -> None:
    """Write the four tables of a dataset, an increment of each chunk of rows."""
    chance = np.random.default_rng(0)
    for increment, start in enumerate(range(0, rows, _CHUNK)):
        count = min(_CHUNK, rows - start)
        raw = chance.bytes(16 * count)
        ids = pa.array([raw[at : at + 16].hex() for at in range(0, len(raw), 16)])
        content = texts(start, count)
        score = chance.random(count)
        columns: dict[str, Any] = {
            "doc_id": ids,
            "path": pa.array([f"src/{number % 977}/{number}.txt" for number in range(start, start + count)]),
            "repository": pa.array([f"repository-{one}" for one in chance.integers(0, 500, count)]),
            "kind": pa.array(np.where(score < 0.7, "prose", "code")),
            "language": pa.array(np.array(_LANGUAGES)[np.minimum(chance.geometric(0.6, count) - 1, 4)]),
            "content": content,
            "byte_count": pa.array(chance.lognormal(8, 1, count).astype(np.int64)),
            "word_count": pa.array(chance.integers(0, 100, count)),
            "alphabetic_fraction": pa.array(np.where(score < 0.01, np.nan, score), from_pandas=True),
            "kept": pa.array(score > 0.2),
            "failed": failed(score),
        }
        for declared in (DOCUMENTS, TEXTS, SIGNALS, VERDICTS):
            given = (
                {**columns, "content": pa.nulls(count, pa.string()).fill_null("")} if declared is DOCUMENTS else columns
            )
            append(catalogue, dataset, declared, increment, count, given)


def failed(score: np.ndarray) -> pa.Array:
    """The failed rules of each row: one of a fifth of them, with the value that missed the threshold."""
    bad = score <= 0.2
    rules = pa.StructArray.from_arrays(
        [
            pa.array(np.where(score[bad] < 0.1, "too_short", "too_noisy")),
            pa.array(score[bad]),
            pa.array(0.2 + 0 * score[bad]),
        ],
        ["rule", "value", "threshold"],
    )
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(bad)]).astype(np.int32)), rules)


def append(catalogue: Any, dataset: str, declared: Table, increment: int, count: int, columns: dict[str, Any]) -> None:
    """Append rows as one file; required columns that are not given are empty."""
    scope = {"headrace.scope": "increment", "write.parquet.row-group-limit": "16384"}
    table = ensure_table(catalogue, f"{dataset}.{declared.name}", declared, scope)
    arrays = []
    for field in table.schema().as_arrow():
        if field.name in columns:
            arrays.append(pa.array(columns[field.name]).cast(field.type))
        elif field.name == "increment":
            arrays.append(pa.array(np.full(count, increment)).cast(field.type))
        elif field.nullable:
            arrays.append(pa.nulls(count, field.type))
        else:
            empty: Any = "" if pa.types.is_string(field.type) or pa.types.is_large_string(field.type) else 0
            empty = [] if pa.types.is_nested(field.type) else empty
            arrays.append(pa.array([empty], field.type).take(pa.array(np.zeros(count, np.int64))))
    rows = pa.Table.from_arrays(arrays, schema=table.schema().as_arrow())
    table.append(rows.sort_by([(name, "ascending") for name in declared.sort]) if declared.sort else rows)


def tiny(start: int, count: int) -> pa.Array:
    """Texts of a few words."""
    return pa.array([f"a few words of number {number}" for number in range(start, start + count)])


def pieces_of(file: Path, size: int) -> tuple[int, Callable[[int, int], pa.Array]] | None:
    """How many pieces of 4 KB have a size, and the function that cuts them; None where the file is not there."""
    if not file.exists():
        print(f"left out: {file} is not there")
        return None
    whole = "\n".join(pq.read_table(file, columns=["text"]).column("text").to_pylist())

    def cut(start: int, count: int) -> pa.Array:
        places = ((number * _PIECE) % (len(whole) - _PIECE) for number in range(start, start + count))
        numbers = range(start, start + count)
        return pa.array(
            [f"{whole[at : at + _PIECE]} word{n} name{n % 9973}" for n, at in zip(numbers, places, strict=True)]
        )

    return size // _PIECE, cut


def index(catalogue: Any, dataset: str, folder: Path) -> None:
    """Build the index of a dataset, and say what it takes."""
    at = DatasetAt(catalogue, dataset, DatasetVersion.newest(catalogue, dataset))
    began, busy = time.perf_counter(), time.process_time()
    made = RowIndex(at, folder)
    made.wait(1e5)
    say(f"{dataset}: index of rows, {made.total:,}", time.perf_counter() - began, f"{size(made._rows)}")
    made.wait_for_texts(1e5)
    took = time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    held = f"{size(made._texts)}; processor {took:.0f} s, most memory {peak:.1f} GB"
    say(f"{dataset}: and of texts", time.perf_counter() - began, held)
    began, busy = time.perf_counter(), time.process_time()
    made.words.wait(1e5)
    words = size(next(folder.glob(f"{dataset}.*.words.*")))
    say(f"{dataset}: of words", time.perf_counter() - began, f"{words}; processor {time.process_time() - busy:.0f} s")


def measure(opened: Callable[[str], float], address: str, name: str, busy: Callable[[], float]) -> None:
    """Open the pages of a dataset."""
    base = f"{address}datasets/{name}/"
    first = fetched(f"{base}documents.json")
    shown = first["rows"][0]["doc_id"]
    score = next((one for one in first["numeric"] if one == "alphabetic_fraction"), first["numeric"][-1])
    pages = {
        "lake": address,
        "documents": f"{base}documents",
        "sorted": f"{base}documents?sort={score}&way=down",
        "filtered": f"{base}documents?language=Welsh&sort={score}",
        "a sample of a filter": f"{base}documents?seed=7&language=Welsh",
        "a rule, borderline first": f"{base}documents?rule=too_short&sort=distance",
        "from quantile .9": f"{base}jump?sort={score}&quantile=0.9",
        "document": f"{address}documents/{shown}",
        "found by prefix": f"{address}find?q={shown[:12]}",
        "ranked: a frequent word": f"{address}find?q=the&dataset={name}",
        "ranked: a rare word": f"{address}find?q=word77&dataset={name}",
        "a frequent word": f"{base}documents?q=the",
        "a rare word": f"{base}documents?q=word77",
        "a phrase": f"{base}documents?q=denial+of+service",
        "part of a word": f"{base}documents?q=etransmi&inside=1",
        "counts and histograms": f"{base}facets",
    }
    measure_all({f"{name}: {said}": page for said, page in pages.items()}, opened, busy)


def measure_others(opened: Callable[[str], float], address: str, names: list[str], busy: Callable[[], float]) -> None:
    """Open the pages of rules, repositories, corpora and blends, as far as the lake has them."""
    pages: dict[str, str] = {}
    for name in names:
        base = f"{address}datasets/{name}"
        with contextlib.suppress(urllib.error.HTTPError):  # it was not judged
            rules = [one for one in fetched(f"{base}/rules.json")["rules"] if one["reference"]]
            numbered = [one for one in rules if isinstance(one["value"], int | float)]
            pages |= {f"{name}: rules": f"{base}/rules"}
            pages |= {f"{name}: a rule": f"{base}/rules/{one['reference']}" for one in numbered[:1]}
        found = fetched(f"{base}/repositories.json")["repositories"]
        pages |= {f"{name}: repositories": f"{base}/repositories"} if found else {}
        largest = max(
            (one["repository"] for one in found), key=lambda one: len(text(f"{base}/repositories/{one}")), default=""
        )
        pages |= {f"{name}: its largest page of one": f"{base}/repositories/{largest}"} if largest else {}
    for corpus in {one["name"] for one in fetched(f"{address}lake.json")["corpora"]}:
        pages[f"{corpus}: the corpus"] = f"{address}corpora/{corpus}"
        pairs = re.findall(rf"/corpora/{corpus}/duplicates/[0-9a-f]+", text(f"{address}corpora/{corpus}"))
        pages |= {f"{corpus}: duplicates side by side": address + one[1:] for one in pairs[:1]}
    for blend in [one["blend_id"] for one in fetched(f"{address}blends.json")["blends"]][:1]:
        pages |= {"a blend": f"{address}blends/{blend}"}
        pages |= {f"batch at {offset:,}": f"{address}blends/{blend}/rows/{offset}" for offset in (0, 100, 5000)}
    measure_all(pages, opened, busy)


def measure_all(pages: dict[str, str], opened: Callable[[str], float], busy: Callable[[], float]) -> None:
    """The best of five tries of each, by the browser and by the processor of the server; the first stands beside."""
    for said, page in pages.items():
        tries = []
        for _ in range(6):
            before = busy()
            tries.append((opened(page), busy() - before))
        seconds, processor = (min(column) for column in zip(*tries[1:], strict=True))
        say(said, seconds, f"{used(processor)}; at first {tries[0][0]:.3f} s")


def text(page: str) -> str:
    """HTML of a page."""
    with urllib.request.urlopen(urllib.request.Request(page, headers=_SIGNED)) as answer:
        return str(answer.read().decode())


def used(seconds: float) -> str:
    """Seconds of the server's processor, in hundredths."""
    return f"server {seconds:.2f} s"


def fetched(address: str) -> Any:
    """JSON of a page."""
    with urllib.request.urlopen(urllib.request.Request(address, headers=_SIGNED)) as answer:
        return json.load(answer)


_SIGNED: dict[str, str] = {}


@contextlib.contextmanager
def served(root: Path) -> Iterator[tuple[str, float, Callable[[], float]]]:
    """An explorer of a lake: its address, when its command began, the seconds of a core that it has used."""
    environment = {f"PYICEBERG_CATALOG__LAKE__{k.upper()}": v for k, v in settings_at(root).properties.items()}
    program = "from dagster_project.command import spare_collector; spare_collector(); "
    program += "from headrace_features.explore import serving; from dagster_project.project import declared; "
    program += "declared.texts_are_shown = lambda name: True; serving.serve_pages('127.0.0.1', 0, None, None, ())"
    began = time.perf_counter()
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, **environment, "PYTHONPATH": paths},
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            found = re.search(r"(http://\S+/)\?token=(\S+)", process.stdout.readline())
            assert found is not None
            _SIGNED["Authorization"] = f"Bearer {found[2]}"

            def busy() -> float:
                times = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")

            yield found[1], began, busy
        finally:
            process.terminate()


@contextlib.contextmanager
def browser() -> Iterator[Callable[[str], float]]:
    """A function that opens an address and gives the seconds until the last paint, or until the last byte."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("left out: Playwright or Chromium is not there, so seconds are until the last byte came")

        def fetch(address: str) -> float:
            began = time.perf_counter()
            with urllib.request.urlopen(urllib.request.Request(address, headers=_SIGNED)) as answer:
                answer.read()
            return time.perf_counter() - began

        yield fetch
        return
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = opened.new_page()

        def paint(address: str) -> float:
            page.set_extra_http_headers(_SIGNED)
            page.goto("about:blank")  # what waits for an index opens itself again meanwhile
            page.goto(address, timeout=300_000)
            return float(page.evaluate(_PAINTED)) / 1000

        paint("data:text/html,<p>begun</p>")
        yield paint
        opened.close()


def size(file: Path) -> str:
    """Megabytes of a file."""
    return f"{file.stat().st_size / 1e6:,.0f} MB"


def say(what: str, seconds: float, more: str) -> None:
    """One row."""
    print(f"{what:45} {seconds:9.3f} s  {more}", flush=True)


if __name__ == "__main__":
    main()
