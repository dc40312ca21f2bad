"""Imports between JavaScript and TypeScript files: statements and names, trap by trap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.code.imports.javascript_imports import javascript_imports
from spark_jobs.code.imports.javascript_packages import matching, parse_json, read_project
from spark_jobs.code.imports.javascript_statements import INNER, LOADED, TYPE_ONLY, module_references
from tests.spark_jobs.code.made_repository import edges, repository_of, targets


def references(text: str) -> list[tuple[str, int]]:
    """Names of a text with their kinds."""
    data = text.encode()
    found = [[*module_references(data, language)] for language in ("JavaScript", "TypeScript")]
    assert found[0] == found[1]
    return [(data[begin:end].decode(), kind) for _, begin, end, kind in found[0]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('import a from "x"', [("x", LOADED)]),
        ("import 'x'", [("x", LOADED)]),
        ('import a, { b as c, default as d } from "x";import * as e from\n"y"', [("x", LOADED), ("y", LOADED)]),
        ('import {\n  a, // from "no"\n  b /* from "no" */\n} from "x"', [("x", LOADED)]),
        ('import { "odd name" as a } from "x"', [("x", LOADED)]),
        ('import type { A } from "x"', [("x", TYPE_ONLY)]),
        ('import type A from "x"', [("x", TYPE_ONLY)]),
        ('import type from "x"', [("x", LOADED)]),
        ('import type, { a } from "x"', [("x", LOADED)]),
        ('import { type A, b } from "x"', [("x", LOADED)]),
        ('import x = require("x")', [("x", LOADED)]),
        ('export * from "x"; export * as a from "y"; export { a } from "z"', [("x", 0), ("y", 0), ("z", 0)]),
        ('export type { A } from "x"', [("x", TYPE_ONLY)]),
        ('export { a }\nconst from = "x"', []),
        ('export type A = "x"; export const from = "y"; export default "z"', []),
        ('const a = await import("x")', [("x", INNER)]),
        ("import(`x`); import(`x${y}`); import(x)", [("x", INNER)]),
        ("import.meta.url", []),
        ('const a = require("x"), b = require( /* why */ "y" )', [("x", LOADED), ("y", LOADED)]),
        ('function f() { return require("x") }', [("x", INNER)]),
        ('require("x" + y); a.require("x"); requires("x"); require.resolve("x")', []),
        ('[...require("x")]', [("x", LOADED)]),
        ('// import "x"\n/* require("y") */ /** @type {import("z")} */', []),
        ("const s = 'import \"x\"'; const t = \"it's\"; import 'y'", [("y", LOADED)]),
        ('`import "x"`; import "y"', [("y", LOADED)]),
        ('`${a ? `${require("x")}` : "`"}`; require("y")', [("x", INNER), ("y", LOADED)]),
        ('`${ {a: 1} }`; require("y")', [("y", LOADED)]),
        ("a = /[\"'`/]/; import 'x'", [("x", LOADED)]),
        ("return /`/.test(a); require('x')", [("x", LOADED)]),
        ("a = b / c; d = '/'; require('x')", [("x", LOADED)]),
        ("f(a) / 2; g = `/`; require('x')", [("x", LOADED)]),
        ("const a = <p>Don't</p>\nimport 'x'", [("x", LOADED)]),
        ("const a = 'open\nimport 'x'", [("x", LOADED)]),
        ("#!/usr/bin/env node\nrequire('x')", [("x", LOADED)]),
        ("", []),
        ("import", []),
        ('import "', []),
        ("import { a } from", []),
        ("require(", []),
        ("`", []),
        ("/", []),
    ],
)
def test_names_are_found_outside_of_comments_and_strings(text: str, expected: list[tuple[str, int]]) -> None:
    """Each trap on its own."""
    assert references(text) == expected


@given(st.text(alphabet="import export require from type(){}'\"`$/*\\\n;,.=x é", max_size=60))
def test_no_text_makes_the_lexer_fail(text: str) -> None:
    """Whatever stands there, names lie inside the text, on one line of their quotes."""
    for name, kind in references(text):
        assert name in text
        assert kind in (LOADED, INNER, TYPE_ONLY)


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [
        ("src/a.ts", "./b", ["src/b.ts"]),
        ("src/a.js", "./b", ["src/b.js"]),
        ("src/a.ts", "./c.js", ["src/c.ts"]),
        ("src/a.ts", "./view.jsx", ["src/view.tsx"]),
        ("src/a.ts", "./deep", ["src/deep/index.ts"]),
        ("src/deep/x.ts", "..", ["src/index.ts"]),
        ("src/deep/x.ts", ".", ["src/deep/index.ts"]),
        ("src/deep/x.ts", "../c", ["src/c.ts"]),
        ("src/a.ts", "./data.json", ["src/data.json"]),
        ("src/a.ts", "./style.css?inline", ["src/style.css"]),
        ("src/a.ts", "raw-loader!./style.css", ["src/style.css"]),
        ("src/a.ts", "./pack", ["src/pack/main.js"]),
        ("src/a.ts", "./types", ["src/types.d.ts"]),
        ("src/a.ts", "../../../above", []),
        ("src/a.ts", "./missing", []),
        ("src/a.ts", "react", []),
        ("src/a.ts", "src/c", []),
    ],
)
def test_relative_names_are_found_as_bundlers_do(path: str, name: str, expected: list[str]) -> None:
    """Extensions by the language of the file that asks, `.ts` for `.js`, directories by package.json or index."""
    files = dict.fromkeys(
        ("src/b.ts", "src/b.js", "src/c.ts", "src/view.tsx", "src/index.ts", "src/deep/index.ts", "src/style.css"), ""
    )
    files |= {"src/types.d.ts": "", "src/data.json": "{}", "src/pack/main.js": "", "src/pack/index.js": ""}
    files |= {"src/pack/package.json": '{"main": "main"}', path: f'import "{name}"'}
    assert targets(javascript_imports, files, path) == expected


def test_paths_of_tsconfig_count_from_where_they_are_declared() -> None:
    """With `extends`, comments, trailing commas, `*`, and baseUrl; the config nearest to the file counts."""
    files = {
        "tsconfig.base.json": '{"compilerOptions": {"baseUrl": "./packages", "paths": {"@lib/*": ["lib/src/*"],}}}',
        "app/tsconfig.json": '{ // ours\n"extends": "../tsconfig.base", "include": ["./**/*"] /* all */ }',
        "packages/lib/src/x.ts": "",
        "packages/plain.ts": "",
        "app/a.ts": 'import "@lib/x"; import "plain"; import "@lib/missing"',
        "other/tsconfig.json": '{"compilerOptions": {"paths": {"@lib/*": ["./own/*"]}}}',
        "other/own/x.ts": "",
        "other/a.ts": 'import "@lib/x"; import "plain"',
    }
    assert targets(javascript_imports, files, "app/a.ts") == ["packages/lib/src/x.ts", "packages/plain.ts"]
    assert targets(javascript_imports, files, "other/a.ts") == ["other/own/x.ts"]


def test_configs_that_extend_each_other_end() -> None:
    """A circle of `extends` is read once around."""
    texts = {"a.json": '{"extends": "./b.json"}', "b.json": '{"extends": "./a", "compilerOptions": {"baseUrl": "x"}}'}
    assert read_project("a.json", texts).base == "x"


def test_referenced_projects_lend_their_paths() -> None:
    """A tsconfig.json that only references others, as new applications have it."""
    files = {
        "tsconfig.json": '{"files": [], "references": [{"path": "./tsconfig.app.json"}]}',
        "tsconfig.app.json": '{"compilerOptions": {"paths": {"~/*": ["./source/*"]}}}',
        "source/x.ts": "",
        "source/a.ts": 'import "~/x"',
    }
    assert targets(javascript_imports, files, "source/a.ts") == ["source/x.ts"]


def test_packages_of_a_workspace_are_found_by_their_name() -> None:
    """Sources before what is built; subpaths by `exports` or as they stand; what is built leads to its source."""
    files = {
        "packages/core/package.json": '{"name": "@org/core", "main": "dist/index.js", "exports": {".": {"import": '
        '"./dist/index.mjs"}, "./tools/*": "./dist/tools/*.js", "./extra": {"types": "./src/more.ts"}}}',
        "packages/core/src/index.ts": "",
        "packages/core/src/more.ts": "",
        "packages/core/src/tools/hammer.ts": "",
        "packages/core/src/plain.ts": "",
        "packages/flat/package.json": '{"name": "flat", "main": "./lib/main.js"}',
        "packages/flat/lib/main.js": "",
        "app/a.ts": 'import "@org/core"; import "@org/core/tools/hammer"; import "@org/core/extra"; import "flat"',
        "app/b.ts": 'import "@org/core/plain"; import "@org/other"; import "flat/none"',
    }
    assert targets(javascript_imports, files, "app/a.ts") == [
        "packages/core/src/index.ts",
        "packages/core/src/more.ts",
        "packages/core/src/tools/hammer.ts",
        "packages/flat/lib/main.js",
    ]
    assert targets(javascript_imports, files, "app/b.ts") == ["packages/core/src/plain.ts"]


def test_of_packages_with_one_name_the_nearest_is_meant() -> None:
    """Examples and fixtures repeat names."""
    one = {"package.json": '{"name": "lib"}', "index.js": ""}
    files = {f"{where}/{path}": text for where in ("a/lib", "b/lib") for path, text in one.items()}
    files |= {"a/x.js": 'require("lib")', "b/x.js": 'require("lib")'}
    assert targets(javascript_imports, files, "a/x.js") == ["a/lib/index.js"]
    assert targets(javascript_imports, files, "b/x.js") == ["b/lib/index.js"]


def test_private_names_come_from_the_package_around() -> None:
    """`imports` of the nearest package.json, with conditions and a star."""
    manifest = '{"imports": {"#one": {"node": "./src/one.js", "default": "./no.js"}, "#in/*": ["./src/in/*.js"]}}'
    files = {
        "p/package.json": manifest,
        "p/src/one.js": "",
        "p/src/in/two.js": "",
        "p/x.js": 'import "#one"; import "#in/two"',
    }
    assert targets(javascript_imports, files, "p/x.js") == ["p/src/in/two.js", "p/src/one.js"]


def test_modules_of_node_are_not_packages_of_the_repository() -> None:
    """A repository that holds the package `events` still means Node's."""
    files = {"package.json": '{"name": "events"}', "index.js": "", "test/x.js": 'require("events"); require("node:fs")'}
    assert targets(javascript_imports, files, "test/x.js") == []


def test_aliases_of_bundlers_mean_the_sources_above() -> None:
    """`@/x` without any tsconfig.json."""
    files = {"web/src/x.js": "", "web/src/deep/a.js": 'import "@/x"; import "@/missing"'}
    assert targets(javascript_imports, files, "web/src/deep/a.js") == ["web/src/x.js"]


def test_kinds_and_evidence_are_those_of_the_statement() -> None:
    """Run at load, later, or never; evidence is the line."""
    text = 'import type { A } from "./a"\nconst b = require("./b")\nfunction f() { return import("./c") }\n'
    files = {"a.ts": "", "b.ts": "", "c.ts": "", "x.ts": text}
    assert edges(javascript_imports, files) == {
        ("x.ts", "a.ts", "import_type"),
        ("x.ts", "b.ts", "import"),
        ("x.ts", "c.ts", "import_inner"),
    }
    evidence = [edge.evidence for edge in javascript_imports(repository_of(files))]
    assert evidence[:2] == ['import type { A } from "./a"', 'const b = require("./b"']


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": "// no comment", /* x */ "b": [1, 2,],}', {"a": "// no comment", "b": [1, 2]}),
        ('{"a": "x, }"}', {"a": "x, }"}),
        ("{", {}),
        ("[1]", {}),
        ("", {}),
        ("[" * 100_000, {}),
    ],
)
def test_json_may_hold_comments_and_trailing_commas(text: str, expected: dict[str, object]) -> None:
    """What is no object says nothing."""
    assert parse_json(text) == expected


def test_the_longest_pattern_wins_and_an_exact_name_before_it() -> None:
    """As TypeScript and Node choose."""
    table = {"*": ("0/*",), "a/*": ("1/*",), "a/b/*": ("2/*",), "a/b/c": ("3",)}
    assert [matching(table, name) for name in ("x", "a/x", "a/b/x", "a/b/c")] == [("0/x",), ("1/x",), ("2/x",), ("3",)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('/// <reference path="globals.d.ts" />\nlet x', [("a/globals.d.ts", "import_type")]),
        ("/// <reference path='../lib/b'/>\nimport './c'", [("a/c.ts", "import"), ("lib/b.ts", "import")]),
        ('///<reference types="shop" resolution-mode="require" />', [("types/shop/index.d.ts", "import_type")]),
        (
            '#!/usr/bin/env x\n/* licence */\n// why\n/// <reference types="@acme/deep"/>',
            [("node_modules/@types/acme__deep/index.d.ts", "import_type")],
        ),
        ('/// <reference lib="es2020" />\n/// <reference no-default-lib="true"/>', []),
        ('let x = 1\n/// <reference path="globals.d.ts" />', []),
        ('// <reference path="globals.d.ts" />\n/* /// <reference path="c.ts" /> */', []),
        ('/*\n/// <reference path="globals.d.ts" />\n*/', []),
        ('/// <reference path="globals.d.ts">', []),
        ('/// <reference types="shop" path="globals.d.ts" />', [("types/shop/index.d.ts", "import_type")]),
        ('/// <reference path="lost.d.ts" />', []),
    ],
)
def test_directives_before_all_code_name_files_and_packages(text: str, expected: list[tuple[str, str]]) -> None:
    """`path` the file beside, `types` the declarations of a package; elsewhere they are comments."""
    files = {
        "a/x.ts": text,
        "a/globals.d.ts": "",
        "a/c.ts": "",
        "lib/b.ts": "",
        "types/shop/index.d.ts": "",
        "node_modules/@types/acme__deep/index.d.ts": "",
    }
    assert sorted((to, kind) for of, to, kind in edges(javascript_imports, files) if of == "a/x.ts") == expected
