"""What a run needs from the process that drives it, and what a process offers. A capability is a name.

The store and every dispatcher route runs by these names; they do not know what a name means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Protocol

SANDBOX = "sandbox"
"""Commands can be run, confined as the configuration says."""
BROWSER = "browser"
"""Chromium can be run, inside bubblewrap."""
LOCAL_MODEL = "model:local"
"""The embedded model is installed."""
_WORKSPACE = "workspace:"
_NODE, _NODES = "node:", "nodes:"
_HOME_TENANT = "local"
"""The tenant whose nodes are named without their tenant."""


def node(name: str) -> str:
    """The connection of the node with this name."""
    return f"{_NODE}{name}"


def any_node(capability: str) -> str:
    """The connection of a node that offers this."""
    return f"{_NODES}{capability}"


def comes_and_goes(name: str) -> bool:
    """Whether processes gain and lose this capability while they run, so that a run can wait for it with any store."""
    return name.startswith((_NODE, _NODES))


def of_tenant(name: str, tenant: str) -> str:
    """A capability as a run of this tenant needs it: nodes belong to a tenant."""
    return f"{name}@{tenant}" if comes_and_goes(name) and tenant != _HOME_TENANT else name


def lasting(needs: Iterable[str]) -> tuple[str, ...]:
    """Those that a process has for as long as it runs."""
    return tuple(name for name in needs if not comes_and_goes(name))


def in_words(needs: Iterable[str]) -> str:
    """What a run waits for, as in `a worker that offers sandbox`."""
    made = [_in_words(name.partition("@")[0]) for name in needs if comes_and_goes(name)]
    others = [name for name in needs if not comes_and_goes(name)]
    return " and ".join([*([f"a worker that offers {' and '.join(others)}"] if others else []), *made])


def _in_words(name: str) -> str:
    if name.startswith(_NODE):
        return f"node {name.removeprefix(_NODE)} to connect"
    return f"a node that offers {name.removeprefix(_NODES)} to connect"


class Needy(Protocol):
    """The columns of a run that decide which processes may drive it."""

    @property
    def dialect(self) -> str: ...
    @property
    def interpreter(self) -> int: ...
    @property
    def workspace(self) -> str: ...
    @property
    def needs(self) -> tuple[str, ...]: ...


def workspace_of(settings: dict[str, object]) -> str:
    """The workspace that a run's settings name: its label, or else its folder."""
    return str(settings.get("workspace_label") or settings.get("workspace") or "")


def named(workspace: str, needs: Iterable[str]) -> tuple[str, ...]:
    """All needs of a run by name, its workspace first."""
    return (*((f"{_WORKSPACE}{workspace}",) if workspace else ()), *needs)


def moved(folder: str, old: str, new: str) -> str:
    """A folder below the old place of a workspace, at its new place. Any other folder stays where it is."""
    if folder != old and not folder.startswith(f"{old}/"):
        return folder
    return new + folder.removeprefix(old)


class Offer:
    """What a process can do for the runs that it drives."""

    def __init__(
        self,
        workspaces: Sequence[str] = (),
        capabilities: Callable[[], Iterable[str]] = tuple,
        interpreter: Callable[[str], int] | None = None,
        connected: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`workspaces` are the folder it works in and the label of that folder, if it has one. `capabilities` is called when
        a run first needs one, `interpreter` returns the version of a dialect that this process has, or 0. `connected` returns
        the capabilities that come and go, as they are now.
        """
        self.workspaces = tuple(workspaces)
        self._find = capabilities
        self._connected = connected
        self._interpreter = interpreter

    @cached_property
    def capabilities(self) -> frozenset[str]:
        return frozenset(self._find())

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that it offers, by name."""
        return (*(f"{_WORKSPACE}{one}" for one in self.workspaces), *sorted(self.capabilities))

    def interpreter(self, dialect: str) -> int | None:
        """The newest version of a dialect that this process can interpret, 0 for none; None if that is not limited."""
        return None if self._interpreter is None else self._interpreter(dialect)

    def knows(self, run: Needy) -> bool:
        """Whether this process can interpret a run. An older release must not continue a run of a newer one."""
        newest = self.interpreter(run.dialect)
        return newest is None or run.interpreter <= newest

    def works_in(self, workspace: str) -> bool:
        return not workspace or workspace in self.workspaces

    def lacks(self, needs: Iterable[str]) -> tuple[str, ...]:
        """The capabilities that this process does not have."""
        wanted = set(needs)
        passing = {name for name in wanted if comes_and_goes(name)}
        lasting = wanted - passing
        missing = (lasting - self.capabilities) if lasting else lasting
        return tuple(sorted(missing | (passing - self.connected if passing else passing)))

    @property
    def connected(self) -> frozenset[str]:
        """The capabilities that come and go, as they are now."""
        return frozenset(self._connected())

    def meets(self, needs: Iterable[str]) -> bool:
        """Whether something that a run waits for, and that comes and goes, is here now."""
        passing = {name for name in needs if comes_and_goes(name)}
        return bool(passing and passing & self.connected)

    def fits(self, run: Needy, *, ending: bool = False) -> bool:
        """Whether this process may drive a run. A run that only has to end needs none of its capabilities. One that waits for
        something that comes and goes, and has other work, can be driven without it.
        """
        if not self.works_in(run.workspace) or not self.knows(run):
            return False
        return ending or not self.lacks(lasting(run.needs))
