"""Which call of a model of transformers keeps the documents of a window apart: measured on tiny models at random.

A window of three documents is given to a model, then again with another first document. If the logits of the other two
change, the first leaks into them; if they differ from those that each document has alone, its places are wrong.

    python -m tests.blender_service.packed_models [MODEL_TYPE..]     prints a line a model, then the table of the page
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from blender_service.torch_masks import attention_mask

DOCUMENTS: Final = (23, 19, 22)  # tokens of each, more than a sliding window or a convolution sees
SLIDING: Final = 8
VOCABULARY: Final = 97
TOLERANCE: Final = 1e-3  # of the logits' standard deviation
# What configs call their sizes; where one has the name, it gets the value.
SIZES: Final[dict[str, Any]] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim", "hidden_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"), 4),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "linear_num_key_heads", "linear_num_value_heads"), 2),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "moe_intermediate_size", "ffn_hidden_size"), 64),
    **dict.fromkeys(("decoder_ffn_dim", "shared_expert_intermediate_size", "intermediate_size_mlp"), 64),
    **dict.fromkeys(("head_dim", "linear_key_head_dim", "linear_value_head_dim", "attention_head_dim"), 16),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_k", "moe_topk", "num_experts_per_token", "top_k_experts"), 2),
    **dict.fromkeys(("sliding_window", "attention_window_size", "local_attention", "window_size"), SLIDING),
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"), 1),
    **{"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16},
    **{"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1, "index_topk": 256},
    **{"index_n_heads": 4, "index_head_dim": 16, "lru_width": 64, "use_sliding_window": True},
    **{
        "attention_chunk_size": 128,
        "max_window_layers": 2,
        "max_position_embeddings": 128,
        "n_positions": 128,
        "partial_rotary_factor": 0.5,
    },
    **{"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_ssm": 128, "mamba_d_state": 16, "mamba_num_heads": 8},
    **{"mamba_head_dim": 16, "mamba_n_groups": 1, "state_size": 16, "ssm_state_size": 16, "mamba_dt_rank": 4},
    **{"n_mamba_heads": 2, "time_step_rank": 4, "conv_dim": 64, "rotary_dim": 8, "hidden_size_per_layer_input": 16},
    **{"attention_hidden_size": 64, "rotary_emb_base": 10000, "laurel_rank": 8, "num_kv_shared_layers": 0},
}
LATENT_SIZES: Final = {"num_key_value_heads": 4, "head_dim": 8, "partial_rotary_factor": 1.0}  # with kv_lora_rank
OF_OTHER_MODELS: Final = ("blenderbot", "blenderbot-small", "moshi", "trocr", "whisper")
OWN_SIZES: Final[dict[str, dict[str, Any]]] = {  # what a family needs besides
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1},
    "zamba": {"attention_head_dim": 32},
    "zamba2": {"attention_head_dim": 32, "mamba_ngroups": 1, "n_mamba_heads": 8, "num_hidden_layers": 8},
    "bamba": {"attn_layer_indices": [1, 3]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "nemotron_h": {"n_groups": 1, "layers_block_type": ["mamba", "attention", "mlp", "mamba"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2},
    "mpt": {"max_seq_len": 128, "expansion_ratio": 2},
    "dbrx": {"max_seq_len": 128},
    "rwkv": {"context_length": 128},
    **{name: {"layer_types": ["conv", "full_attention"] * 2} for name in ("lfm2", "lfm2_moe", "lfm3")},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
}


# The calls of the page's table, the simplest first.
POSITIONS: Final = "`position_ids`, `use_cache=False`"
MASK: Final = "`attention_mask`"
KERNELS: Final = "`seq_idx` and bounds, with `causal_conv1d` on a GPU (not measured here)"
ALONE: Final = "none: rows of one document"
TABLE: Final = (POSITIONS, MASK, KERNELS, ALONE)


class Outcome(NamedTuple):
    """How a call went: by how much the first document, and the place in the window, move the logits of the others.

    Both in standard deviations of the logits; `refused` names the error where the model takes no such call.
    """

    leak: float = 0.0
    shift: float = 0.0
    refused: str = ""

    @property
    def keeps_apart(self) -> bool:
        """Whether each document is computed as it is alone."""
        return not self.refused and max(self.leak, self.shift) < TOLERANCE

    def __str__(self) -> str:
        if self.refused:
            return f"refused ({self.refused[:60]})"
        if self.keeps_apart:
            return "apart"
        return f"leaks {self.leak:.2f}" if self.leak >= TOLERANCE else f"moved {self.shift:.2f}"


class Window(NamedTuple):
    """A window as a batch has it: (1, L) each."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    document_ids: torch.Tensor


Call = Callable[[Any, Window], Any]


def tiny(model_type: str) -> Any:
    """Make a small model whose attention and recurrences matter: weights that keep the scale of what they map."""
    config_class = CONFIG_MAPPING[model_type]
    plain = config_class()
    if plain.is_encoder_decoder or model_type in OF_OTHER_MODELS:
        raise ValueError("it is the decoder of another model")
    members = [member for kind in config_class.__mro__ for member in vars(kind).items()]
    derived = {name for name, value in members if isinstance(value, property)}
    names = {*plain.to_dict(), *plain.attribute_map} - derived
    sizes = {name: value for name, value in SIZES.items() if name in names}
    if "kv_lora_rank" in sizes:
        sizes |= LATENT_SIZES
    config = config_class(**sizes | OWN_SIZES.get(model_type, {}))
    model_class = getattr(transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type])
    with torch.device("meta"):
        size = sum(values.numel() for values in model_class(config).parameters())
    if size > 20_000_000:
        raise ValueError(f"it would have {size} parameters; SIZES lacks a name of its config")
    torch.manual_seed(0)
    model = model_class(config).eval().float()
    with torch.no_grad():
        for name, values in model.named_parameters():
            if values.dim() >= 2 and "A_log" not in name:
                fan = 1 if "embed" in name or "wte" in name else values.shape[-1]
                values.normal_(0, fan**-0.5)
    return model


def masks(model: Any, window: Window) -> Any:
    """Give the masks that a model's layers take, each kind its own where it has several kinds."""
    config, full = model.config, attention_mask(window.document_ids, torch.float32)
    sliding = attention_mask(window.document_ids, torch.float32, SLIDING)
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        return {"full_attention": full, "sliding_attention": sliding}
    return sliding if getattr(config, "sliding_window", None) else full


def packed_arguments(window: Window) -> dict[str, Any]:
    """Give what kernels for packed windows are told beside the positions."""
    bounds = torch.tensor([0, *torch.tensor(DOCUMENTS).cumsum(0).tolist()], dtype=torch.int32)
    longest = max(DOCUMENTS)
    return {
        "seq_idx": window.document_ids, "cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds,
        "max_length_q": longest, "max_length_k": longest,
    }  # fmt: skip


CALLS: Final[dict[str, Call]] = {
    "positions": lambda model, window: model(window.input_ids, position_ids=window.position_ids, use_cache=False),
    "cached": lambda model, window: model(window.input_ids, position_ids=window.position_ids),
    "ones": lambda model, window: model(
        window.input_ids,
        attention_mask=torch.ones_like(window.input_ids),
        position_ids=window.position_ids,
        use_cache=False,
    ),
    "mask": lambda model, window: model(
        window.input_ids,
        attention_mask=attention_mask(window.document_ids, torch.float32),
        position_ids=window.position_ids,
    ),
    "masks": lambda model, window: model(
        window.input_ids, attention_mask=masks(model, window), position_ids=window.position_ids
    ),
    "packed": lambda model, window: model(
        window.input_ids, position_ids=window.position_ids, use_cache=False, **packed_arguments(window)
    ),
    "nothing": lambda model, window: model(window.input_ids),
}


def logits_of(model: Any, call: Call, window: Window) -> torch.Tensor:
    """Give the logits of a window, (L, V)."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logits: torch.Tensor = call(model, window).logits[0]
    return logits


def alone(ids: torch.Tensor) -> Window:
    """Give a document as a window of its own."""
    return Window(ids[None], torch.arange(len(ids))[None], torch.zeros(1, len(ids), dtype=torch.int32))


def measure(model: Any, call: Call) -> Outcome:
    """Try a call on a window."""
    generator = torch.Generator().manual_seed(1)
    documents = [torch.randint(2, VOCABULARY, (tokens,), generator=generator) for tokens in DOCUMENTS]
    other = torch.randint(2, VOCABULARY, (DOCUMENTS[0],), generator=generator)
    positions = torch.cat([torch.arange(tokens) for tokens in DOCUMENTS])[None]
    numbers = torch.repeat_interleave(torch.arange(len(DOCUMENTS)), torch.tensor(DOCUMENTS))[None].int()
    try:
        first, second = (
            logits_of(model, call, Window(torch.cat([start, *documents[1:]])[None], positions, numbers))[len(start) :]
            for start in (documents[0], other)
        )
        expected = torch.cat([logits_of(model, CALLS["nothing"], alone(ids)) for ids in documents[1:]])
    except Exception as error:  # noqa: BLE001 (whatever a model does with a call that it was not made for)
        return Outcome(refused=f"{type(error).__name__}: {error}".splitlines()[0])
    scale = float(expected.std())
    return Outcome(float((first - second).abs().max()) / scale, float((first - expected).abs().max()) / scale)


def safe_call(measured: dict[str, Outcome]) -> str:
    """Give the first call of the page's table that keeps the documents of a window apart."""
    if measured["positions"].keeps_apart:
        return POSITIONS
    if measured["masks"].keeps_apart:
        return MASK
    return KERNELS if "causal_conv1d" in measured["packed"].refused else ALONE


def is_measurable(measured: dict[str, Outcome]) -> bool:
    """Whether a model computes at all, sees what came before, and is causal, so that an outcome means something."""
    return not measured["nothing"].refused and measured["nothing"].leak >= TOLERANCE and measured["after"].keeps_apart


def measure_all(model: Any) -> dict[str, Outcome]:
    """Try all calls."""
    return {name: measure(model, call) for name, call in CALLS.items()} | {"after": measure_after(model)}


def measure_after(model: Any) -> Outcome:
    """See whether a document changes the logits of what comes before it, as in a model that is not causal."""
    first, second = torch.randint(2, VOCABULARY, (2, SLIDING), generator=torch.Generator().manual_seed(2))
    try:
        windows = [alone(torch.cat([first, ids])) for ids in (first, second)]
        logits = [logits_of(model, CALLS["nothing"], window)[:SLIDING] for window in windows]
    except Exception as error:  # noqa: BLE001 (as in `measure`)
        return Outcome(refused=f"{type(error).__name__}: {error}".splitlines()[0])
    return Outcome(float((logits[0] - logits[1]).abs().max() / logits[0].std()))


def main(types: list[str]) -> None:
    """Print a line a model, then the table."""
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    torch.set_num_threads(1)
    table: dict[str, list[str]] = {call: [] for call in TABLE}
    for model_type in types or [name for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if name in CONFIG_MAPPING]:
        try:
            measured = measure_all(tiny(model_type))
        except Exception as error:  # noqa: BLE001 (the config of any model)
            sys.stdout.write(f"{model_type}: is not made so small: {type(error).__name__} {error!s:.80}\n")
            continue
        outcomes = ", ".join(f"{name} {outcome}" for name, outcome in measured.items())
        sys.stdout.write(f"{model_type}: {outcomes}\n")
        sys.stdout.flush()
        if is_measurable(measured):
            table[safe_call(measured)].append(model_type)
    for call, names in table.items():
        sys.stdout.write(f"| {call} | {', '.join(f'`{name}`' for name in sorted(names))} |\n")


if __name__ == "__main__":
    main(sys.argv[1:])
