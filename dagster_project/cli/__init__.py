"""The command `headrace`: a noun, then a verb. Mistakes of users are reported in one line.

`show` of a noun lists all of them, `show NAME` one: `headrace dataset show`, `headrace dataset show notes`.

Commands are imported when they are called, so that `headrace --help` does not wait for Dagster or Spark. The exit
status is 0 for success, 2 for unusable arguments, declarations or lakes, 3 for rows refused by a check, 4
for a failed step, 130 for an interruption.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from dagster_project.cli.tree import refuse_repetition, show_examples
from dagster_project.restarts import restart_when_killed
from dagster_project.unchanged_run import Reads, noted_texts
from headrace.process.allocation import set_allocators

# Groups as the help shows them: command to (module, help), `.run.plan` is `dagster_project.cli.run.plan`;
# the module is imported when the command is called or asked for help.
_GROUPS = {
    "Begin": {
        "demo": (".begin.demo", "Build a lake from files on this machine, and train on it."),
        "init": (".begin.init", "Make a project of your own."),
        "doctor": (".begin.doctor", "Check this machine and the lake; each fault with its mend."),
        "features": (".begin.features", "Show which features are there, and the extra that each can use."),
        "ui": (".begin.ui", "Open Dagster's UI on this lake."),
    },
    "Run": {
        "plan": (".run.plan", "Say what a run would compute, and why; nothing is computed."),
        "run": (".run.run", "Bring tables up to date; unchanged ones are skipped."),
        "runs": (".run.runs", "What ran: when, by whom, what it computed and what failed."),
        "status": (".run.status", "How datasets and corpora are: backlog, what has moved, what it cost."),
        "maintain": (".run.maintain", "Merge small files, expire snapshots, remove orphan files."),
        "relocate": (".run.relocate", "Have a lake that was copied, moved or restored name its files."),
    },
    "Data": {
        "dataset": (".data.datasets", "Declare, show, verify, archive and delete datasets."),
        "corpus": (".data.corpora", "Show what each step of a corpus keeps; start a new generation."),
        "table": (".data.tables", "Show tables and some of their rows; check and delete them."),
        "doc": (".data.doc", "One document: its text, why it was removed, its source; take it out."),
        "search": (".data.search", "Find documents whose text has some words."),
        "diff": (".data.versions", "Compare two states of a dataset or corpus."),
        "release": (".data.versions", "Name the state of a corpus, so that maintenance keeps it."),
        "export": (".data.windows", "Write a packed table as Parquet, WebDataset or torch files."),
    },
    "Quality": {
        "policy": (".quality.policy", "Add, show and preview the rules that documents are judged by."),
        "evals": (".quality.evals", "Add, show and delete benchmarks; show which documents hold their items."),
    },
    "Train": {
        "blend": (".train.blend", "Create, update, show and delete blends; prewarm servers for them."),
        "serve": (".train.serve", "Serve blends to training jobs over gRPC."),
    },
}
_COMMANDS = {name: where for group in _GROUPS.values() for name, where in group.items()}
_INTERRUPTED = 130  # as shells say it: 128 and the number of SIGINT
_LOADING = {"demo", "plan", "run"}  # they load Dagster and the project before they print a line
_LOUD_SECONDS = 1.0


class _LazyGroup(click.Group):
    """A group of commands, imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help; those of features and of installed packages last."""
        return [*_COMMANDS, *_added()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Import one command; for an unknown name the error suggests the nearest."""
        if cmd_name not in _COMMANDS:
            from spark_jobs.exceptions import nearest
            from spark_jobs.features import brought, missing
            from spark_jobs.plugins import load

            if cmd_name not in {**brought("commands"), **missing("commands")} and cmd_name not in (added := _added()):
                raise click.UsageError(f"No such command {cmd_name!r}{nearest(cmd_name, [*_COMMANDS, *added])}", ctx)
            command: click.Command = load("commands", cmd_name, click.Command)
        else:
            command = getattr(importlib.import_module(_COMMANDS[cmd_name][0], __name__), cmd_name)
            show_examples(command, cmd_name)
        refuse_repetition(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and options beginning with `incomplete`, without importing the commands."""
        texts = {name: text for name, (_, text) in _COMMANDS.items()} | _of_features()
        items = [CompletionItem(name, help=text) for name, text in texts.items()]
        return [item for item in items if item.value.startswith(incomplete)] + click.Command.shell_complete(
            self, ctx, incomplete
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands into the help, group by group, without importing them."""
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<10}", text) for name, (_, text) in commands.items()])
        features = _of_features()
        packages = {name: f"Of {place}." for name, place in _added().items() if name not in features}
        for title, texts in (("Features", features), ("Of installed packages", packages)):
            if texts:
                with formatter.section(title):
                    formatter.write_dl([(f"{name:<10}", text) for name, text in texts.items()])


def _added() -> dict[str, str]:
    """Commands of features and installed packages, with the defining object of each, without names of core."""
    from spark_jobs.plugins import added

    return {name: place for name, place in added("commands").items() if name not in _COMMANDS}


def _of_features() -> dict[str, str]:
    """Commands of the present features, with the line of their help; their modules are light to import."""
    from spark_jobs.features import brought
    from spark_jobs.plugins import load

    return {name: load("commands", name, click.Command).short_help or "" for name in brought("commands")}


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "--version", package_name="headrace", message="headrace %(version)s")
@click.option("--debug", is_flag=True, help="show the full trace of errors, and Spark's log")
def headrace(debug: bool) -> None:
    """Turn raw files into training batches: ingest, deduplicate, tokenize, pack, blend, serve.

    New here? `headrace demo` shows the whole way in two minutes; `headrace init NAME` makes a project of your own, and
    `headrace dataset add NAME --from PATH` takes in your files.

    For Tab: eval "$(_HEADRACE_COMPLETE=bash_source headrace)" in ~/.bashrc, or the same with zsh_source, fish_source.
    """
    if debug:
        os.environ["HEADRACE_DEBUG"] = "1"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line; never returns."""
    from spark_jobs.progress import tell

    words = list(sys.argv[1:] if arguments is None else arguments)
    if (texts := noted_texts(words)) is not None:
        from dagster_project.cli.output import say

        say("\n".join(texts))
        sys.exit(0)
    reads = Reads.begin(words)
    set_allocators()
    command = next((word for word in words if not word.startswith("-")), "")
    if command == "run":
        restart_when_killed(command)
    loads = threading.Timer(_LOUD_SECONDS, tell, ["loading the project"])
    loads.daemon = True
    if command in _LOADING and {"--help", "--last"}.isdisjoint(words):
        loads.start()
    status = run_command(words, reads)
    loads.cancel()
    if status == _INTERRUPTED:
        from spark_jobs.lake.engine.embedded import end_process
        from spark_jobs.lake.ledger.attempts import forget_attempts

        forget_attempts()
        end_process(status)
    sys.exit(status)


def run_command(arguments: list[str], reads: Reads | None = None) -> int:
    """Run a command line and give its exit status; mistakes are reported in one line.

    Args:
        arguments: the words behind `headrace`.
        reads: of this process since its start; see `dagster_project/unchanged_run.py`.
    """
    from dagster_project.cli.output import progress_shown, say

    try:
        with progress_shown("--json" not in arguments):
            headrace.main(args=list(arguments), prog_name="headrace", standalone_mode=False, obj=reads)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("stopped", err=True)
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame; it is told, or raised again
        return tell_error(error)
    return 0


def tell_error(error: Exception) -> int:
    """Print an error of a command in one line and give the exit status; one not of users' making is raised again."""
    from dagster_project.cli.output import say

    if isinstance(error, click.ClickException):
        error.show()
        return 2
    line, status = (None, 1) if os.environ.get("HEADRACE_DEBUG") else _explain(error)
    if line is None:
        raise error
    say(f"headrace: {line}", err=True)
    return status


def _explain(error: Exception) -> tuple[str | None, int]:
    """One line and an exit status for errors of users' making; None for the others."""
    from dagster_project.exceptions import CheckFailedError, DagsterProjectError, RunFailedError
    from spark_jobs.exceptions import SparkJobsError
    from spark_jobs.lake.session.spark_errors import failure_line, is_spark_error

    explained: tuple[type[Exception], ...] = (DagsterProjectError, SparkJobsError)
    blender = sys.modules.get("blender_service.exceptions")
    if blender is not None:
        explained += (blender.BlenderError,)
    if _is_full_disk(error):
        where = os.environ.get("DAGSTER_HOME") or os.getcwd()
        return f"the disk of {where} is full (or fails); free some space and run again, nothing half-written shows", 2
    if isinstance(error, explained):
        if isinstance(error, RunFailedError):
            return _one_line(error), 3 if isinstance(error, CheckFailedError) else 4
        return _one_line(error), 2
    if is_spark_error(error):
        return failure_line(error), 4
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or _one_line(error)}", 2
    return None, 1


def _is_full_disk(error: BaseException) -> bool:
    """Whether an error or one of its causes is a full disk: SQLite sometimes reports an I/O error."""
    signs = ("No space left on device", "disk is full", "disk I/O error")
    chain: BaseException | None = error
    while chain is not None:
        if any(sign in str(chain) for sign in signs):
            return True
        chain = chain.__cause__ or chain.__context__
    return False


def _one_line(error: BaseException) -> str:
    from spark_jobs.credentials import without_secrets

    return " ".join(without_secrets(str(error)).split())
