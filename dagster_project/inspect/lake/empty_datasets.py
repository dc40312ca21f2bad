"""Why a dataset has no document, in one line: nothing arrived, or all that did was refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from pyiceberg.expressions import EqualTo

from headrace.tables.quarantine import quarantine_of
from spark_jobs.lake.ledger.ledger import Ledger

_SHOWN = 3


def empty_datasets(ledger: Ledger, namespaces: Collection[str]) -> Iterator[str]:
    """A line for each dataset without a document; none for those of which increments wait in quarantine.

    Args:
        ledger: refreshed.
        namespaces: the examined ones; corpora among them have no line.
    """
    for name in sorted(namespaces):
        landed, arrivals = ledger.places(f"{name}.documents"), ledger.table(f"{name}.arrivals")
        waits = ledger.table(f"{quarantine_of(name)}.arrivals") is not None
        if arrivals is None or waits or any(row.row_count for row in landed.values()):
            continue
        reasons, detail = Counter[str](), ""
        rejected = arrivals.scan(EqualTo("status", "rejected"), selected_fields=("reason", "detail"))
        for batch in rejected.to_arrow_batch_reader():
            reasons.update(batch.column("reason").to_pylist())
            detail = detail or str(batch.column("detail")[0]) if len(batch) else detail
        if not reasons:
            yield f"{name} has no document: its source holds no file; see what its declaration names"
            continue
        listed = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common(_SHOWN))
        look = f"headrace table show {name}.arrivals --rows 20"
        yield f"{name} has no document: all that arrived was refused ({listed}; such as: {detail}); look: {look}"
