"""Answer a request: a page, or the same values as JSON where the address ends with `.json`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlencode

import jinja2
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response

from dagster_project.exceptions import CommandError
from headrace_features.explore.texts import inline, visible

if TYPE_CHECKING:
    from starlette.requests import Request

    from headrace_features.explore.explorer import Explorer

FOLDER: Final = Path(__file__).parent
_MOST_FORM_BYTES: Final = 1 << 16
_ADDED: Final = jinja2.PrefixLoader({})  # templates of packages, by the name of their pages


def _environment() -> jinja2.Environment:
    """Jinja templates: values are escaped, and an unknown name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.FileSystemLoader(FOLDER / "templates"), _ADDED]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": visible,
        "inline": inline,
        "size": size,
        "count": count,
        "number": number,
        "moment": moment,
        "quoted": quoted,
    }
    environment.globals |= {"address": address, "colour": _colour, "scatter": _scatter, "share_bar": _share_bar}
    return environment


def add_templates(name: str, folder: Path) -> None:
    """Find `NAME/x.html` in the folder of a package."""
    _ADDED.mapping[name] = jinja2.FileSystemLoader(folder)  # type: ignore[index] # a dict, as it was made


def _share_bar(shares: Sequence[float], title: str) -> Markup:
    """A bar of shares; each has the colour of its number."""
    from headrace_features.explore.charts import share_bar  # NumPy, for which the first page does not wait

    return share_bar([(_colour(number), share) for number, share in enumerate(shares)], title)


def _scatter(points: Sequence[tuple[float, float, float, int, str, str]], title: str) -> Markup:
    """Points that are links, each with the colour of a number; see `offset_charts.scatter`."""
    from headrace_features.explore.offset_charts import scatter

    return scatter([(x, y, before, _colour(number), link, what) for x, y, before, number, link, what in points], title)


def _colour(number: int) -> str:
    """The class of the style sheet for the colour of a number."""
    from headrace_features.explore.offset_charts import COLOURS

    return f"c{number % COLOURS}"


def explorer_of(request: Request) -> Explorer:
    """The explorer of this server, once its lake is open; the page sees one state of the lake, that of now."""
    explorer: Explorer = request.app.state.opened.result()
    return explorer.of_now()


def principal_of(request: Request) -> str:
    """The principal of a request; empty for a missing static file, since static files need no token."""
    return str(request.scope.get("principal", ""))


def answer(request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
    """The page of a template, or its values as JSON; values whose name begins with `_` are for the page alone."""
    if request.url.path.endswith(".json"):
        shown = {name: value for name, value in values.items() if not name.startswith("_")}
        return Response(as_json(shown), status, media_type="application/json")
    query = dict(request.query_params)
    page = _TEMPLATES.get_template(template).render(
        values, path=request.url.path, query=query, principal=principal_of(request)
    )
    return HTMLResponse(page, status)


def on_form(handler: Callable[[Request, Mapping[str, str]], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Wrap the handler of a form: it is called with the request and the form's fields, in a thread."""

    async def handle(request: Request) -> Response:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST_FORM_BYTES:
                raise CommandError(f"what was sent is longer than {_MOST_FORM_BYTES:,} bytes; shorten it")
        fields = dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
        return await run_in_threadpool(handler, request, fields)

    return handle


def as_json(values: Any) -> str:
    """Values of a page as JSON; a number that JSON lacks, such as infinity, becomes text."""
    try:
        return json.dumps(values, default=_plain, ensure_ascii=True, allow_nan=False)
    except ValueError:
        read = json.loads(json.dumps(values, default=_plain), parse_constant=str)
        return json.dumps(read, ensure_ascii=True)


def address(path: str, query: Mapping[str, Any] | None = None, **changed: Any) -> str:
    """A path with a query; fields whose value is None are left out."""
    pairs = {**(query or {}), **changed}
    fields = [(name, str(value)) for name, value in pairs.items() if value is not None and value != ""]
    return path + (f"?{urlencode(fields)}" if fields else "")


def quoted(part: Any) -> str:
    """Escape one part of an address, such as a document's path."""
    return quote(str(part), safe="")


def size(count_of_bytes: float | None) -> str:
    """Bytes for people."""
    if count_of_bytes is None:
        return ""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if abs(count_of_bytes) < 1000 or unit == "TB":
            return f"{count_of_bytes:,.0f} {unit}" if unit == "B" else f"{count_of_bytes:,.1f} {unit}"
        count_of_bytes /= 1000
    raise AssertionError


def count(value: float | None) -> str:
    """A whole number with commas."""
    return "" if value is None else f"{value:,.0f}"


def number(value: Any) -> str:
    """A number with four significant digits, or with all digits before the point."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    return f"{value:,.0f}" if isinstance(value, int) or 1e4 <= abs(value) < 1e15 else f"{value:,.4g}"


def moment(value: str) -> str:
    """Shorten a time: `2026-11-27T10:31:07+00:00` -> `2026-11-27 10:31`; another text is given back."""
    try:
        return f"{datetime.fromisoformat(value):%Y-%m-%d %H:%M}"
    except ValueError:
        return value


def _plain(value: Any) -> Any:
    if isinstance(value, Markup):
        return str(value.striptags())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)


_TEMPLATES: Final = _environment()
