"""An example of each command, the refusal of options passed twice, groups that features add commands to."""

from __future__ import annotations

import functools
import re
from typing import Any

import click

_KEYED = re.compile(r"[A-Z]+=[A-Z]+")  # how the help of an option names values that stand each under a key
# Arguments of each command in the example at the end of its help.
EXAMPLES = {
    "demo": "",
    "init": "my_project",
    "doctor": "",
    "features": "",
    "ui": "--port 3000",
    "plan": "notes main",
    "run": "notes main",
    "runs": "--limit 5",
    "status": "notes --check",
    "maintain": "main.packed_notes_2048 --only expiry --days 0",
    "relocate": "--from /old/warehouse --to /new/warehouse --dry-run",
    "dataset add": "notes --from ~/notes --corpus main",
    "dataset show": "notes 10",
    "dataset verify": "notes",
    "dataset reopen": "twin --reason rejected",
    "dataset archive": "notes --days 90 --to s3://bucket/cold",
    "dataset delete": "notes --plan",
    "corpus show": "main",
    "corpus refresh": "main",
    "table show": "notes.verdicts --failed too_short",
    "table check": "notes.long_texts",
    "table delete": "notes.signals",
    "doc show": "notes/one.md",
    "doc why": "notes/one.md",
    "doc trace": "main.packed_notes_2048 3 17",
    "doc excise": "--increment notes:3 --reason 'asked to by its author'",
    "search": "'mill race' --dataset notes",
    "diff": "main@2026-11-20T12:00 main",
    "release": "first --corpus main",
    "export": "main.packed_notes_2048 ./windows --format webdataset",
    "policy add": "strict.yaml",
    "policy show": "fineweb",
    "policy preview": "notes c4 fineweb",
    "evals add": "gsm8k --from gsm8k.jsonl --columns question,answer",
    "evals show": "main",
    "evals delete": "gsm8k",
    "blend create": "half --source main.packed_notes_2048=1 --source main.packed_code_2048=1",
    "blend update": "half third --at 100000 --change code=2 --change notes=1",
    "blend show": "half 17 --rows 8",
    "blend prewarm": "half --server 10.0.0.1:7170 --server 10.0.0.2:7170 --rows 200000",
    "blend delete": "half",
    "serve": "--port 50051",
}


def show_examples(command: click.Command, words: str) -> None:
    """Add its example to the end of the help of a command and of all below it."""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            show_examples(below, f"{words} {name}")
    elif words in EXAMPLES:
        command.epilog = f"\b\nExample: headrace {words} {EXAMPLES[words]}".rstrip()


class ExtendedGroup(click.Group):
    """A group of commands, and those that features bring to it: entry points `headrace.NAME_commands`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        from spark_jobs.features import brought

        return [*super().list_commands(ctx), *brought(f"{self.name}_commands")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by name."""
        from spark_jobs.features import brought, missing
        from spark_jobs.plugins import load

        group = f"{self.name}_commands"
        if cmd_name not in {**brought(group), **missing(group)}:
            return super().get_command(ctx, cmd_name)
        command: click.Command = load(group, cmd_name, click.Command)
        refuse_repetition(command)
        return command


@functools.cache  # so that a command is wrapped once
def refuse_repetition(command: click.Command) -> None:
    """Have a command and all below it refuse an option whose value is given twice, of which click takes the last.

    Those for many values refuse one KEY=VALUE beside another of the same key.
    """
    if isinstance(command, click.Group):
        for below in command.commands.values():
            refuse_repetition(below)
        return
    make = command.make_parser

    def make_parser(context: click.Context) -> Any:
        parser = make(context)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> tuple[dict[str, Any], list[str], list[click.Parameter]]:
            values, rest, order = parse(args)
            if not context.resilient_parsing:
                _require_once(values, order, context)
            return values, rest, order

        parser.parse_args = parse_args  # type: ignore[method-assign]
        return parser

    command.make_parser = make_parser  # type: ignore[method-assign, assignment]


def _require_once(values: dict[str, Any], order: list[click.Parameter], context: click.Context) -> None:
    """Refuse what is given twice.

    Raises:
        click.UsageError: names the option and what was given.
    """
    options: dict[str, click.Option] = {}
    for option in order:
        if not isinstance(option, click.Option) or option.name is None:
            continue
        before = options.setdefault(option.name, option)
        if option.multiple and _KEYED.fullmatch(option.metavar or ""):
            keys = [text.partition("=")[0] for text in values[option.name]]
            if twice := next((key for key in keys if keys.count(key) > 1), None):
                raise click.UsageError(f"{option.opts[0]} {twice}=..: is given twice; give one of them", context)
        takes_one = not option.multiple and not option.count and (not option.is_flag or bool(option.secondary_opts))
        if takes_one and sum(other.name == option.name for other in order) > 1:
            names = " and ".join(dict.fromkeys((before.opts[0], option.opts[0])))
            raise click.UsageError(f"{names}: is given twice and takes one value; give one of them", context)
