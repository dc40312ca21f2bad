"""The blocks of a page: each has all of its text, of every script, length and element, in order and once."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("resiliparse")

from resiliparse.parse.html import DOMNode, HTMLTree, NodeType

from headrace_features.formats.web.html import extract_page
from headrace_features.formats.web.list_marks import ordinal
from headrace_features.formats.web.page_blocks import page_blocks
from spark_jobs.sources.records.extracted import Extracted
from tests.tiers import tries

LETTERS = {
    "latin": "aZé€",
    "greek": "αλΩώ",
    "cyrillic": "яжЁў",
    "arabic": "عربي",
    "hebrew": "שלום",
    "devanagari": "कखगघ",
    "thai": "กขคง",
    "han": "水男一章",
    "kana": "はをのン",
    "hangul": "가나다라",
    "signs": "–—…„",
    "digits": "१२三٤",
    "beyond the plane": "𠀀𝐀🜁𐍈",
}
INLINE = ("a href=x", "b", "i", "em", "span", "code", "font", "small", "u", "abbr", "x-own")
BLOCKS = ("p", "li", "h2", "td", "dd", "div", "blockquote", "section", "pre")
UNSEEN = {
    "head",
    "script",
    "style",
    "iframe",
    "noembed",
    "template",
    "title",
    "textarea",
    "select",
    "datalist",
    "button",
    "rp",
    "del",
}
FORMULAS = {
    "MathML with TeX": "<math><semantics><mi>q</mi><annotation encoding='application/x-tex'>q=m c</annotation>"
    "</semantics></math>",
    "MathML": "<math><mi>q</mi><mo>=</mo><mi>m</mi><mi>c</mi></math>",
    "MathML with alttext": "<math alttext='q=m c'><mi>q</mi></math>",
    "KaTeX": "<span class=katex><span class=katex-mathml><math><semantics><mi>q</mi><annotation "
    "encoding='application/x-tex'>q=m c</annotation></semantics></math></span><span class=katex-html "
    "aria-hidden=true><span class=mord>q=m c</span></span></span>",
    "Wikipedia": "<span class='mwe-math-element'><span class='mwe-math-mathml-inline' style='display: none;'><math "
    "alttext='{\\displaystyle q=m c}'><semantics><mi>q</mi><annotation encoding='application/x-tex'>{\\displaystyle "
    "q=m c}</annotation></semantics></math></span><img class='mwe-math-fallback-image-inline' aria-hidden=true "
    "alt='{\\displaystyle q=m c}'></span>",
    "a picture": "<img class='latex tex' alt='q=m c' src=x>",
    "MathJax 2": "<span class=MathJax_Preview>q=m c</span><span class=MathJax id=m1><nobr>q=m c</nobr></span>"
    "<script type='math/tex' id=m2>q=m c</script>",
    "MathJax 2, MathML": "<script type='math/mml'><math><mi>q</mi><mo>=</mo><mi>m</mi><mi>c</mi></math></script>",
    "MathJax 3": "<mjx-container><mjx-math aria-hidden=true><mjx-mi>q=m c</mjx-mi></mjx-math><mjx-assistive-mml>"
    "<math><mi>q</mi><mo>=</mo><mi>m</mi><mi>c</mi></math></mjx-assistive-mml></mjx-container>",
    "saved MathJax": "<span class=MathJax data-mathml='<math><mi>q</mi><mo>=</mo><mi>m</mi><mi>c</mi></math>'>q=m c"
    "</span>",
    "an attribute": "<span class=ztext-math data-tex='q=m c'><span>q=m c</span></span>",
    "delimited text": "\\(q=m c\\)",
}
DRAWN = {"MathML", "MathJax 2, MathML", "MathJax 3", "saved MathJax"}  # without TeX


def blocks_of(body: str, readings: bool = True) -> list[str]:
    """The texts of a body's blocks."""
    tree = HTMLTree.parse(f"<!DOCTYPE html><html><head><title>t</title></head><body>{body}</body></html>")
    assert tree.document is not None
    return [block.text for block in page_blocks(tree.document.html, readings)]


def bare(text: str) -> str:
    """A text without white space and bullets."""
    return re.sub(r"[\s•]+", "", text)


def node_texts(node: DOMNode) -> str:
    """The text nodes that browsers show, by a walk over the tree."""
    if node.type == NodeType.TEXT:
        value = node.value or ""
        return "" if len(value) == 1 and "\ue000" <= value <= "\uf8ff" else value
    if node.type == NodeType.ELEMENT:
        style = (node.get_attribute("style") or "").replace(" ", "").lower()
        if node.tag in UNSEEN or node.hasattr("hidden") or "display:none" in style or "visibility:hidden" in style:
            return ""
    texts, child = [], node.first_child
    while child is not None:
        texts.append(node_texts(child))
        child = child.next
    return "".join(texts)


@pytest.mark.parametrize("script", LETTERS)
def test_no_text_is_lost_by_its_length_or_place(script: str) -> None:
    """One to three letters of every script, in inline elements of every block, beside others and alone."""
    rng = random.Random(script)
    for block in BLOCKS:
        for size in (1, 2, 3):
            pieces = []
            for _ in range(tries(12, 4)):
                text = "".join(rng.choices(LETTERS[script], k=size))
                tag = rng.choice((*INLINE, ""))
                pieces.append(f"<{tag}>{text}</{tag.split()[0]}>" if tag else text)
            inner = "".join(pieces)
            body = (
                f"<table><tr><{block}>{inner}<td>{pieces[0]}</table>"
                if block == "td"
                else f"<{block}>{inner}</{block}>"
            )
            wanted = bare(re.sub(r"<[^>]*>", "", body))
            assert bare("".join(blocks_of(body))) == wanted, body


def test_content_that_is_no_markup_hides_no_text() -> None:
    """Scripts, styles, frames, `xmp` and comments of each other's tags, against a walk over the tree."""
    rng = random.Random(5)
    names = ("script", "style", "iframe", "noembed", "textarea", "xmp")
    bits = [f"<{slash}{name}{end}" for name in names for slash in ("", "/") for end in (">", " x>", "")]
    bits += ["<!--", "-->", "--!>", "<!-->", "<b>", "</b>", "a", '"', "&amp;", "<", "-", "]]>"]
    for _ in range(tries(3000, 600)):
        parts = []
        for word in ("one", "two", "three", "four"):
            inner = "".join(rng.choices(bits, k=rng.randint(0, 5)))
            name = rng.choice(names)
            parts.append(f"<p>{word}<{name} title='>'>{inner}</{name}>" if rng.random() < 0.7 else f"<!--{inner}-->")
        tree = HTMLTree.parse("<body>" + "".join(parts))
        assert tree.document is not None and tree.body is not None
        texts = "".join(block.text for block in page_blocks(tree.document.html))
        assert bare(texts) == bare(node_texts(tree.body)), parts


@pytest.mark.parametrize("extractor", ["both", "resiliparse", "trafilatura"])
def test_kept_blocks_are_whole_whoever_keeps_them(extractor: str) -> None:
    """Single letters inside paragraphs come out of the page, by every extractor."""
    rng = random.Random(1)
    words = ("the", "harbour", "master", "kept", "a", "careful", "ledger", "of", "every", "vessel", "northern", "route")
    for script, letters in LETTERS.items():
        said = lambda: " ".join(rng.choices(words, k=20))  # noqa: E731
        parts = [f"{said()} <b>{letter}</b>{letters[0]}<i>{letter}</i> {said()}." for letter in letters]
        body = "<nav><a href=/>Home</a> <a href=/b>About us</a></nav><main><h1>The ledger</h1>"
        body += "".join(f"<p>{part}</p>" for part in parts) + "</main>"
        page = extract_page(f"<html><head><meta charset=utf-8></head><body>{body}</body></html>".encode(), extractor)
        assert isinstance(page, Extracted)
        for part in parts:
            assert re.sub(r"<[^>]*>", "", part) in page.text, (script, part)


@pytest.mark.parametrize("form", FORMULAS)
def test_a_formula_is_written_once(form: str) -> None:
    """As TeX where the page has it, whatever draws it."""
    for around in ("p", "li", "h2", "td"):
        body = f"<{around}>It is {FORMULAS[form]} here.</{around}>"
        (text,) = blocks_of(f"<table><tr>{body}</table>" if around == "td" else body)
        assert bare(text).count("q=mc") == 1, text
        assert ("m c" in text) == (form not in DRAWN), text


def test_raised_digits_touch_no_digits() -> None:
    """Whatever stands around and between; words that end in raised letters stay words."""
    rng = random.Random(3)
    for _ in range(tries(300, 60)):
        numbers = [str(rng.randint(0, 999)) for _ in range(3)]
        wrap = rng.choice(("{}", "<b>{}</b>", "<i><b>{}</b></i>"))
        raised = f"<sup>{wrap.format(numbers[1])}</sup>"
        body = f"<p>{rng.choice(('{}', '<i>{}</i>')).format(numbers[0])}{raised}{numbers[2]}</p>"
        (text,) = blocks_of(body)
        assert re.findall(r"\d+", text) == numbers, (body, text)
    wanted = {
        "10<sup>23</sup>": "10^23",
        "10<sup>-3</sup> m": "10^-3 m",
        "6.02 × 10<sup>23</sup> of H<sub>2</sub>O": "6.02 × 10^23 of H2O",
        "2<sup>n+1</sup>": "2^(n+1)",
        "m<sup>2</sup>": "m^2",
        "1<sup>st</sup> M<sup>me</sup>": "1st Mme",
        "2<sup>n</sup>": "2^n",
        "a<sup>[1]</sup>": "a[1]",
        "1<sup>1</sup>/<sub>2</sub>": "1 1/2",
        "<sup>14</sup>C": "14C",
        "10<sub>2</sub>": "10_2",
        "Ca<sup>2+</sup>": "Ca^2+",
        "x<sup>2<sup>3</sup></sup>": "x^(2^3)",
        "10<span style='vertical-align: super'>2</span>3": "10^2 3",
        "x<span style='Vertical-Align:Sub'>12</span>3": "x_12 3",
        "1<sup>2<sub>3</sub>4</sup>5": "1^(2_3 4) 5",
    }
    for body, text in wanted.items():
        assert blocks_of(f"<p>{body}</p>") == [text]


def test_lists_keep_their_numbers() -> None:
    """`start`, `reversed`, `value` and `type`, in lists inside of lists."""
    wanted = {
        "<ol><li>a<li>b</ol>": ["1. a", "2. b"],
        "<ol start=5><li>a<li>b</ol>": ["5. a", "6. b"],
        "<ol reversed><li>a<li>b<ul><li>x</ul><li>c</ol>": ["3. a", "2. b", "  • x", "1. c"],
        "<ol reversed><li>a<li hidden>x<template><li>y</template><li>b</ol>": ["2. a", "1. b"],
        "<ol reversed start=9><li>a<li value=4>b<li>c</ol>": ["9. a", "4. b", "3. c"],
        "<ol start=-1><li>a<li>b<li>c</ol>": ["-1. a", "0. b", "1. c"],
        "<ol type=a start=26><li>a<li>b</ol>": ["z. a", "aa. b"],
        "<ol type=I start=4><li>a<li><p>b</p></ol>": ["IV. a", "V. b"],
        "<ul><li>a</ul>": ["• a"],
    }
    for body, texts in wanted.items():
        assert blocks_of(body) == texts
    assert [ordinal(number, "i") for number in (0, 1944, 4000)] == ["0", "mcmxliv", "4000"]
    assert len({ordinal(number, "a") for number in range(1, 2000)}) == 1999


def test_what_browsers_show_is_text_and_nothing_else() -> None:
    """Hidden parts, dialogs, noscript, fields, edits, quotes, ruby and kept lines."""
    wanted = {
        "<p>a</p><div hidden>b</div><p style='display:none'>c</p><p style='visibility: hidden'>d</p>": ["a"],
        "<p hidden=until-found>a</p>": ["a"],
        "<dialog>a</dialog><dialog open>b</dialog>": ["b"],
        "<noscript><p>a</p></noscript>": ["a"],
        "<div popover>a</div><dialog popover>b</dialog><dialog popover open>c</dialog>": ["c"],
        "<math><mtext>a&nbsp;<b>b</b></mtext></math>": ["a b"],
        "<p>a <del>b</del><ins>c</ins> <s>d</s></p>": ["a c d"],
        "<p>He said <q>no <q>never</q> again</q>.</p>": ["He said “no ‘never’ again”."],
        "<p>a<button>b</button><textarea>c</textarea><select><option>d</select></p>": ["a"],
        "<xmp><b>a</b>\n  c &amp;</xmp>": ["<b>a</b>\n  c &amp;"],
        "<listing>a\n b</listing><pre>\nc\n\n  d</pre><pre>  <b>e</b></pre>": ["a\n b", "c\n\n  d", "  e"],
        "<p>a<br>b <br> c</p>": ["a\nb\nc"],
        "<p style='white-space:pre'>a\n  b</p>": ["a\n  b"],
        "<p>a<script>b</script><style>c</style>d</p>": ["ad"],
        "<p>a<script>document.write('<script>b</'+'script>')</script>c</p>": ["ac"],
        "<p>a<script><!--<script>b</script>--></script>c</p>": ["ac"],
        "<p>a &amp;lt; b&nbsp;c &lt;b&gt;</p>": ["a &lt; b\u00a0c <b>"],
        "<p title='a > b < c'>d</p>": ["d"],
        "<a\u3000href=x>a\u3000b</a>": ["a\u3000b"],
        "<plaintext><b>a</b></plaintext>&amp;": ["<b>a</b></plaintext>&amp;</body></html>"],
        "<script type='MATH/TeX'>a</script>": ["$a$"],
        "<script type='math/tex'>% <![CDATA[\na %]]></script>": ["$a$"],
        "<h2>a <a class=headerlink href=#a>¶</a></h2><p>¶ 3</p>": ["a", "¶ 3"],
        "<p>\ue001</p><p>a</p>": ["a"],
        "<table><tr><td>a<td><p>b</p><td>c</table>": ["a", "b", "c"],
    }
    for body, texts in wanted.items():
        assert blocks_of(body) == texts, body


def test_ruby_is_base_and_reading() -> None:
    """In one or several pairs, with brackets of its own or without; or the base alone."""
    forms = (
        "<ruby>東京<rt>とうきょう</rt></ruby>",
        "<ruby>東<rt>とう</rt>京<rt>きょう</rt></ruby>",
        "<ruby>東京<rp>(</rp><rt>とうきょう</rt><rp>)</rp></ruby>",
        "<ruby><rb>東</rb><rb>京</rb><rt>とう</rt><rt>きょう</rt></ruby>",
        "<ruby><rb>東</rb><rb>京</rb><rtc><rt>とう</rt><rt>きょう</rt></rtc></ruby>",
        "<ruby>東<b>京</b><rtc>とう<rt>きょう</rt></rtc></ruby>",
        "<ruby>東京<b><rt>とうきょう</rt></b></ruby>",
    )
    for form in forms:
        assert blocks_of(f"<p>私は{form}に行く</p>") == ["私は東京(とうきょう)に行く"]
        assert blocks_of(f"<p>私は{form}に行く</p>", readings=False) == ["私は東京に行く"]
    inner = "<ruby>10<sup>2</sup><rt>hyaku</rt></ruby>"
    assert blocks_of(f"<p><ruby>{inner}円<rt>yen</rt></ruby></p>") == ["10^2(hyaku)円(yen)"]
    assert blocks_of(f"<p><ruby>{inner}円<rt>yen</rt></ruby></p>", readings=False) == ["10^2円"]


@pytest.mark.parametrize(
    "parts",
    [
        ("a<sup>", "</sup>"),
        ("a<sub>", "</sub>"),
        ("<ruby>a<rt>b</rt>", "</ruby>"),
        ("<ruby>a<rt>", "</rt></ruby>"),
        ("<q>a", "</q>"),
        ("<ol reversed><li>a", "</ol>"),
        ("<ul><li>a", "</ul>"),
        ("<div>a", "</div>"),
        ("<sup>a</sup>", ""),
        ("<sub>a</sub> ", ""),
        ("<my-part><template shadowrootmode=open><slot></slot></template>", "</my-part>"),
        ("<p hidden>a", ""),
        ("<math><mi>a</mi></math> ", ""),
        ("<script><!--<script>", "</script>"),
    ],
    ids=lambda parts: parts[0],
)
def test_time_grows_with_the_page(parts: tuple[str, str]) -> None:
    """Deep nesting and long rows: four times the page takes no ten times as long."""

    def seconds(count: int) -> float:
        tree = HTMLTree.parse(f"<body>{parts[0] * count}{parts[1] * count}")
        assert tree.document is not None
        markup = tree.document.html
        begin = time.process_time()
        page_blocks(markup)
        return time.process_time() - begin

    assert seconds(2000) < 10 * max(seconds(500), 0.02)


def test_declared_shadow_roots_are_the_page() -> None:
    """What their slots take stands in them; what no slot takes is not shown; roots may be in roots."""
    root = "<template shadowrootmode=open>{}</template>"
    wanted = {
        f"<div>{root.format('<p>a</p><slot></slot>')}<p>b</p></div>": ["a", "b"],
        f"<div>{root.format('<slot></slot><p>a</p>')}<p>b</p></div>": ["b", "a"],
        f"<div>{root.format('<p>a</p>')}<p>b</p></div>": ["a"],
        f"<div>{root.format('<slot name=x></slot><p>a</p>')}<p>b</p><p slot=x>c</p></div>": ["c", "a"],
        f"<div>{root.format('<slot><p>a</p></slot>')}</div>": ["a"],
        f"<div>{root.format('<my-part>' + root.format('<i><slot></slot></i>') + '<p>a</p></my-part>')}</div>": ["a"],
        f"<div>{root.format('<my-part>' + root.format('[<slot></slot>]') + '<slot></slot></my-part>')}a</div>": ["[a]"],
        f"<div>{root.format('<slot name=x></slot><p><slot name=x>c</slot></p>')}<p slot=x>a</p><p slot=x>b</p></div>": [
            "a",
            "b",
            "c",
        ],
        f"<my-part>{root.format('<slot><slot name=x></slot></slot>')}<p slot=x>a</p></my-part>": ["a"],
        f"<ul>{root.format('<p>a</p>')}<li>b</ul>": ["• b"],
        f"<div>{root.format('<p>a</p>').replace('open', 'OPEN')}</div>": ["a"],
        f"<div>{root.format('<p>a</p>').replace('open', 'half')}b</div>": ["b"],
        "<div><template><p>a</p></template><p>b</p></div>": ["b"],
    }
    for body, texts in wanted.items():
        assert blocks_of(body) == texts, body


def test_blocks_of_random_trees_have_the_text_of_their_nodes() -> None:
    """Random nesting of blocks and inline elements, against a walk over the parser's own tree."""
    rng = random.Random(11)
    letters = [letter for group in LETTERS.values() for letter in group]
    tags = (
        "div",
        "p",
        "ul",
        "li",
        "b",
        "span class=x",
        "a href='?a=1&b=<2>'",
        "section",
        "h3",
        "em",
        "table",
        "tr",
        "td",
    )

    def made(depth: int) -> str:
        parts = []
        for _ in range(rng.randint(1, 4)):
            if depth and rng.random() < 0.7:
                tag = rng.choice(tags)
                parts.append(f"<{tag}>{made(depth - 1)}</{tag.split()[0]}>")
            else:
                parts.append(rng.choice(("", " ", "\n")) + "".join(rng.choices(letters, k=rng.randint(1, 3))))
        return "".join(parts)

    for _ in range(tries(1000, 150)):
        tree = HTMLTree.parse(f"<body>{made(6)}")
        assert tree.document is not None and tree.body is not None
        blocks = page_blocks(tree.document.html)
        assert bare("".join(block.text for block in blocks)) == bare(node_texts(tree.body))


@pytest.mark.nightly
def test_blocks_of_real_pages_have_the_text_of_their_nodes(real_data: Path) -> None:
    """Letter by letter, but for formulas; hardly a page has a dialog or an icon that this walk takes for text."""
    pages = sorted((real_data / "html_articles").glob("*/source.html"))
    equal = 0
    for path in pages:
        tree = HTMLTree.parse(path.read_text("utf-8", errors="replace"))
        assert tree.document is not None and tree.body is not None
        blocks = Counter(bare("".join(block.text for block in page_blocks(tree.document.html))))
        equal += not Counter(bare(node_texts(tree.body))) - blocks
    assert equal >= len(pages) - 3
