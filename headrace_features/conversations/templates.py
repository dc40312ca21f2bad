"""Chat templates as transformers runs them: text of a conversation, and the characters of its generation blocks.

The Jinja environment is that of `apply_chat_template` (transformers 5.24.0): blocks trimmed, loop controls, `tojson`
without HTML escapes, `raise_exception`, blocks `{% generation %}`, an immutable sandbox. Two things differ. A template
with `strftime_now` needs a declared date, for rows are a function of their inputs. A special token which a template
names has to be named too, or stated to be none (transformers writes nothing for it, without a word).

A template is a program of somebody else: it runs in a child process with limits (`child`).
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar, cast

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headrace_features.conversations.watched import WatchingEnvironment
from spark_jobs.exceptions import InputError

REASONING: Final = ("reasoning_content", "thinking", "reasoning")
"""Names for the reasoning of a message; transformers gives templates each under the first two."""

MOST_CHARACTERS: Final = 32 << 20  # of a conversation; the largest books have a sixth of it
_DATE: Final = "strftime_now"
_GIVEN: Final = frozenset({"messages", "tools", "documents", "add_generation_prompt"})


class TemplateRefusedError(InputError):
    """A template is none, lacks something, or refuses a conversation; the message says why, without naming either."""


class TemplateSettings(NamedTuple):
    """What decides the text of a conversation beside its messages.

    Attributes:
        source: text of the template.
        special_tokens: `bos_token` and the like, as the template names them; None for one stated to be none.
        options: further variables of the template, as `enable_thinking`; JSON values.
        date: day of `strftime_now`.
    """

    source: str
    special_tokens: Mapping[str, str | None]
    options: Mapping[str, Any]
    date: datetime.date | None


class _TemplateText(NamedTuple):
    """A text, [start, end) of its generation blocks in characters, and whether each of them holds its block.

    Inside of a macro or a captured value it does not: transformers counts from where the caller has come.
    """

    text: str
    spans: list[tuple[int, int]]
    is_placed: bool


class _GenerationBlocks(Extension):
    """Notes where blocks of `{% generation %}` begin and end.

    As in transformers a block begins after all that the template gave out before: inside of a macro or a captured value
    the place is that of the call.
    """

    tags = {"generation"}  # noqa: RUF012  as Jinja declares it

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        environment.extend(generation=self)
        self.length, self.spans, self.texts = 0, list[tuple[int, int]](), list[str]()

    def parse(self, parser: jinja2.parser.Parser) -> nodes.Node:
        """The block as a call."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_note"), [], [], body).set_lineno(line)

    def _note(self, caller: Any) -> str:
        text: str = caller()
        self.spans.append((self.length, self.length + str.__len__(text)))
        self.texts.append(str.__str__(text))  # compared below, which a watched one would note
        return text


class ChatTemplate:
    """A template with its settings; for one thread at a time."""

    def __init__(self, settings: TemplateSettings) -> None:
        """Compile a template.

        Raises:
            TemplateRefusedError: it is no Jinja, needs a date, or names a special token which is not stated.
        """
        environment: ImmutableSandboxedEnvironment = _environment(settings.date)
        self._settings, self._watching = settings, cast("jinja2.Template | None", None)
        try:
            parsed = environment.parse(settings.source)
            self._template = environment.from_string(settings.source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateRefusedError(f"line {error.lineno} is no Jinja of chat templates: {error.message}") from error
        named = meta.find_undeclared_variables(parsed)
        lacking = sorted(
            name
            for name in named
            if name.endswith("_token") and name not in {**settings.special_tokens, **settings.options}
        )
        if lacking:
            raise TemplateRefusedError(
                f"it writes {lacking[0]}, and no token is stated for it; add special_tokens: {{{lacking[0]}: ..}}, "
                "or null where it has none"
            )
        if _DATE in named and settings.date is None:
            raise TemplateRefusedError("it writes today's date (strftime_now); declare the day: `date: 2026-01-31`")
        self.constants = frozenset(_constants(parsed))
        self.literals = "\0".join(sorted({*_literals(parsed), *self.constants}))
        self.has_generation_blocks = bool([*parsed.find_all(nodes.CallBlock)]) and "endgeneration" in settings.source
        stated = {name: token for name, token in settings.special_tokens.items() if token is not None}
        self._variables = {"documents": None, **stated, **settings.options}

    def write(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], add_generation_prompt: bool = False
    ) -> _TemplateText:
        """Render a conversation.

        Args:
            messages: canonical, arguments of calls as the template takes them.
            tools: definitions; none where it is empty.
            add_generation_prompt: whether an answer is to be begun.

        Raises:
            TemplateRefusedError: the template raises.
        """
        return self._rendered(self._template, messages, tools, add_generation_prompt)

    def watch(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> _TemplateText:
        """Render a conversation of watched texts (`watched`)."""
        if self._watching is None:
            environment = _environment(self._settings.date, WatchingEnvironment)
            environment.watch()
            self._watching = environment.from_string(self._settings.source)
        written = self._rendered(self._watching, messages, tools, False)
        return written._replace(text=str.__str__(written.text))

    def _rendered(
        self, template: jinja2.Template, messages: list[dict[str, Any]], tools: list[dict[str, Any]], begun: bool
    ) -> _TemplateText:
        variables = self._variables | {
            "messages": [_with_reasoning(message) for message in messages],
            "tools": tools or None,
            "add_generation_prompt": begun,
        }
        blocks = list[str]()
        noted: _GenerationBlocks = template.environment.generation  # type: ignore[attr-defined]  # by the extension
        noted.length, noted.spans, noted.texts = 0, [], []
        try:
            for block in template.root_render_func(template.new_context(variables)):
                noted.length += str.__len__(block)
                blocks.append(block)
                if noted.length > MOST_CHARACTERS:
                    raise TemplateRefusedError(f"the template writes more than {MOST_CHARACTERS} characters of it")
        except RecursionError as error:
            raise TemplateRefusedError("the template calls itself without end") from error
        except (MemoryError, TemplateRefusedError):
            raise
        except Exception as error:  # a template may fail in any way
            raise TemplateRefusedError(f"the template refuses it: {' '.join(str(error).split())[:200]}") from error
        written = "".join(blocks)
        placed = zip(noted.spans, noted.texts, strict=True)
        return _TemplateText(written, noted.spans, all(written[slice(*span)] == text for span, text in placed))


def require_template(source: str) -> None:
    """Refuse what is no template.

    Raises:
        TemplateRefusedError: it is no Jinja of chat templates, or never reads messages.
    """
    try:
        named = meta.find_undeclared_variables(_environment(datetime.date.min).parse(source))
    except jinja2.TemplateSyntaxError as error:
        raise TemplateRefusedError(f"line {error.lineno} is no Jinja of chat templates: {error.message}") from error
    if "messages" not in named:
        raise TemplateRefusedError("it never reads `messages`, so it is no chat template")


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """A message as templates are given it: its reasoning under each name that they read."""
    reasoning = message.get(REASONING[0])
    return message if reasoning is None else {"thinking": reasoning, **message, REASONING[0]: reasoning}


_E = TypeVar("_E", bound=ImmutableSandboxedEnvironment)


def _environment(date: datetime.date | None, kind: type[_E] = ImmutableSandboxedEnvironment) -> _E:  # type: ignore[assignment]
    environment = kind(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise, "dict": _Dictionaries(), "namespace": _Namespace}
    if date is not None:
        environment.globals[_DATE] = datetime.datetime.combine(date, datetime.time()).strftime
    return environment


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


class _Dictionaries:
    """`dict` of a template, without the attributes of the class."""

    def __call__(self, *arguments: Any, **named: Any) -> dict[Any, Any]:
        return dict(*arguments, **named)

    def fromkeys(self, *arguments: Any) -> dict[Any, Any]:
        """As of `dict`."""
        return dict.fromkeys(*arguments)


class _Namespace(jinja2.utils.Namespace):
    """`namespace` of a template, without names that begin with an underscore."""

    def __init__(*arguments: Any, **named: Any) -> None:  # `self` may be a name in it, as in Jinja's own class
        itself, *rest = arguments
        attributes = dict(*rest, **named)
        for name in attributes:
            _require_public(name)
        jinja2.utils.Namespace.__init__(itself, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _require_public(name)
        super().__setitem__(name, value)


def _require_public(name: object) -> None:
    if str(name).startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace of a template has no name {name!r}; rename it")


def _literals(parsed: nodes.Template) -> Iterator[str]:
    """The text of a template outside of expressions."""
    return (node.data for node in parsed.find_all(nodes.TemplateData))


def _constants(parsed: nodes.Template) -> Iterator[str]:
    """The texts in expressions of a template."""
    return (node.value for node in parsed.find_all(nodes.Const) if isinstance(node.value, str))
