"""PDF files that tests draw."""


def pdf(
    box: str,
    *streams: str,
    catalog: str = "",
    page: str = "",
    fonts: str = "",
    resources: str = "",
    more: tuple[str, ...] = (),
) -> bytes:
    """A PDF file with a page for each stream of drawing.

    Args:
        box: width and height of the pages.
        streams: drawings.
        catalog: further entries of the catalogue.
        page: further entries of each page.
        fonts: further fonts of each page, besides /F1.
        resources: further entries of each page's resources.
        more: further objects, from 4 + 2 * pages on.
    """
    objects = [
        f"<</Type/Catalog/Pages 2 0 R{catalog}>>",
        f"<</Type/Pages/Count {len(streams)}/Kids[{' '.join(f'{4 + 2 * n} 0 R' for n in range(len(streams)))}]>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
    ]
    for number, stream in enumerate(streams):
        place = f"/Parent 2 0 R/MediaBox[0 0 {box}]/Contents {5 + 2 * number} 0 R{page}"
        place += f"/Resources<</Font<</F1 3 0 R{fonts}>>{resources}>>"
        objects += [f"<</Type/Page{place}>>", f"<</Length {len(stream)}>>stream\n{stream}\nendstream"]
    objects += more
    body, places = b"%PDF-1.4\n", list[int]()
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj{content}endobj\n".encode("latin-1")
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    trailer = f"trailer<</Size {len(objects) + 1}/Root 1 0 R>>\nstartxref\n{len(body)}\n%%EOF"
    return body + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()
