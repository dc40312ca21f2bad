"""One request for a page, bounded in time and bytes: its answer, or the fault and whether another try may mend it.

Credentials come from environment variables, and go to the host that the config names: not to one that a redirect or an
address in an answer leads to. What an answer repeats of them is hidden before anything is kept.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import httpx2

from headrace_features.apis.api_config import Auth, BasicAuth, BearerAuth, KeyAuth, OAuth2Auth
from headrace_features.apis.paging import stop
from headrace_features.apis.transport import GuardedTransport
from spark_jobs.credentials import VARIABLE, hide, secret_of, with_variables, without_known, without_secrets
from spark_jobs.sources.config.paged_source import RequestLimits
from spark_jobs.sources.opening.destinations import Destinations
from spark_jobs.sources.paged.checkpoints import StoredPage
from spark_jobs.sources.paged.rate import Pace, retry_after
from spark_jobs.sources.refusals import Reason, Refusal, RefusedError

Got = TypeVar("Got")
_MAX_REDIRECTS = 5
_TRANSIENT = (408, 421, 425, 429)
_TOKEN_BYTES = 1 << 20
_FIELDS = ("token", "key", "user", "password", "client_id", "client_secret")
_RENEWED_SECONDS = 60  # a token is asked for anew so long before it ends


class HttpAnswer(NamedTuple):
    """An answer to its last byte, without compression; `data` is None where the page is as the caller knows it."""

    data: bytes | None
    url: str
    link: str | None = None
    etag: str | None = None
    modified: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Fault(NamedTuple):
    """Why there is no page.

    Attributes:
        refusal: in words.
        again: whether another try may mend it.
        status: of the answer, where there was one.
        overload: whether the server has too much to do, or cannot be reached.
        retry_after: seconds to wait, by its request.
    """

    refusal: Refusal
    again: bool
    status: int | None = None
    overload: bool = False
    retry_after: float | None = None


class ApiClient:
    """Connections to the servers of a source.

    Raises:
        ConfigError: an environment variable of the authentication is not set.
    """

    def __init__(
        self,
        limits: RequestLimits,
        auth: Auth | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        named: Iterable[str] = (),
        allowed: Iterable[str] = (),
        accept: Mapping[str, str] = MappingProxyType({"Accept": "application/json"}),
        variables: Iterable[str] = (),
    ) -> None:
        """Prepare the connections; none is opened yet.

        Args:
            limits: of time and bytes.
            auth: credentials.
            headers: of each request to a named host.
            named: addresses to whose hosts headers and credentials go.
            allowed: other hosts for the address of a next page; as `named`, in a private network too.
            accept: headers of each request.
            variables: of the environment whose `${NAME}` in addresses, parameters and headers is filled in.
        """
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs addresses, which may hold a key
        self._limits, self._auth, self._headers, self._secrets = limits, auth, headers, _secrets(auth)
        self._variables = {name: secret_of("source", name) for name in variables} | _values(auth, self._secrets)
        allowed, addresses = set(allowed), [self._filled(url, in_address=True) for url in named]
        urls = [httpx2.URL(url) for url in addresses]
        self._origins, self._hosts = {_origin(url) for url in urls}, {_host(url) for url in urls} | allowed
        self._token: tuple[str, float] | None = None
        self._token_lock = asyncio.Lock()
        bounds = httpx2.Limits(max_connections=limits.connections + 1)
        named_addresses = addresses + ([self._filled(auth.token_url, True)] if isinstance(auth, OAuth2Auth) else [])
        transport = GuardedTransport(Destinations.of(named_addresses, allowed), bounds)
        self._http = httpx2.AsyncClient(timeout=None, transport=transport, headers=dict(accept))

    def _filled(self, text: str, in_address: bool = False) -> str:
        """A text with values of the source's variables; what else a server writes like one stays as it is."""

        def value(name: re.Match[str]) -> str:
            setting = self._variables.get(name[1])
            return name[0] if setting is None else quote(setting, safe="") if in_address else setting

        return VARIABLE.sub(value, text)

    async def close(self) -> None:
        """End all connections."""
        await self._http.aclose()

    def next_address(self, url: str, source_url: str) -> str | dict[str, str]:
        """The address of a next page, without the key (some servers repeat it there); or why it may not be asked for.

        Args:
            url: the address.
            source_url: that of the answer that names it, whose host may go on.
        """
        try:
            host = _host(httpx2.URL(url))
            if host in self._hosts or host == _host(httpx2.URL(source_url)):
                if isinstance(self._auth, KeyAuth) and self._auth.place == "query":
                    url = str(httpx2.URL(url).copy_remove_param(self._auth.name))
                return with_variables(url)
            mend = f"add {host} to source.allowed_hosts if it may be asked, without credentials"
            return stop(f"the next address leads to another host, {host}; {mend}")
        except httpx2.InvalidURL as error:
            return stop(f"its next address {without_secrets(url)[:200]!r} is none: {without_secrets(str(error))}")

    async def get(self, url: str, params: Mapping[str, str], validators_sent: Mapping[str, str]) -> HttpAnswer | Fault:
        """Ask for a page.

        Args:
            url: http or https.
            params: added to those of the address.
            validators_sent: headers If-None-Match or If-Modified-Since, where the page is known.
        """
        try:
            async with asyncio.timeout(self._limits.timeout_seconds):
                address = httpx2.URL(self._filled(url, in_address=True))
                if _origin(address) not in self._origins:
                    address = httpx2.URL(url)
                else:
                    params = {name: self._filled(text) for name, text in params.items()}
                return await self._follow(_with_params(address, params), validators_sent)
        except RefusedError as error:
            return Fault(error.refusal, again=False)
        except TimeoutError:
            detail = f"no whole answer within {self._limits.timeout_seconds:g} s, the limits.timeout_seconds"
            return Fault(Refusal(Reason.NO_ANSWER, detail), again=True, overload=True)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:  # the last: no Unicode in a cursor
            line = without_secrets(str(error) or "no further message").splitlines()[0][:200]
            detail = f"{type(error).__name__}: {line}"
            return Fault(Refusal(Reason.NO_ANSWER, detail), again=True, overload=True)

    async def _follow(self, url: httpx2.URL, validators_sent: Mapping[str, str]) -> HttpAnswer | Fault:
        """Send a request, and follow redirects."""
        renewed = False
        for _ in range(_MAX_REDIRECTS + 1):
            headers, address = dict(validators_sent), url
            if _origin(url) in self._origins:
                credentials, params = await self._credentials()
                headers |= {name: self._filled(text) for name, text in self._headers.items()} | credentials
                address = _with_params(url, params)
            async with self._http.stream("GET", address, headers=headers, follow_redirects=False) as response:
                if response.has_redirect_location:
                    url = url.join(response.headers["location"])
                    continue
                if response.status_code == 401 and isinstance(self._auth, OAuth2Auth) and not renewed:
                    self._token, renewed = None, True
                    continue
                return await _answer(response, url, self._limits)
        return _refused(f"more than {_MAX_REDIRECTS} redirects", again=False)

    async def _credentials(self) -> tuple[dict[str, str], dict[str, str]]:
        """Headers and parameters to authenticate a request."""
        auth, secrets = self._auth, self._secrets
        if isinstance(auth, BearerAuth):
            return {"Authorization": f"Bearer {secrets['token']}"}, {}
        if isinstance(auth, BasicAuth):
            both = f"{secrets['user']}:{secrets['password']}"
            hide(both, auth.password)
            return {"Authorization": f"Basic {base64.b64encode(both.encode()).decode()}"}, {}
        if isinstance(auth, KeyAuth):
            key = {auth.name: secrets["key"]}
            return (key, {}) if auth.place == "header" else ({}, key)
        if isinstance(auth, OAuth2Auth):
            async with self._token_lock:
                if self._token is None or time.monotonic() > self._token[1]:
                    self._token = await self._new_token(auth)
                return {"Authorization": f"Bearer {self._token[0]}"}, {}
        return {}, {}

    async def _new_token(self, auth: OAuth2Auth) -> tuple[str, float]:
        """A token and the end of its use.

        Raises:
            OSError: none was given.
        """
        form = {"grant_type": "client_credentials"} | ({"scope": auth.scope} if auth.scope else {})
        client = (self._secrets["client_id"], self._secrets["client_secret"])
        url = self._filled(auth.token_url, in_address=True)
        async with self._http.stream("POST", url, data=form, auth=client) as response:
            try:
                answer = json.loads(await _body(response, _TOKEN_BYTES))
                token, lasting = str(answer["access_token"]), float(answer.get("expires_in", 300))
                hide(token, auth.client_secret)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise OSError(f"{auth.token_url} gave no token (status {response.status_code})") from error
        return token, time.monotonic() + max(lasting - _RENEWED_SECONDS, lasting / 2)


async def _answer(response: httpx2.Response, url: httpx2.URL, limits: RequestLimits) -> HttpAnswer | Fault:
    """Read an answer other than a redirect."""
    status, headers = response.status_code, response.headers
    if status == 304:
        return HttpAnswer(None, str(url), headers=tuple(headers.multi_items()))
    if status >= 500 or status in _TRANSIENT:
        wait = retry_after(headers.get("retry-after"))
        too_long = wait is not None and wait > limits.max_wait_seconds
        problem = f"status {status}"
        if too_long:
            problem += f"; it asks to wait {wait:g} s, more than limits.max_wait_seconds: a later run goes on"
        return _refused(problem, again=not too_long, status=status, overload=True, retry_after=wait)
    if status != 200:
        mend = "; check auth and its environment variables" if status in (401, 403) else ""
        return _refused(f"status {status}{mend}", again=False, status=status)
    data = without_known(await _body(response, limits.max_page_bytes))
    if len(data) > limits.max_page_bytes:
        detail = f"more than {limits.max_page_bytes} bytes, the limits.max_page_bytes"
        return Fault(Refusal(Reason.TOO_LARGE, detail), again=True)
    links = response.links.items() if "link" in headers else ()
    link = next(
        (attributes.get("url") for relations, attributes in links if "next" in (relations or "").lower().split()), None
    )
    etag, modified = (without_secrets(headers.get(name) or "") or None for name in ("etag", "last-modified"))
    return HttpAnswer(data, str(url), link, etag, modified, tuple(headers.multi_items()))


async def _body(response: httpx2.Response, max_bytes: int) -> bytes:
    """A body; of one longer than `max_bytes` a beginning longer than that."""
    chunks, byte_count = list[bytes](), 0
    async for chunk in response.aiter_bytes():
        chunks.append(chunk)
        byte_count += len(chunk)
        if byte_count > max_bytes:
            break
    return b"".join(chunks)


def _refused(detail: str, **facts: Any) -> Fault:
    return Fault(Refusal(Reason.HTTP_ERROR, detail), **facts)


def _with_params(url: httpx2.URL, params: Mapping[str, str]) -> httpx2.URL:
    """An address with more parameters; without any it stays letter by letter as it is."""
    return url.copy_merge_params(dict(params)) if params else url


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _host(url: httpx2.URL) -> str:
    """The host, and the port where it is not that of the scheme."""
    return url.netloc.decode()


def _secrets(auth: Auth | None) -> dict[str, str]:
    """Values of the environment variables named by `auth`, by its fields.

    Raises:
        ConfigError: names the first unset variable.
    """
    return {name: secret_of(f"source.auth.{name}", getattr(auth, name)) for name in _FIELDS if hasattr(auth, name)}


def _values(auth: Auth | None, secrets: Mapping[str, str]) -> dict[str, str]:
    """The values named by `auth`, by the names of their variables."""
    return {getattr(auth, field): value for field, value in secrets.items()}


def validators(page: StoredPage | None) -> dict[str, str]:
    """Headers asking a server for a page only if it has changed."""
    headers = {} if page is None else {"If-None-Match": page.etag, "If-Modified-Since": page.modified}
    return {name: value for name, value in headers.items() if value}


async def tried(ask: Callable[[], Awaitable[Got | Fault]], pace: Pace, limits: RequestLimits) -> Got | Fault:
    """Ask as often as the limits say, with a wait after each fault worth another try; gives the last result."""
    for attempt in range(1, limits.tries + 1):
        got = await ask()
        if not isinstance(got, Fault):
            pace.succeeded()
            return got
        if got.overload:
            pace.overloaded(got.retry_after)
        if not got.again:
            break
        if attempt < limits.tries:
            await asyncio.sleep(pace.backoff_seconds(attempt))
    return got
