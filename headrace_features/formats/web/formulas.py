"""Formulas of pages as text: TeX where the page has it, else MathML written in one line.

<math><msup><mi>x</mi><mn>2</mn></msup></math>                      x^2
<math><mfrac><mn>1</mn><mrow><mi>a</mi><mo>+</mo><mi>b</mi>..       1/(a+b)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from xml.etree import ElementTree

_STYLE = re.compile(r"^\{\\(?:displaystyle|textstyle)\s*(.*)\}$", re.DOTALL)
_DELIMITED = re.compile(r"^(?:\\\(.*\\\)|\\\[.*\\\]|\$.*\$)$", re.DOTALL)
_TEX = re.compile(r"tex", re.IGNORECASE)
_UNSEEN = frozenset({"annotation", "annotation-xml", "mphantom", "none", "mprescripts", "maligngroup", "malignmark"})
_SCRIPTS = {
    "msup": ("", "^"),
    "msub": ("", "_"),
    "msubsup": ("", "_", "^"),
    "mover": ("", "^"),
    "munder": ("", "_"),
    "munderover": ("", "_", "^"),
}
_TOKENS = frozenset({"mi", "mn", "mo", "ms", "mtext"})
_BLANKS = re.compile(r"[ \t\r\n]+")
_SEPARATORS = {"mtable": "; ", "mtr": ", ", "mlabeledtr": ", "}


def written_tex(tex: str, is_display: bool = False) -> str:
    """TeX between dollars, without Wikipedia's style around it; as it is where it has delimiters."""
    tex = tex.strip()
    style = _STYLE.match(tex)
    tex = style.group(1).strip() if style else tex
    if not tex or _DELIMITED.match(tex):
        return tex
    return f"$${tex}$$" if is_display else f"${tex}$"


def formula_text(markup: str) -> str:
    """A formula of MathML as text, once: its TeX where it is annotated with it, else one line.

    Args:
        markup: one `math` element, as XML without named entities and without a document type.
    """
    try:
        root = ElementTree.fromstring(markup)
        for node in root.iter():
            is_tex = _local(node) == "annotation" and _TEX.search(node.get("encoding", ""))
            if is_tex and (node.text or "").strip():
                return written_tex(node.text or "", root.get("display") == "block")
        if root.get("alttext"):
            return written_tex(root.get("alttext", ""), root.get("display") == "block")
        return _linear(root)
    except (ElementTree.ParseError, RecursionError):
        return unescape(re.sub(r"<[^>]*>", "", markup))


def _local(node: ElementTree.Element) -> str:
    """The name of an element without its namespace."""
    return node.tag.rpartition("}")[2]


def _linear(node: ElementTree.Element) -> str:
    """One element of MathML in one line."""
    name = _local(node)
    if name in _UNSEEN:
        return ""
    children = list(node)
    if name == "mmultiscripts":
        return _multiscripts(children)
    parts = [_linear(child) for child in children]
    if name in _TOKENS or not parts:
        return _BLANKS.sub(" ", "".join(node.itertext())).strip(" ").replace("\xa0", " ")
    if len(parts) == len(_SCRIPTS.get(name, ())):
        scripts = zip(_SCRIPTS[name][1:], parts[1:], strict=True)
        return parts[0] + "".join(f"{mark}{_grouped(part)}" for mark, part in scripts if part)
    if name == "mfenced":
        between = (node.get("separators", ",").strip() or ",")[0] + " "
        return node.get("open", "(") + between.join(parts) + node.get("close", ")")
    form = _FORMS.get((name, len(parts)))
    return form(parts) if form else _joined(name, parts)


def _multiscripts(children: list[ElementTree.Element]) -> str:
    """A base with scripts before and behind it, in reading order: before, base, behind."""
    names = [_local(child) for child in children]
    border = names.index("mprescripts") if "mprescripts" in names else len(names)
    behind, before = children[1:border], children[border + 1 :]
    return _alternating(before) + "".join(map(_linear, children[:1])) + _alternating(behind)


def _alternating(scripts: list[ElementTree.Element]) -> str:
    """Scripts lowered and raised in turns."""
    return "".join(f"{'_^'[place % 2]}{_grouped(text)}" for place, text in enumerate(map(_linear, scripts)) if text)


def _grouped(text: str) -> str:
    """A part in parentheses, but for a number or a name."""
    return text if re.fullmatch(r"\w*|.", text) else f"({text})"


def _joined(name: str, parts: list[str]) -> str:
    """Parts one behind the other; two numbers never become one."""
    if name == "msqrt":
        return f"√{_grouped(_joined('mrow', parts))}"
    if name in _SEPARATORS:
        text = _SEPARATORS[name].join(parts)
        return f"[{text}]" if name == "mtable" else text
    text = ""
    for part in parts:
        text += (" " if text[-1:].isdigit() and part[:1].isdigit() else "") + part
    return text


_FORMS: dict[tuple[str, int], Callable[[list[str]], str]] = {
    ("mfrac", 2): lambda parts: f"{_grouped(parts[0])}/{_grouped(parts[1])}",
    ("mroot", 2): lambda parts: f"root({parts[1]}, {parts[0]})",
}
