"""The text of an XML element, the same words however the file is indented.

    <sec><title>Tides</title><p>At 10<sup>3</sup> m</p></sec>      Tides, and in the next line: At 10^3 m

An element with text of its own beside elements is a line of words: what is inside separates nothing, but for
blocks (lists, tables, notes). An element of elements alone separates them, and white space between them says nothing,
but where all of them say how letters look: `<p><b>wo</b><i>rd</i></p>` is a word, with a blank between them two.
Raised and lowered text is written as in raised.py. Of several forms of a formula TeX is taken.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from headrace_features.formats.raised import LEVEL, LOWERED, RAISED, with_scripts

_BLOCK, _CELL, _SPACE, _ROW = "\0\1\2\3"  # no XML holds these characters
_SEPARATED = re.compile(r"[\0\1\2\3][\s\0\1\2\3]*")
_DOCUMENT = re.compile(r"\\begin\{document\}(.*)\\end\{document\}", re.DOTALL)


def _names(words: str) -> frozenset[str]:
    """The names of elements in a line."""
    return frozenset(words.split())


# What structure cannot say: blocks inside of text, and names of characters that may follow one another without text.
_BLOCKS: Final = _names(
    "p para simpara formalpara div sec section sect1 sect2 sect3 title head subtitle list list-item item ul ol li dl "
    "dt dd dlentry def-list def-item itemizedlist orderedlist variablelist listitem varlistentry table table-wrap "
    "tgroup thead tbody tfoot informaltable fig figure figDesc caption disp-formula disp-quote blockquote quote-block "
    "boxed-text note example programlisting screen codeblock pre preformat lg l lb br verse-group verse-line speech "
    "sp lines hr block hedline hl1 hl2 claim claim-text heading abstract footnote fn"
)
_ROWS: Final = frozenset(("tr", "row", "strow", "sthead"))
_CELLS: Final = frozenset(("td", "th", "entry", "cell", "stentry"))
_SCRIPTS: Final = {"sup": RAISED, "superscript": RAISED, "sub": LOWERED, "subscript": LOWERED}
_LETTERS: Final = _SCRIPTS.keys() | _names(
    "b i u s em strong bold italic roman sans-serif monospace sc smallcaps underline overline strike hi emph emphasis "
    "tt span styled-content c g"
)
"""How letters look; where an element has nothing else inside, they are parts of its words."""
_INLINE: Final = _LETTERS - _SCRIPTS.keys() | _names(
    "a xref ext-link uri email ph term xml-q q quote name string-name persName person-group surname given-names "
    "forename roleName mixed-citation date year month day figref crossref named-content inline-formula citetitle link "
    "ulink code literal filename w pc"
)
_VERBATIM: Final = _names("programlisting screen codeblock pre preformat literallayout code eg")
_SIGNS: Final = {"msup": "^", "msub": "_", "mfrac": "/", "munder": "_", "mover": "^"}
_FORMULA: Final = _SIGNS.keys() | _names(
    "math alternatives semantics mrow mstyle mpadded mfenced msqrt mroot mtable mtr mtd msubsup munderover "
    "mmultiscripts"
)
_TEX: Final = frozenset(("tex-math", "texmath"))
_MATH: Final = frozenset(("math", "mml", "textual-form"))


class _Child(NamedTuple):
    """A closed element: its local name, its pieces, and whether it is a block by its structure."""

    name: str
    start: int
    end: int
    is_block: bool


class _Frame:
    """An open element."""

    def __init__(self, name: str, start: int, is_verbatim: bool, is_tex: bool) -> None:
        self.name, self.start, self.is_tex = name, start, is_tex
        self.is_mixed = self.is_verbatim = is_verbatim
        self.children: list[_Child] = []
        self.blanks: list[int] = []  # pieces of white space between the elements

    def has_letters_only(self) -> bool:
        """Whether all inside stands in elements for the looks of letters, as in `<p><b>wo</b><i>rd</i></p>`."""
        return not self.is_mixed and all(child.name in _LETTERS for child in self.children)


class ElementText:
    """Collects the text of an element from the events of a parser."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._frames = [_Frame("", 0, False, False)]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element inside begins."""
        local = name.rpartition(":")[2]
        style = f"{attributes.get('rend', '')} {attributes.get('role', '')}".split()
        if local in ("hi", "emphasis", "seg") and style:
            local = next(("sup" for word in style if word.startswith("sup")), local)
            local = next(("sub" for word in style if word.startswith("sub")), local)
        is_verbatim = self._frames[-1].is_verbatim or local in _VERBATIM or attributes.get("xml:space") == "preserve"
        is_tex = local in _TEX or (local == "annotation" and "tex" in attributes.get("encoding", "").lower())
        self._frames.append(_Frame(local, len(self._pieces), is_verbatim, is_tex))
        self._pieces.append(_SCRIPTS.get(local, ""))

    def characters(self, data: str) -> None:
        """Text between tags."""
        frame = self._frames[-1]
        if data.isspace():
            frame.blanks.append(len(self._pieces))
        else:
            frame.is_mixed = True
        self._pieces.append(data)

    def end(self) -> None:
        """An element inside ends."""
        frame = self._frames[-1]
        self._close(frame)
        if frame.is_tex:
            text = "".join(self._pieces[frame.start :])
            document = _DOCUMENT.search(text)
            del self._pieces[frame.start :]
            self._pieces += ["", (document[1] if document else text).strip()]
        self._pieces.append(LEVEL if frame.name in _SCRIPTS else "")
        self._frames.pop()
        is_block = not frame.is_mixed and len(frame.children) > 1 and frame.name not in _INLINE
        is_block = is_block and frame.name not in _FORMULA | _SCRIPTS.keys() and not frame.has_letters_only()
        name = "tex-math" if frame.is_tex else frame.name
        self._frames[-1].children.append(_Child(name, frame.start, len(self._pieces) - 1, is_block))

    def text(self) -> str:
        """All of the text, once the element has ended."""
        self._close(self._frames[0])
        text, parts, end = "".join(self._pieces), list[str](), 0
        if not any(mark in text for mark in (_BLOCK, _CELL, _SPACE, _ROW)):
            return with_scripts(text) if LEVEL in text else text
        for run in _SEPARATED.finditer(text):
            before = text[end : run.start()].rstrip()
            parts += [before, _separator(run) if parts or before else ""]
            end = run.end()
        return with_scripts("".join([*parts, text[end:]]))

    def _close(self, frame: _Frame) -> None:
        """Write what separates the children of an element."""
        self._choose(frame)
        if not frame.is_mixed and frame.children:
            for blank in frame.blanks:
                self._pieces[blank] = _SPACE if frame.has_letters_only() else ""
        script = _SIGNS.get(frame.name)
        if script and len(frame.children) > 1:
            self._pieces[frame.children[1].start] = script
            for child in frame.children[1:]:
                if child.name == "mrow":
                    self._pieces[child.start], self._pieces[child.end] = self._pieces[child.start] + "{", "}"
            return
        for child in frame.children:
            mark = self._mark(frame, child)
            if mark and child.name not in _SCRIPTS:
                self._pieces[child.start] = self._pieces[child.end] = mark

    def _mark(self, frame: _Frame, child: _Child) -> str:
        """What stands around a child, empty for nothing."""
        if child.name in _ROWS:
            return _ROW
        if child.name in _CELLS:
            return _CELL
        if child.name in _BLOCKS or (child.is_block and not frame.is_verbatim):
            return _BLOCK
        if frame.is_mixed or frame.name in _SCRIPTS or frame.has_letters_only():
            return ""
        is_formula = child.name in _TEX or frame.name in _FORMULA
        return _SPACE if frame.name in _INLINE or child.name in _INLINE or is_formula else _BLOCK

    def _choose(self, frame: _Frame) -> None:
        """Of several forms of a formula keep the TeX, else the shown one."""
        names = {child.name for child in frame.children}
        for child in frame.children:
            is_math = child.name in _MATH or frame.name == "semantics"
            lost = (
                is_math and child.name not in _TEX if names & _TEX else child.name in ("annotation", "annotation-xml")
            )
            if lost:
                self._pieces[child.start : child.end + 1] = [""] * (child.end + 1 - child.start)


def _separator(run: re.Match[str]) -> str:
    """What separates the elements meeting in white space, nothing at the end."""
    marks = set(run[0])
    if run.end() == len(run.string):
        return ""
    return "\n" if _ROW in marks else "\t" if _CELL in marks else "\n" if _BLOCK in marks else " "
