"""Datasets that a model writes: what is asked, what is paid for, and what lands, whatever the endpoint does."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from headrace.tables.settings import LakeSettings, settings_at
from headrace_features.synthetic.answers import Answer, answer_of, copied_share, judged
from headrace_features.synthetic.asked import Asked
from headrace_features.synthetic.attempts import AnswerStore, Landed
from headrace_features.synthetic.families import descendants
from headrace_features.synthetic.fetch import AnswerPages, ask
from headrace_features.synthetic.generated_config import GeneratedSource, PromptTemplate
from headrace_features.synthetic.parents import parent_texts
from headrace_features.synthetic.requests import Parent, Request, parts_of, request_of
from headrace_features.synthetic.stand_in import StandIn, application
from headrace_features.synthetic.tasks import TaskQueue
from spark_jobs.exceptions import ConfigError, InputError
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.plan.excisions import record_excisions
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.sources.paged.checkpoints import Checkpoints
from spark_jobs.text.texts import TEXTS
from tests.dagster_project.inspect.test_lake_status import put
from tests.headrace_features.synthetic.misbehaving import FAULTS, Misbehaving
from tests.tiers import sampled

VOCABULARY = ["".join(letters) for letters in zip("bdfgklmnprstvz" * 2, "aeiou" * 6, "xyzklmnrstbdf" * 3, strict=False)]
PLAIN = PromptTemplate(name="plain", user="Say it again:\n\n{text}")


def declared(url: str, **fields: Any) -> GeneratedSource:
    """A source with one template."""
    endpoint = {"url": url, "model": "m", **fields.pop("endpoint", {})}
    asking = {"backoff_seconds": 0.05, "answer_seconds": 2, "silence_seconds": 20, **fields.pop("asking", {})}
    return GeneratedSource.model_validate(
        {"parents": {"dataset": "notes"}, "templates": [PLAIN], "endpoint": endpoint, "asking": asking, **fields}
    )


def requests_for(source: GeneratedSource, count: int, words: int = 120) -> list[Request]:
    """Requests about texts of different words."""
    drawn = random.Random(0)
    texts = (" ".join([f"text{number}", *drawn.choices(VOCABULARY, k=words)]) for number in range(count))
    parents = (Parent("notes", f"{number:032x}", text, 0, len(text)) for number, text in enumerate(texts))
    return [request_of(parent, PLAIN, source.endpoint) for parent in parents]


@contextmanager
def served(stand_in: StandIn) -> Iterator[str]:
    """The address of a stand-in in a thread of its own; what it still does at the end is cancelled."""
    loop, started, stopped, port = asyncio.new_event_loop(), threading.Event(), asyncio.Event(), list[int]()

    async def serve() -> None:
        runner = web.AppRunner(application(stand_in), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port.append(runner.addresses[0][1])
        started.set()
        await stopped.wait()
        await runner.cleanup()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def run() -> None:
        loop.run_until_complete(serve())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    started.wait()
    try:
        yield f"http://127.0.0.1:{port[0]}/v1"
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()


class Twin:
    """A dataset that a model writes, in a lake of its own."""

    def __init__(self, root: Path, uri: str | None = None) -> None:
        """Open the lake, with another database than its own where one is named."""
        settings = settings_at(root)
        if uri is not None:
            settings = LakeSettings({**settings.properties, "uri": uri}, embedded=False)
        self.catalogue = open_catalogue(settings)
        self.store = AnswerStore(self.catalogue, "twin")
        self.checkpoints = Checkpoints(self.catalogue, "twin")
        self.objects = ObjectFolder.of(self.catalogue, "twin")

    def tasks(self, source: GeneratedSource, lease_seconds: float = 60.0, name: str = "twin") -> TaskQueue:
        """Its queue, or that of another dataset."""
        return TaskQueue(AnswerStore(self.catalogue, name), source, lease_seconds)

    def ask(self, source: GeneratedSource, asked: list[Request], lease_seconds: float = 60.0) -> Asked:
        """Ask what has no answer yet, as a run does."""
        pages = AnswerPages(self.store, self.checkpoints, self.objects)
        done = asyncio.run(ask(self.tasks(source, lease_seconds), iter(asked), pages.seal_full))
        pages.seal()
        return done

    def records(self) -> list[dict[str, Any]]:
        """What lies in its pages."""
        found = []
        for pages in self.checkpoints.all_pages().values():
            for page in pages:
                assert page.object is not None
                with self.objects.open(page.object) as file:
                    found += json.loads(bytes(file.read()))
        return found


@pytest.fixture
def twin(tmp_path: Path) -> Twin:
    """A dataset in a lake of its own."""
    return Twin(tmp_path)


def test_a_key_is_all_that_is_sent() -> None:
    """Another text, template, model, limit, parameter, schema or sample is another key; the parent's name is none."""
    source = declared("http://x/v1")
    parent = Parent("notes", "a", "one two", 0, 7)
    first = request_of(parent, PLAIN, source.endpoint)
    others = [
        request_of(Parent("notes", "a", "one  two", 0, 8), PLAIN, source.endpoint),
        request_of(parent, PromptTemplate(name="plain", user="Say it:\n\n{text}"), source.endpoint),
        request_of(parent, PromptTemplate(name="plain", user=PLAIN.user, system="Do."), source.endpoint),
        request_of(parent, PLAIN, source.endpoint.model_copy(update={"model": "n"})),
        request_of(parent, PLAIN, source.endpoint.model_copy(update={"more": {"top_p": 0.9}})),
        request_of(parent, PLAIN, source.endpoint, sample=1),
        request_of(parent, PLAIN, source.endpoint, answer_tokens=7),
    ]
    assert len({first.key, *(one.key for one in others)}) == 8
    assert request_of(Parent("x", "b", "one two", 3, 10), PLAIN, source.endpoint).key == first.key


@given(st.text(st.sampled_from("ab .\n。日"), max_size=400), st.integers(100, 150))
def test_parts_of_a_parent_are_all_of_it(text: str, most: int) -> None:
    """In order, none too long, nothing left out but white space; spans are bytes of the text."""
    data, at = text.encode(), 0
    for part in parts_of("d", "x", text, most):
        assert data[part.start : part.end].decode() == part.text and len(part.text) <= most
        assert not data[at : part.start].strip()
        at = part.end
    assert not data[at:].strip()


def test_answers_are_judged_by_kind() -> None:
    """Each kind of unusable answer has its reason; a usable one loses the prefix that was asked for."""
    parent = "The mill stood at the river, and its race was dry for most of the summer of that year."
    schema = PromptTemplate(name="json", user="{text}", answer_schema={"type": "object", "required": ["q"]})
    prefixed = PromptTemplate(name="p", user="{text}", prefix="Here:")

    nested = PromptTemplate(name="deep", user="{text}", answer_schema={"items": {"$ref": "#"}})

    def verdict(answer: Answer, template: PromptTemplate = PLAIN, **more: Any) -> str:
        answer = replace(answer, finish=answer.finish or "stop")
        return judged(answer, template, parent, declared("http://localhost", **more))[1]

    well = judged(Answer("Here: all is well", finish="stop"), prefixed, parent, declared("http://localhost"))
    assert well == ("all is well", "", "")
    assert verdict(Answer("[[1]]"), nested) == "" and verdict(Answer("[" * 400 + "]" * 400), nested) == "form"
    assert verdict(Answer("all is well", finish="length")) == "cut"
    assert verdict(Answer("all is well", finish="length"), on_cut="keep") == ""
    assert verdict(Answer("", refusal="no")) == verdict(Answer("x", finish="content_filter")) == "refused"
    assert (verdict(Answer(" \n ")), verdict(Answer("", "thoughts"))) == ("empty", "reasoning_only")
    assert verdict(Answer("all is well"), prefixed) == "form"
    assert [verdict(Answer(one), schema) for one in ("{", "[]", '{"q": 1}')] == ["form", "form", ""]
    assert verdict(Answer("a different word " * 200)) == "longer"
    assert verdict(Answer("so it goes on " * 60)) == "repetitive"
    assert verdict(Answer(f"{parent} Indeed.")) == "copied"
    assert copied_share("水车在河边", "水车在河边。") == 1.0 and copied_share("", parent) == 0.0
    assert "error: out of memory" in str(answer_of({"error": {"message": "out of memory"}}))
    strange: Any
    for strange in (None, [], {}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": 3}]}, {"choices": "x"}):
        assert isinstance(answer_of(strange), str)
    odd = answer_of({"choices": [{"message": {"content": None}}], "usage": {"prompt_tokens": -1}})
    assert odd == Answer()


@sampled(3)
@pytest.mark.parametrize("fault", FAULTS)
def test_an_endpoint_that_misbehaves_costs_its_own_requests_alone(fault: str, twin: Twin) -> None:
    """A third of the attempts meet the fault; each request ends once, with an answer or a reason."""
    stand_in = Misbehaving({fault: 0.3}, seed=5)
    with served(stand_in) as url:
        answer_seconds = 1 if fault in ("hang", "trickle") else 60  # a busy machine is late too
        source = declared(url, asking={"at_once": 8, "attempts": 20, "answer_seconds": answer_seconds})
        asked = requests_for(source, 40)
        done = twin.ask(source, asked)
        outcomes = twin.store.outcomes()
        passing = {"throttle", "hang", "trickle", "broken", "error_200", "unavailable", "not_json", "no_usage"}
        if fault == "other_model":
            assert "now m-2" in done.stopped
            models = {one["model"] for one in twin.records()}
            assert models == {"m"}, "an increment is of one model"
            while twin.ask(source, asked).stopped:  # the next run may meet the fault too, and lands one model or more
                assert len({one["model"] for one in twin.records()}) <= 2
            assert twin.store.outcomes() == {"": 40}
            while len(twin.records()) < 40:
                assert AnswerPages(twin.store, twin.checkpoints, twin.objects).seal()
            assert len(twin.records()) == 40
            return
        assert not done.stopped and sum(outcomes.values()) == 40
        assert (outcomes == {"": 40}) == (fault in passing) and stand_in.counts[fault] > 0
        assert (
            done.attempts
            == len(stand_in.bodies)
            == 40 + (stand_in.counts[fault] if fault in passing - {"no_usage"} else 0)
        )
        assert (twin.store.spent()[2] > 0) == (fault == "no_usage")
        reasons = {"null": "empty", "white_space": "cut", "reasoning": "reasoning_only", "copy": "copied"}
        if fault not in passing:
            assert set(outcomes) == {"", reasons.get(fault, fault)}
        assert twin.ask(source, asked).attempts == 0, "a key that was answered is never asked again"


def test_a_text_that_several_documents_have_is_asked_about_once(twin: Twin) -> None:
    """Whether it is answered, on its way or in the same task; the first of them is the parent."""
    with served(StandIn(seconds=0.01)) as url:
        source = declared(url, asking={"at_once": 4})
        asked = requests_for(source, 50)
        others = [replace(one, parent=replace(one.parent, doc_id="f" * 32)) for one in asked]
        done = twin.ask(source, [*asked[:40], *others, *asked])
        assert done.attempts == done.accepted == 50
        assert sum(one["parent"] == "f" * 32 for one in twin.records()) == 10


def test_a_cut_answer_is_asked_for_once_more_with_twice_the_limit(twin: Twin) -> None:
    """Never unchanged; where that is cut too, it stays so, also in the next run."""
    stand_in = StandIn({"cut": 1.0})
    with served(stand_in) as url:
        source = declared(url, on_cut="raise_limit_once", endpoint={"answer_tokens": 30})
        asked = requests_for(source, 5)
        twin.ask(source, asked)
        assert sorted(body["max_tokens"] for body in stand_in.bodies) == [30] * 5 + [60] * 5
        assert twin.store.outcomes() == {"cut": 10} and twin.ask(source, asked).attempts == 0


def test_a_budget_is_not_overspent_by_requests_in_flight(twin: Twin) -> None:
    """64 at a time; it stops before, says so, and goes on once more is allowed."""
    with served(StandIn(seconds=0.02)) as url:
        source = declared(url, budget={"tokens": 20_000}, asking={"at_once": 64}, endpoint={"answer_tokens": 150})
        asked = requests_for(source, 400)
        done = twin.ask(source, asked)
        spent = sum(twin.store.spent()[:2])
        assert "budget" in done.stopped and 20_000 - 1000 < spent <= 20_000
        more = source.model_copy(update={"budget": source.budget.model_copy(update={"tokens": 30_000})})
        twin.ask(more, asked)
        assert 29_000 < sum(twin.store.spent()[:2]) <= 30_000


def test_no_more_are_accepted_than_wanted(twin: Twin) -> None:
    """Though a third of them is refused."""
    with served(Misbehaving({"null": 0.3}, seconds=0.01)) as url:
        source = declared(url, asking={"at_once": 32}, accepted=50)
        done = twin.ask(source, requests_for(source, 400))
        assert done.accepted == twin.store.outcomes()[""] == 50


@pytest.mark.parametrize(("faults", "said"), [({"throttle": 1.0}, "no answer succeeded"), ({"hang": 1.0}, "no answer")])
def test_an_endpoint_that_never_answers_ends_the_run_with_the_reason(
    twin: Twin, faults: dict[str, float], said: str
) -> None:
    """Waits that it asks for cost no attempt, and are not waited for without end."""
    with served(Misbehaving(faults)) as url:
        source = declared(url, asking={"silence_seconds": 1.5, "answer_seconds": 30})
        done = twin.ask(source, requests_for(source, 20))
        assert said in done.stopped and twin.store.outcomes() == {}


def test_an_address_that_is_wrong_ends_the_run_at_once(twin: Twin) -> None:
    """One request is enough to know."""
    with served(StandIn()) as url:
        source = declared(url.replace("/v1", "/v2"), asking={"at_once": 1})
        done = twin.ask(source, requests_for(source, 20))
        assert "404" in done.stopped and "correct source.endpoint" in done.stopped and done.attempts == 1


class Said(StandIn):
    """An endpoint whose answers have other fields, or whose response is another one altogether."""

    def __init__(
        self, fields: dict[str, Any] | None = None, response: tuple[int, dict[str, str]] | None = None
    ) -> None:
        super().__init__()
        self.fields, self.response = fields or {}, response

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer with what was given."""
        self.bodies.append(await request.json())
        if self.response is not None:
            return web.Response(status=self.response[0], headers=self.response[1])
        return web.json_response({**self.completion(self.bodies[-1], ""), **self.fields})


def test_what_a_server_says_of_itself_fits_into_the_database(twin: Twin) -> None:
    """A usage that nothing can have is none, so the reservation counts; names lose what databases refuse."""
    usage = {"prompt_tokens": 10**30, "completion_tokens": 3 * 10**9}
    with served(Said({"usage": usage, "model": "a\0b\ud800", "system_fingerprint": "\0"})) as url:
        source = declared(url)
        asked = requests_for(source, 3)
        assert twin.ask(source, asked).accepted == 3
        most = [twin.tasks(source).most_tokens(one) for one in asked]
        assert twin.store.totals()[2:] == (sum(one for one, _ in most), sum(one for _, one in most))
        assert {one["model"] for one in twin.records()} == {"a b?"} and twin.store.spent()[2] == 3


def test_a_redirect_is_not_followed(twin: Twin) -> None:
    """Texts and key go where it is declared, and nowhere else."""
    with served(StandIn()) as other, served(Said(response=(307, {"Location": f"{other}/chat/completions"}))) as url:
        source = declared(url, asking={"at_once": 1})
        done = twin.ask(source, requests_for(source, 20))
        assert done.attempts == 1 and done.hopeless and f"to {other}" in done.stopped


def test_a_key_that_no_header_can_hold_is_refused(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line end at its end, as files have it, is none of it."""
    with served(StandIn()) as url:
        source = declared(url, endpoint={"key": "HEADRACE_TEST_KEY"})
        monkeypatch.setenv("HEADRACE_TEST_KEY", "secret\nX-Other: 1")
        with pytest.raises(ConfigError, match="HEADRACE_TEST_KEY holds a line end"):
            twin.ask(source, requests_for(source, 1))
        monkeypatch.setenv("HEADRACE_TEST_KEY", "secret\n")
        assert twin.ask(source, requests_for(source, 1)).accepted == 1


def test_a_raised_limit_that_was_asked_for_already_is_not_paid_for_again(twin: Twin) -> None:
    """As where the limit was lowered: twice the new one is the old one, whose key has its row."""
    with served(StandIn({"cut": 1.0})) as url:
        for limit, rows in ((64, 6), (32, 9)):
            source = declared(url, on_cut="raise_limit_once", endpoint={"answer_tokens": limit})
            twin.ask(source, requests_for(source, 3))
            assert twin.store.outcomes() == {"cut": rows}


def test_requests_with_a_raised_limit_count_as_asked(twin: Twin) -> None:
    """A request that may make another one counts as two of those that are asked at most."""
    with served(StandIn({"cut": 1.0})) as url:
        source = declared(url, on_cut="raise_limit_once", asked_at_most=10)
        assert twin.ask(source, requests_for(source, 100)).attempts == 10


def test_a_dataset_that_is_deleted_meanwhile_ends_the_run_and_has_no_rows(twin: Twin) -> None:
    """What is in flight is not written: nobody would find it to delete it."""
    with served(StandIn(seconds=0.2)) as url:
        source = declared(url, asking={"at_once": 4})
        threading.Timer(0.5, twin.store.forget).start()
        with pytest.raises(InputError, match="it was deleted"):
            twin.ask(source, requests_for(source, 100))
    with twin.store.engine.connect() as connection:
        for table in ("headrace_answers", "headrace_attempts", "headrace_tasks"):
            assert connection.execute(sa.text(f"select count(*) from {table}")).scalar_one() == 0


def test_excised_documents_are_not_asked_about(twin: Twin) -> None:
    """Nobody sends what somebody wants out, however often templates change."""
    put(twin.catalogue, "notes", VERDICTS, 0, [{"doc_id": one, "kept": one != "c"} for one in "abc"])
    put(twin.catalogue, "notes", TEXTS, 0, [{"doc_id": one, "content": one.upper()} for one in "abc"])
    parents = declared("http://x/v1").parents
    assert set(parent_texts(twin.catalogue, parents, 0)) == {("notes", "a", "A"), ("notes", "b", "B")}
    record_excisions(twin.catalogue, None, ["a"], "run")
    assert list(parent_texts(twin.catalogue, parents, 0)) == [("notes", "b", "B")]


def test_accepted_answers_land_once_as_pages(twin: Twin) -> None:
    """Each with its parent, span, model and usage; what was sealed is not sealed again."""
    with served(Misbehaving({"null": 0.3})) as url:
        source = declared(url)
        twin.ask(source, requests_for(source, 30))
    count = twin.store.outcomes()[""]
    assert AnswerPages(twin.store, twin.checkpoints, twin.objects).seal() == 0
    records = twin.records()
    assert len({one["key"] for one in records}) == len(records) == count
    assert all(one["parent_bytes"].startswith("0-") and one["model"] == "m" and one["tokens_out"] for one in records)
    twin.store.forget()
    assert twin.store.outcomes() == {}


def test_a_family_is_all_that_was_written_from_a_document_to_any_depth(tmp_path: Path) -> None:
    """Over datasets; what was refused, and what was written from another document, is not of it."""
    catalogue = open_catalogue(settings_at(tmp_path))

    def write(dataset: str, parent: str, doc_id: str, reason: str = "") -> None:
        asked = request_of(Parent("notes", parent, f"of {parent}", 0, 9), PLAIN, declared("http://x/v1").endpoint)
        AnswerStore(catalogue, dataset).write([], [Landed(asked, Answer(), "text", reason)])
        put(catalogue, dataset, DOCUMENTS, 0, [{"doc_id": doc_id, "path": f"plain#{asked.key}", "metadata": []}])

    write("twin", "root", "child")
    write("twin", "other", "other_child")
    write("third", "child", "grandchild")
    write("third", "grandchild", "nothing", reason="copied")
    assert descendants(catalogue, ["root"]) == {"child", "grandchild"}
    assert descendants(catalogue, ["nobody"]) == set()
    assert descendants(open_catalogue(settings_at(tmp_path / "new")), ["root"]) == set()


_RUN = """
import sys
from pathlib import Path
from tests.headrace_features.synthetic.test_generated import Twin, declared, requests_for
source = declared(sys.argv[1], asking={"at_once": 8})
print("asking", flush=True)
Twin(Path(sys.argv[2])).ask(source, requests_for(source, 150))
"""


@pytest.mark.nightly
def test_a_killed_run_pays_again_for_what_was_in_flight_alone(tmp_path: Path) -> None:
    """Killed a few times in the middle: every request has one answer, and at most 8 a kill were asked twice."""
    stand_in = StandIn(seconds=0.05)
    kills = 3
    with served(stand_in) as url:
        command = [sys.executable, "-c", _RUN, url, str(tmp_path)]
        for wanted in (*range(20, 20 + 40 * kills, 40), None):
            with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": "."}) as running:
                assert running.stdout is not None and running.stdout.readline() == b"asking\n"
                while wanted is not None and len(stand_in.bodies) < wanted and running.poll() is None:
                    time.sleep(0.005)
                if wanted is not None:
                    running.send_signal(signal.SIGKILL)
                running.wait()
    engine: sa.Engine = open_catalogue(settings_at(tmp_path)).engine  # type: ignore[attr-defined]
    with engine.connect() as connection:
        assert connection.execute(sa.text("select count(*) from headrace_answers")).scalar() == 150
    assert 150 <= len(stand_in.bodies) <= 150 + 8 * kills


def test_what_cannot_work_is_refused_before_anything_is_asked() -> None:
    """Each in a line that names the field."""

    def schema(given: dict[str, Any]) -> dict[str, Any]:
        return {"name": "a", "user": "{text}", "answer_schema": given}

    for fields, said in (
        ({"templates": ["question"]}, "did you mean 'questions'"),
        ({"templates": ["list", "list"]}, "list is there twice"),
        ({"templates": [{"name": "a", "user": "no place"}]}, "user has no {text}"),
        ({"budget": {"money": 3}}, "money needs price_in and price_out"),
        ({"parents": {}}, "name a dataset or a corpus"),
        ({"parents": {"dataset": "a", "corpus": "b"}}, "name a dataset or a corpus"),
        ({"text_column": "body"}, "text_column"),
        ({"endpoint": {"more": {"n": 4}}}, "declare samples"),
        ({"endpoint": {"more": {"stream": True}}}, "leave out stream"),
        ({"templates": [schema({"type": "text"})]}, "no JSON schema: $.type: 'text'"),
        ({"templates": [schema({"items": {"$ref": "https://x/y"}})]}, "$ref 'https://x/y' is not in the schema"),
    ):
        with pytest.raises(ValidationError, match=r"(?s).*") as caught:
            declared("http://x/v1", **fields)
        assert said in str(caught.value)
    assert list(itertools.islice(FAULTS, 1)) == ["throttle"]
