"""Conversations rendered, encoded and masked, beside transformers' `apply_chat_template` with its assistant mask.

Both render the same conversations of four turns by the same template, in one run; headrace looks for every text of a
message in the rendering beside that. Microseconds of the processor a conversation, with those of the child process that
renders; the least of three tries. Ids and masks of both are compared. Templates are .jinja files of trl or a model.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import command
from corpora import rfc_pieces
from cpu_time import of_all_processes
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from headrace_features.conversations.child import check_rules, render_apart
from headrace_features.conversations.config import ConversationsConfig
from headrace_features.conversations.encoding import ConversationEncoder, added_tokens
from headrace_features.conversations.messages.conversation import Conversation

_BATCH = 256
_SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": None, "unk_token": None}
_CONTROLS = (
    *("<|endoftext|>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<|begin_of_text|>", "<start_of_turn>", "<end_of_turn>", "<think>", "</think>"),
)


def main() -> None:
    """Measure each template."""
    arguments = command.parser(__doc__)
    arguments.add_argument("templates", type=Path, nargs="+", help=".jinja files with {% generation %} blocks")
    arguments.add_argument("--conversations", type=int, default=50_000, help="of four turns")
    given = command.read(arguments, conversations=500)
    texts = rfc_pieces(4 * given.conversations, 300)
    draw = random.Random(0)
    chats = [
        [{"role": role, "content": draw.choice(texts)} for role in ("user", "assistant") * 2]
        for _ in range(given.conversations)
    ]
    file_text = _tokenizer(texts[:20_000])
    for path in given.templates:
        print(f"{path.stem}: {_measured(path.read_text('utf-8'), chats, file_text)}", flush=True)


def _tokenizer(texts: list[str]) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=16_384, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(list(_CONTROLS))
    return str(tokenizer.to_str())


def _measured(source: str, chats: list[list[dict[str, Any]]], file_text: str) -> str:
    """Microseconds a conversation of both, and their ratio; the rows of both are equal."""
    from transformers import PreTrainedTokenizerFast

    stated = {name: token for name, token in _SPECIAL.items() if token}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(file_text)
        file.flush()
        peer = PreTrainedTokenizerFast(tokenizer_file=file.name, **stated)
    peer.chat_template = source
    config = ConversationsConfig(template="bench@1", special_tokens=_SPECIAL, train="template")
    rules = config.rules(source, added_tokens(file_text))
    names, _ = check_rules(rules)
    encoder = ConversationEncoder(file_text, names, overlaps=True)
    conversations = [Conversation(chat, []) for chat in chats]

    def ours() -> list[Any]:
        rows = []
        for first in range(0, len(conversations), _BATCH):
            rows += encoder.encode(render_apart(rules, conversations[first : first + _BATCH]))  # type: ignore[arg-type]
        return rows

    def theirs() -> list[Any]:
        options = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
        return [peer.apply_chat_template(chat, **options) for chat in chats]

    (rows, own), (wanted, peers) = _best(ours), _best(theirs)
    quoting = [any(name in message["content"] for message in chat for name in names) for chat in chats]
    differ = sum(
        row.ids.tolist() != other["input_ids"] or row.trainable.astype(int).tolist() != other["assistant_masks"]
        for row, other, quotes in zip(rows, wanted, quoting, strict=True)
        if not quotes  # a control token's name in a message is letters here
    )
    own, peers = own / len(chats) * 1e6, peers / len(chats) * 1e6
    compared = len(chats) - sum(quoting)
    return f"{own:.0f} : {peers:.0f} us a conversation, {peers / own:.1f} times; {differ} of {compared} rows differ"


def _best(work: Any) -> tuple[list[Any], float]:
    rows, spent = work(), list[float]()
    for _ in range(3):
        before = of_all_processes()
        work()
        spent.append(of_all_processes() - before)
    return rows, min(spent)


if __name__ == "__main__":
    main()
