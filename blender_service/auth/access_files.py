"""The files of callers (bearer tokens) and of their readable namespaces (rules), read again when they change.

    # principal   token, or the SHA-256 of it, so that the file holds no secret
    pretraining   3q2-7wEjhgYz0Vb8kLmN
    evaluation    sha256:5f2b51ca2fdc5baa31ec02e002f69aec2b2d5c8a1b9a6b9ad1bd1f2f0b3f0f6b

    [[rule]]
    principals = ["pretraining", "team-*"]
    namespaces = ["main", "python_*"]
    create = true   # they may also create blends of them; without it, only read
    append = true   # and append rollouts to their tables

    [[team]]
    name = "research"
    principals = ["pretraining"]
    cache_share = 0.5    # of the server's block cache, kept free of others' blocks
    stream_share = 0.25  # of its streams, kept free of others' reads

Without any rule everybody may read everything, create blends and append. As soon as there is one, what no rule allows
is denied; blends are created and rollouts appended by those whose rule says so, of readable tables. `*`
stands for any characters.
A corpus holds texts of all its datasets, so reading it takes rules that allow its own namespace and each of its
datasets. What is declared `restricted` to teams takes membership of one of them besides.

Tokens are looked up by their SHA-256, so the time of a look-up does not reveal how near a guess was.
"""

from __future__ import annotations

import fnmatch
import hashlib
import logging
import re
import threading
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from blender_service.exceptions import AccessConfigError

PrincipalPattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.@/*-]{1,128}$")]
MOST_SHARED: Final = 0.9  # largest sum of all teams' shares of a server; the rest is for everybody
NamespacePattern = Annotated[str, Field(pattern=r"^[a-z0-9_*]{1,64}$")]


class AccessRule(BaseModel):
    """Some principals, the namespaces open to them, and whether they may create blends of these."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    principals: list[PrincipalPattern] = Field(min_length=1, description="names of callers; * for any characters")
    namespaces: list[NamespacePattern] = Field(description="namespaces of the lake; * for any characters")
    create: bool = Field(False, description="whether they may create blends, which pin snapshots for good")
    append: bool = Field(False, description="whether they may append rollouts, and announce the trainer's version")

    def allows(self, principal: str, namespace: str) -> bool:
        """Whether this rule lets a principal read a namespace."""
        return _matches(principal, self.principals) and _matches(namespace, self.namespaces)


class Team(BaseModel):
    """A team: its principals may read what is declared `restricted` to it, and use its shares of a server."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="name of the team, as declarations write it")
    principals: list[PrincipalPattern] = Field(description="names of callers; * for any characters")
    cache_share: float = Field(0.0, ge=0, le=MOST_SHARED, description="share of a server's cache kept for the team")
    stream_share: float = Field(0.0, ge=0, le=MOST_SHARED, description="share of a server's streams kept for the team")


class NamespaceRules(BaseModel):
    """All rules; access takes one rule in favour."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rule: list[AccessRule] = Field(default=[], description="rules of access; their order has no meaning")
    team: list[Team] = Field(default=[], description="who belongs to which team")

    def teams_of(self, principal: str) -> frozenset[str]:
        """Teams of a principal."""
        return frozenset(team.name for team in self.team if _matches(principal, team.principals))

    @model_validator(mode="after")
    def _shares_leave_room(self) -> NamespaceRules:
        for name in ("cache_share", "stream_share"):
            if (total := sum(getattr(team, name) for team in self.team)) > MOST_SHARED + 1e-9:
                raise ValueError(f"the teams' {name} is {total:g} together; leave {1 - MOST_SHARED:.1f} for all others")
        return self

    def shares(self, name: str) -> dict[str, float]:
        """`cache_share` or `stream_share` of each team with one."""
        return {team.name: share for team in self.team if (share := getattr(team, name))}

    def paying_team(self, principal: str) -> str:
        """The team behind a principal's shares: the first of his with any, empty without one."""
        teams = (team for team in self.team if team.cache_share or team.stream_share)
        return next((team.name for team in teams if _matches(principal, team.principals)), "")

    def allow(self, principal: str, namespace: str) -> bool:
        """Whether a principal may read a namespace."""
        return not self.rule or any(rule.allows(principal, namespace) for rule in self.rule)

    def allow_create(self, principal: str, namespace: str) -> bool:
        """Whether a principal may create blends of a namespace."""
        return not self.rule or any(rule.create and rule.allows(principal, namespace) for rule in self.rule)

    def allow_append(self, principal: str, namespace: str) -> bool:
        """Whether a principal may append rollouts to tables of a namespace."""
        return not self.rule or any(rule.append and rule.allows(principal, namespace) for rule in self.rule)


def parse_rules(where: str, text: str) -> NamespaceRules:
    """Read rules from TOML.

    Raises:
        AccessConfigError: it is no TOML, or a rule is wrong.
    """
    try:
        return NamespaceRules.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise AccessConfigError(f"{where}: is not TOML: {error}; write [[rule]] with principals and namespaces") from (
            error
        )
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise AccessConfigError(
            f"{where}: {field}: {first['msg']}; write [[rule]] with principals = [..] and namespaces = [..]"
        ) from error


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


TOKENS_VARIABLE: Final = "HEADRACE_TOKENS"
MIN_TOKEN_CHARACTERS: Final = 16
PRINCIPAL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@/-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

Principals = Mapping[str, str]


def parse_tokens(where: str, text: str) -> Principals:
    """Read tokens: one a line (or between semicolons), `#` starts a comment.

    Returns:
        SHA-256 of each token (64 hex digits) to its principal.

    Raises:
        AccessConfigError: a line is not a principal and a token, or two principals have the same token. No message
            holds a token.
    """
    principals: dict[str, str] = {}
    for number, line in enumerate(re.split(r"[\n;]", text), start=1):
        words = line.split("#", maxsplit=1)[0].split()
        if not words:
            continue
        at = f"{where}: line {number}"
        if len(words) != 2 or not PRINCIPAL.fullmatch(words[0]):
            raise AccessConfigError(f"{at}: has {len(words)} words; write PRINCIPAL TOKEN, the name first")
        principal, token = words
        if not _DIGEST.fullmatch(token) and len(token) < MIN_TOKEN_CHARACTERS:
            raise AccessConfigError(
                f"{at}: the token of {principal} has {len(token)} characters; give {MIN_TOKEN_CHARACTERS} or more, "
                "for example from `openssl rand -base64 24`"
            )
        digest = token.removeprefix("sha256:") if _DIGEST.fullmatch(token) else digest_of(token)
        if principals.setdefault(digest, principal) != principal:
            raise AccessConfigError(f"{at}: {principal} has the token of {principals[digest]}; give each its own")
    return principals


def digest_of(token: str) -> str:
    """Give the SHA-256 of a token, the key of its entry: 64 hex digits."""
    return hashlib.sha256(token.encode()).hexdigest()


def bearer_of(value: str) -> str:
    """Take the token out of the metadata value `Bearer TOKEN`; empty if it has another form."""
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


RELOAD_SECONDS: Final = 1.0

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


class ReloadingFile(Generic[Value]):
    """The value of a file as it is now, at most a second old; safe for many threads.

    A missing or wrong file leaves the last good value in force, with an error in the log: a slip of an editor must
    not end every training run. To revoke everything, write a valid, empty file.
    """

    def __init__(
        self, path: Path, parse: Callable[[str, str], Value], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the file for the first time.

        Raises:
            AccessConfigError: the file cannot be read, or is wrong.
        """
        self._path = path
        self._parse = parse
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp = self._stat()
        self._value = self._load()
        self._looked = clock()
        self.generation = 0

    def get(self) -> Value:
        """Give the value, read again if the file has changed."""
        if self._clock() - self._looked >= RELOAD_SECONDS:
            with self._lock:
                self._look()
        return self._value

    def _look(self) -> None:
        if self._clock() - self._looked < RELOAD_SECONDS:
            return  # another thread has just looked
        self._looked = self._clock()
        try:
            stamp = self._stat()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._value = self._load()
        except AccessConfigError as error:
            logger.error("%s; the last good version stays in force", error)
            return
        self.generation += 1
        logger.info("%s: read again", self._path)

    def _stat(self) -> tuple[int, int, int]:
        try:
            status = self._path.stat()
        except OSError as error:
            raise AccessConfigError(f"{self._path}: {error.strerror}; restore the file") from error
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _load(self) -> Value:
        try:
            text = self._path.read_text(encoding="utf-8")
        except OSError as error:
            raise AccessConfigError(f"{self._path}: {error.strerror}; restore the file") from error
        except UnicodeDecodeError as error:
            raise AccessConfigError(f"{self._path}: is not UTF-8 at byte {error.start}; write it again") from error
        return self._parse(str(self._path), text)
