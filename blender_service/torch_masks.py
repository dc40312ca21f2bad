"""Masks to keep each document of a window to itself, for models taking one.

`blender_service.torch` is what a training job imports; docs/feed/frameworks.md says which model needs which mask.
"""

from __future__ import annotations

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask


def block_mask(document_ids: torch.Tensor, block_tokens: int = 128) -> BlockMask:
    """Give FlexAttention's mask: a token sees the earlier ones of its own document, and itself.

    Args:
        document_ids: (R, L); -1 in padding, which sees padding, so that no row of the mask is empty.
        block_tokens: side of the blocks skipped as a whole.
    """
    rows, window_tokens = document_ids.shape

    def visible(row: torch.Tensor, _: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (document_ids[row, query] == document_ids[row, key]) & (query >= key)

    return create_block_mask(
        visible, rows, None, window_tokens, window_tokens, device=document_ids.device, BLOCK_SIZE=block_tokens
    )


def attention_mask(document_ids: torch.Tensor, dtype: torch.dtype, window: int = 0) -> torch.Tensor:
    """Give the dense mask for models of transformers: a token sees the earlier ones of its document, and itself.

    It holds L values for each token, so it is for windows of some thousand tokens; longer ones want `block_mask`, or
    `cu_seqlens` with a varlen kernel.

    Args:
        document_ids: (R, L); -1 in padding, which sees padding, so that no row of the mask is empty.
        dtype: of the model: 0 where a token is seen, the type's lowest value elsewhere; or bool, True where a token is
            seen, which SDPA takes (eager attention would add it as 1 and 0).
        window: how many tokens are seen at most, the token itself counted (a layer's sliding window); 0 for all.

    Returns:
        (R, 1, L, L): query by key.
    """
    places = torch.arange(document_ids.shape[1], device=document_ids.device)
    distance = places[:, None] - places
    visible = (document_ids[:, :, None] == document_ids[:, None, :]) & (distance >= 0)
    if window:
        visible &= distance < window
    if not dtype.is_floating_point:
        return visible[:, None].to(dtype)
    lowest = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=document_ids.device)
    return torch.where(visible, torch.zeros_like(lowest), lowest)[:, None]
