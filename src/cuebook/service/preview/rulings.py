"""Predicts the gate's ruling on each act of a preview, as far as possible. Nothing is performed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from cuebook.dialects.presentation.preview import Act
from cuebook.gate.approvals import preview
from cuebook.gate.gate import Gate
from cuebook.gate.policy import Decision, Policy, Stand, stricter_rules, strictest
from cuebook.gate.roles import Principal
from cuebook.gate.secrets import SecretProblem
from cuebook.kernel.effects import (
    Acting,
    AskApproval,
    AskHuman,
    AskModel,
    Browse,
    CallNode,
    CallTool,
    Effect,
    ReadSource,
    RunCommand,
    SecretUse,
    SendHttp,
)
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.ports import Action, Admitted, Case, Needed
from cuebook.service.preview.tool_rulings import ToolRuling, ToolRulings
from cuebook.service.preview.touches import Reach, Touched, Touches, tool_rulings_of, touched_by, touches_of_effect

_ASKS = ("the step asks for approval",)

_REFUSED = frozenset({"forbidden", "refused_address", "outside_workspace", "insecure_secret", "secret_misplaced"})
"""Codes of failures that stop every run."""
_UNFIT = frozenset({"bad_url", "bad_request"})
"""Codes of failures that stop every run if no part of the effect is unknown."""


class ActRuling(msgspec.Struct, frozen=True):
    """The gate's predicted ruling on an act."""

    act: Act
    decision: str
    """`allow`, `ask`, `deny`, or `unknown` if only the run can show it."""
    rules: tuple[str, ...] = ()
    """The deciding rules; for `unknown`, the stricter rules that may apply."""
    hosts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Obstacles, and further questions for the approver."""
    tools: tuple[ToolRuling, ...] = ()
    """The policy's decisions on the tools that the model may call."""
    fails: bool = False
    """Whether every run fails here under any policy, because a secret, tool or program is missing."""
    settled_by: tuple[tuple[str, str], ...] = ()
    """The domains and patterns of the overrides that would stop the asking, apart from those for `tools`."""
    once_only: str = ""
    """Why no override would, as a clause."""
    preview: Mapping[str, str] = {}
    """The parts that an approver would see of it."""

    @property
    def secrets(self) -> tuple[SecretUse, ...]:
        return self.act.effect.secrets if isinstance(self.act.effect, Acting) else ()


class Rulings:
    def __init__(self, gate: Gate, reach: Reach, case: Case, policy: Policy, tools: ToolRulings) -> None:
        self._gate = gate
        self._reach = reach
        self._case = case
        self._policy = policy
        self._tools = tools
        self._decide = tools.decide

    async def of(self, acts: Iterable[Act]) -> list[ActRuling]:
        """The rulings on the acts that go through the gate."""
        return [
            await self._ruling(act) for act in acts if act.problem or act.approval or isinstance(act.effect, _RULED)
        ]

    async def _ruling(self, act: Act) -> ActRuling:
        stand_ins = Stand(act.open.stand_ins)
        match act.open.probe or act.effect:
            case RunCommand(argv=argv, network=network) as effect:
                place = "program" if argv and stand_ins.within(argv[0]) else ""
                return await self._by_gate(act, effect, network, place)
            case SendHttp(url=url) as effect:
                host = urlsplit(url).hostname or ""
                if stand_ins.within(host):
                    return await self._by_gate(act, effect, (), "host")
                return await self._by_gate(act, effect, (host,) if host else ())
            case Browse(arguments=arguments, page=page) as effect:
                host = urlsplit(str(arguments.get("url") or page)).hostname or ""
                if stand_ins.within(host):
                    return await self._by_gate(act, effect, (), "host")
                return await self._by_gate(act, effect, tuple(dict.fromkeys((host, *effect.network))) if host else ())
            case CallNode(node=node) as effect:
                return await self._by_gate(act, effect, (), "node" if stand_ins.within(node) else "")
            case CallTool() | AskModel() | ReadSource() as effect:
                return await self._by_policy(act, effect)
            case AskApproval() | AskHuman() if act.approval:
                return ActRuling(act, "ask", _ASKS)
            case _:
                return ActRuling(act, "unknown", notes=(act.problem,) if act.problem else ())

    # --- commands and requests ---

    async def _by_gate(
        self, act: Act, effect: RunCommand | SendHttp | Browse | CallNode, hosts: tuple[str, ...], open_place: str = ""
    ) -> ActRuling:
        """`open_place` is the name of the unknown part without which there can be no ruling."""
        found = await self._examined(act, effect, hosts)
        if open_place and found.decision != "deny":
            note = f"The {open_place} is not known before the run."
            return msgspec.structs.replace(found, decision="unknown", rules=(), notes=(note,), fails=False)
        if found.decision == "unknown":
            return found
        missing = self._missing(act)
        decision, rules = _strictest(missing, (found.decision, found.rules))
        touched = [*missing, *(await self._touches(act, effect)).touched] if act.open.stand_ins else missing
        decision, rules = self._or_stricter(act, touched, decision, rules)
        return msgspec.structs.replace(found, decision=decision, rules=rules)

    async def _examined(
        self, act: Act, effect: RunCommand | SendHttp | Browse | CallNode, hosts: tuple[str, ...]
    ) -> ActRuling:
        in_words = act.open.in_words
        try:
            ruling = await self._gate.examine(effect, self._case)
        except SecretProblem as error:
            return ActRuling(act, "unknown", hosts=hosts, notes=(in_words(str(error)),), fails=True)
        except CuebookError as error:
            return ActRuling(act, "unknown", hosts=hosts, notes=(in_words(str(error)),))
        match ruling:
            case Admitted(ruling=found):
                return ActRuling(act, str(found["decision"]), tuple(found["rules"]), hosts)
            case Needed(details=details):
                parts = {name: in_words(text) for name, text in details.get("preview", {}).items()}
                asking = ActRuling(act, "ask", _asking(act, details), hosts, preview=parts)
                return _settled(asking, next(iter(details.get("offers", ())), ()), str(details.get("once_only", "")))
            case failed if failed.code == "secret_missing":
                decision = "ask" if act.approval else str(failed.details["decision"])
                rules = _asking(act, failed.details) if decision == "ask" else tuple(failed.details["rules"])
                return ActRuling(act, decision, rules, hosts, (in_words(str(failed)),), fails=True)
            case failed if failed.code in _REFUSED or (failed.code in _UNFIT and not act.open.names):
                rules = tuple(failed.details.get("rules", ())) or (in_words(failed.message),)
                notes = (in_words(failed.fix),) if failed.code == "refused_address" else ()
                return ActRuling(act, "deny", rules, hosts, notes)
            case failed:
                notes = (in_words(str(failed)),)
                return ActRuling(act, "unknown", hosts=hosts, notes=notes, fails=_lacks_program(effect, failed.code))

    # --- tools, models and texts ---

    async def _by_policy(self, act: Act, effect: CallTool | AskModel | ReadSource) -> ActRuling:
        """A preview starts no tool server, so the properties of its tools are not known here."""
        found = await self._touches(act, effect)
        touched = [*found.touched, *self._missing(act)]
        touched += [self._touched(Action("secret", use.handle)) for use in getattr(effect, "secrets", ())]
        lacking = await self._lacking(effect)
        notes, missing = [*found.problems, *([str(lacking)] if lacking else [])], found.missing or lacking is not None
        tools, called = await tool_rulings_of(act, self._reach, self._tools)
        notes += called.problems
        missing = missing or called.missing
        found.hosts.update(called.hosts)
        decision, rules = _strictest(touched)
        if act.approval and decision != "deny":
            decision, rules = "ask", (*_ASKS, *(rules if decision == "ask" else ()))
        decision, rules = self._or_stricter(act, touched, decision, rules)
        names = [effect.tool] if isinstance(effect, CallTool) else [one.tool for one in tools]
        untrusted = await self._untrusted(names) if decision in ("allow", "ask") else ()
        if untrusted:
            decision, rules = "ask", (*(rules if decision == "ask" else ()), *untrusted)
        once = f"{_ASKS[0]}, and that is asked about each time" if act.approval else ""
        if untrusted:
            once = "a tool server needs approval first"
        notes = [act.open.in_words(note) for note in dict.fromkeys(notes)]
        shown = _arguments(effect) if isinstance(effect, CallTool) else {}
        made = ActRuling(act, decision, rules, tuple(found.hosts), tuple(notes), tuple(tools), missing, preview=shown)
        if decision != "ask":
            return made
        asked = [(one.domain, one.target) for one in touched if one.decision == "ask"]
        return _settled(made, asked, once)

    async def _lacking(self, effect: Effect) -> SecretProblem | None:
        """The secret that is unavailable. Only the owner of this machine learns which secrets exist."""
        run = self._case.run
        return await self._gate.lacking(effect, run.tenant) if run.owner == Principal().name else None

    async def _untrusted(self, tools: Sequence[str]) -> tuple[str, ...]:
        """The tool servers that need approval in their current form: the run asks about each of them."""
        found: dict[str, None] = {}
        for name in tools:
            for trust in await self._reach.tools.trusts(name):
                if not await self._gate.is_trusted(self._case.run.tenant, trust.subject, trust.digest):
                    found[f"the tool server '{name.partition('.')[0]}' needs approval first"] = None
        return tuple(found)

    # --- decisions ---

    async def _touches(self, act: Act, effect: Effect) -> Touches:
        return await touches_of_effect(act.label, effect, self._reach, self._decide)

    def _missing(self, act: Act) -> list[Touched]:
        """The secrets whose value is missing."""
        return [self._touched(Action("secret", name)) for name in act.open.secrets]

    def _touched(self, action: Action) -> Touched:
        return touched_by(action, self._decide(action))

    def _or_stricter(
        self, act: Act, touched: Iterable[Touched], decision: str, rules: tuple[str, ...]
    ) -> tuple[str, tuple[str, ...]]:
        """The decision; `unknown` if a stricter rule could apply to the unknown parts."""
        if decision not in ("allow", "ask"):
            return decision, rules
        stand_ins = Stand((*act.open.stand_ins, *act.open.secrets))
        actions = [Action(one.domain, one.target) for one in touched]  # type: ignore[arg-type]
        found = [
            f"{rule.words} ({rule.where})"
            for action in actions
            for rule in stricter_rules(action, [self._policy], stand_ins, decision)  # type: ignore[arg-type]
        ]
        return ("unknown", tuple(dict.fromkeys(found))) if found else (decision, rules)


_RULED = (RunCommand, SendHttp, Browse, CallNode, CallTool, AskModel, ReadSource)


def _settled(found: ActRuling, patterns: Iterable[tuple[str, str]], once_only: str) -> ActRuling:
    """The ruling with the overrides that would stop the asking, if all of them are known before the run."""
    patterns = tuple((domain, pattern) for domain, pattern in patterns)
    acts = not isinstance(found.act.effect, AskModel | ReadSource)
    if not once_only and (
        (acts and found.act.open.names)
        or any(one in pattern for one in found.act.open.stand_ins for _, pattern in patterns)
    ):
        once_only = "it depends on values that only the run knows"
    if not once_only and not patterns:
        once_only = "no single action is known before the run"
    if once_only:
        return msgspec.structs.replace(found, once_only=once_only)
    return msgspec.structs.replace(found, settled_by=patterns)


def _arguments(call: CallTool) -> dict[str, str]:
    if not call.arguments:
        return {}
    return preview({"arguments": msgspec.json.format(msgspec.json.encode(call.arguments, enc_hook=str)).decode()})


def _asking(act: Act, details: Mapping[str, Any]) -> tuple[str, ...]:
    """The rules that require approval, the step's own first."""
    return tuple(dict.fromkeys((*(_ASKS if act.approval else ()), *details.get("rules", ()))))


def _lacks_program(effect: RunCommand | SendHttp | Browse | CallNode, code: str) -> bool:
    """Whether a program is missing from the PATH. An earlier step may still create it in the workspace."""
    return code == "no_browser" or (
        isinstance(effect, RunCommand) and code == "no_such_command" and "/" not in effect.argv[0]
    )


def _strictest(
    touched: Sequence[Touched], found: tuple[str, tuple[str, ...]] = ("unknown", ())
) -> tuple[str, tuple[str, ...]]:
    """The strictest decision and its rules. `found` is an earlier decision to include."""
    if not touched:
        return found
    decisions: list[Decision] = [one.decision for one in touched]  # type: ignore[misc]
    decision = strictest([*decisions, *([found[0]] if found[0] != "unknown" else [])])  # type: ignore[list-item]
    rules = [
        f"{rule} ({where})" if where else rule
        for one in touched
        if one.decision == decision
        for rule, where in one.rules
    ]
    return decision, tuple(dict.fromkeys((*(found[1] if found[0] == decision else ()), *rules)))
