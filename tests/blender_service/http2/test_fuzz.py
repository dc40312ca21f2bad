"""Damaged conversations: what a client sends is flipped, cut, repeated and mixed; an honest client notices nothing.

A few thousand are made by default; HEADRACE_FUZZ_CONVERSATIONS=100000 makes as many as the release is tried with.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time

import pytest
from h2.settings import SettingCodes

from tests.blender_service.http2.conftest import Served, own_threads
from tests.blender_service.http2.made_service import CHAT, ECHO, FAIL, METADATA, READ, open_files, until
from tests.blender_service.http2.raw_client import PREFACE, RawClient

CONVERSATIONS = int(os.environ.get("HEADRACE_FUZZ_CONVERSATIONS", "3000"))


def recorded(served: Served) -> list[bytes]:
    """Give the frames that a client sends in a conversation with every kind of call."""
    sent = bytearray()

    class Recording(RawClient):
        def flush(self) -> None:
            content = self.h2.data_to_send()
            sent.extend(content)
            self.sock.sendall(content)

    with Recording(served.port, {SettingCodes.INITIAL_WINDOW_SIZE: 5000}, 1 << 20) as client:
        client.unary(ECHO, b"one")
        client.answer(client.call(READ, b"2 5"))
        client.answer(client.call(FAIL, b"why"))
        client.answer(client.call(METADATA, b"", headers=((b"own-a", b"b"), (b"grpc-timeout", b"5S"))))
        client.answer(client.call(CHAT, b"a", b"b", b"c"))
        client.reset(client.call(READ, b"100 100"))
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 9000})
        client.h2.ping(b"12345678")
        client.h2.prioritize(101)
        client.flush()
        client.until(lambda: client.pings)
        client.h2.close_connection()
        client.flush()
    left, frames = bytes(sent[len(PREFACE) :]), []
    while left:
        size = 9 + int.from_bytes(left[:3], "big")
        frames.append(left[:size])
        left = left[size:]
    return frames


def damaged(frames: list[bytes], random_: random.Random) -> bytes:
    """Damage a conversation in one to four ways."""
    frames = list(frames)
    begin = PREFACE
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(frames))
        kind = random_.randrange(9)
        content = bytearray(frames[at].ljust(9, b"\0"))
        if kind == 0:
            for _ in range(random_.randint(1, 4)):
                content[random_.randrange(len(content))] ^= 1 << random_.randrange(8)
        elif kind == 1:
            content = content[: random_.randrange(len(content) + 1)]
        elif kind == 2:
            frames.insert(random_.randrange(len(frames)), bytes(content) * random_.randint(1, 20))
        elif kind == 3:
            random_.shuffle(frames)
            continue
        elif kind == 4:
            content[3] = random_.choice([*range(12), 255])  # another type
        elif kind == 5:
            content[4] = random_.randrange(256)  # other flags
        elif kind == 6:
            content[5:9] = random_.choice([0, 1, 2, 3, 5, 7, 11, 99, (1 << 31) - 1, (1 << 32) - 1]).to_bytes(4, "big")
        elif kind == 7:
            payload = random_.randbytes(random_.choice([0, 1, 4, 5, 6, 8, 30]))
            content = bytearray(len(payload).to_bytes(3, "big") + content[3:9] + payload)
        elif random_.random() < 0.2:
            begin = PREFACE[: random_.randrange(len(PREFACE))]
        frames[at] = bytes(content)
    return begin + b"".join(frames)


def test_damaged_conversations_harm_nobody(
    served: Served, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """No thread, file or call is left, no handler fails that should not, and nothing is written beside the log."""
    frames = recorded(served)
    assert len(frames) > 25
    random_ = random.Random(20260815)
    until(lambda: not served.server._connections)
    files, threads = open_files(), len(own_threads())
    for number in range(CONVERSATIONS):
        content = damaged(frames, random_)
        with socket.create_connection(("127.0.0.1", served.port), timeout=5) as sock, contextlib.suppress(OSError):
            if random_.random() < 0.3:
                cut = random_.randrange(len(content))
                sock.sendall(content[:cut])
                time.sleep(0.001)
                content = content[cut:]
            sock.sendall(content)
            if random_.random() < 0.5:
                sock.settimeout(0.003)
                sock.recv(1 << 16)
        if number % 100 == 99:
            with served.connect() as client:
                assert client.unary(ECHO, b"fine") == b"fine", number
                assert client.answer(client.call(READ, b"2 5"))[0] == [served.service.message(5).join()] * 2
            until(lambda: not served.server._connections and not served.server._running)
            assert open_files() <= files
            assert len(own_threads()) <= threads + 30  # of the pool
            faults = [record for record in caplog.records if record.exc_info]
            assert not faults, (number, faults, content)
    assert capfd.readouterr().err == ""
