"""Causal language models: losses against other computations of them, windows, batches, files that are wrong."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from tokenizers import Tokenizer, models, pre_tokenizers

from headrace.tables.settings import settings_at
from headrace_features.models.model_file import MAGIC, pack_folder, write_model_file
from headrace_features.models.registered import ModelFacts, add_model, find_models
from spark_jobs.exceptions import InputError
from spark_jobs.lake.session.catalogue import open_catalogue

torch = pytest.importorskip("torch", reason="torch is an extra")

from headrace_features.models.causal_model import (  # noqa: E402 - it imports torch
    ByteNetwork,
    CausalModel,
    encode_bytes,
    read_causal_model,
    windows,
)
from tests.headrace_features.models.network_reference import nats  # noqa: E402 - likewise

TEXTS = ["", "a", "The mill grinds the grain.", "Ünï 漢字 \x00 עברית 🦉", "x" * 200, "grain " * 70, "of the mill " * 30]
Array = np.ndarray[Any, np.dtype[np.float64]]


@pytest.fixture(scope="module")
def model() -> CausalModel:
    """A model over bytes with large random parameters, through its file."""
    network = ByteNetwork(width=16, layers=2, heads=2, context=32, seed=3)
    with torch.no_grad():
        for values in network.parameters():
            values.add_(torch.randn(values.shape, generator=torch.Generator().manual_seed(values.numel())) * 0.3)
    return read_causal_model(network.to_bytes(), "made", "cpu")


def numpy_losses(network: ByteNetwork, ids: list[int]) -> Array:
    """The losses of ids[1:], by NumPy in float64."""
    return np.asarray(-nats(network, ids))


def test_losses_are_those_of_a_forward_pass_in_numpy(model: CausalModel) -> None:
    """The perplexity of texts that fit one window, to 1e-5 of it; that of nothing is null."""
    texts = [text for text in TEXTS if len(text.encode()) <= model.window]
    found = model.score(pa.array(texts))["perplexity"].to_pylist()
    assert found[0] is None
    for text, value in zip(texts[1:], found[1:], strict=True):
        assert value == pytest.approx(np.exp(numpy_losses(model.network, encode_bytes(text)).mean()), rel=1e-5)


def test_long_texts_are_read_in_windows_that_overlap_by_half(model: CausalModel) -> None:
    """Each byte counts once: the first 32 of one window, then 16 of each that begins 16 further on."""
    for text in TEXTS[4:]:
        ids, losses = encode_bytes(text), []
        for start in range(0, len(ids) - 1, 16):
            own = numpy_losses(model.network, ids[start : start + 33]) if len(ids[start : start + 33]) > 1 else []
            losses += list(own[16 if start else 0 :])
        assert len(losses) == len(ids) - 1
        assert model.score(pa.array([text]))["perplexity"][0].as_py() == pytest.approx(
            np.exp(np.mean(losses)), rel=1e-5
        )


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_every_token_counts_once(size: int) -> None:
    """For texts of any length, in the first window that predicts it, from more than half a window of others."""
    for length in range(40):
        counted = []
        for start, (tokens, first) in enumerate(windows(list(range(length)), size)):
            assert 2 <= len(tokens) <= size + 1
            counted += tokens[1 + first :]
            assert start == 0 or first + 1 > size // 2
        assert counted == list(range(1, length))


def test_a_score_does_not_depend_on_the_texts_beside_it(model: CausalModel) -> None:
    """To the last bit, alone, among others and in another order."""
    many = [*TEXTS, *("grain and water " * number for number in range(1, 40))]
    together = model.score(pa.array(many))["perplexity"].to_pylist()
    assert model.score(pa.array(many[::-1]))["perplexity"].to_pylist()[::-1] == together
    assert [model.score(pa.array([text]))["perplexity"][0].as_py() for text in many] == together


@pytest.mark.nightly
def test_of_a_long_text_the_first_64_kib_count(model: CausalModel) -> None:
    """What is behind them changes nothing, and a character that they cut in two is left out."""
    text = "é" * 32_767 + "a"
    cut = model.score(pa.array([text, f"{text}é", f"{text}é{'z' * 99}"]))["perplexity"].to_pylist()
    assert cut[0] == cut[1] == cut[2]


def test_a_model_of_the_network_before_is_refused() -> None:
    """Its weights mean nothing to this one."""
    data = write_model_file(MAGIC, {"kind": "bytes", "shape": {"width": 16}}, b"\0" * 64)
    with pytest.raises(InputError, match="made: is a proxy model of an earlier headrace; train it again"):
        read_causal_model(data, "made")


def test_a_damaged_file_is_refused(model: CausalModel) -> None:
    """In one line."""
    data = bytearray(model.network.to_bytes())
    data[200] ^= 1
    with pytest.raises(InputError, match="is damaged"):
        read_causal_model(bytes(data), "made")


def save(folder: Path, kind: str, vocabulary: int = 40) -> Any:
    """Save a tiny random model of transformers with a tokenizer of single letters; returns the model."""
    transformers = pytest.importorskip("transformers", reason="transformers is an extra")
    transformers.utils.logging.disable_progress_bar()
    common: dict[str, Any] = {"vocab_size": vocabulary, "bos_token_id": 1, "eos_token_id": 2}
    small = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    if kind == "gpt2":
        made = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**common, n_embd=16, n_layer=2, n_head=2, n_positions=32)
        )
    elif kind == "llama":
        made = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**common, **small, num_key_value_heads=2, max_position_embeddings=32)
        )
    else:
        config = transformers.BertConfig(**{**common, **small, "max_position_embeddings": 32})
        made = transformers.BertLMHeadModel(config)
    for values in made.parameters():
        if values.dim() > 1:
            values.data.normal_(0, 0.5)
    made.eval().save_pretrained(folder)
    letters = {letter: number for number, letter in enumerate("?<>abcdefghijklmnopqrstuvwxyz .é")}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))
    return made


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_folder_of_hugging_face_scores_as_its_own_model_does(tmp_path: Path, kind: str) -> None:
    """The loss that transformers itself gives for `labels`, to 1e-5; through the registry, where nothing is empty."""
    made = save(tmp_path / "small", kind)
    (tmp_path / "lake").mkdir()
    catalogue: Catalog = open_catalogue(settings_at(tmp_path / "lake"))
    entry = add_model(catalogue, "small", pack_folder(tmp_path / "small", "model small"))
    assert ModelFacts.of(entry).format == "causal"
    shutil.rmtree(tmp_path / "small")  # nothing of it is needed any more
    from headrace_features.models.model_scores import score

    [(facts, file)] = find_models(catalogue, [entry.label])
    texts = ["", "a", "the mill grinds", "éé漢 grain."]
    found = score(pa.array(texts), (("small", file, facts.labels),))["small_perplexity"].to_pylist()
    assert found[0] is None
    tokens = "?<>abcdefghijklmnopqrstuvwxyz .é"
    for text, value in zip(texts[1:], found[1:], strict=True):
        ids = torch.tensor([[1, *(max(tokens.find(letter), 0) for letter in text)]])
        with torch.no_grad():
            assert value == pytest.approx(math.exp(made(ids, labels=ids).loss), rel=1e-5)


@pytest.mark.nightly
def test_a_folder_that_is_no_causal_model_is_refused(tmp_path: Path) -> None:
    """One line each: no tokenizer, pickled weights, weights that are lost, a tokenizer of another model, BERT."""

    def refusal(folder: str) -> str:
        with pytest.raises(InputError) as raised:
            read_causal_model(pack_folder(tmp_path / folder, "model small"), "model small")
        assert "\n" not in str(raised.value)
        return str(raised.value)

    save(tmp_path / "good", "gpt2")
    for name in ("bare", "pickled", "cut"):
        shutil.copytree(tmp_path / "good", tmp_path / name)
    (tmp_path / "bare" / "tokenizer.json").unlink()
    (tmp_path / "pickled" / "model.safetensors").rename(tmp_path / "pickled" / "pytorch_model.bin")
    config = json.loads((tmp_path / "cut" / "config.json").read_text())
    (tmp_path / "cut" / "config.json").write_text(json.dumps({**config, "n_layer": 3}))
    save(tmp_path / "other", "llama", vocabulary=12)
    save(tmp_path / "bert", "bert")
    assert "has no tokenizer.json" in refusal("bare")
    assert "has no .safetensors" in refusal("pickled")
    assert "weights are missing" in refusal("cut")
    assert "the tokenizer has 32 tokens, the model 12" in refusal("other")
    assert "looks at tokens behind" in refusal("bert")
