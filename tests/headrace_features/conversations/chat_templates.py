"""Chat templates of the kinds that models have, and random conversations, for tests."""

from __future__ import annotations

import datetime
import functools
import random
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from headrace_features.conversations.encoding import added_tokens
from headrace_features.conversations.parts import KINDS
from headrace_features.conversations.rendering import Renderer, RenderingRules
from headrace_features.conversations.templates import TemplateSettings

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CONTROLS = [
    *("<|endoftext|>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|head|>", "<|body|>", "<|eot|>"),
    *("[INST]", "[/INST]", "<tool_call>", "</tool_call>", '<|"|>'),
]
NOT_SPECIAL = ("<think>", "</think>")
TEMPLATES = {
    "chatml": """{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|im_end|>
{% endgeneration %}{% else %}{{ message.content }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""",
    "trimmed": """{{ bos_token }}{%- if tools %}{{ '<|head|>tools<|body|>' + tools | tojson + '<|eot|>' }}{% endif %}
{%- for message in messages %}
    {%- if message.tool_calls %}
{{ '<|head|>' ~ message.role ~ '<|body|>' }}{% generation %}{% for call in message.tool_calls %}<tool_call>
{{- call.function | tojson }}</tool_call>{% endfor %}<|eot|>{% endgeneration %}
    {%- else %}
{{ '<|head|>' ~ message.role ~ '<|body|>' }}
        {%- if message.role == 'assistant' %}{% generation %}{{ message.content | trim }}<|eot|>{% endgeneration %}
        {%- else %}{{ message.content | trim + '<|eot|>' }}{% endif %}
    {%- endif %}
{%- endfor %}{% if add_generation_prompt %}<|head|>assistant<|body|>{% endif %}""",
    "thinking": """{% set ns = namespace(last=-1) %}{% for message in messages %}
{%- if message.role == 'user' and not message.content.startswith('<tool') %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}{% generation %}{% set content = message.content | default('', true) %}
{%- set thought = message.reasoning_content | default('', true) %}
{%- if not thought and '</think>' in content %}{% set thought = content.split('</think>')[0] %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}
{%- if thought and loop.index0 > ns.last %}{{ '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}{% endif %}
{{- content }}{% for call in message.tool_calls or [] %}
<tool_call>{{ call.function.name }} {{ call.function.arguments | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endgeneration %}{% elif message.role == 'tool' %}{{ message.content }}<|im_end|>
{% else %}{{ message.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "instructed": """{{ bos_token }}{% for message in messages %}{% if message.role == 'user' %}{{ '[INST] ' }}
{%- if loop.last or loop.index0 == messages | length - 2 %}{% for other in messages if other.role == 'system' %}
{{- other.content + '\\n\\n' }}{% endfor %}{% endif %}{{ message.content }}[/INST]
{%- elif message.role == 'assistant' %}{% generation %} {{ message.content + eos_token }}{% endgeneration %}
{%- endif %}{% endfor %}""",
    "parts": """{% for message in messages %}<|head|>{{ message.role }}<|body|>{% for part in message.content %}
{%- if message.role == 'assistant' %}{% generation %}{{ part.text }}<|eot|>{% endgeneration %}
{%- else %}{{ part.text }}<|eot|>{% endif %}{% endfor %}{% endfor %}
{%- if add_generation_prompt %}<|head|>assistant<|body|>{% endif %}""",
}
ODD_TEXTS = (
    *("hello world", " both blanks \n", "\nline\n", "x", "</think> a tail", "<think>so</think>then", "<tool_r>"),
    *('"quoted" \\ back', "é ü 漢字", "a\n\nb", "42", "true", '{"a": 1}', "<|im_end|>", "say <|eot|> and </s>", "user"),
    *("assistant", "\t\u2005 thin \u2006", "[INST] x", "None", "🙂", "</tool_call>", 'a <|"|> b'),
)


@functools.cache
def tokenizer_file() -> str:
    """A tokenizer.json of bytes with the control tokens of the templates."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["hello world, how are you: a tail of the user and the assistant\n"] * 20, trainer)
    tokenizer.add_special_tokens(CONTROLS)
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in NOT_SPECIAL])
    return str(tokenizer.to_str())


def renderer(name: str, train: Any = "assistant", allow: Any = KINDS) -> Renderer:
    """A renderer by a template of this module."""
    settings = TemplateSettings(TEMPLATES.get(name, name), SPECIAL, {}, datetime.date(2026, 1, 31))
    return Renderer(RenderingRules(settings, added_tokens(tokenizer_file()), train, False, frozenset(allow)))


def odd_conversation(seed: int, *, calls: bool = True) -> list[dict[str, Any]]:
    """A conversation of one to three rounds, whose texts look like what templates and tokenizers look for."""
    rng = random.Random(seed)

    def text() -> str:
        return "".join(rng.choice(ODD_TEXTS) for _ in range(rng.randint(1, 2)))

    messages: list[dict[str, Any]] = [{"role": "system", "content": text()}] if rng.random() < 0.4 else []
    for _ in range(rng.randint(1, 3)):
        messages.append({"role": "user", "content": text()})
        if calls and rng.random() < 0.3:
            function = {"name": rng.choice(["search", "f"]), "arguments": {"q": text(), "n": rng.randint(0, 9)}}
            call = {"type": "function", "id": "call00001", "function": function}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": "call00001", "content": text()})
        messages.append({"role": "assistant", "content": text()})
        if rng.random() < 0.4:
            messages[-1]["reasoning_content"] = text()
    return messages
