"""What a run says of names of control tokens that stand in the texts of a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models

from dagster_project.inspect.lake.control_names import named_in_texts, names_in
from headrace.tables.settings import load_settings
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.tokens.token_statistics import TOKEN_STATISTICS
from spark_jobs.tokens.tokenizer import TOKENIZER
from spark_jobs.tokens.tokens import TOKENS
from tests.dagster_project.inspect.test_lake_status import put


def row(dataset: str, language: str, count: int, **names: int) -> dict[str, Any]:
    """A row of `token_statistics`."""
    held = [{"name": f"<|{name}|>", "is_letters": name != "tool", "document_count": of} for name, of in names.items()]
    return {"dataset": dataset, "language": language, "document_count": count, "used_ids": b"", "control_names": held}


def test_names_of_the_newest_increment_are_told_by_dataset(lake_env: Path) -> None:
    """Languages of a dataset add up; a dataset without any says nothing, nor does one that is no corpus."""
    catalogue = open_catalogue(load_settings())
    put(catalogue, "main", TOKENS, 0, [])
    put(catalogue, "main", TOKEN_STATISTICS, 0, [row("code", "C", 9, im_end=9)])
    put(catalogue, "main", TOKENS, 1, [])
    lines = list(named_in_texts(Ledger.fresh(catalogue), {"main", "notes"}))
    assert lines == [
        "main.tokens: whether texts of increment 1 hold names of control tokens is not counted yet: "
        "headrace run main.token_statistics"
    ]
    rows = [row("chats", "en", 3000, im_end=3000, tool=7), row("chats", "de", 1000, im_end=1000), row("code", "C", 5)]
    put(catalogue, "main", TOKEN_STATISTICS, 1, rows)
    (line,) = named_in_texts(Ledger.fresh(catalogue), {"main", "notes"})
    assert line == (
        "main.tokens: `<|im_end|>` in 4,000 of 4,000 documents of chats in increment 1: it is letters here; "
        "`<|tool|>` in 7 of 4,000 documents of chats in increment 1: it is its token here; "
        "look: headrace doc why DOC"
    )


def test_names_in_a_document_are_told(lake_env: Path) -> None:
    """With what they are there; a corpus without a tokenizer says nothing."""
    catalogue = open_catalogue(load_settings())
    assert names_in(catalogue, "main", "<|im_end|>") == ""
    made = Tokenizer(models.BPE())
    made.add_special_tokens(["<|im_end|>"])
    made.add_tokens(["<|tool|>"])
    put(catalogue, "main", TOKENIZER, 0, [{"file": made.to_str(), "special_tokens": [("<|im_end|>", 0)]}])
    said = "`<|im_end|>`, which is letters here, `<|tool|>`, which is its token here"
    assert names_in(catalogue, "main", "a <|tool|> b <|im_end|><|im_end|>") == said
    assert names_in(catalogue, "main", "") == names_in(catalogue, "main", "<|im_en|>") == ""
