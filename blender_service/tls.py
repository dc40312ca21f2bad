"""TLS for the server: a certificate with its key, and for mTLS the authority of the clients' certificates.

The files are read again for new connections when they have changed, so a renewed certificate needs no restart.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from blender_service.exceptions import ServerStartError

logger = logging.getLogger(__name__)


class TlsFiles(NamedTuple):
    """PEM files.

    Attributes:
        certificate: of the server, followed by those between it and its authority.
        key: of the certificate, without a passphrase.
        client_authority: certificates that sign those of clients; with it a client must show one (mTLS).
    """

    certificate: Path
    key: Path
    client_authority: Path | None = None

    def check(self) -> None:
        """Refuse files that are missing, are no PEM, or do not belong together.

        Raises:
            ServerStartError: with the file.
        """
        for path in self:
            if path is not None and not path.is_file():
                raise ServerStartError(f"tls: {path} does not exist; name a PEM file")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, password="")
        except (ssl.SSLError, OSError) as error:
            raise ServerStartError(
                f"tls: {self.certificate} and {self.key} are no certificate and its key: {error.args[-1]}; give both "
                "as PEM, the key without a passphrase"
            ) from error
        if self.client_authority is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(self.client_authority)
            except (ssl.SSLError, OSError) as error:
                raise ServerStartError(
                    f"tls: {self.client_authority} holds no certificate: {error.args[-1]}"
                ) from error


def renewing_context(files: TlsFiles) -> Callable[[], ssl.SSLContext]:
    """Give what gives the settings of a new connection, renewed when the files change.

    Raises:
        ServerStartError: a file is wrong.
    """
    files.check()
    return _Renewal(files).context


class _Renewal:
    """Notices that the files have changed."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._stamps = self._stat()
        self._context = self._read()

    def context(self) -> ssl.SSLContext:
        """Give the settings as the files are now; those in use stay where the new ones are wrong."""
        with self._lock:
            try:
                stamps = self._stat()
                if stamps == self._stamps:
                    return self._context
                self._files.check()  # a certificate whose key has not been written yet is taken at the next connection
                self._context = self._read()
            except (ServerStartError, OSError) as error:
                logger.error("%s; the certificate in use stays", error)
                return self._context
            self._stamps = stamps
        logger.info("tls: %s was renewed", self._files.certificate)
        return self._context

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2  # what HTTP/2 asks for
        context.set_alpn_protocols(["h2"])
        context.load_cert_chain(self._files.certificate, self._files.key)
        if self._files.client_authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self._files.client_authority)
        return context

    def _stat(self) -> list[tuple[int, int]]:
        return [(found.st_mtime_ns, found.st_ino) for found in (path.stat() for path in self._files if path)]
