"""The tags and texts of a page in order, from the markup written by a parser of HTML from its tree.

Such markup is regular: every element is closed, attributes stand in double quotes, and `<` in no text. So one regular
expression takes it apart, five times as fast as a walk over the nodes of the tree.

Elements without markup as content (`xmp`, `plaintext`) become `pre` here, formulas in scripts `x-tex`; scripts, styles
and frames are passed over as comments are. Declared shadow roots stand in the place of their hosts'
content, as browsers show them.
"""

from __future__ import annotations

import re
from html import escape

VOID = frozenset(
    (
        *("area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input"),
        *("keygen", "link", "meta", "param", "source", "track", "wbr"),
    )
)
TOKEN_FIELDS = 4  # text before the tag, `/` of an end tag, name, attributes

_ATTRIBUTES = r'(?: [^ >][^ =>]*+="[^"]*+")*+'
_RAW_NAMES = ("style", "iframe", "noembed", "noframes", "xmp")
_RAW = "|".join(rf"{name}{_ATTRIBUTES}>[^<]*+(?:<(?!/{name}>)[^<]*+)*+</{name}" for name in _RAW_NAMES)
# inside of a comment in a script, `</script>` ends the script only where no `<script` stands before it
_INNER_SCRIPT = r"<script(?=[\s/>])(?:[^-<]++|-(?!->)|<(?!/script[\s/>]))*+(?:</script)?+"
_COMMENT = rf"<!(?=--)(?:[^-<]++|-(?!->)|{_INNER_SCRIPT}|<(?!/?script[\s/>]))*+"
_SCRIPT = rf"script{_ATTRIBUTES}>(?:[^<]++|{_COMMENT}|<(?!/script>|!--))*+</script"
_RAW = rf"{_SCRIPT}|{_RAW}|plaintext{_ATTRIBUTES}>.*</plaintext"
_TAG = re.compile(rf"<(?:{_RAW}|(/?+)([a-zA-Z][^ />]*+)({_ATTRIBUTES})|!--.*?--|![^>]*)>", re.DOTALL)
_KEPT = ("<xmp", "<plaintext", '"math/', '"MATH/')
_KEPT_RAW = re.compile(rf"<(script|xmp|plaintext)({_ATTRIBUTES})>(.*)</\1>", re.DOTALL)
_FORMULA_SCRIPT = re.compile(r' type="math/(tex|latex|mml|asciimath)((?:; *mode=display)?)', re.IGNORECASE)
_CDATA = re.compile(r"\A\s*(?:%\s*)?<!\[CDATA\[|(?:%\s*)?\]\]>\s*\Z")
_HOSTS = frozenset(
    (
        *("article", "aside", "blockquote", "body", "div", "footer", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("header", "main", "nav", "p", "section", "span"),
    )
)
_SHADOW = re.compile(r' shadowrootmode="(?:open|closed)"', re.IGNORECASE)
_NAME = re.compile(r' name="([^"]*)"')
_SLOT = re.compile(r' slot="([^"]*)"')


def tokens(markup: str) -> list[str | None]:
    """Texts and tags of a page's regular markup.

    Args:
        markup: as a parser writes it.

    Returns:
        Four fields for each tag: the text before it (as it stands in the markup), `/` for an end tag, else nothing, its
        name (None for a comment or a script), its attributes with a blank before each. Last, the text behind the last
        tag.
    """
    if any(kept in markup for kept in _KEPT):
        markup = _TAG.sub(_regular, markup)
    fields = _TAG.split(markup)
    return _composed(fields) if " shadowrootmode=" in markup else fields


def _regular(tag: re.Match[str]) -> str:
    """What stands for a tag: formulas and kept lines for an element without markup as content."""
    raw = None if tag.group(2) else _KEPT_RAW.fullmatch(tag.group())
    if raw is None:
        return tag.group()
    name, attributes, content = raw.groups()
    if name != "script":
        return f"<pre{attributes}>{escape(content, quote=False)}</pre>"
    kind = _FORMULA_SCRIPT.search(attributes)
    if not kind:
        return ""
    content = _CDATA.sub("", content)
    if kind.group(1).lower() == "mml":
        return content
    display = ' display="block"' if kind.group(2) else ""
    return f"<x-tex{display}>{escape(content, quote=False)}</x-tex>"


class _Element:
    """An element of a page with shadow roots: its start tag, and its texts and elements."""

    def __init__(self, name: str, attributes: str) -> None:
        self.name, self.attributes = name, attributes
        self.children: list[_Element | str] = []


def _composed(fields: list[str | None]) -> list[str | None]:
    """The tokens of a page with declared shadow roots as browsers show it: hosts' content stands in the slots."""
    root = _Element("", "")
    path = [root]
    for start in range(0, len(fields), TOKEN_FIELDS):
        path[-1].children.append(fields[start] or "")
        if start + 1 == len(fields) or fields[start + 2] is None:
            continue
        name, attributes = fields[start + 2] or "", fields[start + 3] or ""
        if not fields[start + 1]:
            element = _Element(name, attributes)
            path[-1].children.append(element)
            if name not in VOID:
                path.append(element)
        elif len(path) > 1:
            path.pop()
    written: list[str] = []
    _write(root, written)
    return _TAG.split("".join(written))


class _Scope:
    """What the slots of a shadow root take, by their names, and the scope of its host."""

    def __init__(self, hosted: list[_Element | str], outer: _Scope | None) -> None:
        self.outer = outer
        self._hosted: dict[str, list[_Element | str]] = {}
        for node in hosted:
            named = _SLOT.search(node.attributes) if isinstance(node, _Element) else None
            self._hosted.setdefault(named.group(1) if named else "", []).append(node)

    def take(self, slot: _Element) -> list[_Element | str]:
        """What the first slot of a name takes; the one without a name takes the rest."""
        name = _NAME.search(slot.attributes)
        nodes = self._hosted.pop(name.group(1) if name else "", [])
        return nodes if any(isinstance(node, _Element) or node.strip() for node in nodes) else []


def _write(root: _Element, written: list[str]) -> None:
    """Write a page with what its shadow roots show."""
    stack: list[tuple[_Element | str, _Scope | None]] = [(root, None)]
    while stack:
        node, scope = stack.pop()
        if isinstance(node, str):
            written.append(node)
            continue
        shadow = _shadow_root(node)
        inner, inside = node.children, scope
        if shadow is not None:
            inner, inside = shadow.children, _Scope([child for child in node.children if child is not shadow], scope)
        elif node.name == "slot" and scope is not None:
            taken = scope.take(node)  # it stands in the scope of the host, not in that of its root
            inner, inside = (taken, scope.outer) if taken else (inner, scope)
        if node.name not in ("", "slot"):
            written.append(f"<{node.name}{node.attributes}>")
            if node.name not in VOID:
                stack.append((f"</{node.name}>", None))
        stack.extend((child, inside) for child in reversed(inner))


def _shadow_root(host: _Element) -> _Element | None:
    """The shadow root declared by an element, if such an element may have one."""
    if host.name not in _HOSTS and "-" not in host.name:
        return None
    for child in host.children:
        if isinstance(child, _Element) and child.name == "template" and _SHADOW.search(child.attributes):
            return child
    return None
