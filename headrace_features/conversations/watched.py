"""What a template asks of the texts of a conversation, watched in one rendering of it.

A template may write a text, trim it, put it into JSON; then all conversations of a shape differ in these texts alone.
It may also ask: does a text start with `<tool_response>`, is `</think>` in it? Such questions are noted with their
answers. A conversation of the same shape whose texts give the same answers is written alike, so it need not be rendered
at all. Where a template does anything else with a text (its length, its letters) the shape is `opaque`, and every
conversation of it is rendered.

Watched texts are of a class of `str` that sees what is asked of it; texts put together of them are of one that says no
more than that. The environment hands both on where Jinja would make plain texts of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce, wraps
from typing import Any, Final, NamedTuple

from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

_QUESTIONS: Final = frozenset({"startswith", "endswith", "__contains__", "__eq__", "__bool__"})
_TRIMS: Final = frozenset({"strip", "lstrip", "rstrip"})
_HANDED_ON: Final = frozenset({"default", "d", "string"})  # filters that give a text as it is
_IN: Final = "_headrace_in"
_JOINED: Final = "_headrace_joined"


class Question(NamedTuple):
    """A question that a template asks of a text, after trims, and the answer."""

    part: int
    trims: tuple[tuple[str, tuple[Any, ...]], ...]
    asked: str
    of: tuple[Any, ...]
    answer: bool

    def holds(self, text: str) -> bool:
        """Whether a text gives the same answer."""
        for trim, characters in self.trims:
            text = getattr(text, trim)(*characters)
        if self.asked == "__bool__":
            return bool(text) == self.answer
        given: bool = getattr(text, self.asked)(*self.of)
        return given == self.answer


class Notes:
    """What was asked in one rendering."""

    def __init__(self) -> None:
        self.questions: dict[Question, None] = {}
        self.is_opaque = False


class _Seen(str):
    """A text put together of watched ones: whatever is asked of it makes the shape opaque."""

    notes: Notes

    def _asked(self, name: str, *arguments: Any, **named: Any) -> Any:
        self.notes.is_opaque = True
        return getattr(str, name)(_bare(self), *arguments, **named)

    def __str__(self) -> str:
        return self

    def __bool__(self) -> bool:  # it holds a text that is not empty
        return str.__len__(self) > 0

    def __hash__(self) -> int:  # a key: of a dictionary it finds, or makes, another one with another text
        self.notes.is_opaque = True
        return str.__hash__(self)

    def __iter__(self) -> Iterator[str]:
        def letters() -> Iterator[str]:
            self.notes.is_opaque = True  # not before one is asked for: `is iterable` asks for none
            yield from str.__iter__(self)

        return letters()

    def __len__(self) -> int:
        self.notes.is_opaque = True
        return str.__len__(self)


def _opaque(name: str) -> Callable[..., Any]:
    return lambda self, *arguments, **named: self._asked(name, *arguments, **named)


_PLAIN: Final = frozenset(
    {"__class__", "__new__", "__init__", "__init_subclass__", "__subclasshook__", "__getattribute__", "__setattr__"}
    | {"__delattr__", "__dir__", "__doc__", "__str__", "__bool__", "__hash__", "__iter__", "__len__"}
)
for _name in set(dir(str)) - _PLAIN:
    setattr(_Seen, _name, _opaque(_name))


class WatchedText(_Seen):
    """A text of a conversation: questions and trims are noted."""

    part: int
    trims: tuple[tuple[str, tuple[Any, ...]], ...]

    def _question(self, asked: str, *of: Any) -> bool:
        answer = str.__len__(self) > 0 if asked == "__bool__" else getattr(str, asked)(self, *of) is True
        if any(isinstance(value, _Seen) for value in of) or not all(isinstance(value, str | tuple) for value in of):
            self.notes.is_opaque = True
        else:
            self.notes.questions[Question(self.part, self.trims, asked, of, answer)] = None
        return answer

    def __bool__(self) -> bool:
        return self._question("__bool__") if self.trims else str.__len__(self) > 0

    def __ne__(self, other: object) -> bool:
        return not self._question("__eq__", other)

    __hash__ = _Seen.__hash__  # a class with an `__eq__` has none else

    def split(self, *of: Any) -> Any:
        """A text without the separator is the only piece."""
        if len(of) == 1 and isinstance(of[0], str) and not self._question("__contains__", *of):
            return [self]
        return self._asked("split", *of)


def _asks(name: str) -> Callable[..., bool]:
    return lambda self, *of: self._question(name, *of)


def _trims(name: str) -> Callable[..., Any]:
    def trim(self: WatchedText, *of: Any) -> str:
        if of not in ((), (None,), ("\n",)):
            return str(self._asked(name, *of))
        return watched(getattr(str, name)(self, *of), self.part, self.notes, (*self.trims, (name, of)))

    return trim


for _name in _QUESTIONS - {"__bool__"}:
    setattr(WatchedText, _name, _asks(_name))
for _name in _TRIMS:
    setattr(WatchedText, _name, _trims(_name))


def watched(text: str, part: int, notes: Notes, trims: tuple[tuple[str, tuple[Any, ...]], ...] = ()) -> WatchedText:
    """A text of a part, whose questions go to `notes`."""
    seen = WatchedText(text)
    seen.part, seen.notes, seen.trims = part, notes, trims
    return seen


def _together(text: str, values: Sequence[Any]) -> str:
    """A text made of values: watched where one of them is."""
    notes = next((value.notes for value in values if isinstance(value, _Seen)), None)
    if notes is None:
        return text
    written = [value for value in values if not isinstance(value, str) or str.__len__(value)]
    if len(written) == 1 and isinstance(written[0], WatchedText) and str.__eq__(written[0], text):
        return written[0]
    seen = _Seen(text)
    seen.notes = notes
    return seen


class WatchingEnvironment(ImmutableSandboxedEnvironment):
    """An environment in which watched texts stay watched."""

    intercepted_binops = frozenset({"+", "%", "*"})

    def watch(self) -> None:
        """Hand watched texts on in filters and wherever texts are put together."""
        self.concat = lambda pieces: _together("".join(listed := [*pieces]), listed)  # type: ignore[method-assign]
        self.globals |= {_IN: _is_in, _JOINED: lambda *values: _together("".join(map(str, values)), values)}
        to_json = self.filters["tojson"]
        self.filters = {name: _filtered(name, function) for name, function in self.filters.items()}
        self.filters["trim"] = _trim
        self.tests = self.tests | {"in": _is_in}
        self.filters["tojson"] = lambda value, **options: _together(to_json(_bare(value), **options), _texts(value))
        self.filters["join"] = lambda value, between="", attribute=None: _join(value, between, attribute)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        parsed: nodes.Template = _Joins().visit(super()._parse(source, name, filename))
        return parsed

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Texts put together are watched; other operators on them are opaque."""
        seen = [value for value in (left, right) if isinstance(value, _Seen)]
        if seen and operator == "+" and isinstance(left, str) and isinstance(right, str):
            return _together(str.__add__(left, right), seen)
        for value in _texts([left, right]):  # `%` takes a tuple too
            value.notes.is_opaque = True
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *arguments: Any, **named: Any) -> Any:  # noqa: N805  as Jinja's
        """Methods of texts see watched ones among their arguments."""
        itself = getattr(__obj, "__self__", None)
        if isinstance(itself, str):
            if __obj.__name__ == "join" and not isinstance(itself, _Seen):
                return _join(arguments[0], itself, None)
            given = [text for value in (*arguments, *named.values()) for text in _texts(value)]
            for value in given:
                value.notes.is_opaque = True
        return super().call(__context, __obj, *arguments, **named)


class _Joins(NodeTransformer):
    """Texts put together by `~`, and `in`, as calls."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802  as Jinja names it
        self.generic_visit(node)
        return nodes.Call(nodes.Name(_JOINED, "load"), node.nodes, [], None, None).set_lineno(node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802  as Jinja names it
        self.generic_visit(node)
        if len(node.ops) > 1:  # a in b == c
            lefts = [node.expr, *(operand.expr for operand in node.ops)]
            pairs = [nodes.Compare(left, [operand]) for left, operand in zip(lefts, node.ops, strict=False)]
            return reduce(nodes.And, map(self.visit_Compare, pairs))
        if node.ops[0].op not in ("in", "notin"):
            return node
        call = nodes.Call(nodes.Name(_IN, "load"), [node.expr, node.ops[0].expr], [], None, None)
        call.set_lineno(node.lineno)
        return call if node.ops[0].op == "in" else nodes.Not(call).set_lineno(node.lineno)


def _is_in(value: Any, container: Any) -> bool:
    if isinstance(value, _Seen) and isinstance(container, str):
        value.notes.is_opaque = True
    return value in container


def _filtered(name: str, function: Any) -> Any:
    """A filter that makes the shape opaque where it is given a watched text."""
    if name in _HANDED_ON:
        return function

    @wraps(function)  # with what Jinja notes on it
    def applied(*arguments: Any, **named: Any) -> Any:
        for value in (*arguments, *named.values()):
            if isinstance(value, _Seen):
                value.notes.is_opaque = True
        return function(*arguments, **named)

    return applied


def _join(value: Any, between: str, attribute: Any) -> str:
    listed = [*value] if attribute is None else [item[attribute] for item in value]
    return _together(str.join(between, map(str, listed)), [*listed, *_texts(between)])


def _trim(value: Any, characters: Any = None) -> str:
    if isinstance(characters, _Seen):
        characters.notes.is_opaque = True
    trimmed: str = value.strip(*([] if characters is None else [characters]))
    return trimmed


def _texts(value: Any) -> list[_Seen]:
    """The watched texts in a value."""
    if isinstance(value, _Seen):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for inner in pair for text in _texts(inner)]
    return [text for inner in value for text in _texts(inner)] if isinstance(value, list | tuple) else []


def _bare(value: Any) -> Any:
    """A value with plain texts in place of watched ones."""
    if isinstance(value, _Seen):
        return str.__str__(value)
    if isinstance(value, dict):
        return {_bare(key): _bare(inner) for key, inner in value.items()}
    return [_bare(inner) for inner in value] if isinstance(value, list | tuple) else value
