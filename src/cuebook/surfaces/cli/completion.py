"""Completion in the shell: `cuebook completion`, and what the shell's script asks for at every Tab.

It changes nothing and never complains: whoever presses Tab has not said anything yet. Where there is no store, none is
made. What it needs beyond click is imported when it is asked for.
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

from cuebook.surfaces.cli.plain import say

if TYPE_CHECKING:
    from cuebook.dialects.registry import OutlinedStep
    from cuebook.kernel.run import WaitRow
    from cuebook.service import Service
    from cuebook.surfaces.cli.answers import Source

PROGRAM = "cuebook"
VARIABLE = "_CUEBOOK_COMPLETE"
"""Where the shell's script says what it wants."""

SHELLS = ("bash", "zsh", "fish")

Items = list[CompletionItem[str]]
Complete = Callable[[click.Context, click.Parameter, str], Items]

T = TypeVar("T")

MOST = 50
"""Candidates from the store that a shell is offered."""


class Bash(BashComplete):
    """bash puts a candidate into the line as it is, so one with a blank in it must come quoted."""

    _before = 0
    """Letters of the word at the cursor that bash takes for words of their own: it wants candidates without them."""

    source_template = BashComplete.source_template.replace("read type", "read -r type")

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        words: list[str] = []
        joined = False
        for word in (*args, incomplete):  # bash makes three words of --name=value, and of name=value
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
    """A leading `~` is left alone, and so is everything that a shell takes literally."""
    return "".join(letter if letter.isalnum() or letter in "_-./:@%+,=~" else f"\\{letter}" for letter in value)


def answer(cli: click.Command) -> int:
    """Prints what the shell's script asks for. Where something is wrong with the line, that is nothing."""
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
    help="""Print the script that completes cuebook's commands in a shell.

    \b
    bash:  eval "$(cuebook completion bash)"        in ~/.bashrc
    zsh:   eval "$(cuebook completion zsh)"         in ~/.zshrc, after compinit
    fish:  cuebook completion fish > ~/.config/fish/completions/cuebook.fish

    Commands and options complete, and after `cuebook run FILE` the inputs of the playbook do, with the options of an
    enum as values. Where a run, a wait, a step or an answer is wanted, those that there are do.
    """,
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> int:
    add_completion_class(Bash)
    made = get_completion_class(shell)
    assert made is not None
    sys.stdout.write(made(click.Command(PROGRAM), {}, PROGRAM, VARIABLE).source())
    return 0


# --- what values complete to ----------------------------------------------------------------------------


def any_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The shell knows best how to complete a path."""
    return [CompletionItem(incomplete, type="file")]


def one_of(values: Sequence[str]) -> Complete:
    """These values, or a file's text after `@`."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        if incomplete.startswith("@") and not incomplete.startswith("@@"):
            return [CompletionItem(f"@{path}") for path in _paths(incomplete[1:])]
        return [CompletionItem(value) for value in values if value.startswith(incomplete)]

    return complete


def _paths(beginning: str) -> list[str]:
    found = sorted(glob.glob(f"{glob.escape(os.path.expanduser(beginning))}*"))
    return [f"{path}/" if os.path.isdir(path) else path for path in found]


# --- what is in a playbook, or in the store ---------------------------------------------------------------


def runs(*statuses: str) -> Complete:
    """The ids of runs in these states, or of all, newest first."""

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
    """What waits for a person, by the runs that wait and by the ids of the waits."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        async def look(service: Service) -> Items:
            found = [wait for wait in reversed(await service.inbox()) if not kinds or wait.kind in kinds]
            named = [(wait.run, wait) for wait in found] + [(wait.id, wait) for wait in found]
            by_name = {name: wait for name, wait in named if name.startswith(incomplete)}
            return [CompletionItem(name, help=_about(wait)) for name, wait in list(by_name.items())[:MOST]]

        return _from_store(ctx, look)

    return complete


def steps_of_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The steps that the run on the line has reached."""

    async def look(service: Service) -> Items:
        row = await service.get(ctx.params["run"])
        steps = {step.name: step for step in await service.store.steps(row.id) if step.seq}
        return [CompletionItem(label, help=step.title) for label, step in steps.items() if label.startswith(incomplete)]

    return _from_store(ctx, look)


def steps_to_pause_after(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The steps of the playbook on the line, or of the run's, one after the other with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    named = before.split(",")
    steps = {step.label: step.title for step in _outline(ctx) if step.label.startswith(last)}
    return [
        CompletionItem(f"{before}{comma}{label}", help=title) for label, title in steps.items() if label not in named
    ]


def answers(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The steps that ask, each with the answers that its question takes."""
    found = [(f"{step.label}={value}", step.title) for step in _outline(ctx) for value in _values(step)]
    return [CompletionItem(value, help=title) for value, title in found if value.startswith(incomplete)]


def answers_to_wait(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The answers that the question on the line takes."""

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
    from cuebook.dialects.registry import Outlining

    source = _source(ctx)
    if source is None or not isinstance(source.dialect, Outlining):
        return ()
    return source.dialect.outline(source.document)


def _source(ctx: click.Context) -> Source | None:
    """The playbook that the line is about: a file's, or the one that a run was started from."""
    file = _on_the_line(ctx, "file")
    if file:
        from cuebook.surfaces.cli.answers import Source
        from cuebook.surfaces.cli.playbooks import Playbook

        playbook = Playbook(file)
        return Source(playbook.dialect, playbook.document)

    async def look(service: Service) -> Source | None:
        from cuebook.surfaces.cli.session import source_of

        return await source_of(service, await service.get(_on_the_line(ctx, "run")))

    return _looked(ctx, look)


def _on_the_line(ctx: click.Context, name: str) -> str:
    """An argument. While an option has no value yet, click has gathered the arguments without naming them."""
    arguments = [param.name for param in ctx.command.params if isinstance(param, click.Argument)]
    words = dict(zip(arguments, ctx.args, strict=False))
    return str(ctx.params.get(name) or words.get(name, ""))


def _from_store(ctx: click.Context, look: Callable[[Service], Awaitable[Items]]) -> Items:
    return _looked(ctx, look) or []


def _looked(ctx: click.Context, look: Callable[[Service], Awaitable[T]]) -> T | None:
    """What is found in the store that the line means; None where there is none."""
    import asyncio

    from cuebook.surfaces.cli import session

    wiring = session.wiring_of(ctx.params)
    path = wiring.config.get("store")
    if not path.is_file() or not path.stat().st_size:  # an empty file would become a store
        return None

    async def work() -> T:
        async with session.opened(wiring) as service:
            return await look(service)

    return asyncio.run(work())
