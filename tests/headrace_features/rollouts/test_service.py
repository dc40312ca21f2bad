"""The service over a real socket and a real lake: what was acknowledged is served, once, whatever ends meanwhile."""

from __future__ import annotations

import functools
import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from pyiceberg.catalog import Catalog

from blender_service.client import SourceSpec, connect
from blender_service.client.identity import Identity
from blender_service.exceptions import (
    BlenderError,
    MalformedRolloutError,
    NotAllowedError,
    ServerUnavailableError,
    SlowDownError,
)
from blender_service.server.server import RunningServer, start
from blender_service.server.settings import OperationConfig
from dagster_project.exceptions import CommandError
from headrace.blender.v1 import rollouts_pb2, rollouts_pb2_grpc
from headrace.tables.ordinals import index_snapshot
from headrace_features.rollouts import log_reading, service, tables
from headrace_features.rollouts import writer as rollout_writer
from headrace_features.rollouts.settings import read_settings
from headrace_features.rollouts.writer import Outcome, Rollout, RolloutWriter, _message
from spark_jobs.lake.files import append_log
from tests.blender_service.packed_tables import PADDING, VOCABULARY_SIZE, WINDOW_TOKENS, create_packed, open_lake
from tests.tiers import sampled
from tests.waiting import until

TABLE = "rl.rollouts"
SETTINGS = """
[[table]]
table = "rl.rollouts"
like = "main.packed_code_16"
max_lag = 2
rows_per_step = 1000
commit_seconds = 0.0
"""


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake with a packed table."""
    catalogue = open_lake(tmp_path / "warehouse")
    create_packed(catalogue, "main.packed_code_16").append(20, seed=1)
    return catalogue


@pytest.fixture
def serve(lake: Catalog, tmp_path: Path) -> Iterator[Callable[..., RunningServer]]:
    """Start servers that take rollouts; they stop with the test."""
    running: list[RunningServer] = []

    def begin(text: str = SETTINGS, **options: Any) -> RunningServer:
        path = tmp_path / "rollouts.toml"
        path.write_text(text)
        running.append(start(lake, add_services=[functools.partial(service.add_rollouts, path)], **options))
        return running[-1]

    yield begin
    for server in running:
        server.stop(grace_seconds=1)


def made(group: str, member: int, size: int, version: int = 3) -> Rollout:
    """A rollout whose content follows from its name."""
    draw = np.random.default_rng([member, size, *group.encode()])
    count = int(draw.integers(1, WINDOW_TOKENS + 1))
    return Rollout(
        group, member, size, draw.integers(0, VOCABULARY_SIZE, count), [(count, version)],
        draw.random(count) < 0.5, draw.normal(size=count), draw.normal(size=count), float(draw.normal()),
    )  # fmt: skip


def rows_of(lake: Catalog, table: str = TABLE) -> list[dict[str, Any]]:
    """The rows of a table, by their first column."""
    found = lake.load_table(table).scan().to_arrow()
    return found.sort_by(found.schema.names[0]).to_pylist()


def check_row(row: dict[str, Any], rollout: Rollout) -> None:
    """A row holds what was appended, and padding behind it."""
    ids = np.asarray(rollout.input_ids)
    rest = WINDOW_TOKENS - len(ids)
    assert row["input_ids"] == [*ids.tolist(), *[PADDING] * rest]
    assert row["token_count"] == len(ids)
    assert row["trainable"] == [*np.asarray(rollout.trainable).tolist(), *[False] * rest]
    for name, values in (("log_probability", rollout.log_probabilities), ("advantage", rollout.advantages)):
        assert row[name] == [*np.asarray(values, np.float32).tolist(), *[0.0] * rest]
    assert [(span["token_count"], span["policy_version"]) for span in row["spans"]] == list(rollout.spans)
    assert row["reward"] == rollout.reward


def outcomes(found: Sequence[Outcome]) -> list[str]:
    """Status and first word of the reason."""
    return [f"{one.status} {one.reason.partition(':')[0]}".strip() for one in found]


def test_appended_rows_are_served_by_live_blends(serve: Callable[..., RunningServer], lake: Catalog) -> None:
    """Token for token, by ordinal, groups whole and together; from many threads of one writer."""
    server = serve()
    groups = {f"g{number}": 1 + number % 4 for number in range(8)}
    with RolloutWriter(server.address, TABLE) as writer, connect(server.address) as client:
        found: list[Outcome] = []

        def work(member: int) -> None:
            for group, size in groups.items():
                if member < size:
                    found.extend(writer.append(made(group, member, size)))

        threads = [threading.Thread(target=work, args=(member,)) for member in range(4)]
        for thread in threads:
            thread.start()
        blend = client.create_blend([SourceSpec(TABLE, live=True)])
        count = sum(groups.values())
        columns = ("trainable", "log_probability", "advantage")
        batches = list(client.read(blend.blend_id, 0, rows=count, wait_seconds=60, columns=columns))
        for thread in threads:
            thread.join()
    assert outcomes(found) == ["admitted"] * count
    rows = rows_of(lake)
    assert [row["ordinal"] for row in rows] == list(range(count))
    for row in rows:
        check_row(row, made(row["group"], row["member"], row["group_size"]))
    names = [row["group"] for row in rows]
    assert sorted({*names}) == sorted(groups)
    assert [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name].__len__() == len(groups)
    served = np.concatenate([batch.input_ids for batch in batches])
    assert served.tolist() == [row["input_ids"] for row in rows]
    for column in columns:
        values = np.concatenate([batch.columns[column] for batch in batches])
        assert values.tolist() == [row[column] for row in rows]


@pytest.mark.nightly
def test_upkeep_changes_no_row_and_stores_tokens_once(
    serve: Callable[..., RunningServer], lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files become one, each of one run of ordinals; old snapshots and payloads go; a pinned one stays."""
    monkeypatch.setattr(service, "COMMITS_BETWEEN_EMPTYING", 4)
    monkeypatch.setattr(service, "COMMITS_BETWEEN_UPKEEP", 8)
    monkeypatch.setattr(append_log, "KEPT_SNAPSHOTS", 4)
    monkeypatch.setattr(append_log, "KEPT_SECONDS", 0.0)
    server = serve()
    with RolloutWriter(server.address, TABLE) as writer, connect(server.address) as client:
        for number in range(5):
            writer.append(made(f"a{number}", 0, 1))
        until(lambda: len(rows_of(lake)) == 5)
        pinned = client.create_blend([SourceSpec(TABLE)])
        writer.append(made("open", 0, 2))
        for number in range(20):
            writer.append(made(f"b{number}", 0, 1), *([made("open", 1, 2)] if number == 10 else []))
        until(lambda: len(rows_of(lake)) == 27)
        assert sum(len(batch.input_ids) for batch in client.read(pinned.blend_id, 0)) == 5
        more = itertools.count()
        until(lambda: writer.append(made(f"c{next(more)}", 0, 1)) and len(payloads(lake)) < 12 and is_small(lake))
    server.stop()
    for row in rows_of(lake):
        check_row(row, made(row["group"], row["member"], row["group_size"]))
    events = rows_of(lake, f"{TABLE}_log")
    assert [event["sequence"] for event in events] == list(range(len(events)))
    assert payloads(lake)
    table = lake.load_table(TABLE)
    head = table.current_snapshot()
    assert head is not None
    assert index_snapshot(table, TABLE, head)[-1].end == len(rows_of(lake))


def payloads(lake: Catalog) -> list[str]:
    """Groups of the events whose tokens are in the log."""
    return [event["group"] for event in rows_of(lake, f"{TABLE}_log") if event["payload"] is not None]


def is_small(lake: Catalog) -> bool:
    """Whether files and snapshots of both tables are few."""
    both = [lake.load_table(name) for name in (TABLE, f"{TABLE}_log")]
    return all(len(one.inspect.files()) < 12 and len(one.snapshots()) < 25 for one in both)


def test_a_writer_has_several_requests_on_their_way(
    serve: Callable[..., RunningServer], lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is appended while a request waits does not wait for its answer: here none comes before all have arrived."""
    ask, together = service.TableWriter.ask, threading.Barrier(rollout_writer.MOST_ON_THEIR_WAY)

    def asks(writer: service.TableWriter, decide: service.Decide) -> Any:
        together.wait()
        return ask(writer, decide)

    monkeypatch.setattr(service.TableWriter, "ask", asks)
    with RolloutWriter(serve().address, TABLE) as writer:
        threads = []
        for number in range(rollout_writer.MOST_ON_THEIR_WAY):
            threads.append(threading.Thread(target=writer.append, args=(made(f"g{number}", 0, 1),)))
            threads[-1].start()
            until(lambda: writer._next_number == len(threads))
        for thread in threads:
            thread.join()
    until(lambda: len(rows_of(lake)) == len(threads))


def test_a_lost_acknowledgement_is_given_again(serve: Callable[..., RunningServer], lake: Catalog) -> None:
    """The same request to the same server, and to another one after it: same answers, one row each."""
    request = rollouts_pb2.AppendRolloutsRequest(
        table=TABLE, writer="w", first_number=0,
        rollouts=[_message(one) for one in (made("a", 0, 1), made("a", 0, 1), made("b", 0, 2))],
    )  # fmt: skip
    answers = []
    for _ in range(2):
        server = serve()
        with grpc.insecure_channel(server.address) as channel:
            stub = rollouts_pb2_grpc.RolloutServiceStub(channel)
            answers += [stub.AppendRollouts(request) for _ in range(2)]
        server.stop()
    assert all(one == answers[0] for one in answers)
    assert [row["group"] for row in rows_of(lake)] == ["a"]
    assert len(rows_of(lake, f"{TABLE}_log")) == 4


@sampled()
@pytest.mark.parametrize("where", ["log", "rows"])
def test_a_failure_at_either_commit_loses_and_repeats_nothing(
    serve: Callable[..., RunningServer], lake: Catalog, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Before the commit of the log or of the rows, and after it, when nobody knows whether it was made."""
    commit = getattr(tables.RolloutStore, f"commit_{where}")
    chance = random.Random(5)

    def fails(store: tables.RolloutStore, *leases: Any) -> None:
        before, after = chance.random() < 0.3, chance.random() < 0.3
        if before:
            raise OSError("the store is away")
        commit(store, *leases)
        if after:
            raise OSError("the store is away")

    monkeypatch.setattr(tables.RolloutStore, f"commit_{where}", fails)
    monkeypatch.setattr(service, "RETRY_SECONDS", 0.01)
    with RolloutWriter(serve().address, TABLE, retry_seconds=30) as writer:
        for number in range(4):
            assert outcomes(writer.append(made(f"g{number}", 0, 2), made(f"g{number}", 1, 2))) == ["admitted"] * 2
    until(lambda: len(rows_of(lake)) == 8)
    rows = rows_of(lake)
    assert [(row["ordinal"], row["group"], row["member"]) for row in rows] == [
        (2 * number + member, f"g{number}", member) for number in range(4) for member in range(2)
    ]


@pytest.mark.nightly
def test_a_start_reads_the_end_of_the_log_alone(
    serve: Callable[..., RunningServer],
    lake: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After a stop and after a failed commit; where its file is damaged all of the log, which is told; no row twice."""
    read, log_rows = list[int](), log_reading.log_rows

    def counted(*arguments: Any) -> Iterator[Any]:
        for rows in log_rows(*arguments):
            read.append(rows.num_rows)
            yield rows

    for module in (log_reading, tables):
        monkeypatch.setattr(module, "log_rows", counted)
    monkeypatch.setattr(tables, "EVENTS_BETWEEN_SAVES", 4)
    monkeypatch.setattr(service, "RETRY_SECONDS", 0.01)
    server = serve()
    with RolloutWriter(server.address, TABLE) as writer:
        for number in range(30):
            writer.append(made(f"g{number}", 0, 1))
        writer.append(made("open", 0, 2))
    server.stop()
    (path,) = (tmp_path / "warehouse" / "rollouts").glob("rl.rollouts-*.sqlite")
    for is_damaged in (False, True):
        if is_damaged:
            path.write_bytes(b"damaged" + path.read_bytes()[7:])
        del read[:]
        server = serve()
        with RolloutWriter(server.address, TABLE) as writer:
            answers = writer.append(*(made(f"g{number}", 0, 1) for number in range(30)))
            assert outcomes(answers) == ["refused late"] * 30
            assert outcomes(writer.append(made("open", 0, 2))) == ["refused double"]
        server.stop()
        assert (sum(read) > 60) == is_damaged == ("damaged" in caplog.text)
    commit, failures = tables.RolloutStore.commit_log, iter([True])

    def fails(store: tables.RolloutStore, *leases: Any) -> None:
        commit(store, *leases)
        if store.admission.next_sequence > 120 and next(failures, False):
            raise OSError("the store is away")

    monkeypatch.setattr(tables.RolloutStore, "commit_log", fails)
    with RolloutWriter(serve().address, TABLE, retry_seconds=30) as writer:
        del read[:]
        assert outcomes(writer.append(made("open", 1, 2))) == ["admitted"]
    assert next(failures, None) is None and sum(read) < 80  # of two starts; the log has more than 120
    until(lambda: len(rows_of(lake)) == 32)
    assert sorted((row["group"], row["member"]) for row in rows_of(lake)) == sorted(
        [*((f"g{number}", 0) for number in range(30)), ("open", 0), ("open", 1)]
    )
    for row in rows_of(lake):
        check_row(row, made(row["group"], row["member"], row["group_size"]))


@pytest.mark.nightly
def test_two_servers_take_rollouts_for_one_table(serve: Callable[..., RunningServer], lake: Catalog) -> None:
    """A group's members may come by both, and each reads what the other has committed."""
    servers = serve(), serve()
    writers = [RolloutWriter(server.address, TABLE) for server in servers]

    def work(member: int) -> None:
        for number in range(5):
            writers[member].append(made(f"g{number}", member, 2))

    threads = [threading.Thread(target=work, args=(member,)) for member in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: len(rows_of(lake)) == 10)
    assert {(row["group"], row["member"]) for row in rows_of(lake)} == {
        (f"g{number}", member) for number in range(5) for member in range(2)
    }
    for writer in writers:
        writer.close()


def test_a_group_whose_time_is_up_comes_with_what_is_there(serve: Callable[..., RunningServer], lake: Catalog) -> None:
    """Also where the server ended in between; its late member is refused, and that is a row."""
    server = serve()
    with RolloutWriter(server.address, TABLE) as writer:
        writer.append(made("a", 1, 3)._replace(timeout_seconds=0.5))
    server.stop()
    with RolloutWriter(serve().address, TABLE) as writer:
        until(lambda: rows_of(lake))
        assert outcomes(writer.append(made("a", 0, 3))) == ["refused late"]
    (row,) = rows_of(lake)
    assert (row["member"], row["group_reason"]) == (1, "timed_out: 1 of 3 members, 2 missing")
    assert [(event["kind"], event["member"]) for event in rows_of(lake, f"{TABLE}_log")] == [
        ("admitted", 1), ("published", None), ("refused", 0),
    ]  # fmt: skip


def test_who_is_told_to_slow_down_waits_for_the_trainer(serve: Callable[..., RunningServer], lake: Catalog) -> None:
    """RESOURCE_EXHAUSTED with its reason for any client; headrace's own waits, or gives up when told so."""
    server = serve(SETTINGS.replace("rows_per_step = 1000", "rows_per_step = 1"))
    with (
        RolloutWriter(server.address, TABLE) as writer,
        RolloutWriter(server.address, TABLE, slow_down_seconds=0) as hasty,
    ):
        writer.append(made("a", 0, 1), made("b", 0, 1))
        with pytest.raises(SlowDownError, match="2 rows wait for the trainer, which reads row 0 next"):
            hasty.append(made("c", 0, 1))
        with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError) as refused:
            rollouts_pb2_grpc.RolloutServiceStub(channel).AppendRollouts(
                rollouts_pb2.AppendRolloutsRequest(table=TABLE, writer="x", rollouts=[_message(made("c", 0, 1))])
            )
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        found: list[Outcome] = []
        waits = threading.Thread(target=lambda: found.extend(writer.append(made("c", 0, 1), made("a", 0, 1))))
        waits.start()
        until(lambda: len(rows_of(lake, f"{TABLE}_log")) == 5)  # that of `a` is refused meanwhile
        writer.announce(3, 1)
        waits.join()
        assert outcomes(found) == ["admitted", "refused late"]
        assert outcomes(writer.append(made("d", 0, 1, version=0))) == ["refused stale"]  # it would not get younger
    until(lambda: len(rows_of(lake)) == 3)


def test_appending_is_a_right_of_its_own(serve: Callable[..., RunningServer], tmp_path: Path) -> None:
    """Who may only read is told so; to whom may not read, the table does not exist; a token names the worker."""
    tokens, rules = tmp_path / "tokens", tmp_path / "rules.toml"
    names = "worker", "reader", "stranger"
    tokens.write_text("".join(f"{name} token-of-the-{name}\n" for name in names))
    rules.write_text(
        '[[rule]]\nprincipals = ["worker"]\nnamespaces = ["rl"]\nappend = true\n'
        '[[rule]]\nprincipals = ["reader"]\nnamespaces = ["rl"]\ncreate = true\n'
    )
    server = serve(operation=OperationConfig(tokens=tokens, rules=rules))
    refused: dict[str, type[BlenderError]] = {"reader": NotAllowedError, "stranger": MalformedRolloutError}
    for name in names:
        with RolloutWriter(server.address, TABLE, Identity(token=f"token-of-the-{name}")) as writer:
            if name in refused:
                with pytest.raises(refused[name]):
                    writer.append(made(name, 0, 1))
                with pytest.raises(refused[name]):
                    writer.announce(1, 0)
            else:
                writer.append(made(name, 0, 1))
    with RolloutWriter(server.address, TABLE) as writer, pytest.raises(BlenderError, match="bearer token"):
        writer.append(made("nobody", 0, 1))


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"group": ""}, "give the group an id"),
        ({"member": 2}, "is none of a group of 2"),
        ({"timeout_seconds": -1.0}, "timeout_seconds"),
        ({"input_ids": [], "trainable": None, "log_probabilities": None, "advantages": None}, "tokens or a failure"),
        ({"failure": "both"}, "tokens or a failure"),
        ({"trainable": [True]}, "one value for each"),
        ({"advantages": [np.nan, 0.0]}, "no finite number"),
        ({"input_ids": [1, VOCABULARY_SIZE]}, "none of the vocabulary"),
        ({"input_ids": [1, -1]}, "none of the vocabulary"),
        ({"spans": [(1, 3)]}, "do not add up"),
        ({"spans": [(2, -1)]}, "do not add up"),
    ],
)
def test_what_contradicts_itself_is_not_taken(change: dict[str, Any], problem: str) -> None:
    """Each mistake in its words; without it the rollout is fine."""
    window = tables.WindowFacts(
        window_tokens=16, tokenizer_sha256="0" * 64, vocabulary_size=VOCABULARY_SIZE, end_of_document_id=1, padding_id=0
    )
    fine = Rollout("g", 0, 2, [1, 2], [(1, 3), (1, 4)], [True, False], [0.0, -1.0], [0.5, 0.5])
    for rollout, wrong in ((fine, ""), (fine._replace(**change), problem)):
        request = rollouts_pb2.AppendRolloutsRequest(writer="w", rollouts=[_message(rollout)])
        if not wrong:
            service.check_append(request, window)
        else:
            with pytest.raises(MalformedRolloutError, match=wrong):
                service.check_append(request, window)


def test_a_malformed_rollout_fails_none_of_its_company(serve: Callable[..., RunningServer]) -> None:
    """Appended together, the others are taken."""
    with RolloutWriter(serve().address, TABLE) as writer:
        with pytest.raises(MalformedRolloutError, match="none of the vocabulary"):
            writer.append(made("a", 0, 2), made("b", 0, 1)._replace(input_ids=[999], spans=[(1, 0)], trainable=None,
                          log_probabilities=None, advantages=None))  # fmt: skip
        assert outcomes(writer.append(made("a", 0, 2), made("a", 1, 2))) == ["refused double", "admitted"]


def test_settings_are_checked_before_anything_starts(serve: Callable[..., RunningServer], tmp_path: Path) -> None:
    """The file, its tables, the table that one shall be like; no server listens."""
    path = tmp_path / "wrong.toml"
    for text, problem in (
        ("", "table: Field required"),
        (SETTINGS + SETTINGS, "names a table twice"),
        (SETTINGS.replace("rl.rollouts", "system.rollouts"), "reserved"),
        (SETTINGS.replace("like", "lke"), "lke"),
        (SETTINGS.replace("max_lag = 2", ""), "max_lag"),
        ("table = [", "is not TOML"),
    ):
        path.write_text(text)
        with pytest.raises(CommandError, match=problem):
            read_settings(path)
    with pytest.raises(CommandError, match="No such file"):
        read_settings(tmp_path / "nothing")
    with pytest.raises(CommandError, match="which does not exist"):
        serve(SETTINGS.replace("packed_code_16", "packed_prose_16"))


def test_a_server_that_ends_answers_what_it_has(serve: Callable[..., RunningServer], lake: Catalog) -> None:
    """A call that waits gets its answer or is told to come again; what was acknowledged is a row."""
    server = serve(SETTINGS.replace("commit_seconds = 0.0", "commit_seconds = 1.0"))
    with RolloutWriter(server.address, TABLE, retry_seconds=0.2) as writer:
        answers: list[Any] = []

        def work() -> None:
            try:
                answers.extend(outcomes(writer.append(made("a", 0, 1))))
            except ServerUnavailableError as error:
                answers.append(error)

        worker = threading.Thread(target=work)
        worker.start()
        until(lambda: writer._next_number)
        server.stop()
        worker.join()
    acknowledged = answers == ["admitted"]
    assert acknowledged or isinstance(answers[0], ServerUnavailableError)
    assert not acknowledged or [row["group"] for row in rows_of(lake)] == ["a"]


def test_a_log_that_was_set_back_is_read_from_its_beginning(
    serve: Callable[..., RunningServer], lake: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a restore: what was saved of decisions that it has not any more is told and forgotten."""
    server = serve()
    with RolloutWriter(server.address, TABLE) as writer:
        writer.append(made("a", 0, 2))
        before = lake.load_table(f"{TABLE}_log").current_snapshot()
        assert before is not None
        writer.append(made("a", 1, 2))
    server.stop()
    (settings,) = read_settings(tmp_path / "rollouts.toml")
    stores = [tables.RolloutStore(lake, settings) for _ in range(2)]
    stores[0].catch_up()
    stores[0].save()
    known = [stores[0].admission.next_sequence]
    lake.load_table(f"{TABLE}_log").manage_snapshots().set_current_snapshot(before.snapshot_id).commit()
    stores[1].catch_up()
    known.append(stores[1].admission.next_sequence)
    assert known == [3, 1] and "the log was set back" in caplog.text
    assert list(stores[1].admission.groups) == ["a"]
    for store in stores:
        store.forget()
