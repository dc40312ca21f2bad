"""How large a stream's next message is: as its reader takes them, so memory follows speed, not the count.

A large message costs less for each byte, and one that waits holds twice its size. So a stream begins with small ones,
and doubles them while each is taken at once and much was taken before; one that is not taken at once halves them::

    taken in       2 ms ...   2 ms ...   3 ms ...    0.4 s (a training step)    0.4 s
    sent so far    0          16 MiB     32 MiB      64 MiB
    message        256 KiB    512 KiB    1 MiB       2 MiB                      1 MiB      512 KiB

What was sent counts because the transport takes 4 to 32 MiB, by its own estimate, for a reader that takes nothing, and
as promptly as any reader would. Besides, all streams of a server share `IN_FLIGHT_BYTES`: the more there are, the
smaller the messages of each; a share depends on their number alone, so none waits for another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LEAST_BYTES: Final = 256 << 10
MOST_BYTES: Final = 2 << 20  # beyond it gRPC gains nothing more, and clients refuse 4 MiB by default
IN_FLIGHT_BYTES: Final = 16 << 20
SENT_FRACTION: Final = 32  # a message is at most this part of what its reader took before it
PROMPT_SECONDS: Final = 0.02


class Pace:
    """What one stream has learnt of its reader. For one stream; sizes are of token ids."""

    def __init__(self, streams: Callable[[], int] = lambda: 1, now: Callable[[], float] = time.monotonic) -> None:
        """Begin with small messages.

        Args:
            streams: gives how many streams share the server, this one included.
            now: clock that it measures by, in seconds.
        """
        self._streams = streams
        self._now = now
        self._wanted_bytes = LEAST_BYTES
        self._sent_bytes = 0

    @property
    def message_bytes(self) -> int:
        """Bytes that the next message should have."""
        share = IN_FLIGHT_BYTES // max(1, self._streams())
        return min(self._wanted_bytes, max(share, LEAST_BYTES))

    @contextmanager
    def handing_over(self, message_bytes: int) -> Iterator[None]:
        """Learn from how long the reader takes for one message of so many bytes."""
        began = self._now()
        yield
        is_prompt = self._now() - began < PROMPT_SECONDS
        self._sent_bytes += message_bytes
        trusted = self._sent_bytes // SENT_FRACTION
        wanted = min(2 * self._wanted_bytes, trusted) if is_prompt else self._wanted_bytes // 2
        self._wanted_bytes = min(max(wanted, LEAST_BYTES), MOST_BYTES)
