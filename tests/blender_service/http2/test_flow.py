"""Flow control: rows leave as the reader allows, whatever it allows, and one reader never stops another."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest
from h2.events import DataReceived
from h2.settings import SettingCodes

from tests.blender_service.http2.conftest import Served
from tests.blender_service.http2.made_service import ECHO, PIECE_BYTES, READ, WAIT, until
from tests.blender_service.http2.raw_client import BIG, request_of

WINDOW = SettingCodes.INITIAL_WINDOW_SIZE
FRAME = SettingCodes.MAX_FRAME_SIZE


def expected(served: Served, piece_count: int) -> bytes:
    """Give what a message of so many pieces must be."""
    return served.service.message(piece_count).join()


def test_a_window_of_one_byte_gives_the_message_byte_by_byte(served: Served) -> None:
    """The smallest window there is slows a message down and changes nothing of it."""
    with served.connect(settings={WINDOW: 1}) as client:
        client.reads = False
        stream = client.call(READ, b"1 0")
        for size in range(1, 10):
            client.until(lambda: len(client.data.get(stream, b"")) == size)  # noqa: B023
            client.h2.increment_flow_control_window(1, stream)
            client.flush()
        messages, headers = client.answer(stream)
        assert messages == [expected(served, 0)]
        assert headers[b"grpc-status"] == b"0"


def test_a_window_of_nothing_holds_a_stream_until_it_is_opened(served: Served) -> None:
    """Headers come, no byte of the message does, until the window is opened."""
    with served.connect(settings={WINDOW: 0}, window=BIG - 65535) as client:
        stream = client.call(READ, b"2 100")
        client.until(lambda: stream in client.headers)
        assert client.receive(0.1) == []
        client.h2.increment_flow_control_window(1 << 22, stream)
        client.flush()
        assert client.answer(stream)[0] == [expected(served, 100)] * 2


def test_headers_do_not_wait_for_a_window(served: Served) -> None:
    """They leave although nothing else happens on the connection: no frame comes in that would take them along."""
    with served.connect(settings={WINDOW: 0}) as client:
        stream = client.call(WAIT, b"late")
        until(lambda: served.service.waiting == 1)
        while client.receive(0.2):
            pass
        assert stream not in client.headers
        served.service.may_end.set()
        client.until(lambda: stream in client.headers)
        client.h2.increment_flow_control_window(1 << 16, stream)
        client.flush()
        assert client.answer(stream)[0] == [b"late"]


def test_the_windows_of_running_streams_follow_the_settings(served: Served) -> None:
    """A smaller initial window makes a window negative: nothing comes until more than the debt is given back."""
    with served.connect(settings={WINDOW: 50_000}, window=1 << 24) as client:
        client.reads = False
        stream = client.call(READ, b"1 100")
        client.until(lambda: len(client.data.get(stream, b"")) == 50_000)
        client.h2.update_settings({WINDOW: 10_000})
        client.flush()
        client.unary(ECHO, b"settings are taken in order")
        client.h2.increment_flow_control_window(40_000, stream)  # the debt, no more
        client.flush()
        client.unary(ECHO, b"nothing may come")
        assert len(client.data[stream]) == 50_000
        client.h2.increment_flow_control_window(7, stream)
        client.flush()
        client.until(lambda: len(client.data[stream]) == 50_007)
        client.h2.update_settings({WINDOW: 1 << 20})
        client.flush()
        assert client.answer(stream)[0] == [expected(served, 100)]


@pytest.mark.parametrize("frame_bytes", [16_384, 100_000, (1 << 24) - 1])
def test_frames_are_as_long_as_the_client_allows(served: Served, frame_bytes: int) -> None:
    """No frame is longer than allowed, and longer ones are used where they are; h2 ends the test otherwise."""
    with served.connect(settings={WINDOW: BIG, FRAME: frame_bytes}, window=BIG - 65535) as client:
        longest = 0
        stream = client.call(READ, b"2 1500")
        while stream not in client.ended:
            lengths = [getattr(event, "flow_controlled_length", 0) for event in client.receive(1)]
            longest = max([longest, *lengths])
        assert client.answer(stream)[0] == [expected(served, 1500)] * 2
        assert longest == min(frame_bytes, 4 << 20, 1020 * PIECE_BYTES)


def test_one_stalled_stream_does_not_stop_the_others(served: Served) -> None:
    """Streams of one connection wait for their own windows alone."""
    with served.connect(settings={WINDOW: 60_000}, window=1 << 26) as client:
        client.reads = False
        stalled = client.call(READ, b"1 1000")
        client.until(lambda: len(client.data.get(stalled, b"")) == 60_000)
        others = [client.call(READ, b"3 4") for _ in range(5)]
        for stream in others:
            assert client.answer(stream)[0] == [expected(served, 4)] * 3
        assert client.unary(ECHO, b"too") == b"too"
        assert len(client.data[stalled]) == 60_000
        client.h2.increment_flow_control_window(1 << 23, stalled)
        client.flush()
        assert client.answer(stalled)[0] == [expected(served, 1000)]


def test_a_window_that_streams_share_is_never_exceeded(served: Served) -> None:
    """Ten streams share the connection's window; each gets all of its own in the end."""
    with served.connect(settings={WINDOW: 1 << 20}) as client:
        client.reads = False
        streams = [client.call(READ, b"1 40") for _ in range(10)]
        client.until(lambda: sum(map(len, client.data.values())) == 65535)
        client.reads = True
        client.h2.increment_flow_control_window(65535)
        client.flush()
        for stream in streams:
            assert client.answer(stream)[0] == [expected(served, 40)]


def test_streams_with_open_windows_take_turns(served: Served) -> None:
    """None of four endless streams is starved by another one that always may send."""
    with served.connect(settings={WINDOW: BIG}, window=BIG - 65535) as client:
        streams = [client.call(READ, b"1000000 1000") for _ in range(4)]
        client.until(lambda: sum(map(len, client.data.values())) > 200 << 20, 20)
        sizes = [len(client.data.get(stream, b"")) for stream in streams]
        assert min(sizes) > 10 << 20, sizes
    until(lambda: not served.service.streams)


def test_a_reset_in_mid_message_frees_the_handler_at_once(served: Served) -> None:
    """A stream that waits for its window ends when it is given up; the connection goes on."""
    with served.connect() as client:
        client.reads = False
        streams = [client.call(READ, b"1000 1000") for _ in range(3)]
        client.until(lambda: sum(map(len, client.data.values())) == 65535)
        until(lambda: served.service.streams == 3)
        for stream in streams:
            client.reset(stream)
        until(lambda: not served.service.streams, 1)
        client.h2.increment_flow_control_window(65535)
        assert client.unary(ECHO, b"on") == b"on"


def test_a_ping_is_answered_while_a_message_is_sent(served: Served) -> None:
    """Answers to pings come between the turns of a long message, not after it."""
    with served.connect(settings={WINDOW: BIG}, window=BIG - 65535) as client:
        stream = client.call(READ, b"1 60000")  # 240 MB
        client.until(lambda: len(client.data.get(stream, b"")) > 1 << 20)
        client.h2.ping(b"are you?")
        client.flush()
        client.until(lambda: client.pings)
        assert len(client.data[stream]) < 100 << 20
        client.reset(stream)


def test_a_client_that_disappears_frees_its_handlers(served: Served) -> None:
    """Streams that are sent and streams that wait are gone soon after the connection."""
    for window in (65535, BIG):
        client = served.connect(settings={WINDOW: window}, window=window - 65535)
        client.reads = False
        stream = client.call(READ, b"1000 1000")
        client.until(lambda: client.data.get(stream))  # noqa: B023
        client.sock.close()
        until(lambda: not served.service.streams, 2)


def test_a_deadline_that_passes_in_a_stalled_stream_ends_it(served: Served) -> None:
    """The handler is freed, and the status says why, though no window is ever opened."""
    with served.connect() as client:
        client.reads = False
        stream = client.call(READ, b"1000 1000", headers=((b"grpc-timeout", b"200m"),))
        client.until(lambda: len(client.data.get(stream, b"")) == 65535)
        until(lambda: not served.service.streams, 2)
        assert client.answer(stream)[1][b"grpc-status"] == b"4"


def test_a_client_that_takes_nothing_is_hung_up_on(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that allows much and reads nothing is given up after the patience."""
    monkeypatch.setattr("blender_service.http2.line.PATIENCE_SECONDS", 1)
    served = serve()
    with served.connect(settings={WINDOW: BIG}, window=BIG - 65535) as client:
        client.call(READ, b"1000 1000")
        until(lambda: served.service.streams == 1)
        until(lambda: not served.service.streams, 4)


def test_windows_of_any_size_at_random_moments(served: Served) -> None:
    """Many streams, small steps of both windows, settings in between: every byte arrives once, in order."""
    with served.connect(settings={WINDOW: 3000}) as client:
        client.reads = False
        streams = [client.call(READ, b"2 9") for _ in range(8)]
        step = 0
        deadline = time.monotonic() + 20
        while not set(streams) <= client.ended:
            assert time.monotonic() < deadline, client
            step += 1
            for stream in set(streams) - client.ended:
                if (step + stream) % 3:
                    client.h2.increment_flow_control_window(1 + (step * 7919 * stream) % 5000, stream)
            client.h2.increment_flow_control_window(1 + (step * 104729) % 20_000)
            if not step % 5:
                client.h2.update_settings({WINDOW: (step * 31) % 4000})
            client.flush()
            client.receive(0.005)
        for stream in streams:
            assert client.answer(stream)[0] == [expected(served, 9)] * 2


def test_many_connections_read_at_once(served: Served) -> None:
    """Twenty clients read side by side, each gets its own bytes."""
    wanted = [expected(served, 300)] * 5
    results: list[bool] = []

    def read() -> None:
        with served.connect(settings={WINDOW: 1 << 18}, window=1 << 20) as client:
            results.append(client.answer(client.call(READ, b"5 300"), 20)[0] == wanted)

    threads = [threading.Thread(target=read) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 20


def test_an_answer_in_one_piece_leaves_in_frames_of_full_length(served: Served) -> None:
    """What is not scattered is not cut smaller than the client allows, which would be a call of the kernel each."""
    with served.connect(settings={WINDOW: 1 << 20}, window=1 << 20) as client:
        request = bytes(range(256)) * 390
        stream = client.open(ECHO)
        client.send_request(stream, request)
        lengths: list[int] = []
        while stream not in client.ended:
            lengths += [len(event.data) for event in client.receive(1) if isinstance(event, DataReceived)]
        assert bytes(client.data[stream]) == request_of(request)
        assert lengths == [16_384] * 6 + [len(request) + 5 - 6 * 16_384]


def test_connections_that_come_and_go_never_get_bytes_of_another(served: Served) -> None:
    """Descriptors are used again at once: a thread that still sends to the old one must not reach the new one."""
    wanted = [expected(served, 200)] * 3
    stop = time.monotonic() + 3
    faults: list[str] = []

    def come_and_go(seed: int) -> None:
        random_ = random.Random(seed)
        while time.monotonic() < stop:
            with served.connect(settings={WINDOW: BIG}, window=BIG - 65535) as client:
                client.reads = False
                for _ in range(3):
                    client.call(READ, b"50 500")
                if random_.random() < 0.7:
                    client.receive(0.02)

    def read() -> None:
        while time.monotonic() < stop:
            with served.connect(settings={WINDOW: 1 << 20}, window=1 << 22) as client:
                messages, headers = client.answer(client.call(READ, b"3 200"), 20)
                if headers[b"grpc-status"] != b"8" and messages != wanted:  # 8: all threads are busy
                    faults.append(str(headers))

    threads = [threading.Thread(target=come_and_go, args=(seed,)) for seed in range(4)]
    threads += [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    until(lambda: not served.server._running and not served.server._connections)
