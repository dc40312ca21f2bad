"""Score the text layer of a page from 0 to 1: how far it looks like writing, in whatever language and script.

A text layer goes wrong in few ways: a font without a true table of its characters gives private-use characters, control
characters, or other letters than are seen; glyphs come out of order or without spaces; a bad scan was recognised badly.
The score is the product of four fractions, each 1 for writing; docs/prepare/ingest_ocr.md has what was measured.

    formed       of the characters, those in words with one letter case and one script, or in numbers
    alternation  of pairs of Latin letters, those of a vowel and a consonant: .57 to .85 in 50 languages
    letters      how near the counts of Latin letters are to their mean over 50 languages (cosine): .81 and more
    spacing      of the words, those of one letter: .18 and fewer

Alternation and letters count where there are a hundred Latin letters, and half of the page is Latin. No dictionary is
asked, so a page of names is no worse than one of prose. Letters of other scripts in place of each other are not
found, nor is a bad scan whose recogniser made words of it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

import numpy as np

_MIN_LETTERS = 100
_LONGEST_WORD = 40
_VOWELS = np.isin(np.arange(26), [ord(letter) - ord("a") for letter in "aeiouy"])
# How often a to z are in 1,000 letters, accents left out: means of 50 languages of the Leipzig corpora.
_LETTERS: Final = np.array(
    [131, 19, 20, 35, 104, 10, 25, 24, 87, 11, 33, 45, 33, 74, 64, 20, 2, 55, 54, 58, 42, 16, 10, 2, 15, 11], np.float64
)
_UNWRITTEN = {"Cc", "Cn", "Co", "Cs"}  # controls, characters that do not exist, of private use, surrogates
_INSIDE = re.compile(r"(?:[^\w\s|~^*<>{}\\]|_)+")  # what may stand between the parts of a word, such as - ' / 。
_SHAPE = re.compile(
    r"l+|(?:ul*|ull+(?:ull+)*|u+l{0,2}|l+u(?:ll+)*)d*|l+d+|d+[luo]{0,3}|[luo]{1,3}d+[luo]{0,2}|[luod]*o[luod]*|d+"
)
_CASED = ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN")


def layer_score(text: str) -> float:
    """The score of a text, rounded to three places; 0 for one without any word."""
    words = text.split()
    formed, ink = _formed(words)
    letters = np.frombuffer(unicodedata.normalize("NFD", text.lower()).encode("ascii", "ignore"), np.uint8) - ord("a")
    letters = letters[letters < 26]
    score = formed
    if len(letters) >= max(_MIN_LETTERS, ink / 2):
        counts = np.bincount(letters, minlength=26)
        nearness = float(counts @ _LETTERS) / float(np.linalg.norm(counts) * np.linalg.norm(_LETTERS))
        vowels = _VOWELS[letters]
        score *= _ramp(nearness, 0.5, 0.8) * _ramp(float((vowels[1:] != vowels[:-1]).mean()), 0.4, 0.57)
    if words:
        single = sum(len(word) == 1 and word.isalpha() and word < "\u2e80" for word in words)
        score *= _ramp(1 - single / len(words), 0.4, 0.7)
    return round(float(score), 3)


def _ramp(value: float, zero: float, full: float) -> float:
    """0 up to `zero`, 1 from `full` on, and a straight line between them."""
    return min(1.0, max(0.0, (value - zero) / (full - zero)))


def _formed(words: list[str]) -> tuple[float, int]:
    """The fraction of characters in well-formed words, and the number of counting characters."""
    good = every = 0
    for word in words:
        formed = _is_formed(word)
        if formed is not None:
            every += len(word)
            good += len(word) * formed
    return (good / every if every else 0.0), every


@lru_cache(1 << 16)
def _is_formed(word: str) -> bool | None:
    """Whether a word is well-formed; None for one of punctuation alone: it says nothing."""
    if any(unicodedata.category(letter) in _UNWRITTEN or letter == "\ufffd" for letter in word):
        return False
    parts = [part for part in _INSIDE.split(word.strip("|~^*<>{}\\\"'([_")) if part]
    return all(map(_is_part, parts)) if parts else None


def _is_part(part: str) -> bool:
    """Whether a part of a word has one cased script, one letter case or a capital first, or is a number."""
    shape = "".join(map(_class_of, part))
    if "x" in shape or (len(shape) > _LONGEST_WORD and "o" not in shape):
        return False
    scripts = {unicodedata.name(letter, "").split(" ")[0] for letter in part} if len(shape) > 1 else set()
    return _SHAPE.fullmatch(shape) is not None and sum(script in scripts for script in _CASED) <= 1


def _class_of(letter: str) -> str:
    """One of u, a capital; l, a small letter; o, another letter or a mark; d, a digit; x, anything else."""
    if letter.isupper() or letter.istitle():
        return "u"
    if letter.islower():
        return "l"
    category = unicodedata.category(letter)
    return "d" if category == "Nd" else "" if category == "Cf" else "o" if category[0] in "LMN" else "x"
