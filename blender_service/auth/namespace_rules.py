"""Read namespace rules: which principal may blend and read which namespace.

    [[rule]]
    principals = ["pretraining", "team-*"]
    namespaces = ["main", "python_*"]

    [[team]]
    name = "research"
    principals = ["pretraining"]

Without any rule everybody may read everything. As soon as there is one, what no rule allows is denied. `*` stands for
any characters. A corpus holds texts of all its datasets, so reading it takes rules that allow its own namespace and
each of its datasets. What is declared `restricted` to teams takes membership of one of them besides.
"""

from __future__ import annotations

import fnmatch
import tomllib
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from blender_service.exceptions import AccessConfigError

PrincipalPattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.@/*-]{1,128}$")]
NamespacePattern = Annotated[str, Field(pattern=r"^[a-z0-9_*]{1,64}$")]


class Rule(BaseModel):
    """Some principals and the namespaces that they may read."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    principals: list[PrincipalPattern] = Field(min_length=1, description="names of callers; * for any characters")
    namespaces: list[NamespacePattern] = Field(description="namespaces of the lake; * for any characters")

    def allows(self, principal: str, namespace: str) -> bool:
        """Whether this rule lets a principal read a namespace."""
        return _matches(principal, self.principals) and _matches(namespace, self.namespaces)


class Team(BaseModel):
    """Principals that may read what is declared `restricted` to this team."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="as declarations name it")
    principals: list[PrincipalPattern] = Field(description="names of callers; * for any characters")


class NamespaceRules(BaseModel):
    """All rules; access takes one rule that allows it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rule: list[Rule] = Field(default=[], description="in any order")
    team: list[Team] = Field(default=[], description="who belongs to which team")

    def teams_of(self, principal: str) -> frozenset[str]:
        """Teams that a principal belongs to."""
        return frozenset(team.name for team in self.team if _matches(principal, team.principals))

    def allow(self, principal: str, namespace: str) -> bool:
        """Whether a principal may read a namespace."""
        return not self.rule or any(rule.allows(principal, namespace) for rule in self.rule)


def parse_rules(where: str, text: str) -> NamespaceRules:
    """Read rules from TOML.

    Args:
        where: name of the file, for messages.
        text: its content.

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
