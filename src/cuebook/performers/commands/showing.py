"""What a person is shown of a command before it runs. Secrets are shown by their handles."""

from __future__ import annotations

import re
import shlex

from cuebook.kernel.effects import RunCommand, SecretUse
from cuebook.performers.commands.finding import Found
from cuebook.performers.commands.mentions import Named


def environment_shown(effect: RunCommand) -> dict[str, str]:
    """The variables that an effect sets."""
    secret = {use.at.partition(".")[2]: _with_handle(use) for use in effect.secrets if use.at != "stdin"}
    return {**effect.env, **secret}


def preview(
    effect: RunCommand,
    found: Found,
    environment: dict[str, str],
    named: Named,
    *,
    sandboxed: bool,
    network: bool,
) -> dict[str, str]:
    made = {"command": shlex.join(effect.argv), "program": found.program, "folder": found.cwd}
    if environment:
        made["environment"] = "\n".join(f"{name}={value}" for name, value in environment.items())
    given = [_with_handle(use) for use in effect.secrets if use.at == "stdin"]
    if effect.stdin or given:
        made["stdin"] = effect.stdin or given[0]
    if named.files:
        shown = (f"{name} ({_short(digest)})" for name, digest in named.files.items())
        made["files as they are now"] = "\n".join(shown)
    if named.unbound:
        made["content not bound"] = "It may have changed by the time this runs: " + "; ".join(named.unbound) + "."
    if effect.timeout is not None:
        made["time limit"] = f"{effect.timeout:g} s"
    if not sandboxed:
        made["may change"] = "everything that you can change: it runs without a sandbox"
        made["network"] = "yes: it runs without a sandbox"
        return made
    made["may change"] = "nothing" if effect.reads_only else f"the workspace, {found.workspace}"
    made["network"] = "yes" if network else "no"
    return made


def _with_handle(use: SecretUse) -> str:
    return use.form.replace("{}", f"[secret {use.handle}]")


def _short(digest: str) -> str:
    return digest[:12] if re.fullmatch(r"[0-9a-f]{64}", digest) else digest
