"""Mailboxes become a document a mail, whatever stands in them; what cannot be used is a row with a reason."""

from __future__ import annotations

import gzip
import io
import mailbox
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("resiliparse")

from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.formats.mailboxes import mail_records
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.records.records import Record, Refused
from spark_jobs.sources.refusals import Reason, Refusal

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
    import random

    from spark_jobs.sources.opening.gzip_members import GzipMembers

    noise = random.Random(1).randbytes(200_000).hex().encode()
    whole = gzip.compress(OPENING + b"A: b\n\none\n" + OPENING + b"C: d\n\n" + noise)
    stream = GzipMembers(io.BytesIO(whole[: len(whole) // 2]))
    extract = lambda mail: Extracted(mail.decode(), {})  # noqa: E731
    found = list(mail_records(stream, extract, 1_000_000, is_compressed=True))
    assert [one.number for one in found] == [1, 5, None]
    assert isinstance(found[0], Record) and isinstance(found[1], Refused) and isinstance(found[2], Refused)
    assert found[2].refusal.reason == Reason.CORRUPT_ARCHIVE
