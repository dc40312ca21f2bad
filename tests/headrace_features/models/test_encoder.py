"""Sentence encoders: vectors against NumPy and torch, windows, reasons, folders that are wrong. All are made here."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from headrace.tables.settings import settings_at
from headrace_features.models.clusters.embedding import SCALE
from headrace_features.models.encoder import Encoder, pack_encoder, read_encoder
from headrace_features.models.registered import ModelFacts, add_model, find_models
from headrace_features.models.static_vectors import LENGTH, read_tokenizer
from headrace_features.models.vectors import VectorsConfig, vectors
from spark_jobs.exceptions import InputError
from spark_jobs.filters.scorer import check_scorer
from spark_jobs.lake.session.catalogue import open_catalogue

WORDS = ["[UNK]", "[CLS]", "[SEP]", *(f"word{number}" for number in range(40))]
TEXTS = ["word1 word2 word2", "word3", "never heard", "", "word1 of word5", "word7 " * 900]


def write_tokenizer(folder: Path, special: bool = False) -> None:
    """A tokenizer of whole words."""
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if special:
        tokenizer.add_special_tokens(WORDS[:3])
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def safetensors(tensors: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """The file of some tensors, by the format's description."""
    kinds = {"float32": "F32", "float16": "F16", "int64": "I64", "float64": "F64"}
    header, body = dict[str, Any](), b""
    for name, values in tensors.items():
        data = values.tobytes()
        places = [len(body), len(body) + len(data)]
        header[name] = {"dtype": kinds[str(values.dtype)], "shape": list(values.shape), "data_offsets": places}
        body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def static_folder(folder: Path, **tensors: np.ndarray[Any, Any]) -> Path:
    """A folder of static vectors, by default random ones."""
    write_tokenizer(folder)
    rows = np.random.default_rng(1).normal(size=(len(WORDS), 16)).astype(np.float32)
    (folder / "model.safetensors").write_bytes(safetensors(tensors or {"embeddings": rows}))
    return folder


def read(folder: Path) -> Encoder:
    """The encoder of a folder, through its file."""
    return read_encoder(pack_encoder(folder, "made"), "made")


def expected(texts: list[str], rows: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Scaled means by NumPy, a text at a time; words that are not known are left out."""
    found = []
    for text in texts:
        ids = [WORDS.index(word) for word in text.split() if word in WORDS]
        mean = np.sum([rows[one].astype(np.float64) * weights[one] for one in ids] or [np.zeros(rows.shape[1])], axis=0)
        found.append(np.rint(mean * LENGTH / max(np.linalg.norm(mean), 1e-300)))
    return np.array(found)


def test_static_vectors_are_scaled_means(tmp_path: Path) -> None:
    """Of plain rows, of half precision with weights and a mapping as model2vec has them, and of embeddings.npy."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(len(WORDS), 16)).astype(np.float32)
    ones = np.ones(len(WORDS))
    found = read(static_folder(tmp_path / "plain", **{"embedding.weight": rows})).encode(TEXTS)
    np.testing.assert_array_equal(found, expected(TEXTS, rows, ones))
    assert found.dtype == np.int16 and not found[2:4].any() and LENGTH == SCALE
    mapping, weights = rng.integers(0, 9, len(WORDS)), rng.uniform(0.1, 2, len(WORDS))
    half = rows[:9].astype(np.float16)
    mapped = static_folder(tmp_path / "mapped", embeddings=half, mapping=mapping, weights=weights)
    np.testing.assert_array_equal(
        read(mapped).encode(TEXTS), expected(TEXTS, half[mapping].astype(np.float32), weights)
    )
    write_tokenizer(tmp_path / "npy")
    np.save(tmp_path / "npy" / "embeddings.npy", rows)
    np.testing.assert_array_equal(read(tmp_path / "npy").encode(TEXTS), found)


@pytest.mark.parametrize("kind", ["words", "pieces", "merges", "unigram"])
def test_a_control_that_a_text_names_is_text(kind: str) -> None:
    """Whatever the model of a tokenizer: the ids of its controls come from the post-processor alone."""
    controls = ["<s>", "</s>", "[CLS]", "<mask>"]
    letters = list("abcs</>[]CLSmk▁")
    names = list(dict.fromkeys([*controls, "<unk>", *letters, "a</s>"]))
    ids = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(
        {
            "words": lambda: models.WordLevel(ids, unk_token="<unk>"),
            "pieces": lambda: models.WordPiece(ids | {f"##{one}": 99 + ids[one] for one in letters}, unk_token="<unk>"),
            "merges": lambda: models.BPE(ids, [], unk_token="<unk>"),
            "unigram": lambda: models.Unigram([(name, -1.0 * (name not in controls)) for name in names], unk_id=4),
        }[kind]()
    )  # fmt: skip
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([*controls, "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    made = read_tokenizer(tokenizer.to_str().encode(), "made")
    assert made.get_vocab_size() == tokenizer.get_vocab_size()
    for text in ("a </s> b", "a</s>b", "[CLS] a <mask>", "<s><s>", *controls):
        encoded = made.encode(text).ids
        assert (encoded[0], encoded[-1]) == (0, 1) and not set(encoded[1:-1]) & {ids[one] for one in controls}, text
    plain = "abc cab xa </a>"
    assert made.encode(plain).ids == tokenizer.encode(plain).ids


def test_an_encoder_is_known_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry has its hash; the scorer's table has its name; hard texts and texts too long have no vector."""
    for key, value in settings_at(tmp_path).properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key.upper()}", value)
    catalogue = open_catalogue(settings_at(tmp_path))
    data = pack_encoder(static_folder(tmp_path / "mini"), "model mini")
    assert data == pack_encoder(static_folder(tmp_path / "again"), "model mini")
    entry = add_model(catalogue, "mini", data)
    facts, _ = find_models(catalogue, [entry.label])[0]
    assert (facts.format, facts.labels, entry.version) == ("encoder", ("vector",), facts.sha256[:12])
    assert ModelFacts.of(entry) == facts
    config = VectorsConfig(model=entry.label, max_text_bytes=5_000)
    made = vectors.configured(config)
    assert (made.table.name, made.name) == ("vectors_mini", "vectors")
    rows = check_scorer(made, config, more=TEXTS).to_pylist()
    reasons = {row["text"]: row["reason"] for row in rows}
    assert reasons["word7 " * 900] == "too_long" and reasons[""] == reasons["never heard"] == "no_known_token"
    assert all((row["vector"] is None) == (row["reason"] is not None) for row in rows)
    assert {row["encoder"] for row in rows} == {facts.sha256}
    with pytest.raises(ValidationError, match="headrace model add NAME --from FOLDER --encoder"):
        VectorsConfig()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"embeddings": np.zeros((3, 16), np.float32)}, "43 tokens, the vectors are 3"),
        ({"embeddings": np.zeros((43, 2000), np.float32)}, "at most 1024 dimensions"),
        ({"one": np.zeros((43, 4), np.float32), "two": np.zeros((43, 4), np.float32)}, "static vectors are one table"),
    ],
)
def test_a_folder_that_is_wrong_is_refused(tmp_path: Path, made: dict[str, Any], said: str) -> None:
    """In one line that says what is there."""
    with pytest.raises(InputError, match=said):
        read(static_folder(tmp_path, **made))


def test_a_folder_without_its_parts_is_refused(tmp_path: Path) -> None:
    """Weights or tokenizer lack, safetensors are cut off."""
    write_tokenizer(tmp_path)
    with pytest.raises(InputError, match=r"has no weights \(model.safetensors"):
        pack_encoder(tmp_path, "made")
    (tmp_path / "model.safetensors").write_bytes(safetensors({"embeddings": np.zeros((43, 4), np.float32)})[:-5])
    with pytest.raises(InputError, match="no safetensors of F64"):
        read(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"has no tokenizer.json"):
        pack_encoder(tmp_path, "made")


@pytest.mark.nightly
def test_a_transformer_is_pooled_over_all_its_windows(tmp_path: Path) -> None:
    """A BERT of random weights: vectors are those of torch, window by window, by mean and by first token."""
    torch = pytest.importorskip("torch", reason="torch is an extra")
    transformers = pytest.importorskip("transformers", reason="transformers is an extra")
    torch.manual_seed(4)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=34, **shape)
    network = transformers.BertModel(config).eval()
    network.save_pretrained(tmp_path)
    write_tokenizer(tmp_path, special=True)
    for first_alone in (False, True):
        encoder = read(tmp_path)
        for text, found in zip(TEXTS, encoder.encode(TEXTS), strict=True):
            ids = [WORDS.index(word) if word in WORDS else 0 for word in text.split()]
            total = np.zeros(16)
            for start in range(0, len(ids), 30):
                with torch.no_grad():
                    hidden = network(torch.tensor([[1, *ids[start : start + 30], 2]])).last_hidden_state[0].numpy()
                total += hidden[0] if first_alone else hidden.astype(np.float64).sum(axis=0)
            np.testing.assert_allclose(found, total * LENGTH / max(np.linalg.norm(total), 1e-300), atol=0.51)
        (tmp_path / "1_Pooling").mkdir(exist_ok=True)
        modes = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(InputError, match="pools by pooling_mode_max_tokens"):
        read(tmp_path)
