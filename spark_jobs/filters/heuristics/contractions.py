"""Runs of characters other than ordinary words: contractions of several words, abbreviations and emoticons of one.

The rules are those of spaCy's English tokenizer, which datatrove counts words with: `don't` is the words `do` and
`n't`, `dont` likewise `do` and `nt`, `Mr.` and `:-)` are one word each. They are made here from their parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import numpy as np

from headrace.kernels import mixing
from headrace.kernels.compiling import inner
from headrace.kernels.hash_tables import key_address, key_slot
from headrace.kernels.memory import eight_bytes_at, four_bytes_at
from headrace.kernels.mixing import GOLDEN, plain_hash
from spark_jobs.arrays import Int32Array, UInt64Array
from spark_jobs.lexing.machine import U64
from spark_jobs.threads import made_once

STOP_WORDS: Final = ("the", "be", "to", "of", "and", "that", "have", "with")
"""The stop words of Gopher (Rae et al. 2021, section A1.1)."""
LONGEST: Final = 12
"""Characters of the longest rule."""
SLOT_BITS: Final = 13
UNIT_SEED: Final = U64(0x756E6974)  # `unit` in ASCII: units are no rules, though some are spelled alike

_ENDINGS: Final = (
    ("i", "'m 'm|a"),
    ("i you he she it we they", "'ll 'll|'ve 'd 'd|'ve"),
    ("i you we they", "'ve"),
    ("you we they", "'re"),
    ("he she it who what when where why how there that this", "'s"),
    ("who what when where why how there that this these those", "'ll 'll|'ve 'd 'd|'ve"),
    ("who what when where why how there these those", "'re 've"),
    ("ca could do does did had may might must need ought sha should wo would", "n't n't|'ve"),
    ("could might must should would", "'ve"),
    ("ai are is was were have has dare", "n't"),
)
# Words of their own, as which contractions without an apostrophe would be spelled.
_NO_CONTRACTIONS: Final = frozenset(["ill", "its", "hell", "shell", "shed", "were", "well", "whore"])
_OTHERS: Final = (
    "y'|all y|all how|'d|'y not|'ve not|ve can|not gon|na got|ta let|'s c'm|on doin doin' goin goin' nothin nothin' "
    "nuthin nuthin' ol ol' somethin somethin' lovin lovin' havin havin' 'cause 'cos 'coz 'cuz ma'am o'clock"
)
_AS_THEY_ARE: Final = (
    "em 'em ll 'll nuff 'nuff 's 'S 're 'd 'bout and/or w/o Mt. Ak. Ala. Apr. Ariz. Ark. Aug. Calif. Colo. Conn. "
    "Dec. Del. Feb. Fla. Ga. Ia. Id. Ill. Ind. Jan. Jul. Jun. Kan. Kans. Ky. La. Mar. Mass. Mich. Minn. Miss. N.C. "
    "N.D. N.H. N.J. N.M. N.Y. Neb. Nebr. Nev. Nov. Oct. Okla. Ore. Pa. S.C. Sep. Sept. Tenn. Va. Wash. Wis. a.m. "
    "Adm. Bros. co. Co. Corp. D.C. Dr. e.g. E.g. E.G. Gen. Gov. i.e. I.e. I.E. Inc. Jr. Ltd. Md. Messrs. Mo. Mont. "
    "Mr. Mrs. Ms. p.m. Ph.D. Prof. Rep. Rev. Sen. St. vs. v.s. \\t \\n \\\") <space> '' C++ ä. ö. ü. "
    ":) :-) :)) :-)) :))) :-))) (: (-: =) (= :] :-] [: [-: [= =] :o) (o: :} :-} 8) 8-) (-8 ;) ;-) (; (-; :( :-( :(( "
    ":-(( :((( :-((( ): )-: =( >:( :') :'-) :'( :'-( :/ :-/ =/ =| :| :-| ]= =[ :1 :P :-P :p :-p :O :-O :o :-o :0 :-0 "
    ":() >:o :* :-* :3 :-3 =3 :> :-> :X :-X :x :-x :D :-D ;D ;-D =D xD XD xDD XDD 8D 8-D ^_^ ^__^ ^___^ >.< >.> <.< "
    "._. ;_; -_- -__- v.v V.V v_v V_V o_o o_O O_o O_O 0_o o_0 0_0 o.O O.o O.O o.o 0.0 o.0 0.o @_@ <3 <33 <333 </3 "
    "(^_^) (-_-) (._.) (>_<) (*_*)"
)
_UNITS: Final = (
    "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz m/s km/h kmh mph hPa Pa "
    "mbar mb MB kb KB gb GB tb TB T G M K % км км² км³ м м² м³ кг г мг м/с км/ч кПа Па Кб КБ кб Мб МБ мб Гб ГБ гб"
)


def rules() -> dict[str, tuple[int, ...]]:
    """Every rule, with the lengths of its words."""
    lengths: dict[str, tuple[int, ...]] = {}
    for parts in (*_contractions(), *((rule,) for rule in _AS_THEY_ARE.split())):
        for apostrophe in "'’":
            spelled = [part.replace("'", apostrophe) for part in parts]
            lengths["".join(spelled)] = tuple(map(len, spelled))
    lengths |= {f"{letter}.": (2,) for letter in "abcdefghijklmnopqrstuvwxyz"}
    lengths |= {
        f"{hour}{part}": (len(str(hour)), len(part)) for hour in range(1, 13) for part in ("a.m.", "am", "p.m.", "pm")
    }
    return lengths


def _contractions() -> Iterator[tuple[str, ...]]:
    """Words of each contraction, in lower and title case, with the apostrophe and without."""
    spelled = [
        (stem, *ending.split("|"))
        for stems, endings in _ENDINGS
        for stem, ending in product(stems.split(), endings.split())
    ]
    spelled += [tuple(part.replace("'", "") for part in parts) for parts in spelled]
    spelled += [tuple(rule.split("|")) for rule in _OTHERS.split()]
    for first, *others in spelled:
        if "".join((first, *others)) not in _NO_CONTRACTIONS:
            yield (first, *others)
            yield (first[0] + first[1:].title() if first[0] == "'" else first[0].upper() + first[1:], *others)


hash_step = inner(mixing.hash_step)


@inner
def hash_points(points: int, start: int, stop: int, h: np.uint64) -> np.uint64:
    """Hash of the code points from start to stop, going on from h."""
    for i in range(start, stop):
        h = hash_step(h, four_bytes_at(points + 4 * i))
    return h


@inner
def look_up(table: int, h: np.uint64) -> np.int64:
    """What the table holds of a hash; 0 for nothing."""
    at = key_address(table, 16, U64((1 << SLOT_BITS) - 1), (h * GOLDEN) >> U64(64 - SLOT_BITS), h)
    return np.int64(eight_bytes_at(at + 8))


@made_once
def rule_shapes() -> Int32Array:
    """Lengths of rules by their first and last character, to spare most runs a hash.

    Returns:
        (2, 128) bit L is set for the first, and last, characters (modulo 128) of rules with L characters.
    """
    shapes = np.zeros((2, 128), dtype=np.int32)
    for text in rules():
        for row, character in ((0, text[0]), (1, text[-1])):
            shapes[row, ord(character) & 127] |= 1 << len(text)
    shapes.flags.writeable = False
    return shapes


@made_once
def rule_table() -> UInt64Array:
    """Hash table of rules, stop words and units (the latter hashed from UNIT_SEED), for `look_up`.

    Returns:
        (1 << SLOT_BITS, 2) hash and value: bits 0-7 the number of words, 8-15 the length of the first, 16-23 of the
        second, 24 on the number of a stop word, counted from 1.
    """
    entries: dict[int, int] = {}
    for text, lengths in rules().items():
        entries[plain_hash(map(ord, text))] = (
            len(lengths) | lengths[0] << 8 | (lengths[1] if len(lengths) > 1 else 0) << 16
        )
    for index, word in enumerate(STOP_WORDS):
        entries[plain_hash(map(ord, word))] = 1 | len(word) << 8 | index + 1 << 24
    for unit in _UNITS.split():
        entries[plain_hash(map(ord, unit), int(UNIT_SEED))] = 1
    table = np.zeros((1 << SLOT_BITS, 2), dtype=np.uint64)
    for h, value in entries.items():
        first = (h * int(GOLDEN) & 0xFFFFFFFFFFFFFFFF) >> 64 - SLOT_BITS
        table[key_slot.py_func(table[:, 0], first, h)] = h, value
    table.flags.writeable = False
    return table
