"""Definitions: what other files can name, one small file per language."""

from __future__ import annotations

import pytest

from spark_jobs.code.syntax.definitions import GRAMMARS, read_definitions
from spark_jobs.lexing.blank import BLANKED_LANGUAGES
from spark_jobs.sources.languages import language_of

_SAMPLES = {
    "Python": (
        "LIMIT: int = 3\nif x:\n    def f(a, b=1): c = 2\nelse:\n    from y import f\n@deco\nclass A:\n"
        "    def m(self): pass\n"
        "try:\n    import z\nexcept E as error:\n    class B: pass\nfor i, j in k: pass\n",
        "LIMIT f A B",
        "a b c self error i j",
    ),
    "JavaScript": (
        "export const a = 1; function* g() { const local = 1; } export default class K { m() {} }\nlet h = (p) => p\n",
        "a g K h",
        "local p",
    ),
    "TypeScript": (
        "export interface I {} type T = 1; export enum E { X } declare const d: number; abstract class A {}\n"
        "export function f(p: T) { let q = 1 }\n",
        "I T E A f",
        "d p q",
    ),
    "TSX": ("export const A = (p: T) => <b>{p}</b>; interface I {}\nfunction f() { let q = <A/> }\n", "A I f", "p q"),
    "Go": (
        "package p\nconst (\n A = 1\n)\nvar b, c = 1, 2\ntype T struct { F int }\nfunc f(x T) { y := 1 }\n"
        "func (t T) M() {}\n",
        "A b c T f",
        "x y t",
    ),
    "Java": (
        "package p; class A { class In {} void m(int x) { int y; } } @interface B {} record R(int z) {}",
        "A B R",
        "x y z",
    ),
    "Rust": (
        "struct S; enum E { V } trait T { fn m(a: u8); } const C: u8 = 1; macro_rules! mac { () => {} } mod "
        "i { fn g() { let x = 1; } }",
        "S E T C mac g",
        "a x",
    ),
    "C": (
        "struct A { int x; };\nstruct B;\ntypedef struct A *P, T;\n"
        "static int *f(int *a) { int *b, c; return a; }\nint q(int d);\n"
        "#define M 1\n#define N(x) x\nenum L { O };\nint n = 1;\nextern int e;\n",
        "A T f M N L O n",
        "a b c d",
    ),
    "C++": (
        "namespace n { class A { void m(); }; }\nvoid A::m() {}\nusing U = int;\n"
        "template <class T> T t(T x) { return x; }\n",
        "A U t",
        "x",
    ),
    "C#": (
        "namespace N { class C { void M(int a) { var b = 1; } } interface I {} struct S {} enum E {} record "
        "R(); delegate void D(); }",
        "C I S E R D",
        "a b",
    ),
    "Ruby": (
        "module A\n class B < X\n  def m(a); c = 1; end\n  F = 1\n end\nend\nclass X::Y; end\ndef top; end\n",
        "A B F Y top",
        "a c",
    ),
    "PHP": (
        "<?php namespace N; class B { function m() {} } interface I {} trait T {} function f() {} const C = "
        "1; enum E {}",
        "B I T f C E",
        "",
    ),
    "Shell": ("f() { x=1; }\nfunction g { :; }\nreadonly A=1\nB=2\nfor i in 1; do :; done\n", "f g A B", "x i"),
    "Scala": (
        "package a\nclass A { def m(p: Int) = { val q = 1 } }\nobject B\ntrait C\ntype F = Int\ndef g = 1\nval h = 2\n",
        "A B C F g h",
        "p q",
    ),
    "Kotlin": (
        "package a\nclass A { fun m() { val q = 1 } }\nobject B\nfun f() {}\nval x = 1\ntypealias T = Int\n",
        "A B f x T",
        "q",
    ),
    "Swift": (
        "class A { func m(p: Int) { let q = 1 } }\nstruct B {}\nprotocol C {}\nfunc f() {}\nlet x = 1\n"
        "typealias T = Int\n",
        "A B C f x T",
        "p q",
    ),
    "Lua": ("local M = {}\nfunction M.f(a) end\nfunction M:k() end\nlocal function g() end\ny = 2\n", "f k g y", "a"),
}


@pytest.mark.parametrize("language", sorted(GRAMMARS))
def test_a_file_gives_others_what_they_can_name(language: str) -> None:
    """Top-level functions, classes, types, constants and macros, not methods and not locals; the rest is bound."""
    source, defined, bound = _SAMPLES[language]
    found = read_definitions(language, source.encode())
    assert (set(found.defined), set(found.bound)) == (set(defined.split()), set(bound.split()))
    assert list(found.defined) == sorted(set(found.defined))


@pytest.mark.parametrize("language", sorted(GRAMMARS.keys() - {"Kotlin"}))  # which gives the whole file up
def test_broken_sources_have_definitions_too(language: str) -> None:
    """A tree with errors is used; nothing raises, whatever the bytes are."""
    source = _SAMPLES[language][0].encode()
    assert set(read_definitions(language, source + b"\n ) \xff\n").defined) & set(_SAMPLES[language][1].split())
    for odd in (b"", b"!", b"\xff\xfe\x00", source[: len(source) // 2]):
        read_definitions(language, odd)


def test_every_grammar_is_of_a_language_that_ingest_names_and_blanking_knows() -> None:
    """A misspelt language would silently have no symbols."""
    named = {language.name for extension in _EXTENSIONS if (language := language_of(f"a.{extension}"))}
    assert set(GRAMMARS) == named
    assert set(GRAMMARS) <= BLANKED_LANGUAGES


_EXTENSIONS = [
    "py",
    "js",
    "ts",
    "tsx",
    "go",
    "java",
    "rs",
    "c",
    "cpp",
    "cs",
    "rb",
    "php",
    "sh",
    "scala",
    "kt",
    "swift",
    "lua",
]
