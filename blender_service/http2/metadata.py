"""What gRPC writes into HTTP/2 headers: metadata, deadlines, and how a call ended."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote

Metadata = tuple[tuple[str, str | bytes], ...]
Headers = list[tuple[bytes, bytes]]

CONTENT_TYPE: Final = b"application/grpc"
BINARY: Final = "-bin"
# Of HTTP/2 or of gRPC itself; the rest is the caller's.
OWN: Final = frozenset({"te", "content-type", "grpc-timeout", "grpc-encoding", "grpc-accept-encoding", "user-agent"})
SECONDS_OF: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
MOST_SECONDS: Final = 1e9  # Python cannot wait as long as clients can write
TIMEOUT: Final = re.compile(r"([0-9]{1,8})([HMSmun])")
NEEDED: Final = (b":method", b":scheme", b":path")
PSEUDO: Final = (*NEEDED, b":authority")
OF_CONNECTION: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
FIELD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
CONTROL: Final = re.compile(rb"[\0\r\n]")
PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def fault_of(headers: Iterable[tuple[bytes, bytes]], *, are_trailers: bool = False) -> str:
    """Say what makes headers malformed by RFC 9113, section 8, empty for nothing.

    h2 would end the connection for it, where the stream is enough, and takes a blank at a value's end for malformed.
    """
    pseudo: list[bytes] = []
    has_fields = False
    for name, value in headers:
        if name.startswith(b":"):
            if has_fields or are_trailers or name in pseudo or name not in PSEUDO:
                return f"{name[:40]!r} is unknown, comes twice or at a wrong place"
            if not value and name != b":authority":
                return f"{name!r} is empty"
            pseudo.append(name)
            continue
        has_fields = True
        if not name or not FIELD.fullmatch(name) or name in OF_CONNECTION or (name == b"te" and value != b"trailers"):
            return f"field {name[:40]!r}"
        if CONTROL.search(value):
            return f"the value of {name[:40]!r}"
    missing = [] if are_trailers else [name for name in NEEDED if name not in pseudo]
    return f"{missing[0]!r} is missing" if missing else ""


def is_grpc(content_type: bytes) -> bool:
    """Say whether a request is one of gRPC: `application/grpc`, perhaps with `+proto`."""
    return content_type == CONTENT_TYPE or content_type.startswith((CONTENT_TYPE + b"+", CONTENT_TYPE + b";"))


def metadata_of(headers: Iterable[tuple[bytes, bytes]]) -> Metadata:
    """Give the caller's metadata; binary values are decoded, values that cannot be are left out."""
    found: list[tuple[str, str | bytes]] = []
    for name, value in headers:
        key = name.decode("ascii", errors="replace")
        if key.startswith(":") or (key in OWN and key != "user-agent"):
            continue
        if not key.endswith(BINARY):
            found.append((key, value.decode("latin-1")))
            continue
        for part in value.split(b","):
            try:
                found.append((key, base64.b64decode(part + b"=" * (-len(part) % 4), validate=True)))
            except binascii.Error:
                continue
    return tuple(found)


def headers_of(metadata: Iterable[tuple[str, str | bytes]]) -> Headers:
    """Write metadata of an answer."""
    return [
        (
            key.encode(),
            base64.b64encode(value if isinstance(value, bytes) else value.encode()).rstrip(b"=")
            if key.endswith(BINARY)
            else (value if isinstance(value, bytes) else value.encode()),
        )
        for key, value in metadata
    ]


def trailers(status: int, details: str, metadata: Sequence[tuple[str, str | bytes]]) -> Headers:
    """Write how a call ended: status, message (percent-encoded but for printable ASCII), metadata."""
    message = [(b"grpc-message", message_of(details))] if details else []
    return [(b"grpc-status", str(status).encode()), *message, *headers_of(metadata)]


def message_of(details: str) -> bytes:
    """Percent-encode all but printable ASCII; blanks at the ends too, which HTTP would take away."""
    quoted = quote(details, safe=PLAIN, errors="replace")
    begun = quoted.lstrip(" ")
    whole = begun.rstrip(" ")
    return b"".join((b"%20" * (len(quoted) - len(begun)), whole.encode(), b"%20" * (len(begun) - len(whole))))


def seconds_of(timeout: str) -> float:
    """Read a deadline such as `1500m`, at most `MOST_SECONDS`.

    Raises:
        ValueError: it is none.
    """
    found = TIMEOUT.fullmatch(timeout)
    if found is None:
        raise ValueError(f"grpc-timeout is {timeout[:20]!r}; give up to 8 digits and one of H M S m u n")
    return min(int(found[1]) * SECONDS_OF[found[2]], MOST_SECONDS)
