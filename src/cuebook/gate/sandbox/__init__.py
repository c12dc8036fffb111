"""Confines the processes that playbooks start, and tells what of it really holds on this machine.

`choose` gives what is set, or the best that works. Two ways are known, each in a module of its own; both keep a
process to its workspace and off the network. bubblewrap is preferred: inside it, other files do not exist at all,
and when we are killed the kernel ends everything that a command started. Landlock works where namespaces may not be
made, as within many containers. Processes that are still left running are ended by the next Cuebook.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal

from cuebook.gate.sandbox import orphans
from cuebook.gate.sandbox.orphans import clear
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.ports import Confined, Confinement, Sandbox, SandboxName

__all__ = ["NoSandbox", "Setting", "choose", "clear"]

Setting = Literal["auto", "landlock", "bubblewrap", "none"]


class NoSandbox(CuebookError):
    """Processes cannot be confined here."""

    code = "no_sandbox"


def choose(setting: Setting = "auto") -> Sandbox:
    """The sandbox of that name; with `auto`, the first that works. One that does not work refuses to start anything.

    Nothing is tried before it is needed.
    """
    if setting != "none":
        return _Chosen(setting)
    from cuebook.gate.sandbox.unconfined import Unconfined

    return Unconfined()


def _bubblewrap() -> tuple[Callable[[], Sandbox], str]:
    from cuebook.gate.sandbox import bubblewrap

    return bubblewrap.Bubblewrap, bubblewrap.problem()


def _landlock() -> tuple[Callable[[], Sandbox], str]:
    from cuebook.gate.sandbox import landlock

    return landlock.Landlock, landlock.problem()


_WAYS = {"bubblewrap": _bubblewrap, "landlock": _landlock}
"""Each gives what makes the sandbox, and why it does not work here, if so."""


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
        await orphans.clear_once()
        return await self._sandbox.spawn(confinement)

    @cached_property
    def _sandbox(self) -> Sandbox:
        wanted = list(_WAYS) if self._setting == "auto" else [self._setting]
        problems = {}
        for name in wanted:
            make, problems[name] = _WAYS[name]()
            if not problems[name]:
                return make()
        return _Refusing("landlock" if wanted == ["landlock"] else "bubblewrap", problems)


class _Refusing:
    """Replaces a sandbox that does not work: refuses, and says why."""

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
