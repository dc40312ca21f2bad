"""Open a tokenizer.json so that a text has one list of ids, of all of it, whoever encodes it and how often.

A tokenizer.json may ask for things of use to a training loop: to leave merges out at random (`dropout`; `alpha` and
`nbest_size` where a release reads them), to cut texts (`truncation`), to lengthen them (`padding`). All are switched
off. A field of another name may do the same in a later release of `tokenizers`. The library ignores unknown ones, so
it is refused; a name beginning with `_` is a comment. Refused as well are two added tokens that the normalizer makes
one name of (`<Q>` and `<q>` in lower case): each time a file is loaded the library finds one of the two, by chance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_DRAWING: Final = ("dropout", "alpha", "nbest_size")
_TOKENS: Final = frozenset({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"})
_MODEL: Final = frozenset(
    {
        *("type", "vocab", "merges", "unk_token", "unk_id", "byte_fallback", "fuse_unk", "ignore_merges", *_DRAWING),
        *("continuing_subword_prefix", "end_of_word_suffix", "max_input_chars_per_word"),
    }
)
_PARTS: Final = frozenset(
    {
        *("type", "normalizers", "pretokenizers", "processors", "pattern", "String", "Regex", "content", "behavior"),
        *("invert", "add_prefix_space", "trim_offsets", "use_regex", "individual_digits", "delimiter", "length"),
        *("replacement", "prepend_scheme", "split", "str_rep", "prepend", "precompiled_charsmap", "clean_text"),
        *("handle_chinese_chars", "strip_accents", "lowercase", "strip_left", "strip_right", "sep", "cls"),
        *("single", "pair", "special_tokens"),
    }
)
_NAMES: Final = ("special_tokens", "single", "pair")  # of a template: inside are names of tokens, and what adds them


def open_tokenizer(file_text: str) -> Tokenizer:
    """The library's tokenizer for a tokenizer.json; it draws nothing, cuts nothing and adds no padding.

    Raises:
        ValueError: the library does not read it, it has a field unknown here, or two names that are one.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(file_text)
    except Exception as error:  # `tokenizers` raises bare Exception, nothing narrower
        raise ValueError(f"it is no tokenizer.json that this library reads: {error}") from error
    unknown = next(_unknown(json.loads(file_text)), None)
    if unknown is not None:
        raise ValueError(
            f"the field {unknown} is not known here, and ids may depend on it; remove it from the file, or let its "
            "name begin with _ if it is a comment"
        )
    names = _names_of_one_form(tokenizer)
    if names is not None:
        raise ValueError(
            f"its added tokens {names[0]!r} and {names[1]!r} are one name to its normalizer, tokenizers finds either "
            "by chance; remove one of them, or let it be not normalized"
        )
    model = tokenizer.model
    for name in _DRAWING:
        if hasattr(model, name):
            setattr(model, name, None)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def open_text_tokenizer(file_text: str) -> Tokenizer:
    """As `open_tokenizer`, for texts without control tokens in their words: what a text says is letters.

    `encode_special_tokens` alone leaves the pieces of a model: Unigram reads a text's `</s>` as the piece of that name,
    as do models of whole words and BPE with merges (or `ignore_merges`) leading there. Such pieces get a name that no
    text has, and keep their ids; a letter stays itself, and so may the name of unknown words, as whoever writes it is
    not known either.

    Raises:
        ValueError: as `open_tokenizer`.
    """
    try:
        declared = json.loads(file_text)
        model = declared["model"]
        unknown = model.get(
            "unk_token", model["vocab"][model["unk_id"]][0] if model.get("unk_id") is not None else None
        )
        special = {token["content"] for token in declared["added_tokens"] if token["special"]}
        controls = {name for name in special - {unknown} if len(name) > 1}
        for token in declared["added_tokens"]:
            token["content"] = _hidden(token["content"], controls)
        vocabulary = model["vocab"]
        is_list = isinstance(vocabulary, list)
        pieces = vocabulary if is_list else vocabulary.items()
        renamed = [(_hidden(piece, controls), value) for piece, value in pieces]
        model["vocab"] = renamed if is_list else dict(renamed)
        if "merges" in model:
            prefix = model.get("continuing_subword_prefix") or ""
            pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
            model["merges"] = [
                [left, right]
                for left, right in pairs
                if not {left, right, left + right.removeprefix(prefix)} & controls
            ]
        file_text = json.dumps(declared)
    except (ValueError, LookupError, TypeError, AttributeError):  # whatever is wrong with it has its words there
        pass
    tokenizer = open_tokenizer(file_text)
    tokenizer.encode_special_tokens = True
    return tokenizer


def _hidden(name: str, controls: set[str]) -> str:
    """The name of a piece; of a control token one with a character of no text."""
    return f"\U0010fffe{name}" if name in controls else name


def _unknown(declared: dict[str, Any]) -> Iterator[str]:
    """The unknown fields of a tokenizer.json; its top level and its decoder are the library's to refuse."""
    yield from (f"model.{name}" for name in declared["model"] if _is_unknown(name, _MODEL))
    for token in declared.get("added_tokens") or []:
        yield from (f"added_tokens.{name}" for name in token if _is_unknown(name, _TOKENS))
    for section in ("normalizer", "pre_tokenizer", "post_processor"):
        yield from (f"{section}.{name}" for name in _fields(declared.get(section)) if _is_unknown(name, _PARTS))


def _names_of_one_form(tokenizer: Tokenizer) -> tuple[str, str] | None:
    """Two added tokens made one name by the normalizer; None where there are none."""
    if tokenizer.normalizer is None:
        return None
    contents: dict[str, str] = {}
    for token in tokenizer.get_added_tokens_decoder().values():
        if token.normalized:
            other = contents.setdefault(tokenizer.normalizer.normalize_str(token.content), token.content)
            if other != token.content:
                return other, token.content
    return None


def _fields(part: Any) -> Iterator[str]:
    """Names of all fields of a part, however deep."""
    if isinstance(part, list):
        for element in part:
            yield from _fields(element)
    elif isinstance(part, dict):
        for name, value in part.items():
            yield name
            if name not in _NAMES:
                yield from _fields(value)


def _is_unknown(name: str, names: frozenset[str]) -> bool:
    return name not in names and not name.startswith("_")
