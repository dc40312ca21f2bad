"""Secrets: which values may be one, where their values come from, and what hides them in all that is shown or kept.

    declared         judged                                       kept, shown        sent
    ?key=${MY_KEY}   the value of a variable of the environment   ?key=${MY_KEY}     ?key=5f1c..
    ?page=3          plain: a number, a date, words               ?page=3            ?page=3
    ?v=dQw4w9WgXcQ   may be a secret: refused, or `public: [v]`   ?v=dQw4w9WgXcQ     ?v=dQw4w9WgXcQ

A value is **plain** where each of its parts (between commas, blanks, ..) is a date, or made of numbers, words, and two
short mixed ones at most (`v2`, `utf8`, `90d`). All else may be a secret, as is whatever stands under a name of secrets.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import os
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit

from spark_jobs.exceptions import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
HIDDEN = "***"
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>`]+")
_LEAST = 4  # letters of a value that is hidden: shorter ones are in every text
_DATE = re.compile(r"\d{4}-?\d\d(-?\d\d)?([T ]\d\d:?\d\d(:?\d\d)?(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?")
_MIXED = re.compile(r"[A-Za-z]{1,4}\d{1,4}[a-z]?|\d{1,4}[A-Za-z]{1,3}")
_MOST_MIXED = 2  # in one part: AWS4-HMAC-SHA256, but not AB12-CD34-EF56
_SIGNS, _SIGNS_OF_PASSWORDS = set("@%&=+$!^~#?*\\`"), 4
_LONGEST_NUMBER = 20  # digits, those of 64 bits
_CARRIERS = {"params", "headers", "catalogue", "more", "options", "storage_options", "properties"}  # of values by name
_VOWELS = re.compile("[aeiouyAEIOUY]")
_SECRETIVE = re.compile(
    r"authorization|cookie|token|secret|passw|passphrase|pwd|credential|signature|(api|access|private|subscription)_?key"
)
_SECRETIVE_ALONE = {"key", "k", "sig", "sign", "jwt", "auth", "pass", "code", "otp", "pin", "sid", "session", "bearer"}
# Names of tokens that are counted, or that say where a list goes on.
_NO_SECRET = re.compile(
    r"(?<![a-z])(max|min|num|count|total|limit|page|paging|pagination|next|prev|previous|cursor|continuation|continue"
    r"|skip|delta|sync|start|resume|resumption|restart|scroll)(_?(new|page|input|output|prompt|completion))?_?tokens?"
    r"(?![a-z])|(?<![a-z])tokens?_?(count|limit|budget|type|per|max|min|izer)|tokeni[sz]"
)
_known: list[tuple[tuple[str, str], ...]] = [()]  # forms of this process's secrets, each with what stands for it
_lock = threading.Lock()


def is_plain(value: str) -> bool:
    """Whether a value reads as words, numbers and dates, as no secret does."""
    signs = set(value) & _SIGNS
    return len(signs) < _SIGNS_OF_PASSWORDS and all(map(_is_plain_part, re.split(r"[\s,;|+&]+", value)))


def may_be_secret(name: str, value: str) -> bool:
    """Whether the value under a name may be a secret; what variables of the environment hold is not looked at."""
    rest = VARIABLE.sub("", value)
    if rest != value or not rest.strip():
        return not is_plain(rest)
    return _is_secretive(name, value) or not is_plain(value)


def _is_plain_part(part: str) -> bool:
    if _DATE.fullmatch(part):
        return True
    mixed = 0
    for token in re.split(r"[\W_]+", part):
        if token.isdigit():
            if len(token) > _LONGEST_NUMBER:
                return False
        elif token.isalpha():
            if not _is_word(token):
                return False
        elif token:
            mixed += 1
            if mixed > _MOST_MIXED or not (_MIXED.fullmatch(token) or _is_numbered(token)):
                return False
    return True


def _is_numbered(token: str) -> bool:
    """Whether a token is a word and a digit behind it: `central1`."""
    return (
        token[-1].isdigit()
        and len(token) <= 12
        and token[:-1].islower()
        and token[:-1].isalpha()
        and _is_word(token[:-1])
    )


def _is_word(letters: str) -> bool:
    """Whether letters can be said: words in camel case of several letters each, with vowels among them."""
    if not letters.isascii():
        return len(letters) <= 24
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", letters)
    if len(letters) > 3 and len(letters) < 3 * len(words):
        return False
    if len(words) > 1 and any(len(word) > 2 and not word.isupper() and not _VOWELS.search(word) for word in words):
        return False
    return len(letters) <= 40 and all(map(_can_be_said, words))


def _can_be_said(word: str) -> bool:
    if len(word) <= 6 or len(word) > 24 or (word.isupper() and len(word) > 14):
        return len(word) <= 6
    share, run = (0.14, 5) if len(word) < 10 else (0.25, 4)
    return len(_VOWELS.findall(word)) >= share * len(word) and max(map(len, _VOWELS.split(word))) <= run


def _is_secretive(name: str, value: str) -> bool:
    """Whether a name is one of secrets: `api_token`, not `page_token`; `key`, where its value is more than a digit."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", "_", name).lower().strip("_")
    if value.lower() in ("true", "false"):
        return False
    if words in _SECRETIVE_ALONE:
        return len(value) > 4 or not value.isdigit()
    return _SECRETIVE.search(_NO_SECRET.sub("", words)) is not None


# What is declared.


def refuse_secrets(declared: BaseModel, public: Collection[str]) -> None:
    """Refuse a declaration in which a literal may be a secret; parts that have a `public` of their own are passed over.

    Raises:
        ValueError: names the first, without its value, and the mend.
    """
    for place, name, value in _literals(declared, ""):
        if _is_address(value):
            if fault := address_fault(value, public):
                raise ValueError(f"{place}: {fault}")
        elif name and not _is_public(name, public) and may_be_secret(name, value):
            raise ValueError(f"{place} looks like a secret, and the config is kept in tables; {_mend(name)}")


def address_fault(address: str, public: Collection[str] = ()) -> str:
    """Why an address may not be kept: which part of it may be a secret, and the mend; empty where none is."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""  # no address; who asks for it says so
    user, at, _ = parts.netloc.rpartition("@")
    if at and _shows_user(parts.scheme, user):
        return "holds a user or a password, which would stand in tables; write ${USER}:${PASSWORD}@ or use auth"
    for kind, text in (("parameter", parts.query), ("fragment", parts.fragment)):
        for name, value in _pairs(text):
            shown = name or kind
            if not _is_public(shown, public) and may_be_secret(name, value):
                shown = shown if is_plain(shown) else f"a {kind}"
                return f"{shown} looks like a secret, and addresses are kept in tables; {_mend(shown)}"
    return ""


def _mend(name: str) -> str:
    return f"write ${{NAME}}, a variable of the environment, use auth, or say that it is none: public: [{name}]"


def _is_public(name: str, public: Collection[str]) -> bool:
    return name in public or "*" in public


def _is_address(value: str) -> bool:
    return _ADDRESS.fullmatch(value) is not None


def _shows_user(scheme: str, user: str) -> bool:
    """Whether what stands before the host of an address is a secret; a container of Azure (`data@account`) is none."""
    name, _, password = user.partition(":")
    if VARIABLE.search(user):
        return not (is_plain(VARIABLE.sub("", name)) and not VARIABLE.sub("", password))
    return scheme in ("http", "https", "ftp") or bool(password) or not is_plain(unquote(name))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of a query or a fragment; a value without a name has none."""
    for part in re.split("[&;]", text):
        name, equals, value = part.partition("=")
        if part:
            yield (unquote_plus(name), unquote_plus(value)) if equals else ("", unquote_plus(name))


def _literals(value: Any, place: str, name: str = "", is_carried: bool = False) -> Iterator[tuple[str, str, str]]:
    """Texts in a declaration: where, the name under which a request carries it (empty for others), the text."""
    if fields := getattr(type(value), "model_fields", None):
        for field in fields:
            inner = getattr(value, field)
            if field != "public" and "public" not in getattr(type(inner), "model_fields", ()):
                yield from _literals(inner, f"{place}.{field}".strip("."), "", field in _CARRIERS)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _literals(inner, f"{place}.{key}".strip("."), str(key) if is_carried else "", is_carried)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from _literals(inner, place, name, is_carried)
    elif isinstance(value, str):
        yield place, name, value


# Values of variables.


def secret_of(setting: str, variable: str) -> str:
    """The value of the environment variable that a setting names; from then on it is hidden in what is shown or kept.

    Raises:
        ConfigError: it is not set.
    """
    value = os.environ.get(variable)
    if not value:
        raise ConfigError(f"{setting}: the environment variable {variable} is not set; set it, and run again")
    hide(value, variable)
    return value


def filled(text: str, setting: str, in_address: bool = False) -> str:
    """A declared text with values of the environment in place of `${NAME}`, quoted where it is an address.

    Raises:
        ConfigError: one is not set.
    """

    def value(name: re.Match[str]) -> str:
        secret = secret_of(setting, name[1])
        return quote(secret, safe="") if in_address else secret

    return VARIABLE.sub(value, text)


def hide(value: str, variable: str) -> None:
    """Have a value hidden from now on, in all forms in which servers and libraries repeat it."""
    if len(value) < _LEAST:
        return
    stands = f"${{{variable}}}"
    forms = {value, value.strip(), quote(value, safe=""), quote(value), quote_plus(value), html.escape(value)}
    forms |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    forms |= {base64.b64encode(value.encode()).decode(), base64.urlsafe_b64encode(value.encode()).decode()}
    forms |= {form.replace("/", "\\/") for form in forms}
    with _lock:
        before = dict(_known[0])
        new = {form: stands for form in forms if form not in before and len(form) >= _LEAST}
        if new:
            _known[0] = tuple(sorted((before | new).items(), key=lambda pair: -len(pair[0])))
            logging.setLogRecordFactory(_Record)


# What is shown or kept.


def without_secrets(text: str) -> str:
    """A text with what was given to this process as secrets hidden, and literals in addresses that may be ones."""
    for form, stands in _known[0]:
        if form in text:
            text = text.replace(form, stands)
    return _ADDRESS.sub(lambda match: _shown_address(match[0]), text) if "://" in text else text


def without_known(data: bytes) -> bytes:
    """What a server answered, without secrets that it repeats; words, which a text may have of its own, stay."""
    for form, stands in _known[0]:
        if not is_plain(form) and (encoded := form.encode()) in data:
            data = data.replace(encoded, stands.encode())
    return data


def with_variables(address: str) -> str:
    """An address that a server named, with `${NAME}` in place of the values of variables that it repeats."""
    for form, stands in _known[0]:
        address = address.replace(form, stands)
    return address


def without_literals(value: Any, name: str = "", is_carried: bool = False) -> Any:
    """A declaration as it may be shown: literals that may be secrets hidden, names of variables left.

    Args:
        value: the declaration, or a part of it.
        name: that of the part.
        is_carried: whether requests carry it under this name.
    """
    if isinstance(value, Mapping):
        return {key: without_literals(inner, str(key), is_carried or name in _CARRIERS) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_literals(inner, name, is_carried) for inner in value]
    if not isinstance(value, str):
        return value
    is_variable = re.fullmatch(r"[A-Z_][A-Z0-9_]*", value) is not None and is_plain(value)
    hidden = may_be_secret(name, value) if is_carried else _is_secretive(name, value) and not is_variable
    return HIDDEN if hidden and not _is_address(value) else without_secrets(value)


def shown_words(words: Iterable[str]) -> list[str]:
    """The words of a command line as they may be kept: what is set there, `--set source.params.key=..`, as declared."""
    shown = []
    for word in words:
        name, equals, value = without_secrets(word).partition("=")
        shown.append(f"{name}={without_literals(value, name.rpartition('.')[2], True)}" if equals else name)
    return shown


def _shown_address(address: str) -> str:
    """An address with user, password and literals of its query hidden where they may be secrets."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return HIDDEN if "@" in address or "=" in address else address
    user, at, host = parts.netloc.rpartition("@")
    if at and _shows_user(parts.scheme, user):
        address = address.replace(parts.netloc, f"{HIDDEN}@{host}", 1)
    for text in filter(None, (parts.query, parts.fragment)):
        for name, value in _pairs(text):
            if may_be_secret(name, value):
                parts_of = re.split("[&;]", text)
                quoted = next((part for part in parts_of if part and unquote_plus(part).endswith(value)), text)
                address = address.replace(quoted, f"{quoted.partition('=')[0]}={HIDDEN}" if name else HIDDEN)
    return address


def is_tainted(error: BaseException | None) -> bool:
    """Whether the message of an error, or of one behind it, has what `without_secrets` hides."""
    visited = set[int]()
    waiting = [error]
    while waiting:
        value_met = waiting.pop()
        if value_met is None or id(value_met) in visited:
            continue
        visited.add(id(value_met))
        text = f"{value_met} {value_met.args!r} {getattr(value_met, '__notes__', '')}"
        if without_secrets(text) != text:
            return True
        waiting += [value_met.__cause__, value_met.__context__, *getattr(value_met, "exceptions", ())]
    return False


class _Record(logging.LogRecord):
    """A record of a log whose message hides secrets."""

    def getMessage(self) -> str:  # noqa: N802 - logging's name
        """The message."""
        return without_secrets(super().getMessage())
