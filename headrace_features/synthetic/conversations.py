"""Conversations: a model writes code, is sent its output, and goes on, until an answer has no code.

    request -> answer with code -> executed -> the same messages, answer and output as a request -> .. -> last answer

Each request has a key of its own, so a killed conversation goes on where it was. What executes is given from
outside, for it stands above this package: `executed/programs.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from headrace_features.synthetic.answers import Answer
from headrace_features.synthetic.execution_config import ProgramExecution
from headrace_features.synthetic.requests import Request, Turn

Execute = Callable[[str], tuple[str, str]]
"""Executes a program; gives what to tell the model, and the status of its exit or why it was stopped."""

Executor = Callable[[ProgramExecution], Execute]
"""Makes what executes, after a look at the sandbox of the machine."""

_BLOCK: Final = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[^\s`]*)[^\n`]*\n(?P<code>.*?)"
    r"(?:^[ \t]*(?P=fence)[`~]*[ \t\r]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_ALIASES: Final = {"py": "python", "python3": "python", "js": "javascript", "ts": "typescript", "sh": "bash"}
_HEADING: Final = "### {}\n\n"


def code_of(text: str, language: str) -> str | None:
    """The last fenced code block of a language in an answer, without the indent of its fence; None without any."""
    code, wanted = None, language.casefold()
    for block in _BLOCK.finditer(text):
        named = block["language"].casefold()
        if wanted in (named, _ALIASES.get(named)) and block["code"].strip():
            code = re.sub(rf"^[ \t]{{0,{len(block['indent'])}}}", "", block["code"], flags=re.M)
    return code


def conversation_of(request: Request, turns: Sequence[Turn], last: Answer | None) -> tuple[Answer, str, str]:
    """A conversation as one answer with the tokens of all, as text, and its facts as JSON.

    In the text the role stands above each message; the facts assign the bytes to roles, whatever is in the messages.

    Args:
        request: the last sent one.
        turns: answers with code.
        last: the answer without code; None where the rounds came to their end before.
    """
    first = request.body["messages"][: len(request.body["messages"]) - 2 * len(request.turns)]
    messages = [(message["role"], message["content"]) for message in first]
    messages += [pair for turn in turns for pair in (("assistant", turn.answer.text), ("execution", turn.output or ""))]
    messages += [] if last is None else [("assistant", last.text)]
    text, spans, size = "", list[str](), 0
    for role, content in messages:
        heading, message = _HEADING.format(role), content.strip()
        start = size + len(heading)
        size = start + len(message.encode(errors="replace")) + 2
        text += f"{heading}{message}\n\n"
        spans.append(f"{role} {start}-{size - 2}")
    answers = [*(turn.answer for turn in turns), *([] if last is None else [last])]
    facts = {
        "conversation": "### role",
        "messages": ", ".join(spans),
        "rounds": len(answers),
        "ended": "no_code" if last is not None else "rounds",
        "exit_statuses": ", ".join(turn.status for turn in turns),
    }
    served = dict.fromkeys("/".join(filter(None, (answer.model, answer.fingerprint))) for answer in answers)
    if len(served) > 1:
        facts["served"] = ", ".join(served)
    reasoning = "\n\n".join(filter(None, (answer.reasoning for answer in answers)))
    counted = {name: _sum([getattr(answer, name) for answer in answers]) for name in ("tokens_in", "tokens_out")}
    whole: dict[str, Any] = {"reasoning": reasoning, **counted}
    return replace(answers[-1], **whole), text.rstrip("\n"), json.dumps(facts)


def _sum(counts: list[int | None]) -> int | None:
    """The sum of counts; None where one of them is None."""
    counted = [count for count in counts if count is not None]
    return sum(counted) if len(counted) == len(counts) else None
