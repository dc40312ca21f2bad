"""The text of Word documents.

package.py     parts and relationships of the file
document.py    paragraphs, tables, notes and foreign parts in order
styles.py      what a run is: hidden, raised, in a font of symbols
numbering.py   numbers and bullets of lists
formulas.py    formulas in a line
symbols.py     characters of fonts of symbols
"""

from headrace_features.formats.word.document import extract_docx

__all__ = ["extract_docx"]
