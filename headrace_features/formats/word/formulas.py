"""Write a formula of Word in a line, in Word's own form for it: `(a+b)/2`, `√(x+1)`, `∑_(i=0)^n x_i`.

Source: Sargent, "A Nearly Plain-Text Encoding of Mathematics", Unicode Technical Note 28.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

_SIMPLE = re.compile(r"\w*|\W")
_FENCED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\|[^|]*\|")
_INTEGRAL = "∫"


def linear(element: Element) -> str:
    """The formula in an element, without white space at its ends."""
    text = ""
    for child in element:
        piece = _piece(child)
        if text and piece and _is_script(text) and text[-1].isalnum() and piece[0].isalnum():
            text += " "  # else the base of what follows is a part of the exponent
        text += piece
    return text.strip()


def _piece(child: Element) -> str:
    """What one element of a formula says."""
    name = child.tag.partition("_")[2] if child.tag.startswith(("m_", "w_")) else ""
    if name == "t":
        return child.text or ""
    if name.endswith("Pr") or name in ("del", "moveFrom", "delText", "instrText"):
        return ""
    if name in _FORMS:
        return _FORMS[name](child)
    return "".join(map(_piece, child)) if name == "r" else linear(child)


def _is_script(text: str) -> bool:
    """Whether a text ends in an exponent or an index without brackets."""
    return re.search(r"[\^_]\w+$", text) is not None


def _arg(parent: Element, name: str) -> str:
    """One argument of a form, as it is."""
    child = parent.find(f"m_{name}")
    return "" if child is None else linear(child)


def _in_brackets(text: str) -> str:
    """An argument with brackets, unless it is one word, one sign, or has some."""
    return text if _SIMPLE.fullmatch(text) or _FENCED.fullmatch(text) else f"({text})"


def _value(parent: Element, name: str, otherwise: str) -> str:
    """A property of a form; one without a value stands for no sign."""
    child = parent.find(f"m_{parent.tag[2:]}Pr/m_{name}")
    return otherwise if child is None else child.get("m_val", "")


def _scripts(form: Element) -> str:
    """The index and the exponent of a form."""
    pairs = (("_", _arg(form, "sub")), ("^", _arg(form, "sup")))
    return "".join(sign + _in_brackets(text) for sign, text in pairs if text)


def _scripted(form: Element) -> str:
    """A base with its index, its exponent or both."""
    return _in_brackets(_arg(form, "e")) + _scripts(form)


def _fraction(form: Element) -> str:
    """A fraction; one without a bar is a stack of two, as a binomial."""
    sign = "¦" if _value(form, "type", "bar") == "noBar" else "/"
    return f"{_in_brackets(_arg(form, 'num'))}{sign}{_in_brackets(_arg(form, 'den'))}"


def _root(form: Element) -> str:
    """A root, and its degree if not the second."""
    degree, under = _arg(form, "deg"), _arg(form, "e")
    return f"√({degree}&{under})" if degree else f"√{_in_brackets(under)}"


def _sum(form: Element) -> str:
    """A sum, an integral or the like with its limits."""
    limits = _scripts(form)
    return f"{_value(form, 'chr', _INTEGRAL)}{limits}{' ' if limits else ''}{_arg(form, 'e')}"


def _fenced(form: Element) -> str:
    """Arguments in brackets, with the signs named by the form."""
    begin, end = _value(form, "begChr", "("), _value(form, "endChr", ")")
    return begin + _value(form, "sepChr", "|").join(linear(part) for part in form.iterfind("m_e")) + end


def _accented(form: Element) -> str:
    """A base with an accent: the combining sign behind it."""
    return _in_brackets(_arg(form, "e")) + _value(form, "chr", "\u0302")


def _barred(form: Element) -> str:
    """A base with a bar above or below it."""
    return _in_brackets(_arg(form, "e")) + ("\u0304" if _value(form, "pos", "bot") == "top" else "\u0331")


def _function(form: Element) -> str:
    """The name of a function before its argument."""
    return f"{_arg(form, 'fName')} {_arg(form, 'e')}"


def _matrix(form: Element) -> str:
    """Rows of a matrix, or equations one below the other."""
    if form.tag == "m_eqArr":
        return f"█({'@'.join(linear(part) for part in form.iterfind('m_e'))})"
    rows = ("&".join(linear(part) for part in row.iterfind("m_e")) for row in form.iterfind("m_mr"))
    return f"■({'@'.join(rows)})"


def _limited(form: Element) -> str:
    """A base with a limit below or above it."""
    return f"{_arg(form, 'e')}{'┬' if form.tag == 'm_limLow' else '┴'}{_in_brackets(_arg(form, 'lim'))}"


_FORMS = {
    **dict.fromkeys(("sSup", "sSub", "sSubSup"), _scripted),
    "sPre": lambda form: _scripts(form) + " " + _in_brackets(_arg(form, "e")),
    "f": _fraction,
    "rad": _root,
    "nary": _sum,
    "d": _fenced,
    "acc": _accented,
    "bar": _barred,
    "func": _function,
    **dict.fromkeys(("m", "eqArr"), _matrix),
    **dict.fromkeys(("limLow", "limUpp"), _limited),
}
