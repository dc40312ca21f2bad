"""A table of ids is never added to by an encoder that gives other ids than the one before it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.kernels.fixed_texts import (
    ENCODED_BY,
    FIXED_IDS,
    first_difference,
    first_unequal,
    fixed_ids,
    fixed_texts,
)
from spark_jobs.arrays import Int32Array
from spark_jobs.exceptions import InputError
from spark_jobs.lake.declare.step import Standing
from spark_jobs.lake.plan.binding import Binding
from spark_jobs.lake.run.materialize import Lake, materialize
from spark_jobs.tokens import encoder_guard, tokens
from spark_jobs.tokens.document_encoder import DocumentEncoder
from spark_jobs.tokens.encoder_guard import installed, require_same_encoder, same_reference
from spark_jobs.tokens.hf_tokenizer import load_encoder, load_reference
from spark_jobs.tokens.tokens import TokensConfig
from tests.conftest import LakeAt
from tests.spark_jobs.packing.encoders import changed, trained_tokenizer

DOC_ID = hashlib.sha256(b"").hexdigest()[:32]
DIGESTS = {
    "scripts": "9586e1e841a8",
    "digits": "52e7bb019807",
    "white space": "5969e780faf6",
    "contractions": "e56130f0c266",
    "code": "d4b23ab1baab",
    "signs": "7ccb62e39900",
    "normal forms": "f09f56f9b95e",
    "unassigned": "ec5c4a0f078e",
    "runs": "3bd4263bd53f",
    "names of tokens": "e3b0c44298fc",
}
OTHERS = {"the former": "tokenizers 0.22.0; gigatoken 0.9.0", "another": "tokenizers 0.24.0; gigatoken 0.11.0"}


def written(folder: Path, increment: int, text: str) -> dict[str, str]:
    """Inputs of `tokens` as Parquet files, by name: one document."""
    document = {"dataset": ["code"], "shard": pa.array([0], pa.int32()), "doc_id": [f"{DOC_ID[:-1]}{increment}"]}
    file = trained_tokenizer()
    tables = {
        "survivors": pa.table(document),
        "texts": pa.table({**document, "content": [text]}),
        "tokenizer": pa.table(
            {"file": [file], "sha256": [hashlib.sha256(file.encode()).hexdigest()], "vocabulary_size": [2000]}
        ),
    }
    paths = {name: str(folder / f"{name}-{increment}.parquet") for name in tables}
    for name, table in tables.items():
        pq.write_table(table, paths[name])
    return paths


def encode(lake: Lake, folder: Path, increment: int) -> Mapping[str, str]:
    """Compute an increment of `tokens`; the table's properties then."""
    inputs = written(folder, increment, f"text number {increment}")
    materialize(lake, Binding(tokens.tokens, "main", inputs, TokensConfig(use_fast_encoder=False), only=increment))
    return dict(lake.catalogue.load_table("main.tokens").properties)


class OtherDigits(DocumentEncoder):
    """An encoder that forgets the last id of a text with digits."""

    def encode(self, documents: Any) -> Any:
        """Ids, but for that."""
        for row, ids in enumerate(super().encode(documents)):
            yield ids[:-1] if b"1234" in bytes(documents.data(row)) else ids


@pytest.mark.nightly
def test_another_version_adds_to_tokens_only_where_it_gives_the_ids_that_are_recorded(
    lake_at: LakeAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same version compares nothing. Another is refused before anything is written, by both versions and a text."""
    lake = lake_at(tmp_path / "lake")
    first = encode(lake, tmp_path, 0)
    assert first[ENCODED_BY] == installed()
    recorded = json.loads(first[FIXED_IDS])
    assert recorded["digits"] == load_reference(trained_tokenizer()).encode(fixed_texts("{}")["digits"]).ids

    with monkeypatch.context() as same:
        same.setattr(tokens, "require_same_encoder", lambda *given, **named: pytest.fail("it costs nothing"))
        encode(lake, tmp_path, 1)
    monkeypatch.setattr(tokens, "installed", lambda: OTHERS["another"])
    monkeypatch.setattr(encoder_guard, "installed", lambda: OTHERS["another"])
    with monkeypatch.context() as other:
        other.setattr(tokens, "DocumentEncoder", OtherDigits)
        before = lake.catalogue.load_table("main.tokens").metadata
        with pytest.raises(InputError) as caught:
            encode(lake, tmp_path, 2)
        assert lake.catalogue.load_table("main.tokens").metadata.snapshots == before.snapshots
    said = str(caught.value)
    assert said.startswith(
        f"main.tokens: the fixed text 'digits' gets other ids from token {len(recorded['digits']) - 1}"
    )
    assert OTHERS["another"] in said and first[ENCODED_BY] in said and "\n" not in said

    now = encode(lake, tmp_path, 2)
    assert (now[ENCODED_BY], json.loads(now[FIXED_IDS])) == (OTHERS["another"], recorded)


@pytest.mark.nightly
def test_who_encodes_anew_is_recorded_where_rows_are_equal(
    lake_at: LakeAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no earlier increment nothing is compared; the rows that are there stay, and the record is the new one's."""
    lake = lake_at(tmp_path / "lake")
    encode(lake, tmp_path, 0)
    snapshots = lake.catalogue.load_table("main.tokens").metadata.snapshots
    monkeypatch.setattr(encoder_guard, "installed", lambda: OTHERS["another"])
    (tmp_path / "texts-0.parquet").unlink()
    assert encode(lake, tmp_path, 0)[ENCODED_BY] == OTHERS["another"]
    assert lake.catalogue.load_table("main.tokens").current_snapshot() == snapshots[-1]


class Stored:
    """A table of ids as far as the guard looks at it."""

    def __init__(self, properties: dict[str, str], rows: Sequence[dict[str, Any]] = ()) -> None:
        """Properties and rows of the table."""
        self.properties, self.rows = properties, rows

    def name(self) -> tuple[str, ...]:
        """As PyIceberg gives it."""
        return ("main", "tokens")


def reference_of(file_text: str) -> Callable[[Sequence[str]], Sequence[Int32Array]]:
    """The ids of texts by the library."""
    return lambda texts: list(load_encoder(file_text).encode(texts, 1 << 16))


def standing(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], stored: Mapping[str, list[int]]) -> Standing:
    """A table with documents of these ids; the text of each is its doc_id."""
    rows = [{"dataset": "code", "shard": 3, "doc_id": name, "input_ids": ids} for name, ids in stored.items()]
    monkeypatch.setattr(
        encoder_guard, "first_rows", lambda table, columns, count: pa.Table.from_pylist(table.rows[:count])
    )

    def read(catalogue: object, table: str, column: str, doc_ids: Sequence[str], narrow: object) -> dict[str, str]:
        assert (column, "3" in str(narrow)) == ("content", True)
        return {
            name: f"cut {name}" if table == "main.cut_texts" else name
            for name in doc_ids
            if name[0] in {"code.texts": "dc", "main.cut_texts": "c", "other.texts": ""}[table]
        }

    monkeypatch.setattr(encoder_guard, "read_wide_values", read)
    inputs = {"texts": ("other.texts", "code.texts"), "cut_texts": ("main.cut_texts",)}
    table: Any = Stored(properties, rows)
    return Standing(None, table, inputs)  # type: ignore[arg-type]  # the reading of both is replaced


def test_stored_documents_are_encoded_again_by_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some, chosen by hash: whole or as the corpus cut them; the first that differs is named. Same for older tables."""
    file = trained_tokenizer()
    gives = reference_of(file)
    (right, cut) = gives(["document 7", "cut cut 8"])
    for properties in ({ENCODED_BY: OTHERS["the former"], FIXED_IDS: fixed_ids(file, gives)}, {}):
        equal = standing(monkeypatch, properties, {"document 7": right.tolist(), "cut 8": cut.tolist(), "gone": [1]})
        assert require_same_encoder(file, gives, equal, documents=True)[ENCODED_BY] == installed()
        other = standing(monkeypatch, properties, {"document 7": [*right.tolist()[:-1], 5]})
        before = properties.get(ENCODED_BY, "the versions before")
        with pytest.raises(
            InputError, match=f"document document 7 gets other ids from token {len(right) - 1} on"
        ) as caught:
            require_same_encoder(file, gives, other, documents=True)
        assert before in str(caught.value) and installed() in str(caught.value)
        assert require_same_encoder(file, gives, other, documents=False)


def test_at_most_a_few_documents_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen of those looked at, the same ones each time."""
    file = trained_tokenizer()
    asked: list[list[str]] = []

    def gives(texts: Sequence[str]) -> list[Int32Array]:
        asked.append(list(texts))
        return [np.zeros(0, dtype=np.int32)] * len(texts)

    stored = standing(monkeypatch, {}, {f"d{number}": [] for number in range(1000)})
    require_same_encoder(file, gives, stored, documents=True)
    require_same_encoder(file, gives, stored, documents=True)
    first, second = (texts for texts in asked if len(texts) > 1)
    assert first == second and len({*first}) == 16
    assert all(int(name[1:]) < 256 for name in first)


class Tokenizers:
    """The table `tokenizer` as a guard reads it."""

    def __init__(self, file_text: str | None) -> None:
        """With one row, or none."""
        self._row = None if file_text is None else {"file": file_text}

    def select(self, *names: str) -> Tokenizers:
        """As a DataFrame does."""
        return self

    def first(self) -> dict[str, str] | None:
        """The row."""
        return self._row


def test_a_packed_table_records_what_the_reference_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same versions nothing is read; another that gives other ids is refused."""
    file = trained_tokenizer()
    inputs: Any = {"tokenizer": Tokenizers(file)}
    recorded = same_reference(None, inputs, None)
    assert recorded == {ENCODED_BY: installed(), FIXED_IDS: fixed_ids(file, reference_of(file))}
    assert same_reference(None, {}, standing(monkeypatch, recorded, {})) == {}
    monkeypatch.setattr(encoder_guard, "installed", lambda: OTHERS["another"])
    now = same_reference(None, inputs, standing(monkeypatch, recorded, {}))
    assert now == {**recorded, ENCODED_BY: OTHERS["another"]}
    other = json.loads(file)
    other["model"]["merges"] = other["model"]["merges"][:20]
    less: Any = {"tokenizer": Tokenizers(json.dumps(other))}
    with pytest.raises(InputError, match=r"main\.tokens: the fixed text '.*' gets other ids"):
        same_reference(None, less, standing(monkeypatch, recorded, {}))
    assert same_reference(None, {"tokenizer": Tokenizers(None)}, None) == {}  # type: ignore[dict-item]  # as a frame


def test_fixed_texts_never_change_under_their_names() -> None:
    """Ids that are recorded anywhere are compared with these: a changed text takes another name."""
    texts = fixed_texts("{}")
    digests = {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in texts.items()}
    assert digests == DIGESTS
    own = fixed_texts(changed(trained_tokenizer(), added_tokens=[{"content": f"<{n}>"} for n in range(99)]))
    assert own["names of tokens"].startswith("a<0>b <0>\n") and own["names of tokens"].count("\n") == 32


class PanicException(BaseException):
    """Stands for a panic of Rust."""


def test_a_text_that_the_library_cannot_encode_has_no_ids() -> None:
    """Whatever way it fails; an error of another kind goes through, and ids in the place of none are a difference."""
    for error, is_known in ((Exception("Missing [UNK]"), True), (PanicException(), True), (InputError("no"), False)):

        def fails(texts: Sequence[str], error: BaseException = error) -> list[list[int]]:
            if "1234" in texts[0]:
                raise error
            return [[1]]

        if is_known:
            found = fixed_ids("{}", fails)
            assert json.loads(found)["digits"] is None and json.loads(found)["code"] == [1]
            assert first_difference(found, found) is None
            assert first_difference(found, fixed_ids("{}", lambda texts: [[1]])) == ("the fixed text 'digits'", 0)
        else:
            with pytest.raises(InputError):
                fixed_ids("{}", fails)


def test_the_first_difference_names_a_text_and_a_token() -> None:
    """Of texts that both sides have."""
    assert first_difference('{"a":[1,2],"b":[3]}', '{"a":[1,2],"c":[4]}') is None
    assert first_difference('{"a":[1,2],"b":[3]}', '{"b":[3,4],"a":[1,2]}') == ("the fixed text 'b'", 1)
    assert [first_unequal(*pair) for pair in (([1, 2], [1, 3]), ([], [1]), ([1, 2, 3], [1, 2]))] == [1, 0, 2]
