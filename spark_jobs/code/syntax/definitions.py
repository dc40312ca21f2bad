"""Definitions: the names defined in a file for other files, and those bound locally, from its syntax tree.

    def area(width): height = 2        defines `area`, binds `width` and `height`

Defined are functions, classes, types, constants and macros for use by other files: those at the top of a file and in
its namespaces and modules, and members added to types of others (extensions of Swift, Scala and C#), but no other
methods and no locals. Bound are parameters, variables and loop targets; where a file binds a name, its uses of that
name refer to no other file. Trees with errors are used too, since macros make them common in C.

Runs only in the child process (`syntax_child`); a grammar is imported when it is first needed. The grammars' own
queries are not used, because they miss too much and count prototypes of C as definitions.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from typing import Any, Final, NamedTuple

from tree_sitter import Language, Parser, Query, QueryCursor


class Definitions(NamedTuple):
    """Names for use by other files, and names of the file's own variables and parameters."""

    defined: tuple[str, ...]
    bound: tuple[str, ...]


class Grammar(NamedTuple):
    """The module and function of a grammar, and a query to capture `@defined` and `@bound`."""

    module: str
    function: str
    query: str


_PYTHON: Final = """
(module (function_definition name: (identifier) @defined))
(module (class_definition name: (identifier) @defined))
(module (decorated_definition definition: (_ name: (identifier) @defined)))
(module (expression_statement (assignment left: (identifier) @defined)))
(module (type_alias_statement left: (type (identifier) @defined)))
(module [(if_statement (block [(function_definition name: (identifier) @defined)
    (class_definition name: (identifier) @defined)
    (expression_statement (assignment left: (identifier) @defined))]))
  (try_statement (block [(function_definition name: (identifier) @defined)
    (class_definition name: (identifier) @defined)
    (expression_statement (assignment left: (identifier) @defined))]))])
(module (_ [
  (else_clause (block [(function_definition name: (identifier) @defined)
    (class_definition name: (identifier) @defined)]))
  (except_clause (block [(function_definition name: (identifier) @defined)
    (class_definition name: (identifier) @defined)]))]))
(parameters (identifier) @bound)
(parameters (_ . (identifier) @bound))
(lambda_parameters (identifier) @bound)
(assignment left: (identifier) @bound)
(assignment left: (pattern_list (identifier) @bound))
(for_statement left: (identifier) @bound)
(for_statement left: (pattern_list (identifier) @bound))
(for_in_clause left: (identifier) @bound)
(as_pattern_target (identifier) @bound)
"""
_JAVASCRIPT: Final = """
(program [(function_declaration name: (_) @defined) (generator_function_declaration name: (_) @defined)
  (class_declaration name: (_) @defined)])
(program (export_statement declaration: [(function_declaration name: (_) @defined)
  (generator_function_declaration name: (_) @defined) (class_declaration name: (_) @defined)]))
(program (lexical_declaration (variable_declarator name: (identifier) @defined)))
(program (variable_declaration (variable_declarator name: (identifier) @defined)))
(program (export_statement declaration: (_ (variable_declarator name: (identifier) @defined))))
(variable_declarator name: (identifier) @bound)
"""
_TYPES: Final = """
(program [(abstract_class_declaration name: (_) @defined) (interface_declaration name: (_) @defined)
  (type_alias_declaration name: (_) @defined) (enum_declaration name: (_) @defined)])
(program (export_statement declaration: [(abstract_class_declaration name: (_) @defined)
  (interface_declaration name: (_) @defined) (type_alias_declaration name: (_) @defined)
  (enum_declaration name: (_) @defined)]))
(internal_module name: (identifier) @defined)
(required_parameter pattern: (identifier) @bound)
(optional_parameter pattern: (identifier) @bound)
"""
_FORMAL: Final = "(formal_parameters (identifier) @bound)"
_C: Final = """
(function_definition declarator: (function_declarator declarator: (identifier) @defined))
(function_definition declarator: (_ declarator: (function_declarator declarator: (identifier) @defined)))
(function_definition
  declarator: (_ declarator: (_ declarator: (function_declarator declarator: (identifier) @defined))))
(struct_specifier name: (type_identifier) @defined body: (_))
(union_specifier name: (type_identifier) @defined body: (_))
(enum_specifier name: (type_identifier) @defined body: (_))
(enumerator name: (identifier) @defined)
(type_definition declarator: (type_identifier) @defined)
(preproc_def name: (identifier) @defined)
(preproc_function_def name: (identifier) @defined)
(translation_unit (declaration declarator: (init_declarator declarator: (identifier) @defined)))
(translation_unit (declaration declarator: (init_declarator declarator: (_ declarator: (identifier) @defined))))
(parameter_declaration declarator: (identifier) @bound)
(parameter_declaration declarator: (_ declarator: (identifier) @bound))
(compound_statement (declaration declarator: (identifier) @bound))
(compound_statement (declaration declarator: (_ declarator: (identifier) @bound)))
"""
_CPP: Final = """
(function_definition declarator: (function_declarator
  declarator: (qualified_identifier scope: (namespace_identifier) @defined)))
(class_specifier name: (type_identifier) @defined body: (_))
(alias_declaration name: (type_identifier) @defined)
(concept_definition name: (identifier) @defined)
"""

GRAMMARS: Final = {
    "Python": Grammar("tree_sitter_python", "language", _PYTHON),
    "JavaScript": Grammar("tree_sitter_javascript", "language", _JAVASCRIPT + _FORMAL),
    **dict.fromkeys(("TypeScript", "TSX"), Grammar("tree_sitter_typescript", "language_tsx", _JAVASCRIPT + _TYPES)),
    "Go": Grammar(
        "tree_sitter_go",
        "language",
        """
(function_declaration name: (identifier) @defined)
(source_file (type_declaration [(type_spec name: (_) @defined) (type_alias name: (_) @defined)]))
(source_file (const_declaration (const_spec (identifier) @defined)))
(source_file (var_declaration (var_spec name: (identifier) @defined)))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @defined))))
(parameter_declaration name: (identifier) @bound)
(short_var_declaration left: (expression_list (identifier) @bound))
(range_clause left: (expression_list (identifier) @bound))
""",
    ),
    "Java": Grammar(
        "tree_sitter_java",
        "language",
        """
(program [(class_declaration name: (_) @defined) (interface_declaration name: (_) @defined)
  (enum_declaration name: (_) @defined) (record_declaration name: (_) @defined)
  (annotation_type_declaration name: (_) @defined)])
(formal_parameter name: (identifier) @bound)
(local_variable_declaration declarator: (variable_declarator name: (identifier) @bound))
""",
    ),
    "Rust": Grammar(
        "tree_sitter_rust",
        "language",
        """
[(struct_item name: (_) @defined) (enum_item name: (_) @defined) (union_item name: (_) @defined)
 (trait_item name: (_) @defined) (type_item name: (_) @defined) (const_item name: (_) @defined)
 (static_item name: (_) @defined) (macro_definition name: (_) @defined)]
(source_file (function_item name: (identifier) @defined))
(mod_item body: (declaration_list (function_item name: (identifier) @defined)))
(parameter pattern: (identifier) @bound)
(let_declaration pattern: (identifier) @bound)
""",
    ),
    "C": Grammar("tree_sitter_c", "language", _C),
    "C++": Grammar("tree_sitter_cpp", "language", _C + _CPP),
    "C#": Grammar(
        "tree_sitter_c_sharp",
        "language",
        """
[(class_declaration name: (_) @defined) (interface_declaration name: (_) @defined)
 (struct_declaration name: (_) @defined) (record_declaration name: (_) @defined)
 (enum_declaration name: (_) @defined) (delegate_declaration name: (_) @defined)]
(method_declaration name: (identifier) @defined
  parameters: (parameter_list . (parameter (modifier) @_this (#eq? @_this "this"))))
(struct_declaration name: (identifier) @_extension (#eq? @_extension "__") body: (declaration_list [
  (method_declaration name: (identifier) @defined) (property_declaration name: (identifier) @defined)]))
(parameter name: (identifier) @bound)
(variable_declarator name: (identifier) @bound)
""",
    ),
    "Ruby": Grammar(
        "tree_sitter_ruby",
        "language",
        """
[(class name: (constant) @defined) (module name: (constant) @defined)]
(class name: (scope_resolution name: (constant) @defined))
(module name: (scope_resolution name: (constant) @defined))
(program (method name: (identifier) @defined))
(assignment left: (constant) @defined)
(assignment left: (identifier) @bound)
(method_parameters (identifier) @bound)
(block_parameters (identifier) @bound)
""",
    ),
    "PHP": Grammar(
        "tree_sitter_php",
        "language_php",
        """
[(class_declaration name: (_) @defined) (interface_declaration name: (_) @defined)
 (trait_declaration name: (_) @defined) (enum_declaration name: (_) @defined)
 (function_definition name: (_) @defined)]
(program (const_declaration (const_element (name) @defined)))
""",
    ),
    "Shell": Grammar(
        "tree_sitter_bash",
        "language",
        """
(function_definition name: (word) @defined)
(program (variable_assignment name: (variable_name) @defined))
(program (declaration_command (variable_assignment name: (variable_name) @defined)))
(for_statement variable: (variable_name) @bound)
(variable_assignment name: (variable_name) @bound)
""",
    ),
    "Scala": Grammar(
        "tree_sitter_scala",
        "language",
        """
[(class_definition name: (_) @defined) (object_definition name: (_) @defined) (trait_definition name: (_) @defined)
 (enum_definition name: (_) @defined)]
(compilation_unit [(type_definition name: (_) @defined) (function_definition name: (identifier) @defined)
  (val_definition pattern: (identifier) @defined) (given_definition name: (identifier) @defined)])
(package_clause body: (template_body [(function_definition name: (identifier) @defined)
  (val_definition pattern: (identifier) @defined) (given_definition name: (identifier) @defined)]))
(extension_definition (function_definition name: (identifier) @defined))
(parameter name: (identifier) @bound)
(val_definition pattern: (identifier) @bound)
""",
    ),
    "Kotlin": Grammar(
        "tree_sitter_kotlin",
        "language",
        """
(source_file [(class_declaration name: (_) @defined) (object_declaration name: (_) @defined)
  (function_declaration name: (_) @defined) (type_alias type: (_) @defined)
  (property_declaration (variable_declaration (identifier) @defined))])
(variable_declaration (identifier) @bound)
""",
    ),
    "Swift": Grammar(
        "tree_sitter_swift",
        "language",
        """
[(class_declaration name: (type_identifier) @defined) (protocol_declaration name: (_) @defined)]
(source_file [(function_declaration name: (simple_identifier) @defined)
  (property_declaration name: (pattern bound_identifier: (simple_identifier) @defined))
  (typealias_declaration name: (type_identifier) @defined)])
(class_declaration "extension" body: (class_body [(function_declaration name: (simple_identifier) @defined)
  (property_declaration name: (pattern bound_identifier: (simple_identifier) @defined))
  (typealias_declaration name: (type_identifier) @defined)]))
(parameter name: (simple_identifier) @bound)
(property_declaration name: (pattern bound_identifier: (simple_identifier) @bound))
""",
    ),
    "Lua": Grammar(
        "tree_sitter_lua",
        "language",
        """
(function_declaration name: (identifier) @defined)
(function_declaration name: (dot_index_expression field: (identifier) @defined))
(function_declaration name: (method_index_expression method: (identifier) @defined))
(chunk (assignment_statement (variable_list name: (identifier) @defined)))
(parameters name: (identifier) @bound)
""",
    ),
}
"""By the names of `documents.language`. Other languages have no symbols; COBOL's grammar hangs on some inputs."""


_EXTENSION: Final = re.compile(
    rb"((?<=[{};\]/>)])\s*+|^[ \t]*+)extension\s*+(?:<(?:[^<>{}();]|<[^<>{}();]*+>)*+>)?\s*+"
    rb"\((?:[^(){};]|\([^(){};]*+\))*+\)[^{};=]{0,2048}+(?=\{)",
    re.MULTILINE,
)


def _with_structs(source: bytes) -> bytes:
    """C# with each block `extension(string text) { .. }` (C# 14) as a nameless struct, readable by the grammar."""
    return _EXTENSION.sub(rb"\1struct __ ", source) if b"extension" in source else source


class _Loaded(NamedTuple):
    parser: Parser
    query: Query


@cache
def _loaded(language: str) -> _Loaded:
    grammar = GRAMMARS[language]
    module: Any = importlib.import_module(grammar.module)
    loaded = Language(getattr(module, grammar.function)())
    return _Loaded(Parser(loaded), Query(loaded, grammar.query))


def read_definitions(language: str, source: bytes) -> Definitions:
    """Parse one file.

    Returns:
        What it defines and binds. A name of both kinds counts as defined.
    """
    parser, query = _loaded(language)
    source = _with_structs(source) if language == "C#" else source
    captures = QueryCursor(query).captures(parser.parse(source).root_node)
    defined, bound = (
        {source[node.start_byte : node.end_byte].decode("utf-8", "replace") for node in captures.get(kind, ())}
        for kind in ("defined", "bound")
    )
    return Definitions(tuple(sorted(defined)), tuple(sorted(bound - defined)))
