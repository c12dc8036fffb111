"""The policy's decision on the calls of a tool whose arguments a model or a coding agent chooses.

They are decided by kind: the decision for any command, file or host, and the rules that decide otherwise for some of them.
Everything that a preview says about such a tool comes from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from cuebook.gate import policy as rules
from cuebook.gate.policy import Override, Policy, Ruling, Stand, stricter_rules, strictest
from cuebook.kernel.ports import Action
from cuebook.performers.agent_tools.kinds import ANY, HARMLESS, KINDS, Kind, requests_of

Decide = Callable[[Action], Ruling]

_UNKNOWN = Stand((ANY,))
_OWN_AFFAIR = ("it concerns only the run itself", "default")


class KindRuling(msgspec.Struct, frozen=True):
    """The decision about one kind of action, for any target that no rule names."""

    words: str
    decision: str
    reasons: tuple[tuple[str, str], ...]
    """The deciding rules and their places."""
    except_for: tuple[str, ...] = ()
    """The rules and overrides that decide otherwise for some targets."""

    @property
    def rules(self) -> tuple[str, ...]:
        return _in_words(self.reasons)


class ToolRuling(msgspec.Struct, frozen=True):
    """The decision about the calls of a tool: the strictest of those on the tool itself and on what it does."""

    tool: str
    decision: str
    own: tuple[tuple[str, str], ...] = ()
    """The rules about the tool itself."""
    kinds: tuple[KindRuling, ...] = ()
    asked: tuple[Action, ...] = ()
    """The actions that are asked about, if they are known."""

    @property
    def rules(self) -> tuple[str, ...]:
        return _in_words(self.own)

    @property
    def reasons(self) -> tuple[tuple[str, str], ...]:
        """The rules that lead to the decision, with their places."""
        of_kinds = [reason for one in self.kinds if one.decision == self.decision for reason in one.reasons]
        return tuple(dict.fromkeys(of_kinds or self.own))


class ToolRulings:
    def __init__(self, policy: Policy, overrides: Sequence[Override] = (), now: float = 0.0) -> None:
        self._policy = policy
        self._overrides = [one for one in overrides if one.holds(now)]
        self.decide: Decide = lambda action: rules.decide(action, [policy], overrides, now)

    def built_in(self, tool: str, reads_only: bool) -> ToolRuling | None:
        """The decision on a built-in tool; None for any other."""
        if tool not in KINDS and tool not in HARMLESS:
            return None
        return self._ruling(Action("tool", tool, reads_only), KINDS.get(tool, ()))

    def requests(self, agent: str) -> tuple[ToolRuling, ...]:
        """The decisions on what a coding agent may ask of Cuebook."""
        return tuple(self._ruling(tool, kinds) for tool, kinds in requests_of(agent))

    def _ruling(self, action: Action, kinds: Sequence[Kind]) -> ToolRuling:
        found = self.decide(action)
        decision, own = found.decision, _reasons(found)
        if action.target in HARMLESS and decision == "ask":
            decision, own = "allow", (_OWN_AFFAIR,)
        ruled = tuple(self._kind(kind) for kind in kinds)
        worst = strictest([decision, *(one.decision for one in ruled)])  # type: ignore[list-item]
        known = all(one.decision == "allow" for one in ruled)
        return ToolRuling(action.target, worst, own, ruled, (action,) if known and decision == "ask" else ())

    def _kind(self, kind: Kind) -> KindRuling:
        found = self.decide(kind.action)
        stricter = stricter_rules(kind.action, [self._policy], _UNKNOWN, found.decision)
        others = [f"{rule.words} ({rule.where})" for rule in stricter]
        if found.decision == "ask":
            others += self._allowed(kind.action)
        return KindRuling(kind.words, found.decision, _reasons(found), tuple(dict.fromkeys(others)))

    def _allowed(self, action: Action) -> Iterator[str]:
        """The rules and overrides that allow some targets of an action that is asked about."""
        mode = action.target.partition(":")[0] if action.domain == "file" else ""
        for layer in self._policy.layers:
            if not layer.may_allow:
                continue
            for number, pattern in enumerate(layer.patterns(action.domain, "allow")):
                if not mode or not pattern.startswith(("read:", "write:")) or pattern.startswith(f"{mode}:"):
                    rule = layer.rule(action.domain, "allow", number)
                    yield f"{rule.words} ({rule.where})"
        for one in self._overrides:
            if one.domain == action.domain and (not mode or one.pattern.startswith(f"{mode}:")):
                yield f"override '{one.pattern}' ({one.id})"


def _reasons(ruling: Ruling) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys((one.rule, one.where) for one in ruling.deciding))


def _in_words(reasons: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{rule} ({where})" for rule, where in reasons)
