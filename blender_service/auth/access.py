"""Decide on callers and their readable tables: tokens, client certificates, rules and declared visibility together.

A reader of a corpus must be allowed all of its datasets; its table `increments` names them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import RESTError
from sqlalchemy.exc import SQLAlchemyError

from blender_service.auth.access_files import (
    TOKENS_VARIABLE,
    NamespaceRules,
    Principals,
    ReloadingFile,
    bearer_of,
    digest_of,
    parse_rules,
    parse_tokens,
)
from blender_service.auth.visibility import KEPT_SECONDS, PUBLIC, KnownVisibility
from blender_service.exceptions import UnauthenticatedError
from blender_service.recently_used import RecentlyUsed
from headrace.tables.catalogue import load_table

if TYPE_CHECKING:
    from blender_service.auth.visible_lake import MayCreate, MayRead

ANONYMOUS: Final = "anonymous"
AUTHORIZATION: Final = "authorization"
Metadata = Iterable[tuple[str, str | bytes]]
NAMESPACES_AT_HAND: Final = 4096  # bounds the cache: callers may ask for names that do not exist

logger = logging.getLogger(__name__)


class Access:
    """Gives the principal of a call and what it may read, from files free to change while the server runs."""

    def __init__(
        self,
        catalogue: Catalog,
        tokens: Path | None = None,
        rules: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Read tokens and rules.

        Raises:
            AccessConfigError: a file or the variable is wrong.
        """
        text = (os.environ if environment is None else environment).get(TOKENS_VARIABLE)
        self._fixed: Principals | None = None if text is None else parse_tokens(TOKENS_VARIABLE, text)
        self._tokens = ReloadingFile(tokens, parse_tokens) if tokens is not None else None
        self._rules = ReloadingFile(rules, parse_rules) if rules is not None else None
        self._datasets = CorpusDatasets(catalogue)
        self._visibility = KnownVisibility(catalogue)

    @property
    def asks_for_tokens(self) -> bool:
        """Whether a call needs a token."""
        return self._fixed is not None or self._tokens is not None

    @property
    def generation(self) -> tuple[int, int, int]:
        """Version of tokens, rules and visibility: changes with any of them. Files are checked every second."""
        if self._tokens is not None:
            self._tokens.get()
        if self._rules is not None:
            self._rules.get()
        self._visibility.get()
        return (
            self._tokens.generation if self._tokens is not None else 0,
            self._rules.generation if self._rules is not None else 0,
            self._visibility.generation,
        )

    def principal_of(self, context: grpc.ServicerContext) -> str:
        """Give the principal of a call: by its token if there are tokens, else by the name in the client's certificate.

        Raises:
            UnauthenticatedError: the call has no token, or one of no principal.
        """
        if not self.asks_for_tokens:
            names: Any = context.auth_context().get("x509_common_name")  # a list of bytes; the stubs say otherwise
            return next(iter(names)).decode(errors="replace") if names else ANONYMOUS
        return self._holder_of(context.invocation_metadata())

    def admits(self, metadata: Metadata | None) -> bool:
        """Whether the metadata hold a valid token, or none is needed; quick, since one thread asks it of every call."""
        try:
            return not self.asks_for_tokens or bool(self._holder_of(metadata))
        except UnauthenticatedError:
            return False

    def holder(self, token: str) -> str:
        """Give the principal of a token, empty where nobody has it."""
        try:
            return self._holder_of([(AUTHORIZATION, f"Bearer {token}")])
        except UnauthenticatedError:
            return ""

    def _holder_of(self, metadata: Metadata | None) -> str:
        """Give the principal of the token in the metadata."""
        values = [value for key, value in metadata or () if key == AUTHORIZATION]
        token = bearer_of(values[0]) if len(values) == 1 and isinstance(values[0], str) else ""
        if not token:
            raise UnauthenticatedError(
                f"metadata {AUTHORIZATION}: {len(values)} given, none a bearer token; send one `Bearer TOKEN`"
            )
        digest = digest_of(token)
        for principals in (self._tokens.get() if self._tokens is not None else {}, self._fixed or {}):
            if digest in principals:
                return principals[digest]
        raise UnauthenticatedError(f"metadata {AUTHORIZATION}: nobody has that token; ask whoever runs the server")

    def creator(self, principal: str) -> MayCreate:
        """Give the test of the tables a principal may create blends of; it must be allowed to read them too."""
        rules = self._rules.get() if self._rules is not None else NamespaceRules()

        def may_create(table: str) -> bool:
            return rules.allow_create(principal, table.partition(".")[0])

        return may_create

    def team_of(self, principal: str) -> str:
        """Give the team behind a principal's shares of the server, empty for none."""
        return self._rules.get().paying_team(principal) if self._rules is not None else ""

    def shares(self, name: str) -> dict[str, float]:
        """Give the `cache_share` or `stream_share` of each team, by the rules as they are now."""
        return self._rules.get().shares(name) if self._rules is not None else {}

    def appender(self, principal: str) -> MayCreate:
        """Give the test of the tables a principal may append to; it must be allowed to read them too."""
        rules = self._rules.get() if self._rules is not None else NamespaceRules()
        return lambda table: rules.allow_append(principal, table.partition(".")[0])

    def reader(self, principal: str) -> MayRead | None:
        """Give the test of a principal's readable tables, by the rules as they are now; None for all tables.

        To read a table takes its namespace and, where that is a corpus, all datasets of the corpus; each by the rules,
        and by its declared visibility.
        """
        rules = self._rules.get() if self._rules is not None else NamespaceRules()
        visibility = self._visibility.get()
        if not rules.rule and visibility == {}:
            return None
        teams = rules.teams_of(principal)

        def allowed(namespace: str) -> bool:
            declared = visibility.get(namespace, PUBLIC) if visibility is not None else None
            return declared is not None and declared.admits(teams) and rules.allow(principal, namespace)

        def may_read(table: str) -> bool:
            namespace = table.partition(".")[0]
            if not allowed(namespace):
                return False
            datasets = self._datasets.of(namespace)
            if datasets is None or not all(allowed(dataset) for dataset in datasets):
                return False
            recorded = visibility or {}
            is_test = recorded.get(namespace, PUBLIC).test  # a corpus of production holds no test data
            return is_test or not any(recorded.get(dataset, PUBLIC).test for dataset in datasets)

        return may_read


class CorpusDatasets:
    """Looks up the datasets of a namespace; an answer is cached for half a minute, or while the lake is down."""

    def __init__(self, catalogue: Catalog, clock: Callable[[], float] = time.monotonic) -> None:
        """Look in `catalogue`; `clock` gives seconds."""
        self._catalogue = catalogue
        self._clock = clock
        self._known = RecentlyUsed[str, tuple[float, frozenset[str] | None]](NAMESPACES_AT_HAND)

    def of(self, namespace: str) -> frozenset[str] | None:
        """Give the datasets of a corpus, an empty set for another namespace; None if the lake never answered."""
        looked_at, datasets = self._known.get(namespace) or (float("-inf"), None)
        if self._clock() - looked_at < KEPT_SECONDS:
            return datasets
        try:
            newest = self._look(namespace)
        except (SQLAlchemyError, RESTError) as error:
            if datasets is None:
                raise
            logger.error("namespace %s: its datasets cannot be read: %s", namespace, error)
            newest = None
        datasets = datasets if newest is None else newest
        self._known.put(namespace, (self._clock(), datasets))
        return datasets

    def _look(self, namespace: str) -> frozenset[str] | None:
        try:
            table = load_table(self._catalogue, f"{namespace}.increments")
            if table is None or "dataset" not in table.schema().column_names:
                return frozenset()
            names = table.scan(selected_fields=("dataset",)).to_arrow()["dataset"]
            return frozenset(pc.unique(names).drop_null().to_pylist())
        except (OSError, ValueError, pa.ArrowException) as error:
            logger.error("namespace %s: its datasets cannot be read: %s", namespace, error)
            return None
