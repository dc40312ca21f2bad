"""Declared visibility: what may hold what, who is let in, and what holds while the catalogue does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from sqlalchemy.exc import OperationalError

from blender_service.auth import visibility
from blender_service.auth.access import Access, CorpusDatasets
from blender_service.auth.visibility import PUBLIC, VISIBILITY_TABLE, KnownVisibility, Visibility
from blender_service.client.channel import open_channel
from blender_service.client.identity import Identity
from blender_service.server.server import RunningServer
from blender_service.server.settings import OperationConfig
from headrace.blender.v1 import blends_pb2, blends_pb2_grpc, rows_pb2, rows_pb2_grpc
from tests.blender_service.packed_tables import PackedFixture
from tests.waiting import until

ONE, BOTH = Visibility("restricted", frozenset({"one"})), Visibility("restricted", frozenset({"one", "two"}))
OTHER, DEVICE = Visibility("restricted", frozenset({"three"})), Visibility("on_device")
TOKENS = {"trainer": "the-token-of-trainer", "stranger": "the-token-of-stranger"}


def record(lake: Catalog, **visible: tuple[str, str]) -> None:
    """Record kind and teams of namespaces, in place of all that is recorded."""
    columns = ("namespace", "visibility", "teams")
    rows = [(name, kind, teams) for name, (kind, teams) in visible.items()]
    found = pa.table({name: pa.array([row[i] for row in rows], pa.string()) for i, name in enumerate(columns)})
    lake.create_namespace_if_not_exists("system")
    if lake.table_exists(VISIBILITY_TABLE):
        lake.load_table(VISIBILITY_TABLE).overwrite(found)
    else:
        lake.create_table(VISIBILITY_TABLE, found.schema).append(found)


@pytest.mark.parametrize("theirs", [PUBLIC, ONE, BOTH, OTHER, DEVICE], ids=str)
@pytest.mark.parametrize("own", [PUBLIC, ONE, BOTH, OTHER, DEVICE], ids=str)
def test_rows_go_where_nobody_more_sees_them(own: Visibility, theirs: Visibility) -> None:
    """By brute force over all sets of teams: whoever is let in to the copy is let in to the original."""
    everybody = [frozenset(name for i, name in enumerate(("one", "two", "three")) if n >> i & 1) for n in range(8)]
    safe = all(theirs.admits(teams) for teams in everybody if own.admits(teams))
    # What stays on the device may hold all; what goes nowhere else may be held by nothing that somebody sees.
    assert own.may_hold(theirs) == safe


def test_a_restricted_corpus_takes_a_team(lake: Catalog, tmp_path: Path) -> None:
    """With no rule at all the rest stays open; a corpus that holds restricted rows counts as restricted too."""
    rows = pa.table({"dataset": ["notes", "mails"]})
    lake.create_namespace("mixed")
    lake.create_table("mixed.increments", rows.schema).append(rows)
    record(lake, mails=("restricted", "one,two"), diary=("on_device", ""))
    rules = tmp_path / "rules"
    rules.write_text('[[team]]\nname = "two"\nprincipals = ["train-*"]\n')
    access = Access(lake, rules=rules, environment={})
    for principal, readable in (("train-7", {"notes", "mails", "mixed"}), ("else", {"notes"})):
        may_read = access.reader(principal)
        assert may_read is not None
        assert {name for name in ("notes", "mails", "mixed", "diary") if may_read(f"{name}.packed_16")} == readable


def test_without_a_declaration_there_is_nothing_to_ask(lake: Catalog) -> None:
    """No rule and nothing recorded: all tables, with no test of each."""
    assert Access(lake, environment={}).reader("anonymous") is None


def test_what_was_read_stays_in_force(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first answer nobody may read; later a catalogue that does not answer changes nothing."""
    record(lake, mails=("restricted", "one"))
    clock = [0.0]
    known = KnownVisibility(lake, lambda: clock[0])
    answer: list[Callable[[Catalog], Any]] = []

    def fails(catalogue: Catalog) -> dict[str, Visibility]:
        raise OSError("the catalogue is away")

    def ask(catalogue: Catalog) -> dict[str, Visibility]:
        found: dict[str, Visibility] = answer[0](catalogue)
        return found

    monkeypatch.setattr(visibility, "recorded_visibility", ask)
    answer[:] = [fails]
    assert known.get() is None
    monkeypatch.setattr("blender_service.auth.access.KnownVisibility", lambda catalogue: known)
    closed = Access(lake, environment={}).reader("anyone")
    assert closed is not None and not closed("public.packed_16")
    answer[:] = [lambda catalogue: {"mails": ONE}]
    assert known.get() == {"mails": ONE}
    for clock[0], answer[0], expected in (
        (40.0, fails, ({"mails": ONE}, 0)),
        (80.0, lambda catalogue: {"mails": BOTH}, ({"mails": BOTH}, 1)),
        (120.0, lambda catalogue: {}, ({}, 2)),
    ):
        known.get()
        deadline = time.monotonic() + 10
        while (known.get(), known.generation) != expected and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (known.get(), known.generation) == expected


def test_a_thread_that_cannot_start_is_tried_again(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the machine has no more threads for a while: what was read stays in force, and later it is read anew."""
    clock, answer = [0.0], [{"mails": ONE}]
    known = KnownVisibility(lake, lambda: clock[0])
    monkeypatch.setattr(visibility, "recorded_visibility", lambda _: answer[0])
    assert known.get() == {"mails": ONE}
    answer[0] = {"mails": BOTH}

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        for clock[0] in (40.0, 80.0):
            assert known.get() == {"mails": ONE}
    clock[0] = 120.0
    until(lambda: known.get() == {"mails": BOTH})


def test_of_two_rows_the_narrowest_holds(lake: Catalog) -> None:
    """Runs that begin at once may each record a namespace: both find none there."""
    record(lake, mails=("restricted", "one,two"), notes=("restricted", "one"), diary=("on_device", ""))
    more = [("mails", "restricted", "one"), ("notes", "restricted", "three"), ("diary", "restricted", "one")]
    table = lake.load_table(VISIBILITY_TABLE)
    table.append(pa.Table.from_pylist([dict(zip(table.schema().column_names, row, strict=True)) for row in more]))
    found = visibility.recorded_visibility(lake)
    assert found == {"mails": ONE, "notes": Visibility("restricted"), "diary": DEVICE}


@pytest.mark.parametrize("error", [OSError("away"), OperationalError("", {}, Exception("away"))])
def test_the_datasets_of_a_corpus_stay_known(lake: Catalog, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A catalogue that goes away ends no reading of a corpus whose datasets were read before."""
    rows = pa.table({"dataset": ["notes"]})
    lake.create_namespace("mixed")
    lake.create_table("mixed.increments", rows.schema).append(rows)
    clock = [0.0]
    datasets = CorpusDatasets(lake, lambda: clock[0])
    assert datasets.of("mixed") == frozenset({"notes"})

    def fails(identifier: str) -> None:
        raise error

    monkeypatch.setattr(lake, "load_table", fails)
    clock[0] = 40.0
    assert datasets.of("mixed") == frozenset({"notes"})


def test_a_stream_ends_when_its_table_is_restricted(
    lake: Catalog,
    code: PackedFixture,
    serve: Callable[..., RunningServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over a socket: who is in the team reads on, who is not gets the answer about what does not exist."""
    monkeypatch.setattr(visibility, "KEPT_SECONDS", 0.1)
    tokens, rules = tmp_path / "tokens", tmp_path / "rules"
    tokens.write_text("".join(f"{name} {token}\n" for name, token in TOKENS.items()))
    rules.write_text('[[team]]\nname = "one"\nprincipals = ["trainer"]\n')
    server = serve(operation=OperationConfig(tokens=tokens, rules=rules))
    channels = {name: open_channel(server.address, Identity(token=token), (), {}) for name, token in TOKENS.items()}
    source = blends_pb2.SourceSpec(table=code.identifier, max_epochs=0)
    blends = blends_pb2_grpc.BlendServiceStub(channels["trainer"])
    blends.CreateBlend(blends_pb2.CreateBlendRequest(sources=[source], name="endless"))
    request = rows_pb2.ReadBlendRequest(blend="endless", max_batch_rows=1)
    streams = {name: rows_pb2_grpc.RowServiceStub(channel).ReadBlend(request) for name, channel in channels.items()}
    for stream in streams.values():
        next(stream)
    record(lake, main=("restricted", "one"))
    with pytest.raises(grpc.RpcError) as refused:
        for _ in streams["stranger"]:
            next(streams["trainer"])
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    assert next(streams["trainer"]).rows == 1
    for stream in streams.values():
        stream.cancel()
