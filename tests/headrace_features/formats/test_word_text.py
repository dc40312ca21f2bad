"""Every text of a Word document that is not deleted is in its document once, in order."""

from __future__ import annotations

import io
import random
import re
import zipfile

from docx.oxml import parse_xml

from headrace_features.formats.word import extract_docx
from spark_jobs.sources.records.extracted import Extracted
from tests.tiers import tries

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
COMPATIBLE = "http://schemas.openxmlformats.org/markup-compatibility/2006"
MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"
NAMES = f'xmlns:w="{WORD}" xmlns:mc="{COMPATIBLE}" xmlns:m="{MATH}" xmlns:v="urn:schemas-microsoft-com:vml"'
TYPES = "application/vnd.openxmlformats-officedocument.wordprocessingml."
PLACES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def word_file(body: str, **notes: str) -> bytes:
    """A Word document with this body, and parts for notes."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        parts = {"document": ("main", f"<w:document {NAMES}><w:body>{body}</w:body></w:document>")}
        parts |= {name: (name, f"<w:{name} {NAMES}>{inner}</w:{name}>") for name, inner in notes.items()}
        stated, related = "", ""
        for name, (kind, content) in parts.items():
            archive.writestr(f"word/{name}.xml", content)
            content_type = f"{TYPES}{'document.main' if kind == 'main' else kind}+xml"
            stated += f'<Override PartName="/word/{name}.xml" ContentType="{content_type}"/>'
            related += f'<Relationship Id="r{name}" Type="{PLACES}/{name}" Target="{name}.xml"/>'
        types = 'ContentType="application/vnd.openxmlformats-package.relationships+xml"'
        schema = "http://schemas.openxmlformats.org/package/2006"
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{schema}/content-types"><Default Extension="rels" {types}/>{stated}</Types>',
        )
        main = f'<Relationship Id="r1" Type="{PLACES}/officeDocument" Target="word/document.xml"/>'
        archive.writestr("_rels/.rels", f'<Relationships xmlns="{schema}/relationships">{main}</Relationships>')
        archive.writestr(
            "word/_rels/document.xml.rels", f'<Relationships xmlns="{schema}/relationships">{related}</Relationships>'
        )
    return target.getvalue()


def text_of(body: str, **notes: str) -> str:
    """The text that is read of a document."""
    found = extract_docx(word_file(body, **notes))
    assert isinstance(found, Extracted), found
    return found.text


class WordMaker:
    """Random bodies: runs in all that may hold runs, blocks in all that may hold blocks; a word in each run."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = 0

    def body(self) -> str:
        """Some blocks."""
        return "".join(self.block(3) for _ in range(1 + self.rng.randrange(5)))

    def block(self, depth: int) -> str:
        """A paragraph, a table, or blocks in something."""
        kind = self.rng.choice(["p", "p", "p", "tbl", "sdt", "customXml", "ins"] if depth else ["p"])
        if kind == "tbl":
            return f"<w:tbl><w:tblPr/><w:tblGrid/>{''.join(self.row(depth) for _ in range(2))}</w:tbl>"
        if kind == "p":
            stops = '<w:pPr><w:tabs><w:tab w:val="left"/></w:tabs></w:pPr>' if self.rng.random() < 0.2 else ""
            return f"<w:p>{stops}{''.join(self.inline(depth) for _ in range(self.rng.randrange(4)))}</w:p>"
        return self.within(kind, "".join(self.block(depth - 1) for _ in range(self.rng.randrange(3))))

    def row(self, depth: int) -> str:
        """A row of cells that may cover others."""
        cells = ""
        for _ in range(self.rng.randrange(1, 4)):
            covers = self.rng.choice(["", '<w:gridSpan w:val="2"/>', '<w:vMerge w:val="restart"/>', "<w:vMerge/>"])
            cell = f"<w:tc><w:tcPr>{covers}</w:tcPr>{self.block(depth - 1)}<w:p/></w:tc>"
            cells += self.within("sdt", cell) if self.rng.random() < 0.2 else cell
        row = f"<w:tr>{cells}</w:tr>"
        return self.within("sdt", row) if self.rng.random() < 0.2 else row

    def inline(self, depth: int) -> str:
        """A run, or runs in something."""
        kinds = ["r", "r", "ins", "del", "moveTo", "moveFrom", "hyperlink", "smartTag", "sdt", "customXml", "fldSimple"]
        kind = self.rng.choice([*kinds, "bdo", "dir", "field", "ruby", "box", "oMath"] if depth else ["r"])
        inner = "".join(self.inline(depth - 1) for _ in range(self.rng.randrange(3))) if depth else ""
        if kind == "r":
            return self.run()
        if kind == "ruby":
            return (
                f"<w:r><w:ruby><w:rubyPr/><w:rt>{self.run()}</w:rt><w:rubyBase>{self.run()}</w:rubyBase></w:ruby></w:r>"
            )
        if kind == "oMath":
            return f"<m:oMath><m:r><m:t>{self.word()}</m:t></m:r></m:oMath>"
        if kind == "field":
            marks = ("begin", "separate", "end")
            begin, separate, end = (f'<w:r><w:fldChar w:fldCharType="{at}"/></w:r>' for at in marks)
            code = f"<w:r><w:instrText>code</w:instrText></w:r><w:r><w:t>code</w:t></w:r>{self.rng.choice([end, ''])}"
            if code.endswith(end):  # a field in the code
                code = f"{begin}<w:r><w:instrText>code</w:instrText></w:r>{separate}{code}"
            return f"{begin}{code}{separate}{inner}{end}"
        if kind == "box":
            box = f"<w:txbxContent>{self.block(depth - 1)}</w:txbxContent>"
            box = f"<w:pict><v:shape><v:textbox>{box}</v:textbox></v:shape></w:pict>"
            empty = self.rng.choice(["", "<w:drawing/>"])
            choice = empty if self.rng.random() < 0.3 else box
            forms = f'<mc:Choice Requires="wps">{choice}</mc:Choice><mc:Fallback>{box}</mc:Fallback>'
            return f"<w:r><mc:AlternateContent>{forms}</mc:AlternateContent></w:r>"
        return self.within(kind, inner)

    def within(self, kind: str, inner: str) -> str:
        """Blocks, rows, cells or runs in something that may hold them."""
        if kind == "sdt":
            return f"<w:sdt><w:sdtPr><w:alias w:val='x'/></w:sdtPr><w:sdtContent>{inner}</w:sdtContent></w:sdt>"
        return f"<w:{kind}>{inner}</w:{kind}>"

    def run(self) -> str:
        """A run of one word."""
        return f"<w:r><w:rPr><w:b/></w:rPr><w:t xml:space='preserve'>{self.word()}</w:t></w:r>"

    def word(self) -> str:
        """The next word."""
        self.count += 1
        return f"[{self.count}]"


def expected(body: str) -> list[str]:
    """Words of the texts that no deletion holds, in order; of two forms the first, a base before its reading."""
    root = parse_xml(f"<w:body {NAMES}>{body}</w:body>")
    for form in root.iter(f"{{{COMPATIBLE}}}Fallback"):
        if form.getprevious().findall(f".//{{{WORD}}}t") + form.getprevious().findall(f".//{{{MATH}}}t"):
            form.clear()
    for ruby in root.iter(f"{{{WORD}}}ruby"):
        ruby.append(ruby.find(f"{{{WORD}}}rt"))
    deleted = {f"{{{WORD}}}{name}" for name in ("del", "moveFrom")}
    texts = (text for text in root.iter(f"{{{WORD}}}t", f"{{{MATH}}}t"))
    return [
        text.text
        for text in texts
        if text.text != "code" and not deleted & {above.tag for above in text.iterancestors()}
    ]


def test_every_text_outside_of_deletions_is_read_once_in_order() -> None:
    """Random documents against a walk over all texts."""
    seen = 0
    for seed in range(tries(5000, 300)):
        body = WordMaker(seed).body()
        found = extract_docx(word_file(body))
        words = expected(body)
        assert (re.findall(r"\[\d+\]", found.text) if isinstance(found, Extracted) else []) == words, (seed, body)
        assert not isinstance(found, Extracted) or "code" not in found.text, (seed, body)
        seen += len(words)
    assert seen > 2000


def p(inner: str) -> str:
    """A paragraph."""
    return f"<w:p>{inner}</w:p>"


def r(text: str) -> str:
    """A run."""
    return f"<w:r><w:t>{text}</w:t></w:r>"


def test_lines_are_those_that_are_seen() -> None:
    """Marks in runs, deleted ends of paragraphs and rows, wide cells, tables in cells, boxes, notes."""
    marks = (
        "<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t><w:noBreakHyphen/><w:t>d</w:t><w:softHyphen/></w:r>"
    )
    assert text_of(p(marks)) == "a\tb\nc-d"
    assert text_of(p('<w:r><w:t>a</w:t><w:sym w:font="Symbol" w:char="03B1"/></w:r>')) == "aα"
    assert text_of(p("<w:pPr><w:rPr><w:del/></w:rPr></w:pPr>" + r("be")) + p(r("gin"))) == "begin"
    cells = "<w:tc><w:tcPr><w:gridSpan w:val='2'/></w:tcPr>%s</w:tc><w:tc>%s</w:tc>"
    inner = f"<w:tbl><w:tr><w:tc>{p(r('x'))}</w:tc><w:tc>{p(r('y'))}</w:tc></w:tr></w:tbl>"
    deleted = f"<w:tr><w:trPr><w:del/></w:trPr><w:tc>{p(r('gone'))}</w:tc></w:tr>"
    rows = f"<w:tr>{cells % (p(r('wide')), inner + p(r('z')))}</w:tr>{deleted}"
    assert text_of(f"{p(r('a'))}<w:tbl>{rows}</w:tbl>{p(r('b'))}") == "a\nwide\tx y z\nb"
    box = f"<w:r><w:pict><w:txbxContent>{p(r('box'))}</w:txbxContent></w:pict></w:r>"
    assert text_of(p(r("before") + box + r("after"))) == "before\nbox\nafter"
    reading = f"<w:r><w:ruby><w:rt>{r('かんじ')}</w:rt><w:rubyBase>{r('漢字')}</w:rubyBase></w:ruby></w:r>"
    assert text_of(p(reading)) == "漢字(かんじ)"
    notes = f"<w:footnote w:type='separator'>{p(r('line'))}</w:footnote><w:footnote>{p(r('note'))}</w:footnote>"
    assert text_of(p(r("text")), footnotes=notes, endnotes=f"<w:endnote>{p(r('end'))}</w:endnote>") == "text\nnote\nend"


def test_a_document_without_properties_has_no_title() -> None:
    """python-docx makes some up."""
    found = extract_docx(word_file(p(r("text"))))
    assert isinstance(found, Extracted) and list(found.metadata) == ["headrace.extracted_by"]
