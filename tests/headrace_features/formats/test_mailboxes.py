"""Mailboxes become a document a mail, whatever stands in them; what cannot be used is a row with a reason."""

from __future__ import annotations

import gzip
import io
import mailbox
import random
import re
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("resiliparse")

from headrace_features.formats.mailboxes import mail_records
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.records.records import Record, Refused
from spark_jobs.sources.refusals import Reason, Refusal
from tests.tiers import sampled, tries

OPENING = b"From ada@example.org Thu Nov 12 09:00:00 2026\n"


def mails(data: bytes, max_bytes: int = 1000) -> list[Record | Refused]:
    """What is read of a mailbox, with the mails as they are for texts."""

    def raw(mail: bytes) -> Extracted | Refusal:
        return Extracted(mail.decode(), {})

    return list(mail_records(io.BytesIO(data), raw, max_bytes, is_compressed=False))


def test_a_mailbox_gives_what_the_standard_library_wrote(landing: Any, data: Path) -> None:
    """Texts come back in order with quoted lines restored, named by Message-ID, at the offsets of their mails."""
    texts = ["One.\n\nFrom here on it is text.\n", "Two, grüß dich.\n", ">From the start, quoted once more.\n"]
    box = mailbox.mbox(data / "list.mbox")
    for number, text in enumerate(texts):
        message = EmailMessage()
        message["Subject"], message["Message-ID"] = f"S{number}", f"<{number}@example.org>"
        message.set_content(text)
        box.add(mailbox.mboxMessage(message))
    box.close()
    stored = (data / "list.mbox").read_bytes()
    (data / "list2.mbox.gz").write_bytes(gzip.compress(stored))
    config = DocumentsConfig.model_validate({"dataset": "notes", "source": {"kind": "files", "path": str(data)}})
    documents, arrivals = landing.land(config)
    # The standard library quotes `From ` and not `>From `, so that the third text loses a sign: the mailbox lost it.
    assert [row["content"] for row in documents[:3]] == [*texts[:2], texts[2].removeprefix(">")]
    assert [row["path"] for row in documents[:3]] == [f"list.mbox#{n}@example.org" for n in range(3)]
    assert all(stored[int(dict(row["metadata"])["offset"]) :].startswith(b"From ") for row in documents[:3])
    assert [row["content"] for row in documents[3:]] == [row["content"] for row in documents[:3]]
    assert not any("offset" in row["metadata"] for row in documents[3:])
    assert [row["status"] for row in arrivals] == ["landed", "landed"]


def test_a_file_without_an_opening_line_is_no_mailbox() -> None:
    """Text, a single mail and binary are one fault each; an empty file has no mail."""
    for data in (b"Hello\nFrom x 10:00 2020\n", b"Subject: a\n\nb\n", b"\0", b"From\n"):
        (fault,) = mails(data)
        assert isinstance(fault, Refused) and (fault.number, fault.refusal.reason) == (None, Reason.CORRUPT_FILE)
    assert mails(b"") == mails(b"\n\n") == []


def test_a_mail_that_is_too_large_is_refused_and_the_next_is_read() -> None:
    """By its lines together, and by one line that is longer than any mail may be."""
    for large in (b"x\n" * 800, b"x" * 5000 + b"\n"):
        first, second = mails(OPENING + b"A: b\n\n" + large + b"\n" + OPENING + b"C: d\n\nlast\n")
        assert isinstance(first, Refused) and (first.number, first.refusal.reason) == (1, Reason.TOO_LARGE)
        assert isinstance(second, Record) and second.text == "C: d\n\nlast\n"


def test_only_lines_with_a_date_open_a_mail() -> None:
    """`From here on` is text, and each `>` before `From ` is one less."""
    body = b"A: b\n\nFrom here on\nFrom 9:00 to 10:00 in 2026\n>From x\n>>From y\n> From z\n"
    (mail,) = mails(b"\xef\xbb\xbf" + OPENING + body)
    assert isinstance(mail, Record)
    assert mail.text == "A: b\n\nFrom here on\nFrom 9:00 to 10:00 in 2026\nFrom x\n>From y\n> From z\n"


def test_a_cut_archive_keeps_the_mails_before_the_damage() -> None:
    """The mail that the cut goes through is refused, and the damage is told."""
    from spark_jobs.sources.opening.gzip_members import GzipMembers

    noise = random.Random(1).randbytes(200_000).hex().encode()
    whole = gzip.compress(OPENING + b"A: b\n\none\n\n" + OPENING + b"C: d\n\n" + noise)
    stream = GzipMembers(io.BytesIO(whole[: len(whole) // 2]))
    extract = lambda mail: Extracted(mail.decode(), {})  # noqa: E731
    found = list(mail_records(stream, extract, 1_000_000, is_compressed=True))
    assert [one.number for one in found] == [1, 6, None]
    assert isinstance(found[0], Record) and isinstance(found[1], Refused) and isinstance(found[2], Refused)
    assert found[2].refusal.reason == Reason.CORRUPT_ARCHIVE


VARIANTS = {
    "ctime": "From ada@x.org Thu Nov 12 09:00:00 2026",
    "no_seconds": "From ada@x.org Thu Nov 12 09:00 2026",
    "zone": "From ada@x.org Thu Nov 12 09:00:00 PST 2026",
    "offset": "From ada@x.org Thu Nov 12 09:00:00 2026 +0100",
    "rfc822": "From ada@x.org Thu, 12 Nov 26 09:00:00 GMT",
    "iso": "From ada@x.org 2026-11-12T09:00:00Z",
    "pipermail": "From ada at x.org  Thu Nov 12 09:00:00 2026",
    "daemon": "From MAILER-DAEMON Thu Nov 12 09:00:00 2026",
    "uucp": "From ada Thu Nov 12 09:00:00 2026 remote from x",
    "sender_missing": "From  Thu Nov 12 09:00:00 2026",
    "usenet": "From -7223372036854775808",
    "bare": "From ",
    "name": "From ada@x.org",
}
HOSTILE_LINES = [
    "",
    "From here on it is text.",
    "From Monday 10:15 on Jan 3 2000 it stood still, as the",
    "From ada@x.org Thu Nov 12 09:00:00 2026",
    ">From the log",
    "log: of the station",
    "From 1990 to 2000",
    "Note: From 9:00 on",
]


@sampled(12)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("writer", ["mboxrd", "mboxcl", "mboxcl2", "hostile"])
@pytest.mark.parametrize("name", VARIANTS)
def test_each_mail_comes_back_from_every_kind_of_mailbox(name: str, writer: str, end: str) -> None:
    """Random bodies with lines that begin with `From `, by each way of marking them; `hostile` marks prose nowhere."""
    draw = random.Random(f"{name} {writer} {end}")
    for _ in range(tries(100, 10)):
        stored, expected = "", list[str]()
        for number in range(draw.randint(1, 4)):
            lines = [draw.choice(HOSTILE_LINES) for _ in range(draw.randint(0, 9))]
            if writer == "hostile":  # what no reader could tell from a separator is left out
                lines = [line for line in lines if line not in (VARIANTS["ctime"], ">From the log")]
            body = "".join(line + end for line in [*lines, f"end {number}"])
            quoted = body if writer in ("mboxcl2", "hostile") else re.sub("(?m)^(>*From )", r">\1", body)
            length = f"Content-Length: {len(quoted)}{end}" if "cl" in writer else ""
            header = f"Subject: s{end}{length}{end}"
            stored += f"{VARIANTS[name]}{end}{header}{quoted}{end}"
            if writer == "mboxcl2" and "\nFrom " not in f"\n{body}":  # nothing says that `>` is not the writer's
                body = re.sub("(?m)^>(>*From )", r"\1", body)
            expected.append(header + body)
        found = [record.text for record in mails(stored.encode(), 5000) if isinstance(record, Record)]
        assert [text.split() for text in found] == [text.split() for text in expected], stored


def test_a_false_content_length_is_not_believed() -> None:
    """Too short, too long, beyond the end: the separators decide then."""
    for length in (0, 1, 7, 40, 400):
        first = OPENING + f"Content-Length: {length}\n\nthe first text\n\n".encode()
        assert len(mails(first + OPENING + b"A: b\n\nthe second text\n")) == 2
