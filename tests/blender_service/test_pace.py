"""Messages grow with a prompt reader and shrink with a slow one."""

from __future__ import annotations

from blender_service.pace import LEAST_BYTES, MOST_BYTES, Pace


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        """Start at 0."""
        self.seconds = 0.0

    def __call__(self) -> float:
        """Give the time."""
        return self.seconds


def test_messages_follow_the_reader() -> None:
    """Each prompt hand-over doubles the next message, each slow one halves it, between two bounds."""
    clock = Clock()
    pace = Pace(clock)
    sizes = []
    for seconds in [0.01] * 4 + [0.4] * 5 + [0.01]:
        sizes.append(pace.message_bytes)
        with pace.handing_over():
            clock.seconds += seconds
    up = [LEAST_BYTES << n for n in range(4)]
    assert up[-1] == MOST_BYTES
    assert sizes == [*up, MOST_BYTES, *reversed(up[:-1]), LEAST_BYTES, LEAST_BYTES]
    assert pace.message_bytes == 2 * LEAST_BYTES
