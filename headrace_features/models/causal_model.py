"""Causal language models: the loss of each token of a text given those before it, and the perplexity of a text.

This module imports torch (the extra `torch`), so it is imported only where such a model is used. A model in Hugging
Face's layout needs the extra `transformers` too; it is read offline and no code in its folder is run. headrace's own
small model over bytes (`network`) needs no tokenizer and reads any text.

A text is read in windows of W tokens overlapping by half. Each token counts once, in the first window that predicts
it, so after the first window it is predicted from more than W/2 tokens. Of tokens 1 to 9, with W = 4:

    reads 1 2 3 4    counts 2 3 4 5
    reads 3 4 5 6    counts 6 7
    reads 5 6 7 8    counts 8 9

Windows are padded to a power of two and run in batches of one shape, so that the loss of a text does not depend on
the texts beside it: with other shapes a matrix product may differ in its last bits.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headrace.kernels.tokenizer_file import open_text_tokenizer
from headrace_features.models.model_file import DIGEST_BYTES, MAGIC, byte_model_file, read_model_file, unpack_folder
from headrace_features.models.network import Network, PieceBatch
from headrace_features.models.network_shape import ModelShape
from spark_jobs.arrays import Float64Array, Int64Array
from spark_jobs.exceptions import InputError, SetupError

READ_BYTES: Final = 1 << 16  # only the first bytes of a text are read, as by classifiers
LEFT_OUT: Final = -100  # a target that does not count
_WINDOW_TOKENS: Final = 1024  # most tokens of a window
_LEAST_TOKENS: Final = 16
_BATCH_TOKENS: Final = {"cpu": 1024, "cuda": 16_384}
_START: Final = 256  # token before the first byte
_LOADING: Final = threading.Lock()  # transformers exchanges functions of torch while it loads a network


class ByteNetwork(Network):
    """The small transformer over bytes, for rows of one length."""

    def __init__(self, width: int, layers: int, heads: int, context: int, seed: int = 0) -> None:
        """Draw the weights by a seed."""
        super().__init__(ModelShape(width, layers, heads, (_START + 1) * width), _START + 1, context, seed)
        self.shape = {"width": width, "layers": layers, "heads": heads, "context": context}

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) bytes to (B, T, 257) logits of the next one."""
        (rows, length), count = ids.shape, ids.numel()
        tokens = torch.arange(count, device=ids.device)
        pieces = (PieceBatch(count, tokens.view(rows, length), tokens),)
        narrow = self.outputs(ids.flatten(), tokens % length, pieces)
        return F.linear(narrow, self.tokens.weight).view(rows, length, -1)

    def to_bytes(self) -> bytes:
        """The bytes of the model's file."""
        return byte_model_file(self.shape, super().to_bytes())


@dataclass(frozen=True)
class CausalModel:
    """A model with its tokenizer.

    Attributes:
        network: (B, T) token ids -> (B, T, V) logits, or an object with `logits`.
        encode: text -> token ids, with a start token first where the model has one.
        window: most tokens read at once.
        sha256: identity of the model.
    """

    network: nn.Module
    encode: Callable[[str], list[int]]
    window: int
    sha256: str

    def score(self, content: pa.Array) -> dict[str, pa.Array]:
        """The perplexity per token of each text's first 64 KiB.

        Args:
            content: (D,) strings, none of them null.

        Returns:
            perplexity: (D,) float64, exp of the mean loss; null where nothing is predicted.
        """
        texts = (cut(value.as_py(), READ_BYTES) for value in content)
        with torch.no_grad(), one_thread(), np.errstate(invalid="ignore", over="ignore"):
            sums, counts = self._losses(map(self.encode, texts), len(content))
            return {"perplexity": pa.array(np.exp(sums / counts), from_pandas=True)}

    def token_losses(self, ids: Tensor, targets: Tensor) -> Tensor:
        """(B, T) losses in nats of targets, each given the tokens up to its position; 0 for a target LEFT_OUT."""
        output: Any = self.network(ids)
        logits: Tensor = getattr(output, "logits", output)
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=LEFT_OUT)
        return losses.view(targets.shape)

    def _losses(self, texts: Iterable[list[int]], count: int) -> tuple[Float64Array, Int64Array]:
        """(D,) sum of the losses of each text, and (D,) its number of predicted tokens."""
        device = next(self.network.parameters()).device
        waiting: dict[int, list[tuple[int, list[int], int]]] = {}
        text_of: list[int] = []
        sums: dict[int, float] = {}
        counts = np.zeros(count, np.int64)
        for text, ids in enumerate(texts):
            counts[text] = max(len(ids) - 1, 0)
            for tokens, first in windows(ids, self.window):
                length = min(max(_LEAST_TOKENS, 1 << (len(tokens) - 2).bit_length()), self.window)
                rows = max(1, _BATCH_TOKENS[device.type] // length)
                waiting.setdefault(length, []).append((len(text_of), tokens, first))
                text_of.append(text)
                if len(waiting[length]) == rows:
                    sums.update(self._run(waiting.pop(length), (rows, length)))
        for length, rest in waiting.items():
            sums.update(self._run(rest, (max(1, _BATCH_TOKENS[device.type] // length), length)))
        weights = np.array([sums[window] for window in range(len(text_of))])
        return np.bincount(np.array(text_of, np.int64), weights, count).astype(np.float64), counts

    def _run(self, rows: Sequence[tuple[int, list[int], int]], shape: tuple[int, int]) -> Iterator[tuple[int, float]]:
        """(number, sum of the losses that count) of each of some windows, run as one batch of `shape`."""
        ids, targets = padded([tokens for _, tokens, _ in rows], shape)
        for row, (_, _, first) in enumerate(rows):
            targets[row, :first] = LEFT_OUT
        device = next(self.network.parameters()).device
        losses = self.token_losses(ids.to(device), targets.to(device)).double().sum(dim=1).tolist()
        return zip((number for number, _, _ in rows), losses, strict=False)


def windows(ids: list[int], size: int) -> Iterator[tuple[list[int], int]]:
    """(tokens, first target that counts) of each window; `tokens` has one more, the last target."""
    half = max(size // 2, 1)
    for start in range(0, len(ids) - 1, half):
        yield ids[start : start + size + 1], size - half if start else 0
        if start + size >= len(ids) - 1:
            return


def padded(sequences: Sequence[list[int]], shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """(B, T) tokens and (B, T) targets, the next tokens; padding has the target LEFT_OUT."""
    ids = torch.zeros(shape, dtype=torch.long)
    targets = torch.full(shape, LEFT_OUT)
    for row, tokens in enumerate(sequences):
        ids[row, : len(tokens) - 1] = torch.tensor(tokens[:-1])
        targets[row, : len(tokens) - 1] = torch.tensor(tokens[1:])
    return ids, targets


def cut(text: str, byte_count: int) -> str:
    """The longest beginning of a text with at most `byte_count` bytes of UTF-8."""
    return text[:byte_count].encode()[:byte_count].decode("utf-8", "ignore")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread inside, since a Spark task has one core and sums keep one order; then restore it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def encode_bytes(text: str) -> list[int]:
    """Tokens of a model over bytes: the start token, then the UTF-8 of the text."""
    return [_START, *text.encode()]


def read_causal_model(data: bytes, name: str, device: str | None = None) -> CausalModel:
    """Read a model from its file.

    Args:
        data: bytes of its file (`pack_folder` or `ByteNetwork.to_bytes`).
        name: name of the model in errors.
        device: torch device; by default a GPU where there is one.

    Raises:
        InputError: the bytes are no model, of another version, or damaged.
        SetupError: the model needs a missing package.
    """
    header, body = read_model_file(MAGIC, data, name, "headrace model add takes a folder of Hugging Face's")
    sha256 = data[-DIGEST_BYTES:].hex()
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if header["kind"] == "bytes":  # before headrace had one network
        raise InputError(f"{name}: is a proxy model of an earlier headrace; train it again, headrace corpus refresh")
    if header["kind"] == "byte network":
        network = ByteNetwork(**header["shape"])
        nn.utils.vector_to_parameters(torch.frombuffer(bytearray(body), dtype=torch.float32), network.parameters())
        return CausalModel(network.to(place), encode_bytes, network.shape["context"], sha256)
    with tempfile.TemporaryDirectory() as folder:
        unpack_folder(header["files"], body, Path(folder), name)
        return _read_folder(folder, name, sha256, place)


def read_network(auto: str, folder: str, name: str, what: str, unused: str = "") -> Any:
    """Read a network in Hugging Face's layout, offline; no code in its folder is run.

    Args:
        auto: the class of transformers that reads it, such as `AutoModel`.
        folder: where its files are.
        name: name of the model in errors.
        what: its kind in errors, such as `causal model`.
        unused: prefix of optional weights; empty for none.

    Raises:
        InputError: transformers cannot read it, or weights are missing.
        SetupError: transformers is not installed.
    """
    try:
        import transformers
        from transformers.utils import logging
    except ImportError as error:
        raise SetupError(f"{name}: needs transformers; pip install 'headrace[torch,transformers]'") from error
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    settings = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True, "dtype": torch.float32}
    with _readable(folder, name, what), _LOADING:
        network, loaded = getattr(transformers, auto).from_pretrained(folder, output_loading_info=True, **settings)
    lost = sorted({str(key) for kind in ("missing_keys", "mismatched_keys") for key in loaded[kind]})
    if lost := [weight for weight in lost if not unused or not weight.startswith(unused)]:
        raise InputError(
            f"{name}: {len(lost)} weights are missing or of another shape, such as {lost[0]}; copy it again"
        )
    return network


@contextlib.contextmanager
def _readable(folder: str, name: str, what: str) -> Iterator[None]:
    """Turn any error inside into an InputError of one line."""
    try:
        yield
    except Exception as error:  # transformers and tokenizers raise what they like
        reason = " ".join(str(error).split())[:200].replace(folder, "the folder")
        raise InputError(f"{name}: no {what} that transformers can read ({reason}); save it again") from error


def _read_folder(folder: str, name: str, sha256: str, device: str) -> CausalModel:
    """Read the causal model in an unpacked folder."""
    network = read_network("AutoModelForCausalLM", folder, name, "causal model")
    with _readable(folder, name, "causal model"):
        tokenizer = open_text_tokenizer(Path(folder, "tokenizer.json").read_text("utf-8"))
    vocabulary = network.get_input_embeddings().num_embeddings
    if tokenizer.get_vocab_size() > vocabulary:
        raise InputError(
            f"{name}: the tokenizer has {tokenizer.get_vocab_size()} tokens, the model {vocabulary}; "
            "put the model's own tokenizer.json beside it"
        )
    network.config.use_cache = False
    start = network.config.bos_token_id
    before = [start] if isinstance(start, int) and start < vocabulary else []

    def encode(text: str) -> list[int]:
        return [*before, *tokenizer.encode(text, add_special_tokens=False).ids]

    window = min(getattr(network.config, "max_position_embeddings", _WINDOW_TOKENS), _WINDOW_TOKENS)
    model = CausalModel(network.eval().to(device), encode, window, sha256)
    _refuse_looking_ahead(model, name, vocabulary)
    return model


def _refuse_looking_ahead(model: CausalModel, name: str, vocabulary: int) -> None:
    """Raise an InputError if a model's losses change with later tokens, as BERT's do."""
    ids = torch.arange(model.window).unsqueeze(0)[:, :9] % vocabulary
    other = ids.clone()
    other[0, -1] = (other[0, -1] + 1) % vocabulary
    device = next(model.network.parameters()).device
    with torch.no_grad():
        losses, two = (model.token_losses(rows.to(device), ids.to(device))[0, :-1] for rows in (ids, other))
    if not torch.allclose(losses, two, atol=1e-4):
        raise InputError(
            f"{name}: it looks at tokens behind the one that it predicts; take a causal model (GPT, Llama)"
        )
