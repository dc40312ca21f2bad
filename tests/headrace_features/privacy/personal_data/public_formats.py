"""Personal data made from public rules of its formats, in contexts made of parts: what tests of recall plant.

Sources: RFC 5321 and IDNA (mail), ITU-T E.164 and the example numbers of phonenumbers, ISO/IEC 7812 (cards), ISO 13616
(IBAN), RFC 4291 (IPv6), IEEE EUI-48, and what services say of their keys.
"""

from __future__ import annotations

import ipaddress
import random
import string
from collections.abc import Callable

import phonenumbers
from phonenumbers import PhoneNumberFormat
from stdnum import luhn
from stdnum.iban import calc_check_digits

from tests.headrace_features.privacy.personal_data.planted import Planted

_HEX = "0123456789abcdef"
_ALNUM = string.ascii_letters + string.digits
_NO_BREAK, _NO_BREAK_HYPHEN, _THIN = "\u00a0", "\u2011", "\u202f"


def _draw(rng: random.Random, alphabet: str, count: int) -> str:
    return "".join(rng.choices(alphabet, k=count))


def mail(rng: random.Random) -> str:
    """A dot-atom at a host, whose labels may be of other scripts."""
    local = rng.choice(["ada", "Grace.Hopper", "j_doe", "li+news", "m-k", "x", "a.b.c+d_e", "o'brien", "jürgen", "77"])
    host = rng.choice(
        ["x1", "mail.uni-bonn", "müller", "ein-haus", "xn--mller-kva", "a.b.c", "straße", "例子", "пример"]
    )
    ascii_host = all(letter.isascii() for letter in host)
    last = ["de", "com", "co.uk", "museum", "COM", "org", "fr", "net"] + ([] if ascii_host else ["中国", "рф"])
    return f"{local}{rng.choice(['', str(rng.randrange(99))])}@{host}.{rng.choice(last)}"


_REGIONS: tuple[str, ...] = (
    "US",
    "GB",
    "DE",
    "FR",
    "ES",
    "IT",
    "NL",
    "PL",
    "RU",
    "CN",
    "JP",
    "KR",
    "IN",
    "BR",
    "MX",
    "TR",
    "ID",
    "SA",
)
_REGIONS += ("EG", "PT", "BD", "PK", "UA", "SE", "CH", "AT", "AU", "ZA", "NG", "VN")


def _example(rng: random.Random) -> phonenumbers.PhoneNumber:
    """A valid number of some country: the example of its mobile or fixed lines with other last digits."""
    region = rng.choice(_REGIONS)
    kind = rng.choice([phonenumbers.PhoneNumberType.MOBILE, phonenumbers.PhoneNumberType.FIXED_LINE])
    example = phonenumbers.example_number_for_type(region, kind)
    assert example is not None
    while True:
        made = phonenumbers.PhoneNumber()
        made.merge_from(example)
        made.national_number = (example.national_number or 0) // 1000 * 1000 + rng.randrange(1000)
        if phonenumbers.is_valid_number(made):
            return made


def phone_international(rng: random.Random) -> str:
    """With the country, in E.164 or grouped as is usual there, by blanks of several kinds, points or dashes."""
    number = _example(rng)
    if rng.random() < 0.3:
        return phonenumbers.format_number(number, PhoneNumberFormat.E164)
    text = phonenumbers.format_number(number, PhoneNumberFormat.INTERNATIONAL)
    if rng.random() < 0.1:
        head, _, rest = text.partition(" ")
        text = f"{head} (0) {rest}" if rng.random() < 0.5 else f"{head} (0){rest}"
    return text.replace(" ", rng.choice([" ", " ", "-", ".", _NO_BREAK, _THIN])).replace("-", rng.choice(["-", " "]))


def phone_national(rng: random.Random) -> str:
    """As it is written inside of the country; a label says what it is."""
    text = phonenumbers.format_number(_example(rng), PhoneNumberFormat.NATIONAL)
    choice = rng.random()
    if choice < 0.3:
        return "".join(letter for letter in text if letter.isdigit())
    return text.replace("-", _NO_BREAK_HYPHEN) if choice < 0.4 else text.replace(" ", rng.choice([" ", _NO_BREAK]))


_ISSUERS = [("4", 16), ("4", 13), ("51", 16), ("2221", 16), ("34", 15), ("37", 15), ("6011", 16), ("65", 16)]
_ISSUERS += [("3528", 16), ("36", 14), ("305", 14), ("62", 16), ("4", 19), ("62", 19)]


def card(rng: random.Random, labelled: bool) -> str:
    """A number of an issuer with its check digit; without a label of the usual length, and mostly grouped."""
    prefix, length = rng.choice([one for one in _ISSUERS if labelled or one[1] in (14, 15, 16)])
    body = prefix + _draw(rng, string.digits, length - 1 - len(prefix))
    number = body + luhn.calc_check_digit(body)
    if len(set(number)) < 4:
        return card(rng, labelled)
    if length == 13 or rng.random() < 0.3:
        return number
    cuts = {14: (4, 10), 15: (4, 10), 16: (4, 8, 12), 19: (4, 8, 12, 16)}[length]
    groups = [number[a:b] for a, b in zip((0, *cuts), (*cuts, length), strict=True)]
    return rng.choice([" ", "-", " ", _NO_BREAK, ".", _NO_BREAK_HYPHEN]).join(groups)


_IBANS = {"DE": "n18", "GB": "a4n14", "NL": "a4n10", "FR": "n10c11n2", "NO": "n11", "MT": "a4n5c18", "SA": "n2c18"}
_IBANS |= {"CH": "n5c12", "PL": "n24", "ES": "n20", "BR": "n23a1c1", "IT": "a1n10c12", "BE": "n12", "TR": "n5n1c16"}


def iban(rng: random.Random) -> str:
    """Of one of some countries, in groups of four or in one."""
    country = rng.choice(list(_IBANS))
    kinds = {"n": string.digits, "a": string.ascii_uppercase, "c": string.digits + string.ascii_uppercase}
    body, count, kind = "", "", "n"
    for letter in _IBANS[country] + "n":
        if letter.isalpha():
            body += _draw(rng, kinds[kind], int(count)) if count else ""
            kind, count = letter, ""
        else:
            count += letter
    number = country + calc_check_digits(f"{country}00{body}") + body
    separator = rng.choice(["", " ", "-", _NO_BREAK, " "])
    return separator.join(number[k : k + 4] for k in range(0, len(number), 4))


def ip(rng: random.Random) -> str:
    """A public address; of IPv6 in the forms of RFC 4291, section 2.2."""
    if rng.random() < 0.4:
        while True:
            address = ipaddress.IPv4Address(rng.randrange(1 << 32))
            if address.is_global and not address.is_multicast and max(address.packed) >= 100:
                return str(address)
    groups = [rng.choice([0x2A00, 0x2001, 0x2606, 0x2400]) + rng.randrange(1, 99)]
    groups += [rng.randrange(1, 1 << 16) for _ in range(7)]
    zeros = rng.randrange(0, 5)
    groups[8 - zeros - 1 : 7] = [0] * zeros
    made = ipaddress.IPv6Address(b"".join(group.to_bytes(2, "big") for group in groups))
    text = rng.choice([str(made), made.exploded, str(made).upper(), ":".join(f"{group:x}" for group in groups)])
    if rng.random() < 0.1:
        text = f"::ffff:{rng.randrange(60, 90)}.{rng.randrange(100, 250)}.7.{rng.randrange(256)}"
    return text


def mac(rng: random.Random) -> str:
    """Of a device, with colons, dashes or points."""
    octets = [f"{rng.randrange(0, 256, 2):02x}", *(_draw(rng, _HEX, 2) for _ in range(5))]
    if not any(letter.isalpha() for octet in octets for letter in octet):
        return mac(rng)
    joined = "".join(octets)
    text = rng.choice([":".join(octets), "-".join(octets), f"{joined[:4]}.{joined[4:8]}.{joined[8:]}"])
    return text.upper() if rng.random() < 0.5 else text


def secret(rng: random.Random) -> str:
    """A key of a service, or a private key."""
    base64 = _ALNUM + "_-"

    def last(text: str) -> str:
        return text[:-1] + "x"

    token = ".".join(
        ("eyJ" + _draw(rng, _ALNUM, 20), "eyJ" + _draw(rng, base64, 40) + "a", last(_draw(rng, base64, 43)))
    )
    lines = "\n".join(_draw(rng, _ALNUM + "+/", 64) for _ in range(rng.randint(3, 25)))
    kind = rng.choice(["RSA ", "", "EC ", "OPENSSH ", "ENCRYPTED "])
    pgp = "\nVersion: GnuPG v2.2 (GNU/Linux)\nComment: https://x.org (a)\n" if rng.random() < 0.5 else "\n"
    forms = [
        rng.choice(["ghp_", "gho_", "ghs_", "ghu_"]) + _draw(rng, _ALNUM, 36),
        "github_pat_" + _draw(rng, _ALNUM, 22) + "_" + _draw(rng, _ALNUM, 59),
        rng.choice(["AKIA", "ASIA"]) + _draw(rng, string.ascii_uppercase + "234567", 16),
        f"xoxb-{_draw(rng, string.digits[1:], 12)}-{_draw(rng, string.digits[1:], 12)}-{_draw(rng, _ALNUM, 24)}",
        f"xapp-1-A{_draw(rng, _ALNUM.upper(), 10)}-{_draw(rng, string.digits, 13)}-{_draw(rng, _HEX, 64)}",
        token,
        "glpat-" + _draw(rng, _ALNUM, 20),
        "AIza" + _draw(rng, _ALNUM, 35),
        rng.choice(["sk_live_", "rk_live_", "sk_test_"]) + _draw(rng, _ALNUM, rng.choice([24, 99])),
        "sk-" + _draw(rng, _ALNUM, 20) + "T3BlbkFJ" + _draw(rng, _ALNUM, 20),
        "sk-proj-" + last(_draw(rng, base64, 120)),
        "sk-ant-api03-" + last(_draw(rng, base64, 90)),
        "npm_" + _draw(rng, _ALNUM, 36),
        "hf_" + _draw(rng, string.ascii_letters, 34),
        "pypi-AgEIcHlwaS5vcmc" + last(_draw(rng, base64, 80)),
        f"SG.{last(_draw(rng, base64, 22))}.{last(_draw(rng, base64, 43))}",
        "dop_v1_" + _draw(rng, _HEX, 64),
        "shpat_" + _draw(rng, _HEX, 32),
        "gsk_" + _draw(rng, _ALNUM, 52),
        "glsa_" + _draw(rng, _ALNUM, 32) + "_" + _draw(rng, _HEX, 8),
        f"-----BEGIN {kind}PRIVATE KEY-----\n{lines}\n-----END {kind}PRIVATE KEY-----",
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----{pgp}\n{lines}\n=aB3d\n-----END PGP PRIVATE KEY BLOCK-----",
    ]
    return rng.choice(forms)


LABELS = {
    "phone": "Phone Tel. telephone|电话 手机 联系电话 傳真|Teléfono Móvil celular|फ़ोन मोबाइल|هاتف الجوال الهاتف|"
    "Téléphone tél. portable|ফোন মোবাইল|Telefone celular telemóvel|Телефон тел. моб.|فون موبائل|Telefon Handy "
    "Rufnummer|電話 電話番号 携帯|telepon ponsel|전화 휴대폰 연락처|Telefono cellulare",
    "card": "card Visa|信用卡 卡号 银行卡|tarjeta|कार्ड|بطاقة|carte|কার্ড|cartão|карта карты|کارڈ|Kreditkarte Karte|"
    "カード クレジットカード|kartu|카드|carta",
    "mac": "MAC ether|",
}
_BETWEEN = [
    ": ",
    ":",
    " ",
    " = ",
    "=",
    " - ",
    "\t",
    ":\n",
    "： ",
    "：",
    " is ",
    "号码：",
    "は",
    "는 ",
    " (",
    "</b>: ",
    "</td><td>",
]
_BEFORE = ["", " ", "(", "[", "<", '"', "'", "“", "«", "「", "（", "，", "。", ">", "<p>", "<b>", "|", "| ", "* ", "- "]
_BEFORE += [
    "\n",
    "\r\n",
    "\t",
    "我的",
    "は",
    "번호",
    "связь ",
    "`",
    "**",
    "_",
    ", ",
    "; ",
    "…",
    "·",
    "\u200b",
    "{",
    '="',
]
_AFTER = ["", " ", ")", "]", ">", '"', "'", "”", "»", "」", "）", "，", "。", "<", "</p>", "<br>", "|", " |", ".", ", "]
_AFTER += [
    "\n",
    "\r\n",
    "\t",
    "联系",
    "です",
    "입니다",
    " связь",
    "`",
    "**",
    "_",
    ";",
    "! ",
    "?",
    "…",
    "、",
    "\u200b",
    "}",
    "(",
]
_WORDS = ["note", "see", "我们今天", "vielen Dank", "спасибо", "oggi", "the day after", "x", "これ", "ok."]

MAKERS: dict[str, Callable[[random.Random], str]] = {
    "mail": mail,
    "phone": phone_international,
    "card": lambda rng: card(rng, False),
    "iban": iban,
    "ip": ip,
    "mac": mac,
    "secret": secret,
}


def planted(rng: random.Random, kind: str) -> Planted:
    """A text with one value of a kind, beside a label or alone, and its span in bytes."""
    label = ""
    before, after = rng.choice(_BEFORE), rng.choice(_AFTER)
    value = MAKERS[kind](rng)
    if kind in LABELS and rng.random() < 0.6:
        label = rng.choice(rng.choice(LABELS[kind].split("|")).split() or ["MAC"])
        before = rng.choice(_BETWEEN) + (before if rng.random() < 0.3 and not before[:1].isalpha() else "")
        value = phone_national(rng) if kind == "phone" else card(rng, True) if kind == "card" else value
    if kind != "mail" and (after in ("_", "(") or before.endswith("_")):  # which go on an identifier
        after, before = " ", before.removesuffix("_")
    head = f"{rng.choice(_WORDS)}{rng.choice([' ', ', ', chr(10)])}{label}{before}"
    text = f"{head}{value}{after}{rng.choice(['', ' '])}{rng.choice(_WORDS) if after[-1:].isspace() else ''}"
    start = len(head.encode())
    return text, [(start, start + len(value.encode()), kind)]


def negative(rng: random.Random) -> str:
    """A line of what has such forms and is none of it."""

    def numbers(count: int, top: int) -> list[str]:
        return [str(rng.randrange(top)) for _ in range(count)]

    def digits(count: int) -> str:
        return _draw(rng, string.digits, count)

    def hexes(count: int) -> str:
        return _draw(rng, _HEX, count)

    day = f"{rng.randrange(1990, 2030)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
    clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
    forms = [
        f"version {'.'.join(numbers(4, 30))} of {rng.choice(['x', 'lib'])}-{'.'.join(numbers(3, 40))}",
        f"pkg=={'.'.join(numbers(4, 25))}; other>={'.'.join(numbers(4, 12))}",
        f"ISBN 978-{rng.randrange(10)}-{digits(4)}-{digits(4)}-{rng.randrange(10)}",
        f"ISBN-13: 978{digits(10)}, ISSN {digits(4)}-{digits(4)}",
        f"{day}T{clock}.{digits(6)}Z and {day} {clock}, {int(rng.random() * 2**31)}",
        f"sha256 {hexes(64)} md5 {hexes(32)}",
        f"{hexes(8)}-{hexes(4)}-4{hexes(3)}-a{hexes(3)}-{hexes(12)}",
        f'<path d="M{rng.random() * 99:.3f} {rng.random() * 99:.2f}c-{rng.random():.2f}.{rng.randrange(99)}-1.2 '
        f'{rng.random():.3f}-{rng.random() * 9:.3f} {rng.random() * 99:.2f}z"/>',
        f"order no. {digits(10)}, id {digits(16)}, ref {digits(12)}",
        f"std::map<int> a; x::y::z(); {_draw(rng, 'abcdef', 4)}::{_draw(rng, 'abcdef', 2)} {{a:b:c}} ::before ::after",
        f"W@x.T, icon@2x.png, @decorator, git@github.com:a/b.git, user@host, left-pad@1.{rng.randrange(9)}.0",
        f"color: #{hexes(6)}; rgba({', '.join(numbers(3, 256))}) {'-'.join(numbers(3, 99))}",
        f"{rng.random() * 1000:.6f}, {rng.random():.12f}, 1.{digits(3)}.{digits(3)}",
        f"192.168.{rng.randrange(256)}.{rng.randrange(256)}, 10.0.0.{rng.randrange(256)}, fe80::1, ::1, 127.0.0.1",
        f"{'-'.join(f'{rng.randrange(100):02}' for _ in range(6))} and {' '.join(numbers(9, 99))}",
        f"第{rng.randrange(99)}条 {rng.randrange(1900, 2030)}年{rng.randrange(1, 13)}月 {digits(9)}",
        f"dict-{_draw(rng, _ALNUM, 6)} sk-learn sk-{_draw(rng, string.ascii_lowercase, 40)} npm_config_cache",
        f"{clock} {rng.randrange(1, 99)}:{rng.randrange(10, 60)} chr{rng.randrange(22)}:{rng.randrange(10**8)}",
        f"0x{hexes(12)} {hexes(4)}.{hexes(4)} {hexes(12)}",
    ]
    return rng.choice(forms)
