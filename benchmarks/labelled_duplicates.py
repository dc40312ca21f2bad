"""Near-duplicates with labels: real documents edited in known ways, and strangers that only look alike.

A document and its edited copy are a true pair, labelled with the kind of edit. What must not be found are pairs of
different documents: two that share a template (a licence, a form), files of one package, and functions of one name that
different people wrote. Every document is in one pair only. All of it is a function of the files and the seed.
"""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpora import python_files, rfc_pieces, sentences

from spark_jobs.lexing.language_syntax import SYNTAXES

SEED = 12
TEMPLATE = "strangers, one template"
SUBJECT = "strangers, one subject"
PACKAGE = "strangers, one package"
TASK = "strangers, one task"


@dataclass(frozen=True)
class Pair:
    """Two texts, and what the second is to the first: a kind of edit, or a kind of stranger."""

    label: str
    left: str
    right: str

    @property
    def same(self) -> bool:
        """Whether it is the same document, edited."""
        return not self.label.startswith("strangers")


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs of one kind and language, and other documents of that kind, which are nobody's copies."""

    name: str
    kind: str
    language: str | None
    pairs: list[Pair]
    others: list[str]

    @property
    def texts(self) -> list[str]:
        """The texts of all pairs, left and right in turn, then the others."""
        return [text for pair in self.pairs for text in (pair.left, pair.right)] + self.others


# ---- prose

Edit = Callable[[str, random.Random], str]


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.!?。！？]) ?(?=\S)|\n\s*\n", text)


def _parted(text: str) -> list[str]:
    """Words and what is between them; characters where words are not parted by spaces."""
    return re.split(r"(\s+)", text) if text.count(" ") * 20 > len(text) else list(text)


def _words_replaced(share: float, pool: Sequence[str]) -> Edit:
    """A share of the words by words of other documents, as often as they have them."""

    def edit(text: str, draw: random.Random) -> str:
        words = _parted(text)
        places = [place for place, word in enumerate(words) if word.strip()]
        for place in draw.sample(places, int(len(places) * share)):
            words[place] = draw.choice(pool)
        return "".join(words)

    return edit


def _sentences_changed(text: str, draw: random.Random) -> str:
    """One in six left out, one in six twice with another place."""
    found = _sentences(text)
    for _ in range(max(1, len(found) // 6)):
        found.pop(draw.randrange(len(found)))
    for _ in range(max(1, len(found) // 6)):
        found.insert(draw.randrange(len(found) + 1), found.pop(draw.randrange(len(found))))
    return " ".join(found)


def _paragraphs_reordered(text: str, draw: random.Random) -> str:
    found = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    if len(found) < 3:
        found = _sentences(text)
    draw.shuffle(found)
    return "\n\n".join(found)


def _scanned(text: str, draw: random.Random) -> str:
    """2% of the letters misread, some spaces lost, lines broken anew."""
    confused = dict(zip("lomeiht的一は", ("1", "0", "rn", "c", "l", "b", "f", "酌", "-", "ほ"), strict=True))
    out = []
    for letter in text:
        chance = draw.random()
        if chance < 0.05 and letter in confused:
            out.append(confused[letter])
        elif not (chance < 0.02 and letter == " "):
            out.append(letter)
    return "".join(out)


def _case_and_marks(text: str, draw: random.Random) -> str:
    return re.sub(r"[,;:'\"()\-]", lambda _: draw.choice(("", " ", ",")), text).swapcase()


def _cut(text: str, draw: random.Random) -> str:
    return text[: int(len(text) * draw.uniform(0.7, 0.95))]


def _framed(text: str, draw: random.Random) -> str:
    """A header and a footer of a web page around it."""
    place = f"Home > Archive > {draw.randrange(1900, 2030)} > Item {draw.randrange(10**6)}\nShare  Print  Log in\n\n"
    return place + text + "\n\nAll rights reserved. Contact us. Terms of use. Privacy. Sitemap."


def _in_turn(*edits: Edit) -> Edit:
    def edit(text: str, draw: random.Random) -> str:
        for one in edits:
            text = one(text, draw)
        return text

    return edit


def _prose_edits(pool: Sequence[str]) -> dict[str, Edit]:
    return {
        "5% of words replaced": _words_replaced(0.05, pool),
        "15% of words replaced": _words_replaced(0.15, pool),
        "30% of words replaced": _words_replaced(0.3, pool),
        "sentences deleted and moved": _sentences_changed,
        "paragraphs reordered": _paragraphs_reordered,
        "scanned and misread": _scanned,
        "case and punctuation": _case_and_marks,
        "5 to 30% cut off": _cut,
        "header and footer": _framed,
        "four of these": _in_turn(_words_replaced(0.1, pool), _sentences_changed, _scanned, _framed),
    }


def prose_pairs(count: int) -> Iterator[LabelledPairs]:
    """English RFCs and sentences of languages with and without spaces, `count` pairs of each label."""
    pieces = list(dict.fromkeys(rfc_pieces(2000 * count)))
    pieces = [piece for piece in pieces if len(re.findall("[a-z]{3,}", piece)) > 120]
    neighbours = [Pair(SUBJECT, *pieces[at : at + 2]) for at in range(0, len(pieces), len(pieces) // (3 * count))]
    random.Random(SEED).shuffle(pieces)
    english = _labelled("English", pieces, count)
    english.pairs.extend(neighbours)
    yield english
    for name, codes, per in (
        ("Chinese and Japanese", ("zh", "ja"), 5),
        ("German, Russian, Arabic", ("de", "ru", "ar"), 10),
    ):
        texts = []
        for code in codes:
            lines = sentences(code)[code]
            texts += [" ".join(lines[at : at + per]) for at in range(0, len(lines), per)]
        random.Random(SEED).shuffle(texts)
        yield _labelled(name, texts, max(1, min(count, len(texts) // 40)))


def _labelled(name: str, texts: list[str], count: int) -> LabelledPairs:
    """`count` pairs of each edit, three times as many strangers on one template; the rest are others."""
    draw = random.Random(SEED)
    pool = [word for text in texts[-200:] for word in _parted(text) if word.strip()]
    left = iter(texts)
    pairs = []
    for label, edit in _prose_edits(pool).items():
        pairs += [Pair(label, text, edit(text, draw)) for text in (next(left) for _ in range(count))]
    for _ in range(3 * count):
        form, first, second = next(left), next(left), next(left)
        filled = int(len(form) * draw.uniform(0.5, 1.5))
        pairs.append(Pair(TEMPLATE, form + "\n\n" + first[:filled], form + "\n\n" + second[:filled]))
    return LabelledPairs(name, "prose", None, pairs, list(left)[: 4 * len(pairs)])


# ---- code

_QUOTED = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
_REST = r"|(?P<number>\b\d[\w.]*)|(?P<name>(?<![\w.])[A-Za-z_]\w*)"
_PYTHON = rf"(?P<comment>#[^\n]*)|(?P<text>[rbfRBF]{{0,2}}(?:\"\"\".*?\"\"\"|'''.*?'''|{_QUOTED})){_REST}"
_FAMILY_C = rf"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<text>{_QUOTED}|`[^`]*`){_REST}"
_KEYWORDS = {syntax.languages[0]: set(syntax.keywords.split()) for syntax in SYNTAXES}


def _rewritten(language: str, text: str, change: Callable[[str, str], str]) -> str:
    """The source with every comment, string, number and name (that follows no point) as `change(what, old)` says."""
    pattern = _PYTHON if language == "Python" else _FAMILY_C
    return re.sub(pattern, lambda m: change(str(m.lastgroup), m.group()), text, flags=re.DOTALL)


def _comments_stripped(language: str, text: str, draw: random.Random) -> str:
    bare = _rewritten(language, text, lambda what, old: "" if what == "comment" else old)
    if language == "Python":
        bare = re.sub(r'(?m)^\s*(?:r|b)?"""(?s:.*?)"""\s*$', "", bare)
    return re.sub(r"\n\s*\n+", "\n", bare)


def _comments_changed(language: str, text: str, draw: random.Random) -> str:
    """Every comment another one, and some more."""
    mark = "#" if language == "Python" else "//"
    words = [
        "compute",
        "check",
        "value",
        "loop",
        "result",
        "first",
        "store",
        "number",
        "input",
        "here",
        "print",
        "case",
    ]

    def note() -> str:
        return f"{mark} {' '.join(draw.choices(words, k=5))}"

    lines = _comments_stripped(language, text, draw).splitlines()
    return "\n".join(f"{line}  {note()}" if draw.random() < 0.2 and line.strip() else line for line in lines)


def _names_changed(share: float) -> Callable[[str, str, random.Random], str]:
    def edit(language: str, text: str, draw: random.Random) -> str:
        """A share of the names that the file itself uses twice, or more often, is called otherwise throughout."""
        counts: dict[str, int] = {}

        def count(what: str, old: str) -> str:
            if what == "name" and old not in _KEYWORDS.get(language, ()):
                counts[old] = counts.get(old, 0) + 1
            return old

        _rewritten(language, text, count)
        own = [name for name, number in counts.items() if number > 1 and name not in ("self", "this", "String", "int")]
        chosen = draw.sample(own, round(len(own) * share))
        syllables = ["ba", "do", "ki", "lu", "me", "no", "pa", "ra", "si", "to", "ve", "xu"]
        new = {name: "".join(draw.choices(syllables, k=3)) for name in chosen}
        return _rewritten(language, text, lambda what, old: new.get(old, old) if what == "name" else old)

    return edit


def _literals_changed(language: str, text: str, draw: random.Random) -> str:
    def change(what: str, old: str) -> str:
        if what == "number":
            return str(draw.randrange(1000))
        if what == "text" and len(old) > 4 and "\n" not in old and old[0] in "\"'":
            return old[0] + " ".join(draw.choices(("alpha", "beta", "gamma", "delta"), k=2)) + old[-1]
        return old

    return _rewritten(language, text, change)


def _reformatted(language: str, text: str, draw: random.Random) -> str:
    """Other indentation, blank lines and spaces; in the family of C other line ends too."""
    if language == "Python":
        return re.sub(r"(?m)^( +)", lambda m: m.group() * 2, text.replace(", ", ",").replace(" = ", "="))
    return re.sub(r"\s*\{\s*", "\n{\n", text.replace(", ", ",").replace(" = ", "="))


def _parts(language: str, text: str) -> list[str]:
    """Top-level definitions (Python, Go, JavaScript), or members of a class (Java)."""
    starts = {
        "Python": r"(?m)^(?=(?:def|class|@|    def)\b)",
        "Go": r"(?m)^(?=(?:func|type|var|const)\b)",
        "Java": r"(?m)^(?=    (?:public|private|protected|static|final)\b)",
    }.get(language, r"(?m)^(?=(?:function|class|const|module|async|static|int|void)\b)")
    return re.split(starts, text)


def _functions_moved(language: str, text: str, draw: random.Random) -> str:
    head, *parts = _parts(language, text)
    last = [parts.pop()] if language == "Java" and parts else []
    draw.shuffle(parts)
    return "".join([head, *parts, *last])


def _statements_inserted(language: str, text: str, draw: random.Random) -> str:
    """A statement that does nothing after one line in six."""
    end = "" if language in ("Python", "Go") else ";"
    out = []
    for line in text.splitlines():
        out.append(line)
        if draw.random() < 1 / 6 and line.strip().endswith((";", ")")):
            indent = line[: len(line) - len(line.lstrip())]
            out.append(f"{indent}{draw.choice('uvwxyz')}{draw.randrange(9)} = {draw.randrange(100)}{end}")
    return "\n".join(out)


def _dead_code(language: str, text: str, draw: random.Random) -> str:
    """A third of its own parts once more, under other names: code that nobody calls."""
    head, *parts = _parts(language, text)
    again = [_names_changed(1.0)(language, part, draw) for part in draw.sample(parts, (len(parts) + 2) // 3)]
    return "".join([head, *again, *parts])


class _OtherControl(ast.NodeTransformer):
    """`if` with the branches exchanged, `x += y` written out, `for` as a `while` over a list that shrinks."""

    def visit_If(self, node: ast.If) -> ast.AST:
        """Exchange the branches, if there are two."""
        self.generic_visit(node)
        return ast.If(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body) if node.orelse else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """Write the sum out."""
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        return ast.Assign([node.target], ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value), lineno=0)

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        """Take the first of what is left, as long as something is."""
        self.generic_visit(node)
        if node.orelse or not isinstance(node.target, ast.Name):
            return node
        left, taken = ast.parse(f"left = list({ast.unparse(node.iter)})\n{node.target.id} = left.pop(0)").body
        return [left, ast.While(ast.Name("left", ast.Load()), [taken, *node.body], [])]


def _control_changed(language: str, text: str, draw: random.Random) -> str:
    if language != "Python":
        swapped = re.sub(r"(\w+)\s*\+\+", r"\1 += 1", text)
        return re.sub(r"for \(([^;()]*);([^;()]*);([^;()]*)\) \{", r"\1; while (\2) { \3;", swapped)
    return ast.unparse(_OtherControl().visit(ast.parse(text)))


def _plagiarised(language: str, text: str, draw: random.Random) -> str:
    """All names changed, comments gone, functions moved, literals changed, statements inserted."""
    for edit in (_comments_changed, _functions_moved, _literals_changed, _statements_inserted, _names_changed(1.0)):
        text = edit(language, text, draw)
    return text


CODE_EDITS: dict[str, Callable[[str, str, random.Random], str]] = {
    "comments stripped": _comments_stripped,
    "comments changed": _comments_changed,
    "half of names changed": _names_changed(0.5),
    "all own names changed": _names_changed(1.0),
    "literals changed": _literals_changed,
    "reformatted": _reformatted,
    "functions moved": _functions_moved,
    "statements inserted": _statements_inserted,
    "dead code added": _dead_code,
    "control flow changed": _control_changed,
    "plagiarised: five of these": _plagiarised,
}


def code_pairs(count: int) -> Iterator[LabelledPairs]:
    """Small files of several languages, and Python functions as small programs, `count` pairs of each label."""
    for language, files in code_files(count).items():
        small = [(package, text) for package, text in files if 1200 <= len(text) <= 8000]
        random.Random(SEED).shuffle(small)
        yield _labelled_code(f"{language} files", language, small, PACKAGE, count)
    yield _labelled_code("Python functions", "Python", python_functions(100 * count), TASK, count)


def _labelled_code(name: str, language: str, texts: list[tuple[str, str]], strangers: str, count: int) -> LabelledPairs:
    """`count` pairs of each edit; strangers are texts of one group (package, task); the rest are others."""
    draw = random.Random(SEED)
    count = min(count, len(texts) // 30)
    pairs = []
    waiting: dict[str, str] = {}
    hard = 0
    rest = []
    for group, text in texts:  # strangers first: they are the rare ones
        if hard < 6 * count and group in waiting:
            first, lines = waiting.pop(group), set(text.split("\n"))
            common = sum(line in lines for line in first.split("\n") if line.strip())
            if 2 * common < min(len(lines), first.count("\n")):  # else they are copies that nobody labelled
                pairs.append(Pair(strangers, first, text))
                hard += 1
        elif hard < 6 * count:
            waiting[group] = text
        else:
            rest.append(text)
    rest = list(waiting.values()) + rest
    draw.shuffle(rest)
    for label, edit in CODE_EDITS.items():
        made = 0
        while made < count and rest:
            text = rest.pop()
            try:
                changed = edit(language, text, draw)
            except (SyntaxError, RecursionError, ValueError):
                continue
            if changed.split() != text.split() or label == "reformatted":
                pairs.append(Pair(label, text, changed))
                made += 1
    return LabelledPairs(name, "code", language, pairs, rest[: 4 * len(pairs)])


def code_files(count: int) -> dict[str, list[tuple[str, str]]]:
    """Source files on this machine by language, each with its package: its folder.

    Python is this environment's; Go, JavaScript and Java are what `go`, `npm` and JAVA_HOME bring, where they are.
    """
    found = {"Python": [(str(number // 12), text) for number, text in enumerate(python_files(150 * count))]}
    for language, command, up, folder, ending in (
        ("Go", "go", 2, "src", "*.go"),
        ("JavaScript", "npm", 2, "node_modules", "*.js"),
    ):
        command_path = shutil.which(command)
        if command_path is not None:
            root = Path(command_path).resolve().parents[up - 1] / folder
            paths = sorted(path for path in root.rglob(ending) if path.is_file() and path.stat().st_size <= 8000)
            found[language] = [(str(path.parent), path.read_text(encoding="utf-8", errors="replace")) for path in paths]
    sources = Path(os.environ.get("JAVA_HOME", "")) / "lib" / "src.zip"
    if sources.is_file():
        with zipfile.ZipFile(sources) as archive:
            entries = [one for one in archive.infolist() if one.filename.endswith(".java") and one.file_size <= 12_000]
            java = [(one.filename.rsplit("/", 1)[0], archive.read(one).decode("utf-8", "replace")) for one in entries]
        # Without the licence, so that they are programs as students write them.
        found["Java"] = [(package, re.sub(r"\A\s*/\*.*?\*/", "", text, flags=re.DOTALL)) for package, text in java]
    return found


def python_functions(count: int) -> list[tuple[str, str]]:
    """Functions of 8 to 60 lines of this environment with their names, one of a name and file; no two of equal code."""
    found: list[tuple[str, str]] = []
    seen: set[str] = set()
    for text in python_files(count):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        lines = text.splitlines()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and 8 <= (node.end_lineno or 0) - node.lineno <= 60:
                body = ast.dump(ast.Module(node.body, []))
                if body not in seen:
                    seen.add(body)
                    part = lines[node.lineno - 1 : node.end_lineno]
                    found.append((node.name, "\n".join(line[node.col_offset :] for line in part)))
    random.Random(SEED).shuffle(found)
    return found
