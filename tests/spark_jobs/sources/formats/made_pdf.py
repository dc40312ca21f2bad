"""PDF files that tests draw."""


def pdf(box: str, *streams: str) -> bytes:
    """A PDF file with a page for each stream of drawing."""
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {len(streams)}/Kids[{' '.join(f'{4 + 2 * n} 0 R' for n in range(len(streams)))}]>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for number, stream in enumerate(streams):
        place = f"/Parent 2 0 R/MediaBox[0 0 {box}]/Contents {5 + 2 * number} 0 R/Resources<</Font<</F1 3 0 R>>>>"
        objects += [f"<</Type/Page{place}>>", f"<</Length {len(stream)}>>stream\n{stream}\nendstream"]
    body, places = b"%PDF-1.4\n", list[int]()
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj{content}endobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    trailer = f"trailer<</Size {len(objects) + 1}/Root 1 0 R>>\nstartxref\n{len(body)}\n%%EOF"
    return body + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()
