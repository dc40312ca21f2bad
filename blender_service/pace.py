"""How large a stream's next message is: as its reader takes them, so memory follows speed, not the count.

A large message costs less for each byte, and one that waits holds twice its size. So a stream begins with small ones,
and doubles them for as long as each is taken at once::

    taken in       2 ms      2 ms      3 ms     0.4 s (a training step)     0.4 s
    message     256 KiB   512 KiB     1 MiB     2 MiB                       1 MiB     512 KiB

Streams that share a network slow each other down, so their messages together hold about what is sent in
`PROMPT_SECONDS`, however many they are; one that stands still holds one of the smaller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LEAST_BYTES: Final = 256 << 10
MOST_BYTES: Final = 2 << 20  # beyond it gRPC gains nothing more, and clients refuse 4 MiB by default
PROMPT_SECONDS: Final = 0.02


class Pace:
    """What one stream has learnt of its reader. For one stream; sizes are of token ids."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Begin with small messages, measuring by the clock `now`, in seconds."""
        self.message_bytes = LEAST_BYTES
        self._now = now

    @contextmanager
    def handing_over(self) -> Iterator[None]:
        """Learn from how long the reader takes for one message."""
        began = self._now()
        yield
        is_prompt = self._now() - began < PROMPT_SECONDS
        wanted = 2 * self.message_bytes if is_prompt else self.message_bytes // 2
        self.message_bytes = min(max(wanted, LEAST_BYTES), MOST_BYTES)
