"""Training: the loss is a transformer's over each document, the budget is exact, a kill changes nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
from torch.nn import functional

from headrace_features.experiments.training import MemoryRows, network_of, new_network, next_offset, rows_of, train
from headrace_features.experiments.training_run import SHAPES, Trained, TrainingRun, shape_of
from headrace_features.models.network import layout
from headrace_features.models.network_shape import ModelShape
from spark_jobs.exceptions import ConfigError, InputError, SetupError
from tests.headrace_features.models.network_reference import nats

TINY = ModelShape(width=16, depth=2, heads=2, embedding_weights=500)
RUN = TrainingRun(TINY, vocabulary_size=50, window_tokens=24, budget_tokens=3000, learning_rate=1e-2)


def rows(count: int = 40, length: int = 24, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Windows of one to three documents, most with padding behind them; a token is the one before it plus 0 to 2."""
    draw = np.random.default_rng(seed)
    ids = np.cumsum(draw.integers(0, 3, (count, length)), axis=1) % 50
    documents = np.cumsum(draw.random((count, length)) < 0.1, axis=1).astype(np.int32)
    documents[np.arange(length) >= draw.integers(length // 2, length + 1, (count, 1))] = -1
    return ids, documents


def documents_of(ids: np.ndarray, documents: np.ndarray, window: int) -> list[list[int]]:
    """The documents of rows, cut at the multiples of a window."""
    found: dict[tuple[int, int, int], list[int]] = {}
    for row, column in np.ndindex(ids.shape):
        if documents[row, column] >= 0:
            key = (row, int(documents[row, column]), column // window)
            found.setdefault(key, []).append(int(ids[row, column]))
    return list(found.values())


@pytest.mark.parametrize("window", [24, 10])
def test_the_loss_is_that_of_each_document_alone(window: int) -> None:
    """NumPy's loss of every document by itself, one position at a time, has the same mean."""
    ids, documents = rows(4)
    network = new_network(replace(RUN, window_tokens=window))
    expected = np.concatenate([nats(network, one) for one in documents_of(ids, documents, window)])
    found = network.loss(ids, layout(documents, window)).item()
    assert found == pytest.approx(-expected.mean(), rel=1e-5)


def test_gradients_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a mask over whole rows and torch's own cross-entropy every weight has the same gradient; in parts too."""
    monkeypatch.setitem(sys.modules["headrace_features.models.network"]._LOGITS, "cpu", 16 * 50)
    ids, documents = rows(4)
    network, other = new_network(RUN), new_network(RUN)
    network.loss(ids, layout(documents, 24)).backward()

    seen = torch.from_numpy((documents[:, :, None] == documents[:, None, :]) & np.tri(24, dtype=bool))
    starts = np.ones_like(documents, dtype=bool)
    starts[:, 1:] = documents[:, 1:] != documents[:, :-1]
    columns = np.arange(24)
    positions = columns - np.maximum.accumulate(np.where(starts, columns, 0), axis=1)
    hidden = other.widen(other.tokens(torch.from_numpy(ids))) + other.positions[torch.from_numpy(positions)]
    for block in other.blocks:
        parts = block.query_key_value(block.before_attention(hidden)).view(4, 24, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, attn_mask=seen[:, None])
        hidden = hidden + block.project(mixed.transpose(1, 2).reshape(4, 24, 16))
        hidden = hidden + block.feed_forward(block.before_feed_forward(hidden))
    logits = other.narrow(other.last_norm(hidden)) @ other.tokens.weight.T
    predicted = torch.from_numpy((documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] >= 0))
    functional.cross_entropy(logits[:, :-1][predicted], torch.from_numpy(ids[:, 1:])[predicted]).backward()
    for (name, one), two in zip(network.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-4, atol=1e-7, msg=name)


def test_equal_inputs_give_equal_weights_and_the_budget_is_exact() -> None:
    """Two runs agree to the last bit, whatever torch drew before; a budget within a row ends within that row."""
    ids, documents = rows()
    first = train(rows_of(ids, documents, 8), RUN)
    torch.rand(3)
    second = train(rows_of(ids, documents, 8), RUN)
    assert first.weights == second.weights and first.losses.tolist() == second.losses.tolist()
    assert first.tokens == first.step_tokens[-1] == 3000
    assert first.losses[-1] < first.losses[0] - 1
    assert first.weights != train(rows_of(ids, documents, 8), replace(RUN, weight_seed=1)).weights
    assert network_of(RUN, first.weights).to_bytes() == first.weights


def test_the_rate_rises_and_ends_at_the_budget() -> None:
    """Half of the highest rate in the middle of the warm-up and of the cosine, 0 at both ends."""
    run = replace(RUN, warm_share=0.2, learning_rate=0.01)
    found = [run.rate_at(share * run.budget_tokens) for share in (0, 0.1, 0.2, 0.6, 1)]
    assert found == pytest.approx([0, 0.005, 0.01, 0.005, 0])


def test_the_digest_tells_rows_apart_and_nothing_else() -> None:
    """Steps of another size and wider padding are the same rows; another token, border or offset are others."""
    ids, documents = rows(16)
    run = replace(RUN, budget_tokens=200)
    digest = train(rows_of(ids, documents, 8), run).rows_digest
    wide = np.pad(ids, ((0, 0), (0, 3)), constant_values=7), np.pad(documents, ((0, 0), (0, 3)), constant_values=-1)
    assert train(rows_of(*wide, 3), run).rows_digest == digest
    assert train(rows_of(ids, documents, 8), replace(run, weight_seed=9)).rows_digest == digest
    other = ids.copy()
    other[1, 0] += 1
    assert train(rows_of(other, documents, 8), run).rows_digest != digest
    border = documents.copy()
    border[1, :4] = 9
    assert train(rows_of(ids, border, 8), run).rows_digest != digest
    assert train(rows_of(np.roll(ids, -1, 0), np.roll(documents, -1, 0), 8), run).rows_digest != digest


def test_a_stopped_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    """Stopped at a row, then from its checkpoint with the rows from there on or with all: as without the stop."""
    ids, documents = rows()
    expected = train(rows_of(ids, documents, 8), RUN)

    def stopping(start: int, end: int) -> Iterator[MemoryRows]:
        for batch in rows_of(ids, documents, 8, start):
            if batch.offset >= end:
                raise KeyboardInterrupt
            yield batch

    def go_on(batches: Iterable[MemoryRows]) -> Trained:
        return train(batches, RUN, checkpoint=tmp_path / "c", checkpoint_steps=3)

    with pytest.raises(KeyboardInterrupt):
        go_on(stopping(0, 64))
    assert next_offset(tmp_path / "c") == 48
    with pytest.raises(KeyboardInterrupt):
        go_on(stopping(0, 120))
    assert next_offset(tmp_path / "c") == 120
    for batches in (rows_of(ids, documents, 8, 120), iter(())):  # the second time there is nothing left to do
        found = go_on(batches)
        assert (found.weights, found.rows_digest) == (expected.weights, expected.rows_digest)
        assert found.losses.tolist() == expected.losses.tolist() and found.offsets.tolist() == expected.offsets.tolist()


@pytest.mark.nightly
def test_a_killed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    """SIGKILL in the middle, then again from the checkpoint: weights, losses and digest as without it."""
    ids, documents = rows()
    np.savez(tmp_path / "w.npz", input_ids=ids, document_ids=documents)
    run = TrainingRun(SHAPES["proxy_1m"], 50, 24, 10_000)
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom headrace_features.experiments import training as t\n"
        "save = t._State.save\n"
        "def slow(self, path):\n    save(self, path)\n    print(self.tokens, flush=True)\n    time.sleep(.2)\n"
        "t._State.save = slow\ninner = t.train\n"
        "t.train = lambda batches, run, checkpoint: inner(batches, run, checkpoint=checkpoint, checkpoint_steps=9)\n"
        "sys.exit(t.main(sys.argv[1:]))\n"
    )
    files = [
        "--windows",
        str(tmp_path / "w.npz"),
        "--out",
        str(tmp_path / "o.npz"),
        "--checkpoint",
        str(tmp_path / "c"),
    ]
    command = [sys.executable, "-c", script, *files, "--vocabulary-size", "50", "--budget-tokens", "10000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first, _ = process.stdout.readline(), process.stdout.readline()
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert 0 < int(first) < 10_000 and not (tmp_path / "o.npz").exists()
    assert 0 < next_offset(tmp_path / "c") < 300
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    expected = train(rows_of(ids, documents, 8), run)
    with np.load(tmp_path / "o.npz") as found:
        assert found["weights"].tobytes() == expected.weights
        assert found["losses"].tolist() == expected.losses.tolist()
        assert str(found["rows_digest"]) == expected.rows_digest
    again = train(rows_of(ids, documents, 8), run, checkpoint=tmp_path / "c")
    assert again.weights == expected.weights


@pytest.mark.nightly
def test_training_needs_nothing_of_the_platform() -> None:
    """On a machine with torch alone: whatever else the modules import is of the standard library."""
    code = (
        "import sys, torch, numpy; before = set(sys.modules)\n"
        "import headrace_features.experiments.training, headrace_features.experiments.evaluation\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "print(sorted(new - {'numpy'}))"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "['headrace', 'headrace_features', 'spark_jobs']", "its own packages alone"


def test_mistakes_are_one_line_each(tmp_path: Path) -> None:
    """What a message names is what is wrong."""
    ids, documents = rows(8)
    cases = [
        (ConfigError, "did you mean 'proxy_15m'", lambda: shape_of("proxy15m")),
        (ConfigError, "budget_tokens is 0", lambda: replace(RUN, budget_tokens=0)),
        (
            InputError,
            "row 3 came where row 4",
            lambda: train([MemoryRows(0, ids[:4], documents[:4]), MemoryRows(3, ids, documents)], RUN),
        ),
        (InputError, "the rows end after", lambda: train([MemoryRows(0, ids, documents)], RUN)),
        (InputError, "row 5 has token 50", lambda: train([MemoryRows(5, ids * 0 + 50, documents)], RUN)),
    ]
    for error, message, call in cases:
        with pytest.raises(error, match=message):
            call()
    if not torch.cuda.is_available():
        with pytest.raises(SetupError, match="torch sees none"):
            train([], replace(RUN, device="cuda"))
    train(rows_of(ids, documents, 8), replace(RUN, budget_tokens=50), checkpoint=tmp_path / "c")
    with pytest.raises(ConfigError, match=r"learning_rate 0\.01, this one has 0.1"):
        train([], replace(RUN, budget_tokens=50, learning_rate=0.1), checkpoint=tmp_path / "c")
    (tmp_path / "c").write_bytes(b"PK")
    with pytest.raises(InputError, match="remove it to begin anew"):
        train([], replace(RUN, budget_tokens=50), checkpoint=tmp_path / "c")


def test_sizes_are_what_they_say() -> None:
    """The formula is the number of weights of the network, and near the name's number."""
    for name, vocabulary, wanted in [
        ("proxy_1m", 4096, 1.1e6),
        ("proxy_15m", 32_768, 15e6),
        ("proxy_125m", 50_304, 125e6),
    ]:
        shape = SHAPES[name]
        assert shape.parameter_count(vocabulary) == pytest.approx(wanted, rel=0.03)
    network = new_network(RUN)
    assert sum(one.numel() for one in network.parameters()) == TINY.parameter_count(50)
