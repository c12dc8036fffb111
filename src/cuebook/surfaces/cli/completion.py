"""Completion in the shell: `cuebook completion`, and what the shell's script asks for at every Tab.

It changes nothing and never complains: whoever presses Tab has not said anything yet.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, get_completion_class

PROGRAM = "cuebook"
VARIABLE = "_CUEBOOK_COMPLETE"
"""Where the shell's script says what it wants."""

SHELLS = ("bash", "zsh", "fish")

Items = list[CompletionItem[str]]
Complete = Callable[[click.Context, click.Parameter, str], Items]


class Bash(BashComplete):
    """bash puts a candidate into the line as it is, so one with a blank in it must come quoted."""

    source_template = BashComplete.source_template.replace("read type", "read -r type")

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        return [word for word in args if word != "="], incomplete  # bash makes three words of --name=value

    def format_completion(self, item: CompletionItem[Any]) -> str:
        value = item.value if item.type != "plain" or item.value.startswith("-") else _escaped(item.value)
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
        asked = made(cli, {}, PROGRAM, VARIABLE)
        words = asked.source() if instruction == "source" else asked.complete()
    except Exception:
        return 0
    sys.stdout.write(f"{words}\n" if words else "")
    return 0


@click.command(
    "completion",
    help="""Print the script that completes cuebook's commands in a shell.

    \b
    bash:  eval "$(cuebook completion bash)"        in ~/.bashrc
    zsh:   eval "$(cuebook completion zsh)"         in ~/.zshrc, after compinit
    fish:  cuebook completion fish > ~/.config/fish/completions/cuebook.fish

    Commands and options complete, and after `cuebook run FILE` the inputs of the playbook do, with the options of an
    enum as values.
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
