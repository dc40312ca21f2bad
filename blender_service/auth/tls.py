"""Load TLS for the server: a certificate with its key, and for mTLS the authority of the clients' certificates.

The files are read again for new connections when they have changed, so a renewed certificate needs no restart.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

import grpc

from blender_service.exceptions import ServerStartError

logger = logging.getLogger(__name__)


class TlsFiles(NamedTuple):
    """PEM files.

    Attributes:
        certificate: of the server, followed by those between it and its authority.
        key: of the certificate, without a passphrase.
        client_authority: certificates over those of clients; with it a client must show one (mTLS).
    """

    certificate: Path
    key: Path
    client_authority: Path | None = None

    def check(self) -> None:
        """Refuse missing files, files other than PEM, and files of different pairs.

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


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Give gRPC's credentials, renewed when the files change.

    Raises:
        ServerStartError: a file is wrong.
    """
    files.check()
    renewal = _Renewal(files)
    return grpc.dynamic_ssl_server_credentials(
        renewal.configuration(),
        # None keeps the certificate in use, as gRPC documents; the stubs leave it out.
        cast(Callable[[], grpc.ServerCertificateConfiguration], renewal.changed),
        require_client_authentication=files.client_authority is not None,
    )


class _Renewal:
    """Notices changes of the files."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._stamps = self._stat()

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """Read the files."""
        authority = self._files.client_authority
        pair = (self._files.key.read_bytes(), self._files.certificate.read_bytes())
        return grpc.ssl_server_certificate_configuration(
            [pair], root_certificates=authority.read_bytes() if authority is not None else None
        )

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Give the new configuration, None to keep the one in use; gRPC asks at every new connection."""
        with self._lock:
            try:
                stamps = self._stat()
                if stamps == self._stamps:
                    return None
                self._files.check()  # while only one of the two files is written, the old pair stays
                configuration = self.configuration()
            except (ServerStartError, OSError) as error:
                logger.error("%s; the certificate in use stays", error)
                return None
            self._stamps = stamps
        logger.info("tls: %s was renewed", self._files.certificate)
        return configuration

    def _stat(self) -> list[tuple[int, int]]:
        return [(status.st_mtime_ns, status.st_ino) for status in (path.stat() for path in self._files if path)]
