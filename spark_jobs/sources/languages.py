"""Tell from the name of a file its kind of text, language and media type.

Languages of code are named as GitHub's Linguist names them (The Stack v2 does too). Markdown and reStructuredText are
`prose`, with the media type of their light markup; `markup` is text that is mostly tags (HTML, XML, TeX).
"""

from __future__ import annotations

import posixpath
import re
from typing import Final, NamedTuple


class Language(NamedTuple):
    """Kind of a file (code, prose, markup or data), name of its language (None for prose), and media type."""

    kind: str
    name: str | None
    media_type: str


_TABLE: tuple[tuple[str, str, str | None, str], ...] = (
    (".py .pyi .pyw", "code", "Python", "text/x-python"),
    (".pyx .pxd .pxi", "code", "Cython", "text/x-cython"),
    (".c .h", "code", "C", "text/x-c"),
    (".cc .cpp .cxx .hh .hpp .hxx .inl .ipp", "code", "C++", "text/x-c++"),
    (".cu .cuh", "code", "Cuda", "text/x-cuda"),
    (".rs", "code", "Rust", "text/x-rust"),
    (".go", "code", "Go", "text/x-go"),
    (".java", "code", "Java", "text/x-java"),
    (".kt .kts", "code", "Kotlin", "text/x-kotlin"),
    (".scala", "code", "Scala", "text/x-scala"),
    (".cs", "code", "C#", "text/x-csharp"),
    (".js .mjs .cjs .jsx", "code", "JavaScript", "text/javascript"),
    (".ts .tsx .mts .cts", "code", "TypeScript", "text/x-typescript"),
    (".rb", "code", "Ruby", "text/x-ruby"),
    (".php", "code", "PHP", "text/x-php"),
    (".swift", "code", "Swift", "text/x-swift"),
    (".lua", "code", "Lua", "text/x-lua"),
    (".pl .pm", "code", "Perl", "text/x-perl"),
    (".r", "code", "R", "text/x-r"),
    (".jl", "code", "Julia", "text/x-julia"),
    (".hs", "code", "Haskell", "text/x-haskell"),
    (".ml .mli", "code", "OCaml", "text/x-ocaml"),
    (".ex .exs", "code", "Elixir", "text/x-elixir"),
    (".clj", "code", "Clojure", "text/x-clojure"),
    (".f .f90 .f95 .for", "code", "Fortran", "text/x-fortran"),
    (".m", "code", "MATLAB", "text/x-matlab"),
    (".asm .s", "code", "Assembly", "text/x-asm"),
    (".sh .bash .zsh", "code", "Shell", "text/x-shellscript"),
    (".ps1", "code", "PowerShell", "text/x-powershell"),
    (".bat .cmd", "code", "Batchfile", "text/x-bat"),
    (".sql", "code", "SQL", "application/sql"),
    (".proto", "code", "Protocol Buffer", "text/x-protobuf"),
    (".thrift", "code", "Thrift", "text/x-thrift"),
    (".cmake", "code", "CMake", "text/x-cmake"),
    (".mako", "code", "Mako", "text/x-mako"),
    (".html .htm .xhtml .xht", "markup", "HTML", "text/html"),
    (".xml .xsd .xsl .svg .rng", "markup", "XML", "application/xml"),
    (".css", "markup", "CSS", "text/css"),
    (".scss", "markup", "SCSS", "text/x-scss"),
    (".tex", "markup", "TeX", "text/x-tex"),
    (".jinja .jinja2 .j2", "markup", "Jinja", "text/x-jinja"),
    (".json .ipynb", "data", "JSON", "application/json"),
    (".yaml .yml", "data", "YAML", "application/yaml"),
    (".toml", "data", "TOML", "application/toml"),
    (".ini .cfg", "data", "INI", "text/x-ini"),
    (".gradle", "data", "Gradle", "text/x-gradle"),
    (".csv", "data", "CSV", "text/csv"),
    (".tsv", "data", "TSV", "text/tab-separated-values"),
    (".txt .text", "prose", None, "text/plain"),
    (".md .markdown .mdx", "prose", None, "text/markdown"),
    (".rst", "prose", None, "text/x-rst"),
)
_BY_EXTENSION = {
    extension: Language(kind, name, media_type)
    for extensions, kind, name, media_type in _TABLE
    for extension in extensions.split()
}
_BY_LANGUAGE = {language.name.lower(): language for language in _BY_EXTENSION.values() if language.name}
_BY_NAME = {
    "makefile": Language("code", "Makefile", "text/x-makefile"),
    "dockerfile": Language("code", "Dockerfile", "text/x-dockerfile"),
    "cmakelists.txt": Language("code", "CMake", "text/x-cmake"),
    "go.mod": Language("data", "Go Module", "text/x-go.mod"),
    "go.work": Language("data", "Go Workspace", "text/x-go.work"),
}
MANIFEST: Final = (
    r"(^|[/#])(go\.(mod|work)|Cargo\.toml|package\.json|[jt]sconfig[^/]*\.json|pyproject\.toml|setup\.cfg|pom\.xml"
    r"|(build|settings)\.gradle(\.kts)?|compile_commands\.json)$"
)
"""Paths of manifests, as a pattern for Python and Java: files that say what the modules and packages of a repository
are called and where they begin. A `#` comes before the id of a record."""
LOCK_FILE: Final = (
    r"(?i)(^|[/#])([^/#]*\.lock(b|file)?(\.(json|ya?ml|hcl|toml))?"
    r"|\.?(package|pnpm|conda|deno|npm)-lock(\.[^/.]+)?\.(json|ya?ml)|npm-shrinkwrap\.json|pylock(\.[^/.]+)?\.toml"
    r"|go(\.work)?\.sum|(package|cartfile)\.resolved|gems\.locked|dub\.selections\.json|cabal\.project\.freeze)$"
)
"""Paths of files in which a package manager writes the versions and hashes that it found; for Python and Java."""
VENDORED: Final = (
    r"(?i)(^|/)(_?vendor(s|ed)?|_?(third|3rd)[-_]?party|extern(als?)?|_?bundled?|node_modules|bower_components|godeps)/"
)
"""Paths in folders that hold other people's code, of those that Linguist's vendor.yml lists; for Python and Java."""
EVIDENCE: Final = "headrace.evidence"
"""Key in the metadata of a document that landed only because others need it to be understood."""
PAST: Final = "headrace.past_version"
"""Key in the metadata of a document that landed when its path had a later version already, or none any more."""
PAGE: Final = "headrace.page"
"""Metadata of a document of an API or a stream: number of its page and its place there, `12#item:3`."""
EXTRACTED_BY: Final = "headrace.extracted_by"
"""Key in the metadata of a document whose text was extracted: what extracted it, with its version. Bytes of such a
text are no bytes of a file."""
PAGE_START: Final = re.compile(rb"(?is)\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b")
"""How a page of HTML begins, whatever it is called."""
DETECTED: Final = "headrace.detected"
"""Key in the metadata of a document whose file's name said nothing: what its content is taken for, and by whom."""
PLAIN_TEXT = Language("prose", None, "text/plain")
DECLARES_ENCODING = frozenset({"Python", "Cython"})
"""Languages whose sources may declare their encoding in a comment (PEP 263)."""


def code_language_names() -> frozenset[str]:
    """Names of all languages of code, markup and data that are recognised by a file's name."""
    return frozenset(one.name for one in (*_BY_EXTENSION.values(), *_BY_NAME.values()) if one.name)


def language_of(path: str) -> Language | None:
    """The language of a file by its name, or None where the extension is unknown or missing."""
    name = posixpath.basename(path).lower()
    return _BY_NAME.get(name) or _BY_EXTENSION.get(posixpath.splitext(name)[1])


def language_columns(reader: str | None, language: Language | None) -> dict[str, str | None]:
    """Columns of the listing that say how a file is read and what its documents are."""
    kind, name, media_type = language or (None, None, None)
    return {"reader": reader, "kind": kind, "language": name, "media_type": media_type or None}


def language_named(name: str) -> Language | None:
    """The language of a name in whatever letters, or None where there is none of it in the table."""
    return _BY_LANGUAGE.get(name.lower())


def is_manifest(path: str) -> bool:
    """Whether a file is a manifest, by its path."""
    return re.search(MANIFEST, path) is not None
