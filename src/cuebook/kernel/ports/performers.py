"""What the engine asks of performers, and what they are given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from cuebook.kernel.effects import AskModel
from cuebook.kernel.files import NoFiles, RunFiles
from cuebook.kernel.outcomes import AnyOutcome, Failed
from cuebook.kernel.ports.sandbox import Limits, at_once
from cuebook.kernel.run import Settings

Domain = Literal["tool", "command", "egress", "secret", "file", "model"]


class Action(msgspec.Struct, frozen=True):
    """One thing that an effect would do, in policy terms."""

    domain: Domain
    target: str
    """tool: its name. command: the argv, quoted as for a shell. egress: `METHOD URL` without query and fragment;
    `CONNECT URL` is everything on that host and port, for a command that can reach it.
    secret: the handle. file: `read:PATH` or `write:PATH`, relative to the workspace. model: `provider/model`."""
    reads_only: bool = False
    """Whether it changes nothing, as far as that can be enforced. For a secret: whether the configuration provides it
    without the playbook asking for it."""
    listed: bool = False
    """Whether the author lists this path outside the workspace. Without a rule, it is asked about instead of denied."""


class Slots(Protocol):
    """Limits that hold across all processes on one store."""

    def hold(
        self, name: str, most: int, waits: Callable[[], None], *, lasts: float | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Waits until fewer than `most` slots with this name are taken, and holds one. One that `lasts` counts for that many
        seconds, however long it is held. `waits` is called, once, if there is none at first.
        """


class Unlimited:
    """For performers that share no limits with others."""

    def hold(
        self, name: str, most: int, waits: Callable[[], None], *, lasts: float | None = None
    ) -> AbstractAsyncContextManager[None]:
        return nullcontext()


def _all_permitted(action: Action) -> Failed | None:
    return None


def _as_it_is(value: Any) -> Any:
    return value


def _no_secrets() -> dict[str, str]:
    return {}


def _unnoted(name: str, data: dict[str, Any]) -> None:
    pass


class Call(msgspec.Struct, frozen=True):
    """The context in which a performer performs an effect."""

    run: str
    key: str
    """Identifies this effect in this run; the same for all attempts. Idempotency keys are derived from it."""
    attempt: int
    settings: Settings
    emit: Callable[[str], bool]
    """Shows text as it arrives; returns False if the reply should stop here."""
    reset: Callable[[], None]
    """Withdraws the emitted text, because the attempt starts over."""
    warn: Callable[[str, str], None]
    """Notes a warning (code, message) on the step."""
    note: Callable[[str, dict[str, Any]], None] = _unnoted
    """Notes something on the step while it runs, such as another attempt."""
    permits: Callable[[Action], Failed | None] = _all_permitted
    """Checks an action that becomes known only during performance, such as a redirect: returns why it is not allowed,
    or None."""
    secrets: Callable[[], dict[str, str]] = _no_secrets
    """The values of the effect's secrets, by place (`SecretUse.at`). Resolve them at the last moment and do not keep them."""
    limits: Limits = Limits()
    """The limits of this effect, including those that it sets itself."""
    spent: float = 0.0
    """Seconds that have already passed and are no longer part of its limits."""
    begin: Callable[[], Awaitable[None]] = at_once
    """Waits until the intent is recorded. A performer whose `prepares` is true prepares in the meantime and awaits this before
    it acts; for all others the intent is already recorded.
    """
    slots: Slots = Unlimited()
    """For limits that hold across all processes on one store."""
    output: Callable[[bytes], None] | None = None
    """Receives the output of a command as it arrives, unmasked and in full."""
    errors: Callable[[bytes], None] | None = None
    """Receives its error output instead of `output`, for a caller that tells them apart."""
    files: RunFiles = NoFiles()
    """The files of the run."""
    step: str = ""
    intent: int = 0
    """The number of the record that this attempt began, which identifies it in the run, also after a crash; 0 if there is
    none."""
    since: float = 0.0
    """When that was."""
    masked: Callable[[Any], Any] = _as_it_is
    """Masks the secrets in a value. Mask text before cutting it: half a secret is not recognised."""

    @property
    def given(self) -> float:
        """The seconds it originally had, for messages about its limit."""
        return self.limits.seconds + self.spent


class Performer(Protocol):
    """Performs one kind of effect. Returns `Failed` for failures of the outside world; raises only for defects.

    When cancelled, it stops what it started and lets the cancellation propagate.
    """

    async def perform(self, effect: Any, call: Call) -> AnyOutcome: ...


class Trust(msgspec.Struct, frozen=True):
    """Something that someone must have approved before an effect is performed, such as a tool server's command."""

    subject: str
    """A name for it, such as `mcp server github`."""
    digest: str
    """The digest of what was approved; a different digest requires another question."""
    prompt: str
    preview: dict[str, str] = {}
    ask_first: bool = True
    """Whether to ask about the first version; if not, it is remembered and only changes raise a question."""


class Description(msgspec.Struct, frozen=True):
    """Describes what an effect would do: the actions that the policy decides on, and the preview for the approver."""

    actions: tuple[Action, ...]
    summary: str
    """One line, as in `Run git push`."""
    preview: dict[str, str] = {}
    """Everything that an approver should see, by name."""
    bound: dict[str, Any] = {}
    """Everything else that must not have changed when it is performed, such as digests of files or a tool's
    description."""
    trusts: tuple[Trust, ...] = ()
    """The trusts to ask for first, in this order. The consequences of each are described once it is granted."""
    seconds: float | None = None
    """The time that its arguments request, if any; the configuration limits it."""
    reads_only: bool = False
    """Whether a tool's call changes nothing, because its arguments say so and the sandbox enforces it."""
    harmless: bool = False
    """Whether it needs no approval, such as listing tools: rules that deny apply, rules that ask do not."""


@runtime_checkable
class Describer(Protocol):
    """A performer that can describe an effect before performing it."""

    async def describe(self, effect: Any, settings: Settings) -> Description | Failed: ...


@runtime_checkable
class Outliner(Describer, Protocol):
    """A describer with a cheaper description for effects that are allowed and need neither preview nor digest."""

    async def outline(self, effect: Any, settings: Settings) -> Description | Failed:
        """The description without preview and digest, but with the same refusals."""


@runtime_checkable
class Observer(Describer, Protocol):
    """A describer whose full description depends on the state of a run, such as the page that its browser shows, or on its
    tenant. One that can also outline observes only for effects that are not denied.
    """

    async def observe(self, effect: Any, settings: Settings, run: str) -> Description | Failed:
        """The description of an effect of this run as things are now."""


@runtime_checkable
class Needing(Protocol):
    """A performer of effects that not every machine can perform."""

    def needs(self, effect: Any, settings: Settings) -> Iterable[str]:
        """The capabilities that performing an effect needs."""


@runtime_checkable
class Awaiting(Needing, Protocol):
    """A performer of effects that need something which comes and goes. A run waits for it."""

    def patience(self, effect: Any) -> float | None:
        """How many seconds to wait for it; None without a limit."""

    async def missing(self, effect: Any, run: str, seconds: float) -> Failed:
        """The failure of an effect whose needs did not come within these seconds."""


@runtime_checkable
class Recalling(Protocol):
    """A performer of effects whose outcome can be asked for after the process that began them was lost."""

    async def recall(self, effect: Any, call: Call) -> AnyOutcome | None:
        """The outcome of the attempt that `call` names; None if it never began. A failure that is `UNANSWERED` leaves it in
        doubt.
        """

    def recorded(self, run: str, intent: int) -> None:
        """The outcome of an attempt is in the journal, so it need not be kept elsewhere."""


class Estimate(msgspec.Struct, frozen=True):
    """The maximum that a model call may use."""

    input_tokens: int
    output_tokens: int
    cost: float | None
    """None if the price is unknown."""


@runtime_checkable
class Estimator(Protocol):
    """A performer of `AskModel` that can estimate the cost of a call in advance."""

    def estimate(self, effect: AskModel, settings: Settings) -> Estimate: ...


@runtime_checkable
class Pricing(Protocol):
    """A performer of `AskModel` with known prices."""

    def is_free(self, effect: AskModel, settings: Settings) -> bool:
        """Whether a call is known to be free, regardless of its outcome."""


@runtime_checkable
class ActingModels(Protocol):
    """A performer of `AskModel` with models that act on the world themselves."""

    def acts(self, effect: AskModel, settings: Settings) -> bool:
        """Whether a call acts. If so, an intent is recorded before its prompt is sent: the performer awaits
        `Call.begin`."""

    async def continues(self, effect: AskModel, call: Call) -> bool:
        """Whether a call that was cut off, after its prompt was sent, can be taken up where it stopped."""
