"""A client's identity, and what each of its calls says of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from blender_service.exceptions import UnauthenticatedError

TOKEN_VARIABLE: Final = "HEADRACE_TOKEN"


class Identity(NamedTuple):
    """A client's identity (token, certificate), and its training run.

    Attributes:
        token: bearer token; empty for the one of `token_file`, or of the variable `HEADRACE_TOKEN`.
        token_file: file with it, read at every call, so that it can be renewed.
        authority: PEM file of the authority behind the server's certificate; with it the connection is TLS. Like
            the other PEM files it is looked at before every call, so that it can be renewed.
        tls: use TLS, with gRPC's default authorities where `authority` names none.
        certificate: PEM file to prove the client's identity (mTLS).
        key: PEM file of the certificate's key.
        run: name of the training run, kept by the server; empty for none.
        run_notes: free text, kept with the run.
        code_version: of the training code, kept with the run.
    """

    token: str = ""
    token_file: str = ""
    authority: str = ""
    tls: bool = False
    certificate: str = ""
    key: str = ""
    run: str = ""
    run_notes: str = ""
    code_version: str = ""

    @property
    def has_tls(self) -> bool:
        """Whether its connections are TLS."""
        return bool(self.tls or self.authority or self.certificate)


DEFAULT_IDENTITY: Final = Identity()


def metadata_of(identity: Identity, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Give the metadata of a call.

    Raises:
        UnauthenticatedError: the file of the token cannot be read or is empty, or a value cannot travel in metadata.
    """
    token = identity.token
    if not token and identity.token_file:
        token = (read_file(identity.token_file) or b"").decode(errors="replace").strip()
        if not token:  # it is being written: a call as somebody else, or as nobody, may find no such blend
            raise UnauthenticatedError(f"{identity.token_file}: is empty; write the token to it, or name another file")
    token = token or environment.get(TOKEN_VARIABLE, "")
    named = (
        ("authorization", f"Bearer {token}" if token else ""),
        ("headrace-run", identity.run),
        ("headrace-run-notes", " ".join(identity.run_notes.split())),
        ("headrace-code-version", identity.code_version),
    )
    for key, value in named:
        if not all(" " <= character <= "~" for character in value):
            raise UnauthenticatedError(f"metadata {key}: has characters that cannot travel; use printable ASCII")
    return [(key, value) for key, value in named if value]


def read_file(path: str) -> bytes | None:
    """Read a file, None for no path."""
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UnauthenticatedError(f"{path}: {error.strerror}; restore the file, or name another") from error
