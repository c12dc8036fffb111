"""What the gate would say to each step of a pipeline, as far as that is known before a run. Nothing is performed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from cuebook.beginnings import check_limits, check_postconditions
from cuebook.dialects.pipeline.foreseeing import Foreseen
from cuebook.dialects.pipeline.model import Llm
from cuebook.dialects.registry import InvalidPlaybook
from cuebook.gate.gate import Gate
from cuebook.gate.policy import Decision, Policy, Stand, stricter_rules, strictest
from cuebook.gate.secrets import SecretProblem
from cuebook.kernel.effects import AskModel, CallTool, Effect, RunCommand, SecretUse, SendHttp
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.ports import Action, Admitted, Case, Needed
from cuebook.kernel.run import RunRow, Settings
from cuebook.service import Principal, Service
from cuebook.surfaces.cli.playbooks import Playbook
from cuebook.surfaces.cli.rehearsing import Shown
from cuebook.surfaces.cli.touching import Decide, Reached, Touched, deciding, reached
from cuebook.surfaces.wiring import Wiring

_ASKS = ("the step asks for approval",)

_REFUSED = frozenset({"forbidden", "refused_address", "outside_workspace", "insecure_secret", "secret_misplaced"})
"""Failures of an effect that no run would get past."""
_UNFIT = frozenset({"bad_url", "bad_request"})
"""The same, where nothing in it is unknown."""


class Predicted(msgspec.Struct, frozen=True):
    """What the gate would say to a step, as far as it is known."""

    foreseen: Foreseen
    decision: str
    """`allow`, `ask`, `deny`, or `unknown` where only the run can tell."""
    rules: tuple[str, ...] = ()
    """What decides it; where it is unknown, the stricter rules that could."""
    hosts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What is in its way, and what is asked besides."""
    tools: tuple[tuple[str, str], ...] = ()
    """The tools that a model may call, each with what the policy says to it."""
    fails: bool = False
    """Whether no run would get past it here, whatever the policy says: there is no such secret, tool or program."""

    @property
    def secrets(self) -> tuple[SecretUse, ...]:
        return getattr(self.foreseen.effect, "secrets", ())


class Predicting:
    def __init__(
        self, service: Service, wiring: Wiring, case: Case, policy: Policy, decide: Decide, refused: str
    ) -> None:
        self._service = service
        self._wiring = wiring
        self._case = case
        self._policy = policy
        self._decide = decide
        self.refused = refused
        """Why a run would not even begin; empty where it would."""

    @classmethod
    async def made(cls, service: Service, wiring: Wiring, playbook: Playbook) -> Predicting:
        policy, own = await service.policy(), playbook.document.policy
        if own is not None:
            policy = policy.with_playbook(own, playbook.name)
        who, dialect = Principal(), playbook.dialect
        now = service.engine.clock()
        row = RunRow(
            id="plan",
            tenant=who.tenant,
            owner=who.name,
            dialect=dialect.name,
            interpreter=dialect.interpreter,
            playbook="",
            name=playbook.name,
            created=now,
            updated=now,
        )
        settings = Settings(model=wiring.model, workspace=wiring.reaching.workspace, folder=playbook.folder)
        refused = ""
        try:
            check_limits(dialect, playbook.document, playbook.path, service.ceilings)
            check_postconditions(dialect, playbook.document, playbook.path, policy)
        except InvalidPlaybook as error:
            refused = str(error)
        decide = deciding(policy, await service.overrides(), now)
        return cls(service, wiring, Case(row, settings, policy.snapshot()), policy, decide, refused)

    async def predicted(self, foreseen: Foreseen) -> Predicted:
        stands = Stand(foreseen.stand_ins)
        match foreseen.probe:
            case RunCommand(argv=argv) as effect:
                place = "program" if argv and stands.within(argv[0]) else ""
                return await self._by_gate(foreseen, effect, (), place)
            case SendHttp(url=url) as effect:
                host = urlsplit(url).hostname or ""
                if stands.within(host):
                    return await self._by_gate(foreseen, effect, (), "host")
                return await self._by_gate(foreseen, effect, (host,) if host else ())
            case CallTool() | AskModel() as effect:
                return await self._by_policy(foreseen, effect)
            case _:
                return Predicted(foreseen, "unknown", notes=(foreseen.problem,))

    # --- commands and requests ---

    async def _by_gate(
        self, foreseen: Foreseen, effect: RunCommand | SendHttp, hosts: tuple[str, ...], open_place: str = ""
    ) -> Predicted:
        """`open_place` is what only the run can tell, without which nothing can be said."""
        said = await self._examined(foreseen, effect, hosts)
        if open_place and said.decision != "deny":
            note = f"Which {open_place} it is, only the run can tell."
            return msgspec.structs.replace(said, decision="unknown", rules=(), notes=(note,), fails=False)
        if said.decision == "unknown":
            return said
        missing = self._missing(foreseen)
        decision, rules = _strictest(missing, (said.decision, said.rules))
        touched = [*missing, *(await self._reached(foreseen, effect)).touched] if foreseen.stand_ins else missing
        decision, rules = self._or_stricter(foreseen, touched, decision, rules)
        return msgspec.structs.replace(said, decision=decision, rules=rules)

    async def _examined(self, foreseen: Foreseen, effect: RunCommand | SendHttp, hosts: tuple[str, ...]) -> Predicted:
        gate = self._service.engine.gate
        assert gate is not None
        try:
            ruling = await gate.examine(effect, self._case)
        except SecretProblem as error:
            return Predicted(foreseen, "unknown", hosts=hosts, notes=(foreseen.in_words(str(error)),), fails=True)
        except CuebookError as error:
            return Predicted(foreseen, "unknown", hosts=hosts, notes=(foreseen.in_words(str(error)),))
        match ruling:
            case Admitted(ruling=found):
                return Predicted(foreseen, str(found["decision"]), tuple(found["rules"]), hosts)
            case Needed(details=details):
                return Predicted(foreseen, "ask", _asking(foreseen, details), hosts)
            case failed if failed.code == "secret_missing":
                decision = "ask" if foreseen.step.approval else str(failed.details["decision"])
                rules = _asking(foreseen, failed.details) if decision == "ask" else tuple(failed.details["rules"])
                return Predicted(foreseen, decision, rules, hosts, (foreseen.in_words(str(failed)),), fails=True)
            case failed if failed.code in _REFUSED or (failed.code in _UNFIT and not foreseen.unknown):
                rules = tuple(failed.details.get("rules", ())) or (foreseen.in_words(failed.message),)
                notes = (foreseen.in_words(failed.fix),) if failed.code == "refused_address" else ()
                return Predicted(foreseen, "deny", rules, hosts, notes)
            case failed:
                notes = (foreseen.in_words(str(failed)),)
                return Predicted(
                    foreseen, "unknown", hosts=hosts, notes=notes, fails=_lacks_program(effect, failed.code)
                )

    # --- tools and models ---

    async def _by_policy(self, foreseen: Foreseen, effect: CallTool | AskModel) -> Predicted:
        """A tool server is not started to look at a plan: what it says of its tools is not known here."""
        step = foreseen.step
        action = step.action
        allowed = [CallTool(name) for name in action.tools] if isinstance(action, Llm) else []
        found = await self._reached(foreseen, effect)
        touched = [*found.touched, *self._missing(foreseen)]
        touched += [self._touched(Action("secret", use.handle)) for use in getattr(effect, "secrets", ())]
        tools: list[tuple[str, str]] = []
        gate = self._service.engine.gate
        assert isinstance(gate, Gate)
        lacking = await gate.lacking(effect, self._case.run.tenant)
        notes, missing = [*found.problems, *([str(lacking)] if lacking else [])], found.missing or lacking is not None
        for call in allowed:
            one = await self._reached(foreseen, call)
            tools.append((call.tool, strictest(each.decision for each in one.touched)))  # type: ignore[misc]
            notes += one.problems
            missing = missing or one.missing
            found.hosts.update(one.hosts)
        decision, rules = _strictest(touched)
        if step.approval and decision != "deny":
            decision, rules = "ask", (*_ASKS, *(rules if decision == "ask" else ()))
        decision, rules = self._or_stricter(foreseen, touched, decision, rules)
        names = [effect.tool] if isinstance(effect, CallTool) else [call.tool for call in allowed]
        if decision in ("allow", "ask") and (unseen := await self._unseen(gate, names)):
            decision, rules = "ask", (*(rules if decision == "ask" else ()), *unseen)
        notes = [foreseen.in_words(note) for note in dict.fromkeys(notes)]
        return Predicted(foreseen, decision, rules, tuple(found.hosts), tuple(notes), tuple(tools), missing)

    async def _unseen(self, gate: Gate, tools: Sequence[str]) -> tuple[str, ...]:
        """The tool servers that a person has not agreed to, as they are now: the run asks about each."""
        found: dict[str, None] = {}
        for name in tools:
            for trust in await self._wiring.reaching.tools.trusts(name):
                if not await gate.is_trusted(self._case.run.tenant, trust.subject, trust.digest):
                    found[f"the tool server '{name.partition('.')[0]}' has to be agreed to first"] = None
        return tuple(found)

    # --- what each comes to ---

    async def _reached(self, foreseen: Foreseen, effect: Effect) -> Reached:
        step = foreseen.step
        return await reached([Shown(0, step.id, step.name, {}, effect)], self._wiring, self._decide)

    def _missing(self, foreseen: Foreseen) -> list[Touched]:
        """A secret that is not given is one all the same."""
        return [self._touched(Action("secret", name)) for name in foreseen.open_secrets]

    def _touched(self, action: Action) -> Touched:
        ruling = self._decide(action)
        said = tuple((reason.rule, reason.where) for reason in ruling.deciding)
        return Touched(action.domain, action.target, (), ruling.decision, said)

    def _or_stricter(
        self, foreseen: Foreseen, touched: Iterable[Touched], decision: str, rules: tuple[str, ...]
    ) -> tuple[str, tuple[str, ...]]:
        """The decision, unless a stricter rule could turn out to be about what is not known yet."""
        if decision not in ("allow", "ask"):
            return decision, rules
        stands = Stand((*foreseen.stand_ins, *foreseen.open_secrets))
        actions = [Action(one.domain, one.target) for one in touched]  # type: ignore[arg-type]
        found = [
            f"{rule.words} ({rule.where})"
            for action in actions
            for rule in stricter_rules(action, [self._policy], stands, decision)  # type: ignore[arg-type]
        ]
        return ("unknown", tuple(dict.fromkeys(found))) if found else (decision, rules)


def _asking(foreseen: Foreseen, details: Mapping[str, Any]) -> tuple[str, ...]:
    """The rules by which a person is asked, the step's own first."""
    return tuple(dict.fromkeys((*(_ASKS if foreseen.step.approval else ()), *details.get("rules", ()))))


def _lacks_program(effect: RunCommand | SendHttp, code: str) -> bool:
    """One of the PATH that is not there; one of the workspace may be made by an earlier step."""
    return isinstance(effect, RunCommand) and code == "no_such_command" and "/" not in effect.argv[0]


def _strictest(
    touched: Sequence[Touched], said: tuple[str, tuple[str, ...]] = ("unknown", ())
) -> tuple[str, tuple[str, ...]]:
    """The strictest decision of all, and what decides it. `said` was decided before."""
    if not touched:
        return said
    decisions: list[Decision] = [one.decision for one in touched]  # type: ignore[misc]
    decision = strictest([*decisions, *([said[0]] if said[0] != "unknown" else [])])  # type: ignore[list-item]
    rules = [
        f"{rule} ({where})" if where else rule
        for one in touched
        if one.decision == decision
        for rule, where in one.rules
    ]
    return decision, tuple(dict.fromkeys((*(said[1] if said[0] == decision else ()), *rules)))
