"""A page that a browser saved is read as the page, with what its frames show, in the encodings of its parts."""

from __future__ import annotations

import random
from base64 import encodebytes
from collections.abc import Callable
from pathlib import Path
from quopri import encodestring
from typing import Any

import pytest

pytest.importorskip("resiliparse")

from headrace_features.formats.web.mhtml import extract_mhtml
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Refusal

Configs = Callable[..., DocumentsConfig]
SAID = "The harbour master kept a careful ledger of every vessel that came in, and of the weather of each morning. " * 3
FRAMED = (
    "In spring the lighthouse was painted again, the nets were mended on the quay, and the gulls were counted. " * 3
)
WORDS = {
    "utf-8": "né 他在水边 €",
    "koi8-r": "Журнал начальника порта",
    "shift_jis": "港の記録",
    "windows-1252": "né – “€”",
}


def part(kind: str, body: bytes, encoding: str, *headers: str) -> bytes:
    """A part of a file, with its body in an encoding for transfer."""
    lines = [f"Content-Type: {kind}", f"Content-Transfer-Encoding: {encoding}", *headers]
    sent = {"quoted-printable": encodestring, "base64": encodebytes}.get(encoding, bytes)(body)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + sent.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def saved(parts: list[bytes], parameters: str = 'type="text/html"', head: str = "") -> bytes:
    """A saved page of these parts."""
    border = "----MultipartBoundary--x----"
    headers = (
        "From: <Saved by Blink>\r\nSnapshot-Content-Location: https://port.example/ledger\r\n"
        "Subject: =?utf-8?Q?L=C3=A9dger?=\r\n"
        "Date: Sun, 29 Nov 2026 08:00:00 -0000\r\nMIME-Version: 1.0\r\n"
        f'{head}Content-Type: multipart/related;\r\n\t{parameters};\r\n\tboundary="{border}"\r\n\r\n\r\n'
    )
    body = b"".join(f"--{border}\r\n".encode() + each + b"\r\n" for each in parts)
    return headers.encode() + body + f"--{border}--\r\n".encode()


def page(body: str, head: str = "") -> str:
    """A page of HTML."""
    return f"<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>"


def text_of(data: bytes) -> str:
    """The text of a saved page, one blank between words."""
    found = extract_mhtml(data, "resiliparse")
    assert isinstance(found, Extracted), found
    return " ".join(found.text.split())


@pytest.mark.parametrize("seed", range(20))
def test_the_page_is_read_whatever_stands_around_it(seed: int) -> None:
    """In each encoding of text and transfer; styles, pictures and pages of others before it where `start` names it."""
    rng = random.Random(seed)
    codec, encoding = rng.choice([*WORDS]), rng.choice(["quoted-printable", "base64", "8bit", "binary"])
    label = rng.choice([f"; charset={codec}", f'; charset="{codec.upper()}"', ""])
    meta = f'<meta charset="{codec}">' if not label else rng.choice(["", f'<meta charset="{codec}">'])
    html = page(f"<p>{SAID}</p><p>{WORDS[codec]}, {SAID}</p>", meta).encode(codec)
    kind = rng.choice(["text/html", "application/xhtml+xml"])
    root = part(
        f"{kind}{label}", html, encoding, "Content-ID: <root@x>", "Content-Location: https://port.example/ledger"
    )
    others = [
        part("text/css", b"p { color: unseen }", "8bit", "Content-Location: https://port.example/a.css"),
        part("image/png", rng.randbytes(99), "base64", "Content-Location: https://port.example/a.png"),
        part("text/html", page(f"<p>unseen {FRAMED}").encode(), "8bit", "Content-Location: https://ads.example/"),
    ]
    is_first = rng.random() < 0.5
    parts = [root, *others] if is_first else [*others, root]
    data = rng.choice([b"", b"\r\n"]) + saved(parts, 'type="text/html"' if is_first else 'start="<root@x>"')
    text = text_of(data)
    assert text.count(SAID.strip()) == 2 and WORDS[codec] in text and "unseen" not in text
    found = extract_mhtml(data, "resiliparse")
    assert isinstance(found, Extracted)
    facts = {name: found.metadata[name] for name in ("url", "fetched", "title")}
    date = "Sun, 29 Nov 2026 08:00:00 -0000"
    assert facts == {"url": "https://port.example/ledger", "fetched": date, "title": "Lédger"}


@pytest.mark.parametrize("tag", ["iframe", "frame"])
@pytest.mark.parametrize(
    "source", ["cid:frame-1@mhtml.blink", "https://port.example/inner.html?a=1&amp;b", "inner.html?a=1&amp;b"]
)
def test_frames_show_their_parts(tag: str, source: str) -> None:
    """By id as Chrome writes it, by address as others do; frames in frames too, and a frame of itself once."""
    body = f"<p>{SAID}</p><{tag} src='{source}' width=1></{tag}><p>Behind. {SAID}</p>"
    if tag == "frame":
        body = f'<frameset cols="1,2"><frame src="none.html"><frame name=x src="{source}"></frameset>'
    inner = page(f'<p>{FRAMED}</p><iframe src="cid:deep@x"></iframe>', "<title>unseen</title>")
    deep = page(f'<p>Deeper. {FRAMED}</p><iframe src="cid:deep@x"></iframe>')
    html = f"<html><head><title>L</title></head>{body}</html>" if tag == "frame" else page(body)
    location = "Content-Location: https://port.example/inner.html?a=1&b"
    data = saved(
        [
            part(
                "text/html; charset=utf-8", html.encode(), "quoted-printable", "Content-Location: https://port.example/"
            ),
            part("text/html", inner.encode(), "quoted-printable", "Content-ID: <frame-1@mhtml.blink>", location),
            part("text/html", deep.encode(), "base64", "Content-ID: <deep@x>"),
        ]
    )
    text = text_of(data)
    said = [FRAMED, f"Deeper. {FRAMED}"] if tag == "frame" else [SAID, FRAMED, f"Deeper. {FRAMED}", f"Behind. {SAID}"]
    assert text == "".join(said).strip()


def test_saved_pages_land(files_config: Configs, data: Path, landing: Any) -> None:
    """By both extensions; a page alone, one that was cut, one whose declared UTF-16 has no mark; others say why not."""
    root = part("text/html; charset=utf-8", page(f"<p>{SAID}</p>").encode(), "quoted-printable")
    alone = b"MIME-Version: 1.0\r\n" + root
    files = {
        "a.mhtml": saved([root]),
        "b.MHT": alone,
        "c.mht": saved([root])[:-40],
        "d.mht": saved([part('text/html; charset="unicode"', page(f"<p>{SAID}</p>").encode("utf-16-le"), "base64")]),
        "empty.mht": b"",
        "picture.mht": saved([part("image/png", b"x", "base64")]),
        "page.mht": b"<html><body><p>no headers",
    }
    for name, content in files.items():
        (data / name).write_bytes(content)
    documents, arrivals = landing.land(files_config(extractor="resiliparse"))
    assert {row["path"]: row["content"] for row in documents} == dict.fromkeys(list(files)[:4], SAID.strip())
    reasons = {row["path"]: row["reason"] for row in arrivals if row["status"] == "rejected"}
    assert reasons == {"empty.mht": "corrupt_file", "picture.mht": "empty", "page.mht": "corrupt_file"}


def test_a_page_of_endless_frames_ends() -> None:
    """Two frames that show each other twice each grow no further than what a page may hold of them."""
    frames = ["".join(f'<iframe src="cid:{name}@x"></iframe>' for name in "abc") for _ in range(3)]
    parts = [part("text/html", page(f"<p>{SAID}</p>{frames[0]}").encode(), "8bit")]
    parts += [
        part("text/html", page(f"<p>{name}</p>{frames[0]}").encode(), "8bit", f"Content-ID: <{name}@x>")
        for name in "abc"
    ]
    assert not isinstance(extract_mhtml(saved(parts), "resiliparse"), Refusal)


WRITERS: dict[str, tuple[bytes, bytes]] = {
    "by another type": (b"Content-Type: text/html", b"Content-Type: application/octet-stream"),
    "as XML": (b"Content-Type: text/html", b"Content-Type: text/xml"),
    "without a type": (b"Content-Type: text/html; charset=utf-8\r\n", b""),
    "without an end": (b"--b--", b""),
    "padded": (b"=\r\n", b"= \t\r\n"),
    "cut in a letter": (b"=C3=A9", b"=C3=\r\n=A9"),
    "with a mark": (b"MIME-Version", b"\xef\xbb\xbfMIME-Version"),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_pages_are_known_by_what_they_are(writer: str) -> None:
    """Parts that say nothing or something else of themselves, padded line breaks, a mark before all."""
    old, new = WRITERS[writer]
    page = f"<html><head><title>T</title></head><body><p>né {SAID}</p></body></html>".encode()
    body = part("text/html; charset=utf-8", page, "quoted-printable")
    data = (
        b'MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary="b"\r\n\r\n--b\r\n' + body + b"\r\n--b--\r\n"
    )
    assert old in data
    saved = extract_mhtml(data.replace(old, new), "both")
    assert isinstance(saved, Extracted), saved
    assert saved.text.startswith("né The harbour") and saved.metadata["title"] == "T"
