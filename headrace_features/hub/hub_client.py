"""Requests to the Hugging Face Hub: the commit of a revision, its files, and their bytes.

    GET /api/datasets/OWNER/NAME/revision/main           -> {sha}
    GET /api/datasets/OWNER/NAME/tree/SHA?recursive=true -> [{path, size, lfs: {oid, size}}, ..], pages by `Link`
    GET /datasets/OWNER/NAME/resolve/SHA/PATH            -> a redirect to the store of the bytes

Own code, for `huggingface_hub` 2.4 has no resume and no check that this needs: it downloads to a file with a name of
the process and deletes it when that ends, so what a kill left is not gone on with; it compares sizes and no SHA-256;
where the server fails it gives what it kept; and without HF_TOKEN it sends the token of a file in the home folder.
httpx2, which comes with the platform, leaves the token out of a redirect to another scheme, host or port.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self
from urllib.parse import quote

import httpx2

from headrace_features.hub.hub_files import HubFile
from spark_jobs.credentials import hide, without_secrets
from spark_jobs.exceptions import nearest
from spark_jobs.sources.opening.destinations import Destinations
from spark_jobs.sources.opening.file_trees import STALL_SECONDS
from spark_jobs.sources.refusals import Reason, RefusedError

if TYPE_CHECKING:
    from headrace_features.hub.hub_source import HubSource

HUB = "https://huggingface.co"
_TRIES = 5  # without a byte more
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 120.0  # seconds; a server that asks for more is told to the user
_AGAIN = (408, 429, 500, 502, 503, 504)
_GB = 1_000_000_000
_NEAR = 500  # names of an owner's data sets that are looked at for the nearest


class Hub:
    """Requests for one data set, with the token of HF_TOKEN, to HF_ENDPOINT where that is set."""

    def __init__(self, source: HubSource) -> None:
        self._source = source
        self.endpoint = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
        token = os.environ.get("HF_TOKEN", "").strip()
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "headrace"}
        if token:
            hide(token, "HF_TOKEN")
            self._headers["Authorization"] = f"Bearer {token}"
        destinations = Destinations.of([self.endpoint], source.allowed_hosts)

        def require(request: httpx2.Request) -> None:  # also of each redirect
            destinations.require(request.url.scheme, request.url.host, request.url.port)

        self._client = httpx2.Client(follow_redirects=True, timeout=STALL_SECONDS, event_hooks={"request": [require]})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def commit(self) -> str:
        """The commit of the revision.

        Raises:
            RefusedError: there is no such data set or revision, it is closed to the token, or the server fails.
        """
        with self._answer(f"{self._api}/revision/{quote(self._source.revision, safe='')}") as response:
            answer = self._json(response)
            if not isinstance(answer, dict) or "sha" not in answer:
                raise self._no_hub()
            return str(answer["sha"])

    def files(self, commit: str) -> Iterator[HubFile]:
        """Every file of a commit.

        Raises:
            RefusedError: as of `commit`.
        """
        page: str | None = f"{self._api}/tree/{commit}?recursive=true"
        while page:
            with self._answer(page) as response:
                entries, page = self._json(response), self._next(response)
            try:
                files = [
                    HubFile.listed(self._source.repo_id, commit, entry) for entry in entries if entry["type"] == "file"
                ]
            except (KeyError, TypeError, ValueError) as error:
                raise self._no_hub() from error
            yield from files

    def open(self, file: HubFile) -> IO[bytes]:
        """A file, from the cache where it is whole there; a broken download goes on where it ended.

        Raises:
            OSError: the server fails, or the bytes are not those that the Hub lists.
        """
        folder = Path(self._source.cache).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        whole, part = folder / file.digest, folder / f"{file.digest}.part"
        if not whole.is_file():
            with part.open("ab") as out:
                fcntl.flock(out, fcntl.LOCK_EX)  # another task, or a run beside this one, may want the same bytes
                if not whole.is_file():
                    self._complete(file, part, out)
                    part.replace(whole)
        os.utime(whole)
        stream = whole.open("rb")
        self._prune(folder, whole)
        return stream

    @property
    def _api(self) -> str:
        return f"{self.endpoint}/api/datasets/{self._source.repo_id}"

    def _complete(self, file: HubFile, part: Path, out: IO[bytes]) -> None:
        """Append what a part lacks, until it is the file.

        Raises:
            OSError: it does not become that.
        """
        tries, other_bytes, fault = _TRIES, 0, ""
        most = out.seek(0, os.SEEK_END)  # a server without ranges begins anew, so that sizes may fall
        while True:
            try:
                self._append(file, out.seek(0, os.SEEK_END), out)
            except httpx2.TransportError as error:
                fault = f"{type(error).__name__}: {error}"
            out.flush()
            size = out.seek(0, os.SEEK_END)
            if size == file.byte_count and file.is_in(part):
                return
            if size >= file.byte_count:
                out.truncate(0)
                other_bytes += 1
                if other_bytes > 1:  # the first may be a part that a broken machine left
                    detail = f"the server gives other bytes than the {file.kind} and size that the Hub lists; run again"
                    raise RefusedError(Reason.BAD_ANSWER, detail)
                continue
            tries = _TRIES if size > most else tries - 1
            most = max(most, size)
            if not tries:
                detail = f"it broke off at byte {size} of {file.byte_count} {_TRIES} times; run again to go on"
                raise RefusedError(Reason.NO_ANSWER, f"{detail} ({without_secrets(fault)})")
            time.sleep(_FIRST_WAIT * 2 ** (_TRIES - tries))

    def _append(self, file: HubFile, start: int, out: IO[bytes]) -> None:
        """Append the bytes of a file from `start` on, or all where the server does not take ranges."""
        if start >= file.byte_count:
            return
        address = f"{self.endpoint}/datasets/{file.repo_id}/resolve/{file.commit}/{quote(file.path)}"
        ranges = {"Range": f"bytes={start}-"} if start else {}
        with self._answer(address, ranges) as response:
            goes_on = response.status_code == 206 and response.headers.get("Content-Range", "").startswith(
                f"bytes {start}-"
            )
            if start and not goes_on:
                out.truncate(0)
            for data in response.iter_bytes():  # of a size, what came before a break would be lost
                out.write(data)
                if out.tell() > file.byte_count:  # whatever comes, no more is kept than was listed
                    return

    def _prune(self, folder: Path, keep: Path) -> None:
        """Delete whole files that were read longest ago while they are too many; who reads one reads on."""
        files = []
        for path in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another task prunes too
                files.append((path.stat().st_mtime, path.stat().st_size, path))
        total = sum(size for _, size, path in files if not path.suffix)
        for _, size, path in sorted(files):
            if total > self._source.cache_gb * _GB and path != keep and not path.suffix:
                path.unlink(missing_ok=True)
                total -= size

    @contextlib.contextmanager
    def _answer(self, address: str, headers: dict[str, str] | None = None) -> Iterator[httpx2.Response]:
        """An answer of success, asked for again where the server says later or nothing.

        Raises:
            RefusedError: it says no, or later too often.
        """
        response = self._sent(address, {**self._headers, **(headers or {})})
        try:
            self._require_success(response)
            yield response
        finally:
            response.close()

    def _sent(self, address: str, headers: dict[str, str]) -> httpx2.Response:
        """The last of at most five answers.

        Raises:
            RefusedError: there is none; a `ForbiddenAddressError` where a redirect leads where no request may go.
        """
        for number in range(_TRIES):
            try:
                request = self._client.build_request("GET", address, headers=headers)
                response = self._client.send(request, stream=True)
                wait = _wait_seconds(response, number)
                if wait is None:
                    return response
                response.close()
            except httpx2.RequestError as error:
                if number == _TRIES - 1:
                    detail = f"{self.endpoint} gives no answer ({without_secrets(str(error) or type(error).__name__)})"
                    raise RefusedError(Reason.NO_ANSWER, f"{detail}; check HF_ENDPOINT and the network") from error
                wait = _FIRST_WAIT * 2**number
            time.sleep(wait)
        raise AssertionError("the last try has an answer")

    def _next(self, response: httpx2.Response) -> str | None:
        """The address of the next page of a list.

        Raises:
            RefusedError: it is on another host, where the token must not go.
        """
        link = response.links.get("next", {}).get("url")
        if not link:
            return None
        page = str(response.url.join(link))
        if page.startswith(f"{HUB}/"):  # mirrors repeat what the Hub says
            page = self.endpoint + page.removeprefix(HUB)
        if not page.startswith(f"{self.endpoint}/"):
            raise RefusedError(Reason.BAD_ANSWER, f"the list of files goes on at {without_secrets(page)}, another host")
        return page

    def _json(self, response: httpx2.Response) -> Any:
        try:
            response.read()
            return response.json()
        except httpx2.RequestError as error:
            raise RefusedError(Reason.NO_ANSWER, f"the answer of {self.endpoint} broke off; run again") from error
        except ValueError as error:
            raise self._no_hub() from error

    def _no_hub(self) -> RefusedError:
        return RefusedError(Reason.BAD_ANSWER, f"{self.endpoint} does not answer as a Hub does; check HF_ENDPOINT")

    def _require_success(self, response: httpx2.Response) -> None:
        """Refuse an answer that is none.

        Raises:
            RefusedError: says what to do.
        """
        status, code = response.status_code, response.headers.get("X-Error-Code", "")
        if status in (200, 206):
            return
        name, has_token = self._source.repo_id, "Authorization" in self._headers
        if not str(response.url).startswith(f"{self.endpoint}/"):
            detail = f"the store that the Hub redirects to answers {status}; run again"
        elif code == "GatedRepo":
            page = f"{self.endpoint}/datasets/{name}"
            detail = f"{name} is gated; accept its terms at {page}, and set HF_TOKEN to a token of that account"
        elif code == "RevisionNotFound":
            detail = f"{name} has no revision {self._source.revision}; name a branch, a tag or a commit"
        elif response.headers.get("X-Error-Message", "").startswith("Invalid credentials"):
            detail = f"the Hub does not take the token of HF_TOKEN ({status}); set one that is valid, or none"
        elif code == "RepoNotFound" or status in (401, 403, 404):
            mend = "the token of HF_TOKEN may not see it" if has_token else "it may be private: set HF_TOKEN"
            detail = f"the Hub shows no data set {name} ({status}){self._near()}; correct repo_id, or {mend}"
        elif status == 429:
            wait = response.headers.get("Retry-After", "a while")
            detail = f"the Hub limits requests (429); run again in {wait} s" + (", or set HF_TOKEN" * (not has_token))
        else:
            detail = f"the Hub answers {status}; run again"
        raise RefusedError(Reason.HTTP_ERROR, detail)

    def _near(self) -> str:
        """The nearest name among the data sets of the owner, where the server tells them."""
        owner, slash, _ = self._source.repo_id.partition("/")
        search = {"author": owner} if slash else {"search": owner}
        try:
            answer = self._client.get(f"{self.endpoint}/api/datasets", params={**search, "limit": _NEAR})
            return nearest(self._source.repo_id, [str(entry["id"]) for entry in answer.json()])
        except (httpx2.HTTPError, OSError, ValueError, TypeError, KeyError):  # only a help beside the true fault
            return ""


def _wait_seconds(response: httpx2.Response, number: int) -> float | None:
    """How long to wait before the next try; None where the answer is the last word."""
    if response.status_code not in _AGAIN or number == _TRIES - 1:
        return None
    asked = response.headers.get("Retry-After", "")
    wait = float(asked) if asked.isdecimal() else _FIRST_WAIT * 2**number
    return wait if wait <= _LONGEST_WAIT else None
