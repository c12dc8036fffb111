"""Capabilities of installed packages: entry points of the group `cuebook.capabilities`, only those named with `--offer`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points

from cuebook.formats.schema import flaws
from cuebook.kernel.errors import BadInput
from cuebook.node.capabilities.capability import Capability
from cuebook.performers.nodes.protocol import NAME

GROUP = "cuebook.capabilities"
BUILT_IN = ("command", "files", "desktop")


def capabilities(names: Sequence[str]) -> list[Capability]:
    """Loads these, and no others. Raises `BadInput` for one that is missing, ambiguous or unsuitable."""
    installed = entry_points(group=GROUP)
    return [_loaded(name, [one for one in installed if one.name == name]) for name in dict.fromkeys(names)]


def installed() -> list[str]:
    """The names that `--offer` accepts here."""
    return sorted({one.name for one in entry_points(group=GROUP)})


def _loaded(name: str, found: Sequence[EntryPoint]) -> Capability:
    if not found:
        known = installed()
        fix = f"Installed: {', '.join(known)}." if known else "No installed package brings any."
        raise BadInput(f"--offer {name}: there is no such capability.", fix=fix)
    packages = sorted({one.dist.name if one.dist else one.value for one in found})
    if len(packages) > 1:
        raise BadInput(
            f"--offer {name}: several packages bring it: {', '.join(packages)}.", fix="Uninstall all but one."
        )
    try:
        made = found[0].load()()
    except Exception as error:
        raise BadInput(
            f"--offer {name}: {packages[0]} could not provide it: {type(error).__name__}: {error}.",
            fix="Correct or update that package.",
        ) from error
    _check(name, packages[0], made)
    assert isinstance(made, Capability)
    return made


def _check(name: str, package: str, made: object) -> None:
    def refuse(what: str) -> BadInput:
        return BadInput(f"--offer {name}: {what}.", fix=f"Correct or update the package {package}.")

    if not isinstance(made, Capability):
        raise refuse("it is not a cuebook.node.Capability")
    if made.name in BUILT_IN:
        raise refuse(f"its name is '{made.name}', which is built in")
    names = [made.name, *(action.name for action in made.actions)]
    wrong = [one for one in names if not re.fullmatch(NAME, one)]
    if wrong:
        raise refuse(f"{wrong[0]!a} is not a valid name")
    if not made.actions or len(set(names[1:])) < len(made.actions):
        raise refuse("it has no actions" if not made.actions else "two of its actions have the same name")
    for action in made.actions:
        for _, flaw in flaws(action.schema):
            raise refuse(f"the schema of '{action.name}' cannot be used: {flaw}")
