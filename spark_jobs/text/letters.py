r"""The letters of a text: lower case, without white space and punctuation; texts with equal letters say the same.

The letters are defined character by character, so they do not depend on what stands around:

1. Each character is lower-cased by Unicode's full mapping (`str.lower`); a final sigma counts as sigma.
2. White space, punctuation, control and format characters are left out (general categories Z*, P*, Cc, Cf). Symbols
   (S*: `+ < = > $ ^ | ~` and the backtick), digits and everything else stay.

    'Hello, World!\n'  ->  'helloworld'  ->  SHA-256 of these ten bytes

Few letters say little (`return 0;`), so a text with fewer than `min_letters` of them has no hash.
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
    # ASCII is done on bytes, at the speed of memory; bytes above 127 pass untouched.
    rest: bytes = utf8.translate(_ASCII_LOWER, _ASCII_LEFT_OUT)
    if rest.isascii():
        return rest
    # Lower-casing characters one by one or all together differs in the final sigma alone.
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
    # A character has at most four bytes: only in between must they be counted.
    if len(kept) < min_letters or (len(kept) < 4 * min_letters and len(str(kept, "utf-8")) < min_letters):
        return None
    return hashlib.sha256(kept).hexdigest()
