"""What the compiled measures must say: the same as the papers' definitions in plain Python, of any text."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.compiling import compiled
from headrace.kernels.mixing import plain_hash
from spark_jobs.filters.heuristics import measure
from spark_jobs.filters.heuristics.character_flags import character_flags
from spark_jobs.filters.heuristics.contractions import LONGEST, rule_shapes, rule_table, rules
from spark_jobs.filters.heuristics.heuristics import heuristics
from spark_jobs.filters.heuristics.measure import score
from spark_jobs.filters.heuristics.phrases import automaton
from spark_jobs.filters.heuristics.words import find_words
from spark_jobs.filters.scorer import check_scorer
from spark_jobs.threads import MadeOnce
from tests.spark_jobs.filters.heuristics.slow_measures import slow_measures

PIECES = [
    "a",
    "b ",
    " ",
    "\n",
    "\n\n",
    ".",
    "...",
    "…",
    "- ",
    "# ",
    "the cat sat.\n",
    "[1]",
    "[edit]",
    "{",
    "\r\n",
    "\x0c",
]
PIECES += [
    "I use cookies now.",
    " javascript ",
    "Lorem ipsum",
    "!",
    '"',
    "é",
    "日本",
    "\x00",
    "•",
    "\u2028",
    "foo(bar):",
    "don't",
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
    st.text(alphabet="ab \n", max_size=80),
    st.text(max_size=40),
)


found_by_kernel = compiled(find_words.py_func)  # inside kernels it is a part of them; here its code is kept too


def words_of(text: str) -> list[str]:
    """The words that the kernel finds."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    memory = measure._memory(1 << measure.CHUNK_BYTES.bit_length())
    memory.totals[:] = 0
    count = found_by_kernel(measure.reader(points, memory.addresses), 0, len(points))
    spans = zip(memory.starts[:count].tolist(), memory.lengths[:count].tolist(), strict=True)
    return [text[start : start + length] for start, length in spans]


def test_threads_measure_in_memory_of_their_own() -> None:
    """Tasks of Sail are threads, and the compiled code runs without the GIL: what one writes, no other reads."""
    size = 1 << measure.CHUNK_BYTES.bit_length()
    own = measure._memory(size)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(measure._memory, size).result()
    assert measure._memory(size) is own
    assert not np.shares_memory(own.hashes, other.hashes)


def test_tables_that_are_read_by_address_are_made_once() -> None:
    """A second one was read after it was given back."""
    assert {type(table) for table in (character_flags, rule_table, rule_shapes, automaton)} == {MadeOnce}


def one(text: str) -> dict[str, object]:
    """The measures of one text."""
    return {name: column[0].as_py() for name, column in score(pa.array([text])).items()}


@given(st.lists(TEXTS.filter(bool), min_size=1, max_size=8))
def test_measures_are_those_of_plain_python(texts: list[str]) -> None:
    """All texts of a column have the measures that the papers define, whatever stands beside them."""
    scored = score(pa.array(texts))
    for row, text in enumerate(texts):
        for name, expected in slow_measures(text, words_of(text)).items():
            value = scored[name][row].as_py()
            assert value == pytest.approx(expected, abs=1e-12), (name, text)


@given(TEXTS)
def test_words_are_the_text_without_its_white_space(text: str) -> None:
    """No character is lost or moved: words in a row are the text, its white space left out."""
    assert "".join(words_of(text)) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I can't, don't; won’t!", "I ca n't , do n't ; wo n’t !"),
        ("(see:don't)", "( see : don't )"),
        ("Dr. Who's U.S.A. (e.g. x).", "Dr. Who 's U.S.A. ( e.g. x ) ."),
        ("foo(bar, baz).qux()", "foo(bar , baz).qux ( )"),
        ("def f(self):", "def f(self ):"),
        ("self.x=1 a=b __init__", "self.x=1 a = b _ _ init _ _"),
        ("10km/h 5+3 $5 US$7 :-) 10am", "10 km/h 5 + 3 $ 5 US$ 7 :-) 10 am"),
        ("well-known so--x a—b end...", "well - known so -- x a — b end ..."),
        ("https://example.com/a,b?c=d see x@y.org.", "https://example.com/a,b?c=d see x@y.org ."),
        ("one.Two three,four and/or 5-6", "one . Two three , four and/or 5 - 6"),
    ],
)
def test_words_are_those_of_spacy(text: str, words: str) -> None:
    """Golden words of spaCy 3.8.18's blank English pipeline."""
    assert words_of(text) == words.split()


def test_rules_have_hashes_of_their_own() -> None:
    """No two rules share a hash, and none is longer than what is looked up."""
    made = rules()
    assert len({plain_hash(map(ord, text)) for text in made}) == len(made)
    assert max(map(len, made)) <= LONGEST
    assert all(sum(lengths) == len(text) for text, lengths in made.items())


def test_the_scorer_gives_what_it_declares() -> None:
    """Whatever the text."""
    found = check_scorer(heuristics, more=["Hi there.\n"])
    assert found.column("gopher_word_count").to_pylist()[-1] == 2


def test_rows_do_not_depend_on_their_column() -> None:
    """Order, neighbours, slices and the type of strings change no measure."""
    texts = [
        "The cat sat.\nThe cat sat.",
        "",
        "ünï",
        "x" * 300_000,
        "def f(self):\n    return 1\n" * 9,
        "日本語の文。" * 40,
    ]
    alone = [one(text) for text in texts]
    together = score(pa.array(["!", *texts, "?"], pa.large_string()).slice(1, len(texts)))
    assert [{name: column[row].as_py() for name, column in together.items()} for row in range(len(texts))] == alone


@pytest.mark.parametrize(
    "text", ["", " ", "\n\n", "\x00", "a", "\u200f", "\x00" * 5000, ")" * 5000, "a" * 5000, "#\n" * 500]
)
def test_odd_texts_have_a_value_or_null(text: str) -> None:
    """Nothing raises; fractions lie between 0 and 1, and nothing is NaN."""
    measured = one(text)
    for name in (name for name in measured if name.endswith("_fraction")):
        value = measured[name]
        assert value is None or name.startswith("top_") or (isinstance(value, float) and 0 <= value <= 1), name
    assert measured["gopher_mean_word_length"] is not None or not words_of(text) or measured["gopher_word_count"] == 0


def test_texts_without_spaces_have_words(real_data: object) -> None:
    """Chinese, Japanese and Thai have about as many words as their letters say, and no mean word length."""
    for code, letters_a_word in (("zh", 5 / 3), ("ja", 5 / 3), ("th", 4)):
        text = (real_data / "languages" / f"{code}.txt").read_text()  # type: ignore[operator]
        measured = one(text)
        letters = sum(character.isalpha() or not character.isascii() for character in text)
        assert measured["gopher_word_count"] == pytest.approx(letters / letters_a_word, rel=0.35)
        assert measured["gopher_mean_word_length"] is None


def test_a_repeated_phrase_is_found_without_spaces() -> None:
    """A sentence that returns in a text without spaces is cut alike wherever it stands."""
    phrase = "我们昨天在图书馆里看到了一本很有意思的书"
    other = "今天的天气比上个星期好得多所以孩子们都到公园里去玩了"
    assert one(phrase + other + phrase)["duplicate_5gram_character_fraction"] > 0.2  # type: ignore[operator]
    assert one(phrase + other)["duplicate_5gram_character_fraction"] == 0


def test_measures_of_pages() -> None:
    """What the papers do not define, by example."""
    log = one("2024-01-02 10:20:30 INFO started\n[error] no such file\nplain line\n")
    assert log["log_line_fraction"] == pytest.approx(2 / 3)
    trace = one('Traceback (most recent call last):\n  File "a.py", line 3, in f\n    x()\nat a.b(C.java:12)')
    assert trace["stack_trace_line_fraction"] == pytest.approx(3 / 4)
    assert one("see https://a.bc/d now")["link_fraction"] == pytest.approx(14 / 22)
    assert one("- a\n* b\n1. c\n(d) e\nf\n\n")["list_line_fraction"] == pytest.approx(4 / 5)
    assert one("| a | b |\n+---+---+\na   b   c\nplain")["table_line_fraction"] == pytest.approx(3 / 4)
    assert one("Lorem ipsum dolor sit amet. DO NOT EDIT")["placeholder_count"] == 3
    assert one("caf\u00c3\u00a9 \ufffd na\u00efve")["mojibake_count"] == 2
    assert one('<?xml version="1.0"?>')["xml_head"] is True
    assert one("x" * 100 + '<?xml version="1.0"?>')["xml_head"] is False
    assert one("ABc1")["capital_fraction"] == pytest.approx(2 / 3)
    assert one("abcd" * 1000)["compression_ratio"] < 0.02  # type: ignore[operator]
    assert one("One two three. Four five! Six?")["sentence_count"] == 3


def long_texts() -> Iterator[str]:
    """Texts of 100 MB: one line of one letter, of marks, of words; a line feed each."""
    for unit in ("a", ")", "ab ", "\n"):
        yield unit * (100_000_000 // len(unit))


@pytest.mark.nightly
def test_a_text_of_100_megabytes_is_measured() -> None:
    """Memory is bounded by bytes: no text is too long, and the words of all of it are counted."""
    for text in long_texts():
        measured = one(text)
        assert measured["gopher_word_count"] in (97_657, 0, 33_333_333)
