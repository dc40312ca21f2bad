"""Pages: HTML and XHTML, saved pages and books of them.

markup.py           takes markup apart; page_blocks.py makes blocks of it, inline_text.py the text of one
formulas.py, list_marks.py, roles.py    what stands for formulas, before items; what elements are for
main_text.py        which blocks are the article: block_features.py and article_network.py, or a library
html.py             a page; xhtml.py, mhtml.py, epub.py
hidden_parts.py     what styles of a mail hide
"""
