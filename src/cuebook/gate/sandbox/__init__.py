"""Confines the processes that playbooks start, and tells what of it really holds on this machine.

`choose` gives what is set, or the best that works. Two ways are known, each in a module of its own; both keep a
process to its workspace and off the network. bubblewrap is preferred: in it what lies outside does not exist at all,
a command runs at its full speed, and when we are killed the kernel ends everything it started. Landlock works where
namespaces may not be made, as within many containers. What is left running all the same is ended by the next Cuebook.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal

from cuebook.gate.sandbox import bubblewrap, landlock, strays
from cuebook.gate.sandbox.child import NotStarted
from cuebook.gate.sandbox.probe import Probe, probe
from cuebook.gate.sandbox.strays import clear
from cuebook.gate.sandbox.unconfined import Unconfined
from cuebook.kernel.confinement import Confined, Confinement, Sandbox, SandboxName
from cuebook.kernel.errors import CuebookError

__all__ = ["NoSandbox", "NotStarted", "Probe", "Setting", "choose", "clear", "probe"]

Setting = Literal["auto", "landlock", "bubblewrap", "none"]

_WAYS: dict[str, tuple[Callable[[], Sandbox], Callable[[], str]]] = {
    "bubblewrap": (bubblewrap.Bubblewrap, bubblewrap.problem),
    "landlock": (landlock.Landlock, landlock.problem),
}


class NoSandbox(CuebookError):
    """Processes cannot be confined here."""

    code = "no_sandbox"


def choose(setting: Setting = "auto") -> Sandbox:
    """The sandbox of that name; with `auto`, the first that works. One that does not work refuses to start anything.

    Nothing is tried before it is needed.
    """
    return Unconfined() if setting == "none" else _Chosen(setting)


class _Chosen:
    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    @property
    def name(self) -> SandboxName:
        return self._sandbox.name

    @property
    def problem(self) -> str:
        return self._sandbox.problem

    async def spawn(self, confinement: Confinement) -> Confined:
        await strays.clear_once()
        return await self._sandbox.spawn(confinement)

    @cached_property
    def _sandbox(self) -> Sandbox:
        wanted = list(_WAYS) if self._setting == "auto" else [self._setting]
        problems = {}
        for name in wanted:
            make, problem = _WAYS[name]
            problems[name] = problem()
            if not problems[name]:
                return make()
        return _Refusing("landlock" if wanted == ["landlock"] else "bubblewrap", problems)


class _Refusing:
    """Stands for a sandbox that does not work: refuses, and says why."""

    def __init__(self, name: SandboxName, problems: dict[str, str]) -> None:
        self._name = name
        self._problems = problems

    @property
    def name(self) -> SandboxName:
        return self._name

    @property
    def problem(self) -> str:
        reasons = "; ".join(f"{name}: {problem}" for name, problem in self._problems.items())
        return f"Processes cannot be confined here ({reasons}), so nothing was started."

    async def spawn(self, confinement: Confinement) -> Confined:
        raise NoSandbox(
            self.problem,
            fix="Install bubblewrap, as in `apt install bubblewrap`, or use a Linux with Landlock; `cuebook doctor`"
            ' tells what works. With sandbox = "none" they run without any protection.',
        )
