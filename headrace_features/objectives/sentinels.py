"""The sentinels of fill in the middle, found by name in a tokenizer's vocabulary."""

from __future__ import annotations

import difflib
from typing import Final, NamedTuple

from headrace_features.objectives.config import FimConfig
from spark_jobs.exceptions import InputError
from spark_jobs.tokens.hf_tokenizer import load_reference
from spark_jobs.tokens.pieces import with_letters

_FORMS: Final = (
    ("<fim_prefix>", "<fim_middle>", "<fim_suffix>"),  # StarCoder, Granite, StableCode, Mellum
    ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),  # Qwen2.5-Coder, CodeGemma, OLMo 3
    ("<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜fim▁hole｜>"),  # DeepSeek: the suffix stands behind the hole
    ("▁<PRE>", "▁<MID>", "▁<SUF>"),  # Code Llama
    ("<PRE>", "<MID>", "<SUF>"),
    ("[PREFIX]", "[MIDDLE]", "[SUFFIX]"),  # Codestral
    ("<fim-prefix>", "<fim-middle>", "<fim-suffix>"),  # SantaCoder
    ("<[fim-prefix]>", "<[fim-middle]>", "<[fim-suffix]>"),  # Seed-Coder
    ("<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>"),  # CodeGeeX4, GLM
)


class Sentinels(NamedTuple):
    """Ids of the tokens before a prefix, a middle and a suffix."""

    prefix: int
    middle: int
    suffix: int


def find_sentinels(file_text: str, config: FimConfig, where: str) -> Sentinels:
    """Find the sentinels that a config names, or else those of a form that models are trained with.

    Args:
        file_text: of a tokenizer.json.
        config: of fill in the middle.
        where: begins the message.

    Raises:
        InputError: the tokenizer lacks one; names what was looked for, and the nearest that is there.
    """
    tokenizer = load_reference(file_text)
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    if config.sentinels is not None:
        names = (config.sentinels.prefix, config.sentinels.middle, config.sentinels.suffix)
        if len(set(names)) < len(names):
            raise InputError(f"{where}: sentinels names a token twice ({', '.join(names)}); name three")
    else:
        names = max(_FORMS, key=lambda form: sum(name in ids for name in form))
    lacking = [name for name in names if name not in ids]
    if not lacking:
        sentinels = Sentinels(*(ids[name] for name in names))
        _check_texts_have_none(file_text, dict(zip(names, sentinels, strict=True)), where)
        return sentinels
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    near = difflib.get_close_matches(lacking[0], added, 1, 0.0)
    if config.sentinels is not None:
        looked = f"the tokenizer has no token {lacking[0]!r}"
    elif len(lacking) < len(names):
        looked = f"the tokenizer lacks {', '.join(lacking)} of {' '.join(names)}"
    else:
        looked = f"the tokenizer has none of {', '.join(form[0] for form in _FORMS)}, nor a middle or suffix to them"
    nearest = f"; nearest is {near[0]!r}" if near else ""
    raise InputError(
        f"{where}: {looked}{nearest}; name its tokens in sentinels: {{prefix: .., middle: .., suffix: ..}}"
    )


def _check_texts_have_none(file_text: str, sentinels: dict[str, int], where: str) -> None:
    """Refuse tokens that texts have: nobody could tell where a document was cut.

    Raises:
        InputError: it names the token.
    """
    letters = load_reference(with_letters(file_text, sentinels.values()))
    letters.encode_special_tokens = True
    for name, number in sentinels.items():
        if any(number in letters.encode(text, add_special_tokens=False).ids for text in (name, f"a{name}")):
            raise InputError(
                f"{where}: {name!r} is a token of texts, no sentinel; add tokens of their own to the tokenizer, and "
                "name them in sentinels: {prefix: .., middle: .., suffix: ..}"
            )
