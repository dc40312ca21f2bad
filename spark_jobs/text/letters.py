r"""The letters of a text, by which texts are compared that differ only in case, white space and punctuation.

Letters are defined character by character, independent of context:

1. Each character is lower-cased by Unicode's full mapping (`str.lower`); a final sigma counts as sigma.
2. White space, punctuation, control and format characters are left out (general categories Z*, P*, Cc, Cf). Symbols
   (S*: `+ < = > $ ^ | ~` and the backtick), digits and everything else stay.

    'Hello, World!\n'  ->  'helloworld'  ->  SHA-256 of these ten bytes

Short texts such as `return 0;` are equal by chance, so a text with fewer than `min_letters` letters has no hash.
"""

from __future__ import annotations

import hashlib
from typing import Final

from spark_jobs.text.characters import code_points, without_letters

_ASCII_LEFT_OUT: Final = bytes([*range(33), 127]) + b"!\"#%&'()*,-./:;?@[\\]_{}"
_ASCII_LOWER: Final = bytes(range(256)).lower()


def letters(utf8: bytes) -> bytes:
    """The letters of a text, as the module defines them.

    Args:
        utf8: the text in valid UTF-8.

    Returns:
        The letters in UTF-8.
    """
    # ASCII is translated as bytes, which is fast; bytes above 127 stay as they are.
    rest: bytes = utf8.translate(_ASCII_LOWER, _ASCII_LEFT_OUT)
    if rest.isascii():
        return rest
    # Lower-casing a whole text differs from lower-casing its characters one by one in the final sigma alone.
    points = code_points(str(rest, "utf-8").lower().replace("ς", "σ").encode("utf-8"))
    return points[~without_letters()[points]].tobytes().decode("utf-32-le").encode("utf-8")


def letters_sha256(utf8: bytes, min_letters: int) -> str | None:
    """SHA-256 of the letters of a text, or None where it has fewer than `min_letters`.

    Args:
        utf8: the text in valid UTF-8.
        min_letters: fewest letters (characters) that a hash is given for.

    Returns:
        64 lower-case hex digits, or None.
    """
    kept = letters(utf8)
    # A character has 1 to 4 bytes, so characters are counted only where the number of bytes does not decide.
    if len(kept) < min_letters or (len(kept) < 4 * min_letters and len(str(kept, "utf-8")) < min_letters):
        return None
    return hashlib.sha256(kept).hexdigest()
