"""Tables of how programming languages write comments, strings and keywords, for the compiled lexer.

A *region* is a part of a source that is no code: a comment, a string. It is described by the bytes that open and close
it and by flags for its inside (`Flag`). Everything else is code: identifiers, numbers, keywords, punctuation. That is
far less than a grammar, and enough to tell comments, strings and code apart byte by byte; `lexers` lists what is
missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import Final, NamedTuple

import numpy as np

from spark_jobs.arrays import Int64Array, UInt8Array, UInt64Array


class Flag(IntFlag):
    """Properties of a region, mostly of what its inside may contain."""

    REGION = 1
    """Set for every region; a state without any flag is code."""
    COMMENT = 2
    """A comment: never an operand of an expression, which decides whether a slash after it begins a regex."""
    ONE_LINE = 4
    """It ends with its line at the latest."""
    ESCAPES = 8
    """A backslash hides the next byte."""
    CONTINUES = 16
    """A backslash hides the end of the line, and nothing else."""
    DOUBLED = 32
    """The closing bytes twice in a row do not close it."""
    NESTED = 64
    """Its opening bytes inside must be closed as well."""
    CLASSES = 128
    """Square brackets inside hide the closing bytes (regular expressions)."""
    DOLLAR_BRACE = 256
    """`${` up to the matching brace is code."""
    BRACE = 512
    """`{` up to the matching brace is code, `{{` is not; a `:` or `!` at its top level ends the code."""
    HASH_BRACE = 1024
    """`#{` up to the matching brace is code."""
    DOLLAR_NAME = 2048
    """`$` and a name is an identifier."""
    AFTER_SPACE = 4096
    """It opens only at the begin of a word (shell comments)."""
    LINE_START = 8192
    """It opens only at the begin of a line (Ruby's block comments)."""


class QuoteRules(IntFlag):
    """Which letters before a quote belong to a string, and other rules of one family of languages."""

    NONE = 0
    PYTHON = 1
    C = 2
    RUST = 4
    REGEX = 8
    """A slash where no operand stands before it opens a regular expression, if it is closed on its line."""
    C_NUMBERS = 16
    """Numbers may have quotes between digits and suffixes after the point."""


@dataclass(frozen=True)
class Region:
    """A comment or a string: the bytes (1 to 8) that open and close it (none: the end of the line), and its flags."""

    opening: bytes
    closing: bytes
    flags: Flag


@dataclass(frozen=True)
class Syntax:
    """The comments, strings and keywords of one language.

    Attributes:
        languages: its names in `documents.language`.
        regions: comments and strings; of several that fit, the one with the longest opening bytes opens.
        keywords: words that are no identifiers, separated by spaces.
        prefixes: rules of its family.
        word_byte: an ASCII byte beside letters, digits and `_` that identifiers may have.
        begins_in: index of the region that a file begins in, or -1 for code.
    """

    languages: tuple[str, ...]
    regions: tuple[Region, ...]
    keywords: str
    prefixes: QuoteRules = QuoteRules.NONE
    word_byte: str = "_"
    begins_in: int = -1


_STRING: Final = Flag.REGION | Flag.ESCAPES
_SHORT: Final = _STRING | Flag.ONE_LINE
_RAW: Final = Flag.REGION
_NOTE: Final = Flag.REGION | Flag.COMMENT
_SLASHES: Final = Region(b"//", b"", _NOTE | Flag.ONE_LINE)
_HASH: Final = Region(b"#", b"", _NOTE | Flag.ONE_LINE)
_BLOCK: Final = Region(b"/*", b"*/", _NOTE)
_NESTED: Final = Region(b"/*", b"*/", _NOTE | Flag.NESTED)
_DOUBLE: Final = Region(b'"', b'"', _SHORT)
_SINGLE: Final = Region(b"'", b"'", _SHORT)
_C_NOTES: Final = (Region(b"//", b"", _NOTE | Flag.ONE_LINE | Flag.CONTINUES), _BLOCK)

_C_WORDS: Final = """auto break case char const continue default do double else enum extern float for goto if inline int
    long register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    _Alignas _Alignof _Atomic _Bool _Complex _Generic _Imaginary _Noreturn _Static_assert _Thread_local"""
_CPP_WORDS: Final = """alignas alignof and and_eq asm bitand bitor bool catch char8_t char16_t char32_t class co_await
    co_return co_yield compl concept const_cast consteval constexpr constinit decltype delete dynamic_cast explicit
    export false friend mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public
    reinterpret_cast requires static_assert static_cast template this thread_local throw true try typeid typename using
    virtual wchar_t xor xor_eq"""
_JAVASCRIPT_WORDS: Final = """async await break case catch class const continue debugger default delete do else enum
    export extends false finally for function if import in instanceof let new null return static super switch this throw
    true try typeof var void while with yield"""
_TYPESCRIPT_WORDS: Final = """abstract as boolean declare implements interface keyof number private protected public
    readonly string"""

SYNTAXES: Final[tuple[Syntax, ...]] = (
    Syntax(
        ("Python", "Cython"),
        (_HASH, _DOUBLE, _SINGLE, Region(b'"""', b'"""', _STRING), Region(b"'''", b"'''", _STRING)),
        """False None True and as assert async await break class continue def del elif else except finally for from
        global if import in is lambda nonlocal not or pass raise return try while with yield""",
        prefixes=QuoteRules.PYTHON,
    ),
    Syntax(
        ("JavaScript",),
        (_SLASHES, _BLOCK, _DOUBLE, _SINGLE, Region(b"`", b"`", _STRING | Flag.DOLLAR_BRACE)),
        _JAVASCRIPT_WORDS,
        prefixes=QuoteRules.REGEX,
        word_byte="$",
    ),
    Syntax(
        ("TypeScript", "TSX"),
        (_SLASHES, _BLOCK, _DOUBLE, _SINGLE, Region(b"`", b"`", _STRING | Flag.DOLLAR_BRACE)),
        _JAVASCRIPT_WORDS + " " + _TYPESCRIPT_WORDS,
        prefixes=QuoteRules.REGEX,
        word_byte="$",
    ),
    Syntax(
        ("Java",),
        (_SLASHES, _BLOCK, _DOUBLE, _SINGLE, Region(b'"""', b'"""', _STRING)),
        """abstract assert boolean break byte case catch char class const continue default do double else enum extends
        false final finally float for goto if implements import instanceof int interface long native new null package
        private protected public return short static strictfp super switch synchronized this throw throws transient true
        try void volatile while""",
        word_byte="$",
    ),
    Syntax(
        ("Go",),
        (_SLASHES, _BLOCK, _DOUBLE, _SINGLE, Region(b"`", b"`", _RAW)),
        """break case chan const continue default defer else fallthrough false for func go goto if import interface iota
        map nil package range return select struct switch true type var""",
    ),
    Syntax(
        ("Rust",),
        (_SLASHES, _NESTED, Region(b'"', b'"', _STRING)),
        """as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod
        move mut pub ref return self Self static struct super trait true type unsafe use where while""",
        prefixes=QuoteRules.RUST,
    ),
    Syntax(("C",), (*_C_NOTES, _DOUBLE, _SINGLE), _C_WORDS, prefixes=QuoteRules.C | QuoteRules.C_NUMBERS),
    Syntax(
        ("C++", "Cuda"),
        (*_C_NOTES, _DOUBLE, _SINGLE),
        _C_WORDS + " " + _CPP_WORDS,
        prefixes=QuoteRules.C | QuoteRules.C_NUMBERS,
    ),
    Syntax(
        ("Kotlin",),
        (
            _SLASHES,
            _NESTED,
            Region(b'"', b'"', _SHORT | Flag.DOLLAR_BRACE | Flag.DOLLAR_NAME),
            Region(b'"""', b'"""', _RAW | Flag.DOLLAR_BRACE | Flag.DOLLAR_NAME),
            _SINGLE,
        ),
        """abstract annotation as break by catch class companion const constructor continue crossinline data do else
        enum external false final finally for fun if import in infix init inline inner interface internal is lateinit
        noinline null object open operator out override package private protected public reified return sealed super
        suspend tailrec this throw true try typealias typeof val var vararg when where while""",
    ),
    Syntax(
        ("C#",),
        (
            _SLASHES,
            _BLOCK,
            _DOUBLE,
            _SINGLE,
            Region(b'"""', b'"""', _RAW),
            Region(b'@"', b'"', _RAW | Flag.DOUBLED),
            Region(b'$"', b'"', _SHORT | Flag.BRACE),
            Region(b'$@"', b'"', _RAW | Flag.DOUBLED | Flag.BRACE),
            Region(b'@$"', b'"', _RAW | Flag.DOUBLED | Flag.BRACE),
        ),
        """abstract as async await base bool break byte case catch char checked class const continue decimal default
        delegate do double else enum event explicit extern false finally fixed float for foreach get goto if implicit in
        int interface internal is lock long namespace new null object operator out override params private protected
        public readonly ref return sbyte sealed set short sizeof stackalloc static string struct switch this throw true
        try typeof uint ulong unchecked unsafe ushort using var virtual void volatile while yield""",
    ),
    Syntax(
        ("Ruby",),
        (
            _HASH,
            Region(b"=begin", b"\n=end", _NOTE | Flag.LINE_START),
            Region(b'"', b'"', _STRING | Flag.HASH_BRACE),
            Region(b"'", b"'", _STRING),
            Region(b"`", b"`", _STRING | Flag.HASH_BRACE),
        ),
        """BEGIN END alias and begin break case class def defined do else elsif end ensure false for if in module next
        nil not or redo rescue retry return self super then true undef unless until when while yield""",
        prefixes=QuoteRules.REGEX,
    ),
    Syntax(
        ("PHP",),
        (
            Region(b"?>", b"<?", _NOTE),
            _SLASHES,
            _HASH,
            _BLOCK,
            Region(b'"', b'"', _STRING | Flag.DOLLAR_NAME),
            Region(b"'", b"'", _STRING),
        ),
        """abstract and array as break callable case catch class clone const continue declare default do echo else
        elseif empty enddeclare endfor endforeach endif endswitch endwhile extends false final finally fn for foreach
        function global goto if implements include include_once instanceof insteadof interface isset list match
        namespace new null or php print private protected public readonly require require_once return static switch
        throw trait true try unset use var while xor yield""",
        begins_in=0,
    ),
    Syntax(
        ("Shell",),
        (
            Region(b"#", b"", _NOTE | Flag.ONE_LINE | Flag.AFTER_SPACE),
            Region(b'"', b'"', _STRING | Flag.DOLLAR_NAME | Flag.DOLLAR_BRACE),
            Region(b"'", b"'", _RAW),
        ),
        """case do done elif else esac export fi for function if in local readonly return select then time until
        while""",
    ),
)


class SyntaxTables(NamedTuple):
    """The syntaxes of L languages with R regions, as arrays for the compiled lexer.

    Attributes:
        actions: (L, 256) uint8, what a byte of code may begin: one of the constants below.
        keywords: (L, 512) uint64, hashes of keywords in an open-addressing table by their top 9 bits; 0 is free.
        word_bytes: (L,) uint64, the language's `word_byte` eight times over.
        prefixes: (L,) int64, `QuoteRules`.
        begins_in: (L,) int64, region that a file begins in, or -1.
        first_region: (L, 257) int64; regions that byte b may open are first_region[b] to first_region[b + 1].
        regions: (R, 5) uint64: opening bytes, mask of those that count, closing bytes, their mask, `Flag`.
    """

    actions: UInt8Array
    keywords: UInt64Array
    word_bytes: UInt64Array
    prefixes: Int64Array
    begins_in: Int64Array
    first_region: Int64Array
    regions: UInt64Array


SPACE: Final = 0
NAME: Final = 1
WIDE: Final = 2
DIGIT: Final = 3
REGION_START: Final = 4
OPEN: Final = 5
CLOSE: Final = 6
LINE_END: Final = 7
FORMAT_START: Final = 8
OPERATOR: Final = 9
"""What a byte of code may begin.

WIDE is a byte beyond ASCII, REGION_START one that may open a region. FORMAT_START is `:` or `!`, which end code inside
of a string of `Flag.BRACE`; OPERATOR is all other punctuation.
"""

KEYWORD_SLOTS: Final = 512
REGION_WORDS: Final = 5


def byte_actions(syntax: Syntax) -> UInt8Array:
    """(256,) what each byte of code may begin."""
    actions = np.full(256, OPERATOR, dtype=np.uint8)
    actions[:33] = SPACE
    actions[[ord(byte) for byte in "([{"]] = OPEN
    actions[[ord(byte) for byte in ")]}"]] = CLOSE
    actions[[ord(byte) for byte in ":!"]] = FORMAT_START
    actions[ord("0") : ord("9") + 1] = DIGIT
    actions[[byte for byte in range(128) if chr(byte).isalpha() or chr(byte) in ("_", syntax.word_byte)]] = NAME
    actions[128:] = WIDE
    actions[ord("\n")] = LINE_END
    actions[[region.opening[0] for region in syntax.regions]] = REGION_START
    if syntax.prefixes & QuoteRules.RUST:
        actions[ord("'")] = REGION_START
    if syntax.prefixes & QuoteRules.REGEX:
        actions[ord("/")] = REGION_START
    return actions


def packed(pattern: bytes) -> tuple[int, int]:
    """Up to 8 bytes as a little-endian number, and the mask of these bytes: b"//" -> (0x2F2F, 0xFFFF)."""
    return int.from_bytes(pattern, "little"), (1 << 8 * len(pattern)) - 1
