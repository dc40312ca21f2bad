"""Word documents as Word writes and shows them: strict and macro-enabled files, lists, hidden text, symbols, powers."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from headrace_features.formats.raised import LEVEL, LOWERED, RAISED, with_scripts
from headrace_features.formats.word import extract_docx
from headrace_features.formats.word.numbering import in_form
from headrace_features.formats.word.symbols import symbol
from spark_jobs.sources.records.extracted import Extracted
from spark_jobs.sources.refusals import Reason, Refusal
from tests.headrace_features.formats.made_word import STRICT, TRANSITIONAL, WORD_TYPE, Part, p, r, word_package

MACROS = "application/vnd.ms-word."


def text_of(body: str, *parts: Part, **form: str) -> str:
    """The text that is read of a document."""
    return read(body, *parts, **form).text


def read(body: str, *parts: Part, **form: str) -> Extracted:
    """What is read of a document."""
    found = extract_docx(word_package(body, *parts, **form))  # type: ignore[arg-type]
    assert isinstance(found, Extracted), found
    return found


@pytest.mark.parametrize("names", [TRANSITIONAL, STRICT], ids=["transitional", "strict"])
@pytest.mark.parametrize("main", ["word/document.xml", "word/document2.xml", "content/main.xml", "a.xml"])
@pytest.mark.parametrize(
    "main_type",
    [
        f"{WORD_TYPE}document.main+xml",
        f"{WORD_TYPE}template.main+xml",
        f"{MACROS}document.macroEnabled.main+xml",
        f"{MACROS}template.macroEnabledTemplate.main+xml",
    ],
)
def test_every_form_of_a_document_is_read(names: dict[str, str], main: str, main_type: str) -> None:
    """Strict or not, with macros or as a template, its main part found by its relationship; notes and powers too."""
    note = Part(
        "footnotes", "notes/f.xml", f"<w:footnotes {{names}}><w:footnote>{p(r('note'))}</w:footnote></w:footnotes>"
    )
    styles = Part(
        "styles",
        "s.xml",
        '<w:styles {names}><w:style w:type="character" w:styleId="Up"><w:rPr><w:vertAlign w:val="superscript"/></w:rPr>'
        "</w:style></w:styles>",
    )
    body = p(r("10") + r("6", '<w:rStyle w:val="Up"/>') + r(" grains"))
    form = {"names": names, "main": main, "main_type": main_type}
    assert text_of(body, note, styles, **form) == "10^6 grains\nnote"  # type: ignore[arg-type]


def test_what_is_no_word_document_is_told_without_an_address() -> None:
    """Another kind of office file, an old one, one with a password, no package."""
    sheet = word_package("", root="workbook", main="xl/workbook.xml", main_type="application/vnd.ms-excel.sheet+xml")
    old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
    cases = {
        sheet: Reason.CORRUPT_FILE,
        old: Reason.CORRUPT_FILE,
        old + "EncryptedPackage".encode("utf-16-le"): Reason.ENCRYPTED,
        b"PK": Reason.CORRUPT_FILE,
    }
    for data, reason in cases.items():
        found = extract_docx(data)
        assert isinstance(found, Refusal) and found.reason == reason, found
        assert "0x" not in found.detail and found.detail


HTML, RTF = "text/html", "application/rtf"
CHUNKS: dict[str, tuple[str, str, str | bytes]] = {
    "page": (HTML, "c.html", "<html><body><p>Chunk é</p><script>x</script></body></html>"),
    "page without a type": ("application/octet-stream", "c.xhtml", "<html><body>Chunk é</body></html>"),
    "text": ("text/plain", "c.txt", "Chunk é".encode("cp1252")),
    "rtf": (RTF, "c.rtf", rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\*\generator x;}\f0 Chunk \'e9\par}"),
    "rtf in Unicode": (RTF, "c.rtf", rb"{\rtf1\ansi\uc1{\info{\title no}}Chu{\v hidden}nk \u233?\par}"),
    "archive": (
        "message/rfc822",
        "c.mht",
        "MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=b\r\n\r\n--b\r\nContent-Type: text/html; "
        "charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n<p>Chunk =C3=A9</p>\r\n--b--\r\n",
    ),
    "archive by another name": (
        "application/octet-stream",
        "c.bin",
        "Subject: x\r\n y\r\nMIME-Version: 1.0\r\n"
        "Content-Type: application/octet-stream; name=a.htm\r\n\r\n<html>Chunk é",
    ),
    "XHTML": ("application/xhtml+xml", "c", '<?xml version="1.0"?><html><head><title/></head><p>Chunk é</p></html>'),
    "text by another type": ("application/txt", "c", "Chunk é"),
    "document": (f"{WORD_TYPE}document.main+xml", "c.docx", word_package(p(r("Chunk é")))),
}


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_foreign_part_lands_in_its_place(chunk: str) -> None:
    """Between the paragraphs that it stands between."""
    content_type, name, content = CHUNKS[chunk]
    part = Part("aFChunk", f"word/{name}", content, content_type)
    assert text_of(p(r("before")) + '<w:altChunk r:id="p0"/>' + p(r("after")), part) == "before\nChunk é\nafter"


def test_a_foreign_part_that_is_not_read_is_counted() -> None:
    """One of an unknown form, one that is not there; documents in documents end somewhere."""
    unknown = Part("aFChunk", "word/c.bin", b"\0\1", "application/x-unknown")
    found = read(p(r("a")) + '<w:altChunk r:id="p0"/><w:altChunk r:id="p9"/>', unknown)
    assert (found.text, found.metadata["chunks_unread"]) == ("a", "2")
    inner = word_package(p(r("0")))
    for depth in range(1, 6):
        part = Part("aFChunk", "word/c.docx", inner, f"{WORD_TYPE}document.main+xml")
        inner = word_package(p(r(str(depth))) + '<w:altChunk r:id="p0"/>', part)
    deep = extract_docx(inner)
    assert isinstance(deep, Extracted) and deep.metadata["chunks_unread"] == "1"
    assert deep.text.split() == ["5", "4", "3", "2"]


STYLES = """<w:styles {names}>
<w:style w:type="paragraph" w:styleId="Hide"><w:rPr><w:vanish/></w:rPr></w:style>
<w:style w:type="paragraph" w:styleId="Hides"><w:basedOn w:val="Hide"/></w:style>
<w:style w:type="paragraph" w:styleId="Shows"><w:basedOn w:val="Hide"/><w:rPr><w:vanish w:val="0"/></w:rPr></w:style>
<w:style w:type="character" w:styleId="hide"><w:rPr><w:vanish w:val="true"/></w:rPr></w:style>
<w:style w:type="character" w:styleId="hides"><w:basedOn w:val="hide"/></w:style>
<w:style w:type="character" w:styleId="loop"><w:basedOn w:val="loop"/></w:style>
</w:styles>"""
HIDING = {"": None, "<w:vanish/>": True, "<w:webHidden/>": True, '<w:vanish w:val="off"/>': False}
PARAGRAPH_STYLES = {"": False, "Hide": True, "Hides": True, "Shows": False, "none": False}
CHARACTER_STYLES = {"": False, "hide": True, "hides": True, "loop": False}


def test_hidden_runs_are_left_out_whatever_hides_them() -> None:
    """The run itself, else its styles of either kind; two that hide show, as Word has it for toggles."""
    styles = Part("styles", "word/styles.xml", STYLES)
    for own, block, character in itertools.product(HIDING, PARAGRAPH_STYLES, CHARACTER_STYLES):
        properties = (f'<w:rStyle w:val="{character}"/>' if character else "") + own
        hidden = HIDING[own]
        if hidden is None:
            hidden = PARAGRAPH_STYLES[block] != CHARACTER_STYLES[character]
        body = p(r("x", properties), f'<w:pStyle w:val="{block}"/>' if block else "") + p(r("end"))
        assert ("x" in text_of(body, styles)) is not hidden, (own, block, character)
    mark = "<w:rPr><w:vanish/><w:specVanish/></w:rPr>"
    assert text_of(p(r("Heading. "), mark) + p(r("Runs on."))) == "Heading. Runs on."


def test_symbols_are_characters() -> None:
    """By font and place, with and without 0xF000, in runs of such a font; unknown ones are counted."""

    def sym(font: str, code: str) -> str:
        return f'<w:r><w:sym w:font="{font}" w:char="{code}"/></w:r>'

    cases = {("Symbol", "F061"): "α", ("symbol", "0061"): "α", ("Wingdings", "F0FC"): "✓", ("Wingdings 3", "F070"): "▲"}
    cases |= {("Wingdings 2", "F052"): "☑", ("Symbol", "F0AE"): "→", ("Arial", "00E9"): "é", ("Arial", "2713"): "✓"}
    for (font, code), character in cases.items():
        assert text_of(p(r("a ") + sym(font, code))) == f"a {character}", (font, code)
    greek = '<w:rFonts w:ascii="Symbol" w:hAnsi="Symbol"/>'
    assert text_of(p(r("\uf061\uf062 ab", greek) + r(" ab"))) == "αβ αβ ab"
    found = read(p(r("a") + sym("Bookshelf Symbol 7", "F021") + sym("Symbol", "F0F0") + sym("Symbol", "zz")))
    assert (found.text, found.metadata["symbols_unknown"]) == ("a", "3")


def test_the_table_of_symbol_is_adobes() -> None:
    """By the names of glyphs in the metrics of the font, in the list of names that fontTools has."""
    agl = pytest.importorskip("fontTools.agl")
    matplotlib = pytest.importorskip("matplotlib")
    lines = Path(matplotlib.get_data_path(), "fonts/pdfcorefonts/Symbol.afm").read_text("ascii").splitlines()
    glyphs = [line.split() for line in lines if line.startswith("C ")]
    same = {"\u2206": "\u0394", "\u2126": "\u03a9", "\u00b5": "\u03bc", "-": "−", "·": "⋅", "∗": "*"}
    other = {"angleleft", "angleright", "arrowvertex", "arrowhorizex", "radicalex", "suchthat", "sigma1", "similar"}
    compared = 0
    for glyph in glyphs:
        code, name = int(glyph[1]), glyph[7]
        character, expected = symbol(code, "Symbol"), agl.toUnicode(name)
        if code > 32 and character and ord(expected[0]) not in range(0xE000, 0xF900):
            compared += 1
            assert same.get(expected, expected) == same.get(character, character) or name in other, (name, character)
    assert compared > 140


def listed(levels: str, extra: str = "", nums: str = "") -> Part:
    """A part of lists: list 1 with these levels, and what else."""
    one = f'<w:abstractNum w:abstractNumId="7">{levels}</w:abstractNum>{extra}'
    num = '<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>'
    return Part("numbering", "word/n.xml", f"<w:numbering {{names}}>{one}{num}{nums}</w:numbering>")


def lvl(depth: int, form: str, text: str, more: str = "", start: int = 1) -> str:
    """A level of a list."""
    return (
        f'<w:lvl w:ilvl="{depth}"><w:start w:val="{start}"/><w:numFmt w:val="{form}"/>'
        f'<w:lvlText w:val="{text}"/>{more}</w:lvl>'
    )


def item(depth: int, text: str = "x", name: int = 1) -> str:
    """A paragraph of a list."""
    return p(r(text), f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{name}"/></w:numPr>')


THREE = lvl(0, "decimal", "%1.") + lvl(1, "lowerLetter", "%2)") + lvl(2, "lowerRoman", "%1.%2.%3")
SYMBOL = '<w:rPr><w:rFonts w:ascii="Symbol" w:hAnsi="Symbol"/></w:rPr>'


@pytest.mark.parametrize(
    ("levels", "depths", "labels"),
    [
        (THREE, [0, 0, 1, 1, 0, 1], "1. 2. a) b) 3. a)"),
        (THREE, [0, 1, 2, 2, 1, 2], "1. a) 1.a.i 1.a.ii b) 1.b.i"),
        (lvl(0, "decimal", "%1", start=5), [0, 0], "5 6"),
        (lvl(0, "upperRoman", "Article %1"), [0, 0, 0, 0], "Article_I Article_II Article_III Article_IV"),
        (lvl(0, "decimal", "%1.") + lvl(1, "decimal", "%1.%2"), [1, 1, 0, 1], "1.1 1.2 1. 1.1"),
        (lvl(0, "decimal", "%1.") + lvl(1, "decimal", "%2.", '<w:lvlRestart w:val="0"/>'), [0, 1, 0, 1], "1. 1. 2. 2."),
        (lvl(0, "upperRoman", "%1") + lvl(1, "decimal", "%1.%2", "<w:isLgl/>"), [0, 0, 1], "I II 2.1"),
        (lvl(0, "bullet", "\uf0b7", SYMBOL), [0, 0], "• •"),
        (lvl(0, "bullet", "\uf0a7", SYMBOL.replace("Symbol", "Wingdings")), [0], "▪"),
        (lvl(0, "bullet", "\uf0ff", SYMBOL.replace("Symbol", "Of mine")), [0], "•"),
        (lvl(0, "bullet", "o", SYMBOL.replace("Symbol", "Courier New")), [0], "◦"),
        (lvl(0, "bullet", "–"), [0], "–"),
        (lvl(0, "none", ""), [0], ""),
        (lvl(0, "decimal", "%1.", '<w:rPr><w:vanish/></w:rPr>'), [0], ""),
        (lvl(0, "decimal", "%1.").replace('"1"', '"x"', 1), [0, 0], "0. 1."),
        (lvl(0, 'custom" w:format="001, 002, ...', "%1."), [0, 0], "001. 002."),
        (lvl(0, "decimal", "第%1条", '<w:suff w:val="nothing"/>'), [0], "第1条"),
    ],
)  # fmt: skip
def test_paragraphs_of_lists_have_the_number_that_is_seen(levels: str, depths: list[int], labels: str) -> None:
    """Forms, starts, levels that begin anew, bullets in fonts of symbols."""
    lines = text_of("".join(item(depth, "~x") for depth in depths), listed(levels)).splitlines()
    expected = [label.replace("_", " ") for label in labels.split()] or [""]
    assert [line.partition("~")[0].rstrip() for line in lines] == expected


def test_lists_count_as_their_parts_say() -> None:
    """Lists of one abstract list go on, one that states a start begins anew; styles, links, lists that end."""
    goes_on = '<w:num w:numId="2"><w:abstractNumId w:val="7"/></w:num>'
    start = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="4"/></w:lvlOverride>'
    anew = f'<w:num w:numId="3"><w:abstractNumId w:val="7"/>{start}</w:num>'
    link = '<w:abstractNum w:abstractNumId="8"><w:numStyleLink w:val="L"/></w:abstractNum>'
    linked = (
        '<w:abstractNum w:abstractNumId="9"><w:styleLink w:val="L"/>'
        + lvl(0, "upperLetter", "%1.")
        + "</w:abstractNum>"
    )
    part = listed(
        lvl(0, "decimal", "%1.") + lvl(1, "decimal", "%1.%2", '<w:pStyle w:val="H2"/>'),
        link + linked,
        goes_on + anew + '<w:num w:numId="5"><w:abstractNumId w:val="8"/></w:num>',
    )
    styles = Part(
        "styles",
        "word/styles.xml",
        '<w:styles {names}><w:style w:type="paragraph" w:styleId="H2"><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr>'
        '</w:pPr></w:style><w:style w:type="paragraph" w:styleId="H2b"><w:basedOn w:val="H2"/></w:style></w:styles>',
    )
    body = item(0) + item(0, name=2) + item(0, name=3) + item(0, name=3) + item(0, name=5) + item(0, name=0)
    body += p(r("x"), '<w:pStyle w:val="H2"/>') + p(r("x"), '<w:pStyle w:val="H2b"/>')
    body += p(r("x"), '<w:pStyle w:val="H2"/><w:numPr><w:numId w:val="0"/></w:numPr>')
    assert text_of(body, part, styles).splitlines() == [
        "1. x",
        "2. x",
        "4. x",
        "5. x",
        "A. x",
        "x",
        "5.1 x",
        "5.2 x",
        "x",
    ]
    cell = f"<w:tbl><w:tr><w:tc>{item(0)}</w:tc><w:tc>{item(0)}{item(0)}</w:tc></w:tr></w:tbl>"
    assert text_of(cell, part) == "1. x\t2. x 3. x"
    assert text_of(item(0)) == "x"  # there is no such list


def test_numbers_have_their_forms() -> None:
    """Forms of numbers by their names, of a few numbers each."""
    forms = {
        "lowerLetter": "a z aa bb bbb", "upperRoman": "I XXVI XXVII XXVIII LIV", "decimalZero": "01 26 27 28 54",
        "ordinal": "1st 26th 27th 28th 54th", "chineseCounting": "一 二十六 二十七 二十八 五十四",
        "russianLower": "а ы э ю щщ", "unheard": "1 26 27 28 54",
    }  # fmt: skip
    for form, texts in forms.items():
        assert [in_form(number, form) for number in (1, 26, 27, 28, 54)][: len(texts.split())] == texts.split(), form


def up(text: str) -> str:
    """A raised run."""
    return r(text, '<w:vertAlign w:val="superscript"/>')


def down(text: str) -> str:
    """A lowered run."""
    return r(text, '<w:vertAlign w:val="subscript"/>')


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (r("10") + up("23"), "10^23"),
        (r("10") + up("2") + up("3") + r(" m"), "10^23 m"),
        (r("10") + up("-3") + r("5"), "10^-3 5"),
        (r("10") + up("−3"), "10^−3"),
        (r("x") + up("n"), "x^n"),
        (r("x") + up("n+1"), "x^(n+1)"),
        (r("m") + up("2"), "m^2"),
        (r("Ca") + up("2+"), "Ca^2+"),
        (r("the 21") + up("st") + r(" day"), "the 21st day"),
        (r("M") + up("me"), "Mme"),
        (r("le 1") + up("er"), "le 1er"),
        (r("H") + down("2") + r("O"), "H2O"),
        (r("log") + down("2") + r("8"), "log_2 8"),
        (r("10") + down("2"), "10_2"),
        (r("x") + down("1") + up("2"), "x1^2"),
        (r("5") + up("14") + r("C"), "5^14C"),
        (r("is ") + up("14") + r("C"), "is 14C"),
        (r("10") + up(" 6 ") + r("grains"), "10 6 grains"),
        (r("10") + up("6 ") + r("grains"), "10^6 grains"),
    ],
)
def test_raised_digits_never_touch_others(runs: str, text: str) -> None:
    """Powers, indexes, ions, ends of words."""
    assert text_of(p(runs)) == text


def test_digits_of_two_heights_never_touch() -> None:
    """Random pieces: in the line, two digits that touch are of one piece; what is written holds all characters."""
    rng = random.Random(5)
    for _ in range(3000):
        pieces, previous = list[tuple[str, str]](), ""
        for _ in range(rng.randrange(1, 6)):
            height = rng.choice([other for other in ("", RAISED, LOWERED) if other != previous])
            pieces.append((height, "".join(rng.choices("0123456789ax+ ", k=rng.randrange(1, 3)))))
            previous = height
        line = with_scripts("".join(f"{height}{text}{LEVEL if height else ''}" for height, text in pieces))
        place, last = 0, -1
        for number, (_, text) in enumerate(pieces):
            for character in text:
                at = line.index(character, place)
                if at == place > 0 and character.isdigit() and line[at - 1].isdigit():
                    assert last == number, (pieces, line)
                place, last = at + 1, number


def m(name: str, *arguments: str, properties: str = "") -> str:
    """A form of a formula."""
    return f"<m:{name}>{f'<m:{name}Pr>{properties}</m:{name}Pr>' if properties else ''}{''.join(arguments)}</m:{name}>"


def a(name: str, text: str) -> str:
    """An argument of a form: text, or forms."""
    return f"<m:{name}>{text if text.startswith('<') else t(text)}</m:{name}>"


def t(text: str) -> str:
    """A text in a formula."""
    return f"<m:r><m:t>{text}</m:t></m:r>"


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (m("sSup", a("e", "10"), a("sup", "23")), "10^23"),
        (m("sSup", a("e", "x+1"), a("sup", "n-1")), "(x+1)^(n-1)"),
        (m("sSup", a("e", "10"), a("sup", "2")) + t("5"), "10^2 5"),
        (m("sSubSup", a("e", "x"), a("sub", "i"), a("sup", "2")), "x_i^2"),
        (m("f", a("num", "a+b"), a("den", "2")), "(a+b)/2"),
        (m("rad", a("deg", ""), a("e", "x+1")), "√(x+1)"),
        (m("rad", a("deg", "3"), a("e", "x")), "√(3&x)"),
        (m("nary", a("sub", "i=0"), a("sup", "n"), a("e", "i"), properties='<m:chr m:val="∑"/>'), "∑_(i=0)^n i"),
        (m("d", a("e", "a"), a("e", "b"), properties='<m:begChr m:val="["/><m:endChr m:val=""/>'), "[a|b"),
        (m("func", a("fName", "sin"), a("e", "x")), "sin x"),
        (m("acc", a("e", "x")), "x\u0302"),
        (m("m", m("mr", a("e", "1"), a("e", "2")), m("mr", a("e", "3"), a("e", "4"))), "■(1&2@3&4)"),
        (m("limLow", a("e", "lim"), a("lim", "x→0")), "lim┬(x→0)"),
    ],
)
def test_a_formula_is_written_once_in_a_line(formula: str, text: str) -> None:
    """In the line form that Word has; alone in its paragraph or not."""
    assert text_of(p(r("so ") + f"<m:oMath>{formula}</m:oMath>" + r(" is"))) == f"so {text} is"
    assert text_of(p(f"<m:oMathPara><m:oMath>{formula}</m:oMath></m:oMathPara>")) == text
