"""What lands of a stream depends on the order of its records, not on where micro-batches, pages or increments end."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace_features.apis import streams
from headrace_features.apis.stream_config import StreamSource
from headrace_features.apis.stream_folder import MicroBatch, StreamFolder
from headrace_features.apis.streams import _Inbox, follow
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.documents import documents
from spark_jobs.sources.landing.revisions import PATH, latest_at_paths
from spark_jobs.sources.paged.checkpoints import Checkpoints
from tests.tiers import sampled

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class Killed(BaseException):
    """A process that ends where it is."""


class Cut(NamedTuple):
    """Where a stream is cut: files of a micro-batch, records of a page and of an increment; and where it is killed.

    Attributes:
        kills: after how many moments before and after commits, of pages and of increments, the follower ends each time.
    """

    files: int
    page: int
    sealed: int
    kills: tuple[int, ...] = ()


class Landed(NamedTuple):
    """What a stream gave: the latest text at each path, all texts of it in order, and refused records by reason."""

    latest: dict[str, str]
    versions: dict[str, list[tuple[str, str]]]
    refused: dict[str, int]


def stream_of(seed: int, records: int, files: int) -> dict[str, list[str]]:
    """Lines of files by name: edits, returns and repeats of few ids, and lines that are no records."""
    draw = random.Random(seed)
    lines = list[str]()
    for at in range(records):
        record = {"id": draw.randrange(max(2, records // 6)), "t": f"text {draw.randrange(4)}", "at": at}
        lines.append(draw.choice(["no json", '{"id": 1}']) if draw.random() < 0.1 else json.dumps(record))
    borders = [0, *sorted(draw.choices(range(records + 1), k=files - 1)), records]
    # Depth, capitals and digits: the order is that of the whole path.
    names = sorted(f"{'below/' * (at % 2)}{'Zz'[at % 3 > 0]}{at * 7 % 20}.jsonl" for at in range(files))
    return {name: lines[start:end] for name, (start, end) in zip(names, itertools.pairwise(borders), strict=True)}


def folded(files: dict[str, list[str]]) -> Landed:
    """What has to land, record by record."""
    landed, refused = Landed({}, {}, {}), Counter[str]()
    for line in itertools.chain.from_iterable(files[name] for name in sorted(files)):
        record = json.loads(line) if line.startswith("{") else {}
        if "t" not in record:
            refused["missing_column" if record else "bad_record"] += 1
            continue
        path, text = f"in#{record['id']}", record["t"]
        landed.latest[path] = text
        texts = landed.versions.setdefault(path, [])
        if text not in [earlier for earlier, _ in texts]:
            texts.append((text, str(record["at"])))
    return landed._replace(refused=dict(refused))


def rows_of(lake: Lake) -> Landed:
    """What is in the tables; versions by increment, page and place."""
    there, arrived = (lake.session().table(f"lake.feed.{name}") for name in ("documents", "arrivals"))
    latest = latest_at_paths(there, arrived, PATH, "increment").where("NOT gone").collect()
    rows = [row.asDict() for row in there.collect()]
    text_of = {row["doc_id"]: row["content"] for row in rows}
    assert len(text_of) == len(rows), "a document is one row"

    def place(row: dict[str, Any]) -> tuple[int, ...]:
        page, _, item = dict(row["metadata"])["headrace.page"].partition("#item:")
        return row["increment"], int(page), int(item)

    versions: dict[str, list[tuple[str, str]]] = {}
    for row in sorted(rows, key=place):
        versions.setdefault(row["path"], []).append((row["content"], dict(row["metadata"])["at"]))
    refused = Counter(row["reason"] for row in arrived.where("status = 'rejected'").select("reason").collect())
    return Landed({row["path"]: text_of[row["doc_id"]] for row in latest}, versions, dict(refused))


class Follower:
    """Follows a folder in a lake, cut and killed as told, until all has landed."""

    def __init__(self, lake: Lake, root: Path, cut: Cut, patch: pytest.MonkeyPatch) -> None:
        self.lake, self.cut = lake, cut
        self.state, self.folder = root / "state", root / "in"
        source = {"kind": "stream", "path": str(self.folder), "text_column": "t", "id_column": "id"}
        source |= {"metadata_columns": ["at"], "files": cut.files, "seal_records": cut.sealed}  # type: ignore[dict-item]
        self.config = DocumentsConfig.model_validate({"dataset": "feed", "source": source})
        self.kills, self.moments = list(cut.kills), 0
        save = Checkpoints.save

        def saved(*arguments: Any) -> bool:
            with self.killing():
                return save(*arguments)

        patch.setattr(Checkpoints, "save", saved)
        patch.setattr(streams, "_PAGE_RECORDS", cut.page)
        patch.setattr(streams, "_LOOKED_SECONDS", 0)

    def killing(self) -> Any:
        """Around a commit: the follower may end before or after it."""
        return _Commit(self)

    def seal(self) -> None:
        """Bring the documents up to date."""
        with self.killing():
            materialize(self.lake, Binding(documents, "feed", {}, self.config, driving_table="feed.arrivals"))

    def run(self) -> Landed:
        """Follow, again after each kill, and give what landed."""
        objects = ObjectFolder.of(self.lake.catalogue, "feed")
        source = self.config.source
        assert isinstance(source, StreamSource)
        while True:
            try:
                spark = self.lake.session()
                follow("feed", source, self.lake.catalogue, objects, spark, self.seal, self.state, once=True)
            except Killed:
                continue
            assert not self.kills, "a kill came after the end"
            return rows_of(self.lake)


class _Commit:
    def __init__(self, follower: Follower) -> None:
        self.follower = follower

    def __enter__(self) -> None:
        self._count()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._count()

    def _count(self) -> None:
        self.follower.moments += 1
        if self.follower.kills and self.follower.moments >= self.follower.kills[0]:
            self.follower.moments = 0
            del self.follower.kills[0]
            raise Killed


def put(folder: Path, files: dict[str, list[str]], seed: int) -> None:
    """Write files in any order, with any times."""
    draw = random.Random(seed)
    for name in draw.sample(sorted(files), len(files)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in files[name]))
        os.utime(path, (1e9, 1e9 + draw.randrange(3)))


@sampled()
@pytest.mark.parametrize("cut", [Cut(8, 1000, 1000), Cut(1, 2, 12, (2, 3, 1, 8))], ids=str)
def test_all_versions_land_in_order(
    lake_at: Callable[..., Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: Cut
) -> None:
    """In one micro-batch, page and increment, and in many that are killed: every text of an id, the last the latest."""
    files = stream_of(7, 30, 6)
    put(tmp_path / "in", files, 7)
    assert Follower(lake_at(tmp_path / "lake"), tmp_path, cut, monkeypatch).run() == folded(files)


def cuts() -> list[tuple[int, Cut]]:
    """Ten cuts, each killed at ten places."""
    draw, drawn = random.Random(54), list[tuple[int, Cut]]()
    for seed in range(10):
        sizes = draw.choice([1, 2, 3, 30]), draw.choice([1, 3, 7, 1000]), draw.choice([5, 20, 50, 1000])
        kills = tuple(draw.randrange(1, 3 if sizes[0] == 30 else 5) for _ in range(10))
        drawn.append((seed, Cut(*sizes, kills)))
    return drawn


@pytest.mark.nightly
@pytest.mark.parametrize(("seed", "cut"), cuts(), ids=str)
def test_ten_cuts_killed_at_ten_places_give_the_same(
    lake_at: Callable[..., Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, cut: Cut
) -> None:
    """Of one stream; files come while it is followed too."""
    files = stream_of(3, 200, 30)
    put(tmp_path / "in", files, seed)
    assert Follower(lake_at(tmp_path / "lake"), tmp_path, cut, monkeypatch).run() == folded(files)


@pytest.mark.nightly
def test_messages_land_by_offset_wherever_a_batch_ends(lake_at: Callable[..., Lake], tmp_path: Path) -> None:
    """Of a topic: a batch that is given again, as after a kill, adds nothing."""
    lines = [line for _, some in sorted(stream_of(11, 24, 1).items()) for line in some]
    source = {"kind": "stream", "text_column": "t", "id_column": "id", "metadata_columns": ["at"]}
    source |= {"kafka": {"servers": "x:1", "topic": "in"}}  # type: ignore[dict-item]
    config = DocumentsConfig.model_validate({"dataset": "feed", "source": source})
    assert isinstance(config.source, StreamSource)
    lake = lake_at(tmp_path / "lake")
    objects, store = ObjectFolder.of(lake.catalogue, "feed"), Checkpoints(lake.catalogue, "feed")
    inbox = _Inbox("feed", config.source, store, objects)
    for number, (start, end) in enumerate(itertools.pairwise((0, 9, 9, 10, 24))):
        for _ in range(2):
            inbox.take(MicroBatch(lines[start:end], ["query", number]), number)
    materialize(lake, Binding(documents, "feed", {}, config, driving_table="feed.arrivals"))
    assert inbox.records == 24 and rows_of(lake) == folded({"in": lines})


def test_what_is_being_written_is_not_read(tmp_path: Path) -> None:
    """Names with a dot or an underscore before them, as Spark and Hadoop know such files; folders of partitions are."""
    for name in (".a", "_b", "c._COPYING_", "_tmp/d", "day=1/e", "_day=2/f", "g_h.i"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    batch = StreamFolder(str(tmp_path), 10, [], tmp_path).next_batch()
    assert batch is not None and list(batch.lines) == ["_day=2/f", "day=1/e", "g_h.i"]


def test_files_that_spark_had_read_are_not_read_again(tmp_path: Path) -> None:
    """Spark's checkpoint of a folder, before headrace listed folders itself: files of its committed micro-batches."""
    state, folder = tmp_path / "state", tmp_path / "in"
    folder.mkdir()
    for name in ("a b", "c", "d"):
        (folder / name).write_text(f"{name}\n")
    for at, name in enumerate(("a%20b", "c")):
        entry = {"path": f"file://{folder}/{name}", "timestamp": 1, "batchId": at}
        (state / "sources" / "0").mkdir(parents=True, exist_ok=True)
        (state / "sources" / "0" / str(at)).write_text(f"v1\n{json.dumps(entry)}")
    (state / "commits").mkdir()
    (state / "commits" / "0").write_text("v1\n{}")
    batch = StreamFolder(str(folder), 10, [], state).next_batch()
    assert batch is not None and list(batch.lines) == ["c", "d"]
