"""Texts with ids that tell the encoder of a table: recorded with it, and compared before another version adds to it.

A later release of a tokenizer's library may give other ids for the same file: another table of characters, another
order of rules, names of special tokens found in texts. Documents of one table would then be encoded in two ways, and
nobody sees it. So an encoder records its versions and the ids of these texts; a run by other versions compares first.
A text never changes under its name: another text takes another name, and names on only one side are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final

ENCODED_BY: Final = "headrace.encoded-by"
"""Property of a table of ids: versions of what made the newest of them."""
FIXED_IDS: Final = "headrace.fixed-ids"
"""Property of a table of ids: JSON, ids of each fixed text by its name."""

_MOST_NAMES: Final = 32
_TEXTS: Final = {
    "scripts": "The quick brown fox. Größe, naïve, Ελληνικά, русский язык, עברית, العربية مُحَمَّد, हिन्दी क्षत्रिय, ไทยแลนด์, "
    "한국어, 日本語のテキスト、カタカナ, 中文没有空格。ქართული, አማርኛ, Tiếng Việt",
    "digits": "0 12 123 1234 12345678 3.14159 1,000,000 0x1F 1e-9 2026-11-29 a1b22c333 ١٢٣ १२३४ x² ½ Ⅷ \uff12\uff10",
    "white space": "a b  c   d\te\t\tf\n\ng \n h\r\n\r\ni\u00a0j\u2003\u2003k\u3000l\u0085m\u2028n\x1cp    \n        q"
    "\n\n\n  ",
    "contractions": "I'm you're he's we've they'll it'd don't I'M IT'S HE'LL rock'n'roll it\u2019s 'S's \u017f's ''s",
    "code": 'def f(x: int) -> str:\n    return f"{x!r}"  # {[()]} != == >= && || :: ... --- ___ $a @b /*c*/ <d> </d>\n',
    "signs": "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd \u2603\ufe0f "
    "a\u0300\u0301b \u20bf \u2211 \u200b\u200d\ufeff \ue000 \x00\x01\x7f \ufffd",
    "normal forms": "e\u0301 \u00e9 \u212b A\u030a \uac00 \u1100\u1161\u11a8 \u0958 \u304b\u3099 \ufb01 \u1e9b\u0323",
    "unassigned": "?\u0378's 0 ?\u088f's 0 ?\u1c8a's 0 ?\ua7ce's 0 ?\U00010d4a's 0 ?\U0001fae9's 0 ?\U0003fffd's 0",
    "runs": "a" * 65 + " " * 65 + "!" * 33 + "\u6f22" * 17 + "1" * 33 + "\n" * 17 + "-" * 65 + "=" * 9 + "ah" * 33,
}


def fixed_texts(file_text: str) -> dict[str, str]:
    """The fixed texts by name; one of them has the names of a tokenizer's own added tokens."""
    tokens = json.loads(file_text).get("added_tokens") or []
    names = [str(token["content"]) for token in tokens][:_MOST_NAMES]
    return {**_TEXTS, "names of tokens": "".join(f"a{name}b {name}\n" for name in names)}


def fixed_ids(file_text: str, encode: Callable[[Sequence[str]], Iterable[Iterable[int]]]) -> str:
    """JSON of the ids of each fixed text by its name; null where the library cannot encode it.

    Args:
        file_text: text of a tokenizer.json.
        encode: gives the ids of texts.
    """
    ids = {name: _ids_of(text, encode) for name, text in fixed_texts(file_text).items()}
    return json.dumps(ids, separators=(",", ":"))


def _ids_of(text: str, encode: Callable[[Sequence[str]], Iterable[Iterable[int]]]) -> list[int] | None:
    """Ids of a text; None where the library fails, as for words that a vocabulary without an unknown token lacks."""
    try:
        (ids,) = encode([text])
        return list(map(int, ids))
    except BaseException as error:  # it raises bare `Exception`, and panics, which are no `Exception`
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        return None


def first_difference(recorded: str, now: str) -> tuple[str, int] | None:
    """The first text of two `fixed_ids` with different ids, and the first different token; None where all agree.

    Texts in only one of them are left out.
    """
    recorded_ids: dict[str, list[int] | None] = json.loads(recorded)
    for name, ids in json.loads(now).items():
        if recorded_ids.get(name, ids) != ids:
            return f"the fixed text {name!r}", first_unequal(recorded_ids[name] or (), ids or ())
    return None


def first_unequal(some: Sequence[int], others: Sequence[int]) -> int:
    """Index of the first difference of two lists; the shorter length where one begins the other."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((at for at, (first, other) in pairs if first != other), min(len(some), len(others)))
