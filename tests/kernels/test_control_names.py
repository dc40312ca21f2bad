"""Names of control tokens are found in texts as a plain search finds them, and told with counts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models

from headrace.kernels.control_names import ControlName, HeldName, NameFinder, control_names, held, told
from tests.tiers import tries

LETTERS = st.text("ab<|é", max_size=9)


@settings(max_examples=tries(500))
@given(st.lists(st.text("ab<|é", min_size=1, max_size=4), unique=True, max_size=6), st.lists(LETTERS, max_size=6))
def test_each_name_of_each_text_is_found_once(names: list[str], texts: list[str]) -> None:
    """Names that begin, end or lie inside one another, and none that goes over the end of a text."""
    data = [text.encode() for text in texts]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in data])]).astype(np.int64)
    finder = NameFinder([ControlName(name, True) for name in names])
    found = finder.find(np.frombuffer(b"".join(data), np.uint8), starts)
    expected = [(at, of) for at, text in enumerate(texts) for of, name in enumerate(names) if name in text]
    assert sorted(zip(*(one.tolist() for one in found), strict=True)) == expected
    assert (np.diff(found[0]) >= 0).all()


def test_names_are_those_of_special_tokens_and_of_what_looks_like_one() -> None:
    """By the tokenizer's file alone; which are letters is what encoding them gives."""
    made = Tokenizer(models.BPE({"<|in|>": 0, "a": 1}, []))
    made.add_special_tokens([AddedToken("<s>", special=True), AddedToken("plain words", special=True)])
    others = ["<|im_end|>", "<｜User｜>", "<start_of_turn>", "[INST]", "[/INST]", "<td>", "\n\n", "word", "[a]"]
    made.add_tokens([AddedToken(name, special=False) for name in others])
    made.encode_special_tokens = True
    found = control_names(made.to_str(), lambda text: made.encode(text, add_special_tokens=False).ids)
    assert {one.name: one.is_letters for one in found} == {
        "<s>": True,
        "plain words": True,
        **dict.fromkeys(["<|im_end|>", "<｜User｜>", "<start_of_turn>", "[INST]", "[/INST]"], False),
    }
    assert not control_names(Tokenizer(models.BPE()).to_str(), lambda text: [])


def test_counts_are_told_letters_first() -> None:
    """A line for a person: at most five names, nothing that would change a terminal."""
    names = [ControlName(f"<|{at}|>", at > 1) for at in range(8)]
    said = told(held(names, [4000, 9, 0, 1, 2, 3, 4, 5]), 4000)
    assert said.startswith("`<|7|>` in 5 of 4,000 rows: it is letters here; `<|6|>` in 4 of 4,000 rows: it is letters")
    assert said.endswith("; 2 more names")
    assert told(held(names, [4000] + [0] * 7), 4000, "texts") == "`<|0|>` in 4,000 of 4,000 texts: it is its token here"
    assert told([], 7) == ""
    assert told([HeldName("\x1b[2J\n", True, 1)], 1) == "`\\u001b[2J\\u000a` in 1 of 1 rows: it is letters here"
