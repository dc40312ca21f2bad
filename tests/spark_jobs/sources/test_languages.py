"""The name and the content of a file say its kind, language and media type."""

from __future__ import annotations

import hashlib
import re

import pytest

from spark_jobs.sources import linguist
from spark_jobs.sources.languages import LOCK_FILE, Language, is_manifest, language_of, language_of_text
from spark_jobs.sources.reading.content_types import ContentType

SAMPLES = [
    ("net.h", "/* -*- Mode: C++; tab-width: 4; indent-tabs-mode: nil -*- */\nint a;\n", "C++"),
    ("a.m", "@interface Net : NSObject\n@end\n", "Objective-C"),
    ("a.m", "% sums\nfunction y = f(x)\n", "MATLAB"),
    ("a.m", ":- module net.\n", "Mercury"),
    ("a.ts", '<?xml version="1.0"?>\n<!DOCTYPE TS>\n<TS version="2.1" language="de"></TS>\n', "XML"),
    ("a.ts", "let a: number = 1\n", "TypeScript"),
    ("a.tsx", "let a = <b/>\n", "TSX"),
    ("a.pl", "use strict;\n", "Perl"),
    ("a.pl", "parent(a, b) :- child(b, a).\n", "Prolog"),
    ("a.pl", "use v6;\n", "Raku"),
    ("a.f", "      program net\n      end\n", "Fortran"),
    ("a.f", ": net ( -- ) ;\n", "Forth"),
    ("a.h", "@interface Net : NSObject\n@end\n", "Objective-C"),
    ("a.h", "namespace net {\nclass A;\n}\n#include <vector>\n", "C++"),
    ("a.h", "int net(void);\n", "C"),
    ("a.r", "net <- function(x) x\n", "R"),
    ("a.r", 'REBOL [title: "net"]\n', "Rebol"),
    ("a.cls", "\\NeedsTeXFormat{LaTeX2e}\n\\ProvidesClass{net}\n", "TeX"),
    ("a.cls", 'VERSION 1.0 CLASS\nAttribute VB_Name = "Net"\n', "VBA"),
    ("a.v", "module net (input a);\nendmodule\n", "Verilog"),
    ("a.v", "Require Import Arith.\nTheorem net : True.\nProof.\n", "Rocq Prover"),
    ("a.v", "fn main() {\n\tprintln('net')\n}\n", "V"),
    ("a.d", "module net;\nimport std.stdio;\n", "D"),
    ("a.d", "net.o: net.c \\\n net.h\n", "Makefile"),
    ("a.cs", "using System;\nnamespace Net { }\n", "C#"),
    ("a.fs", "module Net\nlet x = 1\n", "F#"),
    ("a.fs", "#version 330\nprecision highp float;\nvoid main() {}\n", "GLSL"),
    ("a.sql", "CREATE TABLE net (id int);\n", "SQL"),
    ("a.sql", "CREATE FUNCTION f() RETURNS int AS $$ BEGIN END $$ LANGUAGE plpgsql;\n", "PLpgSQL"),
    ("a.md", "# Net\n", "Markdown"),
    ("a.md", '(define_insn "net"\n', "GCC Machine Description"),
    ("a.inc", "<?php\necho 1;\n", "PHP"),
    ("a.asm", "mov ax, 1\n", "Assembly"),
    ("a.t", "use strict;\nuse warnings;\n", "Perl"),
    ("a.lisp", "(defun net (x) x)\n", "Common Lisp"),
    ("a.gd", "extends Node\nfunc net():\n", "GDScript"),
    ("a.hh", "<?hh\nfunction f(): int { return 1; }\n", "Hack"),
    ("a.rs", "pub fn net() {}\n", "Rust"),
    ("a.rs", "#pragma version(1)\n#pragma rs java_package_name(net)\n", "RenderScript"),
    ("a.php", "<?php\necho 1;\n", "PHP"),
    ("a.php", "<?hh\nfunction f(): int { return 1; }\n", "Hack"),
    ("a.es", "'use strict';\nexport const a = 1;\n", "JavaScript"),
    ("a.mod", "MODULE Net;\nEND Net.\n", "Modula-2"),
    ("a.p", "program net;\nbegin\nend.\n", "OpenEdge ABL"),
    ("a.st", "Object subclass: #Net\n! Net methodsFor: 'x' !\n", "Smalltalk"),
    ("a.sol", "pragma solidity ^0.8.0;\ncontract Net {}\n", "Solidity"),
    ("a.x", "program NET { version V { int F(void) = 1; } = 1; } = 1;\nstruct a { int b; };\n", "RPC"),
    ("a.ml", "let rec net x = match x with _ -> ()\n", "OCaml"),
    ("a.json", '{"openapi": "3.1.0"}\n', "OASv3-json"),
    ("a.yml", "swagger: '2.0'\n", "OASv2-yaml"),
    ("a.1", '.TH NET 1 "2026"\n.SH NAME\nnet\n', "Roff Manpage"),
    ("a.html", "<emu-alg>x</emu-alg>\n", "Ecmarkup"),
    ("a.ex", "defmodule Net do\nend\n", "Elixir"),
    ("net", "#!/usr/bin/env python3\n", "Python"),
    ("net", '#!/bin/sh\nexec tclsh "$0" "$@"\n', "Tcl"),
    ("net.cgi", "#!/usr/bin/perl\n", "Perl"),
    ("net.txt", "-*- mode: ruby -*-\n", "Ruby"),
    ("net.h", "/* -*- C++ -*- */\nint a;\n", "C++"),
    ("net", "# vim: set ft=make :\n", "Makefile"),
    ("net.conf", '<?xml version="1.0"?>\n<a/>\n', "XML"),
    ("Jenkinsfile", "node {}\n", "Groovy"),
    ("Dockerfile", "FROM x\n", "Dockerfile"),
    ("CMakeLists.txt", "\n", "CMake"),
    ("go.mod", "module x\n", "Go Module"),
    ("a.dart", "\n", "Dart"),
    ("a.zig", "\n", "Zig"),
    ("a.tf", "\n", "HCL"),
    ("a.vue", "\n", "Vue"),
    ("a.groovy", "\n", "Groovy"),
    ("a.nix", "\n", "Nix"),
    ("a.inc", "; net\n  mov ax, [bx]\n", "Assembly"),
    ("a.q", "SELECT a FROM b WHERE c;\n", "HiveQL"),
    ("a.bb", 'DESCRIPTION = "x"\ninherit net\n', "BitBake"),
]


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("a/b.py", Language("code", "Python", "text/x-python")),
        ("a/B.PYI", Language("code", "Python", "text/x-python")),
        ("x.pyx", Language("code", "Cython", "text/x-cython")),
        ("x.h", Language("code", "C", "text/x-csrc")),
        ("x.v", Language("code", "Verilog", "text/x-verilog")),
        ("x.rs", Language("code", "Rust", "text/x-rustsrc")),
        ("Makefile", Language("code", "Makefile", "text/x-makefile")),
        ("a/CMakeLists.txt", Language("code", "CMake", "text/x-cmake")),
        ("x.html", Language("markup", "HTML", "text/html")),
        ("x.svg", Language("markup", "SVG", "image/svg+xml")),
        ("schema.sql", Language("code", "SQL", "application/sql")),
        ("x.proto", Language("code", "Protocol Buffer", "text/x-protobuf")),
        ("go.mod", Language("data", "Go Module", "text/plain")),
        ("a/go.work", Language("data", "Go Workspace", "text/plain")),
        ("build.gradle", Language("data", "Gradle", "text/plain")),
        ("build.gradle.kts", Language("code", "Gradle Kotlin DSL", "text/plain")),
        ("pom.xml", Language("markup", "Maven POM", "application/xml")),
        ("x.cts", Language("code", "TypeScript", "application/typescript")),
        ("x.tsx", Language("code", "TSX", "text/typescript-jsx")),
        ("guide.mdx", Language("prose", None, "text/markdown")),
        ("x.json", Language("data", "JSON", "application/json")),
        ("x.ipynb", Language("data", "Jupyter Notebook", "application/json")),
        ("x.csv", Language("data", "CSV", "text/csv")),
        ("README.md", Language("prose", None, "text/markdown")),
        ("CHANGES.rst", Language("prose", None, "text/x-rst")),
        ("notes.txt", Language("prose", None, "text/plain")),
        ("LICENSE", Language("prose", None, "text/plain")),
        ("x.so", None),
        ("py", None),
        ("a.py/x", None),
    ],
)
def test_language_follows_the_name(path: str, language: Language | None) -> None:
    """By whole name first, then by extension in any case of letters; a directory's name says nothing."""
    assert language_of(path) == language


def test_every_name_of_linguist_is_known() -> None:
    """Extensions, file names and interpreters, each with its language, are those of the list of 833 languages.

    The digest is of `linguist-languages` 9.5.0 as Node prints it, not as `setup/linguist.py` reads it.
    """
    known = linguist.tables()
    places = {"extensions": known.extensions, "filenames": known.filenames, "interpreters": known.interpreters}
    stated = sorted(
        f"{name}\t{known.types[name]}\t{place}\t{value}"
        for place, values in places.items()
        for value, names in values.items()
        for name in names
    )
    assert len(known.types) == 833
    assert hashlib.sha256("\n".join(stated).encode()).hexdigest() == _NAMES_SHA256
    for extension, names in known.extensions.items():
        assert set(linguist.by_name(f"a/net{extension.upper()}")) == set(names)
    for filename, names in known.filenames.items():
        assert linguist.by_name(f"a/{filename}") == names
    for interpreter, names in known.interpreters.items():
        assert set(linguist.by_content("net", f"#!/opt/{interpreter} -x\n".encode())) == set(names)


_NAMES_SHA256 = "2cb5d6f5c4aa2df564f1f527c1c89d01113133e830e8eb97c0ea13e937dac4b0"


@pytest.mark.parametrize(("path", "text", "language"), SAMPLES)
def test_language_follows_the_content(path: str, text: str, language: str) -> None:
    """First lines, modelines and rules about the content of an extension decide, as go-enry 2.9.6 does."""
    assert linguist.by_content(path, text.encode()) == (language,)


def test_rules_take_any_bytes() -> None:
    """Every pattern is one for RE2; languages that rules name are known; blanks by the thousand are no trouble."""
    known = linguist.tables()
    for extension, rules in known.rules.items():
        assert {name for names, _ in rules for name in names} <= known.types.keys() | {"Hosts File"}
        for data in (b"", b"\xff\xfe\0", b" \n" * 40_000, b"(" * 60_000):
            linguist.by_content(f"net{extension}", data)


def test_a_model_decides_where_rules_leave_several() -> None:
    """Among the languages that are left, and nowhere else."""
    perl, prolog = language_of_text("a.pl", b"x\n"), Language("code", "Prolog", "text/plain")
    assert perl is not None and perl.name == "Perl"
    assert language_of_text("a.pl", b"x\n", lambda _: prolog) == prolog
    assert language_of_text("a.pl", b"x\n", lambda _: language_of("a.zig")) == perl
    assert language_of_text("a.pl", b"use strict;\n", lambda _: prolog) == perl


def test_what_magika_names_is_the_language_of_that_name() -> None:
    """Not the first language of an extension that several share."""
    for label, extension, name in (("matlab", "m", "MATLAB"), ("objectivec", "m", "Objective-C"), ("cs", "cs", "C#")):
        language = ContentType(label, 1.0, (extension,), "1", "code").language
        assert language is not None and language.name == name


@pytest.mark.parametrize(
    "path",
    """go.mod go.work Cargo.toml package.json tsconfig.json tsconfig.base.json jsconfig.json pom.xml build.gradle
    build.gradle.kts settings.gradle settings.gradle.kts pyproject.toml setup.cfg compile_commands.json""".split(),  # noqa: SIM905
)
def test_manifests_are_known_by_name_and_land(path: str) -> None:
    """In any directory, and as the id of a record; every one has a kind, so it is read."""
    assert is_manifest(path) and is_manifest(f"a/b/{path}") and is_manifest(f"part-0.jsonl#{path}")
    assert not is_manifest(f"{path}.txt") and not is_manifest(f"my-{path}")
    assert language_of(path) is not None


LOCK_FILES = """package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb deno.lock Cargo.lock
    poetry.lock uv.lock pdm.lock pylock.toml pylock.dev.toml Pipfile.lock conda-lock.yml composer.lock Gemfile.lock
    gems.locked go.sum go.work.sum flake.lock packages.lock.json gradle.lockfile mix.lock rebar.lock pubspec.lock
    Podfile.lock Package.resolved Cartfile.resolved renv.lock MODULE.bazel.lock .terraform.lock.hcl Chart.lock
    stack.yaml.lock cabal.project.freeze dub.selections.json .package-lock.json"""
NO_LOCK_FILES = "lock.py file-lock.c spinlock.json block.json src/lock/a.json lock.md go.summary a.lock/b.c"


def test_lock_files_are_known_by_name() -> None:
    """In any directory and as the id of a record; code and prose about locks is none."""
    for path in LOCK_FILES.split():
        assert all(re.search(LOCK_FILE, one) for one in (path, f"a/b/{path}", f"part-0.jsonl#{path}")), path
    assert not [path for path in NO_LOCK_FILES.split() if re.search(LOCK_FILE, path)]
