"""Print how large the code is and in what words it is written: a mirror, not a gate.

`python setup/code_figures.py [FOLDER ..]` reads the packages of this repository, or those named. Rules:

- a *code line* holds a token that is neither comment nor docstring; generated modules (`*_pb2*.py`) are left out;
- a *relative pronoun* in a docstring is `who`, `whom`, `whose` or `which`, or a `that` right after a word that can be
  a noun: three letters or more, no verb of saying, conjunction or preposition (`LEAD_TO_CLAUSES`), no comma between;
- an *assigned name* is each target of an assignment, loop, `with`, walrus or comprehension, and each parameter; it is
  vague when all its parts between underscores are in `VAGUE`, partly vague when one is;
- a *comment line* holds a comment that is no instruction to a tool (`noqa`, `type:`, `pragma`).
"""

import ast
import io
import itertools
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("headrace", "headrace_features", "spark_jobs", "dagster_project", "blender_service")
VAGUE = {"one", "own", "found", "given", "held", "said", "known", "told", "asked", "made", "seen"}
PRONOUNS = {"who", "whom", "whose", "which"}
# After these `that` leads a clause of content ("says that"), of purpose ("so that") or is a demonstrative ("of that").
LEAD_TO_CLAUSES = re.compile(
    "so|such|and|but|not|than|then|sa(?:ys?|id|ying)|tells?|told|show[sn]?|know[sn]?|sees?|seen|ensures?|check(?:s|ed)?|"
    "means?|proves?|asserts?|notes?|states?|claims?|finds?|found|promises?|makes?|sure|like|the|for|with|from|after|"
    "before|until|since|while|because|when|where|into|onto|over|under|about|upon|between|without|within|beside|behind|"
    "above|below|only|even|just|now|also|are|was|were|has|had|have|does|did|its|been|being|can|may|must|will|all|both"
)
LONG_MODULE_LINES = 400
TOOL_COMMENT = re.compile(r"#\s*(noqa|type:|pragma|mypy|ruff|pylint|!)")
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}


@dataclass
class Figures:
    """What was counted in some modules."""

    modules: int = 0
    code_lines: int = 0
    comment_lines: int = 0
    docstring_words: int = 0
    pronouns: int = 0
    names: int = 0
    vague: int = 0
    partly_vague: int = 0
    vague_parts: Counter[str] = field(default_factory=Counter)
    lengths: list[tuple[int, str]] = field(default_factory=list)
    class_modules: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, other: "Figures") -> None:
        """Add the counts of other modules to these."""
        for name, count in vars(other).items():
            if isinstance(count, int):
                setattr(self, name, getattr(self, name) + count)
        self.vague_parts.update(other.vague_parts)
        self.lengths += other.lengths
        for name, modules in other.class_modules.items():
            self.class_modules[name] |= modules


def docstring_nodes(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the constant of each docstring of a module, its classes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str()) as text), *_]:
                    yield text


def relative_pronouns(words: list[str]) -> int:
    """Count relative pronouns among words in lower case; a comma is a word of its own."""
    before_that = [before for before, word in itertools.pairwise(words) if word == "that" and len(before) >= 3]
    return sum(word in PRONOUNS for word in words) + sum(not LEAD_TO_CLAUSES.fullmatch(word) for word in before_that)


def assigned_names(tree: ast.Module) -> Iterator[str]:
    """Yield every name that a module assigns to, parameters of functions with them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
            yield node.arg


def module_figures(path: Path) -> Figures:
    """Give the figures of one module."""
    source = path.read_text(encoding="utf-8")
    docstrings = list(docstring_nodes(tree := ast.parse(source)))
    starts = {(node.lineno, node.col_offset) for node in docstrings}
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if not TOOL_COMMENT.match(token.string):
                comments.add(token.start[0])
        elif token.type not in LAYOUT and not (token.type == tokenize.STRING and token.start in starts):
            code.update(range(token.start[0], token.end[0] + 1))
    figures = Figures(modules=1, code_lines=len(code), comment_lines=len(comments))
    for node in docstrings:
        words = re.findall(r"[a-z][a-z'-]*|[,;:.(]", str(node.value).lower())
        figures.docstring_words += sum(word[0].isalpha() for word in words)
        figures.pronouns += relative_pronouns(words)
    for name in assigned_names(tree):
        figures.names += 1
        parts = {part for part in name.lower().split("_") if part}
        figures.vague_parts.update(VAGUE & parts)
        figures.partly_vague += bool(VAGUE & parts)
        figures.vague += bool(parts) and parts <= VAGUE
    figures.lengths.append((len(source.splitlines()), str(path)))
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            figures.class_modules[statement.name].add(str(path))
    return figures


def main(folders: list[str]) -> None:
    """Print a row for each package, one for all, and what stands out."""
    print("package               modules   code lines comments/100 pronouns/100   vague/1000  partly/1000")
    total = Figures()
    for folder in folders:
        figures = Figures()
        for path in sorted(path for path in Path(folder).rglob("*.py") if "_pb2" not in path.name):
            figures.add(module_figures(path))
        print(row(folder, figures))
        total.add(figures)
    print(row("all", total), end="\n\n")
    print("vague parts:", ", ".join(f"{word} {count}" for word, count in total.vague_parts.most_common()))
    shared = [f"{name} x{len(at)}" for name, at in sorted(total.class_modules.items()) if len(at) > 1]
    print(f"class names in several modules: {len(shared)}:", ", ".join(shared))
    lengthy = [f"{path} {lines}" for lines, path in sorted(total.lengths, reverse=True) if lines > LONG_MODULE_LINES]
    print(f"modules over {LONG_MODULE_LINES} lines: {len(lengthy)}", *lengthy, sep="\n  ")


def row(name: str, figures: Figures) -> str:
    """Give the line of a package."""
    comments = 100 * figures.comment_lines / max(figures.code_lines, 1)
    pronouns = 100 * figures.pronouns / max(figures.docstring_words, 1)
    vague, partly = (1000 * count / max(figures.names, 1) for count in (figures.vague, figures.partly_vague))
    rates = f"{comments:>12.1f} {pronouns:>12.2f} {vague:>12.1f} {partly:>12.1f}"
    return f"{name:<16} {figures.modules:>12,} {figures.code_lines:>12,} {rates}"


if __name__ == "__main__":
    main(sys.argv[1:] or list(PACKAGES))
