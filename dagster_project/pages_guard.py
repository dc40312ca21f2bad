"""Who may open a page: the host that a browser names, a token, the origin of a decision; and what a page may load.

A page on localhost is open to every site that the reader visits: such a site can send requests, and by a name of its
own that it resolves to 127.0.0.1 it can read answers too. So `Host` has to be one of ours, every request carries a
token (in the first address, then in a cookie that other sites cannot send), and what changes something is a POST from
our own pages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """ASGI middleware: refuses requests of other sites or without a token, and puts the principal into the scope."""

    command: str  # that serves the pages, for those who are refused
    cookie: str  # one for each kind of pages: a browser sends those of a host to all its ports
    headers: Mapping[str, str] = MappingProxyType({})
    without_token: tuple[str, ...] = ()

    def __init__(self, app: App, hosts: frozenset[str], holder: Callable[[str], str]) -> None:
        """Guard an application.

        Args:
            app: the application to guard.
            hosts: values of `Host` that are ours, without a port.
            holder: gives the principal of a token, empty where nobody has it.
        """
        self._app = app
        self._hosts = hosts
        self._holder = holder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            if self._refusal({**scope, "method": "SOCKET"}) is None:
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Give the answer to a request that may not pass; note the principal of one that may."""
        headers = Headers(scope=scope)
        if _host(headers.get("host", "")) not in self._hosts:
            return PlainTextResponse(f"this host name is not ours; start {self.command} with --allow-host NAME\n", 421)
        if scope["path"].startswith(self.without_token):
            return None
        connection = HTTPConnection(scope)
        token = connection.query_params.get("token")
        if token is not None and scope["method"] == "GET":
            return self._sign_in(scope, token)
        return self._entry(scope, headers)

    def _entry(self, scope: Scope, headers: Headers) -> Response | None:
        """Judge a request to one of our hosts, by its token and by where it comes from."""
        principal = self._holder(_cookie(headers, self.cookie) or _bearer(headers))
        if not principal:
            return PlainTextResponse(f"open the address that {self.command} printed, with its token\n", 401)
        if scope["method"] not in ("GET", "HEAD") and not self._is_own(headers):
            return PlainTextResponse("a decision has to come from one of these pages\n", 403)
        scope["principal"] = principal
        return None

    def _sign_in(self, scope: Scope, token: str) -> Response:
        """Keep the token of an address in a cookie, and go on without it in the address."""
        if not self._holder(token):
            return PlainTextResponse(f"nobody has that token; open the address that {self.command} printed\n", 401)
        pairs = [
            pair
            for pair in parse_qsl(scope["query_string"].decode(errors="replace"), keep_blank_values=True)
            if pair[0] != "token"
        ]
        path = "/" + quote(scope["path"].lstrip("/"))  # `//host` would be another site
        answer = RedirectResponse(path + (f"?{urlencode(pairs)}" if pairs else ""), 303)
        answer.set_cookie(self.cookie, token, httponly=True, samesite="strict", path="/")
        return answer

    def _is_own(self, headers: Headers) -> bool:
        """Whether a request that changes something comes from one of our pages, or from a program with the token."""
        if _bearer(headers):
            return True
        origin = urlsplit(headers.get("origin", ""))
        return bool(origin.netloc) and origin.netloc == headers.get("host")


class PagesGuard(Guard):
    """Guards pages that are not ours and ask for no login, as Dagster's, of what pages of other sites send, too.

    Their GraphQL answers GET, POST and web sockets, from wherever they come.
    """

    command = "headrace ui"
    cookie = "headrace_ui"
    without_token = ("/server_info",)  # is asked by health checks, and tells versions

    def _entry(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse what comes from a page of another site, or without a token where tokens are asked for."""
        opens_a_page = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        from_elsewhere = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if ("origin" in headers and not self._is_own(headers)) or (
            from_elsewhere and not (opens_a_page and not scope["path"].startswith("/graphql"))
        ):
            return PlainTextResponse("this request comes from another site\n", 403)
        if not self._holder(_cookie(headers, self.cookie) or _bearer(headers)):
            return PlainTextResponse(f"open the address that {self.command} printed, with its token\n", 401)
        return None


def _host(value: str) -> str:
    """The name in a `Host` header, without its port."""
    name, colon, port = value.rpartition(":")
    return (name if colon and port.isdecimal() else value).lower()


def _cookie(headers: Headers | Mapping[str, str], name: str) -> str:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return cookie.value if cookie is not None else ""


def _bearer(headers: Headers | Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
