"""Explains a run before it starts: its preview, what it touches, how the policy decides and what it may cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from cuebook.dialects.dialect import Named
from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.playbook import Playbook
from cuebook.dialects.presentation.preview import Act, Preview, played
from cuebook.gate.gate import Gate
from cuebook.gate.policy import Policy, Preset, approvals_of
from cuebook.kernel.effects import CallTool
from cuebook.kernel.ports import Case
from cuebook.kernel.run import MERGE_STEP, WORKTREE, Budget, RunRow, Settings
from cuebook.kernel.tool_names import WORKTREE_MERGE
from cuebook.service.preview.asked import StepRuling, step_rulings
from cuebook.service.preview.bound import Bound, Terms, bound_of
from cuebook.service.preview.hidden import HiddenInputs
from cuebook.service.preview.rulings import ActRuling, Rulings
from cuebook.service.preview.texts import SCHEMES, LocalTexts
from cuebook.service.preview.tool_rulings import ToolRuling, ToolRulings
from cuebook.service.preview.touches import Reach, Touches, of_ruling, touches_of
from cuebook.service.service import Principal, Service
from cuebook.service.start import check_limits, check_postconditions


class Setup(msgspec.Struct, frozen=True):
    """The parts of the configuration that explanations need."""

    reach: Reach
    strictest: Policy
    """The current policy without any trust. Sources are read only if it allows that without asking."""
    model: str
    problem: str
    """Why the model is currently unavailable."""
    terms: Terms
    budget: Budget
    workspace: str
    wins: bool
    """Whether the model replaces a playbook's own models."""
    flaws: Callable[[Iterable[Named]], Iterable[str]]
    """Returns why a playbook's models cannot be called."""
    terms_with: Callable[[Iterable[Named]], Terms]
    """Returns the terms of runs in which a playbook's models may be called, too."""


class Explanation(msgspec.Struct, frozen=True):
    preview: Preview
    model: str
    problem: str
    """Why the model is currently unavailable."""
    touches: Touches
    bound: Bound
    terms: Terms
    budget: Budget
    rulings: list[ActRuling]
    refused: str = ""
    """Why a run would be refused; empty if it would start."""
    notes: tuple[str, ...] = ()
    asked: tuple[StepRuling, ...] = ()
    """What would be asked in each step that a run may reach, with every act."""
    policy: str = ""
    """The digest of the policy that decided."""
    budgets: tuple[str, ...] = ()
    """The budgets that are spent, each as a sentence."""
    others_approve: bool = False
    """Whether the policy forbids people to approve what their own runs do."""

    @property
    def asking(self) -> list[StepRuling]:
        """The steps in which someone would be asked for approval."""
        return [one for one in self.asked if one.asks]

    @property
    def reached(self) -> list[ActRuling]:
        """The rulings on acts whose condition may hold."""
        return [one for one in self.rulings if one.act.runs is not False]

    @property
    def denied(self) -> bool:
        return bool(self.refused) or any(one.decision == "deny" for one in self.reached)

    @property
    def fails(self) -> bool:
        return self.preview.is_unfit or any(one.fails for one in self.reached)


async def preview_of(
    playbook: Playbook,
    given: Mapping[str, Any],
    settings: Settings,
    setup: Setup,
    *,
    schemes: Collection[str] = SCHEMES,
    sensitive: Collection[str] = (),
) -> Preview:
    """Previews what a run would do, with a mark in place of each sensitive input. Reads sources of these schemes on this machine if the policy allows it without asking.

    The preview without inputs and options is cached by the playbook's contents, unless it read something.
    """
    hidden = HiddenInputs(given, (*playbook.document.sensitive, *sensitive))
    return await _preview_of(playbook, hidden, settings, setup, schemes)


async def _preview_of(
    playbook: Playbook, hidden: HiddenInputs, settings: Settings, setup: Setup, schemes: Collection[str]
) -> Preview:
    given = hidden.shown
    settings = msgspec.structs.replace(settings, model=setup.model, model_wins=setup.wins)
    which = (playbook.dialect.name, playbook.name, playbook.digest, setup.model, str(setup.wins))
    key = None if given or settings.options else (*which, *schemes)
    if key is not None and key in _CACHE:
        return _CACHE[key]
    texts = LocalTexts(setup.reach.texts, setup.strictest, settings, schemes)
    read = hidden.reading(texts)
    made = await asyncio.to_thread(lambda: played(playbook.dialect.preview(playbook.document, given, settings), read))
    if key is not None and not texts.looked:
        _CACHE[key] = made
        if len(_CACHE) > _MOST:
            del _CACHE[next(iter(_CACHE))]
    return made


_CACHE: dict[tuple[str, ...], Preview] = {}
_MOST = 32
"""The maximum number of cached previews."""


async def explain(
    service: Service,
    playbook: Playbook,
    given: Mapping[str, Any],
    settings: Settings,
    setup: Setup,
    who: Principal = Principal(),
    *,
    every_act: bool = False,
    schemes: Collection[str] = SCHEMES,
    preset: Preset = "",
    sensitive: Collection[str] = (),
) -> Explanation:
    """Explains a run that `who` would start, with this preset of the policy. Without `every_act`, asks the gate only about
    acts that are known exactly.
    """
    hidden = HiddenInputs(service.masked(dict(given)), (*playbook.document.sensitive, *sensitive))
    preview = await _preview_of(playbook, hidden, settings, setup, schemes)
    revealed = hidden.revealed(preview)
    policy, own = await service.policy(who), playbook.document.policy
    if own is not None:
        policy = policy.with_playbook(own, playbook.name)
    policy = policy.for_run(preset)
    now = service.clock()
    overrides = await service.overrides(who)
    tools = ToolRulings(policy, overrides, now)
    gate = service.gate
    assert isinstance(gate, Gate)
    case = _case(playbook, setup, policy, who, now)
    rulings = Rulings(gate, setup.reach, case, policy, tools)
    ruled = await _ruled(preview.every_act(), rulings, hidden)
    before = await _ruled((Act(label="", effect=effect) for effect in preview.reads), rulings, hidden)
    models = list(playbook.dialect.models(playbook.document))
    flaws = [f"The run would not start: {flaw}" for flaw in setup.flaws(models)]
    touches = hidden.masked(await touches_of(revealed, setup.reach, tools))
    after: list[ActRuling] = []
    if settings.options.get(WORKTREE) or playbook.document.own_worktree:
        merge = tools.built_in(WORKTREE_MERGE, reads_only=False)
        assert merge is not None
        after.append(_merge(merge))
        touches.touched.append(of_ruling(merge, MERGE_STEP))
        problem = await asyncio.to_thread(service.worktree_problem)
        flaws += [] if problem is None else [f"The run would not start: {problem}"]
    terms = setup.terms_with(models)
    bound = await asyncio.to_thread(bound_of, revealed, terms)
    spent = () if bound.calls == 0 else await service.spent_budgets(playbook.name, who)
    return Explanation(
        preview,
        setup.model,
        setup.problem,
        touches,
        bound,
        terms,
        setup.budget,
        [one for one in ruled if every_act or _is_exact(one.act)],
        _refused(playbook, service, policy),
        tuple(dict.fromkeys((*preview.notes, *flaws))),
        step_rulings(before, (*ruled, *after)),
        policy.digest,
        tuple(spent),
        approvals_of([policy]).different_person,
    )


async def _ruled(acts: Iterable[Act], rulings: Rulings, hidden: HiddenInputs) -> list[ActRuling]:
    """The rulings on acts. Values of sensitive inputs are examined, but are not in the result."""
    found: list[ActRuling] = []
    for act in acts:
        revealed, problem = hidden.revealed_act(act)
        if problem:
            found.append(ActRuling(act, "unknown", notes=(problem,), fails=True))
            continue
        found += [msgspec.structs.replace(hidden.masked(one), act=act) for one in await rulings.of([revealed])]
    return found


def _merge(found: ToolRuling) -> ActRuling:
    """The ruling on merging the run's worktree."""
    act = Act(label=MERGE_STEP, title="Merge the worktree", effect=CallTool(WORKTREE_MERGE, internal=True))
    return ActRuling(act, found.decision, tuple(f"{rule} ({where})" for rule, where in found.reasons))


def _is_exact(act: Act) -> bool:
    return act.open.probe is not None or bool(act.problem)


def _case(playbook: Playbook, setup: Setup, policy: Policy, who: Principal, now: float) -> Case:
    """A run as the gate would see it."""
    dialect = playbook.dialect
    row = RunRow(
        id="preview",
        tenant=who.tenant,
        owner=who.name,
        dialect=dialect.name,
        interpreter=dialect.interpreter,
        playbook="",
        name=playbook.name,
        created=now,
        updated=now,
    )
    settings = Settings(model=setup.model, workspace=setup.workspace, folder=playbook.folder)
    return Case(row, settings, policy.snapshot())


def _refused(playbook: Playbook, service: Service, policy: Policy) -> str:
    try:
        check_limits(playbook.dialect, playbook.document, playbook.where, service.ceilings)
        check_postconditions(playbook.dialect, playbook.document, playbook.where, policy)
    except InvalidPlaybook as error:
        return str(error)
    return ""
