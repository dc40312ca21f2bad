"""How a corpus or a blend renders conversations: `conversations: {template: qwen3_training@1, train: assistant}`."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from headrace_features.conversations.masks import ROLES
from headrace_features.conversations.messages.conversation import Conversation
from headrace_features.conversations.parts import KINDS
from headrace_features.conversations.rendering import RenderingRules
from headrace_features.conversations.rows import prefixes, with_thinking
from headrace_features.conversations.templates import TemplateRefusedError, TemplateSettings
from spark_jobs.exceptions import did_you_mean
from spark_jobs.lake.declare.step import ConfigModel

_TRAINED: Final = ("assistant", "last", "all", "template")


class ConversationsConfig(ConfigModel):
    """The template of conversations, and where a loss is taken."""

    template: str = Field(
        pattern=r"^[a-z][a-z0-9_]*@[A-Za-z0-9._+-]+$",
        description="NAME@VERSION of the registry (headrace template add)",
    )
    special_tokens: dict[str, str | None] = Field(
        default_factory=dict, description="{bos_token: ..}: tokens that the template names; null where there is none"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="further variables, as {enable_thinking: false}")
    date: datetime.date | None = Field(None, description="day of templates that write today's date")
    tools: list[dict[str, Any]] = Field(
        default_factory=list, description="definitions of tools of each conversation that has none of its own"
    )
    allow: tuple[str, ...] = Field((), description=f"kinds of text that may be left out: {', '.join(KINDS)}")
    train: str | tuple[str, ...] = Field(
        "assistant",
        description="assistant (from behind its header to the end token), last (its last turn), all, template (its "
        "generation blocks), or a list of roles",
    )
    newline: bool = Field(False, description="whether the newline behind an end token is trained too")
    thinking: Literal["all", "last", "none"] = Field(
        "all", description="which reasoning is given to the template: that of all turns, of the last round, or none"
    )
    prefixes: Literal["none", "each_turn"] = Field(
        "none",
        description="each_turn makes a row up to each turn, as models see it at inference, that one trained",
    )
    max_tokens: int | None = Field(
        None, ge=16, description="longer conversations become rows of whole turns; by default the shortest window"
    )
    repeat_head: bool = Field(
        True, description="whether each of these rows begins with what stands before the first question"
    )

    @field_validator("allow")
    @classmethod
    def _kinds(cls, allow: tuple[str, ...]) -> tuple[str, ...]:
        return _require("kind of text", allow, KINDS)

    @field_validator("train", mode="before")
    @classmethod
    def _turns(cls, train: Any) -> Any:
        if isinstance(train, str):
            return _require("way to train", (train,), (*_TRAINED, *ROLES))[0]
        return _require("role", tuple(train), ROLES)

    def rows(self, conversation: Conversation) -> list[Conversation]:
        """What is rendered of a conversation: all of it or its prefixes, with tools and reasoning as declared."""
        chosen = [conversation] if self.prefixes == "none" else [*prefixes(conversation)]
        return [with_thinking(row if row.tools else row._replace(tools=self.tools), self.thinking) for row in chosen]

    def rules(
        self, source: str, added: Mapping[str, bool], train: str | tuple[str, ...] | None = None
    ) -> RenderingRules:
        """How to render.

        Args:
            source: text of the template.
            added: added tokens of the tokenizer, each with whether it is special.
            train: in place of the declared one.

        Raises:
            TemplateRefusedError: a special token is none of the tokenizer.
        """
        if added and (lacking := sorted(name for name in self.special_tokens.values() if name and name not in added)):
            raise TemplateRefusedError(
                f"special_tokens: {lacking[0]!r} is no added token of the tokenizer{did_you_mean(lacking[0], added)}"
            )
        chosen = train or ("last" if self.prefixes == "each_turn" else self.train)
        settings = TemplateSettings(source, self.special_tokens, self.options, self.date)
        return RenderingRules(settings, added, chosen, self.newline, frozenset(self.allow))


def _require(noun: str, given: tuple[Any, ...], there: tuple[str, ...]) -> tuple[str, ...]:
    for name in given:
        if name not in there:
            raise ValueError(f"{name!r} is no {noun}{did_you_mean(str(name), there)}; it is one of {', '.join(there)}")
    return given
