"""What Word draws: fields without a result, positions, rows and tables that hide, drawings, foreign parts of notes."""

from __future__ import annotations

import io
import zipfile

import pytest

from headrace_features.formats.word import extract_docx
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Refusal
from tests.headrace_features.formats.made_word import STRICT, TRANSITIONAL, Part, p, r, word_package
from tests.headrace_features.formats.test_word_forms import text_of


def mark(kind: str) -> str:
    """A run that begins a field, separates its code from its result, or ends it."""
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


def field(*code: str, result: str | None = None) -> str:
    """A field with the pieces of its code, and its result."""
    pieces = (f'<w:r><w:instrText xml:space="preserve">{piece}</w:instrText></w:r>' for piece in code)
    shown = "" if result is None else mark("separate") + result
    return mark("begin") + "".join(pieces) + shown + mark("end")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (r"EQ 10\s\up8(23)", "10^23"),
        (r"EQ \* jc2 \* hps10 \o\ad(\s\up 9(とう),東)", "東(とう)"),
        (r"EQ \f(1,2)", "1/2"), (r"eq \f(a+b;2)", "(a+b)/2"), (r"EQ \r(3,x)", "√(3&x)"),
        (r"EQ \r(,x)", "√(&x)"),
        (r"EQ log\s\do4(2)8", "log_2 8"), (r"EQ \b\bc\[(a)", "[a]"),
        (r"EQ \b\lc\{(a)", "{a"), (r"EQ \b(a)", "(a)"),
        (r"EQ \i\su(i=0,n,i)", "∑_(i=0)^n i"),
        (r"EQ \l(a,b)", "a, b"), (r"EQ \x(a\,b)", "a,b"),
        (r"EQ \f(\r(2,x),y)", "(√(2&x))/y"),
        (r"EQ \f(1", "1"), (r'SYMBOL 97 \f "Symbol" \s 12', "α"),
        (r"SYMBOL 0x20AC \u", "€"), ("SYMBOL 233", "é"), (r"SYMBOL 252 \f Wingdings", "✓"), ("PAGE", ""),
        ("EQUAL x", ""),
    ],
)  # fmt: skip
def test_a_field_that_word_draws_is_drawn(code: str, text: str) -> None:
    """From its code, in pieces, with an empty result, none, or as a simple field; a result goes before."""
    expected = f"so {text}|" if text else "so |"
    for pieces in ([code], list(code)):
        assert text_of(p(r("so ") + field(*pieces) + r("|"))) == expected
        assert text_of(p(r("so ") + field(*pieces, result="") + r("|"))) == expected
    quoted = code.replace('"', "&quot;")
    assert text_of(p(r("so ") + f'<w:fldSimple w:instr="{quoted}"/>' + r("|"))) == expected
    assert text_of(p(r("so ") + field(code, result=r("result")) + r("|"))) == "so result|"


def test_what_stands_in_a_code_is_not_shown() -> None:
    """Fields and text in codes, over paragraphs; text behind a mark that nothing ends stays."""
    inner = field(" PAGE ", result=r("7"))
    begin = mark("begin") + "<w:r><w:instrText> IF </w:instrText></w:r>" + inner + r("branch")
    assert text_of(p(begin + mark("separate") + r("b") + mark("end"))) == "b"
    assert text_of(p(begin) + p(r("more") + mark("separate") + r("b") + mark("end")) + p(r("c"))) == "b\nc"
    assert text_of(p(begin + mark("separate") + r("a") + inner)) == "7brancha7"
    assert text_of(p(mark("end") + mark("separate") + r("a"))) == "a"


@pytest.mark.parametrize("names", [TRANSITIONAL, STRICT], ids=["transitional", "strict"])
def test_a_position_raises_as_a_style_does(names: dict[str, str]) -> None:
    """By half points or points; one too small is none, and one that aligns by itself goes before."""
    for value, text in {"6": "10^23", "6pt": "10^23", "-6": "10_23", "1": "1023", "0": "1023"}.items():
        assert text_of(p(r("10") + r("23", f'<w:position w:val="{value}"/>')), names=names) == text  # type: ignore[arg-type]
    both = '<w:vertAlign w:val="subscript"/><w:position w:val="8"/>'
    assert text_of(p(r("10") + r("23", both))) == "10_23"


def test_tables_hide_by_their_style_and_rows_by_themselves() -> None:
    """A style of tables has less to say than one of paragraphs; a row that is hidden is none."""
    hides = "<w:rPr><w:vanish/></w:rPr>"
    shows = '<w:pStyle w:val="S"/>'
    styles = Part(
        "styles",
        "word/styles.xml",
        f'<w:styles {{names}}><w:style w:type="table" w:styleId="T">{hides}</w:style>'
        '<w:style w:type="paragraph" w:styleId="S"><w:rPr><w:vanish w:val="0"/></w:rPr></w:style></w:styles>',
    )
    style = '<w:tblPr><w:tblStyle w:val="T"/></w:tblPr>'
    cell = f"<w:tc>{p(r('hidden'))}{p(r('shown'), shows)}</w:tc>"
    rows = f"<w:tr>{cell}</w:tr><w:tr><w:trPr><w:hidden/></w:trPr><w:tc>{p(r('x'))}</w:tc></w:tr>"
    assert text_of(f"<w:tbl>{style}{rows}</w:tbl>" + p(r("end")), styles) == "shown\nend"
    assert text_of(f"<w:tbl>{rows}</w:tbl>", styles) == "hidden shown"


def test_drawings_say_their_text() -> None:
    """Shapes, WordArt, and the parts of charts and diagrams, each paragraph a line."""
    a = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    says = f"<a:p {a}><a:r><a:t>of</a:t></a:r><a:r><a:t>ten</a:t></a:r></a:p>"
    assert text_of(p(r("so") + f"<w:r><w:drawing>{says}</w:drawing></w:r>" + r("on"))) == "so\noften\non"
    assert text_of(p('<w:r><w:pict><s:textpath xmlns:s="urn:x" string="Art"/></w:pict></w:r>')) == "Art"
    for name, attribute in {"chart": "id", "relIds": "dm"}.items():
        part = Part("data", "word/data.xml", f'<d:x xmlns:d="urn:x">{says}{says}</d:x>')
        drawing = f'<w:r><w:drawing><d:{name} xmlns:d="urn:x" r:{attribute}="p0"/></w:drawing></w:r>'
        assert text_of(p(r("so") + drawing), part) == "so\noften\noften"


def test_notes_have_foreign_parts_of_their_own() -> None:
    """By the relationships of the part of notes."""
    notes = Part(
        "footnotes", "word/f.xml", '<w:footnotes {names}><w:footnote><w:altChunk r:id="c"/></w:footnote></w:footnotes>'
    )
    space = "http://schemas.openxmlformats.org"
    relation = f'<Relationship Id="c" Type="{TRANSITIONAL["r"]}/aFChunk" Target="../c.html"/>'
    relations = f'<Relationships xmlns="{space}/package/2006/relationships">{relation}</Relationships>'
    parts = [Part("x", "word/_rels/f.xml.rels", relations), Part("x", "c.html", "<p>Chunk", "text/html")]
    assert text_of(p(r("text")), notes, *parts) == "text\nChunk"


@pytest.mark.parametrize("part", ["word/document.xml", "[Content_Types].xml", "_rels/.rels", "word/s.xml"])
def test_a_broken_part_is_named(part: str) -> None:
    """A reason says which part is no XML; one in a foreign part costs that alone."""
    styles = Part("styles", "word/s.xml", "<w:styles {names}/>")
    with zipfile.ZipFile(io.BytesIO(word_package(p(r("x")), styles))) as whole:
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w") as broken:
            for name in whole.namelist():
                broken.writestr(name, whole.read(name).replace(b">", b"", 1) if name == part else whole.read(name))
    refusal = extract_docx(held.getvalue())
    assert isinstance(refusal, Refusal) and refusal.detail.startswith(f"its part /{part} is not well-formed: ")
    chunk = Part("aFChunk", "word/c.docx", held.getvalue(), "application/x")
    outer = extract_docx(word_package(p(r("a")) + '<w:altChunk r:id="p0"/>', chunk))
    assert isinstance(outer, Extracted) and (outer.text, outer.metadata["chunks_unread"]) == ("a", "1")
