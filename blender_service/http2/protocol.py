"""The rules of HTTP/2 as `h2` keeps them, set up for a server of gRPC."""

from __future__ import annotations

from typing import Any, Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.frame_buffer import FrameBuffer
from h2.settings import SettingCodes, Settings

from blender_service.http2.frames import HEADER_BYTES

SETTINGS: Final = {SettingCodes.MAX_CONCURRENT_STREAMS: 1 << 12, SettingCodes.MAX_HEADER_LIST_SIZE: 16 << 10}


class _Frames(FrameBuffer):
    """What was received and is no whole frame yet; h2 would wait for all of one that is too long."""

    def __next__(self) -> Any:
        if len(self._data) >= HEADER_BYTES:
            self._validate_frame_length(int.from_bytes(self._data[:3], "big"))
        return super().__next__()


def new_protocol() -> H2Connection:
    """Begin a connection, on the server's side.

    Headers are checked by `fault_of`: h2 would end the connection for those that come in, and where it finds fault with
    some while it writes them, its table and the client's would be left apart.
    """
    protocol = H2Connection(
        H2Configuration(
            client_side=False, header_encoding=None, validate_inbound_headers=False, validate_outbound_headers=False
        )
    )
    protocol.incoming_buffer = _Frames(server=True)
    protocol.local_settings = Settings(client=False, initial_values=SETTINGS)
    return protocol
