"""Text as a terminal may have it: what does not print is written as an escape, so that it is seen and does nothing."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""One line: a tab becomes four blanks, any other character that does not print an escape such as \x1b or \n."""
    text = text.replace("\t", "    ")
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def printable_lines(text: str) -> str:
    """The same of several lines; what separates them alone is kept."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
