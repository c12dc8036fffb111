"""Whether a command can be run as it is written. It looks at the effect alone, and at nothing on this machine."""

from __future__ import annotations

import os
import re

from cuebook.kernel.effects import RunCommand, SecretUse
from cuebook.kernel.errors import BadInput
from cuebook.performers.commands.argument_sizes import check_size

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

# What they hold decides which code runs in a program, whatever the program is.
LOADING = re.compile(
    r"LD_\w+|DYLD_\w+|GLIBC_TUNABLES|GCONV_PATH|PATH|PYTHON\w+|NODE_\w+|PERL\w+|RUBY\w+|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS"
    r"|CLASSPATH|BASH_ENV|ENV|SHELLOPTS|IFS|GIT_\w+|EDITOR|VISUAL|PAGER|HOME|TMPDIR"
)


class BadCommand(BadInput):
    """The command cannot be run as it is written."""

    code = "bad_command"


class SecretMisplaced(BadInput):
    """A secret is to be put where it would be seen."""

    code = "secret_misplaced"


def check(effect: RunCommand) -> None:
    if not effect.argv or not effect.argv[0]:
        raise BadCommand("The command is empty.", fix="Name a program.")
    given = "".join((*effect.argv, *effect.env, *effect.env.values()))
    if "\0" in given:
        raise BadCommand("The command holds a NUL character.", fix="Remove it, or hand it over by stdin.")
    try:
        os.fsencode(given)
        effect.stdin.encode()
    except UnicodeEncodeError:
        raise BadCommand("The command holds a character that no program can be given.", fix="Remove it.") from None
    check_size(effect.argv, effect.env)
    for name in effect.env:
        # Some shells take others for functions, and rules about commands could not tell them from a program.
        if not _VARIABLE.fullmatch(name):
            raise BadCommand(f"{name[:200]!a} cannot be the name of a variable.", fix="Use letters, digits and '_'.")
    for use in effect.secrets:
        _check_secret(use, effect)


def _check_secret(use: SecretUse, effect: RunCommand) -> None:
    kind, _, name = use.at.partition(".")
    if kind == "env" and LOADING.fullmatch(name):
        raise SecretMisplaced(
            f"The variable {name} decides what is run, so it takes no secret.", fix="Use another variable."
        )
    if kind == "env" and _VARIABLE.fullmatch(name):
        return
    if use.at != "stdin":
        raise SecretMisplaced(
            f"The secret {use.handle} is meant for {use.at!a}, where others could see it.",
            fix="Commands take secrets at env.NAME or stdin: what stands among the arguments can be read by everybody.",
        )
    if effect.stdin:
        raise SecretMisplaced(
            f"The command has a text for its stdin, and the secret {use.handle} is meant for it too.",
            fix="Write the text around the secret into its form, or hand the secret over as a variable.",
        )
