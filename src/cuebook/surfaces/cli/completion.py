"""Shell completion: `cuebook completion`, and the candidates that the shell's script requests on every Tab press.

It changes nothing, reports no errors and creates no store. Everything but click is imported on demand.
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, get_completion_class

from cuebook.surfaces.cli.terminal.output import say

if TYPE_CHECKING:
    from cuebook.dialects.dialect import OutlinedStep
    from cuebook.dialects.playbook import Playbook
    from cuebook.kernel.run import WaitRow
    from cuebook.service.service import Service

PROGRAM = "cuebook"
VARIABLE = "_CUEBOOK_COMPLETE"
"""The variable in which the shell's script passes its request."""

SHELLS = ("bash", "zsh", "fish")

Items = list[CompletionItem[str]]
Complete = Callable[[click.Context, click.Parameter, str], Items]

T = TypeVar("T")

MOST = 50
"""The maximum number of candidates from the store."""


class Bash(BashComplete):
    """Completion for bash, which inserts candidates unchanged, so those with spaces must be quoted here."""

    _before = 0
    """Length of the part of the current word that bash treats as separate words: candidates must not repeat it."""

    source_template = BashComplete.source_template.replace("read type", "read -r type")

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        words: list[str] = []
        joined = False
        for word in (*args, incomplete):  # bash splits --name=value and name=value into three words
            if word == "=" and words:
                words[-1:] = [words[-1], ""] if words[-1].startswith("--") else [f"{words[-1]}="]
            elif joined:
                words[-1] += word
            else:
                words.append(word)
            joined = word == "="
        self._before = len(words[-1]) - (0 if joined else len(incomplete))
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        value = item.value[self._before :]
        value = value if item.type != "plain" or value.startswith("-") else _escaped(value)
        return f"{item.type},{value}"


def _escaped(value: str) -> str:
    """Escapes everything that a shell does not take literally, except `~`."""
    return "".join(letter if letter.isalnum() or letter in "_-./:@%+,=~" else f"\\{letter}" for letter in value)


def answer(cli: click.Command) -> int:
    """Prints the candidates for the shell's script; nothing if the command line is invalid."""
    shell, _, instruction = os.environ.get(VARIABLE, "").partition("_")
    add_completion_class(Bash)
    made = get_completion_class(shell)
    if made is None:
        return 1
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            asked = made(cli, {}, PROGRAM, VARIABLE)
            words = asked.source() if instruction == "source" else asked.complete()
    except Exception:
        return 0
    if words:
        say(words)
    return 0


@click.command(
    "completion",
    help="""Print the completion script for a shell.

    \b
    bash:  eval "$(cuebook completion bash)"        in ~/.bashrc
    zsh:   eval "$(cuebook completion zsh)"         in ~/.zshrc, after compinit
    fish:  cuebook completion fish > ~/.config/fish/completions/cuebook.fish

    The script completes commands and options, the inputs of the playbook after `cuebook run FILE` with the values of
    an enum, the ids of runs, waits and steps, and possible answers.
    """,
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> int:
    add_completion_class(Bash)
    made = get_completion_class(shell)
    assert made is not None
    sys.stdout.write(made(click.Command(PROGRAM), {}, PROGRAM, VARIABLE).source())
    return 0


# --- candidates for values ------------------------------------------------------------------------------


def any_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Lets the shell complete a path."""
    return [CompletionItem(incomplete, type="file")]


def one_of(values: Sequence[str]) -> Complete:
    """Completes these values, or a path after `@`."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        if incomplete.startswith("@") and not incomplete.startswith("@@"):
            return [CompletionItem(f"@{path}") for path in _paths(incomplete[1:])]
        return [CompletionItem(value) for value in values if value.startswith(incomplete)]

    return complete


def _paths(beginning: str) -> list[str]:
    found = sorted(glob.glob(f"{glob.escape(os.path.expanduser(beginning))}*"))
    return [f"{path}/" if os.path.isdir(path) else path for path in found]


# --- candidates from a playbook or the store ------------------------------------------------------------


def runs(*statuses: str) -> Complete:
    """Completes the ids of runs in these states, or of all runs, newest first."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        async def look(service: Service) -> Items:
            rows = await service.runs(status=statuses, limit=MOST)
            if incomplete:
                named = await service.runs_called(incomplete)
                rows = [row for row in named if not statuses or row.status in statuses]
            return [CompletionItem(row.id, help=f"{row.name}, {row.status.replace('_', ' ')}") for row in rows[:MOST]]

        return _from_store(ctx, look)

    return complete


def waits(*kinds: str) -> Complete:
    """Completes the ids of runs that are waiting for a person, and the ids of their waits."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        async def look(service: Service) -> Items:
            found = [wait for wait in reversed(await service.inbox()) if not kinds or wait.kind in kinds]
            named = [(wait.run, wait) for wait in found] + [(wait.id, wait) for wait in found]
            by_name = {name: wait for name, wait in named if name.startswith(incomplete)}
            return [CompletionItem(name, help=_about(wait)) for name, wait in list(by_name.items())[:MOST]]

        return _from_store(ctx, look)

    return complete


def steps_of_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Completes the steps that the run on the command line has reached."""

    async def look(service: Service) -> Items:
        row = await service.get(ctx.params["run"])
        steps = {step.name: step for step in await service.steps(row.id) if step.seq}
        return [CompletionItem(label, help=step.title) for label, step in steps.items() if label.startswith(incomplete)]

    return _from_store(ctx, look)


def steps_to_pause_after(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Completes a comma-separated list of steps of the playbook or the run on the command line."""
    before, comma, last = incomplete.rpartition(",")
    named = before.split(",")
    steps = {step.label: step.title for step in _outline(ctx) if step.label.startswith(last)}
    return [
        CompletionItem(f"{before}{comma}{label}", help=title) for label, title in steps.items() if label not in named
    ]


def answers(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Completes STEP=VALUE for the steps that ask a question, with the possible answers."""
    found = [(f"{step.label}={value}", step.title) for step in _outline(ctx) for value in _values(step)]
    return [CompletionItem(value, help=title) for value, title in found if value.startswith(incomplete)]


def answers_to_wait(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Completes the possible answers to the question on the command line."""

    async def look(service: Service) -> Items:
        from cuebook.surfaces.cli.session import wait_of

        wait = await wait_of(service, ctx.params["run_or_wait"], "question")
        return one_of(("yes", "no") if wait.type == "confirm" else wait.options)(ctx, param, incomplete)

    return _from_store(ctx, look)


def _about(wait: WaitRow) -> str:
    return " ".join(f"{wait.kind.replace('_', ' ')}: {wait.prompt}".split())[:80]


def _values(step: OutlinedStep) -> tuple[str, ...]:
    if step.question is None:
        return ()
    return {"confirm": ("yes", "no"), "select": step.question.options}.get(step.question.type, ("",))


def _outline(ctx: click.Context) -> Sequence[OutlinedStep]:
    playbook = _playbook(ctx)
    return () if playbook is None else playbook.outline


def _playbook(ctx: click.Context) -> Playbook | None:
    """The playbook named on the command line, or the playbook of the run named there."""
    file = _on_the_line(ctx, "file")
    if file:
        from cuebook.surfaces.cli.playbook_command import read_file

        return read_file(file)

    async def look(service: Service) -> Playbook | None:
        from cuebook.surfaces.cli.session import playbook_of

        return await playbook_of(service, await service.get(_on_the_line(ctx, "run")))

    return _looked(ctx, look)


def _on_the_line(ctx: click.Context, name: str) -> str:
    """An argument by name. While an option lacks its value, click has collected the arguments without names."""
    arguments = [param.name for param in ctx.command.params if isinstance(param, click.Argument)]
    words = dict(zip(arguments, ctx.args, strict=False))
    return str(ctx.params.get(name) or words.get(name, ""))


def _from_store(ctx: click.Context, look: Callable[[Service], Awaitable[Items]]) -> Items:
    return _looked(ctx, look) or []


def _looked(ctx: click.Context, look: Callable[[Service], Awaitable[T]]) -> T | None:
    """Queries the store that the command line names. Returns None if there is no store."""
    import asyncio
    from pathlib import Path

    from cuebook.surfaces.cli import session

    wiring = session.wiring_of(ctx.params)
    path = wiring.config.get("store")
    if isinstance(path, Path) and (
        not path.is_file() or not path.stat().st_size
    ):  # opening an empty file would turn it into a store
        return None

    async def work() -> T:
        async with session.opened(wiring) as service:
            return await look(service)

    return asyncio.run(work())
