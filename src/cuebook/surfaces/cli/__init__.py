"""The command line. This module is loaded on every call, so it imports only click; a command's module is imported when
the command is called.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NoReturn

import click

from cuebook import __version__
from cuebook.surfaces.cli.terminal.output import complain, prepare_streams, say, silence, write_problem

COMMANDS = {
    "new": ("commands.new", "Create a small playbook to start from."),
    "validate": ("commands.validate", "Find mistakes in playbooks."),
    "explain": ("commands.explain", "Show what a run would do, touch and cost."),
    "plan": ("commands.explain", "Show what each step would do, and what the policy says about it."),
    "graph": ("commands.graph", "Draw a playbook as a Mermaid flowchart."),
    "convert": ("commands.validate", "Convert a playbook to JSON, and back."),
    "test": ("commands.test", "Run playbook tests."),
    "compare": ("commands.compare", "Compare models, playbooks or runs."),
    "run": ("commands.run", "Run a playbook."),
    "resume": ("commands.resume", "Continue a run that is paused or was interrupted."),
    "answer": ("commands.resume", "Answer the question a run is waiting for."),
    "decide": ("commands.resume", "Approve or deny an action in a run, or resolve an effect in doubt."),
    "cancel": ("commands.resume", "Cancel a run; a second cancel stops it at once."),
    "retry": ("commands.resume", "Continue a failed run where it failed."),
    "restart": ("commands.restart", "Start a new run from a step of another run, optionally with changes."),
    "runtime": ("commands.runtime", "Handle one request of the runtime contract and print an envelope."),
    "runs": ("commands.show", "List runs, newest first."),
    "show": ("commands.show", "Show a run: steps, outputs and what it is waiting for."),
    "events": ("commands.show", "Show what happened in a run, and follow it."),
    "inbox": ("commands.show", "List everything that needs someone's attention."),
    "files": ("commands.files", "List the files that a run's steps have produced, or write one out."),
    "diff": ("commands.diff", "Compare two runs, step by step."),
    "audit": ("commands.audit", "Show what a run did and who allowed it, and check its journal."),
    "evidence": ("commands.evidence", "Sign exports with a key, and verify signed files."),
    "replay": ("commands.show", "Replay a run from its journal without performing anything."),
    "serve": ("commands.serve", "Serve the web app and its API."),
    "worker": ("commands.worker", "Drive the runs of a store that several machines share."),
    "node": ("commands.node", "Offer what this machine can do to a server."),
    "mcp": ("commands.mcp", "Serve Cuebook to an assistant, as an MCP server."),
    "schedule": ("commands.schedule", "Run playbooks at planned times."),
    "trigger": ("commands.trigger", "Run playbooks for webhooks, changed files and completed runs."),
    "policy": ("commands.policy", "Test, show and change what playbooks may do."),
    "secrets": ("commands.secrets", "Manage the names of secrets that playbooks may use."),
    "nodes": ("commands.nodes", "Manage the machines that may perform steps."),
    "notify": ("commands.notify", "Notify people when runs wait, fail, end or pass a spending mark."),
    "state": ("commands.state", "Look at the values that playbooks keep between runs, and clear them."),
    "users": ("commands.users", "Manage users and their roles."),
    "budget": ("commands.budget", "Limit what people and playbooks may use in a day and in a month."),
    "usage": ("commands.usage", "Show what runs used: tokens and money, by day, playbook, model or person."),
    "store": ("commands.store", "Copy runs to another store, and show the space they use."),
    "delete": ("commands.retention", "Delete runs, or only their contents."),
    "prune": ("commands.retention", "Delete old or large runs that have ended."),
    "erase": ("commands.retention", "Erase one person's data."),
    "backup": ("commands.backup", "Write a consistent copy of the store to a file, even while runs are in progress."),
    "restore": ("commands.backup", "Make a store from a backup."),
    "export": ("commands.exchange", "Write runs to a file that another installation can import."),
    "import": ("commands.exchange", "Add the runs of an exported file to the store."),
    "models": ("commands.models", "List the available models, or install the embedded one."),
    "keys": ("commands.keys", "Store provider API keys in the system keyring."),
    "doctor": ("commands.doctor", "Check the installation and report what is missing."),
    "completion": ("completion", "Print the completion script for a shell."),
    "summary": ("commands.validate", "Show what a playbook is about."),
    "parse": ("commands.validate", "Print a playbook as Cuebook parses it."),
    "verify": ("commands.audit", "Check that a run's journal is unchanged and matches the run's state."),
    "fork": ("commands.restart", "Restart with changed values or settings."),
}
"""Each command with its module and its one-line description."""

GROUPS = {
    "Write": (("new", "validate", "explain"), ("compare", "convert", "graph", "test")),
    "Run": (("run", "resume"), ("answer", "cancel", "decide", "restart", "retry", "runtime")),
    "Inspect": (
        ("runs", "show"),
        ("audit", "diff", "events", "evidence", "files", "inbox", "replay", "usage"),
    ),
    "Operate": (("serve",), ("mcp", "node", "nodes", "notify", "schedule", "state", "trigger", "worker")),
    "Keep": ((), ("backup", "delete", "erase", "export", "import", "prune", "restore", "store")),
    "Set up": (("models",), ("budget", "completion", "doctor", "keys", "policy", "secrets", "users")),
}
"""The groups in `--help`: the most used commands, shown with their descriptions, and the others, shown by name only."""

INSTEAD = {
    "plan": "explain --plan",
    "summary": "explain --summary",
    "parse": "validate --parse",
    "verify": "audit --verify",
    "fork": "restart",
}
"""Older command names that still work, with their replacements. They are not listed."""

ALIASES = {"info": "summary"}
"""Other names for commands. They are not listed."""

_COMPLETING = "_CUEBOOK_COMPLETE"


def visible() -> list[str]:
    """The commands that appear in lists."""
    return [name for name in COMMANDS if name not in INSTEAD]


class Commands(click.Group):
    """Imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return visible()

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        name = ALIASES.get(name, name)
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"cuebook.surfaces.cli.{COMMANDS[name][0]}")
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The usage line lists the options, so the help needs no section for them.
        formatter.write_usage(ctx.command_path, "[--help] [--commands] [--version] [--debug] COMMAND [ARGS]...")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the short list of commands, so that the help fits a 24-line terminal."""
        rows = []
        for group, (most_used, others) in GROUPS.items():
            lines = [f"{name:<11}{COMMANDS[name][1]}" for name in most_used]
            rest = ", ".join(others)
            lines.append(f"also {rest}" if most_used else rest)
            rows += [(group if number == 0 else "", line) for number, line in enumerate(lines)]
        with formatter.section("Commands"):
            formatter.write("".join(f"  {group:<9}{line}\n" for group, line in rows))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"\n{click.wrap_text(self.epilog or '', formatter.width)}\n")

    def get_long_help(self, ctx: click.Context) -> str:
        """All commands with their descriptions, and the options."""
        formatter = ctx.make_formatter()
        for group, names in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name, COMMANDS[name][1]) for part in names for name in part], col_max=12)
        click.Command.format_options(self, ctx, formatter)
        return formatter.getvalue().strip()

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        # click's own method would import the module of every command.
        named = [CompletionItem(name, help=COMMANDS[name][1]) for name in visible() if name.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        name = args[0]
        if name not in COMMANDS and name not in ALIASES and not name.startswith("-"):
            close = get_close_matches(name, visible(), n=1)
            hint = f"Did you mean '{close[0]}'?" if close else "`cuebook --help` lists them."
            if os.path.exists(name):
                hint = f"To run the playbook, type `cuebook run {name}`."
            raise click.UsageError(f"There is no command '{name}'. {hint}")
        return super().resolve_command(ctx, args)


def _list_commands(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        say(cli.get_long_help(ctx))
        ctx.exit()


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 completed, 1 failed, 2 bad input, 3 waiting for a person, 4 out of budget,"
    " 5 denied, cancelled or expired, 130 interrupted, 143 terminated.",
)
@click.version_option(__version__, prog_name="cuebook", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an unexpected error.")
@click.option(
    "--commands",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_commands,
    help="List all commands with a one-line description and exit.",
)
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Run AI playbooks durably: after a crash, a run continues where it stopped."""


def main(args: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if args is None else args)
    code = call(given)
    if "temporalio.bridge.temporal_sdk_bridge" in sys.modules:
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """Ends the process without finalising the interpreter.

    The threads of Temporal's SDK run until the process ends and cannot be joined. One that needs Python while the
    interpreter is being finalised aborts the process: after a failed connection, about every fourth command would end with
    a crash instead of its exit code. By now the command has closed everything, so only what Python does at exit remains.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader is gone, or it is closed
            stream.flush()
    os._exit(code)


def call(args: list[str]) -> int:
    """Runs a command and returns its exit code. Every expected error is one line on stderr."""
    if _COMPLETING in os.environ:
        from cuebook.surfaces.cli import completion

        return completion.answer(cli)
    from cuebook.kernel.errors import CuebookError

    prepare_streams()
    if not args:
        complain(cli.get_help(click.Context(cli, info_name="cuebook", **cli.context_settings)))
        return 2
    unreadable = next((number for number, arg in enumerate(args, start=1) if not _is_text(arg)), None)
    if unreadable is not None:
        complain(f"cuebook: argument {unreadable} is not UTF-8 text. Use UTF-8, or rename the file.")
        return 2
    try:
        return _invoke(args)
    except click.ClickException as error:
        complain(f"cuebook: {_sentence(error.format_message())}{_help_hint(error)}")
        return error.exit_code
    except (click.Abort, EOFError, KeyboardInterrupt):
        complain(f"{chr(10) if sys.stderr.isatty() else ''}cuebook: interrupted.")
        return 130
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        silence(sys.stdout)
        return 0
    except CuebookError as error:
        complain("\n".join(f"cuebook: {line}" for line in _with_store(str(error), args).split("\n")))
        return error.exit_code
    except Exception as error:
        problem = write_problem(error)
        if problem:
            silence(sys.stdout)
            complain(f"cuebook: cannot write the output: {problem}. Redirect it elsewhere.")
        elif "--debug" in args:
            import traceback

            complain(traceback.format_exc())
        else:
            complain(
                f"cuebook: unexpected {type(error).__name__}: {_one_line(str(error))}"
                " This is a bug in Cuebook; `cuebook --debug ...` shows the traceback."
            )
        return 1


_ON_RUNS = "answer|audit|cancel|compare|decide|diff|events|files|inbox|replay|restart|resume|retry|runs|show"
"""The commands about runs that errors suggest."""


def _with_store(text: str, args: list[str]) -> str:
    """Adds the `--store` of this call to the commands that an error suggests, so that they reach the same runs."""
    store = ""
    for number, arg in enumerate(args, start=1):
        if arg == "--store":
            store = "".join(args[number : number + 1])
        elif arg.startswith("--store="):
            store = arg.partition("=")[2]
    if not store:
        return text
    import re
    import shlex

    def complete(found: re.Match[str]) -> str:
        folder, command = found.groups()
        place = os.path.abspath(store) if folder and "://" not in store else store
        return found[0] if " --store " in command else f"`{folder}{command} --store {shlex.quote(place)}`"

    return re.sub(rf"`((?:cd [^`]+ && )?)(cuebook (?:{_ON_RUNS})\b[^`]*)`", complete, text)


def _invoke(args: list[str]) -> int:
    """Like `cli.main`, but does not exit with code 1 when stdout is a closed pipe."""
    try:
        with cli.make_context("cuebook", list(args)) as context:
            code = cli.invoke(context)
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _help_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    if context is None or context.parent is None:
        return ""
    return f" See `{context.command_path} --help`."


def _is_text(arg: str) -> bool:
    """Whether an argument is valid UTF-8. Other bytes arrive as lone surrogates, which cannot be stored or shown."""
    try:
        arg.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sentence(text: str) -> str:
    line = _one_line(text)
    return line if line.endswith((".", "?", "!", ".)")) else f"{line}."


def _one_line(text: str) -> str:
    return " ".join(text.split())
