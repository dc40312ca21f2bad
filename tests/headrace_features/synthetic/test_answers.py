"""Answers: only what is known to be whole is a document, in whatever form a server or a gateway gives it."""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from headrace_features.synthetic.answers import Answer, AnswerVerdict, answer_of, copied_share, judged, read_answer
from headrace_features.synthetic.generated_config import PromptTemplate
from headrace_features.synthetic.requests import request_of
from headrace_features.synthetic.stand_in import StandIn
from headrace_features.synthetic.thoughts import parted
from tests.headrace_features.synthetic.test_generated import PLAIN, Twin, declared, requests_for, served
from tests.tiers import sampled

TEXT = "The mill grinds rye.\n\nIt stands at the river."
THOUGHT = "First I look at the mill.\nIt grinds, it seems."
PARENT = "A text about something else altogether, which shares no run of words with what is answered here."
WHOLE = ("stop", "STOP", "eos", "eos_token", "end_turn", "stop_sequence", "COMPLETE")
BY_LENGTH = ("length", "max_tokens", "MAX_TOKENS", "model_length")
NOT_WHOLE = (
    *("abort", "error", "ERROR", None, "insufficient_system_resource", "tool_calls", "function_call", "tool_use"),
    *(
        "content_filter",
        "SAFETY",
        "refusal",
        "network_error",
        "cancelled",
        "null",
        "",
        "FINISH_REASON_UNSPECIFIED",
        "stopped?",
    ),
)


@pytest.fixture
def twin(tmp_path: Path) -> Twin:
    """A dataset in a lake of its own."""
    return Twin(tmp_path)


def response(content: Any = TEXT, finish: Any = "stop", choice: dict[str, Any] | None = None, **message: Any) -> Any:
    """The JSON of an answer."""
    made = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return {
        "model": "m",
        "choices": [{**made, **(choice or {})}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 9},
    }


def verdict(data: Any, template: PromptTemplate = PLAIN, **fields: Any) -> AnswerVerdict:
    """What a response is worth."""
    answer = answer_of(data)
    assert isinstance(answer, Answer), answer
    return judged(answer, template, PARENT, declared("http://x/v1", **fields))


def placed(word: Any) -> Iterator[tuple[str, Any]]:
    """Responses that end for a word, by where it stands: as the reason, or behind the one that a gateway gives."""
    yield "finish_reason", response(finish=word)
    if isinstance(word, str) and word:
        for outer in ("stop", None):
            native = {"native_finish_reason": word}
            yield f"litellm {outer}", response(finish=outer, choice={"provider_specific_fields": native})
            yield f"openrouter {outer}", response(finish=outer, choice=native)


@pytest.mark.parametrize("word", [*WHOLE, *BY_LENGTH, *NOT_WHOLE])
def test_only_what_ended_for_a_word_of_whole_answers_lands(word: Any) -> None:
    """Wherever the word stands; `on_cut: keep` goes on to land what a length cut, and only that."""
    for place, data in placed(word):
        dropped, kept = verdict(data), verdict(data, on_cut="keep")
        assert (dropped.text == TEXT) == (word in WHOLE), place
        assert (kept.text == TEXT) == (word in WHOLE + BY_LENGTH), place
        if dropped.reason and word:
            assert word in dropped.detail, "the word is told"
        assert dropped.reason == "cut" or word not in BY_LENGTH


SPELLINGS: tuple[Callable[[str], str], ...] = (
    str.upper, str.title, lambda word: f" {word}\n", lambda word: word.replace("_", "-"),
    lambda word: word.replace("_", " "), lambda word: word.title().replace("_", ""),
    lambda word: f"FINISH_REASON_{word.upper()}", lambda word: f"FinishReason.{word.upper()}",
)  # fmt: skip


@pytest.mark.parametrize("spelled", SPELLINGS)
@pytest.mark.parametrize("word", ["stop", "end_turn", "length", "max_tokens", "content_filter", "abort", "time_limit"])
def test_a_word_is_read_in_every_spelling(word: str, spelled: Callable[[str], str]) -> None:
    """Gateways give words as their languages name them: with spaces, in large letters, behind an enum's name."""
    for place, data in placed(spelled(word)):
        assert verdict(data).reason == verdict(response(finish=word)).reason, place
    assert verdict(response(finish=spelled(word)), endpoint={"also_whole": [word]}).reason in ("", "cut")


def test_an_endpoint_that_names_no_reason_is_declared() -> None:
    """Without one an answer is not known to be whole; a setting says that it is, and adds further words."""
    absent, null, odd = response(), response(finish=None), response(finish="Finished")
    del absent["choices"][0]["finish_reason"]
    assert [verdict(one).reason for one in (absent, null, odd)] == ["unfinished"] * 3
    assert verdict(absent, endpoint={"also_whole": ["absent"]}).text == TEXT
    assert verdict(null, endpoint={"also_whole": ["absent"]}).reason == "unfinished", "it says that it goes on"
    assert verdict(odd, endpoint={"also_whole": ["finished"]}).text == TEXT


def test_an_answer_that_calls_tools_is_none() -> None:
    """Also where the reason says that it is whole, as some servers have it."""
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    assert verdict(response(tool_calls=calls)).reason == "unfinished"
    assert verdict(response(tool_calls=[])).text == TEXT


PAIRS = (
    *((f"<{name}>", f"</{name}>") for name in ("think", "thinking", "thought", "reasoning", "seed:think", "THINK")),
    *(("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"), ("<|begin_of_thought|>", "<|end_of_thought|>")),
    *(
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        ("<|channel>thought\n", "<channel|>"),
        ("<unused94>thought\n", "<unused95>"),
    ),
)
CHANNEL = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}"
ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "</s>",
    "<|endoftext|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "<turn|>",
    "<｜end▁of▁sentence｜>",
    "<|END_OF_TURN_TOKEN|>",
    "[EOS]",
    "<|user|>",
    "<end_of_utterance>",
)
thoughts = st.text(st.sampled_from("ab \n.,`'é水"), max_size=60)


@given(st.sampled_from(PAIRS), st.sampled_from(["", "\n", "\n\n"]), st.sampled_from(["", "\n", "\n\n"]), thoughts)
def test_a_thought_before_the_text_is_kept_apart(pair: tuple[str, str], inner: str, outer: str, thought: str) -> None:
    """In a pair of marks, and behind one that the prompt opened; nothing of it is in the text, nothing is lost."""
    start, end = pair
    whole = parted(f"{start}{inner}{thought} it is.{inner}{end}{outer}{TEXT}")
    assert (whole.text.strip(), whole.mark) == (TEXT, "") and whole.reasoning == f"{thought} it is.".strip()
    bare = parted(f"{THOUGHT}{inner}{end}{outer}{TEXT}")
    assert (bare.text.strip(), bare.reasoning, bare.mark) == (TEXT, THOUGHT, "")
    assert parted(f"{start}{inner}{THOUGHT}") == ("", THOUGHT, ""), "it never ended"


@pytest.mark.parametrize("end", ["", "<|return|>", "<|end|>"])
def test_channels_are_thought_and_text(end: str) -> None:
    """With their marks, without the first, which a prompt may end in, and where a server dropped the marks."""
    assert parted(CHANNEL.format(THOUGHT, TEXT) + end) == (TEXT, THOUGHT, "")
    assert parted(CHANNEL.format(THOUGHT, TEXT).removeprefix("<|channel|>analysis<|message|>") + end) == (
        TEXT,
        THOUGHT,
        "",
    )
    assert parted(f"<|start|>assistant<|channel|>final<|message|>{TEXT}{end}") == (TEXT, "", "")
    assert parted(f"analysis{THOUGHT}assistantfinal{TEXT}") == (TEXT, THOUGHT, "")
    assert parted(f"analysis{THOUGHT}").text == ""
    assert parted(f"<|channel|>analysis<|message|>{THOUGHT}{end}") == ("", THOUGHT, "")
    assert parted('<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>').mark
    assert parted(CHANNEL.format(THOUGHT, TEXT) + "<|end|><|start|>user<|message|>And now?").mark


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("space", ["", "\n", " "])
def test_marks_of_the_end_are_no_text(end: str, space: str) -> None:
    """Behind the last word; with more behind them the model went on as somebody else, and nothing lands."""
    assert parted(f"{TEXT}{space}{end}\n") == (TEXT, "", "")
    assert parted(f"{TEXT}{space}{end}{end}") == (TEXT, "", "")
    assert parted(f"{TEXT}{end}\nUser: and the other mill?").mark == end
    assert parted(f"{end}{TEXT}").mark == end


QUOTES = [
    "The tag {} stands in a sentence.",
    "Use `{}` for it.\nThat is all.",
    'He wrote "{}" there.',
    "- {} is one of them\n",
    "Look:\n\n```xml\n<think>\nhm\n</think>\n{}\n```\n\nThat is it.",
    "~~~\na = '{}'\n~~~",
    "| {} | what it is |\n",
    "Ends ({}) have names.",
    "1. {} is the first",
    'In a JSON text: {{"mark": "{}"}}.',
]


@pytest.mark.parametrize("form", QUOTES)
def test_a_text_about_marks_stays_as_it_is(form: str) -> None:
    """In code, in quotes, in lists and in the midst of a sentence."""
    for mark in map(str.strip, (*itertools.chain(*PAIRS), *ENDS)):
        if mark[:2] != "</" or "think" in mark or mark == "</s>":
            text = form.format(mark)
            assert parted(text) == (text, "", ""), mark


@pytest.mark.parametrize(
    "content",
    [
        f"{TEXT}\n<think>\nhm\n</think>\nAnd more.",
        f"<|im_start|>assistant\n{TEXT}",
        "<tool_call>\n{}\n</tool_call>",
        f"{TEXT}</s>\nUSER: more",
        f"<think>a</think>b</think>{TEXT}",
        f"[INST] more [/INST] {TEXT}",
        "[TOOL_CALLS][{}]",
        f"It is this </think>\n{TEXT}",
        "This is the end <|im_end|>",
    ],
)
def test_what_was_not_parsed_does_not_land(content: str) -> None:
    """Marks where no text has them: a thought in the midst, calls of tools, turns of others; the mark is told."""
    found = verdict(response(content))
    assert found.reason == "unparsed" and found.detail in content


@sampled(2)
@pytest.mark.parametrize(
    "content",
    [
        "```a\n" * 40_000,
        "\n" * 200_000,
        "x <think> y " * 20_000,
        "<think></think>" * 20_000,
        "a </think> b " * 20_000,
        "<|im_end|>" * 20_000,
        "` " * 100_000,
        "\n```\n</think>\n```" * 20_000,
        "analysisassistantfinal" * 9000,
    ],
)
def test_a_model_that_repeats_itself_is_read_in_time(content: str) -> None:
    """The time is as the length, or this takes hours."""
    assert parted(content)


CALLS = (
    "<tool_call>", "<minimax:tool_call>", "<seed:tool_call>", "<longcat_tool_call>", "<TOOLCALL>", "<tool_calls>",
    "<function_call>", "<xai:function_call>", "<function_calls>", "<function=get_mill>", '<invoke name="get_mill">',
)  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_call_of_a_tool_in_the_text_is_no_text(call: str) -> None:
    """In whatever marks a model has for it, alone or behind a text; a sentence about them stays."""
    for content in (f'{call}{{"a": 1}}', f"{TEXT}\n{call}\n{{}}\n", f"<think>hm</think>\n\n{call}\n{{}}"):
        found = verdict(response(content))
        assert found.reason == "unparsed" and found.detail == call
    assert verdict(response(f"Models write {call} before it.")).text and verdict(response(f"`{call}` is one.")).text


@given(st.sampled_from(PAIRS), st.sampled_from(["The mill ", "Sure! ", "Answer: ", "It turns.\n"]), thoughts)
def test_a_thought_in_the_midst_of_a_text_does_not_land(pair: tuple[str, str], before: str, thought: str) -> None:
    """Whatever stands before it on its line, no part of the text lands; a pair around dots is a mention."""
    start, end = map(str.strip, pair)
    words = f"a {thought}".replace("\n", " ").rstrip()
    assert verdict(response(f"{before}{start} {words}b{end} and {TEXT}")).reason == "unparsed"
    if start[0] == "<" and start.strip("<>").replace(":", "").isalpha():
        for dots in ("", "...", "…"):
            text = f"A thought goes into {start}{dots}{end} there."
            assert parted(text) == (text, "", "")


def test_a_thought_in_words_is_kept_apart() -> None:
    """As Granite 3.2 has it, whose template knows no marks."""
    assert parted(f"Here is my thought process:\n{THOUGHT}\n\nHere is my response:{TEXT}") == (TEXT, THOUGHT, "")
    assert parted(f"Here's my thought process: {THOUGHT}") == ("", THOUGHT, "")


@given(
    st.recursive(
        st.sampled_from([*itertools.chain(*PAIRS), *ENDS, *CALLS]),
        lambda some: st.lists(some) | st.dictionaries(st.sampled_from(ENDS), some),
    ),
    st.sampled_from([None, 0, 2]),
)
def test_marks_in_a_json_answer_are_words(value: Any, indent: int | None) -> None:
    """Where all of the answer is JSON nothing is taken out of its texts."""
    text = json.dumps([value], indent=indent, ensure_ascii=False)
    assert parted(text) == (text, "", "") == parted(f"\ufeff{text}")


def test_contents_in_parts_are_joined() -> None:
    """Texts are the text, thoughts are kept apart, refusals refuse, and a part of another kind is not parsed."""
    text = [{"type": "text", "text": TEXT[:9]}, {"type": "text", "text": TEXT[9:]}]
    forms = (
        [{"type": "thinking", "thinking": THOUGHT}],
        [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}],
        [{"type": "reasoning", "text": THOUGHT}],
        [{"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}]}],
    )
    assert verdict(response(text)).text == verdict(response([TEXT])).text == TEXT
    for form in forms:
        answer = answer_of(response([*form, *text]))
        assert isinstance(answer, Answer) and (answer.text, answer.reasoning) == (TEXT, THOUGHT)
    assert verdict(response([*text[:1], {"type": "refusal", "refusal": "No."}])) == ("", "refused", "No.")
    assert verdict(response([*text, {"type": "image_url", "image_url": {}}])) == (
        "",
        "unparsed",
        "a part of type image_url",
    )
    assert verdict(response([])).reason == "empty"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking", "reasoning_details"])
def test_thoughts_that_a_server_sets_apart_are_kept(field: str) -> None:
    """As a text, or as a list of parts; beside a thought in the content too."""
    for value in (THOUGHT, [{"type": "reasoning.text", "text": THOUGHT}]):
        answer = answer_of(response(**{field: value}))
        assert isinstance(answer, Answer) and (answer.text, answer.reasoning) == (TEXT, THOUGHT)
    assert verdict(response(None, **{field: THOUGHT})).reason == "reasoning_only"


def test_choices_are_read_by_their_index() -> None:
    """Servers may send them in any order."""
    first, second = response("One.")["choices"][0], {**response("Two.")["choices"][0], "index": 1}
    assert verdict({"choices": [second, first]}).text == verdict({"choices": [first, second]}).text == "One."
    assert verdict({"choices": [second]}).text == "Two."


FAULTS = {
    "choices[0].error": (
        200,
        {"choices": [{"index": 0, "error": {"message": "overloaded", "code": 502}, "message": {}}]},
    ),
    "error": (200, {"error": {"message": "overloaded", "code": 502}}),
    **{str(status): (status, {"error": {"message": "again"}}) for status in (408, 409, 425, 500, 502, 504)},
}


@sampled(2)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_passes_is_tried_again(fault: str, twin: Twin) -> None:
    """An error in any place of a 200, a time-out, a conflict: the second attempt is answered."""
    status, value = FAULTS[fault]

    class Once(StandIn):
        async def respond(self, request: web.Request, body: dict[str, Any], fault: str) -> web.StreamResponse:
            if self.bodies.count(body) == 1:
                return web.json_response(value, status=status)
            return await super().respond(request, body, fault)

    with served(Once()) as url:
        done = twin.ask(declared(url), requests_for(declared(url), 4))
        assert (done.accepted, done.attempts, dict(done.refused)) == (4, 8, {})


def test_fenced_json_is_unfenced_once() -> None:
    """Under a schema, where the fence is all of the answer; the JSON is what lands."""
    template = PromptTemplate(name="json", user="{text}", answer_schema={"type": "object", "required": ["q"]})
    data = json.dumps({"q": "has ``` in it\n"}, indent=1)
    for form in (
        "```json\n{}\n```",
        "```\n{}\n```",
        "~~~JSON\n{}\n~~~",
        "  ```json {} ```\n",
        "````json\n{}\n````",
        "```{}```",
    ):
        assert verdict(response(form.replace("{}", data)), template).text == data, form
    for form in ("Here:\n```json\n{}\n```", "```json\n```json\n{}\n```\n```", "```json\n{}", "{}\n```"):
        assert verdict(response(form.replace("{}", data)), template).reason == "form", form
    for constant in ("NaN", "Infinity", "-Infinity"):
        assert verdict(response(f'{{"q": {constant}}}'), template).reason == "form", "Python reads it, JSON has it not"
    assert verdict(response(f"```json\n{data}\n```")).text.startswith("```"), "without a schema a fence is text"


SCRIPTS = {
    "Latin": "the mill stands at the river and its race was dry for most of the summer",
    "Cyrillic": "мельница стоит у реки и её жёлоб был сух почти всё лето того года",
    "Hangul": "방앗간은 강가에 서 있고 그 물길은 그해 여름 내내 말라 있었다 한다",
    "Han": "水车立在河边，那年夏天的大部分时间水渠都是干的。人们等着雨来",
    "Thai": "โรงสีตั้งอยู่ริมแม่น้ำและรางน้ำแห้งเกือบตลอดฤดูร้อนของปีนั้น",
    "Khmer": "រោងម៉ាស៊ីនឈរនៅមាត់ទន្លេ ហើយប្រឡាយរបស់វាស្ងួតពេញរដូវក្តៅ",
    "Javanese": "ꦥꦁꦒꦶꦭꦶꦁꦔꦤ꧀ꦲꦤꦲꦶꦁꦥꦶꦁꦒꦶꦂꦏꦭꦶꦭꦤ꧀ꦧꦚꦸꦤꦺꦲꦱꦠ꧀",
    "Tai Tham": "ᩁᩰᩫ᩠ᨦᨾᩮᩬᩥᨦᨲᩢ᩠ᨦᨿᩪᩁᩥ᩠ᨾᨶᩣᩴᨾᩯ᩵ᩁᩣ᩠ᨦᨶᩣᩴᩉᩯ᩠᩶ᨦ",
    "accents": "l'école du moulin était fermée pendant tout l'été où la rivière à côté était sèche",
    "kana": "みずぐるまはかわのほとりにたち、そのなつはずっとみずがなかった",
}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("guest", ["水", "ก", "の", "x", "ю", "𠀀"])
def test_a_letter_of_another_script_hides_no_copy(script: str, guest: str) -> None:
    """Each run of a script is cut by its own rule, in the answer and in its parent alike."""
    parent = SCRIPTS[script]
    for answer in (f"{guest} {parent}", f"{parent} {guest}", parent, f"{parent}\n\n({guest})"):
        assert copied_share(answer, parent) > 0.5
        assert copied_share(parent, answer) == 1.0
        for form in ("NFC", "NFD"):
            assert copied_share(unicodedata.normalize(form, parent), answer) == 1.0, "letters are equal however stored"
    assert copied_share(f"{parent} and {' '.join(map(str, range(90)))}", parent) < 0.5


def test_samples_have_seeds_of_their_own() -> None:
    """The same bytes sent twice have one answer; where a sample can be no other one, several are refused."""
    source = declared("http://x/v1", samples=3, endpoint={"more": {"seed": 7, "random_seed": 1, "top_p": 0.9}})
    (request,) = requests_for(source, 1)
    bodies = [request_of(request.parent, PLAIN, source.endpoint, sample).body for sample in range(3)]
    assert [(one["seed"], one["random_seed"], one["top_p"]) for one in bodies] == [
        (7, 1, 0.9),
        (8, 2, 0.9),
        (9, 3, 0.9),
    ]
    plain = declared("http://x/v1")
    assert "seed" not in request_of(request.parent, PLAIN, plain.endpoint, 2).body
    for endpoint, said in (
        ({"temperature": 0}, "temperature: 0"),
        ({"more": {"top_k": 1}}, "top_k: 1"),
        ({"more": {"seed": "7"}}, "whole number"),
        ({"more": {"max_completion_tokens": 9}}, "endpoint.limit_field"),
    ):
        with pytest.raises(ValidationError, match=said):
            declared("http://x/v1", samples=2, endpoint=endpoint)
    assert declared("http://x/v1", endpoint={"temperature": 0}).samples == 1


def test_the_limit_has_the_name_that_the_endpoint_takes(twin: Twin) -> None:
    """Newer models take max_completion_tokens alone; it is reserved and raised as the other one."""

    class Newer(StandIn):
        async def respond(self, request: web.Request, body: dict[str, Any], fault: str) -> web.StreamResponse:
            if "max_tokens" in body:
                said = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
                return web.json_response({"error": {"message": said}}, status=400)
            return await super().respond(request, {**body, "max_tokens": body["max_completion_tokens"]}, fault)

    with served(Newer({"cut": 1.0})) as url:
        done = twin.ask(declared(url), requests_for(declared(url), 3))
        assert done.refused == {"failed": 3}
        twin.store.reopen()
        fields: dict[str, Any] = {"limit_field": "max_completion_tokens", "answer_tokens": 30}
        source = declared(url, endpoint=fields, on_cut="raise_limit_once")
        asked = requests_for(source, 3)
        assert asked[0].answer_tokens == 30 and twin.tasks(source).most_tokens(asked[0])[1] == 90
        assert twin.ask(source, asked).refused == {"cut": 6}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda some: (
            st.lists(some, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "message",
                        "content",
                        "type",
                        "text",
                        "error",
                        "index",
                        "finish_reason",
                        "provider_specific_fields",
                        "reasoning",
                        "usage",
                        "tool_calls",
                        "thinking",
                    ]
                ),
                some,
                max_size=4,
            )
        ),
        max_leaves=20,
    ),
    st.sampled_from([200, 400, 500]),
)
def test_whatever_json_a_server_sends_is_an_answer_or_a_fault(value: Any, status: int) -> None:
    """No form of it raises."""
    for data in (
        value,
        {"choices": [value]},
        {"choices": [{"message": value}]},
        {"choices": [{"message": {"content": value}}]},
    ):
        assert isinstance(read_answer(status, json.dumps(data).encode()), Answer | str)


@pytest.mark.parametrize("depth", [300, 450, 900])
@pytest.mark.parametrize("key", ["error", "detail", "thinking", "content"])
def test_whatever_depth_a_server_sends_is_an_answer_or_a_fault(key: str, depth: int) -> None:
    """What Python can parse and is nested deeper than it recurses."""
    for open_, close in ((f'{{"type": "{key}", "{key}": ', "}"), (f'[{{"type": "{key}", "{key}": ', "}]")):
        data = f"{open_ * depth}1{close * depth}".encode()
        wrapped = b'{"choices": [{"message": {"reasoning": ' + data + b', "content": ' + data + b"}}]}"
        for status, body in itertools.product((200, 400), (data, wrapped)):
            assert isinstance(read_answer(status, body), Answer | str)
