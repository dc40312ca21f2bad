"""Mistakes at an endpoint: they burn no question, end the run soon, and are told with their mend."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from headrace.tables.catalogue import load_table
from headrace_features.synthetic import gate
from headrace_features.synthetic.answers import Answer, read_answer
from headrace_features.synthetic.asked import _FIRST, Asked
from headrace_features.synthetic.attempts import Landed
from headrace_features.synthetic.faults import commonest, is_of_request, why
from headrace_features.synthetic.fetch import AnswerPages, ask, fetch_answers, in_vain, reopen_requests
from headrace_features.synthetic.labels import answers as labels
from headrace_features.synthetic.labels.answers import ask_judge, reopen_labels
from headrace_features.synthetic.stand_in import StandIn
from headrace_features.synthetic.worker import work_for
from spark_jobs.exceptions import InputError
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.text.texts import TEXTS
from tests.dagster_project.inspect.test_lake_status import put
from tests.headrace_features.synthetic.labels.test_answers import judge_of, put_sample
from tests.headrace_features.synthetic.test_generated import Twin, declared, requests_for, served
from tests.tiers import sampled

# What servers say of one request: vLLM, SGLang, llama.cpp, TGI, Mistral, Anthropic, Gemini, OpenAI, Azure, litellm ..
TOO_LONG = (
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages).",
    "The input (5000 tokens) is longer than the model's context length (2048 tokens).",
    "request (5303 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3000",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Please reduce the length of the messages or completion. (context_length_exceeded)",
    "litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - request (15019 tokens) exceeds the "
    "available context size (512 tokens), try increasing it model=good. context_window_fallbacks=None. fallbacks=None.",
    "request (15019 tokens) exceeds the available context size (512 tokens) (exceed_context_size_error)",
    "Range of input length should be [1, 30720]",
)
CONTENT = (
    "The response was filtered due to the prompt triggering Azure OpenAI's content management policy. (content_filter)",
    "Invalid prompt: your prompt was flagged as potentially violating our usage policy. (invalid_prompt)",
    "Content Exists Risk", "Input data may contain inappropriate content. (data_inspection_failed)",
    "Your request was rejected as a result of our safety system.",
)  # fmt: skip
MISTAKES = {
    "Invalid model name passed in model=gpt. Call `/v1/models` to view available models": "endpoint.model",
    "The model `m` does not exist. (model_not_found)": "endpoint.model",
    "Authentication Error, Invalid proxy server token passed. key=abc (token_not_found_in_db)": "endpoint.key",
    "Incorrect API key provided: sk-1. (invalid_api_key)": "endpoint.key",
    "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.": "endpoint.limit_field",
    "max_tokens is too large: 100000. This model supports at most 4096 completion tokens": "endpoint.answer_tokens",
    "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 2048 tokens":
        "endpoint.answer_tokens",
    "{'detail': [{'type': 'extra_forbidden', 'loc': ['body', 'top_j'], 'msg': 'Extra inputs are not permitted'}]}":
        "endpoint.more",
    "Unexpected fields in the request: {'top_j'}": "endpoint.more",  # transformers serve 5.24.0
    "Server is pinned to 'm'; requested 'n'.": "endpoint.model",
    "Unsupported value: 'temperature' does not support 0.7 with this model.": "endpoint.temperature",
    "litellm.BadRequestError: no deployment. context_window_fallbacks=None, content_policy_fallbacks=None": "endpoint",
    "No connected db. (no_db_connection)": "endpoint.key",  # litellm 1.108.7, of a wrong key
    "Unable to generate parser for this template. JSON schema error at #: unrecognized type text": "answer_schema",
    "Field 'temperature': [json.exception.type_error.302] type must be number, but is string": "endpoint.temperature",
    "litellm.Timeout: APITimeoutError - Request timed out. model group 'slow' failed": "asking.answer_seconds",
    "litellm.InternalServerError: OpenAIException - Connection error. model group 'dead' failed": "are up",
    "Insufficient Balance": "account",
    "bad": "endpoint",
}  # fmt: skip


@pytest.fixture
def twin(tmp_path: Path) -> Twin:
    """A dataset in a lake of its own."""
    return Twin(tmp_path)


class Refusing(StandIn):
    """An endpoint that says the same of every request, or of those that `when` names."""

    def __init__(self, status: int, said: str, when: Any = lambda body: True) -> None:
        super().__init__()
        self.status, self.said, self.when = status, said, when

    async def respond(self, request: web.Request, body: dict[str, Any], fault: str) -> web.StreamResponse:
        """The refusal, or an answer."""
        if self.when(body):
            return web.json_response({"error": {"message": self.said}}, status=self.status)
        return await super().respond(request, body, fault)


class Forms(StandIn):
    """An endpoint whose answers have other fields than they should."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def completion(self, body: dict[str, Any], fault: str) -> dict[str, Any]:
        """A changed answer."""
        made = super().completion(body, fault)
        self.change(made)
        return made


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422])
def test_what_is_said_of_one_request_is_told_from_what_is_said_of_the_endpoint(status: int) -> None:
    """By the words, whatever the status; each mistake is told with what mends it."""
    assert all(is_of_request(status, one) for one in (*TOO_LONG, *CONTENT))
    assert not any(is_of_request(400, one) for one in MISTAKES)
    assert not any(is_of_request(passing, TOO_LONG[0]) for passing in (408, 409, 425, 429, 500, 503))
    for said, mend in MISTAKES.items():
        assert mend in why("failed", f"status {status}: {said}").rpartition(";")[2], said
    assert "reads_characters" in why("rejected", TOO_LONG[0])
    assert commonest({"a 1": 2, "b": 3, "a 22": 2}) == "a 1" and commonest({}) == ""


MESSAGE = "Extra inputs are not permitted"
FORMS: tuple[Any, ...] = (
    {"error": {"message": MESSAGE, "code": 400}}, {"error": MESSAGE}, {"message": MESSAGE},
    {"msg": MESSAGE, "code": 1214},
    {"object": "error", "message": MESSAGE, "type": "BadRequestError"}, {"errors": [{"message": MESSAGE}]},
    {"detail": MESSAGE}, [{"error": {"message": MESSAGE}}], {"error": {"error": {"message": MESSAGE}}},
    {"detail": [{"type": "extra_forbidden", "loc": ["body", "top_j"], "msg": MESSAGE}]},
    {"error": {"message": [{"msg": MESSAGE, "loc": ["body", "top_j"]}]}},
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("status", [200, 400, 422])
def test_words_of_an_error_are_read_in_every_form_and_what_it_echoes_is_left_out(form: Any, status: int) -> None:
    """FastAPI sends back what it was sent: a text about moderation or too long prompts says nothing of its request."""

    def with_echo(value: Any) -> Any:
        if isinstance(value, list):
            return [with_echo(one) for one in value]
        echo = {"input": {"messages": [{"content": f"{CONTENT[0]} {TOO_LONG[0]}"}]}}
        return {name: with_echo(one) for name, one in value.items()} | echo if isinstance(value, dict) else value

    said = read_answer(status, json.dumps(with_echo(form)).encode())
    if status == 200 and isinstance(form, list):
        assert said == "a JSON list, no object"
        return
    assert isinstance(said, str) and MESSAGE in said and "content management" not in said
    assert ("top_j" in said) == ("top_j" in str(form)), "the field is told"
    assert not is_of_request(status, said)
    assert "endpoint.more" in why("failed", said)


@pytest.mark.parametrize(
    ("body", "mend"),
    [
        (b"<!DOCTYPE html><title>API key</title>", "endpoint.url"), (b"", "endpoint.url"), (b"[]", "endpoint.url"),
        (b'{"type": "message", "content": [{"type": "text", "text": "the model"}]}', "endpoint.url"),
        (b'{"object": "response", "output": []}', "endpoint.url"), (b'{"choices": [{"text": "a"}]}', "endpoint.url"),
        (b'data: {"choices": [{"delta": {}}]}\n\ndata: [DONE]\n\n', "{stream: false}"),
        (b": PROCESSING\n\n", "{stream: false}"),
    ],
)  # fmt: skip
def test_an_answer_of_another_protocol_is_told_with_the_mend(body: bytes, mend: str) -> None:
    """A page, a stream, another API: what came is told, and that the address or the form of answers is wrong."""
    said = read_answer(200, body)
    assert isinstance(said, str) and mend in why("failed", said).rpartition(";")[2]
    assert body[:20].decode() in said or not body.startswith((b"<", b"data", b":"))


@sampled(2)
@pytest.mark.parametrize(
    ("status", "said"),
    [(400, next(iter(MISTAKES))), (422, "Extra inputs are not permitted"), (400, TOO_LONG[0]), (500, "no")],
)
def test_what_all_requests_get_ends_the_run_and_burns_none(status: int, said: str, twin: Twin) -> None:
    """After the first 50 that end for one reason; mended, all are asked."""
    stand_in = Refusing(status, said)
    with served(stand_in) as url:
        source = declared(url, asking={"at_once": 8, "attempts": 2, "backoff_seconds": 0.01})
        asked = requests_for(source, 90)
        done = twin.ask(source, asked)
        assert _FIRST <= len(stand_in.bodies) <= (_FIRST + 8 if status < 500 else 2 * 90 - 1)
        assert done.hopeless and said[:40] in done.stopped and twin.store.outcomes() == {}
        assert twin.tasks(source).counts() == (0, 0)
        assert in_vain(twin.store, done).startswith("no answer came: the first 5")
        stand_in.when = lambda body: False
        assert twin.ask(source, asked).accepted == 90


@sampled(2)
@pytest.mark.parametrize(
    ("change", "reason", "mend"),
    [
        (lambda made: made["choices"][0].pop("finish_reason"), "unfinished", "also_whole: [absent]"),
        (lambda made: made["choices"][0].update(finish_reason="abort"), "unfinished", "also_whole: [abort]"),
        (lambda made: made["choices"][0].update(finish_reason="length"), "cut", "answer_tokens"),
        (lambda made: made["choices"][0]["message"].update(content="<|im_start|>x"), "unparsed", "parse"),
        (lambda made: made["choices"][0]["message"].update(content=""), "empty", "endpoint.model"),
    ],
)
def test_answers_of_which_none_is_a_document_end_the_run(change: Any, reason: str, mend: str, twin: Twin) -> None:
    """They are paid for, 50 of them and no more, and asked again once the declaration is mended."""
    stand_in = Forms(change)
    with served(stand_in) as url:
        source = declared(url, asking={"at_once": 4})
        asked = requests_for(source, 80)
        done = twin.ask(source, asked)
        assert done.hopeless and reason in done.stopped and mend in done.stopped
        assert _FIRST <= len(stand_in.bodies) <= _FIRST + 4 and twin.store.outcomes() == {}
        stand_in.change = lambda made: None
        assert twin.ask(source, asked).accepted == 80


def test_one_answer_shows_that_the_endpoint_is_right(twin: Twin) -> None:
    """What is refused beside it is refused for good, where it is said of the request; else it is open again."""
    number = itertools.count()
    odd = Refusing(400, TOO_LONG[0], lambda body: next(number) != 3)
    with served(odd) as url:
        source = declared(url, asking={"at_once": 1})
        done = twin.ask(source, requests_for(source, 70))
        assert not done.stopped and twin.store.outcomes() == {"": 1, "rejected": 69}
        assert twin.ask(source, requests_for(source, 70)).attempts == 0
        said = in_vain(twin.store, Asked())
        assert said.startswith("69 of 70 requests ended as rejected: status 400: This model's maximum context")
        assert reopen_requests("twin", ["rejected"], twin.catalogue, 1) == {"rejected": 69}
        odd.said, odd.when = "bad", lambda body: next(number) % 2
        assert set(twin.ask(source, requests_for(source, 70)).refused) == {"failed"}


def test_refusals_of_two_kinds_without_an_answer_end_the_run_too(twin: Twin) -> None:
    """A prompt that is too long is refused before the wrong model is noticed: neither had an answer, none is burnt."""
    number = itertools.count()

    class Both(Refusing):
        async def respond(self, request: web.Request, body: dict[str, Any], fault: str) -> web.StreamResponse:
            self.said = TOO_LONG[0] if next(number) % 5 == 0 else "The model `m` does not exist."
            return await super().respond(request, body, fault)

    with served(both := Both(400, "")) as url:
        source = declared(url, asking={"at_once": 8})
        done = twin.ask(source, requests_for(source, 90))
    assert _FIRST <= len(both.bodies) <= _FIRST + 8 and twin.store.outcomes() == {}
    assert done.hopeless and "ended as failed: status 400: The model `m` does not exist.; correct" in done.stopped


@pytest.mark.parametrize("said", [TOO_LONG[0], "bad"])
def test_slow_answers_show_that_quick_refusals_are_of_their_requests(said: str, twin: Twin) -> None:
    """50 are refused before the first answer can be there: the run waits for what is in flight, and goes on."""
    number = itertools.count()

    class Slow(Refusing):
        async def respond(self, request: web.Request, body: dict[str, Any], fault: str) -> web.StreamResponse:
            response = await super().respond(request, body, fault)
            await asyncio.sleep(0 if response.status == 400 else 1)
            return response

    with served(Slow(400, said, lambda body: next(number) % 64 >= 4)) as url:
        source = declared(url, asking={"at_once": 64})
        done = twin.ask(source, requests_for(source, 90))
    assert done.accepted == 8 and not done.stopped and not done.hopeless
    assert sum(twin.store.outcomes().values()) == 90


def test_an_endpoint_that_is_started_again_is_waited_for(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens for longer than all attempts take: after an answer it costs none."""
    monkeypatch.setattr(gate, "_FIRST_PAUSE", 0.01)
    refused = itertools.count()

    class Away(aiohttp.TCPConnector):
        async def connect(self, *args: Any, **fields: Any) -> Any:
            if len(restarted.bodies) == 10 and next(refused) < 6:
                key: Any = SimpleNamespace(ssl=True, host="x", port=1)
                raise aiohttp.ClientConnectorError(key, OSError("refused"))
            return await super().connect(*args, **fields)

    monkeypatch.setattr(aiohttp, "TCPConnector", Away)
    with served(restarted := StandIn()) as url:
        source = declared(url, asking={"at_once": 1, "attempts": 1})
        done = twin.ask(source, requests_for(source, 20))
    assert (done.accepted, done.attempts, dict(done.refused)) == (20, 26, {})


@sampled()
@pytest.mark.parametrize("status", [401, 404, 400])
def test_an_endpoint_that_goes_wrong_later_ends_the_run_too(status: int, twin: Twin) -> None:
    """After 50 that fail in a row, whatever came before; one of them alone ends nothing."""
    number = itertools.count()
    stand_in = Refusing(status, "Model m is gone", lambda body: next(number) in {2, *range(5, 70)})
    with served(stand_in) as url:
        source = declared(url, asking={"at_once": 1})
        asked = requests_for(source, 80)
        done = twin.ask(source, asked)
        assert (done.accepted, done.attempts, dict(done.refused)) == (4, 55, {"failed": 51})
        assert done.hopeless and f"50 requests in a row failed: status {status}: Model m is gone" in done.stopped
        stand_in.when = lambda body: False
        twin.store.reopen()
        assert twin.ask(source, asked).accepted == 76


@pytest.mark.parametrize(
    ("status", "said", "field"),
    [
        (401, "Incorrect API key provided", "key"),
        (404, "The model `m` does not exist.", "model"),
        (403, "Forbidden", "key"),
    ],
)
def test_a_stop_at_once_names_the_field_to_mend(status: int, said: str, field: str, twin: Twin) -> None:
    """Of the endpoint, as the source declares it."""
    with served(Refusing(status, said)) as url:
        stopped = twin.ask(declared(url), requests_for(declared(url), 3)).stopped
    assert said in stopped and f"; correct source.endpoint.{field}" in stopped


def test_a_worker_of_a_wrong_endpoint_ends_with_the_line(twin: Twin) -> None:
    """And forgets what it asked, so that the run has it again."""
    with served(Refusing(400, "Invalid model name passed in model=m")) as url:
        source = declared(url, asking={"at_once": 4})
        twin.tasks(source).put(requests_for(source, 90))
        with pytest.raises(InputError, match=r"twin: the first 5\d requests ended as failed.*correct endpoint.model"):
            asyncio.run(work_for(twin.catalogue, {"twin": source}, asyncio.Event()))
    assert twin.store.outcomes() == {} and twin.store.totals().refused == 0


def test_a_run_without_an_answer_fails_and_says_why(twin: Twin) -> None:
    """The commonest words of the server and the mend; also where it asks nobody, since all is refused already."""
    rows = [{"doc_id": one, "kept": True} for one in "abc"]
    put(twin.catalogue, "notes", VERDICTS, 0, rows)
    put(twin.catalogue, "notes", TEXTS, 0, [{"doc_id": one, "content": f"text {one} of the mill"} for one in "abc"])

    def fetch(url: str) -> str:
        try:
            fetch_answers("twin", declared(url), twin.catalogue, twin.objects, 1)
        except InputError as error:
            return str(error)
        return ""

    with served(Refusing(422, "Extra inputs are not permitted")) as url:
        said = fetch(url)
        assert said.endswith("every request failed: status 422: Extra inputs are not permitted; correct endpoint.more")
    with served(wrong := Refusing(400, TOO_LONG[0])) as url:
        for _ in range(2):
            assert fetch(url).startswith("twin: 3 of 3 requests ended as rejected: status 400: This model's maximum")
            assert fetch(url).endswith("then: headrace dataset reopen twin --reason rejected")
        assert len(wrong.bodies) == 3, "the next run asks nobody, and says so"
    with pytest.raises(InputError, match=r"no request was refused as 'cut'; rejected 3"):
        reopen_requests("twin", ["cut"], twin.catalogue, 1)
    with pytest.raises(InputError, match=r"as 'rejecte'; did you mean 'rejected'\?"):
        reopen_requests("twin", ["rejecte"], twin.catalogue, 1)
    assert reopen_requests("twin", ["rejected"], twin.catalogue, 1) == {"rejected": 3}
    with served(StandIn()) as url:
        assert fetch(url) == "" and fetch(url) == "" and len(twin.records()) == 3


def test_a_run_that_may_ask_nobody_says_so(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """Where `asked_at_most` was reached before `accepted`, by runs before it."""
    put(twin.catalogue, "notes", VERDICTS, 0, [{"doc_id": one, "kept": True} for one in "abc"])
    put(twin.catalogue, "notes", TEXTS, 0, [{"doc_id": one, "content": f"text {one} of the mill"} for one in "abc"])
    with served(StandIn()) as url:
        source = declared(url, asked_at_most=2)
        fetch_answers("twin", source, twin.catalogue, twin.objects, 1)
        assert "nobody was asked" not in caplog.text
        fetch_answers("twin", source, twin.catalogue, twin.objects, 1)
    assert "twin: nobody was asked: asked_at_most is 2, which all runs made; raise it" in caplog.text


def killed(*_: Any) -> None:
    """What a kill looks like from inside."""
    raise KeyboardInterrupt


def test_a_judge_is_asked_again_about_what_it_refused(twin: Twin) -> None:
    """Rows of the reason go from its table, so that the next answer is the only one, also after a kill in between."""
    with served(Refusing(400, TOO_LONG[0], lambda body: "third" in str(body))) as url:
        judge = judge_of(url)
        put_sample(twin.catalogue, judge, {"a": "first", "b": "second", "c": "third"})
        ask_judge("notes", "worth", judge, twin.catalogue, 1)
        table = load_table(twin.catalogue, "notes.answers_worth")
        assert table is not None
        assert sorted(table.scan().to_arrow()["reason"].to_pylist()) == ["", "", "rejected"]
        for at in ("load_table", "reopen_refused"):
            with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(labels, at, killed)
                reopen_labels("notes", "worth", ["rejected"], twin.catalogue, 1)
        assert reopen_labels("notes", "worth", ["rejected"], twin.catalogue, 1) == {"rejected": 1}
    with served(StandIn()) as url:
        again = judge_of(url)
        ask_judge("notes", "worth", again, twin.catalogue, 1)
    rows = twin.catalogue.load_table("notes.answers_worth").scan().to_arrow()
    assert rows["reason"].to_pylist() == [""] * 3 and len(set(rows["key"].to_pylist())) == 3


def test_pauses_without_a_time_grow_and_let_one_through(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 that are sent at once most are refused, and no second time: few are refused for each answer after them."""
    monkeypatch.setattr(gate, "_FIRST_PAUSE", 0.01)

    class Slow(StandIn):
        last, refused = 0.0, 0

        async def respond(self, request: web.Request, body: dict[str, Any], fault: str) -> web.StreamResponse:
            if time.monotonic() < self.last + 0.05:
                self.refused += 1
                return web.json_response({"error": {"message": "rate limit"}}, status=429)
            self.last = time.monotonic()
            return await super().respond(request, body, fault)

    with served(slow := Slow()) as url:
        source = declared(url, asking={"at_once": 64})
        done = twin.ask(source, requests_for(source, 70))
        assert done.accepted == 70 and slow.refused < 64 + 5 * 70


def test_a_gate_pauses_for_longer_each_time_and_for_a_moment_after_an_answer() -> None:
    """One, two, four seconds, a minute at most; requests that were sent before a pause do not make it longer."""
    lock = gate.Gate(declared("http://x/v1", asking={"at_once": 9}).asking)
    now, pauses = time.monotonic(), list[float]()
    for _ in range(8):
        for _ in range(5):
            lock.pause(now, None)
        pauses.append(lock._pause_seconds)
        now = lock._resume
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60] and lock._at_once == 1
    lock.answered()
    lock.pause(lock._resume, None)
    assert lock._pause_seconds == 1 and lock._at_once == 1
    lock.answered()
    for _ in range(3):
        lock.pause(lock._resume, 0.0)
    assert lock._pause_seconds == 4, "no time, such as a date that is past by the clock here, is none"
    lock.answered()
    lock.pause(lock._resume, None)
    lock.pause(now, 7.5)
    assert lock._pause_seconds == 1, "a time that is named is kept to"


class Replicas(StandIn):
    """Servers behind one address: fingerprint and model alternate."""

    def completion(self, body: dict[str, Any], fault: str) -> dict[str, Any]:
        """The answer of the next replica."""
        number = len(self.bodies) % 3
        return {**super().completion(body, fault), "system_fingerprint": f"fp-{number}", "model": f"m-{number % 2}"}


def test_answers_of_any_server_land_each_with_its_own_name(twin: Twin) -> None:
    """In one run; without the declaration an increment is of one of them, and the run says what to declare."""
    with served(Replicas()) as url:
        one, any_ = declared(url, asking={"at_once": 4}), declared(url, served="any")
        asked = requests_for(one, 60)
        assert "declare served: any" in twin.ask(one, asked).stopped
        before = len(twin.records())
        pages = AnswerPages(twin.store, twin.checkpoints, twin.objects, of_all=True)
        done = asyncio.run(ask(twin.tasks(any_), iter(asked), pages.seal_full))
        pages.seal()
        assert not done.stopped and pages.seal() == 0
    records = twin.records()
    assert len(records) == len({one["key"] for one in records}) == 60 > before
    assert {(one["model"], one["fingerprint"]) for one in records} == {
        ("m-0", "fp-0"),
        ("m-1", "fp-1"),
        ("m-0", "fp-2"),
    }


@pytest.mark.parametrize("served_by", ["one", "any"])
def test_a_conversation_with_several_servers_is_one_document_where_that_is_declared(served_by: str, twin: Twin) -> None:
    """Its thoughts are no part of what the model is sent again."""

    class Talking(Replicas):
        def completion(self, body: dict[str, Any], fault: str) -> dict[str, Any]:
            made = super().completion(body, fault)
            code = "```python\nprint(1)\n```" if len(body["messages"]) == 1 else "It gave one."
            made["choices"][0]["message"]["content"] = f"<think>\nhm\n</think>\n\n{code}"
            return made

    with served(talking := Talking()) as url:
        source = declared(url, execute={"rounds": 3}, served=served_by, asking={"at_once": 1})
        pages = AnswerPages(twin.store, twin.checkpoints, twin.objects, of_all=served_by == "any")
        tasks, wanted = twin.tasks(source), iter(requests_for(source, 1))
        done = asyncio.run(ask(tasks, wanted, pages.seal_full, executor=lambda _: lambda code: ("1", "0")))
        pages.seal()
        assert not any("<think>" in message["content"] for body in talking.bodies for message in body["messages"])
    if served_by == "one":
        assert done.refused == {"other_model": 1}
        return
    assert done.accepted == 1
    for record in twin.records():
        assert record["reasoning"] == "hm\n\nhm" and record["text"].endswith("It gave one.")
        assert len(record["served"].split(", ")) == 2


def test_reopening_leaves_what_was_accepted(twin: Twin) -> None:
    """Whatever keys or reasons are named, and what it cost stays counted."""
    source = declared("http://x/v1")
    asked = requests_for(source, 3)
    ends = [Landed(one, Answer(), "text", reason) for one, reason in zip(asked, ("", "cut", "rejected"), strict=True)]
    twin.store.write([], ends)
    assert twin.store.reopen(keys=[one.key for one in asked[:2]]) == 1
    assert twin.store.outcomes() == {"": 1, "rejected": 1} and twin.store.totals()[:2] == (1, 1)
    assert twin.store.reopen(["rejected", ""]) == 1 and twin.store.totals()[:2] == (1, 0)
