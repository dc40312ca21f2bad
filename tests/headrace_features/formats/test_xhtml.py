"""XHTML is read as XML says: what ends where it begins swallows nothing, CDATA is text, and a broken page is HTML."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("resiliparse")

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from headrace_features.formats.web.xhtml import XmlMarkup, extract_xhtml, html_of_xml, xml_markup, xml_tree
from spark_jobs.sources.config.source_config import DocumentsConfig
from spark_jobs.sources.records.extracted import Extracted

Configs = Callable[..., DocumentsConfig]
XHTML, MATHML, SVG = "http://www.w3.org/1999/xhtml", "http://www.w3.org/1998/Math/MathML", "http://www.w3.org/2000/svg"
HEAD = ("base", "link", "meta", "noscript", "script", "style", "template", "title")
BODY = (
    *("a", "abbr", "address", "article", "aside", "audio", "b", "bdi", "bdo", "big", "blockquote", "br", "button"),
    *("canvas", "center", "cite", "code", "data", "del", "details", "dfn", "div", "em", "embed", "fieldset", "figure"),
    *("font", "footer", "form", "h1", "h2", "h6", "header", "hr", "i", "iframe", "img", "input", "ins", "kbd", "label"),
    *(
        "listing",
        "main",
        "map",
        "mark",
        "marquee",
        "nav",
        "nobr",
        "noembed",
        "noframes",
        "noscript",
        "object",
        "ol",
        "p",
    ),
    *(
        "plaintext",
        "pre",
        "q",
        "s",
        "samp",
        "script",
        "section",
        "select",
        "small",
        "span",
        "strike",
        "strong",
        "style",
    ),
    *(
        "sub",
        "sup",
        "svg",
        "table",
        "template",
        "textarea",
        "time",
        "title",
        "tt",
        "u",
        "ul",
        "var",
        "video",
        "wbr",
        "xmp",
    ),
)
DECLARATIONS = ("", '<?xml version="1.0"?>\n', '<?xml version="1.1" encoding="UTF-8" standalone="yes"?>', "\n ")
DOCTYPES = (
    "",
    "<!DOCTYPE html>",
    '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">',
)
SAID = "The harbour master kept a careful ledger of every vessel that came in, and of the weather of each morning. " * 3
PAGE = f'<html xmlns="{XHTML}" xml:lang="en"><head>%s<title>Ledger</title></head><body><p>{SAID}</p>%s</body></html>'


def shown(page: str) -> str:
    """All text that a page shows, read as XHTML."""
    return extract_plain_text(HTMLTree.parse(html_of_xml(page)), main_content=False, preserve_formatting=False)


@pytest.mark.parametrize("seed", range(5))
def test_an_element_that_ends_where_it_begins_swallows_nothing(seed: int) -> None:
    """Every element of HTML, alone and in a row, with any declaration, prefix and attributes, amid texts."""
    rng = random.Random(seed)
    for name in (*BODY, *HEAD):
        prefix = rng.choice(["", "h:"])
        tag = f"{prefix}{name}" + rng.choice(["", ' id="x"', ' class="a &gt; b"', " \n"])
        space = f'xmlns{":" if prefix else ""}{prefix[:-1]}="{XHTML}"'
        p, head, body = (f"{prefix}{each}" for each in ("p", "head", "body"))
        page = f"{rng.choice(DECLARATIONS)}{rng.choice(DOCTYPES)}<{prefix}html {space}><{head}>"
        page += f"<{tag}/>" * rng.randrange(3) if name in HEAD else ""
        page += f"</{head}><{body}><{p}>one</{p}><{tag}/><{p}>two <{prefix}b>three</{prefix}b></{p}>"
        page += f"<{tag}></{prefix}{name}><{p}>four</{p}></{body}></{prefix}html>"
        assert shown(page).split() == ["one", "two", "three", "four"], (name, page)


def test_text_is_what_xml_says_wherever_it_stands() -> None:
    """CDATA, names of HTML, entities of the file, references; in elements of other vocabularies and prefixes too."""
    page = f"""<?xml version="1.0"?><!DOCTYPE html [<!ENTITY me "<b xmlns='{XHTML}'>mine</b>&nbsp;own">]>
    <html xmlns="{XHTML}" xmlns:x="urn:x" xmlns:m="{MATHML}"><head><x:about><x:a>unseen</x:a></x:about><script>
    <![CDATA[if (a < b && "</script>" > "<p>unseen</p>") {{}}]]></script><title>T</title></head><body>
    <p><![CDATA[a < b && c > d &nbsp; <i>]]> &eacute;&hellip;&#233;&#x4E2D; &me; &unheard; &amp;lt; <x:p>kept</x:p></p>
    <!-- &nbsp; unseen --><m:math><m:mi>x</m:mi></m:math> <svg xmlns="{SVG}"><title/><text>drawn</text></svg>
    <pre>
  lines
    kept</pre></body></html>"""
    text = extract_plain_text(HTMLTree.parse(html_of_xml(page.replace(" &unheard;", ""))), main_content=False)
    words = "a < b && c > d &nbsp; <i> é…é中 mine own &lt; kept x drawn lines kept"
    assert " ".join(text.split()) == words and "  lines\n    kept" in text
    external = DOCTYPES[2] + f'<html xmlns="{XHTML}"><body><p>a &unheard; b</p></body></html>'
    assert shown(external).strip() == "a &unheard; b"


def test_what_a_book_has_for_other_readers_is_said_once() -> None:
    """Of the forms of a switch the first that is read; numbers of printed pages are no text."""
    ops = "http://www.idpf.org/2007/ops"
    for cases, said in {
        f'<e:case required-namespace="{MATHML}"><i>formula</i></e:case><e:default>picture</e:default>': "formula",
        '<e:case required-namespace="urn:cml"><i>unseen</i></e:case><e:default><i>picture</i></e:default>': "picture",
    }.items():
        page = f'<html xmlns="{XHTML}" xmlns:e="{ops}"><body><e:switch>{cases}</e:switch> behind</body></html>'
        assert shown(page).split() == [said, "behind"]
    breaks = '<span e:type="pagebreak">12</span>a<span role="doc-pagebreak"><b>13</b></span>b<b e:type="x">c</b>'
    assert shown(f'<html xmlns="{XHTML}" xmlns:e="{ops}"><body>{breaks}</body></html>').strip() == "abc"


@pytest.mark.parametrize(
    "codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "iso-8859-1", "koi8-r", "gbk"]
)
def test_the_encoding_is_that_of_the_declaration(codec: str) -> None:
    """By its mark, by the form of its first tag, or as it says; what a server says goes before."""
    said = {"koi8-r": "Журнал", "gbk": "他在水边走过了桥"}.get(codec, "Où né €"[: 5 if codec == "iso-8859-1" else None])
    label = "utf-16" if codec.startswith("utf-16") else codec.removesuffix("-sig")
    data = f'<?xml version="1.0" encoding="{label}"?><html xmlns="{XHTML}"><body>{said}</body></html>'.encode(codec)
    page = xml_markup(data)
    assert isinstance(page, XmlMarkup) and page.fault is None and f"<body>{said}</body>" in page.markup
    assert page.named_by == ("its bytes" if codec == "utf-8" else "byte order mark" if "utf" in codec else "xml")
    if codec in ("koi8-r", "gbk"):
        sent = xml_markup(data.replace(codec.encode(), b"latin-1"), charset=codec)
        assert isinstance(sent, XmlMarkup) and said in sent.markup and sent.named_by == "http"


FAULTS = (
    "<br>",
    "a & b",
    "<b><i>a</b></i>",
    "<p class=x>a</p>",
    "<p>a",
    "&unheard;",
    "<x:p>a</x:p>",
    "\x01",
    "<!-- -- -->",
)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_not_well_formed_is_html_and_says_so(fault: str) -> None:
    """As pages of strangers often are that call themselves XHTML; nothing of them is lost, empty elements as before."""
    behind = SAID.replace("harbour", "lighthouse") + "a < b && c"
    body = f"{fault}<textarea name='x' disabled=''/><p><![CDATA[{behind}]]></p>"
    found = extract_xhtml((PAGE % ('<script src="a/b.js"\n/><style/>', body)).encode(), "resiliparse")
    assert isinstance(found, Extracted) and SAID.strip() in found.text and behind in found.text
    assert re.search(r"line \d, column \d+", found.metadata["xml_fault"]) and found.metadata["title"] == "Ledger"
    cut = extract_xhtml((PAGE % ("", "")).encode()[:-20], "resiliparse", cut=True)
    assert isinstance(cut, Extracted) and "xml_fault" in cut.metadata


def test_entities_that_grow_without_end_are_no_xml() -> None:
    """And nothing else is read: no file, no address."""
    grow = "".join(f'<!ENTITY e{level + 1} "{f"&e{level};" * 10}">' for level in range(12))
    bomb = f'<!DOCTYPE html [<!ENTITY e0 "ha"> {grow}]>' + PAGE % ("", "<p>&e12;</p>")
    page = xml_markup(bomb.encode())
    assert isinstance(page, XmlMarkup) and page.fault is not None and "amplification" in page.fault
    file = '<!DOCTYPE html [<!ENTITY f SYSTEM "/etc/hostname">]>' + PAGE % ("", "<p>&f;</p>")
    assert shown(file).strip().split("\n")[-1].split()[-1] in ("&f;", "morning.")
    assert xml_tree(b"<a>Tom & Jerry &nbsp;</a>") is not None and xml_tree(b"<a>") is None


def test_files_and_answers_of_xhtml_land(files_config: Configs, data: Path, landing: Any) -> None:
    """By name, by the content type of a record; a page that a server calls HTML is HTML, whatever it begins with."""
    pytest.importorskip("trafilatura")
    declared = '<?xml version="1.0" encoding="UTF-8"?>'
    page = declared + PAGE % ('<script src="a.js"/>', "")
    for name in ("a.xhtml", "b.XHT", "c.html"):
        (data / name).write_text(page)
    records = list[bytes]()
    for number, kind in enumerate(("application/xhtml+xml; charset=utf-8", "text/html")):
        answer = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n{page}".encode()
        head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://x/{number}\r\n"
        records.append(f"{head}Content-Length: {len(answer)}\r\n\r\n".encode() + answer + b"\r\n\r\n")
    (data / "d.warc").write_bytes(b"".join(records))
    documents, arrivals = landing.land(files_config())
    assert {row["path"] for row in documents} == {"a.xhtml", "b.XHT", "d.warc#http://x/0"}
    assert all(SAID.strip() in row["content"] for row in documents)
    lost = {Path(row["location"]).name: row["reason"] for row in arrivals if row["status"] == "rejected"}
    assert list(lost.values()) == ["empty", "empty"] and "c.html" in lost


def test_entities_that_a_broken_page_declares_are_expanded() -> None:
    """Where an entity is not known the page is no XML; its declarations are no text, and what they declare is."""
    declared = """<!ENTITY who "Ada &amp; Co"><!ENTITY % more SYSTEM "x.ent"><!ENTITY sign ']>'>"""
    page = f"<!DOCTYPE html [{declared}]><html><body><p>&who; &sign; &no;</p></body></html>"
    assert "Ada &amp; Co ]&gt; &no;" in str(xml_markup(page.encode()).markup)  # type: ignore[union-attr]
    assert "ENTITY" not in str(xml_markup(page.encode()))
    many = "<!DOCTYPE a [" * 20000
    assert isinstance(xml_markup(f"{many}<p>x".encode()).markup, str)  # type: ignore[union-attr]
