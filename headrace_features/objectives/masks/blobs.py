r"""The rule `blob`: encoded data in a text, of which a model can learn the form and never the next letter.

    data:image/png;base64,iVBORw0KGgo..     a data: URL, its name included
    MIICXAIBAAKBgQC7..                      base64 of 64 letters and more, over line ends too
    d41d8cd98f00b204e9800998ecf8427e..      40 hexadecimal digits and more, the length of SHA-1
    0x4d, 0x5a, 0x90, .. \x4d\x5a..           32 bytes and more, or 16 escaped code units
    12, 7, 300, ..                          64 numbers and more between commas
    !function(e,t){..                       a line of 1,000 characters with next to no blank
    9f2c.. (256 characters)                 anything else that is one word of 256 characters

After the filter of encoded data of StarCoder2 (2402.19173, appendix A: base64, hexadecimal, escapes; it drops files,
with bounds of 64 letters and 8 items), with longer lists, since only these are no code that a person wrote. Letters
beyond ASCII are in no word or line: Chinese has no blanks. All patterns take time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from headrace_features.objectives.masks.rules import MaskedText, mask_rule

_DATA_URL: Final = re.compile(
    r"data:[\w.+-]{0,60}+/?[\w.+-]{0,80}+(?:;[\w.=+-]{1,40}+){0,4}+,[\w%+/=.~!*'():@&$?#-]{64,}+"
)
_LETTERS: Final = "[A-Za-z0-9+/_-]"
_BASE64: Final = re.compile(
    rf"(?<!{_LETTERS}){_LETTERS}{{60,}}+(?:\n[ \t]{{0,40}}+(?:{_LETTERS}{{40,}}+|{_LETTERS}{{2,}}+(?==)))*+={{0,2}}+"
)
_HEX: Final = re.compile(r"(?<![0-9A-WYZa-wyz])[0-9A-Fa-f]{40,}+(?![A-Za-z])")
_BYTES: Final = re.compile(r"(?:(?:0x|\\x|%)[0-9A-Fa-f]{2}[,;:\s\"'+]{0,40}+){32,}+")
_UNITS: Final = re.compile(r"(?:\\u[0-9A-Fa-f]{4}){16,}+")
_NUMBER: Final = r"[-+]?(?:0x[0-9A-Fa-f]{1,16}+|\d{1,24}+(?:\.\d{0,24}+)?+(?:[eE][-+]?\d{1,4}+)?+)[fFuUlL]{0,3}+"
_NUMBERS: Final = re.compile(rf"(?<![\w.])(?:{_NUMBER}\s{{0,40}}+[,;]\s{{0,40}}+){{63,}}+(?:{_NUMBER})?+")
_WORD: Final = re.compile(r"[!-~]{256,}+")
_LINE: Final = re.compile(r"[^\n]{1000,}+")
_LEAST_BASE64: Final = 64  # letters: a line of PEM, and of BigCode's filter
_LEAST_BLANKS: Final = 0.05  # of a line's characters; prose has some 0.16, formatted code 0.2 and more
_MOST_FOREIGN: Final = 0.1  # characters beyond ASCII of a line without blanks


@mask_rule(version="1")
def blob(document: MaskedText) -> Iterator[tuple[int, int]]:
    """Encoded data, hashes, arrays, minified lines and endless words."""
    text = document.text
    for pattern in (_DATA_URL, _HEX, _BYTES, _UNITS, _NUMBERS, _WORD):
        yield from (found.span() for found in pattern.finditer(text))
    yield from (found.span() for found in _BASE64.finditer(text) if _is_base64(found[0]))
    yield from (found.span() for found in _LINE.finditer(text) if _is_minified(found[0]))


def _is_base64(letters: str) -> bool:
    """Whether letters are as mixed as those of encoded bytes: 40% of each case and 16% digits are expected."""
    count = len(letters)
    digits, capitals, small = (sum(map(test, letters)) for test in (str.isdigit, str.isupper, str.islower))
    return count >= _LEAST_BASE64 and digits >= 0.04 * count and capitals >= 0.15 * count and small >= 0.15 * count


def _is_minified(line: str) -> bool:
    """Whether a long line of ASCII has next to no blank."""
    blanks = line.count(" ") + line.count("\t")
    foreign = 0 if line.isascii() else sum(letter > "\x7f" for letter in line)
    return blanks < _LEAST_BLANKS * len(line) and foreign < _MOST_FOREIGN * len(line)
