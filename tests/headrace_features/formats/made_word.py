"""Word documents that tests write, transitional or strict, with any parts."""

from __future__ import annotations

import io
import zipfile
from typing import NamedTuple

TRANSITIONAL = {
    "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
    "r": "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
}
STRICT = {
    "w": "http://purl.oclc.org/ooxml/wordprocessingml/main",
    "m": "http://purl.oclc.org/ooxml/officeDocument/math",
    "r": "http://purl.oclc.org/ooxml/officeDocument/relationships",
}
WORD_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml."
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"


class Part(NamedTuple):
    """A part that the document refers to: what it is, its name, its content and the content's type."""

    kind: str
    name: str
    content: str | bytes
    content_type: str = "application/xml"


def word_package(
    body: str,
    *parts: Part,
    names: dict[str, str] = TRANSITIONAL,
    root: str = "document",
    main: str = "word/document.xml",
    main_type: str = f"{WORD_TYPE}document.main+xml",
) -> bytes:
    """A Word document; parts have the ids `p0`, `p1`.. in their order, and `{names}` in them stands for namespaces."""
    spaces = " ".join(f'xmlns:{prefix}="{uri}"' for prefix, uri in names.items())
    folder, _, name = main.rpartition("/")
    relations = "".join(
        f'<Relationship Id="p{index}" Type="{names["r"]}/{part.kind}" Target="/{part.name}"/>'
        for index, part in enumerate(parts)
    )
    stated = "".join(f'<Override PartName="/{part.name}" ContentType="{part.content_type}"/>' for part in parts)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/{main}" ContentType="{main_type}"/>{stated}</Types>',
        )
        to_main = f'<Relationship Id="r1" Type="{names["r"]}/officeDocument" Target="{main}"/>'
        archive.writestr("_rels/.rels", f'<Relationships xmlns="{_PACKAGE}/relationships">{to_main}</Relationships>')
        archive.writestr(main, f"<w:{root} {spaces}><w:body>{body}</w:body></w:{root}>")
        archive.writestr(
            f"{folder}/_rels/{name}.rels".lstrip("/"),
            f'<Relationships xmlns="{_PACKAGE}/relationships">{relations}</Relationships>',
        )
        for part in parts:
            content = part.content
            archive.writestr(part.name, content.replace("{names}", spaces) if isinstance(content, str) else content)
    return target.getvalue()


def p(inner: str, properties: str = "") -> str:
    """A paragraph."""
    return f"<w:p>{f'<w:pPr>{properties}</w:pPr>' if properties else ''}{inner}</w:p>"


def r(text: str, properties: str = "") -> str:
    """A run."""
    shown = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r>{shown}<w:t xml:space="preserve">{text}</w:t></w:r>'
