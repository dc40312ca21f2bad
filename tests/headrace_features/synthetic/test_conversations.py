"""Conversations: a model's code is executed, the model is told what it gave, and the whole lands as one document."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headrace_features.synthetic import tasks as tasks_module
from headrace_features.synthetic.answers import Answer
from headrace_features.synthetic.asked import Asked
from headrace_features.synthetic.attempts import Heard
from headrace_features.synthetic.conversations import code_of
from headrace_features.synthetic.executed import programs
from headrace_features.synthetic.executed.programs import program_executor
from headrace_features.synthetic.execution_config import ProgramExecution
from headrace_features.synthetic.fetch import AnswerPages, ask
from headrace_features.synthetic.generated_config import GeneratedSource
from headrace_features.synthetic.requests import Request, Turn
from headrace_features.synthetic.stand_in import StandIn, write_code
from headrace_features.synthetic.worker import work_for
from spark_jobs.exceptions import SetupError
from tests.headrace_features.synthetic.misbehaving import Misbehaving
from tests.headrace_features.synthetic.test_generated import Twin, declared, requests_for, served

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")


def conversing(url: str, execute: dict[str, Any] | None = None, **fields: Any) -> GeneratedSource:
    """A source whose answers' code is executed."""
    return declared(url, execute=execute or {}, **fields)


def converse(twin: Twin, source: GeneratedSource, asked: list[Request]) -> Asked:
    """Ask as a run does, with the sandbox."""
    pages = AnswerPages(twin.store, twin.checkpoints, twin.objects)
    tasks = twin.tasks(source)
    done = asyncio.run(ask(tasks, iter(asked), pages.seal_full, executor=program_executor))
    pages.seal()
    return done


def answering(*answers: str) -> StandIn:
    """A model that gives one answer after the other to each conversation."""

    class Scripted(StandIn):
        def completion(self, body: dict[str, Any], fault: str) -> dict[str, Any]:
            round_ = sum(one["role"] == "assistant" for one in body["messages"])
            self._judge = lambda _: answers[round_]
            return super().completion(body, fault)

    return Scripted()


@pytest.fixture(autouse=True)
def _held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attacks on the sandbox are left to test_sandbox.py."""
    monkeypatch.setattr(programs, "require_sandbox", lambda: None)


@pytest.fixture
def twin(tmp_path: Path) -> Twin:
    """A dataset in a lake of its own."""
    return Twin(tmp_path)


def test_a_conversation_of_three_rounds_is_one_document(twin: Twin) -> None:
    """A fault, a mended program and a sentence: all turns, each where the facts say, with the tokens of all."""
    stand_in = StandIn(judge=write_code)
    with served(stand_in) as url:
        source = conversing(url)
        asked = requests_for(source, 5)
        done = converse(twin, source, asked)
        assert (done.accepted, done.attempts, len(stand_in.bodies)) == (5, 15, 15) and not done.refused
        assert converse(twin, source, asked).attempts == 0, "what was answered is never asked again"
    assert twin.store.outcomes() == {"": 5}
    records = {one["key"]: one for one in twin.records()}
    assert sorted(records) == sorted(one.key for one in asked)
    for request in asked:
        record, prompt = records[request.key], request.body["messages"][0]["content"]
        data, spans = record["text"].encode(), [one.split() for one in record["messages"].split(", ")]
        said = [data[int(start) : int(end)].decode() for _, span in spans for start, end in [span.split("-")]]
        roles = [role for role, _ in spans]
        assert roles == ["user", "assistant", "execution", "assistant", "execution", "assistant"]
        assert record["text"] == "\n\n".join(f"### {role}\n\n{text}" for role, text in zip(roles, said, strict=True))
        first, count = write_code(prompt), len(prompt.split())
        assert said[:2] == [prompt, first] and "print(su(" in first
        assert said[2].startswith("The program ended with exit status 1.") and "NameError: name 'su'" in said[2]
        assert '"/code/program.py", line 1' in said[2]
        assert said[4] == f"The program ended with exit status 0.\n\nOutput:\n{sum(range(count))}"
        assert said[5] == f"Added up, the numbers below the count of words give {sum(range(count))}."
        facts = {name: record[name] for name in ("conversation", "rounds", "ended", "exit_statuses")}
        assert facts == {"conversation": "### role", "rounds": 3, "ended": "no_code", "exit_statuses": "1, 0"}
    assert sum(one["tokens_in"] for one in records.values()) == twin.store.spent()[0]
    keys = {request.key for request in asked}
    with twin.store.engine.connect() as connection:
        tried = connection.exec_driver_sql("select distinct key from headrace_attempts").scalars().all()
    assert len(tried) == 15 and keys < set(tried), "each round is a request with a key of its own"


_RUN = """
import sys
from pathlib import Path
from headrace_features.synthetic.executed import programs
from tests.headrace_features.synthetic.test_conversations import converse, conversing
from tests.headrace_features.synthetic.test_generated import Twin, requests_for
programs.require_sandbox = lambda: None
source = conversing(sys.argv[1])
converse(Twin(Path(sys.argv[2])), source, requests_for(source, 3))
"""


@pytest.mark.nightly
def test_a_killed_conversation_goes_on_where_it_was(tmp_path: Path) -> None:
    """Killed while all wait for the third answer: the first two, and what their code gave, are known by their keys."""

    class Stuck(StandIn):
        async def answer(self, request: Any) -> Any:
            if len((await request.json())["messages"]) == 5:
                self.counts["third"] += 1
                await asyncio.sleep(3600)
            return await super().answer(request)

    stand_in = Stuck(judge=write_code)
    with served(stand_in) as url:
        command = [sys.executable, "-c", _RUN, url, str(tmp_path)]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": "."}) as running:
            while stand_in.counts["third"] < 3 and running.poll() is None:
                time.sleep(0.01)
            running.send_signal(signal.SIGKILL)
    assert len(stand_in.bodies) == 6
    healthy, twin = StandIn(judge=write_code), Twin(tmp_path)
    with served(healthy) as url:
        source = conversing(url)
        assert converse(twin, source, requests_for(source, 3)).accepted == 3
    assert [len(body["messages"]) for body in healthy.bodies] == [5] * 3
    assert {one["rounds"] for one in twin.records()} == {3}


def test_an_answer_whose_code_was_not_executed_is_not_asked_for_again(twin: Twin) -> None:
    """Killed between answer and execution: the code is executed, and the second request is the first that is sent."""
    stand_in = StandIn(judge=write_code)
    with served(stand_in) as url:
        source = conversing(url)
        (request,) = requests_for(source, 1)
        answer = Answer(write_code(request.body["messages"][0]["content"]), model="m", fingerprint="word-pairs")
        twin.store.write([], [], [Heard(request, Turn(request.key, answer))])
        assert converse(twin, source, [request]).accepted == 1
        assert [len(body["messages"]) for body in stand_in.bodies] == [3, 5]
    twin.store.forget([request.parent.doc_id])
    with twin.store.engine.connect() as connection:
        assert connection.exec_driver_sql("select count(*) from headrace_turns").scalar() == 0


def test_the_model_is_told_of_limits_and_the_rounds_end(twin: Twin) -> None:
    """An endless loop meets its CPU limit; at the last round the document ends with what the code gave."""
    loop = "Let me try.\n\n```python\nwhile True: pass\n```"
    with served(answering(loop, "```py\nprint('x' * 3000)\n```")) as url:
        source = conversing(url, {"rounds": 2, "cpu_seconds": 0.5, "shown_bytes": 1000})
        assert converse(twin, source, requests_for(source, 1)).accepted == 1
    (record,) = twin.records()
    assert (record["ended"], record["rounds"], record["exit_statuses"]) == ("rounds", 2, "time_out, 0")
    assert "The program was stopped: it used its 0.5 CPU seconds." in record["text"]
    assert record["text"].endswith(f"{'x' * 500}\n[.. 2,000 bytes left out ..]\n{'x' * 500}")


@pytest.mark.parametrize(("fault", "reason"), [("cut", "cut"), ("refused", "refused"), ("other_model", "other_model")])
def test_a_conversation_ends_with_the_reason_of_its_answer(twin: Twin, fault: str, reason: str) -> None:
    """In its second round, as a row of its first key; nothing of it lands, and it is not asked again."""

    class Later(Misbehaving):
        def completion(self, body: dict[str, Any], fault_: str) -> dict[str, Any]:
            return super().completion(body, fault if len(body["messages"]) > 1 else fault_)

    with served(Later(judge=write_code)) as url:
        source = conversing(url)
        asked = requests_for(source, 2)
        assert converse(twin, source, asked).refused == {reason: 2}
        assert twin.store.answered(one.key for one in asked) == {one.key for one in asked}
        details = [row["detail"] for row in twin.store.to_land(9)]
        assert all(one.startswith("round 2") for one in details) and not twin.records()
        assert converse(twin, source, asked).attempts == 0


def test_a_budget_counts_all_rounds(twin: Twin) -> None:
    """It is never overspent; conversations that came to its end go on once more is allowed."""
    stand_in = StandIn(judge=write_code)
    with served(stand_in) as url:
        fields: dict[str, Any] = {"asking": {"at_once": 8}, "endpoint": {"answer_tokens": 100}}
        source = conversing(url, budget={"tokens": 4500}, **fields)
        asked = requests_for(source, 12)
        done = converse(twin, source, asked)
        spent = sum(twin.store.spent()[:2])
        assert "budget" in done.stopped and 4500 - 2000 < spent <= 4500
        sent = len(stand_in.bodies)
        assert sent == done.attempts and 0 < done.accepted < 12
        converse(twin, conversing(url, budget={"tokens": 1_000_000}, **fields), asked)
        assert twin.store.outcomes() == {"": 12} and len(stand_in.bodies) == 36, "no round was asked twice"


def test_a_worker_that_lost_its_task_lands_no_turn(twin: Twin) -> None:
    """And may reserve nothing for the next round."""
    source = conversing("http://x/v1")
    first, second = twin.tasks(source, lease_seconds=0.05), twin.tasks(source)
    (request,) = requests_for(source, 1)
    first.put([request])
    lost, answer = first.take(), Answer("```python\nprint(1)\n```")
    time.sleep(0.1)
    held = second.take()
    assert lost is not None and held is not None
    turn = Turn(request.key, answer, "said", "0")
    assert twin.store.write([], [], [Heard(request, turn, lost.hold)]) == {lost.hold}
    assert not first.reserve(lost.hold, request, request)
    assert second.reserve(held.hold, request, request)
    assert twin.store.write([], [], [Heard(request, replace(turn, answer=answer), held.hold)]) == set()
    second.give_back(held.hold, [request])
    again = second.take()
    assert again is not None and [len(one.body["messages"]) for one in again.requests] == [3]
    assert again.requests[0].first_key == request.key


@pytest.mark.nightly
def test_two_workers_hold_conversations_side_by_side(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run and a worker: each conversation lands once, and each round was asked once."""
    monkeypatch.setattr(tasks_module, "REQUESTS", 4)
    stand_in = StandIn(judge=write_code, seconds=0.01)
    with served(stand_in) as url:
        source = conversing(url, {"at_once": 2}, asking={"at_once": 4})

        async def both() -> Asked:
            stopping = asyncio.Event()
            helping = asyncio.create_task(
                work_for(twin.catalogue, {"twin": source}, stopping, executor=program_executor)
            )
            tasks, wanted = twin.tasks(source), iter(requests_for(source, 24))
            done = await ask(tasks, wanted, executor=program_executor)
            stopping.set()
            await helping
            return done

        done = asyncio.run(both())
    AnswerPages(twin.store, twin.checkpoints, twin.objects).seal()
    assert len(twin.records()) == 24 and len(stand_in.bodies) == 72
    assert 0 < done.accepted < 24, "both took part"


def test_nothing_is_asked_where_the_sandbox_does_not_hold(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence ends the run before anything is paid; unsafe_local has to be written down."""

    def refuse() -> None:
        raise SetupError("code is not executed on this machine")

    monkeypatch.setattr(programs, "require_sandbox", refuse)
    stand_in = StandIn(judge=write_code)
    with served(stand_in) as url:
        asked = requests_for(conversing(url), 1)
        with pytest.raises(SetupError, match="not executed on this machine"):
            converse(twin, conversing(url), asked)
        assert not stand_in.bodies
        assert converse(twin, conversing(url, {"isolation": "unsafe_local"}), asked).accepted == 1


def test_a_command_line_runs_another_language() -> None:
    """And what it writes is canonical; statuses are those of the program."""
    execute = program_executor(ProgramExecution(language="bash", command=("bash", "{file}")))
    assert execute("echo hi; echo no >&2; exit 3") == (
        "The program ended with exit status 3.\n\nOutput:\nhi\n\nErrors:\nno",
        "3",
    )
    python = program_executor(ProgramExecution())
    said, status = python("print(object(), input())")
    assert status == "1" and "EOFError" in said
    assert re.search(r"at 0x7f0000000000>", python("print(object())")[0])
    assert python("pass") == ("The program ended with exit status 0.\n\nIt printed nothing.", "0")


def test_the_last_block_of_the_language_is_the_code() -> None:
    """Fences of either kind and any length, without their indent; other languages and inline code are none."""
    assert code_of("a\n```python\n1\n```\nb\n~~~py\n2\n~~~\nc\n```\n3\n```", "python") == "2\n"
    assert code_of("1. do\n   ```Python title\n   if 1:\n     x\n   ```", "python") == "if 1:\n  x\n"
    assert code_of("````python\n'''\n```python\n'''\n````", "python") == "'''\n```python\n'''\n"
    assert code_of("````markdown\n```python\n1\n```\n````", "python") is None
    assert code_of("```python\nnot closed", "python") == "not closed"
    assert code_of("say ```python x``` or\n```python\n\n```", "python") is None
    assert code_of("```javascript\n1\n```", "python") is None
    assert code_of("```js\r\n1\r\n```\r\n", "javascript") == "1\r\n"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"execute": {"language": "lua"}}, "nothing runs lua"),
        ({"execute": {"language": "lua", "command": ["lua"]}}, "nothing in it is {file}"),
        ({"execute": {}, "on_cut": "keep"}, "on_cut: keep is not for conversations"),
    ],
)
def test_what_cannot_work_is_refused(fields: dict[str, Any], said: str) -> None:
    """In a line that names the field."""
    with pytest.raises(ValidationError) as caught:
        declared("http://x/v1", **fields)
    assert said in str(caught.value)
