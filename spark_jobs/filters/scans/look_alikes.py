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
# Forms of the addresses, companies and soldiers' boxes that Faker makes in its default language, and few others do.
_FAKER: Final = re.compile(
    r"\b\d{3,5} [A-Z][\w']+ (?:Burgs?|Crossroads?|Glens?|Isle|Junctions?|Knolls?|Mews|Orchard|Ports?|Shoals?|Spurs?"
    r"|Stravenue|Throughway|Trafficway|Underpass|Viaduct|Villages?)\b"
    r"|\b(?:APO|FPO|DPO) A[AEP] \d{5}\b"
    r"|\b[A-Z][a-z]+, [A-Z][a-z]+ and [A-Z][a-z]+\b(?=\s*[\"',|\n])"
    r"|\b(?:Apt\.|Suite) \d{3}\n[A-Z][a-z]+ ?[A-Za-z]*(?:ville|town|mouth|berg|burgh|shire|chester|side|bury|fort|land"
    r"|stad|view|ton|port|haven|furt), [A-Z]{2} \d{5}\b"
)
_FAKER_FORMS: Final = 2


def signs(path: str, text: str) -> Iterator[tuple[str, int]]:
    """Each sign that a document bears, and how often.

    Args:
        path: below its repository or source.
        text: its content.
    """
    if _TEST_PATH.search(path):
        yield "test_path", 1
    if count := len(_LOREM.findall(text)):
        yield "lorem_ipsum", count
    count = len(_EXAMPLE_NAME.findall(text))
    if count >= _EXAMPLES and count * _EXAMPLE_CHARACTERS >= len(text):
        yield "example_names", count
    if (count := len(_FAKER.findall(text))) >= _FAKER_FORMS:
        yield "faker", count
