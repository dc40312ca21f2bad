"""Every text that a mail shows is in its document once, in order, whatever its parts and encodings."""

from __future__ import annotations

import base64
import binascii
import codecs
import encodings.aliases
import io
import quopri
import random
import textwrap

import pytest

pytest.importorskip("docx")
pytest.importorskip("resiliparse")

from headrace_features.formats.mail import extract_mail
from headrace_features.formats.mailboxes import mail_records
from spark_jobs.sources.encodings.page_encoding import DecodedPage, decode_page
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.records.records import Record
from spark_jobs.sources.refusals import Reason, Refusal
from tests.tiers import sampled, tries

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


@pytest.mark.nightly
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


def mail_of(kind: str, body: bytes, coding: str = "8bit") -> Extracted:
    """A mail of one part."""
    head = f"Subject: s\nMIME-Version: 1.0\nContent-Type: text/{kind}\nContent-Transfer-Encoding: {coding}\n\n"
    found = extract_mail(head.encode() + body)
    assert isinstance(found, Extracted), found
    return found


FOOTERS = [
    "_______________\nListe für Häfen\nhttps://x.org/?u=ab12",
    "tide\nlist, sent by the harbour",
    "MailingList\nfür alle",
]


@sampled()
@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1", "koi8-r"])
@pytest.mark.parametrize("coding", ["base64", "quoted-printable"])
def test_a_footer_behind_code_is_read_as_it_stands(coding: str, charset: str) -> None:
    """Also in another encoding than the text, with words that could be base64, behind texts of every length."""
    letters = "как это" if charset == "koi8-r" else "größer"
    for size in random.Random(f"{coding} {charset}").sample(range(2, 200), tries(198, 30)):
        text = (f"{letters} = the harbour master " * 12)[:size].rstrip() + "."
        raw = text.encode(charset)
        code = base64.encodebytes(raw) if coding == "base64" else quopri.encodestring(raw) + b"\n"
        for footer in FOOTERS[: 3 if coding == "base64" else 1]:
            for gap in (b"", b"\n"):
                found = mail_of(f"plain; charset={charset}", code + gap + footer.encode(), coding)
                assert found.text.split() == f"{text} {footer}".split(), (size, footer, gap)


def test_flowed_lines_are_paragraphs() -> None:
    """Random paragraphs under quotes, wrapped by RFC 3676 with and without DelSp; a signature stays a line."""
    for seed in range(tries(2000, 200)):
        draw = random.Random(seed)
        deletes = draw.random() < 0.5
        stored, expected, depth = list[str](), list[str](), 0
        for _ in range(draw.randint(1, 5)):
            depth = draw.choice([level for level in (0, 1, 2, 3) if level != depth])  # else two would be one
            words = [draw.choice(["tide", ">mark", "From", "the", "潮汐", "--"]) for _ in range(draw.randint(1, 30))]
            paragraph = " ".join(words)
            lines = textwrap.wrap(paragraph, 30, break_long_words=False, break_on_hyphens=False)
            flowed = [line + (" " if deletes else "") + " " for line in lines[:-1]] + lines[-1:]
            stored += [">" * depth + (" " if depth or line[0] in "> F" else "") + line for line in flowed]
            expected.append(">" * depth + (" " if depth else "") + paragraph)
        stored += ["-- ", "Ada"]
        expected += ["-- ", "Ada"]
        end = draw.choice(["\n", "\r\n"])
        kind = "plain; charset=utf-8; format=Flowed" + ("; DelSp=Yes" if deletes else "")
        assert mail_of(kind, end.join(stored).encode()).text == "\n".join(expected), stored
    assert mail_of("plain", b"not \nflowed").text == "not \nflowed"


def uuencoded(data: bytes, begin: bool = True) -> bytes:
    """A file as uuencode writes it."""
    code = b"".join(binascii.b2a_uu(data[at : at + 45]) for at in range(0, len(data), 45))
    return b"begin 644 tide.gif\n" + code + b"`\nend\n" if begin else code


def test_files_inside_of_a_text_are_left_out_and_counted() -> None:
    """uuencode, whole and in pieces, base64 of uuencode, and yEnc; prose that begins so is kept."""
    for seed in range(tries(500, 60)):
        draw = random.Random(seed)
        data = draw.randbytes(draw.randint(1, 900))
        yenc = b"=ybegin line=128 size=9 name=a.gif\n" + bytes(range(128, 250)) + b"\n=yend size=9\n"
        code = b"begin-base64 644 a.gif\n" + base64.encodebytes(data) + b"====\n"
        forms = [uuencoded(data), uuencoded(draw.randbytes(450), begin=False), yenc, code]
        kinds = draw.choices(forms, k=draw.randint(0, 3))
        body = b"".join(b"Text before.\nbegin 644 words of mine\n\n" + form for form in kinds) + b"M and the end.\n"
        found = mail_of("plain; charset=utf-8", body)
        assert found.text == "Text before.\nbegin 644 words of mine\n\n" * len(kinds) + "M and the end.\n"
        assert found.metadata["attachment_count"] == str(len(kinds))


def test_styles_hide_as_in_browsers() -> None:
    """By classes, ids, elements and what stands inside; the stronger rule wins; other screens do not count."""
    rules = {
        ".x{display:none}": True,
        "#y , p.none { visibility : hidden }": True,
        "div .x{font-size:0}": True,
        "table .x{display:none}": False,
        "@media screen{.x{DISPLAY:none !important}}": True,
        "@media (max-width:600px){.x{display:none}}": False,
        "@media print{.x{display:none}} .z{color:red}": False,
        ".x{display:none} div.x{display:block}": False,
        "div.x{display:none} .x{display:block}": True,
        ".x{display:none!important} #y{display:block}": True,
        "/* .x{display:none} */ .x{color:#fff;background:#fff}": False,
        ".x{height:0;width:0;overflow:hidden}": True,
        ".x{height:0;width:0}": False,
        ".x:hover, u + .x {display:none}": False,
        "@import url(a.css); .x{opacity:.0}": True,
        "<!-- .x{max-height:0px} -->": True,
        ".x{max-font-size:0; line-height:0}": False,
    }
    for rule, is_hidden in rules.items():
        page = f"<head><style>{rule}</style></head><div><div class='a x' id=y>part</div></div><p>Seen</p>"
        assert shown("html", page).split() == (["Seen"] if is_hidden else ["part", "Seen"]), rule
    inline = "<style>.x{display:none}</style><div class=x style='display:block'>part</div>"
    assert shown("html", inline).strip() == "part"
    small = "<td style='font-size:0px'><div style='font-size:13px'>part</div>lost</td>"  # as MJML writes all texts
    assert shown("html", f"<table><tr>{small}</tr></table>").strip() == "part"
    assert (
        shown("html", "<p style='visibility:hidden'>lost<b style='visibility:visible'>part</b></p>").strip() == "part"
    )


def test_a_richer_text_is_read_where_nothing_better_stands_beside_it() -> None:
    """Of text/enriched, a page, a plain text and a calendar, in any order."""
    parts = {"enriched": "<bold>rich</bold>", "html": "<p>page</p>", "plain": "plain", "calendar": "BEGIN:VCALENDAR"}
    for seed in range(100):
        draw = random.Random(seed)
        kinds = draw.sample(sorted(parts), draw.randint(1, 4))
        inner = "".join(f"--b\nContent-Type: text/{kind}\n\n{parts[kind]}\n" for kind in kinds)
        found = extract_mail(
            f'Subject: s\nContent-Type: multipart/alternative; boundary="b"\n\n{inner}--b--\n'.encode()
        )
        best = next(kind for kind in ("plain", "html", "enriched", "calendar") if kind in kinds)
        assert isinstance(found, Extracted)
        assert found.text.strip() == {"enriched": "rich", "html": "page"}.get(best, parts[best]), kinds
