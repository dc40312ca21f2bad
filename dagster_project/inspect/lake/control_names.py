"""The names of control tokens in the texts of a corpus, where they are letters or become their tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo

from headrace.kernels.control_names import HeldName, NameFinder, told
from headrace.tables.catalogue import load_table
from spark_jobs.lake.files.lookups import read_batches, read_columns
from spark_jobs.lake.ledger.ledger import Ledger
from spark_jobs.tokens.token_statistics import names_of_tokenizer
from spark_jobs.tokens.tokens import RENDERED

STATISTICS = "token_statistics"
_COLUMNS = ("dataset", "document_count", "control_names")


def named_in_texts(ledger: Ledger, namespaces: Collection[str]) -> Iterator[str]:
    """Lines for each dataset of a corpus whose newest increment has names of control tokens in its texts.

    Args:
        ledger: refreshed.
        namespaces: the examined corpora; datasets among them have no line.
    """
    for name in sorted(namespaces):
        encoded, counted = (ledger.increments(f"{name}.{table}") for table in ("tokens", STATISTICS))
        if not encoded:
            continue
        table = load_table(ledger.catalogue, f"{name}.tokens")
        if table is not None and (rendered := table.properties.get(RENDERED)):
            yield f"{name}.tokens: rendered by {rendered}"
        newest = max(encoded)
        if newest not in counted:
            yield (
                f"{name}.tokens: whether texts of increment {newest} hold names of control tokens is not counted yet: "
                f"headrace run {name}.{STATISTICS}"
            )
            continue
        for dataset, total, names in _by_dataset(ledger.catalogue, name, newest):
            if names:
                sentence = told(names, total, f"documents of {dataset} in increment {newest}")
                yield f"{name}.tokens: {sentence}; look: headrace doc why DOC"


def names_in(catalogue: Catalog, corpus: str, text: str) -> str:
    """Say which names of control tokens of a corpus's tokenizer a text holds; empty where it holds none."""
    rows = read_columns(catalogue, f"{corpus}.tokenizer", ("file",))
    if rows is None or not rows.num_rows:
        return ""
    names = names_of_tokenizer(rows["file"][0].as_py())
    data = np.frombuffer(text.encode(), np.uint8)
    numbers = {int(name) for name in NameFinder(names).find(data, np.array([0, data.size]))[1]}
    sentence = (
        f"`{names[at].name}`, which is {'letters' if names[at].is_letters else 'its token'} here"
        for at in sorted(numbers)
    )
    return ", ".join(sentence)


def _by_dataset(catalogue: Catalog, corpus: str, increment: int) -> Iterator[tuple[str, int, list[HeldName]]]:
    """Each dataset of an increment with its documents, and the names in them, letters first."""
    table = load_table(catalogue, f"{corpus}.{STATISTICS}")
    if table is None or "control_names" not in table.schema().column_names:
        return
    totals, counts = Counter[str](), Counter[tuple[str, str, bool]]()
    for batch in read_batches(catalogue, f"{corpus}.{STATISTICS}", _COLUMNS, EqualTo("increment", increment)):
        for row in batch.to_pylist():
            totals[row["dataset"]] += row["document_count"]
            for name_row in row["control_names"] or ():
                counts[row["dataset"], name_row["name"], name_row["is_letters"]] += name_row["document_count"]
    for dataset, total in sorted(totals.items()):
        names = [HeldName(*key[1:], count) for key, count in counts.items() if key[0] == dataset]
        yield dataset, total, sorted(names, key=lambda name: (not name.is_letters, -name.texts, name.name))
