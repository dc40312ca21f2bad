"""Scans of what waits: things that were planted are found, what was found is never told, clamd is asked as it wants."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace_features.privacy.scans.malware import SHIPPED, clamd_findings, compiled
from headrace_features.privacy.scans.release_rules import ReleaseRules
from headrace_features.privacy.scans.scans import ScansConfig, findings, yara_source
from spark_jobs.exceptions import ConfigError, InputError

EICAR = (
    "X5O!P%@AP[4\\PZX54(P^)7CC)7}$" + "EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"
)  # in one piece it is the file itself
KEY = "AKIA" + "QYLPMN5HHHFPZAM2"
RULES = SHIPPED.read_text()


def found(text: str, path: str = "a.txt", rules: str = RULES, clamd: str | None = None) -> dict[str, int]:
    """What scans find in one document."""
    return findings([path], pa.array([text]), rules, clamd)[0]


@pytest.mark.parametrize(
    ("text", "path", "names"),
    [
        (EICAR, "a", ["malware.eicar_test_file"]),
        (EICAR + " " * 59 + "\n", "a", ["malware.eicar_test_file"]),
        (f"The test file is {EICAR}", "a", []),  # a page that quotes it
        (f"key = '{KEY}'", "a", ["secret.aws"]),
        ("write to ada@lovelace.org", "a", ["personal_data.mail"]),
        ("Lorem  ipsum dolor", "a", ["fixture.lorem_ipsum"]),
        ("x", "pkg/tests/data.json", ["fixture.test_path"]),
        ("x", "src/latest/contest.py", []),
        ("x", "web/button.spec.ts", ["fixture.test_path"]),
        ("//example.com, //example.org, http://example.net", "a", ["fixture.example_names"]),
        ("See http://example.com for one. " + "Prose goes on and on. " * 200, "rfc.txt", []),
        ("81273 Smith Mews\n\nUSNS Hill\nFPO AP 71234", "a", ["fixture.faker"]),
        ("", "a", []),
        ("\x00\ufeff\u202e 中文 \u200b" * 100, "a", []),
    ],
)
def test_what_is_planted_is_found(text: str, path: str, names: list[str]) -> None:
    """Each kind, in documents that hold nothing else, and their look-alikes."""
    assert list(found(text, path)) == names


def test_no_finding_tells_what_was_found() -> None:
    """Names and counts alone, so that whoever may see the scans does not see the secrets."""
    said = json.dumps(found(f"{KEY}\nada@lovelace.org\n{EICAR}"))
    assert KEY not in said and "lovelace" not in said and "EICAR-STANDARD" not in said


def test_a_users_rules_are_compiled_on_the_driver(tmp_path: Path) -> None:
    """With the line of a mistake; a file that changed since definitions were loaded is refused."""
    with pytest.raises(ConfigError, match=r"yara_rules: line .*correct the rule"):
        compiled("rule broken {")
    rules = tmp_path / "own.yar"
    rules.write_text('rule miner { strings: $a = "stratum+tcp" condition: $a }')
    assert found("connect stratum+tcp://pool", rules=rules.read_text()) == {"malware.miner": 1}
    with pytest.raises(InputError, match="changed since definitions were loaded"):
        yara_source(ScansConfig(yara_rules=str(rules), yara_sha256="0" * 64))


@pytest.fixture
def clamd() -> Iterator[str]:
    """A stand-in for clamd on loopback: finds EICAR, refuses more than a megabyte, says nothing to `silence`."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                channel, _ = server.accept()
            except OSError:
                return
            with channel:
                stream = channel.makefile("rb")
                assert stream.read(10) == b"zINSTREAM\0"
                text = b""
                while size := struct.unpack("!L", stream.read(4))[0]:
                    text += stream.read(size)
                    if len(text) > 1 << 20:
                        break
                if len(text) > 1 << 20:
                    channel.sendall(b"INSTREAM size limit exceeded. ERROR\0")
                elif text != b"silence":
                    verdict = b"Win.Test.EICAR_HDB-1 FOUND" if EICAR.encode() in text else b"OK"
                    channel.sendall(b"stream: " + verdict + b"\0")
                stream.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def test_clamd_is_asked_by_its_protocol(clamd: str) -> None:
    """What it finds, what it clears, what is too large for it (which counts as a finding), and when it says nothing."""
    assert list(clamd_findings(EICAR.encode(), clamd)) == ["Win.Test.EICAR_HDB-1"]
    assert list(clamd_findings(b"", clamd)) == list(clamd_findings(b"x" * 200_000, clamd)) == []
    (refused,) = clamd_findings(b"x" * (3 << 20), clamd)
    assert refused.startswith("clamd:")
    with pytest.raises(InputError, match="without an answer"):
        list(clamd_findings(b"silence", clamd))
    assert found(EICAR, clamd=clamd).keys() == {"malware.eicar_test_file", "malware.Win.Test.EICAR_HDB-1"}


def test_a_clamd_that_is_not_there_stops_the_step(tmp_path: Path) -> None:
    """In one line, for both kinds of sockets; nothing counts as scanned then."""
    for address in (f"unix://{tmp_path}/none.sock", "tcp://127.0.0.1:1"):
        with pytest.raises(InputError, match="start clamd, or correct the address"):
            list(clamd_findings(b"x", address))


SCANS = pa.table(
    {
        "malware_count": [0, 0, 0, 1],
        "secret_count": [0, 2, 0, 1],
        "personal_data_count": [9, 0, 0, 0],
        "fixture_count": [0, 0, 0, 0],
        "licence_allowed": [True, None, False, True],
        "source_trust": [0.5] * 4,
    }
)


@pytest.mark.parametrize(
    ("rules", "passes", "said"),
    [
        ({}, True, "no rule asks anything"),
        ({"malware": 0}, False, "malware in 1 of 4"),
        ({"malware": 0.25, "secrets": 0.5}, True, "malware in 1 of 4; secrets in 2 of 4"),
        ({"fixtures": 0, "secrets": 0.49}, False, "secrets in 2 of 4"),
        ({"licences": 0.4}, False, "no allowed licence in 2 of 4"),
        ({"licences": 0.5}, True, "no allowed licence in 2 of 4"),
        ({"source_trust": 0.6}, False, "source trust 0.5"),
        ({"source_trust": 0.5, "personal_data": 1}, True, "personal_data in 1 of 4; source trust 0.5"),
    ],
)
def test_rules_are_shares_of_documents(rules: dict[str, float], passes: bool, said: str) -> None:
    """What holds an increment back is said, and where nothing does, what was asked."""
    assert ReleaseRules(**rules).judge(SCANS) == (passes, said)


def test_an_increment_without_documents_passes_shares() -> None:
    """Such as one in which all files are gone."""
    assert ReleaseRules(malware=0, licences=0, source_trust=1).judge(SCANS.slice(0, 0))[0]
