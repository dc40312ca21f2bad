"""What is written into headers and read from them."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blender_service.http2.metadata import (
    MOST_SECONDS,
    fault_of,
    headers_of,
    is_grpc,
    message_of,
    metadata_of,
    seconds_of,
    trailers,
)

GOOD = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/x")]


@given(st.text())
def test_a_message_is_printable_ascii_that_decodes_to_itself(details: str) -> None:
    """Whatever the text; no blank stands at either end, where HTTP would take it away."""
    written = message_of(details)
    assert all(0x20 <= byte < 0x7F for byte in written)
    assert written == written.strip()
    assert unquote_to_bytes(written).decode() == details.encode(errors="replace").decode()


def test_lone_surrogates_do_not_stop_a_status() -> None:
    """Text that is no Unicode is replaced."""
    assert message_of("a\ud800b") == b"a?b"
    assert trailers(5, "", ()) == [(b"grpc-status", b"5")]


@given(st.lists(st.tuples(st.just("k-bin"), st.binary()) | st.tuples(st.just("k"), st.text("abc ,=%"))))
def test_metadata_comes_back(metadata: list[tuple[str, str | bytes]]) -> None:
    """Binary values of any bytes, and text, in order."""
    assert metadata_of(headers_of(metadata)) == tuple(metadata)


def test_binary_metadata_of_other_clients_is_read() -> None:
    """With padding or without, several in one header; what is no base64 is left out."""
    headers = [(b"k-bin", b"AAE=,AAE,!!"), (b"k-bin", b"A"), (b":path", b"/"), (b"te", b"trailers")]
    assert metadata_of(headers) == (("k-bin", b"\0\1"), ("k-bin", b"\0\1"))


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1H", 3600), ("2M", 120), ("3S", 3), ("1500m", 1.5), ("7u", 7e-6), ("0n", 0), ("99999999H", MOST_SECONDS)],
)
def test_deadlines_are_read(written: str, seconds: float) -> None:
    """Each unit; none longer than Python can wait."""
    assert seconds_of(written) == pytest.approx(seconds)


@pytest.mark.parametrize("written", ["", "1", "H", "-1S", "1 S", "1.5S", "123456789S", "1S ", "1S\n", "١S"])
def test_what_is_no_deadline_is_refused(written: str) -> None:
    """Only up to eight ASCII digits and a unit are one."""
    with pytest.raises(ValueError, match="grpc-timeout"):
        seconds_of(written)


@pytest.mark.parametrize(
    "headers",
    [
        *[GOOD[:place] + GOOD[place + 1 :] for place in range(3)],
        *[[*GOOD, one] for one in GOOD],
        [*GOOD, (b"a", b"b"), (b":authority", b"x")],
        [*GOOD, (b":status", b"200")],
        [*GOOD[:2], (b":path", b"")],
        *[
            [*GOOD, (name, b"x")]
            for name in (b"", b"Upper", b"a b", b"a:b", b"\xff", b"a\n", b"connection", b"upgrade", b"te")
        ],
        *[[*GOOD, (b"a", value)] for value in (b"a\0", b"\r", b"a\nb")],
    ],
)
def test_malformed_requests_are_found(headers: list[tuple[bytes, bytes]]) -> None:
    """RFC 9113, 8.2.1, 8.2.2, 8.3 and 8.3.1."""
    assert fault_of(headers)


@pytest.mark.parametrize(
    "headers",
    [GOOD, [*GOOD, (b":authority", b"")], [*GOOD, (b"te", b"trailers")], [*GOOD, (b"a", b" \xff "), (b"a", b"")]],
)
def test_well_formed_requests_pass(headers: list[tuple[bytes, bytes]]) -> None:
    """An empty authority, blanks and bytes beyond ASCII in values among them."""
    assert not fault_of(headers)


def test_trailers_have_no_pseudo_fields() -> None:
    """RFC 9113, 8.1."""
    assert fault_of([(b":path", b"/x")], are_trailers=True)
    assert not fault_of([(b"a", b"x")], are_trailers=True)


def test_only_grpc_is_grpc() -> None:
    """A suffix or a parameter may follow, nothing else."""
    assert is_grpc(b"application/grpc")
    assert is_grpc(b"application/grpc+proto")
    assert not is_grpc(b"application/grpc-web")
