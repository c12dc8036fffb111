"""What a run would be asked before it is started: the policy's decision on each step, and on what its tools could do.

A model chooses the arguments of its tools, so their calls are decided by kind: the decision for any command, file or host,
and the rules that decide otherwise for some of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from cuebook.gate.policy import Override, Policy, Stand, stricter_rules, strictest
from cuebook.kernel.ports import Action
from cuebook.performers.agent_tools.kinds import ANY, HARMLESS, KINDS
from cuebook.service.preview.rulings import ActRuling
from cuebook.service.preview.touches import Decide

_UNKNOWN = Stand((ANY,))


class KindRuling(msgspec.Struct, frozen=True):
    """The decision about one kind of action, for any target that no rule names."""

    words: str
    decision: str
    rules: tuple[str, ...]
    except_for: tuple[str, ...] = ()
    """The rules and overrides that decide otherwise for some targets."""


class ToolRuling(msgspec.Struct, frozen=True):
    """The decision about the calls of a tool."""

    tool: str
    decision: str
    rules: tuple[str, ...] = ()
    """The rules about the tool itself."""
    kinds: tuple[KindRuling, ...] = ()


class StepRuling(msgspec.Struct, frozen=True):
    """What would be asked in a step."""

    act: ActRuling
    tools: tuple[ToolRuling, ...] = ()

    @property
    def asks(self) -> bool:
        return self.act.decision == "ask" or any(one.decision == "ask" for one in self.tools)

    @property
    def asking_tools(self) -> tuple[str, ...]:
        return tuple(one.tool for one in self.tools if one.decision == "ask")


def step_rulings(
    acts: Sequence[ActRuling], policy: Policy, overrides: Sequence[Override], now: float, decide: Decide
) -> tuple[StepRuling, ...]:
    """The decisions on the steps that a run may reach, in their order."""
    standing = [one for one in overrides if one.holds(now)]
    ruled = _Tools(policy, standing, decide)
    return tuple(
        StepRuling(one, tuple(ruled.ruling(tool, decision) for tool, decision in one.tools))
        for one in acts
        if one.act.runs is not False
    )


class _Tools:
    def __init__(self, policy: Policy, overrides: Sequence[Override], decide: Decide) -> None:
        self._policy = policy
        self._overrides = overrides
        self._decide = decide

    def ruling(self, tool: str, decision: str) -> ToolRuling:
        """`decision` is the decision on the tool itself."""
        if tool in HARMLESS and decision == "ask":
            decision = "allow"
        kinds = tuple(self._kind(kind.words, kind.action) for kind in KINDS.get(tool, ()))
        found = strictest([decision, *(one.decision for one in kinds)])  # type: ignore[list-item]
        return ToolRuling(tool, found, self._said(Action("tool", tool, decision == "allow")), kinds)

    def _kind(self, words: str, action: Action) -> KindRuling:
        decision = self._decide(action).decision
        others = [f"{rule.words} ({rule.where})" for rule in stricter_rules(action, [self._policy], _UNKNOWN, decision)]
        if decision == "ask":
            others += self._allowed(action)
        return KindRuling(words, decision, self._said(action), tuple(dict.fromkeys(others)))

    def _said(self, action: Action) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f"{one.rule} ({one.where})" for one in self._decide(action).deciding))

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
