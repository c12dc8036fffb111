"""The arguments that the engine and the gate pass to tools, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cuebook.kernel.effects import CallTool, SecretUse
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Action, Call, Confined, Confinement, Description, Limits, Sandbox, SandboxName
from cuebook.kernel.run import Settings
from cuebook.performers.tools.toolbox import Toolbox


class ToolCaller:
    """Replaces the engine: calls tools and keeps their warnings."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        secrets: Mapping[str, str] | None = None,
        permits: Callable[[Action], Failed | None] = lambda action: None,
        masked: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self.warnings: list[str] = []
        self._limits = limits or Limits(seconds=20)
        self._secrets = dict(secrets or {})
        self._permits = permits
        self._masked = masked

    def call(self) -> Call:
        return Call(
            run="r1",
            key="k1",
            attempt=1,
            settings=Settings(),
            emit=lambda text: True,
            reset=lambda: None,
            warn=lambda code, message: self.warnings.append(code),
            permits=self._permits,
            secrets=lambda: dict(self._secrets),
            limits=self._limits,
            masked=self._masked,
        )

    async def perform(
        self, box: Toolbox, tool: str, arguments: dict[str, Any] | None = None, secrets: tuple[SecretUse, ...] = ()
    ) -> ToolResult | Failed:
        return await box.perform(CallTool(tool=tool, arguments=arguments or {}, secrets=secrets), self.call())

    async def value(self, box: Toolbox, tool: str, arguments: dict[str, Any] | None = None) -> Any:
        outcome = await self.perform(box, tool, arguments)
        assert isinstance(outcome, ToolResult), outcome
        assert not outcome.is_error, outcome
        return outcome.value

    async def failure(
        self, box: Toolbox, tool: str, arguments: dict[str, Any] | None = None, secrets: tuple[SecretUse, ...] = ()
    ) -> Failed:
        outcome = await self.perform(box, tool, arguments, secrets)
        assert isinstance(outcome, Failed), outcome
        return outcome


async def described(
    box: Toolbox, tool: str, arguments: dict[str, Any] | None = None, secrets: tuple[SecretUse, ...] = ()
) -> Description:
    description = await box.describe(CallTool(tool=tool, arguments=arguments or {}, secrets=secrets), Settings())
    assert isinstance(description, Description), description
    return description


async def not_described(box: Toolbox, tool: str, arguments: dict[str, Any] | None = None) -> Failed:
    failed = await box.describe(CallTool(tool=tool, arguments=arguments or {}), Settings())
    assert isinstance(failed, Failed), failed
    return failed


class Recording:
    """A sandbox that keeps what it started."""

    def __init__(self, inner: Sandbox) -> None:
        self._inner = inner
        self.started: list[Confinement] = []
        self.running = 0
        """How many of them did start."""

    @property
    def name(self) -> SandboxName:
        return self._inner.name

    @property
    def problem(self) -> str:
        return ""

    async def spawn(self, confinement: Confinement) -> Confined:
        self.started.append(confinement)
        process = await self._inner.spawn(confinement)
        self.running += 1
        return process
