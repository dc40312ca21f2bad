"""What comes of sending a request to an endpoint once: an answer, or what went wrong in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace_features.synthetic.answers import Answer, read_answer
from spark_jobs.credentials import without_known
from spark_jobs.sources.paged.rate import retry_after

if TYPE_CHECKING:
    import aiohttp

_MOST_BYTES: Final = 64 << 20


class Reply(NamedTuple):
    """What an endpoint replied.

    Attributes:
        status: of HTTP; 0 where there was none.
        answer: of the model, or the fault in words.
        wait: seconds of Retry-After; None without it.
        nobody_listens: whether there was no connection.
    """

    status: int
    answer: Answer | str
    wait: float | None = None
    nobody_listens: bool = False


async def reply_to(session: aiohttp.ClientSession, url: str, body: Mapping[str, Any]) -> Reply:
    """Post a request once; a reply is read up to 64 MB."""
    import aiohttp

    data = b""
    try:
        async with session.post(url, json=body, allow_redirects=False) as response:
            while len(data) < _MOST_BYTES and (chunk := await response.content.read(_MOST_BYTES)):
                data += chunk
        status, wait = response.status, retry_after(response.headers.get("Retry-After"))
        if 300 <= status < 400:  # followed, it would take texts and key to where nobody declared them to go
            place = response.headers.get("Location")
            return Reply(status, f"status {status}, to {place}: redirects are not followed", wait)
        return Reply(status, read_answer(status, without_known(data)), wait)
    except TimeoutError:
        return Reply(0, f"no answer in {session.timeout.total:g} s")
    except (aiohttp.ClientError, OSError) as error:
        nobody_listens = isinstance(error, aiohttp.ClientConnectorError)
        return Reply(0, f"{type(error).__name__}: {error}", nobody_listens=nobody_listens)
