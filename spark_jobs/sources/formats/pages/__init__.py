"""Files of pages: their text layer, or what is recognised in their pictures.

pdf.py, scans.py   layers and pictures of a PDF, pictures of a TIFF and the like
layer_score.py     whether a layer is text or rubbish
ocr.py             recognises lines; reading_order.py puts them in order
"""
