"""Texts with planted personal data, and with what only looks like it: the truth of tests and of the benchmark."""

from __future__ import annotations

import random
import string
from collections.abc import Callable

from stdnum import luhn
from stdnum.iban import calc_check_digits

Planted = tuple[str, list[tuple[int, int, str]]]


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choices(string.digits, k=count))


def _token(rng: random.Random, count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(rng.choices(alphabet, k=count))


def card(rng: random.Random) -> str:
    """A card number with a valid checksum, plain or grouped."""
    prefix, length = rng.choice(
        (("4", 16), ("51", 16), ("2300", 16), ("34", 15), ("6011", 16), ("3530", 16), ("36", 14))
    )
    body = prefix + _digits(rng, length - 1 - len(prefix))
    number = body + luhn.calc_check_digit(body)
    if length == 16 and rng.random() < 0.6:
        return rng.choice(" -").join(number[k : k + 4] for k in range(0, 16, 4))
    return number


def broken_card(rng: random.Random) -> str:
    """The same with a last digit that is off by one."""
    number = card(rng)
    return number[:-1] + str((int(number[-1]) + 1) % 10)


def iban(rng: random.Random) -> str:
    """A German, British or Dutch IBAN, plain or grouped."""
    kind = rng.randrange(3)
    bank = _token(rng, 4, string.ascii_uppercase)
    body = ("DE00" + _digits(rng, 18), "GB00" + bank + _digits(rng, 14), "NL00" + bank + _digits(rng, 10))[kind]
    number = body[:2] + calc_check_digits(body) + body[4:]
    return " ".join(number[k : k + 4] for k in range(0, len(number), 4)) if rng.random() < 0.5 else number


def broken_iban(rng: random.Random) -> str:
    """An IBAN with two neighbouring digits exchanged for others."""
    number = iban(rng)
    return number[:-1] + str((int(number[-1]) + 3) % 10)


def mail(rng: random.Random) -> str:
    """A mail address."""
    name = rng.choice(("ada", "grace.hopper", "j_doe", "li.wei+news", "o'brien", "m-k"))
    domain = rng.choice(("web", "mail.uni-x", "corp"))
    return f"{name}{rng.randrange(99)}@{domain}.{rng.choice(('de', 'com', 'co.uk', 'museum'))}"


def ip(rng: random.Random) -> str:
    """A public address of version 4 or 6."""
    if rng.random() < 0.3:
        return "2a01:" + ":".join(f"{rng.randrange(1, 65536):x}" for _ in range(7))
    return (
        f"{rng.choice((8, 46, 81, 93, 151, 212))}.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(100, 256)}"
    )


def phone(rng: random.Random) -> str:
    """A phone number that says its country, or one of North America."""
    a, b, c = rng.randrange(201, 990), rng.randrange(201, 990), rng.randrange(1000, 9999)
    forms = (
        f"+1 {a} {b} {c}",
        f"({a}) {b}-{c}",
        f"{a}-{b}-{c}",
        f"+49 30 {b}{c}",
        f"+44 20 7{b} {c}",
        f"+33 1 42 {_pairs(rng)}",
    )
    return rng.choice(forms)


def _pairs(rng: random.Random) -> str:
    return " ".join(_digits(rng, 2) for _ in range(3))


def ssn(rng: random.Random) -> str:
    """An American social security number."""
    return f"{rng.randrange(100, 660):03d}-{rng.randrange(10, 99)}-{rng.randrange(1001, 9999)}"


def secret(rng: random.Random) -> str:
    """A key of a service."""
    base64 = string.ascii_letters + string.digits + "_-"
    jwt = ".".join(("eyJ" + _token(rng, 20), "eyJ" + _token(rng, 30), _token(rng, 43, base64[:-1]) + "x"))
    forms = ("ghp_" + _token(rng, 36), "AKIA" + _token(rng, 16, string.ascii_uppercase + string.digits), jwt)
    return rng.choice((*forms, "glpat-" + _token(rng, 20), "AIza" + _token(rng, 35), "sk_live_" + _token(rng, 24)))


MAKERS: dict[str, Callable[[random.Random], str]] = {
    "mail": mail,
    "phone": phone,
    "card": card,
    "iban": iban,
    "ip": ip,
    "national_number": ssn,
    "secret": secret,
}
_WORDS = {"card": "card", "national_number": "SSN", "phone": "call", "ip": "address", "secret": "key"}
_PROSE = (
    "Please note that my {word} is {value}, and let me know by Friday whether that works for you.",
    "Für Rückfragen: {value} ({word}). Vielen Dank!",
    "The clerk wrote {value} on the form.\nNobody asked why.",
    "今天 {value} 我们",
)
_CODE = (
    'def test_{word}():\n    assert parse("{value}") is not None  # {word}\n',
    "config = {{'{word}': '{value}', 'retries': 3}}\n",
    'const {word} = "{value}";\n',
)
_LOGS = (
    "2024-03-01T12:44:01.123Z INFO  [worker-7] {word}={value} status=200 took=13ms\n",
    '{{"ts": 1709297041123, "level": "warn", "{word}": "{value}", "span": "4bf92f3577b34da6a3ce929d0e0e4736"}}\n',
)


def planted(rng: random.Random) -> Planted:
    """A text of prose, code or log lines with one value, and its span in bytes."""
    kind = rng.choice(list(MAKERS))
    value = MAKERS[kind](rng)
    templates = rng.choice((_PROSE, _CODE, _LOGS))
    head, tail = rng.choice(templates).replace("{value}", "\0").format(word=_WORDS.get(kind, kind)).split("\0")
    start = len(head.encode())
    return head + value + tail, [(start, start + len(value), kind)]


def decoy(rng: random.Random) -> str:
    """A text of code or log lines without personal data that is full of what looks like it."""
    pieces = (
        lambda: f"commit {_token(rng, 40, '0123456789abcdef')}",
        lambda: f"uuid={_token(rng, 8, '0123456789abcdef')}-4f1a-4e2b-9c3d-{_digits(rng, 12)}",
        lambda: f"tweet id: {rng.randrange(10**18, 9 * 10**18)}",
        lambda: f"order_id={rng.randrange(4 * 10**15, 5 * 10**15)}",
        lambda: f"ts={rng.randrange(1_600_000_000_000, 1_700_000_000_000)}",
        lambda: f"x = {rng.random():.16f} * {rng.randrange(10**9)}",
        lambda: f"version {rng.randrange(20)}.{rng.randrange(20)}.{rng.randrange(20)}.{rng.randrange(200)}",
        lambda: f"ISBN 978-{rng.randrange(10)}-{_digits(rng, 4)}-{_digits(rng, 4)}-{rng.randrange(10)}",
        lambda: f"listening on 192.168.{rng.randrange(256)}.{rng.randrange(256)}, 10.0.0.1, ::1 and fe80::1",
        lambda: "@decorator\n@app.route('/x')\nstd::vector<int> a; b::c(); x = W@y.T; icon@2x.png",
        lambda: f"2024-0{rng.randrange(1, 9)}-1{rng.randrange(10)} 12:{rng.randrange(10, 60)}:01.{_digits(rng, 6)}",
        lambda: f"sizes {' '.join(str(rng.randrange(1000)) for _ in range(12))}",
        lambda: f"card {broken_card(rng)}",
        lambda: f"IBAN {broken_iban(rng)}",
        lambda: f"0x{_token(rng, 16, '0123456789abcdef')} {_token(rng, 64, '0123456789ABCDEF')}",
        lambda: "password = get_password(user1); token: str; secret = os.environ['SECRET_1']; key = \"value\"",
        lambda: f"npm install left-pad@1.{rng.randrange(20)}.0 && pip install x==1.2.3.4",
    )
    return "\n".join(rng.choice(pieces)() for _ in range(8))
