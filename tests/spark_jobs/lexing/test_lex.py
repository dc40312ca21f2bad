"""The lexers of languages: worked examples, and Pygments as a foreign one on real files."""

from __future__ import annotations

import re
import sysconfig
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Name, String

from spark_jobs.dedup.bags.token_counting import lex_text
from spark_jobs.lexing.language_syntax import SYNTAXES
from spark_jobs.lexing.lexers import LEXERS, syntax_tables, word_hash
from spark_jobs.lexing.machine import IDENTIFIER, KEYWORD, MARK, NUMBER, QUOTED, TEXT, TokenBlock
from spark_jobs.lexing.word_characters import word_tables
from tests.tiers import sampled

MARKS = {IDENTIFIER: "", NUMBER: "#", TEXT: "~", KEYWORD: "!", MARK: "", QUOTED: ""}
SITE = Path(sysconfig.get_paths()["purelib"])


def tokens_of(text: bytes, lexer: int, structure: bool = False) -> TokenBlock:
    """Every token of a text in order."""
    found: TokenBlock = lex_text(np.frombuffer(text, np.uint8), lexer, structure, syntax_tables(), word_tables())
    return found


def shown(text: str, language: str, structure: bool = False) -> str:
    """Tokens of a text in order: numbers with `#`, words of comments and strings with `~`, keywords with `!`."""
    data, found = text.encode(), tokens_of(text.encode(), LEXERS.index(language), structure)
    spans = zip(found.starts.tolist(), found.ends.tolist(), found.classes.tolist(), strict=True)
    return " ".join(MARKS[kind] + data[start:end].decode() for start, end, kind in spans)


EXAMPLES = [
    ("Python", "def f(x): return x1 + 0x1F - 1.5e-3 # a Note", "f x x1 #0x1F #1.5e-3 ~a ~Note"),
    ("Python", 'a = \'it\\\'s\' + """two\nlines " x""" + b', "a ~it ~s ~two ~lines ~x b"),
    ("Python", "a = 'open\nb = 1", "a ~open b #1"),
    ("Python", "f'{a!r:>{width}} {{no}} {b[\"k\"]:x} {c != d}' + e", "a ~r width ~no b ~k ~x c d e"),
    ("Python", 'f"{a:>8}" f"{b\nc = 1', "a ~8 b c #1"),
    ("Python", "rb'\\bword' Rb''' q ''' rbx'y'", "~word ~q rbx ~y"),
    ("Python", "größe = 漢字 + x", "größe 漢字 x"),
    ("Python", "# 漢字仮名 x", "~漢字 ~字仮 ~仮名 ~x"),
    ("JavaScript", "let a = b / c / d; x = /re[/]g\\/x/gi.test(y)", "a b c d x ~re ~g ~x test y"),
    ("JavaScript", "`a ${b + `c ${d}` } e` + $f", "~a b ~c d ~e $f"),
    ("JavaScript", 's = \'open\nt = "x\\\ny"', "s ~open t ~x ~y"),
    ("TypeScript", "const a: Map<string, T> = f(x as U)", "a Map T f x U"),
    (
        "Java",
        'char c = \'"\'; /* a * b */ String s = """\n q " r\n"""; @Override int x;',
        "c ~a ~b String s ~q ~r Override x",
    ),
    ("Go", "a := `raw \\` + 'x' // c\nvar b = 1_000", "a ~raw ~x ~c b #1_000"),
    (
        "Rust",
        "fn f<'a>(x: &'a str) { 'b' ; '\\'' ; r#\"q \"w\"# ; b'z' } /* a /* b */ c */ d",
        "f a x a str ~b ~q ~w ~z ~a ~b ~c d",
    ),
    ("Rust", "let x = 1..2; t.0; r#type; 3.0f64", "x #1 #2 t #0 #3.0f64"),
    (
        "C",
        "#include <stdio.h>\nint a = L'x' + 1.f + 0x1p-3; // c \\\nd\ne",
        "include stdio h a ~x #1.f #0x1p-3 ~c ~d e",
    ),
    ("C++", 'auto s = R"(a " b)" + u8R"x(c )" d)x"; int n = 1\'000;', "s ~a ~b ~c ~d n #1'000"),
    ("Kotlin", 'val a = "x $b ${c + d} e" + """q \\"""', "a ~x b c d ~e ~q"),
    ("C#", 'var a = @"x\\" + $"y {b} {{z}}" + @"q""r";', "a ~x ~y b ~z ~q ~r"),
    ("Ruby", '=begin\nx\n=end\na = "b #{c} d" # e', "~x a ~b c ~d ~e"),
    ("PHP", '<p>Text</p><?php $a = "b $c"; ?> more <?= $d', "~p ~Text ~p a ~b c ~more d"),
    ("Shell", 'echo "$a b" ${#c} # note\nif x; then', "echo a ~b c ~note x"),
    ("generic", "for Word in 漢字仮 # x", "~for ~Word ~in ~漢字 ~字仮 ~x"),
]


@pytest.mark.parametrize(("language", "text", "tokens"), EXAMPLES)
def test_languages_are_lexed_as_their_manuals_say(language: str, text: str, tokens: str) -> None:
    """What is code, what is text, and where both end."""
    assert shown(text, language) == tokens


@pytest.mark.parametrize(("language", "text", "tokens"), EXAMPLES)
def test_any_beginning_of_a_source_is_lexed_within_its_bytes(language: str, text: str, tokens: str) -> None:
    """A file cut anywhere, in the middle of a character too: every token but the last is as in the whole file."""
    data, lexer = text.encode(), LEXERS.index(language)
    for size in range(len(data)):
        found = tokens_of(data[:size], lexer)
        assert not len(found.ends) or found.ends.max() <= size


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("Python", "if a == f'b {c!r}': # d", "!if a = = ' ~b c ! ~r : ~d"),
        ("JavaScript", "x = a / b + /r/.y({ z: `q` })", "x = a / b + / ~r . y ( { z : ` ~q } )"),
        ("Java", 'int[] a = {1}; /* b */ s += """t""" + \'c\';', '!int [ ] a = { #1 } ; ~b s + = """ ~t + \' ~c ;'),
        ("Rust", 'let a: &\'b str = r#"c"#;', '!let a : & b str = r#" ~c ;'),
        ("C++", 'auto a = R"x(b)x" - L"c";', '!auto a = R"x( ~b - " ~c ;'),
        ("PHP", '<b>a</b><?php if ($c) { echo "d $e"; } ?> f', '~b ~a ~b !php !if ( $ c ) { !echo " ~d e ; } ~f'),
        ("prose", "if (a) b;", "~if ~a ~b"),
    ],
)
def test_structure_is_keywords_marks_and_beginnings_of_strings(language: str, text: str, tokens: str) -> None:
    """Where it is asked for; comments have none, prose neither."""
    assert shown(text, language, structure=True) == tokens


@pytest.mark.parametrize("language", LEXERS[2:])
def test_keywords_do_not_count(language: str) -> None:
    """No keyword of any language is a token of its code."""
    syntax = SYNTAXES[LEXERS.index(language) - 2]
    start = "<?php " if language == "PHP" else ""
    assert shown(start + syntax.keywords + " name", language) == "name"


def test_hashes_are_those_of_the_bytes() -> None:
    """In code as they are, in text lower-cased, whatever the length of the word."""
    words = ["a" * size + "É" * wide for size in range(20) for wide in range(3) if size + wide]
    found = tokens_of(" ".join(words).encode(), LEXERS.index("Go"))
    assert found.hashes.tolist() == [word_hash(word.encode()) for word in words]
    found = tokens_of(" ".join(words).upper().encode(), LEXERS.index("prose"))
    assert found.hashes.tolist() == [word_hash(word.lower().encode()) for word in words]


def disagreement(text: str, language: str, alias: str) -> tuple[int, int, int]:
    """Names that Pygments sees; those of them that we miss; identifiers that we see inside its comments and strings.

    Our keywords are left out: what one calls a keyword, the other may call a built-in name. So are the lines of C's
    preprocessor, whose names Pygments does not tell.
    """
    keywords = set(SYNTAXES[LEXERS.index(language) - 2].keywords.split())
    theirs: set[tuple[int, int]] = set()
    in_text = np.zeros(len(text) + 1, dtype=bool)
    for start, kind, value in get_lexer_by_name(alias, stripnl=False, ensurenl=False).get_tokens_unprocessed(text):
        if kind in Name:
            found = re.finditer(r"[^\W\d][\w$]*|\$[\w$]+", value)
            theirs |= {(start + one.start(), start + one.end()) for one in found if one.group() not in keywords}
        elif kind in String or (kind in Comment and not str(kind).startswith("Token.Comment.Preproc")):
            in_text[start : start + len(value)] = True
    tokens = tokens_of(text.encode(), LEXERS.index(language))
    names = tokens.classes == IDENTIFIER
    bounds = np.cumsum([0, *(len(character.encode()) for character in text)])
    starts = np.searchsorted(bounds, tokens.starts[names]).tolist()
    ours = set(zip(starts, np.searchsorted(bounds, tokens.ends[names]).tolist(), strict=True))
    return len(theirs), len(theirs - ours), sum(bool(in_text[start]) for start, _ in ours - theirs)


@sampled()
@pytest.mark.parametrize(
    ("language", "alias", "pattern", "files"),
    [
        ("Python", "python", "hypothesis/**/*.py", 40),
        ("C", "c", "numpy/**/include/**/*.h", 30),
        ("JavaScript", "javascript", "**/static/**/*.js", 12),
    ],
)
def test_identifiers_of_real_files_are_those_of_pygments(language: str, alias: str, pattern: str, files: int) -> None:
    """999 of 1,000 names at least, and as few identifiers inside of comments and strings."""
    names = missed = inside = 0
    small = (path for path in sorted(SITE.glob(pattern)) if path.stat().st_size < 60_000 and "min." not in path.name)
    for path in islice(small, files):
        text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
        counted = disagreement(text, language, alias)
        names, missed, inside = names + counted[0], missed + counted[1], inside + counted[2]
    if names < 2_000:
        pytest.skip(f"only {names} names of {language} are installed here")
    assert missed <= names / 1000
    assert inside <= names / 1000


SNIPPETS = {
    ("Java", "java"): """package a.b; import java.util.*;
/** Doc with it's apostrophe. */ public class Sample<T extends Comparable<T>> { // note "quote
  private static final Map<String, Integer> COUNTS = new HashMap<>();
  @Deprecated public T best(List<? extends T> values, char c) { String s = "a \\"b\\" " + 'x' + '\\'' + values.size();
    for (T value : values) { if (value.compareTo(first) > 0x1F) return value; } return null; } }""",
    ("Go", "go"): """package main
import ("fmt"; "strings")
type Server struct { Name string `json:"name"`; handlers map[string]func(w Writer) error }
// Run isn't "safe"
func (s *Server) Run(ctx Context, names ...string) (n int, err error) { defer s.mu.Unlock()
  for i, name := range names { fmt.Println(i, strings.ToUpper(name), 'a', '\\'', `raw\\`, s.handlers["x"]) }
  return len(names), nil }""",
    ("Rust", "rust"): """use std::{fmt, io::Read};
/* outer /* nested */ isn't code */
pub struct Parser<'a, R: Read> { reader: &'a mut R, buffer: Vec<u8> }
impl<'a, R: Read> fmt::Debug for Parser<'a, R> { fn next_byte(&mut self, quote: char) -> Option<u8> {
  let text = r#"raw "quoted" text"#; let c = '"'; let d = '\\'';
  match self.buffer.pop() { Some(b) => Some(b), None => other(text, c, d) } } }""",
    ("C++", "cpp"): """#include <vector>
namespace geo { template <typename T> class Grid : public Base<T> {
  public: explicit Grid(std::size_t width) : width_(width) {}
  // isn't "code
  auto find(const T& value) const -> std::optional<int> { const char* s = "a\\"b"; char q = '\\'';
  return cells_.at(index) + 1'000; }
  private: std::vector<T> cells_; }; }""",
    ("TypeScript", "typescript"): """import { Observable } from './observable';
/** It's a doc */ export class Store<State> implements Source { private items: Array<Item> = [];
  select(key: Key, compare = (first: Item, second: Item) => first === second): Observable { // don't
    const message = `got ${key.name} of ${this.items.length}`;
    return ratio / total / 2 ? pipe(message, /[/"']+/g) : nothing; } }""",
}


@pytest.mark.parametrize(("language", "alias"), list(SNIPPETS))
def test_identifiers_of_snippets_are_those_of_pygments(language: str, alias: str) -> None:
    """For languages whose sources no Python environment holds: not one name is missed, none is found in text."""
    names, missed, inside = disagreement(SNIPPETS[language, alias], language, alias)
    assert names > 15
    assert (missed, inside) == (0, 0)
