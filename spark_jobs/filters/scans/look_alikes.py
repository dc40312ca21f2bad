"""Signs that a document is a fixture or made up: where it lies, and what it says.

Each sign is one that real documents rarely bear: RFCs name example.com, so a few such names are no sign, many are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_TEST_PATH: Final = re.compile(
    r"(?:^|/)(?:tests?|testing|testdata|test[_-]data|fixtures?|__fixtures__|mocks?|__mocks__|cassettes|__snapshots__)/"
    r"|(?:^|/)(?:conftest\.py|test_[^/]*\.py|[^/]*_test\.(?:py|go|rb)|[^/]*\.(?:spec|test)\.[jt]sx?)$"
)
_LOREM: Final = re.compile(r"(?i)\blorem\s+ipsum\b")
_EXAMPLE_NAME: Final = re.compile(r"(?i)(?:[@.]|//)example\.(?:com|org|net)\b")
_EXAMPLES: Final = 3  # of such names, in a text that has one for each so many characters
_EXAMPLE_CHARACTERS: Final = 400
# Forms of the addresses and soldiers' boxes that Faker makes in its default language, and few others do.
_STREETS: Final = (
    "Burg", "Crossroad", "Glen", "Isle", "Junction", "Knoll", "Mews", "Orchard", "Port", "Shoal", "Spur", "Stravenue",
    "Throughway", "Trafficway", "Underpass", "Viaduct", "Village",
)  # fmt: skip
_BOXES: Final = ("APO A", "FPO A", "DPO A")
_FAKER: Final = re.compile(
    rf"\b\d{{3,5}} [A-Z][\w']+ (?:{'|'.join(_STREETS)})s?\b"
    r"|\b[AFD]PO A[AEP] \d{5}\b"
    r"|\b(?:Apt\.|Suite) \d{3}\n[A-Z][a-z]+ ?[A-Za-z]*(?:ville|town|mouth|berg|burgh|shire|chester|side|bury|fort|land"
    r"|stad|view|ton|port|haven|furt), [A-Z]{2} \d{5}\b"
)
_FAKER_WORDS: Final = (*_STREETS, *_BOXES, "Apt. ", "Suite ")
_FAKER_FORMS: Final = 2


def signs(path: str, text: str) -> Iterator[tuple[str, int]]:
    """Each sign that a document bears, and how often.

    Args:
        path: below its repository or source.
        text: its content.
    """
    if _TEST_PATH.search(path):
        yield "test_path", 1
    lower = text.lower()  # searching for words first is ten times as fast as the expressions
    if "ipsum" in lower and (count := len(_LOREM.findall(text))):
        yield "lorem_ipsum", count
    if "example." in lower:
        count = len(_EXAMPLE_NAME.findall(text))
        if count >= _EXAMPLES and count * _EXAMPLE_CHARACTERS >= len(text):
            yield "example_names", count
    if any(word in text for word in _FAKER_WORDS) and (count := len(_FAKER.findall(text))) >= _FAKER_FORMS:
        yield "faker", count
