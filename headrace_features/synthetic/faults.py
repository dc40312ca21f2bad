"""What a response without an answer says: of the request, of the endpoint, or of this moment; and the mend.

Only what an endpoint says of one request is kept for good (`rejected`): its prompt is too long, or its content is not
answered. Everything else may be a mistake at the endpoint, such as a wrong key, model or field, for which servers and
gateways have any status of 400 to 499; such a request is open again in the next run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from headrace_features.synthetic.generated_config import ABSENT

WAIT_STATUSES: Final = frozenset({429, 503, 529})
HOPELESS_STATUSES: Final = frozenset({401, 402, 403, 404})  # no other request would do better
PASSING_STATUSES: Final = frozenset({408, 409, 425})  # of 400 to 499; from 500 on all are
_SAID: Final = 160  # characters of a server's words in a line for people

# As OpenAI, Azure, vLLM, SGLang, llama.cpp, TGI, Ollama, Mistral, Anthropic, Gemini, DeepSeek, DashScope, Cohere,
# OpenRouter and litellm say it.
_TOO_LONG: Final = re.compile(
    r"context.?length.?exceeded|context.?window.?exceeded|exceed\w*.{0,40}(context|number of tokens|token limit)"
    r"|exceed.?context|maximum (context|input|sequence|prompt) length|model'?s (maximum |max )?context"
    r"|(prompt|input|context|message)s?\b.{0,40}too (long|large|many tokens)|too many (input )?tokens|request too large"
    r"|tokens. must be <=|must have less than \d+ tokens|range of input length|tokens in the prompt cannot exceed"
    r"|longer than the (model|maximum)|reduce the length|string_above_max_length|string too long",
    re.IGNORECASE,
)
_CONTENT: Final = re.compile(
    r"content.?(filter|policy|management policy|exists risk|moderation)(?!.?fallback)|contentpolicyviolation"
    r"|responsibleai|moderation|usage (policy|policies|guidelines)|\binvalid_prompt\b|flagged|inappropriate content"
    r"|data.?inspection|sensitive.?(content|information)|high risk"
    r"|safety (system|reasons|settings)|prohibited.?content",
    re.IGNORECASE,
)
_LIMIT: Final = re.compile(r"max_(completion_)?tokens.{0,60}(too large|at most|greater|exceed)", re.IGNORECASE)
_MENDS: Final = (  # by what the server's words have
    (r"^status 200, and no JSON: (data|event|id|retry)?:", "it streams; declare endpoint.more: {stream: false}"),
    (r"^(status 200, and no JSON|a JSON \w+, no object|no choices)", "correct endpoint.url, whose end is /v1 mostly"),
    (r"redirects are not followed", "correct endpoint.url"),
    (_LIMIT.pattern, "lower endpoint.answer_tokens"),
    (r"time.?out|timed out|no answer in", "raise asking.answer_seconds, or the time that the gateway gives the model"),
    (r"max_completion_tokens", "declare endpoint.limit_field: max_completion_tokens"),
    (r"no_db_connection|api.?key|auth|credential|unauthorized|permission|\bforbidden", "correct endpoint.key"),
    (r"connection|connect|ClientPayloadError", "look whether the endpoint and its model are up"),
    (r"temperature", "correct endpoint.temperature"),
    (r"balance|credit|quota|billing|payment|budget", "look at the account of the endpoint"),
    (r"response_format|json.?schema|guided|grammar", "correct answer_schema, or leave it out"),
    (r"unknown|unexpected|unrecognized|unsupported|extra|not permitted|additional propert|parameter|field|argument",
     "correct endpoint.more"),
    (r"model|pinned|deployment|not found", "correct endpoint.model and endpoint.url"),
)  # fmt: skip
_MENDS_OF_REASONS: Final = {
    "cut": "raise endpoint.answer_tokens, or declare on_cut",
    "refused": "word the template otherwise",
    "unfinished": "where the word means a whole answer, declare endpoint.also_whole: [{word}]",
    "unparsed": "have the server parse its model's answers (vLLM: --reasoning-parser)",
    "reasoning_only": "raise endpoint.answer_tokens, or have the model think less",
    "empty": "look at what the endpoint serves as endpoint.model",
    "form": "correct the template's prefix or answer_schema",
    "longer": "raise max_longer, or lower endpoint.answer_tokens",
    "copied": "raise max_copied, or word the template otherwise",
    "repetitive": "look at what the endpoint serves as endpoint.model",
}


def is_of_request(status: int, words: str) -> bool:
    """Whether an endpoint says of this request that it never answers it."""
    if not 400 <= status < 500 or status == 429 or status in PASSING_STATUSES:
        return False
    if _LIMIT.search(words) is not None:  # more than the model can ever write is asked for
        return False
    return status == 413 or _TOO_LONG.search(words) is not None or _CONTENT.search(words) is not None


def commonest(counts: Mapping[str, int]) -> str:
    """The most frequent words; numbers in them may differ."""
    kinds, samples = Counter[str](), dict[str, str]()
    for words, count in counts.items():
        kind = re.sub(r"\d+|'[^']*'|\"[^\"]*\"", "#", words)
        kinds[kind] += count
        samples.setdefault(kind, words)
    return samples[kinds.most_common(1)[0][0]] if kinds else ""


def why(reason: str, words: str) -> str:
    """A server's words and how to mend what they say, in one line.

    Args:
        reason: of the refused answers; `failed` and `rejected` for missing ones.
        words: of the server.
    """
    detail = " ".join(words.split())
    detail = f": {detail[:_SAID]}{'..' if len(detail) > _SAID else ''}" if detail else ""
    if reason in _MENDS_OF_REASONS:
        return f"{reason}{detail}; {_MENDS_OF_REASONS[reason].format(word=words.rpartition(' ')[2] or ABSENT)}"
    if _TOO_LONG.search(words) is not None and _LIMIT.search(words) is None:
        return f"{reason}{detail}; lower endpoint.reads_characters or endpoint.answer_tokens"
    return f"{reason}{detail}; {mend_of(words)}"


def mend_of(words: str) -> str:
    """What mends what a server says."""
    mends = (mend for pattern, mend in _MENDS if re.search(pattern, words, re.IGNORECASE))
    return next(mends, "look at the endpoint: key, model and fields (endpoint.more)")
