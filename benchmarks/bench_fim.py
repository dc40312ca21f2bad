"""Code cut to fill in the middle, beside the same code encoded as it is: cost, tokens, fill of windows.

Python sources of the environment in a vocabulary of bytes trained on them; half of the documents are cut, half of these
written as SPM. Seconds of the processor of all processes, the parser's among them, by turns, the least of three tries;
every cut document is undone and compared with its text. Windows are packed best-fit, rows as they are.
"""

from __future__ import annotations

import itertools

import command
import numpy as np
import pyarrow as pa
from corpora import distinct, source_paths, up_to
from cpu_time import of_all_processes
from tokenizers import Tokenizer

import headrace
from headrace_features.objectives.config import ObjectivesConfig
from headrace_features.objectives.tokens import ObjectivesTask, _encoded, task_of
from headrace_features.objectives.undo import undo
from spark_jobs.tokens.hf_tokenizer import train_byte_pairs
from spark_jobs.tokens.tokens import Encoding, _encode

_WINDOW = 2048
_SENTINELS = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>")


def main() -> None:
    """Measure each cut."""
    arguments = command.parser(__doc__)
    arguments.add_argument("--megabytes", type=float, default=40, help="of code")
    given = command.read(arguments, megabytes=1)
    texts = up_to(distinct(source_paths()), given.megabytes * 1e6)
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    row = _tokenizer(texts[:2000])
    documents = pa.RecordBatch.from_pydict(
        {
            "dataset": ["code"] * len(texts),
            "shard": pa.array([0] * len(texts), pa.int32()),
            "doc_id": [str(number) for number in range(len(texts))],
            "kind": ["code"] * len(texts),
            "language": ["Python"] * len(texts),
            "content": texts,
        }
    )
    certificate = task_of(_config("character", 0.0), row, None).certificate
    tasks = {
        "plain": None,
        **{cut: task_of(_config(cut, 0.5), row, certificate) for cut in ("character", "line", "syntax")},
    }
    print(f"{len(texts):,} files, {megabytes:.1f} MB, windows of {_WINDOW:,}")
    spent: dict[str, float] = {}
    tables: dict[str, pa.Table] = {}
    for _, (name, task) in itertools.product(range(3), tasks.items()):
        begun = of_all_processes()
        batches = (
            _encode([documents], Encoding(row["file"], row["vocabulary_size"], certificate, 1 << 18))
            if task is None
            else _encoded([documents], task)
        )
        tables[name] = pa.Table.from_batches(batches)
        spent[name] = min(spent.get(name, 1e9), of_all_processes() - begun)
    plain = sum(tables["plain"]["token_count"].to_numpy()) + len(texts)
    for name, table in tables.items():
        rows = _rows(table, row["end_of_document_id"])
        fill, tokens = headrace.pack(rows, _WINDOW).utilisation, sum(map(len, rows))
        cost = f"{megabytes / spent[name]:.0f} MB/s, {spent[name] / spent['plain']:.2f} of plain"
        forms = "" if name == "plain" else f", {_compared(table, documents, tasks[name]):,} rows cut"  # type: ignore[arg-type]
        print(f"{name}: {cost}; {tokens:,} tokens ({tokens / plain:.4f}); windows {fill:.3%} full{forms}", flush=True)


def _tokenizer(texts: list[str]) -> dict[str, object]:
    """A row of the table `tokenizer`."""
    tokenizer = Tokenizer.from_str(train_byte_pairs(texts, 16_384, 2))
    tokenizer.add_special_tokens([*_SENTINELS])
    size = tokenizer.get_vocab_size()
    return {"file": tokenizer.to_str(), "sha256": "", "vocabulary_size": size, "end_of_document_id": 0}


def _config(cut: str, rate: float) -> ObjectivesConfig:
    kinds = {"code": {"fim": {"rate": rate, "spm": 0.5, "cut": cut}}}
    return ObjectivesConfig.model_validate({"kinds": kinds, "max_tokens": _WINDOW})


def _rows(table: pa.Table, end: int) -> list[np.ndarray]:
    """Ids of each row of each document, with its end."""
    ids = [np.append(values, np.int32(end)) for values in (one.values.to_numpy() for one in table["input_ids"])]
    if "row_starts" not in table.column_names:
        return ids
    return [part for one, at in zip(ids, table["row_starts"].to_pylist(), strict=True) for part in np.split(one, at)]


def _compared(table: pa.Table, documents: pa.RecordBatch, task: ObjectivesTask) -> int:
    """Rows that are cut in three; an error where a document does not come back."""
    library = Tokenizer.from_str(task.file_text)
    for text, row in zip(documents["content"].to_pylist(), table.to_pylist(), strict=True):
        parts = np.split(np.array(row["input_ids"], np.int64), row["row_starts"])
        again = "".join(
            undo(part.tolist(), task.sentinels["code"], 0, lambda ids: library.decode(ids, skip_special_tokens=False))
            for part in parts
        )
        if again != text:
            raise SystemExit(f"document {row['doc_id']} does not come back")
    return sum(form != "whole" for forms in table["forms"].to_pylist() for form in forms)


if __name__ == "__main__":
    main()
