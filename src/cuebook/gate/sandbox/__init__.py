"""Confines the processes that playbooks start, and reports how well that works on this machine.

`choose` returns the configured sandbox, or the best that works. There are two, each in its own module; both restrict a
process to its workspace and keep it off the network. bubblewrap is preferred: inside it, other files do not exist at
all, and if we are killed, the kernel kills everything that a command started. Landlock works where namespaces cannot
be created, as in many containers. The next Cuebook process kills whatever is still running after that.
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


def no_private(host: str, port: int) -> bool:
    return False


def choose(setting: Setting = "auto", private: Callable[[str, int], bool] = no_private) -> Sandbox:
    """Returns the named sandbox; with `auto`, the first that works. If none works, starting a process fails.

    No sandbox is tried before it is needed. `private` says whether a rule allows exactly this host and port, although the
    host is not public.
    """
    if setting != "none":
        return _Chosen(setting, private)
    from cuebook.gate.sandbox.unconfined import Unconfined

    return Unconfined()


_Make = Callable[[Callable[[str, int], bool]], Sandbox]


def _bubblewrap() -> tuple[_Make, str]:
    from cuebook.gate.sandbox import bubblewrap

    return bubblewrap.Bubblewrap, bubblewrap.problem()


def _landlock() -> tuple[_Make, str]:
    from cuebook.gate.sandbox import landlock

    return landlock.Landlock, landlock.problem()


_WAYS = {"bubblewrap": _bubblewrap, "landlock": _landlock}
"""Each returns the factory of the sandbox, and why the sandbox does not work here; empty if it works."""


class _Chosen:
    def __init__(self, setting: Setting, private: Callable[[str, int], bool]) -> None:
        self._setting = setting
        self._private = private

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
                return make(self._private)
        return _Refusing("landlock" if wanted == ["landlock"] else "bubblewrap", problems)


class _Refusing:
    """Stands in for a sandbox that does not work: fails every start and says why."""

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
            fix="Install bubblewrap (for example, `apt install bubblewrap`) or use a Linux kernel with Landlock;"
            ' `cuebook doctor` shows what works. With sandbox = "none", processes run without any protection.',
        )
