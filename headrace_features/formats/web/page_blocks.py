"""The blocks of a page: paragraphs, headings, items, cells, each with all of its text and with what stands around it.

A block is what browsers show as lines of its own. Its text is that of all its nodes, in order, whatever their length:

    <li value=4>a <b>b</b></li>              4. a b
    10<sup>23</sup>, H<sub>2</sub>O          10^23, H2O; digits beside raised digits never touch
    <ruby>東<rt>とう</rt></ruby>              東(とう), or 東 alone
    <del>one</del><ins>two</ins> <q>x</q>    two “x”
    MathML, KaTeX, MathJax, pictures of TeX  each formula once, as TeX where the page has it

What browsers do not show is no text: closed dialogs, `hidden`, `display: none`, scripts, fields of forms. `noscript`
is, because no scripts are run. The choice of the article is main_text.py's.
"""

from __future__ import annotations

import re
from collections import Counter
from html import escape, unescape
from typing import NamedTuple

from headrace_features.formats.web import inline_text as inline
from headrace_features.formats.web.formulas import formula_text, written_tex
from headrace_features.formats.web.list_marks import LISTS, ListMarks, item_counts
from headrace_features.formats.web.markup import TOKEN_FIELDS, VOID, tokens
from headrace_features.formats.web.roles import ROLE_COUNT, role_bits

LINE, BLANK_LINE, CELL = "\n", "\n\n", "\t"
_LEAVES = frozenset(
    (
        *("p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "td", "th", "dt", "dd", "pre", "listing"),
        *("figcaption", "summary", "caption", "address"),
    )
)
_BLOCKS = _LEAVES | frozenset(
    (
        *("article", "aside", "blockquote", "body", "center", "details", "dialog", "dir", "div", "dl"),
        *("fieldset", "figure", "footer", "form", "frameset", "header", "hgroup", "hr", "html", "legend"),
        *("main", "menu", "nav", "noframes", "ol", "search", "section", "table", "tbody", "thead"),
        *("tfoot", "tr", "ul", "text"),
    )
)  # `text` is SVG's
_UNSEEN = frozenset(
    (
        *("head", "title", "template", "script", "style", "textarea", "select", "datalist", "button"),
        *("audio", "video", "canvas", "rp", "del", "mjx-math", "defs", "desc", "metadata"),
    )
)
_APART = frozenset(
    (
        *("p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "listing", "blockquote", "table", "ul", "ol"),
        *("dl",),
    )
)
_SHOWN_LATER = frozenset(("html", "body", "main", "article"))  # pages hide them until a script has run
_NUMBERED = LISTS | frozenset(("li", "tr", "td", "th"))
_PRESERVING = frozenset(("pre", "listing"))
_NEAR = (1 << 2 * ROLE_COUNT) - 1  # the roles of the two innermost blocks
_MARKS = {
    "sup": (inline.RAISED, inline.RAISED_END),
    "sub": (inline.LOWERED, inline.LOWERED_END),
    "ruby": (inline.RUBY, inline.RUBY_END),
    "rt": (inline.READING, inline.READING_END),
    "rtc": (inline.READING, inline.READING_END),
    "q": (inline.QUOTE, inline.QUOTE_END),
}
_LOOK = re.compile(
    r' (class|id|role|style|hidden|aria-hidden|open|data-tex|data-latex|data-mathml|alt|popover)="([^"]*)"'
)
_HIDDEN = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse))", re.IGNORECASE)
_PRESERVED = re.compile(r"white-space\s*:\s*(?:pre(?!-line)|break-spaces)", re.IGNORECASE)
_SHIFTED = re.compile(r"vertical-align\s*:\s*(super|sub)\b", re.IGNORECASE)
_RENDERED = re.compile(r"(?:^|\s)MathJax(?:_\w+)?(?:$|\s)")
_ODD = re.compile(r"katex-html|MathJax|msupsub")
_TEX_VALUES = frozenset(("data-tex", "data-latex", "data-mathml"))
_PICTURE = re.compile(r"math|tex", re.IGNORECASE)
_FORMULA_ATTRIBUTE = re.compile(r' (?:encoding|display|alttext|open|close|separators)="[^"]*"')
_FORMULAS = frozenset(("math", "x-tex"))
_MATTERS = _BLOCKS | _UNSEEN | _FORMULAS | VOID | frozenset(("a", *_MARKS))
_PICTURED = re.compile(r"(?:^|[\s_-])(?:tex|latex|math|mwe-math\S*|ztext-math)(?:$|[\s_-])", re.IGNORECASE)


class Block(NamedTuple):
    """A block of a page.

    Attributes:
        text: all of its text.
        tag: name of the innermost element making it a block.
        roles: what the elements around it are for, as bits of roles.py.
        near_roles: the same of the two innermost.
        link_count: characters of it in links, white space aside.
        depth: how many elements it is below the root.
        container: number of the element around it and others like it.
        outer: number of the block around the container.
        group: number of the list or the row of a table around it, -1 for none.
        lead: what stands between it and the block before it: a blank line, a line end or a tab.
    """

    text: str
    tag: str
    roles: int
    near_roles: int
    link_count: int
    depth: int
    container: int
    outer: int
    group: int
    lead: str


_Element = tuple[str, bool, int, int, str, bool]
"""An open element that changes something: its name, whether it is a block, the roles around and near it, the
mark at its end, and whether it preserves blanks."""


class _Look(NamedTuple):
    """What the attributes of an element say."""

    labels: str
    is_hidden: bool
    is_aria_hidden: bool
    is_preserved: bool
    is_odd: bool
    height: str
    values: dict[str, str]


_PLAIN = _Look("", False, False, False, False, "", {})


def _looked(values: dict[str, str]) -> _Look:
    """What attributes say, by their names."""
    style = values.get("style", "")
    labels = " ".join(values[name] for name in ("class", "id", "role") if name in values)
    is_formula = "mwe-math-mathml" in labels or "MJX_Assistive" in labels
    is_hidden = values.get("hidden", "until-found").lower() != "until-found" or bool(style and _HIDDEN.search(style))
    is_hidden |= "popover" in values and "open" not in values  # dialogs alone may be open
    is_preserved = bool(style and _PRESERVED.search(style))
    shifted = _SHIFTED.search(style) if style else None
    height = f"su{shifted.group(1)[2]}".lower() if shifted else "sup" if "msupsub" in labels else ""
    is_odd = is_preserved or bool(height) or bool(_ODD.search(labels)) or not _TEX_VALUES.isdisjoint(values)
    return _Look(
        labels, is_hidden and not is_formula, values.get("aria-hidden") == "true", is_preserved, is_odd, height, values
    )


def page_blocks(markup: str, readings: bool = True) -> list[Block]:
    """The blocks of a page, in order.

    Args:
        markup: regular markup, as a parser writes it (markup.py).
        readings: whether readings of ruby stand in brackets behind their base.
    """
    return blocks_of_tokens(tokens(markup), readings)


def blocks_of_tokens(fields: list[str | None], readings: bool = True) -> list[Block]:
    """The blocks of a page with its markup taken apart."""
    return _Walk(fields, readings).walk()


class _Walk:
    """One walk over the tokens of a page."""

    def __init__(self, fields: list[str | None], readings: bool) -> None:
        self._fields, self._readings = fields, readings
        self._has_scripts = "x-tex" in fields
        self._looks: dict[str, _Look] = {}
        self._bits: dict[tuple[str, str, bool], int] = {}
        self._blocks: list[Block] = []
        self._pieces: list[str] = []
        self._stack: list[_Element | None] = []
        self._path: list[tuple[str, int]] = []  # names and numbers of the blocks among them
        self._roles = self._near = 0
        self._number = self._links = self._link_count = self._preserved = 0
        self._lead, self._marks = "", ListMarks()
        self._rows: list[tuple[int, int]] = []  # numbers of rows, how many blocks there were when their cells began
        self._is_cell = False
        self._formula: tuple[str, int] = ("", -1)
        self._item_counts: Counter[int] | None = None

    def walk(self) -> list[Block]:
        """All blocks."""
        fields, stack, pieces, place, end = self._fields, self._stack, self._pieces, 0, len(self._fields) - 1
        while place < end:
            text, slash, name, attributes = fields[place : place + TOKEN_FIELDS]
            if text and (pieces or self._preserved or not text.isspace()):  # blanks at a head are no text
                self._text(text)
            if slash:
                element = stack.pop() if stack else None
                if element is not None:
                    self._close(element)
            elif attributes or name in _MATTERS:
                place = self._open(name or "", attributes or "", place)
            elif name is not None:
                stack.append(None)
            place += TOKEN_FIELDS
        self._text(fields[place] or "")
        self._flush()
        return self._blocks

    def _text(self, text: str) -> None:
        """A text between tags; but for a sign of an icon font, or of a link to its own heading, alone."""
        if len(text) == 1 and ("\ue000" <= text <= "\uf8ff" or (text == "¶" and self._links)):
            return
        self._pieces.append(text)
        if self._links:
            self._link_count += len("".join(text.split()))

    def _open(self, name: str, attributes: str, place: int) -> int:
        """Open an element; gives the place of the tag to go on behind."""
        if name in VOID:
            self._void(name, attributes)
            return place
        # links and pictures are many, each with attributes of its own, of which few say anything
        is_told = attributes and (name != "a" or " style=" in attributes or " hidden=" in attributes)
        look = self._look(attributes) if is_told else _PLAIN
        is_hidden = look.is_hidden and name not in _SHOWN_LATER
        if name in _UNSEEN or is_hidden or (name == "dialog" and "open" not in look.values):
            return self._end_of(place)
        if look.is_odd or name in _FORMULAS:
            behind = self._special(name, attributes, look, place)
            if behind != place:
                return behind
        elif name not in _BLOCKS and name not in _MARKS and name != "a":
            self._stack.append(None)
            return place
        self._push(name, look, attributes, place)
        return place

    def _void(self, name: str, attributes: str) -> None:
        """An element without content: a line break, a border, or the picture of a formula."""
        if name == "br":
            self._pieces.append(inline.BREAK)
        elif name == "hr":
            self._border("hr")
        elif name == "img" and _PICTURE.search(attributes):
            values = self._look(attributes).values
            if values.get("alt") and _PICTURED.search(values.get("class", "")):
                self._add_formula(written_tex(values["alt"]))

    def _special(self, name: str, attributes: str, look: _Look, place: int) -> int:
        """Write a formula, or leave out what is one again; gives where it ends, or its place if it is neither."""
        if name == "math":
            end = self._end_of(place)
            self._add_formula(escape(formula_text(self._markup(place, end)), quote=False))
            return end
        if name == "x-tex":
            content = self._fields[place + TOKEN_FIELDS] or ""
            self._add_formula(written_tex(content, "display" in attributes))
            return place + TOKEN_FIELDS
        values = look.values
        tex = values.get("data-tex") or values.get("data-latex")
        if tex:
            self._add_formula(written_tex(tex))
            return self._end_of(place)
        if "data-mathml" in values and not self._has_scripts:
            self._add_formula(escape(formula_text(unescape(values["data-mathml"])), quote=False))
            return self._end_of(place)
        is_again = "katex-html" in look.labels and self._formula[1] == len(self._pieces)
        if is_again or (self._has_scripts and _RENDERED.search(values.get("class", ""))):
            return self._end_of(place)
        return place

    def _add_formula(self, text: str) -> None:
        """Add a formula, as markup has it, but for one just written."""
        bare = "".join(unescape(text).split()).strip("$")
        former, count = self._formula
        if bare and (bare != former or "".join(self._pieces[count:]).strip()):
            self._pieces.append(text)
        self._formula = (bare, len(self._pieces))

    def _push(self, name: str, look: _Look, attributes: str, place: int) -> None:
        """Open an element with an effect."""
        is_preserved = look.is_preserved or name in _PRESERVING
        self._preserved += is_preserved
        if name in _BLOCKS:
            self._border(name)
            self._number += 1
            if name in _NUMBERED:
                self._enter(name, attributes, place)
            self._stack.append((name, True, self._roles, self._near, "", is_preserved))
            self._path.append((name, self._number))
            key = (name, look.labels, look.is_aria_hidden)
            bits = self._bits.get(key)
            if bits is None:
                bits = self._bits[key] = role_bits(*key)
            self._near = (self._near << ROLE_COUNT | bits) & _NEAR
            self._roles |= bits
            return
        self._links += name == "a"
        opened, closed = _MARKS.get(look.height or name, ("", ""))
        if opened:
            self._pieces.append(opened)
        self._stack.append((name, False, 0, 0, closed, is_preserved))

    def _enter(self, name: str, attributes: str, place: int) -> None:
        """Begin a list, an item, a row or a cell."""
        if name in LISTS:
            if " reversed=" in attributes and self._item_counts is None:
                self._item_counts = item_counts(self._fields, lambda node: self._look(node).is_hidden)
            count = self._item_counts[place] if self._item_counts and " reversed=" in attributes else 0
            self._marks.open_list(name, attributes, count, self._number)
        elif name == "li":
            self._marks.open_item(attributes)
        elif name == "tr":
            self._rows.append((self._number, len(self._blocks)))
        elif name in ("td", "th") and self._rows:
            row, count = self._rows[-1]
            self._is_cell = len(self._blocks) == count + 1
            self._rows[-1] = (row, len(self._blocks))

    def _close(self, element: _Element) -> None:
        """Close the innermost element."""
        name, is_block, roles, near, mark, is_preserved = element
        if not is_block:
            self._links -= name == "a"
            if mark:
                self._pieces.append(mark)
        else:
            self._border(name)
            self._path.pop()
            self._roles, self._near = roles, near
            if name in LISTS:
                self._marks.close_list()
            elif name == "tr" and self._rows:
                self._rows.pop()
                self._is_cell = False
        self._preserved -= is_preserved

    def _border(self, name: str) -> None:
        """End the block before a border; the next one stands behind a blank line where one of the two asks for it."""
        if self._pieces:
            self._flush()
        if name in _APART and not (name == "p" and self._marks.pending):
            self._lead = BLANK_LINE
        elif not self._lead:
            self._lead = LINE

    def _flush(self) -> None:
        """End a block."""
        pieces = "".join(self._pieces)
        self._pieces.clear()
        self._formula = ("", -1)
        link_count, self._link_count = self._link_count, 0
        if not pieces or pieces.isspace():
            return
        text = inline.block_text(pieces, self._preserved > 0, self._readings)
        if not text or text.isspace():
            return
        lead, self._lead = (CELL if self._is_cell else self._lead), ""
        self._is_cell = False
        text = self._marks.marked(text)
        path = self._path
        tag = path[-1][0] if path else ""
        inner = 2 if tag in _LEAVES else 1
        number = path[-inner][1] if len(path) >= inner else 0
        outer = path[-inner - 1][1] if len(path) > inner else 0
        near = self._near >> ROLE_COUNT | self._near & (1 << ROLE_COUNT) - 1
        group = self._rows[-1][0] if self._rows else self._marks.group
        block = Block(text, tag, self._roles, near, link_count, len(self._stack), number, outer, group, lead)
        self._blocks.append(block)

    def _look(self, attributes: str) -> _Look:
        """What attributes say."""
        look = self._looks.get(attributes)
        if look is None:
            pairs = _LOOK.findall(attributes)
            look = self._looks[attributes] = _looked(dict(pairs)) if pairs else _PLAIN
        return look

    def _end_of(self, place: int) -> int:
        """The place of the end tag of an element, by that of its start tag."""
        fields, depth, end = self._fields, 1, len(self._fields) - 1
        while depth and place + TOKEN_FIELDS < end:
            place += TOKEN_FIELDS
            name = fields[place + 2]
            if name is not None and name not in VOID:
                depth += -1 if fields[place + 1] else 1
        return place

    def _markup(self, start: int, end: int) -> str:
        """The markup of the element between two tags, as XML."""
        parts = []
        for place in range(start, end + 1, TOKEN_FIELDS):
            text, slash, name, attributes = self._fields[place : place + TOKEN_FIELDS]
            parts.append((text or "") if place > start else "")
            if name is not None:
                formula = "".join(_FORMULA_ATTRIBUTE.findall(attributes or "")).replace("<", "&lt;")
                parts.append(f"<{slash or ''}{name}{formula}>")
        return "".join(parts).replace("&nbsp;", "&#160;")
