"""The small transformer trained here, for packed rows of documents hidden from each other.

Each document is cut out of its row, and attention runs over documents of similar length together. So padding and other
documents cost nothing, and a row of many short documents is quicker than one long document. The first token of a
document is never predicted.

    row       a b c d e . .        pieces of 2   d e        pieces of 4   a b c .
    document  0 0 0 1 1 -1 -1      predicted     e          predicted     b c
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from headrace_features.models.network_shape import ModelShape
from spark_jobs.arrays import Int32Array, Int64Array

_LEAST_PIECE: Final = 16  # tokens to which shorter pieces are padded
_LOGITS: Final = {"cpu": 1 << 21, "cuda": 1 << 28}  # at once: 8 MB, which stay in a cache, and 1 GiB


@dataclass(frozen=True)
class PieceBatch:
    """A batch of pieces of documents of similar length, padded to one length.

    Attributes:
        token_count: n, tokens of all its pieces, contiguous in the layout.
        padded: (B, length) index of each token in 0..n; padding repeats a piece's last one.
        real: (n,) indices of the flattened `padded`, padding left out.
    """

    token_count: int
    padded: Tensor
    real: Tensor


@dataclass(frozen=True)
class PieceLayout:
    """The documents of some rows as pieces, the shortest first.

    Attributes:
        places: (N,) each token's index in the flattened rows.
        positions: (N,) its position in its piece.
        pieces: batches, one per padded length; together they have all N tokens.
        before: (P,) indices in 0..N of tokens predicting a next one: all but the last of each piece.
    """

    places: Int64Array
    positions: Tensor
    pieces: tuple[PieceBatch, ...]
    before: Tensor


def layout(document_ids: Int32Array, window_tokens: int) -> PieceLayout:
    """Find the documents of some rows and group them by length.

    Args:
        document_ids: (R, L), -1 in padding; at least one is not.
        window_tokens: documents are cut at every multiple of it in their row.
    """
    length = document_ids.shape[1]
    flat = document_ids.ravel()
    begins = np.arange(flat.size) % length % window_tokens == 0
    begins[1:] |= flat[1:] != flat[:-1]
    first = np.flatnonzero(begins)
    lengths = np.diff(first, append=flat.size)
    first, lengths = first[flat[first] >= 0], lengths[flat[first] >= 0]
    filled = np.maximum(_LEAST_PIECE, 1 << np.ceil(np.log2(lengths)).astype(np.int64))
    order = np.argsort(filled, kind="stable")
    first, lengths, filled = first[order], lengths[order], filled[order]
    begin = np.cumsum(lengths) - lengths
    positions = np.arange(lengths.sum()) - np.repeat(begin, lengths)
    pieces = []
    for size in np.unique(filled):
        of_size = np.flatnonzero(filled == size)
        start, true_lengths = begin[of_size[0]], lengths[of_size, None]
        padded = begin[of_size, None] - start + np.minimum(np.arange(size), true_lengths - 1)
        real = np.flatnonzero(np.arange(size) < true_lengths)
        pieces.append(PieceBatch(int(true_lengths.sum()), torch.from_numpy(padded), torch.from_numpy(real)))
    before = np.setdiff1d(np.arange(len(positions)), begin + lengths - 1, assume_unique=True)
    return PieceLayout(
        np.repeat(first, lengths) + positions, torch.from_numpy(positions), tuple(pieces), torch.from_numpy(before)
    )


class _Pad(torch.autograd.Function):
    """`flat[padded]`, with a gradient of its own: torch's gradient of indexing adds up one by one, slowly."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, padded: Tensor, real: Tensor) -> Tensor:
        ctx.save_for_backward(real)
        return flat[padded]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (real,) = ctx.saved_tensors
        return gradients[0].flatten(0, 1)[real], None, None  # padding has gradient 0, since no loss depends on it


class _Take(torch.autograd.Function):
    """`rows[taken]` for distinct indices, with a gradient of its own for the reason of `_Pad`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, taken: Tensor) -> Tensor:
        ctx.save_for_backward(taken)
        ctx.shape = rows.shape
        return rows[taken]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (taken,) = ctx.saved_tensors
        gradient = gradients[0].new_zeros(ctx.shape)
        gradient[taken] = gradients[0]
        return gradient, None


class _MeanLoss(torch.autograd.Function):
    """Mean cross-entropy of the next tokens, computed in chunks of tokens; the forward pass makes the gradients too.

    Logits of a whole step with a vocabulary of 150,000 do not fit in memory; here each is made once and not kept.
    """

    @staticmethod
    def forward(ctx: Any, narrow: Tensor, table: Tensor, targets: Tensor) -> Tensor:
        count = len(targets)
        typed = table.to(narrow.dtype)
        of_narrow, of_table = torch.empty_like(narrow), torch.zeros_like(table)
        total = torch.zeros((), dtype=torch.float64, device=narrow.device)
        for rows in logit_rows(count, len(table), narrow.device):
            logits = (narrow[rows] @ typed.T).float()
            logits -= logits.amax(dim=1, keepdim=True)
            of_target = logits.gather(1, targets[rows, None])
            sums = logits.exp_().sum(dim=1, keepdim=True)
            total += (sums.log() - of_target).sum(dtype=torch.float64)
            logits /= sums * count
            logits[torch.arange(len(logits), device=logits.device), targets[rows]] -= 1 / count
            change = logits.to(narrow.dtype)
            of_narrow[rows] = change @ typed
            if narrow.dtype == table.dtype:
                of_table.addmm_(change.T, narrow[rows])
            else:
                of_table += change.T @ narrow[rows]
        ctx.save_for_backward(of_narrow, of_table)
        return (total / count).float()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        of_narrow, of_table = ctx.saved_tensors
        return of_narrow * gradients[0].to(of_narrow.dtype), of_table * gradients[0], None


def logit_rows(count: int, vocabulary_size: int, device: torch.device) -> Iterator[slice]:
    """Slices of 0..`count` with logits fitting in memory together."""
    step = max(16, _LOGITS[device.type] // vocabulary_size)
    return (slice(start, start + step) for start in range(0, count, step))


class _Block(nn.Module):
    """Pre-norm attention and feed-forward, residual."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.before_attention = nn.LayerNorm(width, bias=False)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.before_feed_forward = nn.LayerNorm(width, bias=False)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False)
        )

    def forward(self, hidden: Tensor, pieces: Sequence[PieceBatch]) -> Tensor:
        """Add to each of N tokens what it attends to in its piece, then the feed-forward of the result."""
        parts = self.query_key_value(self.before_attention(hidden))
        groups = parts.split([piece_group.token_count for piece_group in pieces])
        mixed = torch.cat([self._attend(group, piece_group) for group, piece_group in zip(groups, pieces, strict=True)])
        hidden = hidden + self.project(mixed)
        changed: Tensor = hidden + self.feed_forward(self.before_feed_forward(hidden))
        return changed

    def _attend(self, parts: Tensor, piece_group: PieceBatch) -> Tensor:
        """Causal attention inside each piece: (n, 3 width) to (n, width). Padding comes last, so nothing sees it."""
        padded: Tensor = _Pad.apply(parts, piece_group.padded, piece_group.real)  # type: ignore[no-untyped-call]
        batch, length, _ = padded.shape
        query, key, value = padded.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        rows = mixed.transpose(1, 2).reshape(batch * length, -1)
        attended: Tensor = _Take.apply(rows, piece_group.real)  # type: ignore[no-untyped-call]
        return attended


class Network(nn.Module):
    """A decoder with fixed position vectors and a factored embedding, tied to its output."""

    positions: Tensor

    def __init__(self, shape: ModelShape, vocabulary_size: int, window_tokens: int, seed: int = 0) -> None:
        """Draw the weights by a seed: equal on every device."""
        super().__init__()
        rank = shape.rank(vocabulary_size)
        self.tokens = nn.Embedding(vocabulary_size, rank)
        self.widen = nn.Linear(rank, shape.width, bias=False)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.depth))
        self.last_norm = nn.LayerNorm(shape.width, bias=False)
        self.narrow = nn.Linear(shape.width, rank, bias=False)
        self.register_buffer("positions", sinusoids(window_tokens, shape.width), persistent=False)
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, values in self.named_parameters():
                if values.dim() == 2:
                    scale = 0.1 if name == "tokens.weight" else values.shape[1] ** -0.5
                    values.normal_(0.0, scale, generator=draw)

    def outputs(self, input_ids: Tensor, positions: Tensor, pieces: Sequence[PieceBatch]) -> Tensor:
        """(N, rank) outputs; their products with the rows of the embedding are the logits of the next token.

        Args:
            input_ids: (N,) tokens in the order of a layout.
            positions: (N,) position of each in its piece.
            pieces: of the layout.
        """
        hidden = self.widen(self.tokens(input_ids)) + self.positions[positions]
        for block in self.blocks:
            hidden = block(hidden, pieces)
        narrow: Tensor = self.narrow(self.last_norm(hidden))
        return narrow

    def loss(self, input_ids: NDArray[np.integer], places: PieceLayout) -> Tensor:
        """Mean loss of all predicted tokens, in nats.

        Args:
            input_ids: (R, L).
            places: the layout of the rows; at least one token is predicted.
        """
        device = self.positions.device
        flat = torch.from_numpy(input_ids.ravel()[places.places].astype(np.int64))
        narrow = self.outputs(flat.to(device), places.positions.to(device), on_device(places.pieces, device))
        before = places.before.to(device)
        predicting = _Take.apply(narrow, before)  # type: ignore[no-untyped-call]
        targets = flat[places.before + 1].to(device)
        mean_loss: Tensor = _MeanLoss.apply(predicting, self.tokens.weight, targets)  # type: ignore[no-untyped-call]
        return mean_loss

    def to_bytes(self) -> bytes:
        """All weights, in the order of its parameters."""
        return b"".join(values.detach().cpu().numpy().astype("<f4").tobytes() for values in self.parameters())


def sinusoids(length: int, width: int) -> Tensor:
    """(length, width) fixed position vectors (Vaswani et al. 2017), scaled to the size of the embeddings."""
    rates = torch.exp(torch.arange(0, width, 2) * (-9.21 / width))
    angles = torch.arange(length)[:, None] * rates
    return 0.1 * torch.cat([angles.sin(), angles.cos()], dim=1)


def on_device(pieces: Iterable[PieceBatch], device: torch.device) -> tuple[PieceBatch, ...]:
    """Copy the pieces' indices to a device."""
    return tuple(
        PieceBatch(piece_group.token_count, piece_group.padded.to(device), piece_group.real.to(device))
        for piece_group in pieces
    )
