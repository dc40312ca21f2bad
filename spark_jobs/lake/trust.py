"""The certificates that this machine trusts, as a Java key store.

A Java runtime brings its own certificates and does not see those that a company adds to the system's; Python does. The
format is JKS, the oldest of Java's: simple enough to write down, and every Java reads it.

    FEEDFEED, version 2, count, {tag 2, alias, milliseconds, "X.509", length, DER}*, SHA-1(password, phrase, the rest)

Strings are two bytes of length and UTF-8; numbers are big-endian. Source: OpenJDK, sun.security.provider.JavaKeyStore.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from collections.abc import Sequence
from typing import Final

TRUST_STORE_PASSWORD: Final = "changeit"
"""Java's customary one: the store holds public certificates, its password only sums it up."""

_MAGIC: Final = 0xFEEDFEED
_VERSION: Final = 2
_TRUSTED_CERTIFICATE: Final = 2
_PHRASE: Final = b"Mighty Aphrodite"


def system_trust_store() -> bytes | None:
    """A JKS file of what Python trusts (`SSL_CERT_FILE`, else the system's certificates); None where it trusts none."""
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    return java_key_store(certificates) if certificates else None


def java_key_store(certificates: Sequence[bytes]) -> bytes:
    """Write DER certificates as trusted entries of a JKS file, aliases "0", "1", ..."""
    body = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(str(number)) + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    return body + hashlib.sha1(TRUST_STORE_PASSWORD.encode("utf-16-be") + _PHRASE + body).digest()


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded
