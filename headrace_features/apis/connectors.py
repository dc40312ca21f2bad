"""Call users' connectors in Python: `pages(cursor) -> Page`."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import Future
from typing import Any

from headrace_features.apis.paging import Page
from spark_jobs.credentials import without_secrets
from spark_jobs.exceptions import ConfigError
from spark_jobs.plugins import attribute
from spark_jobs.sources.refusals import Reason, Refusal


def imported(reference: str) -> Any:
    """The function `package.module:function`.

    Raises:
        ConfigError: it cannot be imported.
    """
    try:
        return attribute(reference)
    except Exception as error:  # a user's module may raise anything when it is imported
        raise ConfigError(f"source.pages {reference!r}: {error}; correct the name, or mend the module") from error


async def called(connector: Any, name: str, cursor: Any, seconds: float) -> Page | Refusal:
    """The page at a cursor, in values of JSON, or why there is none; a call without end leaves its thread."""
    try:
        page = Page(*await asyncio.wait_for(_in_thread(connector, cursor), seconds))
        records = [dict(record) for record in page.records]
        return Page(*json.loads(json.dumps([records, page.next_cursor], default=str)))
    except TimeoutError:
        return Refusal(Reason.NO_ANSWER, f"{name} gave no page within {seconds:g} s")
    except Exception as error:  # noqa: BLE001 - a user's function may fail in any way
        why = f"{type(error).__name__}: {without_secrets(str(error) or 'no message').splitlines()[0][:200]}"
        return Refusal(Reason.NO_ANSWER, f"{name}: {why}")


async def _in_thread(function: Any, argument: Any) -> Any:
    """The result of a function, even an endless one; its thread ends with the process."""
    result: Future[Any] = Future()
    result.set_running_or_notify_cancel()  # else a timeout would cancel it, and the thread could set no result

    def run() -> None:
        try:
            result.set_result(function(argument))
        except Exception as error:  # noqa: BLE001 - handed on
            result.set_exception(error)

    threading.Thread(target=run, name="pages", daemon=True).start()
    return await asyncio.wrap_future(result)
