"""The command line. This module is loaded by every call, so it imports click and nothing else; a command's own module
is imported when that command is called.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import click

from cuebook import __version__
from cuebook.surfaces.cli import streams
from cuebook.surfaces.cli.plain import complain

COMMANDS = {
    "run": ("running", "Run a playbook."),
    "new": ("scaffolding", "Write a small playbook to begin with."),
    "validate": ("authoring", "Find the mistakes in playbooks."),
    "explain": ("explaining", "Say what a run would do, what it touches and what it may cost."),
    "plan": ("planning", "Say what each step of a pipeline would do, and what the policy says to it."),
    "graph": ("drawing", "Draw a playbook as a Mermaid flowchart."),
    "summary": ("authoring", "Say what a playbook is about."),
    "parse": ("authoring", "Print a playbook as it is read."),
    "convert": ("authoring", "Turn a playbook into JSON, and back."),
    "test": ("testing", "Run the tests of playbooks."),
    "resume": ("continuing", "Go on with a run that is paused or was interrupted."),
    "answer": ("continuing", "Answer the question a run waits for."),
    "decide": ("continuing", "Approve or deny what a run wants to do, or settle what is in doubt."),
    "cancel": ("continuing", "Stop a run; a second time, at once."),
    "retry": ("continuing", "Go on with a failed run where it failed."),
    "restart": ("branching", "Start a new run that keeps what an old one did before a step."),
    "fork": ("branching", "Restart with changed values or settings."),
    "runtime": ("enveloping", "Answer one request of the runtime contract by an envelope."),
    "replay": ("looking", "Go through a run again on its journal alone, performing nothing."),
    "verify": ("looking", "Check that a run's journal was not changed, and that it says what is shown of the run."),
    "audit": ("auditing", "Show what a run did and who let it through, and check its journal."),
    "runs": ("looking", "List runs, newest first."),
    "show": ("looking", "Show a run: its steps, outputs and what it waits for."),
    "events": ("looking", "Show what happened in a run, and what happens."),
    "diff": ("comparing", "Compare two runs, step by step."),
    "inbox": ("looking", "List everything that waits for a person."),
    "serve": ("serve", "Serve the web app: playbooks, live runs, results and an API."),
    "mcp": ("mcp", "Serve Cuebook to an assistant, as an MCP server."),
    "models": ("models", "List the models there are, or install the embedded one."),
    "keys": ("keys", "Keep the keys of providers in the system's keyring."),
    "policy": ("policy", "Test, show and change what playbooks may do."),
    "secrets": ("secrets", "Name the secrets that playbooks may be given."),
    "users": ("users", "Say who may look, run, approve and administer."),
    "doctor": ("doctor", "Say what was found, where, and what is missing."),
    "completion": ("completion", "Print the script that completes commands in a shell."),
}
"""Each command: its module, and its line in the list."""

ALIASES = {"info": "summary"}
"""Other names that commands go by; the list does not show them."""

_COMPLETING = "_CUEBOOK_COMPLETE"


class Commands(click.Group):
    """Imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        name = ALIASES.get(name, name)
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"cuebook.surfaces.cli.{COMMANDS[name][0]}")
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        # click's own would import every command's module to list their names.
        named = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        name = args[0]
        if name not in COMMANDS and name not in ALIASES and not name.startswith("-"):
            close = get_close_matches(name, COMMANDS, n=1)
            hint = f"Did you mean '{close[0]}'?" if close else "`cuebook --help` lists them."
            if os.path.exists(name):
                hint = f"To run the playbook, say `cuebook run {name}`."
            raise click.UsageError(f"There is no command '{name}'. {hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 completed, 1 failed, 2 bad input, 3 waits for a person, 4 paused by a budget,"
    " 5 denied, cancelled or expired, 130 interrupted, 143 told to end.",
)
@click.version_option(__version__, prog_name="cuebook", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an unexpected error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Runs AI playbooks durably: a run survives a crash and continues where it stopped."""


def main(args: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if args is None else args)
    sys.exit(call(given))


def call(args: list[str]) -> int:
    """Runs a command and gives its exit code. Every expected error is one line on stderr."""
    if _COMPLETING in os.environ:
        from cuebook.surfaces.cli import completion

        return completion.answer(cli)
    from cuebook.kernel.errors import CuebookError

    streams.prepare()
    if not args:
        complain(cli.get_help(click.Context(cli, info_name="cuebook", **cli.context_settings)))
        return 2
    unreadable = next((number for number, arg in enumerate(args, start=1) if not _is_text(arg)), None)
    if unreadable is not None:
        complain(f"cuebook: argument {unreadable} is not UTF-8 text. Write it in UTF-8, or rename the file it names.")
        return 2
    try:
        return _invoked(args)
    except click.ClickException as error:
        complain(f"cuebook: {_sentence(error.format_message())}{_how(error)}")
        return error.exit_code
    except (click.Abort, EOFError, KeyboardInterrupt):
        complain(f"{chr(10) if sys.stderr.isatty() else ''}cuebook: interrupted.")
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough
        streams.silence(sys.stdout)
        return 0
    except CuebookError as error:
        complain("\n".join(f"cuebook: {line}" for line in str(error).split("\n")))
        return error.exit_code
    except Exception as error:
        lost = streams.loss(error)
        if lost:
            streams.silence(sys.stdout)
            complain(f"cuebook: the output cannot be written: {lost}. Send it somewhere else.")
        elif "--debug" in args:
            import traceback

            complain(traceback.format_exc())
        else:
            complain(
                f"cuebook: unexpected {type(error).__name__}: {_one_line(str(error))}"
                " This is a defect of Cuebook; `cuebook --debug ...` shows where."
            )
        return 1


def _invoked(args: list[str]) -> int:
    """As `cli.main` does it, except that this would end by itself, with exit code 1, at a pipe that nobody reads."""
    try:
        with cli.make_context("cuebook", list(args)) as context:
            code = cli.invoke(context)
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _how(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    if context is None or context.parent is None:
        return ""
    return f" `{context.command_path} --help` shows how."


def _is_text(arg: str) -> bool:
    """What was no UTF-8 comes in as halves of characters, which can be neither kept nor shown."""
    try:
        arg.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sentence(text: str) -> str:
    said = _one_line(text)
    return said if said.endswith((".", "?", "!", ")")) else f"{said}."


def _one_line(text: str) -> str:
    return " ".join(text.split())
