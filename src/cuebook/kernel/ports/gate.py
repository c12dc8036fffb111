"""What the engine asks of the gate and of the redactor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from cuebook.kernel.effects import Effect, SecretNeed
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports.performers import Action, Trust
from cuebook.kernel.ports.sandbox import Limits
from cuebook.kernel.run import RunOverride, RunRow, Settings

T = TypeVar("T")
E = TypeVar("E", bound=Effect)


class Case(msgspec.Struct, frozen=True):
    """The context in which the gate examines an effect."""

    run: RunRow
    settings: Settings
    policy: str | None
    """The policy at the start of the run, or None if none was stored."""
    granted: frozenset[str] = frozenset()
    """Digests that someone has approved for this effect."""
    overrides: tuple[RunOverride, ...] = ()
    """The approvals in advance that its journal records for this run. Some may have been revoked since."""
    outermost: str = ""
    """The run that they belong to, if this is a child run."""
    redactor: Redactor | None = None
    """Masks the sensitive inputs that the effect has, before anything that is shown is shortened."""


class Admitted(msgspec.Struct, frozen=True):
    """The effect may be performed."""

    permits: Callable[[Action], Failed | None]
    secrets: Callable[[], dict[str, str]]
    limits: Limits = Limits()
    ruling: dict[str, Any] = {}
    """The rule or person that decided, for the journal."""
    still: Callable[[], Awaitable[Failed | None]] | None = None
    """Checks just before performing that it is still what was examined: returns why it is not, or None."""


OnExpiry = Literal["cancel", "hold", "deny"]


class Needed(msgspec.Struct, frozen=True):
    """Someone must approve it first."""

    prompt: str
    digest: str
    """The digest of everything to be approved; a different digest needs another approval."""
    details: dict[str, Any] = {}
    expires_after: float | None = None
    on_expiry: OnExpiry = "cancel"
    trust: Trust | None = None
    whole: dict[str, str] = {}
    """Everything to be approved, by name, if the preview in the details shows only part of it."""


class Gate(Protocol):
    """The checks between a yielded effect and its performer."""

    async def examine(self, effect: Effect, case: Case) -> Admitted | Needed | Failed:
        """Decides whether the effect may be performed now. Performs nothing."""

    async def learn(
        self, declared: Iterable[SecretNeed], used: Iterable[SecretNeed], run: RunRow, policy: str | None
    ) -> Failed | None:
        """Makes the redactor mask a run's declared and used secrets. Returns why some cannot be resolved, or None."""

    def check_place(self, run: RunRow) -> None:
        """Raises `Elsewhere` if the run works in a folder that this process does not offer."""

    async def trusted(self, trust: Trust, run: RunRow, by: str) -> None:
        """Remembers that someone has approved something that an effect relies on."""

    def shown(self, words: str, parts: Mapping[str, str]) -> tuple[str, dict[str, str], dict[str, str]]:
        """A prompt and a preview that are safe to display: bounded, with all characters visible. If the preview is
        shortened, the full preview too.
        """


class Redactor(Protocol):
    """Masks secrets. A value without secrets is returned unchanged, as the same object."""

    def value(self, value: T) -> T: ...

    def stream(self) -> Filter: ...


class Concealed(Protocol):
    """The sensitive inputs of a run that is being driven."""

    @property
    def redactor(self) -> Redactor:
        """Masks them, and secrets, in what the run records and shows."""

    def reveal(self, effect: E) -> E:
        """The effect with values in place of the marks that the run has for them."""


class Filter(Protocol):
    """Masks secrets in text that arrives in pieces; holds back a tail that could be the start of a secret."""

    def feed(self, text: str) -> str: ...

    def finish(self) -> str: ...
