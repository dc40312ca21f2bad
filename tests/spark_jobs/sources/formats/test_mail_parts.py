"""Every text that a mail shows is in its document once, in order, whatever its parts and encodings."""

from __future__ import annotations

import base64
import codecs
import encodings.aliases
import io
import quopri
import random

import pytest

pytest.importorskip("docx")
pytest.importorskip("resiliparse")

from spark_jobs.sources.encodings.page_encoding import DecodedPage, decode_page
from spark_jobs.sources.formats.mail import extract_mail
from spark_jobs.sources.formats.mailboxes import mail_records
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.records.records import Record
from spark_jobs.sources.refusals import Reason, Refusal
from tests.tiers import tries

LETTERS = {"utf-7": "éあ中", "hz": "中", "iso-2022-kr": "가", "iso-2022-jp-2": "é中あ"}
HEAD = "Subject: s\nMessage-ID: <1@x.org>\nMIME-Version: 1.0\n"


class MailMaker:
    """Random trees of parts; `words` are those that a reader of the mail sees, in order."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.words = list[str]()
        self.count = self.attachment_count = 0

    def part(self, depth: int, is_read: bool = True) -> str:
        """A part with its headers."""
        if depth == 0 or self.rng.random() < 0.35:
            return self.leaf(is_read)
        kind = self.rng.choice(["mixed", "mixed", "alternative", "related", "signed", "report", "digest", "rfc822"])
        if kind == "rfc822":
            return f"Content-Type: message/rfc822\n\nFrom: hidden@x.org\n{self.part(depth - 1, is_read)}"
        if kind == "digest":
            return self.multi(kind, [f"\nFrom: hidden@x.org\n{self.part(depth - 1, is_read)}" for _ in range(2)])
        if kind == "related":
            root = self.part(depth - 1, is_read)
            return self.multi(kind, [root, self.picture(is_read), self.resource(is_read), self.leaf(is_read)])
        if kind == "alternative":
            has_plain = self.rng.random() < 0.7
            plain = self.text("plain", is_read) if has_plain else "Content-Type: text/plain\n\n \n"
            page = self.text("html", is_read and not has_plain)
            return self.multi(kind, [plain, page, self.text("calendar", False)][:: self.rng.choice([1, -1])])
        parts = [self.part(depth - 1, is_read) for _ in range(self.rng.randrange(1, 4))]
        return self.multi(kind, parts + ([self.attachment(is_read)] if self.rng.random() < 0.5 else []))

    def multi(self, kind: str, parts: list[str]) -> str:
        """Parts with a boundary of their own."""
        self.count += 1
        mark = f"=_{self.count}"
        inner = "".join(f"--{mark}\n{part}\n" for part in parts)
        return f'Content-Type: multipart/{kind}; boundary="{mark}"\n\nnot shown\n{inner}--{mark}--\nnor this\n'

    def leaf(self, is_read: bool) -> str:
        """A text, a picture or an attachment."""
        if self.rng.random() < 0.7:
            return self.text(self.rng.choice(["plain", "plain", "html", "markdown"]), is_read)
        return self.rng.choice([self.picture, self.attachment])(is_read)

    def text(self, subtype: str, is_read: bool, disposition: str | None = None) -> str:
        """A text of one word."""
        self.count += 1
        word = f"word{self.count}x"
        if is_read and disposition is None:
            self.words.append(word)
        shown = ["", "Content-Disposition: inline\n", 'Content-Disposition: inline; filename="a.txt"\n']
        place = disposition or self.rng.choice(shown)
        charset = self.rng.choice(["us-ascii", "utf-8", "iso-8859-1", "cp850", "x-none", *LETTERS])
        letters = LETTERS.get(charset, "" if charset in ("us-ascii", "x-none") else "é")
        body = f"{letters} {word} {letters}\n"
        body = f"<p>{body}</p>" if subtype == "html" and self.rng.random() < 0.8 else body
        raw = body.encode("ascii" if charset == "x-none" else charset)
        coding = self.rng.choice(["base64", "quoted-printable", "7bit" if raw.isascii() else "8bit"])
        encode = {"base64": base64.encodebytes, "quoted-printable": quopri.encodestring}.get(coding, bytes)
        head = f"Content-Type: text/{subtype}; charset={charset}\nContent-Transfer-Encoding: {coding}\n"
        return f"{head}{place}\n{encode(raw).decode('latin1')}\n"

    def picture(self, is_read: bool) -> str:
        """A picture that is shown."""
        self.attachment_count += is_read
        return "Content-Type: image/png\nContent-Disposition: inline\nContent-ID: <p@x>\n\niVBORw0KGgo=\n"

    def resource(self, is_read: bool) -> str:
        """A style sheet that a page names."""
        self.attachment_count += is_read
        return "Content-Type: text/css\nContent-ID: <s@x>\n\nhidden {}\n"

    def attachment(self, is_read: bool) -> str:
        """A text that is not shown."""
        self.attachment_count += is_read
        return self.text("plain", is_read, 'Content-Disposition: attachment; filename="a.txt"\n')


def test_every_shown_text_is_read_once_in_order() -> None:
    """Random trees: mixed, related, alternative, signed, forwarded; alone and in a mailbox."""
    for seed in range(tries(3000, 100)):
        maker = MailMaker(seed)
        data = (HEAD + maker.part(maker.rng.randrange(4))).encode("latin1")
        found = extract_mail(data)
        box = list(mail_records(io.BytesIO(b"From x Thu Nov 12 09:00:00 2026\n" + data), extract_mail, 1 << 20, False))
        if not maker.words:
            assert isinstance(found, Refusal) and found.reason == Reason.EMPTY, seed
            continue
        assert isinstance(found, Extracted) and isinstance(box[0], Record), (seed, found)
        for text in (found.text, box[0].text):
            assert [word for word in text.split() if word.startswith("word")] == maker.words, seed
            assert "hidden" not in text and "shown" not in text
        if "Content-Type: multipart/alternative" not in data.decode("latin1"):
            assert found.metadata["attachment_count"] == str(maker.attachment_count), seed


def ascii_codecs() -> list[str]:
    """Codecs of Python that write a and letters beyond ASCII in bytes of ASCII."""
    found = []
    for codec in sorted(set(encodings.aliases.aliases.values())):
        for letter in "éあ中가":
            try:
                if f"a{letter}".encode(codec).isascii():
                    found.append(codec)
                    break
            except (LookupError, UnicodeError):
                continue
    return found


@pytest.mark.parametrize("codec", [*ascii_codecs(), "unicode_escape", "raw_unicode_escape", "punycode"])
@pytest.mark.parametrize("subtype", ["plain", "html"])
def test_a_declared_encoding_whose_bytes_are_ascii_is_used(codec: str, subtype: str) -> None:
    """Of every such codec, by each of its labels, in a text and in a page."""
    said = "".join(letter for letter in "éあ中가" if is_written(letter, codec)) * 3
    for label in (codec, *(alias for alias, of in encodings.aliases.aliases.items() if of == codec)):
        body = (f"<p>{said}" if subtype == "html" else said).encode(codec)
        found = extract_mail(f"Subject: s\nContent-Type: text/{subtype}; charset={label}\n\n".encode() + body)
        assert isinstance(found, Extracted) and found.text.strip() == said, (label, found)


def is_written(letter: str, codec: str) -> bool:
    """Whether a codec writes a letter, in ASCII."""
    try:
        return letter.encode(codec).isascii() and codecs.decode(letter.encode(codec), codec) == letter
    except UnicodeError:
        return False


def test_what_a_mail_declares_falsely_does_not_count() -> None:
    """Bytes that are UTF-8, or that the declared codec does not take; a page of the web is never read as UTF-7."""

    def text(charset: str, body: bytes) -> str | Refusal:
        found = extract_mail(f"Subject: s\nContent-Type: text/plain; charset={charset}\n\n".encode() + body)
        return found.text if isinstance(found, Extracted) else found

    assert text("utf-7", "größe".encode()) == "größe"
    assert text("utf-7", b"a +! b") == "a +! b"
    assert text("utf-7", b"+2AA-") == "+2AA-"  # a lone surrogate
    assert text("ibm037", b"plain") == text("hex", b"plain") == text("undefined", b"plain") == "plain"
    assert text("cp850", "größe".encode("cp850")) == "größe"
    refused = text("iso-2022-cn", b"\x1b$)A\x0e=;;;\x0f")
    assert isinstance(refused, Refusal) and refused.reason == Reason.UNDECODABLE
    hidden = b"<meta charset=utf-7><p>+ADw-script+AD4-"
    for label in (None, "utf-7"):
        page = decode_page(hidden, label)
        assert isinstance(page, DecodedPage) and page.text == hidden.decode()


def shown(kind: str, body: str, coding: str = "8bit") -> str:
    """The text of a mail of one part."""
    head = f"Subject: s\nContent-Type: text/{kind}; charset=utf-8\nContent-Transfer-Encoding: {coding}\n\n"
    found = extract_mail((head + body).encode())
    assert isinstance(found, Extracted)
    return found.text


def test_base64_with_the_footer_of_a_list_keeps_both() -> None:
    """Of texts of every length, with and without a blank line between."""
    for size in range(1, 200):
        text = "the harbour master " * 10
        body = base64.encodebytes(text[:size].encode()).decode()
        for footer in ("\n-- \nlist footer, added\n", "_______\nlist mailing list\n"):
            assert shown("plain", body + footer, "base64").split() == (text[:size] + "\n" + footer).split()


def test_enriched_text_is_rendered() -> None:
    """Commands are left out, `<<` is `<`."""
    assert shown("enriched", "<bold>Bold</bold> <color><param>red</param>red</color> << b.").strip() == "Bold red < b."
    assert shown("richtext", "<bold>Bold</bold> text<nl>a <lt> b").strip() == "Bold text\na < b"


HIDING = ["display:none;", "visibility: hidden", "font-size:0px", "max-height:0", "MSO-HIDE: all", "opacity:0"]


@pytest.mark.parametrize("hiding", [*(f'style="{style}"' for style in HIDING), "hidden"])
@pytest.mark.parametrize("tag", ["div", "span", "p"])
def test_hidden_parts_of_a_page_are_no_text(tag: str, hiding: str) -> None:
    """Whatever hides them, nested too; what is small or half transparent is seen."""
    body = (
        f"<{tag} {hiding}>secret <b style='display:none'>x</b></{tag}><p style='font-size:0.9em;opacity:0.5'>Seen</p>"
    )
    assert shown("html", body).strip() == "Seen"
