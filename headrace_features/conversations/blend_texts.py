"""Conversations of a text blend, rendered and encoded when they are read, to rows of the step `conversation_tokens`."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from blender_service.exceptions import InvalidBlendError, PackedTableError
from blender_service.tables.text_encoder import EncodedDocuments
from dagster_project.exceptions import DefinitionError
from headrace_features.conversations.child import BATCH, RefusedConversationError, check_rules
from headrace_features.conversations.config import ConversationsConfig
from headrace_features.conversations.encoding import ConversationEncoder, added_tokens
from headrace_features.conversations.messages.canonical import RULE, BadMessages, from_json, read_messages, to_json
from headrace_features.conversations.messages.conversation import Conversation
from headrace_features.conversations.registered import template_in
from headrace_features.conversations.rows import ConversationRows
from headrace_features.conversations.templates import TemplateRefusedError
from headrace_features.conversations.tokens import TokensTask, conversation_tokens, document_rows
from spark_jobs.exceptions import SparkJobsError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from headrace.tables.window_facts import WindowFacts

_VERSION: Final = f"{RULE}.{conversation_tokens.version}"
_MEND: Final = 'give {"template": "NAME@VERSION"}'


class BlendConversations:
    """Defines how conversations become rows, and opens what has been defined."""

    def define(self, catalogue: Catalog, settings: str, tokenizer: str, window: WindowFacts, whole: bool) -> bytes:
        """Look up the template in the registry, and give all that decides the rows.

        Args:
            catalogue: of the lake.
            settings: JSON of a `ConversationsConfig`.
            tokenizer: text of its file.
            window: facts of a row.
            whole: whether a conversation that is longer than a row stays one; else it becomes rows of whole turns.

        Raises:
            InvalidBlendError: a setting cannot be used, or there is no such template.
        """
        from dagster_project.run_config import parse_settings

        try:
            most = None if whole else window.window_tokens
            config = parse_settings(ConversationsConfig, settings, _MEND, max_tokens=most)
            source = template_in(catalogue, config.template)
            check_rules(config.rules(source, added_tokens(tokenizer)))
        except (DefinitionError, SparkJobsError) as error:
            raise InvalidBlendError(str(error)) from error
        fields = {"version": _VERSION, "end_id": window.end_of_document_id, "source": source}
        return json.dumps({**fields, "settings": config.model_dump(mode="json")}).encode()

    def open(self, definition: bytes, tokenizer: str) -> OpenedConversations:
        """Open the encoder of a definition.

        Raises:
            PackedTableError: it is of another version of the rule, or its template cannot be used here.
        """
        fields = json.loads(definition)
        if fields["version"] != _VERSION:
            raise PackedTableError(
                f"conversations were defined by version {fields['version']} of their rule, this is {_VERSION}; serve "
                "the blend with the headrace that created it, or create it again"
            )
        return OpenedConversations(fields, tokenizer)


class OpenedConversations:
    """Encodes conversations; safe for many threads."""

    def __init__(self, definition: Mapping[str, Any], tokenizer: str) -> None:
        """Prepare a template and a tokenizer.

        Raises:
            PackedTableError: they cannot be used.
        """
        self.template_sha256 = hashlib.sha256(definition["source"].encode()).hexdigest()
        self._config = ConversationsConfig.model_validate(definition["settings"])
        try:
            rules = self._config.rules(definition["source"], added_tokens(tokenizer))
            control_names, _ = check_rules(rules)
            self._task = TokensTask(self._config, rules, control_names, tokenizer, definition["end_id"])
            self._idle = [self._encoder()]
        except SparkJobsError as error:
            raise PackedTableError(f"conversations: template {self._config.template}: {error}") from error

    def encode(self, messages: Sequence[object], tools: Sequence[object]) -> EncodedDocuments:
        """Encode conversations, each with its definitions of tools; JSON as text, or a value of a typed column.

        Raises:
            PackedTableError: the child process that renders cannot be started.
        """
        refused, lengths = Counter[str](), [0]
        ids, masks, counts = [np.empty(0, np.int32)], [np.empty(0, np.bool_)], np.zeros(len(messages), np.int64)
        read = [_read(*given) for given in zip(messages, tools, strict=True)]
        for number, answer in enumerate(self._rows(read)):
            if isinstance(answer, str):
                refused[answer] += 1
                continue
            ids += [answer.ids, np.array([self._task.end_id], np.int32)]
            masks.append(answer.trainable)
            counts[number] = len(answer.row_starts) + 1
            lengths += np.diff([0, *answer.row_starts, len(answer.trainable)]).tolist()
        return EncodedDocuments(np.concatenate(ids), np.cumsum(lengths), np.concatenate(masks), counts, refused)

    def _encoder(self) -> ConversationEncoder:
        task = self._task
        return ConversationEncoder(task.file_text, task.control_names, task.rules.train == "template")

    def _rows(self, read: Sequence[Conversation | str]) -> Iterator[ConversationRows | str]:
        """Rows of each conversation, or why it has none."""
        try:
            encoder = self._idle.pop()
        except IndexError:  # as many as threads encode at once
            encoder = self._encoder()
        try:
            for first in range(0, len(read), BATCH):
                batch = read[first : first + BATCH]
                given = [row for row in batch if isinstance(row, Conversation)]
                answers = document_rows(given, [None] * len(given), encoder, self._task)
                for row in batch:
                    yield row if isinstance(row, str) else _answer(*next(answers))
        except SparkJobsError as error:
            raise PackedTableError(f"conversations: {error}") from error
        finally:
            self._idle.append(encoder)


def _read(messages: object, tools: object) -> Conversation | str:
    """The conversation of a row as a dataset would land it, or why it is none."""
    if not messages:
        return "empty"
    try:
        return from_json(*to_json(read_messages(messages, tools or None, typed=True)))
    except BadMessages:
        return "bad_messages"


def _answer(document: ConversationRows, left_out: object, _: int) -> ConversationRows | str:
    if len(document.trainable) > 1:
        return document
    if isinstance(left_out, RefusedConversationError):
        return left_out.rule
    return "template" if isinstance(left_out, TemplateRefusedError) else "nothing_trained"


CONVERSATIONS: Final = BlendConversations()
