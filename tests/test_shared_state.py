"""What threads of one process share is known, and each of it has a reason why it may be shared.

Tasks of the embedded engine are threads of one process. What a function of a step reaches is immutable, belongs to one
thread, or has a lock. This finds what is neither a value nor a call's own: caches, containers that functions change,
names that they bind anew, objects that modules make and settings of the process. A new one fails here until it has a
reason below; one that needs a lock has a test that contends for it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.dagster_project.test_reloading import changed_names

_ROOT = Path(__file__).parents[1]
_FOLDERS = (
    "spark_jobs",
    "headrace/kernels",
    *(f"headrace_features/{name}" for name in ("apis", "formats", "models", "privacy", "synthetic")),
)
_CACHES = {"cache", "lru_cache", "cached_property"}
_HOLDERS = ("threading.", "weakref.", "itertools.count")
_VALUES = {"NamedTuple", "BaseModel", "ConfigModel", "StrEnum", "IntEnum", "IntFlag", "Enum"}
_SETTINGS = {  # of the whole process, by the name of the function that sets them
    *("catch_warnings", "chdir", "disable_progress_bar", "field_size_limit", "filterwarnings", "putenv", "seed"),
    *("set_cpu_count", "set_default_dtype", "set_io_thread_count", "set_num_threads", "set_verbosity_error"),
    *("setdefaulttimeout", "seterr", "setitimer", "setlocale", "setrecursionlimit", "setrlimit", "setswitchinterval"),
    *("signal", "simplefilter", "umask", "use_deterministic_algorithms"),
}
# Why each may be shared. `MadeOnce` (spark_jobs/threads.py) is not among them: it has a lock.
_CHILD = "of a process of its own, with one thread"
_PURE = "a pure function of its arguments, whose value nobody changes: made twice it is the same"
_DRIVER = "asked by what plans and runs, and no function of a step; made twice it is the same"
_OF_A_TASK = "of an object that one task makes for itself"
_LOCKED = "locked, and a test contends for it"
_REVIEWED = {
    "spark_jobs.child_processes._children": _LOCKED,
    "spark_jobs.importing._importable": _DRIVER,
    "spark_jobs.code.syntax.definitions._loaded": _CHILD,
    "spark_jobs.code.syntax.syntax_worker.resource.setrlimit()": _CHILD,
    "spark_jobs.code.syntax.syntax_worker.signal.setitimer()": _CHILD,
    "spark_jobs.code.syntax.syntax_worker.signal.signal()": _CHILD,
    "spark_jobs.credentials._known": _LOCKED,
    "spark_jobs.credentials._lock": "a lock",
    "spark_jobs.dedup.bags.token_counts.token_version": _PURE,
    "spark_jobs.filters.heuristics.measure._KEPT": "working memory, of each thread its own",
    "headrace_features.privacy.personal_data.checks._is_public": _PURE,
    "headrace_features.privacy.personal_data.checks._phone_facts": _PURE,
    "headrace_features.models.vectors.vectors": "a name of the module and of a variable in a function",
    "spark_jobs.lake.declare.step.Step.parameters": _PURE,
    "spark_jobs.lake.engine.arrangement._shared": "keys are used once; a value is there as long as a query needs it",
    "spark_jobs.lake.engine.choice._chosen": _LOCKED,
    "spark_jobs.lake.engine.choice._lock": "a lock",
    "spark_jobs.lake.engine.embedded._environment": _LOCKED,
    "spark_jobs.lake.engine.embedded._given_out": _LOCKED,
    "spark_jobs.lake.engine.embedded._lock": "a lock",
    "spark_jobs.lake.engine.embedded._meters": _LOCKED,
    "spark_jobs.lake.engine.embedded._salts": _DRIVER,
    "spark_jobs.lake.engine.embedded._server": _LOCKED,
    "spark_jobs.dedup.bags.bags.Units.table": "never changed; tasks that make it at once make equal ones",
    "spark_jobs.lake.engine.embedded._sessions": "sessions are added when they start, and never taken out",
    "spark_jobs.lake.files.file_writer.FileRules.stored": _PURE,
    "spark_jobs.lake.files.scans._KEPT": _LOCKED,
    "spark_jobs.lake.files.scans._LOCK": "a lock",
    "spark_jobs.lake.ledger.attempts._lock": "a lock",
    "spark_jobs.lake.ledger.attempts._under_way": _LOCKED,
    "spark_jobs.lake.ledger.ledger._ValidRows.increments": _DRIVER,
    "spark_jobs.lake.ledger.ledger._ValidRows.places": _DRIVER,
    "spark_jobs.lake.ledger.process._scope": _DRIVER,
    "spark_jobs.lake.ledger.row_hashes._tag": _PURE,
    "spark_jobs.lake.plan.binding.Binding.config_json": _DRIVER,
    "spark_jobs.lake.plan.binding.Binding.tables": _DRIVER,
    "spark_jobs.lake.plan.history.History._order": _DRIVER,
    "spark_jobs.lake.plan.history.History._places": _DRIVER,
    "spark_jobs.lake.run.provenance.git_commit": _DRIVER,
    "spark_jobs.lake.session.catalogue.spark_identifier": _PURE,
    "spark_jobs.lake.session.python_workers.os.environ": "PySpark's daemon, before it has a worker",
    "spark_jobs.lake.session.session.os.environ": "set to the same value by whoever starts Spark",
    "spark_jobs.lexing.lexers.syntax_digest": _PURE,
    "spark_jobs.lexing.word_characters.tables_digest": _PURE,
    "headrace_features.models.causal_model._LOADING": "a lock",
    "headrace_features.models.causal_model.logging.disable_progress_bar()": "set once, to one value",
    "headrace_features.models.causal_model.logging.set_verbosity_error()": "set once, to one value",
    "headrace_features.models.causal_model.torch.set_num_threads()": "of each thread its own: OpenMP's number",
    "headrace_features.models.ngram_model.NgramModel._table": "never changed; each call holds the one it asked for",
    "spark_jobs.plugins.declared": _PURE,
    "spark_jobs.corpus_stages.headrace_stages": _DRIVER,
    "spark_jobs.features.brought": _PURE,
    "spark_jobs.features.features": _PURE,
    "spark_jobs.sources.licences.headers._in_paragraph": _PURE,
    "spark_jobs.sources.kinds.kind_named": _PURE,
    "spark_jobs.sources.encodings.page_encoding._writes_ascii": _PURE,
    "headrace_features.synthetic.command.signal.signal()": "the command has its process for itself",
    "headrace_features.synthetic.executed.checks.require_sandbox": _DRIVER,
    "headrace_features.synthetic.executed.execution._tools": _DRIVER,
    "headrace_features.synthetic.executed.groups._numbers": "`next` of a counter is one operation of the interpreter",
    "headrace_features.synthetic.executed.inside.collecting.hypothesis.seed()": _CHILD,
    "headrace_features.synthetic.executed.inside.collecting.seed()": _CHILD,
    "headrace_features.synthetic.executed.inside.main.os.chdir()": _CHILD,
    "headrace_features.synthetic.executed.inside.running.os.chdir()": _CHILD,
    "headrace_features.synthetic.executed.inside.running.resource.setrlimit()": _CHILD,
    "headrace_features.synthetic.executed.rows.packages_in": _DRIVER,
    "headrace_features.synthetic.executed.sandbox._layout": _DRIVER,
    "headrace_features.synthetic.executed.sandbox.interpreter_of": _DRIVER,
    "spark_jobs.sources.formats.csv_records.csv.field_size_limit()": "set to one value, which refuses nothing",
    "headrace_features.formats.web.html._version": _CHILD,
    "headrace_features.formats.web.article_network.network_weights": _CHILD,
    "headrace_features.formats.web.block_features._letter_kinds": _CHILD,
    "headrace_features.formats.pages.layer_score._is_formed": _PURE,
    "headrace_features.formats.pages.line_hyphens._stop_lists": _CHILD,
    "headrace_features.formats.pages.ocr.load_engine": _CHILD,
    "spark_jobs.sources.licences.texts.words.LicenceWords._names": _OF_A_TASK,
    "spark_jobs.sources.licences.texts.words.LicenceWords._spans": _OF_A_TASK,
    "spark_jobs.sources.licences.texts.words.LicenceWords.index": _OF_A_TASK,
    "spark_jobs.sources.opening.parser_process.resource.setrlimit()": _CHILD,
    "spark_jobs.sources.opening.parser_process.signal.setitimer()": _CHILD,
    "spark_jobs.threads._WARNINGS": "a lock",
    "spark_jobs.threads.warnings.catch_warnings()": _LOCKED,
    "spark_jobs.threads.warnings.simplefilter()": _LOCKED,
    "spark_jobs.tokens.certificate._code_digest": _DRIVER,
    "spark_jobs.tokens.document_encoder.DocumentEncoder._excluded": _OF_A_TASK,
    "spark_jobs.tokens.document_encoder.DocumentEncoder._fast": _OF_A_TASK,
    "spark_jobs.tokens.document_encoder.DocumentEncoder._added": _OF_A_TASK,
    "headrace.kernels.compiling._locked": "Numba's lock of compilation is around it",
    "headrace.kernels.compiling.sources_digest": _PURE,
    "headrace.kernels.sha256._functions": _PURE,
}


def test_what_threads_share_is_reviewed() -> None:
    """Nothing is shared that has no reason here, and no reason is left of what is gone."""
    found = set()
    for folder in _FOLDERS:
        for file in sorted((_ROOT / folder).rglob("*.py")):
            module = ".".join(file.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")
            found |= {f"{module}.{name}" for name in shared_names(ast.parse(file.read_text()))}
    assert found - _REVIEWED.keys() == set(), "make it a call's own, a thread's own, or `made_once`; else give a reason"
    assert _REVIEWED.keys() - found == set(), "it is gone; so goes its reason"


def test_each_kind_of_shared_state_is_seen() -> None:
    """A cache, a container, a name bound anew, an object of a class of the module, a counter, a setting."""
    source = """
class Pool:
    @cached_property
    def table(self): ...
@functools.lru_cache(maxsize=2)
def load(): ...
_kept = {}
_children: Pool = Pool()
_lock = threading.Lock()
_count = 0
WORDS = {"a": 1}
def put(key):
    global _count
    _kept[key] = _count
    os.environ["A"] = "1"
    csv.field_size_limit(7)
"""
    expected = ["Pool.table", "_children", "_count", "_kept", "_lock", "csv.field_size_limit()", "load", "os.environ"]
    assert sorted(set(shared_names(ast.parse(source)))) == expected


def shared_names(tree: ast.Module) -> Iterator[str]:
    """Names of what a module shares between threads."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    bound = {name for statement in tree.body for name in _bound(statement)}
    yield from bound & set(changed_names(tree))
    for statement in tree.body:
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Call):
            made = ast.unparse(value.func).split("[")[0]
            if made.startswith(_HOLDERS) or (made in classes and not _is_value(classes[made])):
                yield from _bound(statement)
    for prefix, body in (("", tree.body), *((f"{node.name}.", node.body) for node in classes.values())):
        for node in body:
            named = node.decorator_list if isinstance(node, ast.FunctionDef) else []
            if _CACHES & {_last(one.func if isinstance(one, ast.Call) else one) for one in named}:
                yield f"{prefix}{node.name}"  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last(node.func) in _SETTINGS:
            yield f"{ast.unparse(node.func)}()"
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            yield from ["os.environ"] if ast.unparse(node.value) == "os.environ" else []


def _is_value(node: ast.ClassDef) -> bool:
    """Whether objects of a class never change."""
    return bool(_VALUES & set(map(_last, node.bases))) or any(
        "frozen=True" in ast.unparse(one) for one in node.decorator_list
    )


def _last(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _bound(statement: ast.stmt) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    return [one.id for one in targets if isinstance(one, ast.Name)]
