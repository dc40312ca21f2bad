"""What features make of tables of text when rows are read: conversations rendered, objectives anew in each epoch.

    settings, template -> definition, kept with the blends by its hash -> encoder, the same in every replica

A feature brings both arrows, by an entry point of the group `blend_texts` in the table of features.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

from pyiceberg.catalog import Catalog

from blender_service.exceptions import PackedTableError
from blender_service.tables.text_encoder import DividedDocuments, EncodedDocuments, Units
from headrace.tables.window_facts import WindowFacts

_PACKAGE, _GROUP = "headrace_features", "blend_texts"


class Objects(Protocol):
    """The needed operations of the store of blends."""

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Write a new object; say whether it was absent."""

    def read(self, path: str) -> bytes | None:
        """Read an object, None if there is none."""


class ConversationEncoder(Protocol):
    """Renders and encodes conversations; safe for many threads."""

    @property
    def template_sha256(self) -> str:
        """Hash of the chat template."""

    def encode(self, messages: Sequence[object], tools: Sequence[object]) -> EncodedDocuments:
        """Encode conversations, each with its definitions of tools; JSON as text, or a value of a typed column."""


class ConversationTexts(Protocol):
    """What the feature brings."""

    def define(self, catalogue: Catalog, settings: str, tokenizer: str, window: WindowFacts, whole: bool) -> bytes:
        """Look up the template of settings (JSON), and give all that decides the rows; `whole` are never cut.

        Raises:
            InvalidBlendError: a setting cannot be used, or there is no such template.
        """

    def open(self, definition: bytes, tokenizer: str) -> ConversationEncoder:
        """Open the encoder of a definition.

        Raises:
            PackedTableError: another version of the rule defined it.
        """


class ObjectiveEncoder(Protocol):
    """Writes documents anew in each epoch; safe for many threads."""

    def divide(self, texts: Sequence[str]) -> DividedDocuments:
        """Divide documents into units that fit into a row whatever becomes of them."""

    def encode(self, texts: Sequence[str], names: Sequence[str], units: Units, epoch: int) -> EncodedDocuments:
        """Encode the units of documents, by text and id, as they are in an epoch."""


class ObjectiveTexts(Protocol):
    """What the feature of objectives brings."""

    def define(self, settings: str, tokenizer: str, window: WindowFacts, whole: bool) -> bytes:
        """Check settings (JSON), and give all that decides what documents become; `whole` are never divided.

        Raises:
            InvalidBlendError: a setting cannot be used, or the tokenizer lacks a token for it.
        """

    def open(self, definition: bytes, tokenizer: str) -> ObjectiveEncoder:
        """Open the encoder of a definition.

        Raises:
            PackedTableError: another version defined it.
        """


def conversation_texts() -> ConversationTexts:
    """Find what renders conversations.

    Raises:
        PackedTableError: its feature is not installed.
    """
    return cast(ConversationTexts, _brought("conversations", "a blend of messages"))


def objective_texts() -> ObjectiveTexts:
    """Find what writes documents anew in each epoch.

    Raises:
        PackedTableError: its feature is not installed.
    """
    return cast(ObjectiveTexts, _brought("objectives", "a blend with objectives"))


def _brought(name: str, what: str) -> object:
    package = find_spec(_PACKAGE)
    for folder in map(Path, (package and package.submodule_search_locations) or ()):
        for feature, entries in tomllib.loads((folder / "features.toml").read_text("utf-8")).items():
            module, _, attribute = entries.get(_GROUP, {}).get(name, "").partition(":")
            if module and (folder / feature / "__init__.py").is_file():
                return getattr(importlib.import_module(module), attribute)
    raise PackedTableError(f"{what} needs the feature {name}, which is not installed here; install headrace whole")


def put_definition(objects: Objects, definition: bytes, kind: str = "conversations") -> str:
    """Keep a definition by its hash; gives the hash."""
    sha256 = hashlib.sha256(definition).hexdigest()
    objects.put_if_absent(f"texts/{kind}/{sha256}", definition)
    return sha256


def open_conversations(objects: Objects, sha256: str, tokenizer: str) -> ConversationEncoder:
    """Open the encoder of a kept definition.

    Raises:
        PackedTableError: it is not kept any more, or cannot be used here.
    """
    return _conversations(_kept(objects, sha256, "conversations"), tokenizer)


def open_objectives(objects: Objects, sha256: str, tokenizer: str) -> ObjectiveEncoder:
    """Open the encoder of a kept definition.

    Raises:
        PackedTableError: it is not kept any more, or cannot be used here.
    """
    return _objectives(_kept(objects, sha256, "objectives"), tokenizer)


def _kept(objects: Objects, sha256: str, kind: str) -> bytes:
    definition = objects.read(f"texts/{kind}/{sha256}")
    if definition is None or hashlib.sha256(definition).hexdigest() != sha256:
        raise PackedTableError(f"the rule {sha256} of {kind} is not kept with the blends; create it again")
    return definition


@functools.lru_cache(maxsize=4)
def _conversations(definition: bytes, tokenizer: str) -> ConversationEncoder:
    return conversation_texts().open(definition, tokenizer)


@functools.lru_cache(maxsize=4)
def _objectives(definition: bytes, tokenizer: str) -> ObjectiveEncoder:
    return objective_texts().open(definition, tokenizer)
