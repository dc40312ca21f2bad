"""Elements of XML files become documents; entities, depth, size and damage are rows with reasons."""

from __future__ import annotations

import bz2
import io
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_features.formats.xml_elements import xml_records
from spark_jobs.sources.config.source_config import DocumentsConfig, FilesSource
from spark_jobs.sources.records.records import Record, Refused
from spark_jobs.sources.refusals import Reason
from tests.tiers import tries

WIKI = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xmlns:dc="urn:dc">
<siteinfo><sitename>W</sitename></siteinfo>
<page><title>One &amp; only</title><ns>0</ns><id>7</id><dc:lang>en</dc:lang>
<revision sha1="ab"><id>70</id><text xml:space="preserve">First &lt;ref&gt; &eacute;</text></revision></page>
<page><title>Two</title><id>8</id><revision><text><![CDATA[a < b]]></text></revision></page>
<page><title>None</title><id>9</id></page>
</mediawiki>"""
MAPPING: dict[str, Any] = {
    "xml_element": "page",
    "text_column": "revision/text",
    "id_column": "id",
    "metadata_columns": ("title", "revision/@sha1", "dc:lang"),
}


def read(data: bytes, max_bytes: int = 10_000, **mapping: Any) -> list[Record | Refused]:
    """Records of an XML file in memory."""
    source = FilesSource(path="x", **{"xml_element": "d", **mapping})
    return list(xml_records(io.BytesIO(data), source, max_bytes))


def test_a_wiki_dump_lands_by_page(landing: Any, files_config: Any, data: Path) -> None:
    """Namespaces by default and by prefix, attributes, entities of HTML, CDATA; a page without text is refused."""
    (data / "dump.xml.bz2").write_bytes(
        bz2.compress(WIKI.replace("<mediawiki", "<!DOCTYPE m SYSTEM 'm.dtd'><mediawiki").encode())
    )
    documents, arrivals = landing.land(files_config(**MAPPING))
    assert [(row["path"], row["content"]) for row in documents] == [
        ("dump.xml.bz2#7", "First <ref> é"),
        ("dump.xml.bz2#8", "a < b"),
    ]
    assert documents[0]["metadata"] == {"title": "One & only", "revision/@sha1": "ab", "dc:lang": "en"}
    assert [(row["location"].rpartition("#")[2], row["reason"]) for row in arrivals[:-1]] == [
        ("element:3", "missing_column")
    ]
    assert arrivals[-1]["status"] == "landed"


def test_xml_is_markup_without_an_element(landing: Any, files_config: Any, data: Path) -> None:
    """As it was before; and `format: xml` without the name of an element is refused."""
    (data / "a.xml").write_text("<a>b</a>")
    documents, _ = landing.land(files_config())
    assert [(row["kind"], row["content"]) for row in documents] == [("markup", "<a>b</a>")]
    with pytest.raises(ValueError, match="xml_element is missing"):
        files_config(format="xml")


@given(st.lists(st.tuples(st.text("ab <&é\n", max_size=9), st.text("xy", max_size=3)), max_size=5), st.integers(1, 7))
def test_texts_are_those_of_another_parser(texts: list[tuple[str, str]], size: int) -> None:
    """ElementTree's text of every element, however the file is cut into reads; several values are joined."""
    root = ElementTree.Element("r")
    for text, inner in texts:
        element = ElementTree.SubElement(root, "d")
        element.text = text
        ElementTree.SubElement(element, "i").text = inner
        ElementTree.SubElement(element, "i").tail = "tail"
    data = ElementTree.tostring(root, encoding="unicode").encode()
    source = FilesSource(path="x", xml_element="d", metadata_columns=("i",))

    class Slow(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            return super().read(size)

    found = list(xml_records(Slow(data), source, 1000))
    assert [one.text for one in found if isinstance(one, Record)] == ["".join(d.itertext()) for d in root]
    assert len(found) == len(texts)


def test_repeated_paths_give_all_values() -> None:
    """A blank line between texts, a JSON list in metadata."""
    (record,) = read(b"<r><d><p>a</p><p>b</p></d></r>", text_column="p", metadata_columns=("p",))
    assert isinstance(record, Record) and (record.text, record.metadata) == ("a\n\nb", {"p": '["a", "b"]'})


@pytest.mark.parametrize("depth", [1, 2, 5, 40])
def test_entities_that_name_entities_are_their_text(depth: int) -> None:
    """Within 1,000 characters, as deep as one likes; more is refused, and so is one that names itself."""
    for width in (1, 2):
        names = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * width}">' for n in range(1, depth + 1))
        (found,) = read(f'<!DOCTYPE r [<!ENTITY e0 "ü">{names}]><r><d>&e{depth};</d></r>'.encode())
        if width**depth <= 1000:
            assert isinstance(found, Record) and found.text == "ü" * width**depth
        else:
            assert isinstance(found, Refused) and found.refusal.reason == Reason.BAD_RECORD
    (found,) = read(b'<!DOCTYPE r [<!ENTITY a "&b;"><!ENTITY b "&a;">]><r><d>&a;</d></r>')
    assert isinstance(found, Refused) and found.refusal.reason == Reason.BAD_RECORD


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
HOSTILE = {
    "billion_laughs": (
        f'<!DOCTYPE r [<!ENTITY l0 "lol">{LAUGHS}]><r><d>&l9;</d><d>ok</d></r>',
        [Reason.BAD_RECORD, None],
    ),
    "external_entity": (
        '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><r><d>&x;</d><d>ok</d></r>',
        [Reason.BAD_RECORD, None],
    ),
    "plain_entity": ('<!DOCTYPE r [<!ENTITY x "ü">]><r><d>&x;</d></r>', [None]),
    "deep": ("<r><d>ok</d>" + "<d>" * 100_000 + "</d>" * 100_000 + "</r>", [None, Reason.CORRUPT_FILE]),
    "cut": ("<r><d>ok</d><d>cut", [None, Reason.CORRUPT_FILE]),
    "no_xml": ("just text", [Reason.CORRUPT_FILE]),
    "null": ("\0", [Reason.CORRUPT_FILE]),
    "mark_in_the_middle": ("<r><d>a\ufeffb</d></r>", [None]),
    "long_tag": ("<r><d>ok</d><d a='" + "x" * (5 << 20) + "'>", [None, Reason.CORRUPT_FILE]),
    "too_large": ("<r><d>" + "x" * (3 << 20) + "</d><d>ok</d></r>", [Reason.TOO_LARGE, None]),
    "none": ("<r><e/></r>", []),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_rows_with_reasons(name: str) -> None:
    """Nothing is expanded, nothing hangs, and what stands before or beside the fault is read."""
    text, reasons = HOSTILE[name]
    found = read(text.encode())
    assert [one.refusal.reason if isinstance(one, Refused) else None for one in found] == reasons
    assert all(one.text in ("ok", "ü", "a\ufeffb") for one in found if isinstance(one, Record))


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_file() -> None:
    """A long file of elements that are not asked for and of those that are, 100 MB in all."""

    class Endless:
        def __init__(self) -> None:
            self.parts: Iterator[bytes] = iter(
                [b"<r>", *[b"<o><p>" + b"x" * 1000 + b"</p></o><d>y</d>"] * 100_000, b"</r>"]
            )

        def read(self, _: int, /) -> bytes:
            return next(self.parts, b"")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = sum(1 for _ in xml_records(Endless(), FilesSource(path="x", xml_element="d"), 1000))
    assert count == 100_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000


def test_a_dataset_of_xml_needs_no_text_column(files_config: Any) -> None:
    """The whole text of an element is its text then."""
    config: DocumentsConfig = files_config(xml_element="d")
    assert isinstance(config.source, FilesSource) and config.source.text_column is None


@pytest.mark.parametrize("name", ["gbk", "utf-7", "idna", "punycode", "rot13", "base64", "mbcs", "no-such"])
def test_an_encoding_that_is_not_read_is_a_refusal(name: str) -> None:
    """Whatever Python's codecs raise at it."""
    (found,) = read(f"<?xml version='1.0' encoding='{name}'?><r><d>text</d></r>".encode())
    assert isinstance(found, Refused) and found.refusal.reason in (Reason.UNDECODABLE, Reason.CORRUPT_FILE)


def test_entities_that_stand_for_elements_are_told() -> None:
    """Chapters in files of their own, and elements in the document type: neither is read, and the rest is."""
    types = "<!DOCTYPE r [<!ENTITY chapter SYSTEM 'one.xml'><!ENTITY own '<d>x</d>'>]>"
    *records, fault = read(f"{types}<r>&chapter;<d>text</d>&own;&amp;</r>".encode())
    assert [one.text for one in records if isinstance(one, Record)] == ["text"]
    assert isinstance(fault, Refused) and fault.number is None and "&chapter;" in fault.refusal.detail


PROLOGUES = {
    "": set[str](),
    "<?xml version='1.0'?>\n": set(),
    '<?xml version="1.0" encoding="UTF-8" standalone="yes" ?>': set(),
    "<?xml version='1.0'\n standalone = 'yes'?>": set(),
    '<!DOCTYPE r [<!ENTITY own "ü">]>': {"own"},
    '<?xml version="1.0" standalone="yes"?><!DOCTYPE r [<!ENTITY own "ü">]>': {"own"},
    "<!DOCTYPE r SYSTEM 'r.dtd'>": set(),
}


def test_an_unknown_entity_costs_its_own_record_alone() -> None:
    """Without a declaration, in texts and attributes that are read or not; what stands behind it is read."""
    draw = random.Random(7)
    known = {"lt": "<", "#252": "ü", "eacute": "é", "nbsp": "\xa0"}
    for _ in range(tries(2000, 100)):
        prologue = draw.choice(list(PROLOGUES))
        declared = dict.fromkeys(PROLOGUES[prologue], "ü")
        texts, read_texts = {**known, **declared}, {"lt": "<", "#252": "ü", **declared}  # names of HTML in texts alone
        file, expected = prologue + "<r>", list[tuple[str, str] | None]()
        for _ in range(draw.randint(1, 4)):
            text, read_one, other, aside = (draw.choice([*known, "own", "foo", "a.b-c"]) for _ in range(4))
            file += f"""<d t="x>&{read_one};" u='&{other};'><f>a&{text};b</f><!-- &no; --><e t="&{aside};"/></d>\n"""
            lost = text not in texts or read_one not in read_texts
            expected.append(None if lost else (f"a{texts[text]}b", f"x>{read_texts[read_one]}"))
        for encoding in ("utf-8", "utf-16") if "xml" not in prologue else ("utf-8",):
            records = read(f"{file}</r>".encode(encoding), text_column="f", metadata_columns=("@t",))
            found = [(one.text, one.metadata["@t"]) if isinstance(one, Record) else None for one in records]
            assert found == expected, file


LETTERS = ["bold", "italic", "sup", "sub"]
TREES = ["sec", "title", "p", "list", "list-item", "xref", "tr", "td", "unknown", "name", *LETTERS]


def test_minified_and_indented_trees_give_the_same_words() -> None:
    """Random trees with and without text beside elements, as lxml writes them in both forms."""
    etree = pytest.importorskip("lxml.etree")
    for seed in range(tries(3000, 300)):
        draw, count = random.Random(seed), iter(range(1000))

        def grow(tag: str, depth: int, draw: random.Random = draw, count: Iterator[int] = count) -> Any:
            node = etree.Element(tag)
            is_leaf, is_mixed = depth == 0 or draw.random() < 0.3, draw.random() < 0.4
            node.text = f"w{next(count)}" if is_leaf or is_mixed else None
            for _ in range(0 if is_leaf else draw.randint(1, 4)):
                node.append(grow(draw.choice(TREES), depth - 1))
                node[-1].tail = f" w{next(count)} " if is_mixed else None
            if not is_leaf and not is_mixed and all(child.tag in LETTERS for child in node):
                node.append(grow("name", 0))  # else white space would say something
            return node

        root = grow("d", 4)
        texts = [read(etree.tostring(root, pretty_print=pretty))[0] for pretty in (False, True)]
        assert all(isinstance(record, Record) for record in texts)
        plain, indented = (record.text.split() for record in texts if isinstance(record, Record))
        assert plain == indented, etree.tostring(root)


def text_of(markup: str) -> str:
    """The text of an element with this inside."""
    (record,) = read(f"<d>{markup}</d>".encode())
    assert isinstance(record, Record)
    return record.text


def test_letters_alone_in_an_element_are_parts_of_its_words() -> None:
    """Elements that say how letters look, in any element; white space between them parts words, indented or not."""
    for seed in range(tries(2000, 200)):
        draw = random.Random(seed)
        pieces = [draw.choice(["b", "italic", "hi", "sc", "emphasis"]) for _ in range(draw.randint(1, 5))]
        gaps = [draw.choice(["", " ", "\n    "]) for _ in pieces]
        inner = "".join(f"<{tag}>w{at}</{tag}>{gap}" for at, (tag, gap) in enumerate(zip(pieces, gaps, strict=True)))
        words = "".join(f"w{at}{gap}" for at, gap in enumerate(gaps)).split()
        outer = draw.choice(["p", "title", "td", "unknown", "xref"])
        assert text_of(f"<{outer}>{inner}</{outer}><p>end</p>").split() == [*words, "end"], inner
        assert text_of(f"see <{outer}>{inner}</{outer}> there").split() == ["see", *words, "there"], inner
    assert text_of("<p><i>x</i><sup>2</sup></p><name><surname>Ada</surname><year>1815</year></name>") == "x^2\nAda 1815"


def test_digits_on_different_levels_never_touch() -> None:
    """Raised and lowered digits beside digits have a mark; formulas of chemistry have none."""
    expected = {
        "10<sup>23</sup>": "10^23",
        "H<sub>2</sub>O": "H2O",
        "10<sup>-3</sup>5": "10^-3 5",
        "1<sub>2</sub>": "1_2",
    }
    assert {markup: text_of(markup) for markup in expected} == expected


def test_a_formula_is_there_once() -> None:
    """TeX where it is given, else the characters of MathML."""
    math = "<m:math xmlns:m='m'><m:msup><m:mi>x</m:mi><m:mn>2</m:mn></m:msup></m:math>"
    assert text_of(f"a {math} b") == "a x^2 b"
    tex = r"<tex-math>\\begin{document}$x^2$\\end{document}</tex-math>".replace(r"\\", "\\")
    noted = r'<annotation encoding="application/x-tex">x^{2}</annotation>'
    assert text_of(f"a <semantics>{math}{noted}</semantics> b") == "a x^{2} b"
    shape = "<m:mrow><m:msup><m:mi>x</m:mi><m:mn>2</m:mn></m:msup></m:mrow>"
    for of in ("", 'encoding="MathML-Content"'):
        other = f"<m:annotation-xml {of}><m:ci>x</m:ci></m:annotation-xml>"
        whole = f"<m:math xmlns:m='m'><m:semantics>{shape}{other}{{}}</m:semantics></m:math>"
        assert text_of(f"a {whole.format('')} b") == "a x^2 b"
        assert text_of(f"a {whole.format(noted)} b") == "a x^{2} b"
    assert text_of(f"a <alternatives>{math}{tex}</alternatives> b") == "a $x^2$ b"
    assert text_of(f"a <inline-formula>{tex}{math}</inline-formula> b") == "a $x^2$ b"


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
@pytest.mark.parametrize("mark", ["", "\ufeff", "\n\n"])
def test_documents_one_behind_the_other_all_land(mark: str, size: int) -> None:
    """With declarations, document types and encodings of their own; one that is broken costs itself alone."""
    heads = ['<?xml version="1.0"?>\n<!DOCTYPE r SYSTEM "r.dtd" [ ]>', '<?xml version="1.0" encoding="UTF-8"?>']
    good = [f"{mark}{head}<r><d>text {number}</d></r>\n" for number, head in enumerate(heads * 2)]

    class Slow(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            return super().read(size)

    def found(text: str) -> list[str | Reason]:
        records = xml_records(Slow(text.encode()), FilesSource(path="x", xml_element="d"), 1000)
        return [one.text if isinstance(one, Record) else one.refusal.reason for one in records]

    expected = [f"text {number}" for number in range(4)]
    assert found("".join(good)) == expected
    for broken in ("<d>open", "<d>wrong</e></r>", "<d>a < b</d></r>"):
        file = "".join([*good[:2], f'{mark}<?xml version="1.0"?><r>{broken}\n', *good[2:]])
        assert found(file) == [*expected[:2], Reason.BAD_RECORD, *expected[2:]]


def test_documents_of_any_encodings_stand_one_behind_the_other() -> None:
    """UTF-8 and UTF-16 in both orders of bytes, with marks, declarations or none, blanks between, broken ones."""
    for seed in range(tries(2000, 200)):
        draw = random.Random(seed)
        stored, expected, line = b"", list[str | int](), 1
        for number in range(draw.randint(1, 5)):
            codec = draw.choice(["utf-8", "utf-16-le", "utf-16-be"])
            is_declared, is_broken = draw.random() < 0.5, draw.random() < 0.2
            head = f'<?xml version="1.0" encoding="{codec[:6]}"?>\n' if is_declared else ""
            mark = "" if codec == "utf-8" else "\ufeff"
            if expected and isinstance(expected[-1], int) and not is_declared:
                continue  # nothing says where it begins
            gap = draw.choice(["", "\n", "\n\n"])
            text = f"{head}<r>\n<d>größer {number}</d>" + ("\n<d>a < b</d></r>" if is_broken else "</r>") + gap
            breaks = text[: text.find(" < ")].count("\n")
            stored += (mark + text).encode(codec)
            expected += [f"größer {number}", *([line + breaks] if is_broken else [])]
            line += text.count("\n")
        size = draw.choice([1, 3, 1 << 16])

        class Slow(io.BytesIO):
            def read(self, _: int | None = -1, /, size: int = size) -> bytes:
                return super().read(size)

        found = list(xml_records(Slow(stored), FilesSource(path="x", xml_element="d"), 1000))
        texts = [one.text if isinstance(one, Record) else one.refusal.detail for one in found]
        told = [f"line {said}:" if isinstance(said, int) else said for said in expected]
        assert len(texts) == len(told) and all(map(str.__contains__, texts, told)), (stored, texts, told)
