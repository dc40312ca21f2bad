"""What fill in the middle promises: whom it cuts, where, in which form; the ids of Megatron for the same cuts."""

from __future__ import annotations

import ast
import bisect
import sysconfig
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_features.objectives.config import FimConfig
from headrace_features.objectives.cuts import Draws, character_places, letter_start, line_places, node_places
from headrace_features.objectives.fim import NO_NODE, PSM, SPM, WHOLE, FimChoice, choose, lay_out
from headrace_features.objectives.layout import LaidOut, LayoutEncoder, Span
from headrace_features.objectives.sentinels import Sentinels
from headrace_features.objectives.syntax import KINDS, nodes_of
from headrace_features.objectives.undo import undo
from spark_jobs.tokens.certificate import certify
from tests.headrace_features.objectives.fim_tokenizer import fim_tokenizer, library_of
from tests.headrace_features.objectives.sources import SOURCES

_ALL = st.integers(0, 2**64 - 1)
_DRAWS = st.builds(Draws, _ALL, _ALL, _ALL)
_LETTERS = st.lists(
    st.sampled_from(
        [
            "a",
            "\r\n",
            "\n",
            "\r",
            " ",
            "e\u0301",
            "\u0301",
            "ä",
            "🇩🇪",
            "🇫",
            "👩‍💻",
            "👍🏽",
            "각",
            "\u1100\u1161\u11a8",
            "한",
            "ก็",
            "장",
        ]
    ),
    max_size=24,
).map("".join)


def megatron(
    contents: str, bounds: tuple[int, int], is_spm: bool, ids: Sentinels, encode: Callable[[str], list[int]]
) -> list[int]:
    """As `GPTFIMDataset._fim_permute_sequence` of Megatron-LM writes a sample, for cuts that are drawn already."""
    prefix, middle, suffix = contents[: bounds[0]], contents[bounds[0] : bounds[1]], contents[bounds[1] :]
    if is_spm:
        return [ids.prefix, ids.suffix, *encode(suffix), ids.middle, *encode(prefix), *encode(middle)]
    return [ids.prefix, *encode(prefix), ids.suffix, *encode(suffix), ids.middle, *encode(middle)]


@settings(deadline=None, max_examples=100)
@given(text=_LETTERS, draws=_DRAWS, is_spm=st.booleans(), order=st.sampled_from(["prefix_suffix", "suffix_prefix"]))
def test_ids_are_those_of_megatron_for_the_same_cuts(text: str, draws: Draws, is_spm: bool, order: str) -> None:
    """PSM and SPM of either order; and undone they are the text."""
    file_text, ids = fim_tokenizer()
    library = library_of(file_text)

    def encode(part: str) -> list[int]:
        return library.encode(part, add_special_tokens=False).ids

    config = FimConfig(spm_order=order, least=0)
    laid = lay_out(text, Span(0, len(text)), config, FimChoice(True, is_spm, draws), ids, "not parsed")
    (row,) = LayoutEncoder(file_text, certify_once(file_text), 1 << 18).encode([LaidOut(text, laid.layout, "d")])
    if not text:
        assert laid.form == WHOLE
        return
    places = character_places(text, Span(0, len(text)), draws)
    bounds = (places.start, places.end)
    wanted = megatron(text, bounds, is_spm, ids, encode)
    if is_spm and order == "suffix_prefix":
        prefix, middle, suffix = text[: bounds[0]], text[bounds[0] : bounds[1]], text[bounds[1] :]
        wanted = [ids.suffix, *encode(suffix), ids.prefix, *encode(prefix), ids.middle, *encode(middle)]
    assert row.ids.tolist() == wanted and laid.form == (SPM if is_spm else PSM)
    decode = lambda part: library.decode(part, skip_special_tokens=False)  # noqa: E731
    assert undo(wanted, ids, 0, decode) == text == undo([*wanted, 0], ids, 0, decode)


def certify_once(file_text: str):  # type: ignore[no-untyped-def]
    """One certificate for all examples."""
    if file_text not in _CERTIFICATES:
        _CERTIFICATES[file_text] = certify(file_text)
    return _CERTIFICATES[file_text]


_CERTIFICATES: dict[str, object] = {}


@given(text=_LETTERS, at=st.integers(0, 60))
def test_no_place_is_inside_of_a_letter(text: str, at: int) -> None:
    """Places are ends of what Unicode calls a grapheme cluster, and any such end is one."""
    ends = [0, *(match.end() for match in regex.finditer(r"\X", text))]
    place = min(at, len(text))
    assert letter_start(text, place) == ends[bisect.bisect_right(ends, place) - 1]


@given(text=_LETTERS, draws=_DRAWS, first=st.integers(0, 20))
def test_lines_are_cut_at_their_ends(text: str, draws: Draws, first: int) -> None:
    """A line at least lies between the two places, both at ends of lines; a single line is cut at letters."""
    span = Span(min(first, len(text)), len(text))
    places = line_places(text, span, draws)
    ends = {span.start, span.end, *(at for at in range(span.start, span.end + 1) if text[at - 1 : at] == "\n")}
    if len(ends) > 2:
        assert {places.start, places.end} <= ends and places.start < places.end and places.cut == "line"
    else:
        assert places.cut == "character"


def test_shares_lie_within_bounds_of_chance() -> None:
    """Of many documents: rate of rows, share of SPM; all and none where a share is 1 or 0; other epochs cut others."""
    config, count = FimConfig(rate=0.3, spm=0.7, seed=5), 40_000
    drawn = [choose(config, f"document {number}") for number in range(count)]
    cut = [choice for choice in drawn if choice.is_cut]
    for wanted, of, got in ((0.3, count, len(cut)), (0.7, len(cut), sum(choice.is_spm for choice in cut))):
        assert abs(got - wanted * of) < 4.5 * (of * wanted * (1 - wanted)) ** 0.5
    again = [choose(config, f"document {number}", epoch=1).is_cut for number in range(count)]
    both = sum(one.is_cut and other for one, other in zip(drawn, again, strict=True))
    assert abs(both - 0.09 * count) < 4.5 * (count * 0.09 * 0.91) ** 0.5
    assert all(choose(FimConfig(rate=1), str(number)).is_cut for number in range(1000))
    assert not any(choose(FimConfig(rate=0), str(number)).is_cut for number in range(1000))
    other = [choose(config.model_copy(update={"seed": 6}), f"document {number}").is_cut for number in range(count)]
    assert 0.5 < sum(one.is_cut == two for one, two in zip(drawn, other, strict=True)) / count < 0.65


def test_places_are_as_likely_all_over_a_text() -> None:
    """Both ends of the middle, drawn independently: a histogram of ten parts is flat but for chance."""
    text, counts = "x" * 9, Counter[int]()
    for number in range(20_000):
        places = character_places(text, Span(0, 9), choose(FimConfig(), str(number)).draws)
        counts.update((places.start, places.end))
    assert set(counts) == set(range(10))
    assert all(abs(count - 4000) < 4.5 * (40_000 * 0.1 * 0.9) ** 0.5 for count in counts.values())


def test_draws_never_change() -> None:
    """The same in every version, on every machine."""
    choice = choose(FimConfig(seed=7, rate=0.9), "sha256:1", epoch=2, row=3)
    assert (choice.is_cut, choice.is_spm, *choice.draws) == GOLDEN


GOLDEN = (True, False, 18368273464567507682, 6570365900497634483, 1436896811064553816)


def test_short_texts_are_left_whole() -> None:
    """A text of fewer characters than `least`, and a row of a longer one."""
    choice, ids = FimChoice(True, False, Draws(1 << 63, 1 << 62, 0)), Sentinels(1, 2, 3)
    for text, span, form in (
        ("x" * 9, Span(0, 9), WHOLE),
        ("x" * 10, Span(0, 10), PSM),
        ("x" * 30, Span(20, 29), WHOLE),
    ):
        assert lay_out(text, span, FimConfig(rate=1), choice, ids, "").form == form


def test_languages_without_a_parser_are_cut_by_lines_and_say_so() -> None:
    """So are files whose tree has no node there."""
    text, config, ids = "line one\nline two\n", FimConfig(rate=1, cut="syntax"), Sentinels(1, 2, 3)
    choice = choose(config, "d")
    answers = nodes_of([("COBOL", text), ("Python", "# x\n"), (None, text)])
    assert answers[0] == "no parser of COBOL" and answers[2] == "no parser of a language not known"
    for nodes, reason in zip(answers, (answers[0], NO_NODE, answers[2]), strict=True):
        laid = lay_out(text, Span(0, len(text)), config, choice, ids, nodes)
        assert (laid.cut, laid.fell_back) == ("line", reason)


@pytest.mark.parametrize("language", SOURCES)
def test_nodes_of_all_kinds_are_cut(language: str) -> None:
    """Over many draws middles of all four kinds, whole nodes in characters, and each is a node of the list."""
    text = SOURCES[language] * 3
    (nodes,) = nodes_of([(language, text)])
    assert not isinstance(nodes, str)
    data, kinds = text.encode(), set()
    spans = {(start, end): kind for kind, start, end in nodes.tolist()}
    for number in range(400):
        places = node_places(text, Span(0, len(text)), choose(FimConfig(), str(number)).draws, nodes)
        assert places is not None and places.cut == "syntax"
        middle = text[places.start : places.end].encode()
        start = len(text[: places.start].encode())
        assert data[start : start + len(middle)] == middle
        kinds.add(KINDS[spans[start, start + len(middle)]])
    assert kinds == set(KINDS)


@pytest.mark.parametrize("comment", ["  # why", "\n    # and so on", "\n\n    # one\n    # other"])
def test_a_block_ends_before_the_comment_behind_it(comment: str) -> None:
    """As the function around it does, whatever Python's grammar says."""
    text = f"def f(x):\n    return g(x){comment}\n\n\ny = 1\n"
    (nodes,) = nodes_of([("Python", text)])
    assert not isinstance(nodes, str)
    ends = {KINDS[kind]: text[start:end].encode() for kind, start, end in nodes.tolist() if start in (0, 14)}
    assert ends["block"] == b"return g(x)" and ends["statement"].endswith(b"return g(x)")


def _ast_spans(source: str) -> set[tuple[int, int]]:
    """(start, end) in bytes of what Python's parser has: statements, expressions, blocks, arguments of calls."""
    lines = np.cumsum([0, *(len(line.encode()) for line in source.splitlines(keepends=True))])
    data, spans = source.encode(), set()

    def span(node: ast.AST) -> tuple[int, int]:
        first = getattr(node, "decorator_list", None)
        top = first[0] if first else node
        start = int(lines[top.lineno - 1]) + top.col_offset  # type: ignore[attr-defined]
        start = data.rindex(b"@", 0, start) if first else start
        return start, int(lines[node.end_lineno - 1]) + node.end_col_offset  # type: ignore[attr-defined]

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt | ast.expr):
            spans.add(span(node))
            start = int(lines[node.lineno - 1]) + node.col_offset
            spans.add((start, span(node)[1]))  # a definition without its decorators
        if isinstance(node, ast.Call):
            after = span(node.func)[1]
            spans.add((data.index(b"(", after), span(node)[1]))
        if isinstance(node, ast.ClassDef) and (node.bases or node.keywords):
            spans.add((data.index(b"(", span(node)[0]), -1))
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                spans.add((span(block[0])[0], span(block[-1])[1]))
    return spans


def test_middles_are_nodes_of_pythons_own_parser() -> None:
    """Of the standard library's files: 98 of 100 middles cut by syntax are a node of `ast`, comments aside."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = [
        folder / name for name in ("argparse.py", "ast.py", "calendar.py", "dataclasses.py", "heapq.py", "shutil.py")
    ]
    right, odd = 0, list[str]()
    for path in files:
        text = path.read_text()
        (nodes,) = nodes_of([("Python", text)])
        spans = _ast_spans(text)
        starts = Counter(start for start, end in spans if end == -1)
        for number in range(300):
            places = node_places(text, Span(0, len(text)), choose(FimConfig(), f"{path.name} {number}").draws, nodes)
            assert places is not None
            start, end = (len(text[:place].encode()) for place in places[:2])
            if (start, end) in spans or start in starts:
                right += 1
            else:
                odd.append(text[places.start : places.end])
    assert right / (right + len(odd)) >= 0.98, (len(odd), [text[:80] for text in odd[:20]])
