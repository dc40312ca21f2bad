"""Take out of a page of a mail what its reader does not see: preheaders, and forms for other screens.

What hides a part are its attributes and the rules of `<style>`, the stronger rule first, as in browsers:

    display:none  visibility:hidden  opacity:0  max-height:0  mso-hide:all  height:0;overflow:hidden  font-size:0

Sizes of letters and visibility are inherited, so that a part inside with a size of its own is seen (MJML writes all
texts so). Rules for some screens (`@media (max-width: ..)`) and selectors with `:`, `+`, `~`, `[` are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple, cast

from resiliparse.parse.html import DOMNode, ElementNode, HTMLTree, NodeType

_COMMENT = re.compile(r"/\*.*?\*/|<!--|-->", re.DOTALL)
_BRACE = re.compile(r"([^{}]*)([{}])")
_EVERY_SCREEN = re.compile(r"@media\s+(?:only\s+)?(?:all|screen)", re.IGNORECASE)
_DECLARATION = re.compile(
    r"(?<![\w-])(display|visibility|opacity|mso-hide|overflow|font-size|(?:max-)?(?:height|width))\s*:\s*([^;{}]*)",
    re.I,
)
_ZERO = re.compile(r"[-+]?(?:0+\.?0*|\.0+)(?:[a-z]+|%)?")
_SIMPLE = re.compile(r"[.#]?[\w-]+|\*")

Parents = tuple[frozenset[str], "Parents"] | None
"""What can be said of an element and of those around it: `div`, `.preheader`, `#top`, `*`."""


class _Rule(NamedTuple):
    """A rule of a style sheet; of two holding for an element the larger one wins."""

    weight: tuple[int, int, int]
    order: int
    steps: tuple[frozenset[str], ...]
    declarations: str

    def holds(self, parents: Parents) -> bool:
        """Whether it is for the innermost element; a child is looked for as any element inside."""
        steps = list(self.steps)
        if parents is None or not steps.pop() <= parents[0]:
            return False
        parents = parents[1]
        while steps and parents is not None:
            if steps[-1] <= parents[0]:
                steps.pop()
            parents = parents[1]
        return not steps


def remove_hidden(tree: HTMLTree) -> None:
    """Take the unseen texts and elements out of a page."""
    rules = defaultdict[str, list[_Rule]](list)
    for rule in _rules(tree):
        rules[min(rule.steps[-1])].append(rule)
    stack: list[tuple[DOMNode | None, Parents, bool, bool]] = [(tree.body, None, False, False)]
    while stack:
        node, parents, is_hidden, is_small = stack.pop()
        if node is None:
            continue
        stack.append((node.next if parents is not None else None, parents, is_hidden, is_small))
        if node.type != NodeType.ELEMENT:
            if (is_hidden or is_small) and node.type == NodeType.TEXT:
                node.decompose()
            continue
        node = cast("ElementNode", node)
        names = {
            "*",
            node.tag or "",
            f"#{node.id}",
            *(f".{name}" for name in (node.get_attribute("class") or "").split()),
        }
        inner: Parents = (frozenset(names), parents)
        matching = sorted(rule for name in names if name in rules for rule in rules[name] if rule.holds(inner))
        style = _cascaded([*(rule.declarations for rule in matching), node.get_attribute("style") or ""])
        if node.has_attribute("hidden") or _hides(style):
            node.decompose()
            continue
        if visibility := style.get("visibility"):
            is_hidden = visibility in ("hidden", "collapse")
            node.set_attribute("style", "")  # else all inside would be left out
        if size := style.get("font-size"):
            is_small = _ZERO.fullmatch(size) is not None or (
                is_small and size.endswith(("em", "%")) and "rem" not in size
            )
        stack.append((node.first_child, inner, is_hidden, is_small))


def _cascaded(declarations: list[str]) -> dict[str, str]:
    """The value of each property, of declarations from the weakest to the strongest."""
    values, important = dict[str, str](), set[str]()
    lowered = "; ".join(declarations).lower()
    for name, stated in _DECLARATION.findall(lowered):
        value = "".join(stated.split())
        if value.endswith("!important"):
            important.add(name)
        elif name in important:
            continue
        values[name] = value.removesuffix("!important")
    return values


def _hides(style: dict[str, str]) -> bool:
    """Whether an element with these properties is not seen, whatever is inside."""
    if style.get("display") == "none" or style.get("mso-hide") == "all":
        return True
    clipped = ("max-height", *(("height", "width", "max-width") if style.get("overflow") in ("hidden", "clip") else ()))
    return any(_ZERO.fullmatch(style.get(name, "")) for name in ("opacity", *clipped))


def _rules(tree: HTMLTree) -> Iterator[_Rule]:
    """The rules of a page's style sheets for hiding something or showing it."""
    sheets = tree.document.get_elements_by_tag_name("style") if tree.document else ()
    css = " ".join(
        sheet.text or "" for sheet in sheets if (sheet.get_attribute("media") or "all").lower() in ("all", "screen")
    )
    open_blocks = list[str]()
    for order, (text, brace) in enumerate(_BRACE.findall(_COMMENT.sub(" ", css))):
        if brace == "{":
            open_blocks.append(text.rpartition(";")[2].strip())
            continue
        selectors = open_blocks.pop() if open_blocks else ""
        if not _DECLARATION.search(text) or not all(map(_EVERY_SCREEN.fullmatch, open_blocks)):
            continue
        for selector in selectors.split(","):
            if selector.strip() and not re.search(r"[^\w\s.#*>-]", selector):
                steps = tuple(
                    frozenset(name if name[0] in ".#" else name.lower() for name in _SIMPLE.findall(step))
                    for step in re.split(r"[\s>]+", selector.strip("> \t\r\n"))
                )
                names = [name for step in steps for name in step if name != "*"]
                ids, classes = (sum(name.startswith(mark) for name in names) for mark in "#.")
                yield _Rule((ids, classes, len(names) - ids - classes), order, steps, text)
