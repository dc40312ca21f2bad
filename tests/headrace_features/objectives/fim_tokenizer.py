"""A small byte-level tokenizer with sentinels, as StarCoder's has them or named otherwise."""

from __future__ import annotations

import functools

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from headrace_features.objectives.sentinels import Sentinels

STARCODER = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>")
_TEXT = "def area(width, height):\n    return width * height\n\nfor x in range(10):\n    print(x, größe)\n"


@functools.cache
def fim_tokenizer(names: tuple[str, str, str] = STARCODER, is_qwen: bool = False) -> tuple[str, Sentinels]:
    """The text of a tokenizer.json, and the ids of its sentinels; as Qwen's with NFC, sentinels not special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC() if is_qwen else None
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|endoftext|>", *([] if is_qwen else names)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_TEXT] * 4, trainer)
    tokenizer.add_tokens([*names] if is_qwen else [])
    return str(tokenizer.to_str()), Sentinels(*map(tokenizer.token_to_id, names))


def library_of(file_text: str) -> Tokenizer:
    """The library's tokenizer; names of special tokens in texts are letters."""
    tokenizer = Tokenizer.from_str(file_text)
    tokenizer.encode_special_tokens = True
    return tokenizer
