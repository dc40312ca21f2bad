"""Say of each run of a Word document how it is shown: hidden or not, its height, and its font.

A property is that of the run, else of its character style, its paragraph's, its table's, of the document's defaults; a
style has those of its base style (ECMA-376 part 1, 17.7.2). `vanish` is a toggle (17.7.3): a character
style with it shows what a paragraph style with it hides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from xml.etree.ElementTree import Element

from headrace_features.formats.raised import LOWERED, RAISED

_HEIGHTS = {"superscript": RAISED, "subscript": LOWERED, "baseline": ""}
_POSITION = re.compile(r"(-?\d+(?:\.\d+)?)(pt)?")
_LEAST_RISE = 3  # half points; less sets a line straight
_OFF = ("0", "false", "off")
_HIDING = ("w_vanish", "w_webHidden")


class Look(NamedTuple):
    """How a run is shown; None where its properties do not say."""

    is_hidden: bool | None = None
    height: str | None = None
    font: str | None = None

    def over(self, below: Look) -> Look:
        """This one, and where it says nothing the other."""
        return Look(
            below.is_hidden if self.is_hidden is None else self.is_hidden,
            below.height if self.height is None else self.height,
            below.font if self.font is None else self.font,
        )


class Styles:
    """The styles of a document, by their ids."""

    def __init__(self, root: Element | None) -> None:
        styles = () if root is None else root.iterfind("w_style")
        self._styles: Mapping[str, Element] = {style.get("w_styleId", ""): style for style in styles}
        self._looks = dict[str, Look]()
        self._defaults = look_of(None if root is None else root.find("w_docDefaults/w_rPrDefault/w_rPr"))
        self._default_paragraph = next(
            (
                name
                for name, style in self._styles.items()
                if style.get("w_type") == "paragraph" and is_on(style.get("w_default", "0"))
            ),
            None,
        )

    def of_run(self, properties: Element | None, paragraph: Element | None, table: str | None = None) -> Look:
        """How a run is shown, or the mark at the end of a paragraph.

        Args:
            properties: `rPr` of the run.
            paragraph: `pPr` of its paragraph.
            table: the id of the style of the table around it.
        """
        direct, character = look_of(properties), self._look(_value(properties, "w_rStyle"))
        block = self._look(self.paragraph_style(paragraph))
        look = direct.over(character).over(block).over(self._look(table)).over(self._defaults)
        if direct.is_hidden is None and character.is_hidden and block.is_hidden:
            return look._replace(is_hidden=False)
        return look

    def paragraph_style(self, paragraph: Element | None) -> str | None:
        """The id of a paragraph's style."""
        return _value(paragraph, "w_pStyle") or self._default_paragraph

    def chain(self, name: str | None) -> list[Element]:
        """A style and its base styles, the nearest first."""
        chain = list[Element]()
        while (style := self._styles.get(name or "")) is not None and style not in chain:
            chain.append(style)
            name = _value(style, "w_basedOn")
        return chain

    def _look(self, name: str | None) -> Look:
        """How a style shows its runs."""
        if name is None:
            return Look()
        if name not in self._looks:
            look = Look()
            for style in self.chain(name):
                look = look.over(look_of(style.find("w_rPr")))
            self._looks[name] = look
        return self._looks[name]


def look_of(properties: Element | None) -> Look:
    """What the properties of a run say alone."""
    if properties is None:
        return Look()
    hidden = [is_on(mark.get("w_val", "1")) for mark in properties if mark.tag in _HIDING]
    height = _HEIGHTS.get(_value(properties, "w_vertAlign") or "none")
    position = _POSITION.fullmatch(_value(properties, "w_position") or "")
    if position and not height:  # in half points, unless it says which
        rise = float(position[1]) * (2 if position[2] else 1)
        height = height if abs(rise) < _LEAST_RISE else RAISED if rise > 0 else LOWERED
    fonts = properties.find("w_rFonts")
    font = None if fonts is None else fonts.get("w_ascii") or fonts.get("w_hAnsi")
    return Look(any(hidden) if hidden else None, height, font)


def is_on(value: str) -> bool:
    """Whether the value of a switch is on."""
    return value.lower() not in _OFF


def _value(element: Element | None, name: str) -> str | None:
    """The value of a child, if there is one."""
    child = None if element is None else element.find(name)
    return None if child is None else child.get("w_val")
