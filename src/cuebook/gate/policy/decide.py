"""Decides what a policy says about an action, and why.

Within a layer, deny precedes ask, ask precedes allow, and allow precedes the layer's default. Between layers, and
between the run's original policy and the current policy, the most restrictive opinion counts. This module does not read
files or the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from cuebook.gate.policy.model import (
    STRICTER,
    Decision,
    Layer,
    Override,
    Policy,
    Reason,
    Rule,
    Ruling,
    Whose,
    strictest,
)
from cuebook.gate.policy.patterns import Stand, fits, may_fit
from cuebook.gate.policy.targets import TUNNEL, AddressPattern, FileTarget, address_of, canonical_host, parsed
from cuebook.kernel.ports import Action

if TYPE_CHECKING:
    from cuebook.gate.policy.commands import Command

NETWORK = Action("tool", "network", reads_only=True)
"""The network as such, for a process whose hosts are listed, or that was approved with its network."""
DEFAULT = "default"
"""The source of a reason that does not come from a file."""


class Opinion(msgspec.Struct, frozen=True):
    """The opinion of one layer about an action, whether or not it counts."""

    whose: Whose
    where: str
    decision: Decision | None
    """None if it has no opinion."""
    counts: bool
    """False if it allows the action but comes from a layer that can only restrict."""
    rules: tuple[Rule, ...] = ()
    """The rules behind it."""
    by_default: bool = False
    """Whether it is the layer's default, because no pattern matches."""


class Target(Protocol):
    """An action's target, in the form that the patterns of its domain are matched against."""

    def caught_by(self, pattern: str) -> bool:
        """Whether a restricting rule matches it."""

    def allowed_by(self, patterns: Sequence[str]) -> tuple[int, ...]:
        """The indexes of the patterns that together permit it; empty if none do."""


def decide(action: Action, policies: Sequence[Policy], overrides: Iterable[Override] = (), now: float = 0.0) -> Ruling:
    """The combined ruling of the run's own policy and the current policy. Without any, the built-in defaults apply."""
    flaw = _flaw(action)
    if flaw is not None and flaw.decision == "deny":
        return Ruling("deny", (flaw,))
    target = _target_of(action)
    found = [reason for policy in policies or (Policy(),) for reason in _reasons(action, target, policy)]
    if flaw is not None:
        found.append(flaw)
    reasons = tuple(dict.fromkeys(found))
    decision = strictest(reason.decision for reason in reasons)
    if decision != "ask":
        return Ruling(decision, reasons)
    used = () if flaw else _overriding(action, target, policies, overrides, now)
    if not used:
        return Ruling("ask", reasons)
    granted = (Reason(action, "allow", _override_words(one), f"override {one.id}", one.id) for one in used)
    settled = (reason for reason in reasons if reason.decision != "ask")
    return Ruling("allow", (*settled, *granted))


def _override_words(one: Override) -> str:
    return f"{'allowed for this run:' if one.run else 'override'} '{one.pattern}' by {one.by}"


def decide_all(
    actions: Iterable[Action], policies: Sequence[Policy], overrides: Iterable[Override] = (), now: float = 0.0
) -> Ruling:
    """The most restrictive ruling over all actions of one effect. Without any actions, there is nothing to deny."""
    standing = tuple(overrides)
    rulings = [decide(action, policies, standing, now) for action in actions]
    if len(rulings) < 2:
        return rulings[0] if rulings else Ruling("allow", ())
    decision = strictest(ruling.decision for ruling in rulings)
    # The reasons for the strictest rulings come first, because they matter most to the user.
    ordered = sorted(rulings, key=lambda ruling: ruling.decision != decision)
    return Ruling(decision, tuple(reason for ruling in ordered for reason in ruling.reasons))


def opinions(action: Action, policy: Policy) -> tuple[Opinion, ...]:
    """The opinion of each layer, including layers without one."""
    target = _target_of(action)
    return tuple(_opinion(action, target, layer) for layer in policy.layers)


def names_host(policies: Sequence[Policy], host: str, port: int) -> bool:
    """Whether every policy permits this host by its full name, and none forbids it.

    For hosts that are denied unless a rule lists them explicitly, such as those on the local network.
    """
    wanted = canonical_host(host)
    if wanted is None or not policies:
        return False
    return all(_names(policy, wanted, port) for policy in policies)


def untrusted_naming(policies: Sequence[Policy], target: str) -> str:
    """The project file that lists the host of this `METHOD URL`, but does not count because it is not trusted."""
    address = address_of(target)
    if address is None:
        return ""
    for layer in (layer for policy in policies for layer in policy.layers):
        if layer.whose == "project" and not layer.may_allow:
            patterns = map(_read, layer.patterns("egress", "allow"))
            if any(pattern.names(address.host, address.port) for pattern in patterns if pattern is not None):
                return layer.where
    return ""


def _names(policy: Policy, host: str, port: int) -> bool:
    def rules(layers: Iterable[Layer], decision: Decision) -> Iterable[AddressPattern]:
        texts = (text for layer in layers for text in layer.patterns("egress", decision))
        return (pattern for text in texts if (pattern := _read(text)))

    trusted = [layer for layer in policy.layers if layer.may_allow]
    forbidden = any(pattern.covers(host, port) for pattern in rules(policy.layers, "deny"))
    return not forbidden and any(pattern.names(host, port) for pattern in rules(trusted, "allow"))


def _read(pattern: str) -> AddressPattern | None:
    try:
        return parsed(pattern)
    except ValueError:
        return None


# --- layers -------------------------------------------------------------------------------------------


def _reasons(action: Action, target: Target, policy: Policy) -> list[Reason]:
    """The opinions that count in one policy, plus the built-in default if no layer that may allow has an opinion."""
    found: list[Reason] = []
    heard = False
    for layer in policy.layers:
        one = _opinion(action, target, layer)
        if one.decision is None or (layer.whose == "run" and one.by_default and heard):
            continue  # what is chosen for a run comes last, and its defaults are for what the files say nothing about
        heard = heard or layer.may_allow
        if one.counts:
            found += [Reason(action, one.decision, rule.words, rule.where) for rule in one.rules]
    if not heard:
        # Otherwise a playbook that asks about something could soften a built-in deny.
        decision, words = _built_in(action)
        found.append(Reason(action, decision, words, DEFAULT))
    return found


def _opinion(action: Action, target: Target, layer: Layer) -> Opinion:
    decision, rules, by_default = _said(action, target, layer)
    return Opinion(layer.whose, layer.where, decision, layer.may_allow or decision != "allow", rules, by_default)


def _said(action: Action, target: Target, layer: Layer) -> tuple[Decision | None, tuple[Rule, ...], bool]:
    for decision in ("deny", "ask"):
        for number, pattern in enumerate(layer.patterns(action.domain, decision)):
            if target.caught_by(pattern):
                return decision, (layer.rule(action.domain, decision, number),), False
    used = target.allowed_by(layer.patterns(action.domain, "allow"))
    if used:
        return "allow", tuple(layer.rule(action.domain, "allow", number) for number in used), False
    default = layer.default(action.domain)
    if default is None or (default[0] != "deny" and isinstance(target, FileTarget) and target.outside):
        return None, (), False
    return default[0], (default[1],), True


# --- built-in defaults -----------------------------------------------------------------------------------

BUILT_IN: dict[str, str] = {
    "tools": "read-only tools are allowed, all others need approval",
    "commands": "read-only commands are allowed, all others need approval",
    "egress": "needs approval",
    "secrets": "needs approval",
    "files": "reading in the workspace is allowed, writing there and reading the listed paths of a command needs approval, everything else is denied",
    "models": "allowed",
}
"""The built-in default of each domain, in words."""


def _built_in(action: Action) -> tuple[Decision, str]:
    match action.domain:
        case "tool" | "command":
            if action.reads_only and action == NETWORK:
                return "allow", "there are rules for its hosts, or an approval of its server"
            if action.reads_only:
                return "allow", f"a {action.domain} that only reads is allowed"
            return "ask", f"a {action.domain} that may change something needs approval"
        case "file":
            if action.listed and not FileTarget(action.target).flawed:
                return "ask", "reading a listed path outside the workspace needs approval"
            return FileTarget(action.target).built_in
        case "model":
            return "allow", "a model is allowed"
        case "egress":
            reaching = action.target.startswith(f"{TUNNEL} ")
            return "ask", "reaching a host needs approval" if reaching else "a network request needs approval"
        case "secret":
            if action.reads_only:
                return "allow", "your configuration passes this secret on"
            return "ask", "a secret needs approval"


def _flaw(action: Action) -> Reason | None:
    """The reason why no rule can allow the action: it is unclear what a rule would match."""
    if action.domain == "egress" and address_of(action.target) is None:
        return Reason(action, "deny", "this address cannot be checked", DEFAULT)
    if action.domain == "file" and FileTarget(action.target).flawed:
        return Reason(action, "deny", "this path cannot be checked", DEFAULT)
    if action.domain == "command" and not _command(action.target).complete:
        return Reason(action, "ask", "this command is nested too deeply to be checked completely", DEFAULT)
    return None


# --- overrides ----------------------------------------------------------------------------------------


def _overriding(
    action: Action, target: Target, policies: Sequence[Policy], overrides: Iterable[Override], now: float
) -> tuple[Override, ...]:
    standing = [one for one in overrides if one.domain == action.domain and one.holds(now)]
    if not standing:
        return ()
    from cuebook.gate.policy.overrides import problem_with

    standing = [one for one in standing if not problem_with(one.domain, one.pattern)]
    patterns = [one.pattern for one in standing]
    if action.domain != "command":
        return tuple(standing[number] for number in target.allowed_by(patterns))

    def allowed_anyway(part: str) -> bool:
        return decide(Action("command", part), policies).decision == "allow"

    return tuple(standing[number] for number in _command(action.target).allowed_by(patterns, allowed_anyway))


# --- targets ------------------------------------------------------------------------------------------


class _NameTarget:
    """The name of a tool, a secret or a model, which has only one spelling."""

    def __init__(self, name: str) -> None:
        self._name = name

    def caught_by(self, pattern: str) -> bool:
        return fits(pattern, self._name)

    def allowed_by(self, patterns: Sequence[str]) -> tuple[int, ...]:
        return next(((number,) for number, pattern in enumerate(patterns) if fits(pattern, self._name)), ())


class _EgressTarget:
    def __init__(self, target: str) -> None:
        self._address = address_of(target)

    def caught_by(self, pattern: str) -> bool:
        try:
            return self._address is None or parsed(pattern).catches(self._address)
        except ValueError:
            return True  # an unreadable restriction applies to everything

    def allowed_by(self, patterns: Sequence[str]) -> tuple[int, ...]:
        return next(((number,) for number, pattern in enumerate(patterns) if self._allowed(pattern)), ())

    def _allowed(self, pattern: str) -> bool:
        try:
            return self._address is not None and parsed(pattern).allows(self._address)
        except ValueError:
            return False


def _command(target: str) -> Command:
    """Imported lazily, because a run without commands does not need the modules that analyse them."""
    from cuebook.gate.policy.commands import command_of

    return command_of(target)


def _target_of(action: Action) -> Target:
    match action.domain:
        case "command":
            return _command(action.target)
        case "egress":
            return _EgressTarget(action.target)
        case "file":
            return FileTarget(action.target)
        case _:
            return _NameTarget(action.target)


def stricter_rules(action: Action, policies: Sequence[Policy], unknown: Stand, than: Decision) -> Iterator[Rule]:
    """The rules stricter than the decision that could match the action once its unknown values are known."""
    if not unknown.within(action.target):
        return
    may_be_about = _about(action, unknown)
    for layer in (layer for policy in policies for layer in policy.layers):
        for decision in STRICTER[STRICTER.index(than) + 1 :]:
            for number, pattern in enumerate(layer.patterns(action.domain, decision)):
                if may_be_about(pattern):
                    yield layer.rule(action.domain, decision, number)


def _about(action: Action, unknown: Stand) -> Callable[[str], bool]:
    match action.domain:
        case "command":
            command = _command(action.target)
            return lambda pattern: command.may_be_caught_by(pattern, unknown)
        case "egress":
            return lambda pattern: _may_catch(pattern, action.target, unknown)
        case _:
            return lambda pattern: may_fit(pattern, unknown.pieces(action.target))


def _may_catch(pattern: str, target: str, unknown: Stand) -> bool:
    address = address_of(target)
    try:
        rule = parsed(pattern)
    except ValueError:
        return True  # an unreadable restriction applies to everything
    if address is None or unknown.within(address.host):
        return True
    if not rule._replace(path=None).catches(address):
        return False
    path = rule.path
    return path is None or any(may_fit(path, unknown.pieces(one)) for one in (address.path, address.meant))


STORE = "the store of runs"
"""The layer that denies tools access to the store, which is hidden from commands anyway."""


def denies_network(policies: Sequence[Policy]) -> bool:
    """Whether a layer denies every address. If so, processes with network access are denied too."""
    rules = [layer.bundle.egress for policy in policies for layer in policy.layers]
    return any(rule.default == "deny" or "*" in rule.deny for rule in rules)


def restricts_reading(policies: Sequence[Policy]) -> bool:
    """Whether reading some file in the workspace is denied or needs approval."""
    layers = [layer for policy in policies for layer in policy.layers if layer.where != STORE]
    patterns = [pattern for layer in layers for pattern in (*layer.bundle.files.deny, *layer.bundle.files.ask)]
    return any(not pattern.startswith("write:") for pattern in patterns)
