"""An endpoint for tests and for a first try: a deterministic model of word pairs, with faults on request.

    python -m headrace_features.synthetic.stand_in --port 8000
    python -m headrace_features.synthetic.stand_in --port 8000 --fault throttle=.1 --fault cut=.05
    python -m headrace_features.synthetic.stand_in --port 8000 --judge because,therefore --unsteady .1
    python -m headrace_features.synthetic.stand_in --port 8000 --code

It writes words of the prompt, each after a word it follows there, so the same request has the same answer. Use vLLM
(`vllm serve MODEL`) or SGLang (`python -m sglang.launch_server --model-path MODEL`) for a meaningful one.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from headrace.process.interrupts import heed_interrupts
from headrace_features.synthetic.generated_config import BEGIN_TEXT, END_TEXT

if TYPE_CHECKING:
    from aiohttp import web

FAULTS = ("throttle", "cut", "refused")


class StandIn:
    """The behaviour of the endpoint.

    Attributes:
        bodies: requests in the order of arrival.
        counts: injected faults, by name.
    """

    def __init__(
        self,
        faults: dict[str, float] | None = None,
        seed: int = 0,
        seconds: float = 0.0,
        judge: Callable[[str], str] | None = None,
    ) -> None:
        """Make faults at these rates, and answer after so many seconds; `judge` gives the answer to a message."""
        self.faults, self._random, self._seconds = dict(faults or {}), random.Random(seed), seconds
        self._judge = judge
        self.bodies: list[dict[str, Any]] = []
        self.counts: Counter[str] = Counter()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request of chat completion, or make the fault drawn for it."""
        body = await request.json()
        self.bodies.append(body)
        fault = next((name for name, rate in self.faults.items() if self._random.random() < rate), "")
        self.counts[fault] += 1
        await asyncio.sleep(self._seconds)
        return await self.respond(request, body, fault)

    async def respond(self, request: web.Request, body: dict[str, Any], fault: str) -> web.StreamResponse:
        """The response to a request, with a fault or without one (empty)."""
        from aiohttp import web

        if fault == "throttle":
            return web.json_response({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "0.2"})
        return web.json_response(self.completion(body, fault))

    def completion(self, body: dict[str, Any], fault: str) -> dict[str, Any]:
        """The JSON of an answer, with a fault inside."""
        prompt, limit = body["messages"][-1]["content"], int(body["max_tokens"])
        words = written(prompt, limit if fault == "cut" else min(limit, 120), json.dumps(body, sort_keys=True))
        text = " ".join(words) if self._judge is None else self._judge(prompt)
        message = {"role": "assistant", "content": text, "refusal": "I cannot" if fault == "refused" else None}
        prompt_tokens = sum(len(message["content"].split()) for message in body["messages"])
        return {
            "model": body["model"],
            "system_fingerprint": "word-pairs",
            "choices": [{"index": 0, "message": message, "finish_reason": "length" if fault == "cut" else "stop"}],
            "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": len(text.split())},
        }


def written(prompt: str, count: int, seed: str) -> list[str]:
    """`count` words; each follows the one before it somewhere in the prompt."""
    words = re.findall(r"\S+", prompt)
    follow = defaultdict(list)
    for word, other in itertools.pairwise(words):
        follow[word].append(other)
    drawn = random.Random(hashlib.sha256(seed.encode()).digest())
    chain = [drawn.choice(words)] if words and count else []
    while chain and len(chain) < count:
        chain.append(drawn.choice(follow.get(chain[-1]) or words))
    return chain


def counting_judge(words: Collection[str], unsteady: float = 0.0, seed: int = 0) -> Callable[[str], str]:
    """A judge counting words of a text: its score is how many there are, 5 at most, and sometimes one off."""
    drawn = random.Random(seed)

    def judge(prompt: str) -> str:
        text = prompt.partition(BEGIN_TEXT)[2].rpartition(END_TEXT)[0]
        count = min(5, sum(word in words for word in re.findall(r"\w+", text.lower())))
        if drawn.random() < unsteady:
            count += 1 if count < 5 else -1
        return f"I count {count} of the words that matter.\nScore: {count}"

    return judge


def write_code(message: str) -> str:
    """Act a conversation: first a program with a fault, then the mended one, then a sentence about its output."""
    if match := re.search(r"exit status 0.*?Output:\n(\S+)", message, re.DOTALL):
        return f"Added up, the numbers below the count of words give {match[1]}."
    if match := re.search(r"range\((\d+)\)", message):
        return f"The name is missing an m; this is mended.\n\n```python\nprint(sum(range({match[1]})))\n```"
    count = len(message.split())
    return f"I add up all numbers below the count of words.\n\n```python\nprint(su(range({count})))\n```"


def application(stand_in: StandIn) -> web.Application:
    """The endpoint as an application of aiohttp."""
    from aiohttp import web

    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/v1/chat/completions", stand_in.answer)
    return app


def main() -> None:
    """Serve until interrupted."""
    from aiohttp import web

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--seconds", type=float, default=0.0, help="before each answer")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME=SHARE", help=", ".join(FAULTS))
    parser.add_argument("--judge", metavar="WORD,WORD,..", help="score texts by how many of these words they have")
    parser.add_argument("--unsteady", type=float, default=0.0, help="share of scores of the judge that are one off")
    parser.add_argument("--code", action="store_true", help="write programs, and mend them by what they gave")
    arguments = parser.parse_args()
    faults = {}
    for fault in arguments.fault:
        name, _, share = fault.partition("=")
        if name not in FAULTS:
            parser.error(f"--fault {fault}: there is no {name}; there are {', '.join(FAULTS)}")
        faults[name] = float(share or 1)
    judge = counting_judge(arguments.judge.lower().split(","), arguments.unsteady) if arguments.judge else None
    judge = write_code if arguments.code else judge
    web.run_app(
        application(StandIn(faults, seconds=arguments.seconds, judge=judge)),
        host="127.0.0.1",
        port=arguments.port,
        print=None,
    )


if __name__ == "__main__":
    heed_interrupts()
    main()
