"""Parse sources and changes of a blend as they are written on a command line.

main.packed_code_2048=0.7                                a table and its weight
main.packed_code_2048=0.7,name=code,max_epochs=0         with settings: name, snapshot, max_epochs, on_exhausted
main.packed_news_2048=1,live                             followed as it grows
main.packed_web_2048[quality>=15, topic in (3, 7)]=3     some cells of a table (headrace corpus cells)
code=0.5   code,snapshot=main   news,pinned   -old       changes: weight, grow, pin, remove
"1000000: code=1 prose=3 -old"                           changes from an offset on
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagster_project.exceptions import CommandError

if TYPE_CHECKING:
    from blender_service.blend.requests import SourceChange, SourceSpec, Stage, TextSpec

_SETTINGS = ("name", "table", "snapshot", "max_epochs", "on_exhausted")
_CELLS = re.compile(r"\[(?:'(?:[^']|'')*'|[^'\]])*\]")


def parse_source(text: str, max_epochs: int | None = None, on_exhausted: str | None = None) -> SourceSpec:
    """Read TABLE[=WEIGHT][,SETTING=VALUE..][,live].

    Args:
        text: as it was typed.
        max_epochs: for a pinned source without one in its text.
        on_exhausted: for a pinned source without one in its text.

    Raises:
        CommandError: a setting is unknown, or not a number where it must be one.
    """
    from blender_service.blend.requests import SourceSpec

    table, weight, settings = _split(
        text, "TABLE[=WEIGHT][,name=..][,snapshot=..][,max_epochs=..][,on_exhausted=..][,live]"
    )
    if "table" in settings or settings.get("live") is False:
        raise CommandError(
            f"source {text!r}: the table comes first, and is pinned unless `live` follows; leave table= and pinned out"
        )
    if not settings.get("live"):
        settings.setdefault("max_epochs", max_epochs)
        settings.setdefault("on_exhausted", on_exhausted)
    return SourceSpec(table, weight or "1", **settings)


def parse_change(text: str) -> SourceChange:
    """Read NAME[=WEIGHT][,SETTING=VALUE..][,live|pinned], or -NAME to remove.

    Raises:
        CommandError: a setting is unknown, or not a number where it must be one.
    """
    from blender_service.blend.requests import SourceChange

    if text.startswith("-"):
        return SourceChange(text[1:], remove=True)
    form = "NAME[=WEIGHT][,table=..][,snapshot=..][,max_epochs=..][,on_exhausted=..][,live|pinned], or -NAME"
    name, weight, settings = _split(text, form)
    if "name" in settings:
        raise CommandError(f"change {text!r}: the name comes first and cannot change; leave name= out")
    return SourceChange(name, weight=weight, **settings)


def parse_stage(text: str) -> Stage:
    """Read "OFFSET: CHANGE CHANGE ..".

    Raises:
        CommandError: there is no offset, or a change cannot be read.
    """
    from blender_service.blend.requests import Stage

    offset, colon, changes = text.partition(":")
    if not colon or not offset.strip().replace("_", "").isdecimal():
        raise CommandError(f"stage {text!r}: write OFFSET: CHANGE CHANGE .., for example '1000000: code=1 prose=3'")
    return Stage(int(offset), tuple(map(parse_change, _apart(changes, " "))))


def parse_texts(text: str) -> TextSpec:
    """Read TOKENIZER[,SETTING=VALUE..][,whole][,conversations={..}]; that, or objectives={..}, is JSON, at the end.

    Raises:
        CommandError: a setting is unknown, or not a number where it must be one.
    """
    from blender_service.blend.requests import TextSpec

    plain, conversations = text.partition(",conversations=")[::2]
    plain, objectives = plain.partition(",objectives=")[::2]
    tokenizer, *rest = plain.split(",")
    settings: dict[str, Any] = {}
    for setting in rest:
        key, _, value = setting.partition("=")
        _require_new(text, key, settings)
        if setting == "whole":
            settings[key] = True
        elif key in ("window_tokens", "group_documents") and value.isdecimal():
            settings[key] = int(value)
        elif key in ("text", "doc_id", "trainable", "template", "messages", "tools") and value:
            settings[key] = value
        else:
            raise CommandError(
                f"{text!r}: {setting!r} is not understood; write TOKENIZER[,window_tokens=..][,group_documents=..]"
                "[,whole][,text=..][,doc_id=..][,trainable=..][,template=..][,messages=..][,tools=..]"
                "[,conversations={..}|,objectives={..}]"
            )
    return TextSpec(tokenizer, **settings, conversations=conversations or None, objectives=objectives or None)


def _split(text: str, form: str) -> tuple[str, str, dict[str, Any]]:
    """Split `NAME=WEIGHT,max_epochs=2,live` into name, weight and settings."""
    head, bracket, behind = text.partition("[")
    cells, closing, behind = behind.rpartition("]")
    if "," in head or "=" in head:  # the bracket is in a setting: name, weight, table=..[..]
        first, *rest = _apart(text, ",")
        name, _, weight = first.partition("=")
    elif bracket and not closing:
        raise CommandError(f"{text!r}: no ] closes the cells; write {head}[quality>=15]=WEIGHT")
    else:
        first, *rest = (behind if bracket else head).split(",")
        name, _, weight = first.partition("=")
        name = f"{head}[{cells}]" if bracket else name
    settings: dict[str, Any] = {}
    for setting in rest:
        key, _, value = setting.partition("=")
        _require_new(text, "live" if key == "pinned" else key, settings)
        if key in ("live", "pinned") and not value:
            settings["live"] = key == "live"
        elif key == "max_epochs" and value.isdecimal():
            settings[key] = int(value)
        elif key == "on_exhausted":
            settings[key] = value.upper()
        elif key in _SETTINGS and value and key != "max_epochs":
            settings[key] = value
        else:
            raise CommandError(f"{text!r}: {setting!r} is not understood; write {form}")
    return name, weight, settings


def _apart(text: str, mark: str) -> list[str]:
    """Split at a mark that is not in cells; at a blank: at any number of blanks."""
    plain = _CELLS.sub(lambda cells: "[" * len(cells[0]), text)
    places = [found.span() for found in re.finditer(r"\s+" if mark == " " else mark, plain)]
    edges = zip([0, *(end for _, end in places)], [*(start for start, _ in places), len(text)], strict=True)
    return [text[start:end] for start, end in edges if mark != " " or end > start]


def _require_new(text: str, key: str, settings: Mapping[str, Any]) -> None:
    """Refuse a repeated setting.

    Raises:
        CommandError: names it.
    """
    if key in settings:
        raise CommandError(f"{text!r}: {key} is given twice; give one of them")
