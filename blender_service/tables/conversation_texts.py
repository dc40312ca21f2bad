"""Conversations in tables of text: rendered by a chat template and encoded when their rows are read.

    settings, template -> definition, kept with the blends by its hash -> encoder, the same in every replica

A feature brings both arrows, by the entry point `conversations` of the group `blend_texts` in the table of features.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol, cast

from pyiceberg.catalog import Catalog

from blender_service.exceptions import PackedTableError
from blender_service.tables.text_encoder import EncodedDocuments
from headrace.tables.window_facts import WindowFacts

_PACKAGE, _GROUP, _NAME = "headrace_features", "blend_texts", "conversations"
_FOLDER: Final = "texts/conversations"


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


def conversation_texts() -> ConversationTexts:
    """Find what renders conversations.

    Raises:
        PackedTableError: its feature is not installed.
    """
    package = find_spec(_PACKAGE)
    for folder in map(Path, (package and package.submodule_search_locations) or ()):
        for feature, entries in tomllib.loads((folder / "features.toml").read_text("utf-8")).items():
            module, _, attribute = entries.get(_GROUP, {}).get(_NAME, "").partition(":")
            if module and (folder / feature / "__init__.py").is_file():
                return cast(ConversationTexts, getattr(importlib.import_module(module), attribute))
    raise PackedTableError(
        f"a blend of messages needs the feature {_NAME}, which is not installed here; install headrace whole"
    )


def put_definition(objects: Objects, definition: bytes) -> str:
    """Keep a definition by its hash; gives the hash."""
    sha256 = hashlib.sha256(definition).hexdigest()
    objects.put_if_absent(f"{_FOLDER}/{sha256}", definition)
    return sha256


def open_conversations(objects: Objects, sha256: str, tokenizer: str) -> ConversationEncoder:
    """Open the encoder of a kept definition.

    Raises:
        PackedTableError: it is not kept any more, or cannot be used here.
    """
    definition = objects.read(f"{_FOLDER}/{sha256}")
    if definition is None or hashlib.sha256(definition).hexdigest() != sha256:
        raise PackedTableError(f"the rule {sha256} of conversations is not kept with the blends; create it again")
    return _opened(definition, tokenizer)


@functools.lru_cache(maxsize=4)
def _opened(definition: bytes, tokenizer: str) -> ConversationEncoder:
    return conversation_texts().open(definition, tokenizer)
