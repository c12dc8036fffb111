"""The values of a policy: rules by domain, in layers that record their owner and where they were written.

They are plain frozen values that are written to a run's journal unchanged. `decide` applies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, UnsetType

from cuebook.kernel.context import digest_of
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.ports import Action, Domain, OnExpiry

Decision: TypeAlias = Literal["allow", "ask", "deny"]
Whose: TypeAlias = Literal["user", "project", "playbook", "run"]
"""The owner of a layer. The layer of a run is what its user chose for that run alone."""
Preset: TypeAlias = Literal["", "agent", "agent without a sandbox"]
AGENT: Preset = "agent"
AGENT_UNCONFINED: Preset = "agent without a sandbox"
"""What the preset `agent` becomes where commands have no sandbox."""
Postconditions: TypeAlias = Literal["warn", "require"]
Canceller: TypeAlias = Literal["runner", "owner", "approver"]

TABLES: dict[Domain, str] = {
    "tool": "tools",
    "command": "commands",
    "egress": "egress",
    "secret": "secrets",
    "file": "files",
    "model": "models",
}
"""The name of each domain in a policy file."""

APPROVAL_EXPIRY = 24 * 3600.0
STRICTER: tuple[Decision, ...] = ("allow", "ask", "deny")
ENDING: tuple[OnExpiry, ...] = ("hold", "deny", "cancel")
"""The consequences of an expired approval, in order of strictness: keep waiting, deny the effect, cancel the run."""

CHECKING: tuple[Postconditions, ...] = get_args(Postconditions)
"""Whether a step that changes something must declare a postcondition, in order of strictness."""
CANCELLERS: tuple[Canceller, ...] = get_args(Canceller)
"""Who may cancel a run, in order of strictness: any runner, only the runner who started it, only an approver."""

_SCHEMES = ("http", "https")

assert set(TABLES) == set(get_args(Domain))


def strictest(decisions: Iterable[Decision]) -> Decision:
    """The most restrictive decision. There must be at least one."""
    return max(decisions, key=STRICTER.index)


class Rules(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Patterns of one domain. `deny` takes precedence over `ask`, `ask` over `allow`, and `allow` over the default."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    default: Decision | None = None
    """For targets that no pattern matches; None means no opinion."""

    def of(self, decision: Decision) -> tuple[str, ...]:
        patterns: tuple[str, ...] = getattr(self, decision)
        return patterns


class ApprovalWishes(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The approval settings of one file. Settings that it does not mention are `UNSET`."""

    expires_after: float | UnsetType | None = UNSET
    on_expiry: OnExpiry | UnsetType = UNSET
    different_person: bool = False


class Approvals(msgspec.Struct, frozen=True):
    """The approval settings of all layers together."""

    expires_after: float | None = APPROVAL_EXPIRY
    """Seconds; None means never."""
    on_expiry: OnExpiry = "cancel"
    different_person: bool = False
    """Whether the user who started the run must not approve its actions."""


class RunWishes(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One file's settings for runs as a whole."""

    cancel: Canceller = "runner"


class Bundle(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The content of one policy file."""

    version: int = 1
    tools: Rules = Rules()
    commands: Rules = Rules()
    egress: Rules = Rules()
    secrets: Rules = Rules()
    files: Rules = Rules()
    models: Rules = Rules()
    approvals: ApprovalWishes = ApprovalWishes()
    allowed_domains: tuple[str, ...] = ()
    """Hosts that may be reached over http and https; every other request needs at least approval."""
    postconditions: Postconditions = "warn"
    from_outside: Literal["allow", "ask"] | UnsetType = UNSET
    """The decision about an allowed command that depends on the output of a model, a server or a tool."""
    runs: RunWishes = RunWishes()
    preset: Preset = ""
    """The name of more rules, which apply in addition to these. Its defaults apply where these have none."""

    def rules(self, domain: Domain) -> Rules:
        rules: Rules = getattr(self, TABLES[domain])
        return rules


_NO_RULES = Bundle()


class Rule(msgspec.Struct, frozen=True):
    """One pattern of a layer, in readable form."""

    words: str
    """For example `commands.deny 'rm *'`."""
    where: str
    """`FILE:LINE`, or the file alone."""
    line: int | None


class Layer(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The rules of one file, with their owner."""

    whose: Whose
    where: str
    """The file, or the playbook's name."""
    bundle: Bundle
    may_allow: bool
    """Whether it can allow something. Otherwise it only restricts, like an untrusted project file or a playbook."""
    lines: dict[str, int] = {}
    """The line of each rule, for example `commands.allow[2]: 14`."""

    def patterns(self, domain: Domain, decision: Decision) -> tuple[str, ...]:
        """All patterns of one list, including those that `allowed_domains` implies."""
        given = self.bundle.rules(domain).of(decision)
        if domain == "egress" and decision == "allow" and self.bundle.allowed_domains:
            given = (*given, *(f"{scheme}://{host}/*" for host in self.bundle.allowed_domains for scheme in _SCHEMES))
        return (*given, *self.preset.rules(domain).of(decision)) if self.bundle.preset else given

    @property
    def preset(self) -> Bundle:
        """The rules of the preset; none without one."""
        if not self.bundle.preset:
            return _NO_RULES
        from cuebook.gate.policy.presets import PRESETS

        return PRESETS[self.bundle.preset]

    @property
    def from_outside(self) -> Literal["allow", "ask"] | UnsetType:
        own = self.bundle.from_outside
        return self.preset.from_outside if own is UNSET and self.bundle.preset else own

    def rule(self, domain: Domain, decision: Decision, number: int) -> Rule:
        """The rule behind one of the patterns."""
        table, given = TABLES[domain], self.bundle.rules(domain).of(decision)
        if number < len(given):
            key = f"{table}.{decision}[{number}]"
            return Rule(f"{table}.{decision} {_quoted(given[number])}", self.place(key), self.lines.get(key))
        hosts = self.bundle.allowed_domains if domain == "egress" and decision == "allow" else ()
        index = (number - len(given)) // len(_SCHEMES)
        if index >= len(hosts):
            pattern = self.preset.rules(domain).of(decision)[number - len(given) - len(hosts) * len(_SCHEMES)]
            return self._of_preset(f"{table}.{decision} {_quoted(pattern)}")
        key = f"allowed_domains[{index}]"
        return Rule(f"allowed_domains '{self.bundle.allowed_domains[index]}'", self.place(key), self.lines.get(key))

    def default(self, domain: Domain) -> tuple[Decision, Rule] | None:
        """The default of the layer, and the setting that it comes from."""
        decision, key = self.bundle.rules(domain).default, f"{TABLES[domain]}.default"
        words = f"{key} '{decision}'"
        if domain == "egress" and self.bundle.allowed_domains and decision in (None, "allow"):
            decision, key, words = "ask", "allowed_domains", "allowed_domains asks about every other host and port"
        if decision is None and (preset := self.preset.rules(domain).default) is not None:
            return preset, self._of_preset(f"{key} '{preset}'")
        return None if decision is None else (decision, Rule(words, self.place(key), self.lines.get(key)))

    def _of_preset(self, words: str) -> Rule:
        return Rule(f"preset {self.bundle.preset}: {words}", self.place("preset"), self.lines.get("preset"))

    def place(self, key: str) -> str:
        line = self.lines.get(key)
        return self.where if line is None else f"{self.where}:{line}"


def _quoted(pattern: str) -> str:
    """The pattern on one line, so that it cannot look like a second rule."""
    return "'" + pattern.replace("\n", "\\n").replace("\t", "\\t") + "'"


class Policy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """All layers in force at one time."""

    layers: tuple[Layer, ...] = ()

    def snapshot(self) -> str:
        """Canonical JSON: equal policies have equal snapshots."""
        return msgspec.json.encode(self, order="sorted").decode()

    @classmethod
    def from_snapshot(cls, text: str) -> Policy:
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            # A policy that cannot be read cannot be enforced: an older version must not skip the rules of a newer one.
            raise CuebookError(
                f"The policy that was stored with the run cannot be read: {error}.",
                fix="Start the run again, or use the version of Cuebook that wrote it.",
            ) from None

    def with_playbook(self, own: Bundle | Mapping[str, Any], name: str) -> Policy:
        """This policy plus the playbook's own rules, which can only make it stricter."""
        from cuebook.gate.policy.load import playbook_layer

        layer = Layer("playbook", name, own, False) if isinstance(own, Bundle) else playbook_layer(name, own)
        return Policy((*self.layers, layer))

    def for_run(self, preset: Preset) -> Policy:
        """This policy plus a preset that was chosen for one run. What this policy asks about or denies, it still does."""
        return (
            Policy((*self.layers, Layer("run", f"--policy {preset}", Bundle(preset=preset), True))) if preset else self
        )

    @property
    def digest(self) -> str:
        return digest_of(self.snapshot())

    @property
    def approvals(self) -> Approvals:
        trusted = [layer.bundle.approvals for layer in self.layers if layer.may_allow]
        others = [layer.bundle.approvals for layer in self.layers if not layer.may_allow]
        granted = _merged(trusted)
        own = Approvals(
            expires_after=APPROVAL_EXPIRY if granted.expires_after is UNSET else granted.expires_after,
            on_expiry="cancel" if granted.on_expiry is UNSET else granted.on_expiry,
            different_person=granted.different_person,
        )
        return _strictest_approvals([own, *(_over(wishes, own) for wishes in others)])

    @property
    def postconditions(self) -> Postconditions:
        """The strictest setting of all layers."""
        return max((layer.bundle.postconditions for layer in self.layers), key=CHECKING.index, default="warn")

    @property
    def asks_from_outside(self) -> bool:
        """Whether commands that depend on outside data need approval. Only a layer that may allow can turn this off,
        and only if no other layer turns it on.
        """
        said = {layer.from_outside for layer in self.layers}
        allowed = any(layer.may_allow and layer.from_outside == "allow" for layer in self.layers)
        return "ask" in said or not allowed

    @property
    def cancel(self) -> Canceller:
        """The strictest setting of all layers."""
        return max((layer.bundle.runs.cancel for layer in self.layers), key=CANCELLERS.index, default="runner")


def approvals_of(policies: Iterable[Policy]) -> Approvals:
    """The strictest approval settings of several policies."""
    return _strictest_approvals([policy.approvals for policy in policies] or [Approvals()])


def _merged(wishes: list[ApprovalWishes]) -> ApprovalWishes:
    times = [one.expires_after for one in wishes if one.expires_after is not UNSET]
    endings = [one.on_expiry for one in wishes if one.on_expiry is not UNSET]
    return ApprovalWishes(
        expires_after=_shortest(times) if times else UNSET,
        on_expiry=max(endings, key=ENDING.index) if endings else UNSET,
        different_person=any(one.different_person for one in wishes),
    )


def _over(wishes: ApprovalWishes, own: Approvals) -> Approvals:
    return Approvals(
        expires_after=own.expires_after if wishes.expires_after is UNSET else wishes.expires_after,
        on_expiry=own.on_expiry if wishes.on_expiry is UNSET else wishes.on_expiry,
        different_person=wishes.different_person,
    )


def _strictest_approvals(several: list[Approvals]) -> Approvals:
    return Approvals(
        expires_after=_shortest([one.expires_after for one in several]),
        on_expiry=max((one.on_expiry for one in several), key=ENDING.index),
        different_person=any(one.different_person for one in several),
    )


def _shortest(times: list[float | None]) -> float | None:
    return min((time for time in times if time is not None), default=None)


class Override(msgspec.Struct, frozen=True):
    """An approval in advance. It never overrides a deny."""

    id: str
    domain: Domain
    pattern: str
    by: str
    created: float
    expires: float | None = None
    revoked: bool = False
    tenant: str = "local"
    run: str = ""
    """The only run that it applies to; empty for all runs."""
    revoked_by: str = ""
    revoked_at: float | None = None

    def holds(self, now: float) -> bool:
        return not self.revoked and (self.expires is None or now < self.expires)


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """One opinion that counted, and where it is written."""

    action: Action
    decision: Decision
    rule: str
    where: str
    """`FILE:LINE`, `default`, or `override ID`."""
    override: str = ""


class Ruling(msgspec.Struct, frozen=True):
    decision: Decision
    reasons: tuple[Reason, ...]
    """Every opinion that counted, including those that did not decide."""

    @property
    def deciding(self) -> tuple[Reason, ...]:
        return tuple(reason for reason in self.reasons if reason.decision == self.decision)
