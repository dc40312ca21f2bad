"""The text of a PDF is what is seen: fields, notes, layers, raised digits, words over pages; no glyphs without text."""

from __future__ import annotations

import itertools
import random
import zlib

import pytest

pytest.importorskip("pypdfium2")
pytest.importorskip("justext")

from headrace_features.formats.pages.line_hyphens import MARK, join_lines, join_pages, words_of
from headrace_features.formats.pages.ocr import Layer
from headrace_features.formats.pages.pdf import layers
from spark_jobs.sources.config.file_reading import OcrRules
from spark_jobs.sources.refusals import Refusal
from tests.headrace_features.formats.made_pdf import pdf
from tests.tiers import tries

FIRST = 6  # number of the first further object of a file of one page


def read(data: bytes) -> tuple[list[Layer], dict[str, str]]:
    """The layers of a file, and its facts."""
    found = layers(data, OcrRules())
    assert not isinstance(found, Refusal), found
    return found


def text_of(data: bytes) -> str:
    """The text of the first page."""
    return read(data)[0][0].text


def line(text: str, x: float = 72, y: float = 700, size: float = 12) -> str:
    """The drawing of a line."""
    return f"BT /F1 {size} Tf {x} {y} Td ({text}) Tj ET\n"


FIELDS = {
    "a text": ("/FT/Tx/V(Ada)", "Name Ada"),
    "in Unicode": ("/FT/Tx/V<FEFF00C90061>", "Name Éa"),
    "lines": ("/FT/Tx/Ff 4096/V(Ada\\rof Kent)", "Name Ada\nof Kent"),
    "a choice": ("/FT/Ch/Ff 131072/Opt[[(a)(Apple)][(b)(Bread)]]/V(b)", "Name Bread"),
    "choices": ("/FT/Ch/Ff 2097152/Opt[(Apple)(Bread)(Corn)]/V[(Apple)(Corn)]", "Name Apple, Corn"),
    "ticked": ("/FT/Btn/V/Yes/AS/Yes/AP<</N<</Yes 8 0 R/Off 8 0 R>>>>", "Name ☒"),
    "not ticked": ("/FT/Btn/V/Off/AS/Off/AP<</N<</Yes 8 0 R/Off 8 0 R>>>>", "Name ☐"),
    "a radio button": ("/FT/Btn/Ff 32768/V/Yes/AS/Yes/AP<</N<</Yes 8 0 R/Off 8 0 R>>>>", "Name ◉"),
    "a button": ("/FT/Btn/Ff 65536/MK<</CA(Send)>>", "Name"),
    "a password": ("/FT/Tx/Ff 8192/V(secret)", "Name"),
    "without a value": ("/FT/Tx", "Name"),
    "hidden": ("/FT/Tx/F 2/V(Ada)", "Name"),
    "by its parent": ("/Parent 7 0 R", "Name of all"),
}


@pytest.mark.parametrize("field", FIELDS)
def test_values_of_fields_stand_where_they_are_seen(field: str) -> None:
    """Beside their labels, drawn or not; boxes and buttons as signs; what is hidden or secret is left out."""
    entries, text = FIELDS[field]
    flags = "" if "/F 2" in entries else "/F 4"
    widget = f"<</Type/Annot/Subtype/Widget/T(n){entries}{flags}/Rect[110 695 300 715]>>"
    parent = f"<</FT/Tx/T(all)/V(of all)/Kids[{FIRST} 0 R]>>"
    drawing = "<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Length 0>>stream\n\nendstream"
    root = 7 if "/Parent" in entries else FIRST
    form = f"/AcroForm<</Fields[{root} 0 R]/DA(/F1 12 Tf)/DR<</Font<</F1 3 0 R>>>>>>"
    page = line("Name") + line("End", y=600)
    data = pdf("600 800", page, catalog=form, page=f"/Annots[{FIRST} 0 R]", more=(widget, parent, drawing))
    assert text_of(data) == f"{text}\nEnd"


def test_free_texts_land_and_notes_do_not() -> None:
    """Beside a line, below all, hidden; a note that opens when it is clicked is no text of the page."""

    def note(kind: str, x: int, y: int, text: str, more: str = "") -> str:
        return f"<</Type/Annot/Subtype/{kind}/Contents({text})/Rect[{x} {y} {x + 90} {y + 20}]/DA(/F1 12 Tf){more}>>"

    notes = (
        note("FreeText", 300, 695, "beside"),
        note("FreeText", 72, 500, "below"),
        note("FreeText", 72, 400, "hidden", "/F 2"),
        note("Text", 72, 300, "a comment"),
    )
    references = " ".join(f"{FIRST + number} 0 R" for number in range(len(notes)))
    assert text_of(pdf("600 800", line("Text"), page=f"/Annots[{references}]", more=notes)) == "Text beside\nbelow"


LAYERS = {
    "on": ("/D<<>>", "/OCG", True),
    "off": ("/D<</OFF[6 0 R]>>", "/OCG", False),
    "all off": ("/D<</BaseState/OFF>>", "/OCG", False),
    "all off but one": ("/D<</BaseState/OFF/ON[6 0 R]>>", "/OCG", True),
    "member of one that is off": ("/D<</OFF[6 0 R]>>", "/OCMD", False),
    "member of one that is on": ("/D<<>>", "/OCMD", True),
}


@pytest.mark.parametrize(
    ("layer", "holder", "is_packed"), list(itertools.product(LAYERS, ["mark", "form", "form in a form"], [False, True]))
)
def test_text_of_layers_that_are_off_is_left_out(layer: str, holder: str, is_packed: bool) -> None:
    """Marked content and forms, in white too, of one of two layers of the same name; compressed catalogues."""
    state, kind, is_on = LAYERS[layer]
    group = "7 0 R" if kind == "/OCMD" else "6 0 R"
    extra = f"/OCProperties<</OCGs[6 0 R 8 0 R]{state}>>"
    inner = "1 1 1 rg " + line("of the layer", y=650)
    form = (
        "<</Type/XObject/Subtype/Form/BBox[0 0 600 800]/Resources<</Font<</F1 3 0 R>>{more}>>{oc}/Length {n}>>"
        "stream\n{s}\nendstream"
    )
    drawn = {"mark": f"/OC /L BDC {inner}EMC", "form": "/X Do", "form in a form": "/Y Do"}[holder]
    outer = "/X Do"
    more = (
        "<</Type/OCG/Name(Layer)>>",
        "<</Type/OCMD/OCGs[6 0 R]>>",
        "<</Type/OCG/Name(Layer)>>",
        form.format(more="", oc=f"/OC {group}", n=len(inner), s=inner),
        form.format(more="/XObject<</X 9 0 R>>", oc="", n=len(outer), s=outer),
    )
    resources = f"/Properties<</L {group}/M 8 0 R>>/XObject<</X 9 0 R/Y 10 0 R>>"
    page = line("Seen") + drawn + "/OC /M BDC " + line("other layer", y=600) + "EMC"
    data = pdf("600 800", page, catalog=extra, resources=resources, more=more)
    if is_packed:  # the catalogue in a stream of objects cannot be drawn by hand, but the flag is what is asked for
        from headrace_features.formats.pages.optional_content import may_have_layers

        packed = b"5 0 obj<</Type/ObjStm/N 1/First 4/Filter/FlateDecode>>stream\n" + zlib.compress(extra.encode())
        assert may_have_layers(packed) and not may_have_layers(packed.replace(b"/ObjStm", b"/Other"))
    other = [] if "BaseState" in state else ["other layer"]
    assert text_of(data).split("\n") == ["Seen", *["of the layer"] * is_on, *other]


def test_a_page_whose_glyphs_have_no_characters_is_at_fault() -> None:
    """Fonts with names of glyphs that say nothing, Type 3, identity; few such glyphs are counted alone."""
    font = (
        "<</Type/Font/Subtype/Type1/BaseFont/ABCDEF+Foo/FirstChar 0/LastChar 4/Widths[500 500 500 500 500]"
        "/Encoding<</Differences[0/g1/g2/g3/g4/g5]>>>>"
    )
    glyph = "<</Length 22>>stream\n500 0 0 0 400 400 d1 f\nendstream"
    type3 = (
        "<</Type/Font/Subtype/Type3/FontBBox[0 0 500 500]/FontMatrix[.001 0 0 .001 0 0]/FirstChar 0/LastChar 2"
        "/Widths[500 500 500]/CharProcs<</a1 7 0 R>>/Encoding<</Differences[0/a1/a1/a1]>>>>"
    )
    cid = "<</Type/Font/Subtype/Type0/BaseFont/ABCDEF+Bar/Encoding/Identity-H/DescendantFonts[7 0 R]>>"
    descendant = (
        "<</Type/Font/Subtype/CIDFontType2/BaseFont/ABCDEF+Bar/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)"
        "/Supplement 0>>/DW 500>>"
    )
    fonts = {"names": (font, ""), "type 3": (type3, glyph), "identity": (cid, descendant)}
    for name, more in fonts.items():
        codes = {"names": "0001020304", "type 3": "000102", "identity": "000100020003"}[name]
        shown = f"BT /F2 12 Tf 72 600 Td <{codes}> Tj ET "
        for words, is_fault in (("Known text", True), ("Known text of the harbour, " * 12, False)):
            data = pdf("3000 800", line(words) + shown, fonts="/F2 6 0 R", more=more)
            (layer,), facts = read(data)
            assert layer.text == words.strip(), (name, layer)
            assert (layer.fault == "no_unicode") is is_fault and layer.wants_ocr is is_fault, (name, layer)
            assert facts["pages_unreadable"] == str(int(is_fault))
            assert facts["glyphs_unmapped"] == str(len(codes) // (4 if name == "identity" else 2))
            assert (layer.score < 1) is True


def piece(text: str, rise: float, size: float) -> str:
    """A piece of a line at a height, by the rise of its text."""
    return f"/F1 {size} Tf {rise} Ts ({text}) Tj "


def moved(text: str, rise: float, size: float) -> str:
    """A piece of a line at a height, by a scaled matrix that is moved there."""
    return f"/F1 1 Tf {size} 0 0 {size} {{x}} {700 + rise} Tm ({text}) Tj "


@pytest.mark.parametrize("turned", ["1 0 0 1 72 700", "0 1 -1 0 300 100", "-1 0 0 -1 500 400"])
@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([("There are 10", 0, 12), ("23", 5, 7), (" grains", 0, 12)], "There are 10^23 grains"),
        ([("There are 10", 0, 12), ("6", 5, 12), (" grains", 0, 12)], "There are 10^6 grains"),
        ([("mass 10", 0, 12), ("-27", 5, 8), (" kg", 0, 12)], "mass 10^-27 kg"),
        ([("the 21", 0, 12), ("st", 5, 7), (" day", 0, 12)], "the 21st day"),
        ([("H", 0, 12), ("2", -3, 7), ("O flows", 0, 12)], "H2O flows"),
        ([("log", 0, 12), ("2", -3, 7), ("8 is 3", 0, 12)], "log_2 8 is 3"),
        ([("x", 0, 12), ("n", 5, 7), (" grows", 0, 12)], "x^n grows"),
        ([("1990", 0, 12), ("1995", 0, 12), (" no power", 0, 12)], "19901995 no power"),
        ([("5", 0, 12), (" 3", 0, 7), (" no power", 0, 12)], "5 3 no power"),
    ],
)
def test_raised_digits_of_a_page_never_touch_others(
    pieces: list[tuple[str, float, float]], text: str, turned: str
) -> None:
    """By size and rise, on pages that stand any way."""
    shown = "".join(piece(*part) for part in pieces)
    tail = " ".join(f"(and more of the line) Tj 0 {-20 * number} Td" for number in range(1, 3))
    found = text_of(pdf("800 800", f"BT {turned} Tm {shown} 0 Ts 0 -40 Td {tail} ET"))
    assert found.split("\n")[0] == text


def test_a_raised_piece_is_told_by_its_matrix() -> None:
    """Sizes that a matrix gives, places that are moved to."""
    shown = (
        moved("There are 10", 0, 12).format(x=72)
        + moved("6", 5, 7).format(x=141)
        + moved("grains", 0, 12).format(x=149)
    )
    assert text_of(pdf("700 800", f"BT {shown} ET")) == "There are 10^6 grains"


def test_what_begins_outside_of_the_page_is_not_seen_and_words_are_whole() -> None:
    """A word that runs over the edge is one; one beyond it is none."""
    assert text_of(pdf("200 800", line("Harbourmaster", x=150) + line("beyond", x=300, y=650))) == "Harbourmaster"


@pytest.mark.parametrize(
    ("pages", "texts"),
    [
        (["goes on with the exam-", "ple of it."], ["goes on with the example", "of it."]),
        (["goes on with the exam\\255", "ple of it."], ["goes on with the example", "of it."]),
        (["a well-", "known one"], ["a well-known", "one"]),
        (["some exam-", "", "ple of it"], ["some example", "", "of it"]),
        (["all of the EXAM-", "PLE"], ["all of the EXAMPLE", ""]),
        (["a dash -", "and more"], ["a dash -", "and more"]),
        (["years 1990-", "1995 all"], ["years 1990-", "1995 all"]),
        (["by exam-", "Chapter two"], ["by exam-", "Chapter two"]),
    ],
)
def test_a_word_that_the_end_of_a_page_breaks_is_whole(pages: list[str], texts: list[str]) -> None:
    """At the end of its page; where it is no word, nothing is moved."""
    found, _ = read(pdf("600 800", *(line(page) if page else "" for page in pages)))
    assert [layer.text for layer in found] == texts


def test_numbers_and_titles_of_pages_are_no_part_of_a_word() -> None:
    """They stay where they are, between the parts of a word that is whole."""
    pages = [
        "The book\nfirst words of an exam-\n1",
        "The book\nple that goes on and a har-\n- 2 -",
        "The book\nbour here\niii",
    ]
    found = join_pages(pages)
    assert [join_lines(page, words_of(found)) for page in found] == [
        "The book\nfirst words of an example\n1",
        "The book\nthat goes on and a harbour\n- 2 -",
        "The book\nhere\niii",
    ]


def test_words_over_several_lines_are_whole() -> None:
    """Random words broken two to five times."""
    rng = random.Random(4)
    words = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(12, 30))) for _ in range(tries(2000, 200))
    ]
    broken = list[str]()
    for word in words:
        cuts = [0, *sorted(rng.sample(range(2, len(word) - 1), rng.randrange(2, 6))), len(word)]
        broken.append(MARK.join(word[start:end] for start, end in itertools.pairwise(cuts)))
    text = " ".join(broken)
    assert join_lines(text, words_of([text])) == " ".join(words)
    assert join_lines(f"state{MARK}of{MARK}the-art", words_of(["state-of"])).startswith("state-of")


DRAWN = {
    "a text": ("/Subtype/Widget/FT/Tx/T(f)", "Name\nSeen"),
    "a choice": ("/Subtype/Widget/FT/Ch/Ff 131072/Opt[(a)]/T(f)", "Name\nSeen"),
    "a free text": ("/Subtype/FreeText", "Name\nSeen"),
    "a value": ("/Subtype/Widget/FT/Tx/V(Seen)/T(f)", "Name Seen"),
    "a password": ("/Subtype/Widget/FT/Tx/Ff 8192/T(f)", "Name"),
    "a button": ("/Subtype/Widget/FT/Btn/Ff 65536/T(f)", "Name"),
    "hidden": ("/Subtype/FreeText/F 2", "Name"),
    "a stamp": ("/Subtype/Stamp", "Name"),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_what_is_drawn_and_states_nothing_has_the_text_of_its_drawing(kind: str) -> None:
    """Fields and free texts with an appearance alone, once each; others stay out."""
    entries, text = DRAWN[kind]
    drawing = "BT /F1 12 Tf 2 5 Td (Seen) Tj ET"
    form = f"/Type/XObject/Subtype/Form/BBox[0 0 150 20]/Resources<</Font<</F1 3 0 R>>>>/Length {len(drawing)}"
    more = (
        f"<</Type/Annot/Rect[150 695 300 715]/AP<</N 7 0 R>>{entries}>>",
        f"<<{form}>>stream\n{drawing}\nendstream",
        "<</Type/Annot/Subtype/Text/Contents(a comment)/Rect[10 10 20 20]>>",
    )
    fields = "/AcroForm<</Fields[6 0 R]>>" if "Widget" in entries else ""
    assert text_of(pdf("600 800", line("Name"), catalog=fields, page="/Annots[8 0 R 6 0 R]", more=more)) == text


def test_a_rich_text_has_its_paragraphs_and_characters() -> None:
    """Of a free text that has no other."""
    rich = "(<body><p>Hi &amp; <b>ho</b></p><p>two<br/>three</p></body>)"
    more = (f"<</Type/Annot/Subtype/FreeText/Rect[150 695 300 715]/RC{rich}>>",)
    assert text_of(pdf("600 800", line("Name"), page="/Annots[6 0 R]", more=more)) == "Name Hi & ho\ntwo\nthree"


@pytest.mark.parametrize("foot", ["1", "- 1 -", "Of tides"])
@pytest.mark.parametrize("rise", [660, 300])
def test_a_hyphen_above_the_foot_of_a_page_is_read_on_the_next_one(foot: str, rise: int) -> None:
    """The foot is no second part of the word, whatever it says; with a title above, over two pages or three."""
    top, feet = line("Title", y=780), [line(foot, y=700 - rise)] * 3
    found, _ = read(pdf("600 800", top + line("The inter-") + feet[0], top + line("national tide.") + feet[1]))
    assert [layer.text for layer in found] == [f"Title\nThe international\n{foot}", f"Title\ntide.\n{foot}"]
    found, _ = read(pdf("600 800", line("The inter-"), line("nation-"), line("al tide.")))
    assert [layer.text for layer in found] == ["The international", "", "tide."]
