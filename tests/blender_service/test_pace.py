"""Messages grow with a prompt reader and shrink with a slow one; many streams have small ones."""

from __future__ import annotations

import pytest

from blender_service.pace import IN_FLIGHT_BYTES, LEAST_BYTES, MOST_BYTES, SENT_FRACTION, Pace


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        """Start at 0."""
        self.seconds = 0.0

    def __call__(self) -> float:
        """Give the time."""
        return self.seconds


class Streams:
    """A number of streams that is set by hand."""

    def __init__(self) -> None:
        """Start with one."""
        self.count = 1

    def __call__(self) -> int:
        """Give the number."""
        return self.count


def send(pace: Pace, clock: Clock, byte_count: int, seconds: float) -> list[int]:
    """Send messages as large as the pace wishes, each taken after so many seconds; give their sizes."""
    sizes: list[int] = []
    while sum(sizes) < byte_count:
        sizes.append(pace.message_bytes)
        with pace.handing_over(sizes[-1]):
            clock.seconds += seconds
    return sizes


def test_messages_follow_the_reader() -> None:
    """They grow to the largest while each is taken promptly; each slow hand-over halves the next, to the smallest."""
    clock = Clock()
    pace = Pace(now=clock)
    grown = send(pace, clock, 2 * SENT_FRACTION * MOST_BYTES, 0.01)
    assert grown[0] == LEAST_BYTES
    assert grown == sorted(grown)
    assert grown[-1] == pace.message_bytes == MOST_BYTES
    shrunk = [send(pace, clock, 1, 0.4)[0] for _ in range(5)]
    assert shrunk == [MOST_BYTES, MOST_BYTES >> 1, MOST_BYTES >> 2, LEAST_BYTES, LEAST_BYTES]
    assert send(pace, clock, 1, 0.01) == [LEAST_BYTES]
    assert pace.message_bytes == 2 * LEAST_BYTES


@pytest.mark.parametrize("absorbed", [1 << 20, 4 << 20, 16 << 20])
def test_what_the_transport_takes_for_a_stalled_reader_earns_no_large_message(absorbed: int) -> None:
    """However promptly the first megabytes go, the message that then waits is a small part of them."""
    clock = Clock()
    pace = Pace(now=clock)
    send(pace, clock, absorbed, 0.0)
    assert pace.message_bytes <= max(LEAST_BYTES, (absorbed + MOST_BYTES) // SENT_FRACTION)


def test_streams_share_what_is_in_flight() -> None:
    """Their messages together stay below one bound, however prompt their readers; who is alone has the largest."""
    clock, streams = Clock(), Streams()
    paces = [Pace(streams, clock) for _ in range(IN_FLIGHT_BYTES // LEAST_BYTES)]
    for pace in paces:
        send(pace, clock, 2 * SENT_FRACTION * MOST_BYTES, 0.0)
    for count in range(1, len(paces) + 1):
        streams.count = count
        sizes = [pace.message_bytes for pace in paces[:count]]
        assert sum(sizes) <= IN_FLIGHT_BYTES
        assert len(set(sizes)) == 1
        assert LEAST_BYTES <= sizes[0] <= MOST_BYTES
    streams.count = 1000
    assert paces[0].message_bytes == LEAST_BYTES
    streams.count = 1
    assert paces[0].message_bytes == MOST_BYTES
