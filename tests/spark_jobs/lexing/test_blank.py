"""Blanking: comments and strings go, everything else stays where it was."""

from __future__ import annotations

import bisect
import heapq
import io
import textwrap
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.lexing.blank import BLANKED_LANGUAGES, blank, blanking_tables, keywords_of


@pytest.mark.parametrize(
    ("language", "source", "words"),
    [
        ("Rust", 'let a = "x // y"; call("//"); /* a /* b */ c */ end', "let a call end"),
        ("Rust", "let r = r#\"a\"b\"#; let c = '\"'; fn f<'a>(q: &'a str) {}", "let r r let c fn f a q a str"),
        ("Java", 'String s = """\n a " b\n"""; char c = \'"\'; // it\'s\n end', "String s char c end"),
        ("Go", 'x := `a // "b`; y := "q\\"w" // c\nend', "x y end"),
        ("Python", 'x = f"a {b!r:>{w}} c" + r\'d\' # e\n"""doc\n"line"""\nend', "x f b w r end"),
        ("JavaScript", 'return /a"b/.test(x) ? `t ${u + `v${w}`} k` : a / b / c; // "', "return test x u w a b c"),
        ("Kotlin", 'val a = "x ${b + "c"} $d e"', "val a b d"),
        ("C++", "int a = 1'000; char c = '\\''; auto r = R\"x(a\"b)x\"; end", "int a 1 000 char c auto r R x x end"),
        ("C", "int a; // goes on \\\n still\nend", "int a end"),
        ("PHP", 'it\'s <?php echo "a $b c"; # q\n end', "php echo b end"),
        ("Ruby", 'x = "a #{b} c" # d\n=begin\nzz\n=end\nlast', "x b last"),
        ("Ruby", "=begin\nzz\n=end\nlast", "last"),
        ("Shell", "# a\nb # c\nd", "b d"),
        ("Lua", "x = [[a]] --[[ b\n c ]] d -- e\nend", "x d end"),
    ],
)
def test_code_stays_and_the_rest_goes(language: str, source: str, words: str) -> None:
    """Comments, strings and what only looks like them, one trap of each language."""
    left = blank(source.encode(), language).decode()
    only_words = "".join(character if character.isalnum() or character == "_" else " " for character in left)
    assert only_words.split() == words.split()


@given(st.sampled_from(sorted(BLANKED_LANGUAGES)), st.text(alphabet="ab\"'`/*#\\{}$rR()[]\n<>?!-é 1", max_size=60))
def test_every_byte_is_the_sources_own_or_a_space(language: str, text: str) -> None:
    """Positions hold, line ends stay, and no text is too odd."""
    source = text.encode()
    left = blank(source, language)
    assert len(left) == len(source)
    assert all(byte in (own, 32) and (own != 10 or byte == 10) for byte, own in zip(left, source, strict=True))


def test_python_agrees_with_its_own_tokenizer() -> None:
    """The names that are left of real modules are those that the standard library's tokenizer finds."""
    for module in (bisect, heapq, textwrap):
        with open(str(module.__file__), encoding="utf-8") as file:
            source = file.read()
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        expected = {token.string for token in tokens if token.type == tokenize.NAME}
        left = blank(source.encode(), "Python").decode()
        found = set("".join(c if c.isidentifier() or c.isdigit() else " " for c in left).split())
        prefixes = {"r", "f", "b", "rb", "br", "fr", "rf", "u"}
        assert {word for word in found if word.isidentifier()} - prefixes == expected - prefixes


def test_other_languages_come_back_as_they_are() -> None:
    """What is not known is not touched."""
    assert blank(b'a "b" // c', "COBOL") == b'a "b" // c'
    assert blank(b"", "Go") == b""


def test_keywords_and_tables_are_those_of_the_language() -> None:
    """Keywords come from the lexers' tables; a language without a lexer of its own has none."""
    assert "func" in keywords_of("Go") and "def" not in keywords_of("Go")
    assert keywords_of("Lua") == frozenset()
    assert blanking_tables("PHP")[0].begins_in[0] >= 0
