"""Files of pages: their text layer, or what is recognised in their pictures.

pdf.py, scans.py        layers and pictures of a PDF, pictures of a TIFF and the like
glyphs.py               the text of a page of a PDF, glyph by glyph
annotations.py          fields and free texts beside it; optional_content.py takes out switched-off layers
line_hyphens.py         joins words over lines and pages
layer_score.py          whether a layer is text or rubbish
ocr.py                  recognises lines; reading_order.py puts them in order
"""
