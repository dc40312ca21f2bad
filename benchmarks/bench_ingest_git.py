"""How fast git repositories are listed and read: the kernels of the step, without Spark.

    python benchmarks/bench_ingest_git.py [--commits 10000] [--repositories 100] [--peers PYTHON]

A history is made by `git fast-import`: each commit edits three of 2,000 Python files of about 4 KB, deletes or renames
one now and then, and every twentieth merges a branch. It is packed by `git gc`, as a clone is. Then:

    all, tags, latest    list and read it (seconds; documents; MB of text; memory of this process at its peak)
    nothing new          many small repositories whose refs are as before
    one commit more      the history again, after one commit
    readers              the bytes of all versions by `git cat-file --batch`, and by pygit2 and dulwich in the Python
                         of `--peers`, each with the ids in the same order
"""

from __future__ import annotations

import functools
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import command
import pyarrow as pa
import pyarrow.compute as pc
from corpora import real
from cpu_time import peak_mib

from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.documents import ARRIVALS
from spark_jobs.sources.git.store import BlobReaders
from spark_jobs.sources.listing.changes import discover
from spark_jobs.sources.reading.files import read_files
from spark_jobs.sources.reading.rows import ReadingRules

_PEERS = {
    "pygit2": "import pygit2; r = pygit2.Repository({root!r})\nread = lambda oid: r[oid].data",
    "dulwich": "from dulwich.repo import Repo; r = Repo({root!r})\n"
    "read = lambda oid: r.object_store.get_raw(oid.encode())[1]",
}


def history(commits: int, seed: int = 7) -> Iterator[bytes]:
    """A stream for `git fast-import`."""
    chosen = random.Random(seed)
    lines = [f"    value_{number} = compute({number}, names[{number % 7}])\n" for number in range(400)]
    files: dict[str, list[str]] = {}

    def changed(number: int) -> Iterator[bytes]:
        for _ in range(3):
            path = f"package_{chosen.randrange(40)}/module_{chosen.randrange(50)}.py"
            text = files.setdefault(path, chosen.choices(lines, k=120))
            text[chosen.randrange(len(text))] = f"    value = {number}\n"
            data = "".join(text).encode()
            yield f"M 100644 inline {path}\ndata {len(data)}\n".encode() + data + b"\n"
        if number % 50 == 49 and len(files) > 100:
            old = chosen.choice(sorted(files))
            if number % 100 == 49:
                del files[old]
                yield f"D {old}\n".encode()
            else:
                files[f"moved/{number}.py"] = files.pop(old)
                yield f"R {old} moved/{number}.py\n".encode()

    for number in range(commits):
        who = f"Author {number % 37} <a{number % 37}@example.org> {1_500_000_000 + number * 600} +0000"
        yield f"commit refs/heads/main\nmark :{number + 1}\ncommitter {who}\ndata 1\nx\n".encode()
        if number:
            yield f"from :{number}\n".encode()
        if number % 20 == 19:
            yield f"merge :{number - 3}\n".encode()
        yield from changed(number)
        if number % 500 == 499:
            yield f"reset refs/tags/v{number}\nfrom :{number + 1}\n\n".encode()


def make(root: Path, commits: int, packed: bool, seed: int = 7) -> None:
    """A bare repository with a history."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(root)], check=True)
    with subprocess.Popen(["git", "-C", str(root), "fast-import", "--quiet"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.writelines(history(commits, seed))
    if packed:
        subprocess.run(["git", "-C", str(root), "gc", "-q"], check=True)


def config(pattern: str, cache: str, revisions: str = "all") -> DocumentsConfig:
    """A dataset over repositories."""
    source = {"kind": "git", "repositories": [pattern], "revisions": revisions, "cache": cache}
    return DocumentsConfig.model_validate({"dataset": "code", "source": source})


def landed(made: DocumentsConfig, arrivals: pa.Table) -> tuple[pa.Table, list[float], int, int]:
    """Arrivals after one increment, seconds of listing and reading, documents and bytes."""
    begun = time.perf_counter()
    listing = discover(made, arrivals, False)
    assert listing is not None
    listed = time.perf_counter()
    rules = ReadingRules("code", 1, made.max_document_bytes, made.source)
    documents, size, rows = 0, 0, []
    last: dict[tuple[str, str], tuple[int, str]] = {}
    versions = dict(zip(listing["location"].to_pylist(), listing["version"].to_pylist(), strict=True))
    for batch in read_files(iter(listing.filter(pc.invert(listing["gone"])).to_batches()), rules):
        is_document = pc.is_valid(batch["doc_id"])
        documents += pc.sum(is_document).as_py() or 0
        size += pc.sum(pc.if_else(is_document, batch["byte_count"], 0)).as_py() or 0
        for row in batch.filter(is_document).select(["location", "repository", "path", "doc_id"]).to_pylist():
            key = (row["repository"], row["path"])
            last[key] = max(last.get(key, (-1, "")), (versions[row["location"]], row["location"]))
        facts = pc.and_(pc.invert(is_document), pc.is_valid(batch["location"]))
        rows.append(batch.filter(pc.and_(facts, pc.is_null(batch["facts"]))))
    read = time.perf_counter()
    names = [column.name for column in ARRIVALS.columns if column.name != "doc_id"]
    arrived = pa.Table.from_batches(rows).select(names)
    latest = pa.array([location for _, location in last.values()], pa.string())
    named = pc.if_else(pc.is_in(arrived["location"], latest), "x" * 32, pa.scalar(None, pa.string()))
    increment = pa.array([0] * arrived.num_rows, pa.int32())
    arrived = arrived.append_column("doc_id", named).append_column("increment", increment)
    return arrived, [listed - begun, read - listed], documents, size


def readers(root: Path, oids: list[str], peers: str | None) -> None:
    """Seconds to read blobs, by reader."""
    begun, blobs, size = time.perf_counter(), BlobReaders(""), 0
    for oid in oids:
        size += len(blobs.read(str(root), oid, 1 << 30))
    blobs.close()
    print(f"git cat-file --batch: {time.perf_counter() - begun:.2f} s for {len(oids):,} blobs, {size / 1e6:.0f} MB")
    for name, code in _PEERS.items() if peers else ():
        script = f"import sys, time\n{code.format(root=str(root))}\noids = sys.stdin.read().split()\n"
        script += "t = time.perf_counter()\nsum(len(read(oid)) for oid in oids)\nprint(time.perf_counter() - t)"
        seconds = command.attempt(functools.partial(command.peer, given="\n".join(oids)), str(peers), "-c", script)
        if seconds is not None:
            print(f"{name}: {float(seconds):.2f} s")


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = command.parser(__doc__)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--repositories", type=int, default=100)
    parser.add_argument("--peers", help="a Python that has pygit2 and dulwich")
    given = command.read(parser, commits=60, repositories=3)
    nothing = ARRIVALS.schema().as_arrow().empty_table()
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder) / "large.git", f"{folder}/cache"
        begun = time.perf_counter()
        make(root, given.commits, packed=True)
        size = sum(file.stat().st_size for file in root.rglob("*.pack"))
        print(f"made {given.commits:,} commits in {time.perf_counter() - begun:.0f} s, packed {size / 1e6:.0f} MB")
        arrived = nothing
        for revisions in ("latest", "tags", "all"):
            arrived, seconds, documents, size = landed(config(str(root), cache, revisions), nothing)
            print(
                f"{revisions}: listed {seconds[0]:.2f} s, read {seconds[1]:.2f} s: {documents:,} documents, "
                f"{size / 1e6:.0f} MB; peak {peak_mib()} MiB"
            )
        oids = [location.split("@")[1].split(":")[0] for location in arrived["location"].to_pylist() if "@" in location]
        readers(root, oids, given.peers)
        begun = time.perf_counter()
        assert discover(config(str(root), cache), arrived, False) is None
        print(f"nothing new in {given.commits:,} commits: {time.perf_counter() - begun:.2f} s")
        tree = subprocess.check_output(["git", "-C", str(root), "rev-parse", "HEAD~1^{tree}"], text=True).strip()
        who = {**os.environ, **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "EMAIL"), "a@example.org")}
        more = ["git", "-C", str(root), "commit-tree", tree, "-p", "HEAD", "-m", "x"]
        commit = subprocess.check_output(more, env=who, text=True).strip()
        subprocess.run(["git", "-C", str(root), "update-ref", "refs/heads/main", commit], check=True)
        _, seconds, documents, _ = landed(config(str(root), cache), arrived)
        print(f"one commit more: listed {seconds[0]:.2f} s, read {seconds[1]:.2f} s, {documents} versions")
        for number in range(given.repositories):
            make(Path(folder) / "many" / f"r{number}.git", 20, packed=False, seed=number)
        many = config(f"{folder}/many/*.git", cache)
        arrived, seconds, documents, _ = landed(many, nothing)
        took = f"listed {seconds[0]:.2f} s, read {seconds[1]:.2f} s"
        print(f"{given.repositories} repositories: {took}: {documents:,} documents")
        begun = time.perf_counter()
        assert discover(many, arrived, False) is None
        print(f"nothing new in {given.repositories} repositories: {time.perf_counter() - begun:.3f} s")
        bundles = command.attempt(real, "git")
        if bundles is not None:
            _, seconds, documents, size = landed(config(f"{bundles}/*.bundle", cache), nothing)
            took = f"listed {seconds[0]:.2f} s, read {seconds[1]:.2f} s"
            print(f"bundles of {bundles}: {took}: {documents:,} documents, {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
