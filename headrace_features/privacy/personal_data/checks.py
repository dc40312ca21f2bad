"""The exact checks of candidates: checksums, dates, ranges and the patterns of kept libraries.

A check takes a candidate and gives the findings in it, usually one or none. python-stdnum knows the national numbers,
phonenumbers the lengths and prefixes of the world's phones, detect-secrets what the keys of services look like.
"""

from __future__ import annotations

import importlib
import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from headrace_features.privacy.personal_data import rules
from headrace_features.privacy.personal_data.key_patterns import is_expected, key_patterns
from headrace_features.privacy.personal_data.rules import RULES, DetectionRule
from spark_jobs.threads import made_once

_MARKS: Final = str.maketrans(
    "\u00a0\u202f\u3000\u2010\u2011\u2012\u2013\u2212\uff0d\uff08\uff09\uff0e", "   ------()."
) | dict.fromkeys(range(0x2000, 0x200B), " ")
"""Marks between groups of numbers, and their ASCII forms."""
_UNLIKELY: Final = 0.3
"""Confidence of what has the form but most likely is no personal data: private addresses, ids that pass as cards."""


class Candidate(NamedTuple):
    """What the scan found.

    Attributes:
        rule: of the table of rules.
        value: the bytes of the span, as Latin-1.
        before: up to 48 characters before them on the same line.
        after: the character after them, or "".
        beside_words: whether a word of the rule stands before the span.
        context: mask of the known words there.
    """

    rule: DetectionRule
    value: str
    before: str
    after: str
    beside_words: bool
    context: int

    @property
    def text(self) -> str:
        """The value with the marks between its groups in their ASCII forms; its places are not those of the value."""
        if self.value.isascii():
            return self.value
        return self.value.encode("latin-1").decode(errors="replace").translate(_MARKS)

    @property
    def confidence(self) -> float:
        """That of the rule."""
        return self.rule.confidence_beside_words if self.beside_words else self.rule.confidence


class DetectedValue(NamedTuple):
    """Personal data in a candidate, by characters of its value; one per byte."""

    start: int
    end: int
    rule: str
    confidence: float


Check = Callable[[Candidate], Iterator[DetectedValue]]


def findings(rule: int, candidate: Candidate) -> Iterator[DetectedValue]:
    """What the check of a rule finds in a candidate."""
    return _CHECKS.get(rule, _by_name)(candidate)


def _whole(candidate: Candidate, confidence: float, rule: str | None = None) -> Iterator[DetectedValue]:
    yield DetectedValue(0, len(candidate.value), rule or candidate.rule.name, confidence)


def _by_name(candidate: Candidate) -> Iterator[DetectedValue]:
    """Rules with shapes: a card, a North American phone, a British insurance number, or a module of python-stdnum."""
    name, value = candidate.rule.name, candidate.text
    if name.startswith("card"):
        yield from _card(candidate)
    elif name == "phone_north_america":
        digits = re.sub(r"\D", "", re.split(" ?[ex]", value)[0])[-10:]
        start = -1 if candidate.before.endswith("(") else 0
        if (")" in value) == (start < 0 or "(" in value) and digits[0] not in "01" and digits[3] not in "01":
            yield DetectedValue(start, len(candidate.value), name, candidate.confidence)
    elif name == "gb_nino":
        # HM Revenue & Customs, NIM39110: D, F, I, Q, U, V never stand first or second, nor O second.
        if re.fullmatch(
            r"(?i)(?!BG|GB|KN|NK|NT|TN|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d\d ?\d\d ?\d\d ?[A-D]", value
        ):
            yield from _lettered(candidate)
    elif _module(candidate.rule.check).is_valid(value) and len(set(re.sub(r"\D", "", value))) > 2:
        yield from _lettered(candidate)


def _lettered(candidate: Candidate) -> Iterator[DetectedValue]:
    """A number with letters in small type needs a word beside it: pieces of hashes look the same."""
    if candidate.beside_words or candidate.value == candidate.value.upper():
        yield from _whole(candidate, candidate.confidence)


class _StdnumModule:
    """What a module of python-stdnum offers."""

    is_valid: Callable[..., bool]


@made_once
def _module(name: str) -> _StdnumModule:
    return importlib.import_module(f"stdnum.{name}")  # type: ignore[return-value]


# Issuer prefixes and lengths, ISO/IEC 7812: Visa, Mastercard (two), American Express, Diners Club, Discover, JCB,
# UnionPay.
_ISSUER: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-59]|[689]\d)\d{11}|(?:6011|64[4-9]\d|65\d\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14,17}"
)
_ISSUER_BESIDE_WORDS: Final = re.compile(
    r"(?:(?:5[06-9]|6\d)\d\d|0604)\d{8,15}|(?:1800|2131)\d{11}|3\d{15}"
)  # Maestro, JCB


_VALUE_OF_A_NAME: Final = re.compile(r"(?:\w[\"'\])]* ?[=:] ?[\"'\[(]*|[_#&?-]|\w[.,(\[|][\"']?)$", re.ASCII)


def _card(candidate: Candidate) -> Iterator[DetectedValue]:
    digits = re.sub(r"\D", "", candidate.value)
    beside = candidate.beside_words
    if not (_ISSUER.fullmatch(digits) or (beside and _ISSUER_BESIDE_WORDS.fullmatch(digits))):
        return
    if not _module("luhn").is_valid(digits) or len(set(digits)) < 2:
        return
    confidence = candidate.confidence
    # One plain number in ten passes; in code and logs most of them are ids.
    is_value = _VALUE_OF_A_NAME.search(candidate.before) is not None
    if candidate.rule.name == "card_plain" and not beside and (candidate.context & rules.NUMBER_OF_A_THING or is_value):
        confidence = _UNLIKELY
    yield from _whole(candidate, confidence)


_FILES: Final = "png jpg jpeg gif svg webp ico css scss js mjs jsx ts tsx json html htm php xml txt yml yaml"
_UNITS: Final = "tar gz exe dll jar class self local internal lan localdomain service socket timer mount target"
_NO_HOST: Final = frozenset((_FILES + " " + _UNITS).split())
"""Last labels that say that what follows the @ is a file, a version or a unit."""
_RESERVED: Final = frozenset(("example", "test", "invalid", "localhost"))  # RFC 2606
_LAST_LABEL: Final = r"(?:[A-Za-z]{2,24}|xn--[A-Za-z0-9-]+)"
# Before a word of a script without blanks an address may end; what goes on in Latin letters is one label.
_HOST: Final = re.compile(
    rf"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+{_LAST_LABEL}(?![A-Za-z0-9\u00c0-\u024f]|-[A-Za-z0-9])"
)
# Last labels of other scripts that the root zone has, of which the usual ones.
_OTHER_LAST: Final = (
    "рф|рус|бел|укр|срб|мкд|бг|қаз|мон|онлайн|сайт|москва|дети|ελ|ευ|中国|中國|公司|网络|網絡|在线|网址|香港|台湾|台灣|新加坡|商城|移动|"
    "한국|みんな|भारत|ভারত|ไทย|ישראל|قطر|مصر|السعودية|امارات|ایران|پاکستان|المغرب|تونس|الاردن|عراق|شبكة"
)
_WIDE_HOST: Final = re.compile(rf"(?:\w(?:[\w-]*\w)?\.)+(?:{_LAST_LABEL}(?![A-Za-z0-9-])|{_OTHER_LAST})")
_CALLED: Final = frozenset(
    ("com", "org", "net", "edu", "gov", "info", "de", "fr", "uk", "ru", "jp", "cn", "br", "nl", "es", "pl")
)
"""Last labels after which a bracket is a remark, not the arguments of a method."""


def _mail(candidate: Candidate) -> Iterator[DetectedValue]:
    """An address with a name as its last label, for no picture at a scale, package at a version or call of a method."""
    local, domain = candidate.value.split("@")
    wide = domain if domain.isascii() else domain.encode("latin-1").decode(errors="replace")
    match = _HOST.match(wide) or _WIDE_HOST.match(wide)
    if match is None or (wide.isascii() and match.end() < len(wide)):
        return
    labels = match[0].lower().split(".")
    if labels[-1] in _NO_HOST or ".." in local:
        return
    after = wide[match.end() : match.end() + 1] or candidate.after
    if (after in tuple("([{") and labels[-1] not in _CALLED) or (after == ":" and local == "git"):
        return
    if candidate.before.endswith(":") and re.search(
        r"://[^\s/]*:$", candidate.before
    ):  # the user part of a URL: a host, no mailbox
        return
    confidence = 0.6 if _RESERVED & set(labels[-2:]) else candidate.confidence
    yield DetectedValue(0, len(local) + 1 + len(match[0].encode()), candidate.rule.name, confidence)


def _is_compared(before: str) -> bool:
    """Whether a version is expected: behind `>=`, `v`, `lib-`, not behind a tag."""
    return re.search(r"(?:[vV~^-]|[<>=~!]= ?|=|\w [<>] |[\w,][<>])$", before) is not None and not (
        re.search(r"<[^<>]*>$", before)
    )


def _ip(candidate: Candidate) -> Iterator[DetectedValue]:
    is_public = _is_public(candidate.value)
    if is_public is None:
        return
    name, confidence = candidate.rule.name, candidate.confidence
    groups = candidate.value.replace(":", ".").split(".")
    if not is_public:
        name, confidence = f"{name}_not_public", _UNLIKELY
    elif not candidate.beside_words and name == "ipv4":
        # Sections and versions have the form of addresses; those with small numbers alone need a word to be one.
        is_outline = candidate.context & rules.OUTLINE or _is_compared(candidate.before)
        at_line_start = not candidate.before.strip(" \t*#>") and candidate.after in tuple(". ")
        if is_outline or max(map(int, groups)) < 32 or (at_line_start and max(map(int, groups)) < 100):
            confidence = _UNLIKELY
    elif not (candidate.beside_words or re.match(r"[23][0-9A-Fa-f]{3}:", candidate.value)) and (
        sum(map(bool, groups)) < 3 or not re.search(r"\d", candidate.value)
    ):
        confidence = _UNLIKELY  # `a::b` of code
    yield from _whole(candidate, confidence, name)


@lru_cache(maxsize=1 << 16)
def _is_public(value: str) -> bool | None:
    """Whether an address is one of the public internet, for no use of documentation or several hosts; None if none."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return None
    inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    address = inner or address
    return address.is_global and not address.is_multicast


def _mac(candidate: Candidate) -> Iterator[DetectedValue]:
    digits = re.sub("[:.-]", "", candidate.value)
    octets = [digits[k : k + 2] for k in range(0, len(digits), 2)]
    if candidate.value.count(":") == 5 and any(len(octet) != 2 for octet in candidate.value.split(":")):
        return
    # Groups of decimals with dashes or points are dates and amounts as well.
    is_plain = digits.isdecimal() and ":" not in candidate.value and not candidate.beside_words
    is_device = len(set(octets)) > 2 and int(octets[0], 16) % 2 == 0
    yield from _whole(candidate, candidate.confidence if is_device and not is_plain else _UNLIKELY)


def _iban(candidate: Candidate) -> Iterator[DetectedValue]:
    # python-stdnum also compares with lists of banks, which are never complete.
    if _module("iban").is_valid(candidate.text, check_country=False):
        yield from _whole(candidate, candidate.confidence)


def _phone_international(candidate: Candidate) -> Iterator[DetectedValue]:
    """The longest run of groups that some country numbers so."""
    value = candidate.value
    ends = [match.end() for match in re.finditer(r"\d+", value)]
    for end in reversed(ends[-4:]):
        is_possible, is_valid = _phone_facts(
            "+" + re.sub(r"^00|\D", "", re.split(" ?[ex]", value[:end])[0].replace("(0)", ""))
        )
        if is_possible:
            confidence = 0.95 if is_valid else candidate.confidence
            if len(ends) == 1 and not candidate.beside_words and not is_valid:
                confidence = _UNLIKELY
            closing = value.find(")", end) + 1 if value.count("(") > value[:end].count(")") else end
            yield DetectedValue(0, max(end, closing), candidate.rule.name, confidence)
            return


@lru_cache(maxsize=4096)
def _phone_facts(number: str) -> tuple[bool, bool]:
    """Whether a number with its country code has a possible length, and whether its digits are in use."""
    import phonenumbers

    try:
        parsed = phonenumbers.parse(number)
    except phonenumbers.NumberParseException:
        return False, False
    return phonenumbers.is_possible_number(parsed), phonenumbers.is_valid_number(parsed)


_DOTTED: Final = re.compile(r"0\d(?:\.\d\d){4}|\d{3,4}\.\d{3}\.\d{3,4}")


def _phone_national(candidate: Candidate) -> Iterator[DetectedValue]:
    value = candidate.text
    is_decimal = re.fullmatch(r"\d+\.\d+", value) or (
        "." in value and not (candidate.beside_words or _DOTTED.fullmatch(value))
    )
    is_decimal = is_decimal and not (candidate.beside_words and re.fullmatch(r"0\d{1,4}\.\d{5,9}", value))
    if len(set(re.sub(r"\D", "", value))) > 2 and not is_decimal:
        yield from _whole(candidate, candidate.confidence)


def _known_key(candidate: Candidate) -> Iterator[DetectedValue]:
    for name, pattern in key_patterns():
        match = pattern.match(candidate.value)
        if match and is_expected(name, match[0], candidate.before):
            is_header_alone = name == "private_key" and match[0].count("-----") < 4
            yield DetectedValue(0, match.end(), name, _UNLIKELY if is_header_alone else candidate.confidence)
            return


_PLACEHOLDER: Final = re.compile(
    r"(?i)[<>{}$%]|example|changeme|change_me|placeholder|your[_-]|xxxx|\*\*\*|dummy|redacted"
    r"|^pass(?:word|wd)?$|^secret$"
)


def _password_in_url(candidate: Candidate) -> Iterator[DetectedValue]:
    from detect_secrets.plugins.basic_auth import BasicAuthDetector

    for pattern in BasicAuthDetector.denylist:
        match = pattern.search(candidate.value)
        if match and not _PLACEHOLDER.search(match[1]):
            yield DetectedValue(*match.span(1), candidate.rule.name, candidate.confidence)


def _assigned_secret(candidate: Candidate) -> Iterator[DetectedValue]:
    """A value with digits and letters in it: names, messages and paths are no secrets."""
    value = candidate.value
    if not (re.search(r"\d", value) and re.search(r"[A-Za-z]", value)) or re.search(r"\s|/.*/.*/|::|\(", value):
        return
    is_quoted = candidate.before.endswith(('"', "'", "`"))
    if is_quoted or not re.fullmatch(r"[A-Za-z_]+\d*|\D*\d\D*", value):
        yield from _whole(candidate, _UNLIKELY if _PLACEHOLDER.search(value) else candidate.confidence)


_CHECKS: Final[dict[int, Check]] = {
    rules.MAIL: _mail,
    rules.IPV4: _ip,
    rules.IPV6: _ip,
    rules.MAC: _mac,
    rules.IBAN: _iban,
    rules.PHONE_INTERNATIONAL: _phone_international,
    rules.PHONE_NATIONAL: _phone_national,
    rules.KNOWN_KEY: _known_key,
    rules.PASSWORD_IN_URL: _password_in_url,
    rules.ASSIGNED_SECRET: _assigned_secret,
}
assert len(RULES) <= 55, "a rule is a bit below those of OTHER_WORDS"
