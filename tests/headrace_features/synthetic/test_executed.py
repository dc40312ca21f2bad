"""Executed code: what a call gave is a record, what went wrong a row with its reason, and nothing else is moved."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headrace.tables.settings import settings_at
from headrace_features.synthetic.attempts import AnswerStore, Landed
from headrace_features.synthetic.executed import fetch
from headrace_features.synthetic.executed.execution import Bundle, execute
from headrace_features.synthetic.executed.fetch import fetch_executions
from headrace_features.synthetic.executed.inside.shown import Shown
from headrace_features.synthetic.executed.records import canonical
from headrace_features.synthetic.executed.rows import CodeDocument
from headrace_features.synthetic.executed_config import ExecutedSource
from spark_jobs.filters.verdicts import VERDICTS
from spark_jobs.lake.files.objects import ObjectFolder
from spark_jobs.lake.session.catalogue import open_catalogue
from spark_jobs.sources.documents import DOCUMENTS
from spark_jobs.sources.paged.checkpoints import Checkpoints
from spark_jobs.text.texts import TEXTS
from tests.dagster_project.inspect.test_lake_status import put

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

GOOD = '''
def chunk(values: list[int], size: int) -> list[list[int]]:
    """Cut.

    >>> chunk([1, 2, 3], 2)
    [[1, 2], [3]]
    >>> chunk([1], 0)
    Traceback (most recent call last):
    ValueError: a size of nothing
    """
    if size <= 0:
        raise ValueError("a size of nothing")
    out = []
    for at in range(0, len(values), size):
        out.append(values[at : at + size])
    return out


def test_chunk():
    assert chunk([1, 2], 1) == [[1], [2]], "two"
    print("tested")
'''

# Each function is named by the reason that its call has to have; what follows __ tells them apart.
BAD = """
import ctypes, datetime, os, random, signal, subprocess, sys, threading, time

def time_out__loop():
    while True: pass
def time_out__children():
    for _ in range(4):
        if os.fork() == 0:
            while True: pass
    os.wait()
def time_out__signals():
    for one in (signal.SIGTERM, signal.SIGXCPU, signal.SIGINT): signal.signal(one, signal.SIG_IGN)
    while True: pass
def idle__sleep(): time.sleep(100)
def idle__session():
    if os.fork():
        os.wait()
    else:
        os.setsid()
        time.sleep(100)
def processes__threads():
    while True: threading.Thread(target=time.sleep, args=(50,)).start()
def memory__bytes(): return bytearray(10**10)
def too_long__value(): return "x" * 10**6
def too_long__printed():
    while True: print("x" * 1000)
def too_long__written():
    while True: os.write(1, b"x" * 1000)
def files__one(): open("x", "wb").write(b"x" * 10**8)
def files__many():
    for number in range(10**6): open(str(number), "w").close()
def died__crash(): ctypes.string_at(0)
def died__parent():
    os.kill(os.getppid(), 9)
    time.sleep(5)
def died__exit(): os._exit(0)
def differs__hash(): return list({"a", "b", "c", "d"})
def differs__printed(): print({"a", "b", "c", "d"})
def differs__id(): return id(object())
def differs__objects(): return [hash(object()) % 97 for _ in range(3)]
def differs__year(): return datetime.datetime.now().year
def differs__day(): return datetime.date.today()
def differs__clock(): return time.strftime("%Y")
def differs__pid(): return os.getpid()
def differs__cores(): return os.cpu_count()
def differs__locale(): return sys.getfilesystemencoding()
def differs__zone(): return time.tzname
def differs__random(): return random.random()

"""
TAKES_DOWN = """
import os
def died__first(): os.kill(os.getppid(), 9)
def died__second(): os.kill(os.getppid(), 9)
def died__third(): os.kill(os.getppid(), 9)
def died__fourth(): os.kill(os.getppid(), 9)

"""
GIVES = """
import os, subprocess, sys
def gives__object(): return object()
def gives__set(): return {"a", "b", "c", "d"}
def gives__folder(): return os.getcwd(), os.path.dirname(__file__)
def gives__left_behind():
    open("/tmp/left", "w").close()
    subprocess.Popen(["/bin/sleep", "100"])
def gives__nothing_left():
    return os.path.exists("/tmp/left"), os.listdir("."), sum(map(str.isdigit, os.listdir("/proc")))
def gives__exit(): sys.exit(3)
def gives__bytes():
    sys.stdout.buffer.write(b"\\xff")
    os.write(2, b"to the descriptor")
"""


def declared(**fields: Any) -> ExecutedSource:
    """A source with small limits."""
    limits = {"cpu_seconds": 0.5, "idle_seconds": 1, "files": 2000, **fields.pop("limits", {})}
    few = {"parents": {"dataset": "code"}, "runs": 2, "generated_each": 2}
    return ExecutedSource.model_validate({**few, "limits": limits, **fields})


def executed(text: str, source: ExecutedSource | None = None, path: str = "module.py") -> list[Landed]:
    """The rows of a document, the only one of its repository."""
    document = CodeDocument("code", "0" * 32, path, text)
    (rows,) = execute(Bundle("shop", {path: text}, (document,)), source or declared())
    return rows


def records(rows: Iterable[Landed]) -> list[dict[str, Any]]:
    """The records among rows."""
    return [json.loads(row.text) for row in rows if not row.reason]


def test_a_record_is_source_session_and_trace() -> None:
    """The doctest is a session with what its examples gave; lines of the trace are those of the file."""
    rows = executed(GOOD)
    doctest = next(one for one in records(rows) if one["call"] == "doctest")
    assert doctest["text"] == (
        GOOD.partition("\n\n\n")[0].lstrip("\n")
        + """

>>> chunk([1, 2, 3], 2)
[[1, 2], [3]]
>>> chunk([1], 0)
Traceback (most recent call last):
  ...
ValueError: a size of nothing

Trace, by lines of the file:
call chunk  values=[1, 2, 3], size=2
line 11
line 13
line 14  out=[]
line 15  at=0
line 14  out=[[1, 2]]
line 15  at=2
line 14  out=[[1, 2], [3]]
line 16
return [[1, 2], [3]]
call chunk  values=[1], size=0
line 11
line 12
exception ValueError: 'a size of nothing'
"""
    )
    test = next(one for one in records(rows) if one["call"] == "test")
    assert (test["input"], test["output"], test["printed"], test["exception"]) == (
        "test_chunk()",
        "None",
        "tested\n",
        "",
    )
    row = next(row for row in rows if row.text and json.loads(row.text)["call"] == "test")
    start, end = row.request.parent.start, row.request.parent.end
    assert GOOD.encode()[start:end].decode().startswith("def test_chunk")


def test_documents_need_no_name_of_a_file_and_no_encoding() -> None:
    """A record of a file of records; a declared encoding was heeded when it was read; lines are those of Python."""
    text = "# -*- coding: latin-1 -*-\n# \x0c \u2028\r\ndef f(): return 'ä'\n"
    rows = executed(text, path="part.jsonl#7")
    assert [one["output"] for one in records(rows)] == ["'ä'"]
    assert records(rows)[0]["text"].startswith("def f(): return 'ä'\n\n>>> f()\n")
    parent = rows[0].request.parent
    assert text.encode()[parent.start : parent.end].decode() == "def f(): return 'ä'\n"


@pytest.mark.parametrize("name", ["statistics", "textwrap", "string", "bisect", "heapq", "colorsys"])
def test_records_of_the_library_are_what_it_gives_here(name: str) -> None:
    """Each input, typed into this process, gives the value or the exception of its record."""
    module = importlib.import_module(name)
    path = Path(module.__file__ or "")
    source = declared(generated_each=5, limits={"cpu_seconds": 5, "idle_seconds": 10})
    found = records(executed(path.read_text(), source, path.name))
    compared = 0
    for record in found:
        lines = record["input"].split("\n")
        names = dict(vars(module))
        try:
            for line in lines[:-1]:
                exec(line, names)
            value = repr(eval(lines[-1], names))
        except SyntaxError:
            continue  # a statement of several lines
        except Exception as error:  # noqa: BLE001 - it is compared
            value = f"{type(error).__name__}: {error}"
        compared += 1
        assert value == record["output"] or record["exception"].endswith(value)
    assert compared > 20 or name != "statistics"


def test_what_goes_wrong_is_a_row_with_its_reason_and_moves_no_other() -> None:
    """Each function of a hostile module; the records of the honest ones beside it are those that they have alone."""
    rows = executed(BAD + GOOD)
    functions = [name.partition("(")[0] for name in BAD.split("def ")[1:]]
    by_span = {row.request.parent.text.split("def ")[1].partition("(")[0]: row for row in rows[:-1]}
    assert {name: by_span[name].reason for name in functions} == {name: name.partition("__")[0] for name in functions}
    shift = BAD.count("\n")
    alone = executed("\n" * shift + GOOD)
    assert [one["text"] for one in records(rows)] == [one["text"] for one in records(alone)]
    assert rows[-1].reason == "executed"


@pytest.mark.nightly
def test_calls_that_take_the_sandbox_down_take_no_other_along() -> None:
    """However many come first; a module that does not import again is another matter."""
    rows = executed(TAKES_DOWN + GOOD)
    assert Counter(row.reason for row in rows)["died"] == 4
    assert len(records(rows)) == len(records(executed(GOOD)))
    once = "import os\nif os.environ['TZ'] != 'UTC': raise RuntimeError('elsewhere')\n"
    assert {(row.reason, row.detail) for row in executed(once + GOOD)[:-1]} == {
        ("not_importable", "RuntimeError: elsewhere")
    }


def test_runs_agree_on_what_does_not_depend_on_them() -> None:
    """Addresses and folders are made canonical, sets have an order, and a call leaves nothing to the next."""
    found = {one["function"]: one for one in records(executed(GIVES))}
    assert found["gives__object"]["output"] == "<object object at 0x7f0000000000>"
    assert found["gives__set"]["output"] == "{'a', 'b', 'c', 'd'}"
    assert found["gives__folder"]["output"] == "('/tmp/work/call', '/code')"
    assert found["gives__nothing_left"]["output"] == "(False, [], 3)"
    assert found["gives__exit"]["exception"] == "SystemExit: 3"
    assert found["gives__bytes"]["printed"] == "\\xffto the descriptor"


def test_what_is_cut_says_so() -> None:
    """A trace of more steps, and a value of more characters."""
    text = "def f(n: int = 3):\n    words = ['word'] * 100\n    return [at for at in range(9)]\n"
    (record,) = records(executed(text, declared(trace={"steps": 3, "characters": 20}, generated_each=1)))
    assert record["trace_was_cut"] and record["values_were_cut"] and record["steps"] == 3
    assert "Trace, by lines of the file; it goes on:\ncall f  n=" in record["text"]
    assert "words=['word', 'word', 'wo...\n" in record["text"]
    (record,) = records(executed(text, declared(trace={"steps": 0}, generated_each=1)))
    assert "Trace" not in record["text"] and record["steps"] == 0


def test_a_repository_is_imported_as_it_lies_there() -> None:
    """Relative imports, siblings, a module named like one of the library; what it lacks is named."""
    files = {
        "src/shop/__init__.py": "RATE = 2\n",
        "src/shop/money.py": "from . import RATE\nfrom random import three\ndef twice(): return RATE * three()\n",
        "src/random.py": "def three(): return 3\n",
        "src/shop/lacking.py": "import numpy_that_is_not_there\n",
    }
    documents = tuple(CodeDocument("code", str(at), path, text) for at, (path, text) in enumerate(files.items()))
    found = dict(zip(files, execute(Bundle("shop", files, documents), declared()), strict=True))
    assert records(found["src/shop/money.py"])[0]["output"] == "6"
    (row,) = found["src/shop/lacking.py"]
    assert (row.reason, row.detail) == (
        "not_importable",
        "ModuleNotFoundError: No module named 'numpy_that_is_not_there'",
    )
    assert [row.reason for row in found["src/shop/__init__.py"]] == ["no_functions"]


def test_packages_come_from_the_folder_that_is_named(tmp_path: Path) -> None:
    """Nothing of the worker's own is there; another version of a package is another key."""
    text = "import words\ndef f(): return words.ONE\n"
    assert [row.reason for row in executed(text)] == ["not_importable"]
    (tmp_path / "words.py").write_text("ONE = 1\n")
    tmp_path.chmod(0o755)
    (record,) = records(executed(text, declared(environment=str(tmp_path))))
    assert record["output"] == "1"
    assert [row.reason for row in executed("import pydantic\n")] == ["not_importable"]


def test_another_language_is_a_command_line() -> None:
    """Input on standard input, output on standard output; a status that is not 0 is its exception."""
    source = declared(command=("/bin/sh", "{file}"), inputs=("one\n", "fail\n", "sleep\n"), language="shell")
    rows = executed('read word\n[ $word = sleep ] && sleep 50\necho "got $word"\n[ $word != fail ]\n', source, "a.sh")
    first, second = records(rows)
    assert (first["printed"], first["exception"], second["exception"]) == ("got one\n", "", "exit status 1: ")
    assert first["text"].endswith("\n\nInput:\none\n\nOutput:\ngot one\n")
    assert [row.reason for row in rows] == ["", "", "idle", "executed"]


def test_a_program_that_writes_results_itself_breaks_nothing() -> None:
    """What comes out of the sandbox is anybody's text: fields of other types, other numbers, half a line."""
    lies = [
        "{",
        "[]",
        '{"call": 0, "statements": 5}',
        '{"call": 99, "reason": ""}',
        '{"calls": {}, "error": 3}',
        "\\udc80",
    ]
    text = f"import os\nfor n in range(3, 12):\n    try: os.write(n, {chr(10).join(lies)!r}.encode() + b'\\n')\n"
    rows = executed(text + "    except OSError: pass\ndef f(): return 1\n")
    assert len(rows) == 1 and rows[0].reason == "not_importable"


# A module finds what it was asked, and the descriptor for answers, in the frames above it.
FORGES = """
import os, sys
frame = sys._getframe()
while "asked" not in frame.f_locals: frame = frame.f_back
def say(data):
    while data: data = data[os.write(frame.f_locals["asked"]["answers"], data):]
if frame.f_locals["asked"]["mode"] == "run":
    say(LIES)
    os._exit(0)
def test_one(): pass
"""


@pytest.mark.parametrize(
    "lies",
    [
        """b'{}\\n{"call": 0, "reason": "' + b'x' * 40 + b'"}\\n'""",
        """b'{}\\n[' + b'[],' * 700_000 + b'[]]\\n'""",
        """b'{}\\n{"call": 0, "statements": [' + b'{"input": ""},' * 60_000 + b'{"input": ""}]}\\n'""",
    ],
)
def test_a_result_that_no_call_can_have_is_none(lies: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reason of its own, more statements than were asked for; what is too long is not even read as JSON."""
    longest, loads = [0], json.loads

    def noted(line: bytes) -> Any:
        longest.append(len(line))
        return loads(line)

    monkeypatch.setattr("headrace_features.synthetic.executed.execution.json.loads", noted)
    rows = executed(FORGES.replace("LIES", lies) + "".join(f"def test_{n}(): pass\n" for n in range(3)))
    assert {row.reason for row in rows[:4]} <= {"died", "too_long"} and rows[-1].reason == "executed"
    assert len(rows) == 6 and max(longest) < 2_000_000


@pytest.mark.nightly
def test_a_module_that_takes_the_watch_away_is_stopped_once() -> None:
    """Not once for each of its calls, with the CPU seconds of all of them."""
    text = "import os\ndef fork():\n    while True: pass\nos.fork = fork\n"
    source = declared(limits={"cpu_seconds": 0.1, "idle_seconds": 3})
    began = os.times().children_user
    rows = executed(text + "".join(f"def test_{n}(): pass\n" for n in range(8)), source)
    reasons = [row.reason for row in rows]
    # On a busy machine the watch may be told that the first one died before it is told why.
    assert {*reasons[:9]} <= {"time_out", "died"} and reasons[9:] == ["executed"]
    assert os.times().children_user - began < 20


def test_calls_beyond_the_bound_of_a_document_are_one_row() -> None:
    """A document of thousands of endless tests holds no slot for days."""
    rows = executed("".join(f"def test_{n}(): pass\n" for n in range(9)), declared(calls_each=4))
    assert [row.reason for row in rows].count("") == 4
    (beyond,) = [row for row in rows if row.reason == "too_many"]
    assert beyond.detail == "5 calls beyond calls_each: 4"


@pytest.mark.parametrize("path", ["../module.py", "/module.py", "a\0.py", "x" * 300 + ".py"])
@pytest.mark.parametrize("fields", [{}, {"command": ("cat", "{file}"), "calls": ("tests",)}])
def test_a_document_whose_path_no_file_can_have_is_a_row(path: str, fields: dict[str, Any]) -> None:
    """Else a command line would give its complaint as a record, and Python read another file than the document."""
    rows = executed("def test_one(): pass\n", declared(**fields), path)
    assert [row.reason for row in rows] == ["not_importable"]


def test_names_of_files_have_any_characters() -> None:
    """Also in the run whose locale knows none of them."""
    files = {"größe/日本 x.py": "from größe import zahl\ndef test_one(): return zahl.A\n", "größe/zahl.py": "A = 5\n"}
    files["größe/__init__.py"] = ""
    (path, text), *_ = files.items()
    (rows,) = execute(Bundle("shop", files, (CodeDocument("code", "0" * 32, path, text),)), declared())
    assert [one["output"] for one in records(rows)] == ["5"]


def test_a_trace_runs_no_code_of_the_program() -> None:
    """Objects may say of themselves, by code, which class they have and how it is called."""
    rows = executed(
        "log = []\n"
        "class Named(type):\n    @property\n    def __name__(cls): log.append(1); raise KeyError\n"
        "class Lazy(metaclass=Named):\n    @property\n    def __class__(self): log.append(2); raise KeyError\n"
        "class Fault(Exception, metaclass=Named):\n    @property\n    def args(self): log.append(3); raise KeyError\n"
        "def test_one():\n    a = Lazy\n    b = Lazy()\n    try: raise Fault\n    except Fault: pass\n    return log\n"
    )
    assert [(one["output"], one["exception"]) for one in records(rows)] == [("[]", "")]


def test_a_value_or_an_exception_that_cannot_be_written_is_what_a_terminal_shows() -> None:
    """The exception that its text raises, or that it raised."""
    rows = executed(
        "class A:\n    def __repr__(self): return self.lacking\n"
        "class B(Exception):\n    def __str__(self): return self.lacking\n"
        "def test_value(): return A()\ndef test_exception(): raise B\n"
    )
    assert sorted(one["exception"] for one in records(rows)) == [
        "AttributeError: 'A' object has no attribute 'lacking'",
        "module.B: <its text raised AttributeError>",
    ]


def test_values_are_written_without_a_programs_code() -> None:
    """Where `repr` is not asked; cycles end, and integers that take minutes to write do not."""

    class Sly:
        def __repr__(self) -> str:
            raise AssertionError

    shown = Shown(60, calls_repr=False, depth=4)
    circle: list[Any] = []
    circle.append(circle)
    assert "object>" in shown.text([Sly()]) and shown.text({"b", "a"}) == "{'a', 'b'}"
    assert not shown.was_cut
    assert shown.text(circle) == "[[[[...]]]]" and shown.was_cut
    assert shown.text(1 << 20_000) == "<int of 20001 bits>"
    assert shown.text(()) == "()" and shown.text((1,)) == "(1,)" and shown.text(frozenset()) == "frozenset()"
    assert canonical({"a": ["<f at 0x1f> 0x1f /srv/a/b"]}, {"/srv/a": "/code"}) == {
        "a": ["<f at 0x7f0000000000> 0x1f /code/b"]
    }


def test_executions_land_once_as_pages_with_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox is tried before; a second run executes nothing; what its policy dropped is no parent."""
    tried = list[bool]()
    monkeypatch.setattr(fetch, "require_sandbox", lambda: tried.append(True))
    catalogue = open_catalogue(settings_at(tmp_path))
    texts = {"a" * 32: ("good.py", GOOD), "b" * 32: ("dropped.py", GOOD + "\n"), "c" * 32: ("read.md", "# Good\n")}
    places = [
        {"doc_id": one, "path": path, "repository": "shop", "language": "python" if path.endswith("py") else "markdown"}
        for one, (path, _) in texts.items()
    ]
    put(catalogue, "code", DOCUMENTS, 0, [{**one, "metadata": []} for one in places])
    put(catalogue, "code", TEXTS, 0, [{"doc_id": one, "content": text} for one, (_, text) in texts.items()])
    put(catalogue, "code", VERDICTS, 0, [{"doc_id": one, "kept": one[0] != "b"} for one in texts])
    source, objects = declared(), ObjectFolder.of(catalogue, "runs")
    done = fetch_executions("runs", source, catalogue, objects, 0)
    assert done == fetch_executions("runs", source, catalogue, objects, 0)
    assert done["executed"] == 1 and done[""] > 3
    ((page,),) = Checkpoints(catalogue, "runs").all_pages().values()
    assert page.object is not None and page.record_count == done[""]
    with objects.open(page.object) as file:
        landed = json.loads(bytes(file.read()))
    assert {(one["parent"], one["repository"]) for one in landed} == {("a" * 32, "shop")}
    assert {"key", "text", "input", "output", "printed", "exception", "steps", "executed_with"} <= landed[0].keys()
    more = fetch_executions("runs", declared(generated_each=9), catalogue, objects, 0)
    assert more[""] > done[""]  # inputs that are there already are not executed as others
    assert len(tried) == 2
    assert Counter(AnswerStore(catalogue, "runs").outcomes()) == Counter(more)


_RUN = """
import sys
from pathlib import Path
from tests.headrace_features.synthetic import test_executed as tests
tests.fetch.require_sandbox = lambda: None
catalogue = tests.open_catalogue(tests.settings_at(Path(sys.argv[1])))
print("executing", flush=True)
tests.fetch_executions("runs", tests.declared(at_once=2), catalogue, tests.ObjectFolder.of(catalogue, "runs"), 60)
"""


@pytest.mark.nightly
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """Killed a few times in the middle: the rows of a run that was not, each record in a page, no sandbox left."""
    outcomes = []
    for kills in (0, 4):
        root = tmp_path / str(kills)
        root.mkdir()
        catalogue = open_catalogue(settings_at(root))
        texts = [(f"{number:032x}", f"{GOOD}# {number}\n") for number in range(12)]
        put(
            catalogue, "code", DOCUMENTS, 0,
            [{"doc_id": one, "path": f"{one}.py", "language": "python", "metadata": []} for one, _ in texts],
        )  # fmt: skip
        put(catalogue, "code", TEXTS, 0, [{"doc_id": one, "content": text} for one, text in texts])
        put(catalogue, "code", VERDICTS, 0, [{"doc_id": one, "kept": True} for one, _ in texts])
        for number in range(kills + 1):
            with subprocess.Popen([sys.executable, "-c", _RUN, str(root)], stdout=subprocess.PIPE) as process:
                assert process.stdout is not None and process.stdout.readline()
                if number < kills:
                    time.sleep(1.5)
                    process.kill()
            assert process.returncode == (-9 if number < kills else 0)
        pages = [page for some in Checkpoints(catalogue, "runs").all_pages().values() for page in some]
        outcomes.append((AnswerStore(catalogue, "runs").outcomes(), sum(page.record_count or 0 for page in pages)))
    assert outcomes[0] == outcomes[1] and outcomes[0][0]["executed"] == 12


def test_the_same_rows_come_again() -> None:
    """Keys, records, reasons: inputs are drawn by the function's hash."""
    assert executed(GOOD) == executed(GOOD)


def test_without_a_sandbox_only_where_that_is_written_down() -> None:
    """The records are the same; other words are refused."""
    unsafe = declared(isolation="unsafe_local", trace={"steps": 0})
    mine = [one["text"] for one in records(executed(GOOD, unsafe))]
    assert mine == [one["text"] for one in records(executed(GOOD, declared(trace={"steps": 0})))]
    for fields, said in (
        ({"isolation": "none"}, "unsafe_local"),
        ({"command": ("node",)}, "nothing in it is {file}"),
        ({"inputs": ("1",)}, "inputs are for a command"),
    ):
        with pytest.raises(ValidationError, match=said):
            declared(**fields)


def test_runs_that_differ_say_in_what() -> None:
    """The first field with both values."""
    rows = executed("def f():\n    print(id(f))\n")
    assert rows[0].reason == "differs" and rows[0].detail.startswith("printed: ")


STATED = '''
from __future__ import annotations

import sys
import warnings


def right__values():
    """
    >>> 1 + 1
    2
    >>> {"b", "a"} == {"a", "b"}
    True
    >>> for i in range(2):
    ...     i
    ...     print("p", i)
    0
    p 0
    1
    p 1
    >>> {9, 10, 100}
    {9, 10, 100}
    >>> None
    """

def right__options():
    """
    >>> object()  # doctest: +ELLIPSIS
    <object object at 0x...>
    >>> print("a   b")  # doctest: +NORMALIZE_WHITESPACE
    a b
    >>> int("x")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ValueError: other words
    >>> lacking()  # doctest: +SKIP
    5
    """

def right__errors():
    """
    >>> 1 / 0
    Traceback (most recent call last):
        ...
    ZeroDivisionError: division by zero
    >>> compile("a b", "x", "eval")
    Traceback (most recent call last):
    SyntaxError: invalid syntax
    >>> warnings.warn("said elsewhere")
    >>> print("there", file=sys.stderr)
    """

def right__future():
    """
    >>> def f(x: int): pass
    >>> f.__annotations__
    {'x': 'int'}
    """

def right__nothing_shown():
    """
    >>> x = 5
    """

def wrong__value():
    """
    >>> 1 + 1
    3
    """

def wrong__later():
    """
    >>> 1 + 1
    2
    >>> numpy.zeros(3)
    array([0., 0., 0.])
    """

def wrong__no_error():
    """
    >>> int("1")
    Traceback (most recent call last):
    ValueError: not one
    """

def wrong__other_error():
    """
    >>> int("x")
    Traceback (most recent call last):
    TypeError: not one
    """

def wrong__silent():
    """
    >>> print("said")
    """

def wrong__repr():
    """
    >>> type("X", (), {"__repr__": lambda self: 1 / 0})()
    X
    """

def wrong__hash():
    """
    >>> {"a", "b", "c", "d", "e", "f", "g", "h"}
    {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}
    """

def test_states_nothing(): pass
'''


@pytest.mark.parametrize("isolation", ["bubblewrap", "unsafe_local"])
def test_a_doctest_says_whether_it_gave_what_its_file_states(isolation: str) -> None:
    """By the rules of doctest itself, with the options of the example alone; other calls have no such field."""
    found = records(executed(STATED, declared(calls=["doctests", "tests"], isolation=isolation)))
    said = {one["function"]: one.get("as_stated") for one in found}
    assert len(said) == 13
    assert said == {name: {"right": True, "wrong": False}.get(name.split("__")[0]) for name in said}


@pytest.mark.parametrize("name", ["statistics", "textwrap", "bisect", "fractions", "random"])
def test_doctests_of_the_library_are_as_stated_where_doctest_says_so(name: str) -> None:
    """Beside doctest's own runner, function by function."""
    module = importlib.import_module(name)
    path = Path(module.__file__ or "")
    source = declared(calls=["doctests"], limits={"cpu_seconds": 5, "idle_seconds": 10})
    said = {one["function"]: one["as_stated"] for one in records(executed(path.read_text(), source, path.name))}
    runner = doctest.DocTestRunner(verbose=False)
    for test in doctest.DocTestFinder(recurse=True).find(module, module=module):
        if (function := test.name.removeprefix(f"{name}.")) in said:
            results = runner.run(test, out=lambda _: None)
            assert said[function] == (results.failed == 0), function
    assert len(said) > 5 or name != "statistics"
