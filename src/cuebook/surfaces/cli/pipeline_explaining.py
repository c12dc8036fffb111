"""`cuebook explain` of a pipeline: its steps in order, what it touches, and the most that its models may use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec

from cuebook.dialects.pipeline.foreseeing import Foreseen
from cuebook.dialects.pipeline.model import Llm, Step
from cuebook.kernel.effects import CallTool
from cuebook.kernel.run import Budget
from cuebook.surfaces import wording
from cuebook.surfaces.cli import explaining, planning, session
from cuebook.surfaces.cli.bounding import Terms
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.planning import Plan
from cuebook.surfaces.cli.playbooks import Playbook
from cuebook.surfaces.cli.rehearsing import Shown
from cuebook.surfaces.cli.touching import Reached, reached
from cuebook.surfaces.wiring import Wiring


class Explained(msgspec.Struct, frozen=True):
    plan: Plan
    model: str
    problem: str
    """Why the model cannot be asked as things stand."""
    reached: Reached
    terms: Terms
    budget: Budget

    @property
    def calls(self) -> int:
        """Of models, if every step takes all its turns, attempts and repairs."""
        return sum(_calls(one.foreseen.step) for one in self.plan.steps)

    @property
    def cost(self) -> float | None:
        """Every call at its dearest: a full window in, a full reply out. None where a price or window is not known."""
        facts = self.terms.facts
        if self.terms.free or not self.calls:
            return 0.0
        if facts.price is None or facts.window is None:
            return None
        return self.calls * facts.price.most(facts.window, self.terms.reply)


def _calls(step: Step) -> int:
    if not isinstance(step.action, Llm):
        return 0
    turns = max(3, 2 * step.action.max_tool_calls + 3) if step.action.tools else 1
    attempts = step.retry.max_attempts if step.retry is not None else 1
    return (turns + step.action.max_repairs) * attempts


def explain(given: Given, playbook: Playbook) -> int:
    explained = asyncio.run(_explained(given, playbook, session.wiring_of(given)))
    return explaining.told(given, _object, _lines, explained)


async def _explained(given: Given, playbook: Playbook, wiring: Wiring) -> Explained:
    plan = await planning.planned_by(given, playbook, wiring, {})
    decide = await explaining.policy_of_today(wiring, playbook)
    terms, problem = explaining.terms_of(wiring)
    shown = [shown for one in plan.steps for shown in _shown(one.foreseen)]
    return Explained(plan, wiring.model, problem, await reached(shown, wiring, decide), terms, wiring.config.budget)


def _shown(foreseen: Foreseen) -> Iterator[Shown]:
    """Everything that may be done, as effects."""
    step = foreseen.step
    if foreseen.effect is not None:
        yield Shown(0, step.id, step.name, {}, foreseen.effect)
    for tool in step.action.tools if isinstance(step.action, Llm) else ():
        yield Shown(0, step.id, step.name, {}, CallTool(tool))


def _object(explained: Explained) -> dict[str, Any]:
    return {
        **planning.as_object(explained.plan),
        "model": {"name": explained.model, "problem": explained.problem or None},
        "touches": explaining.touched_objects(explained.reached),
        "hosts": [{"host": host, "for": what} for host, what in explained.reached.hosts.items()],
        "notes": [*explained.reached.problems, *explained.plan.notes],
        "bound": {"calls": explained.calls, "cost": explained.cost, "price_known": explained.cost is not None},
    }


def _lines(explained: Explained) -> Iterator[str]:
    plan, budget = explained.plan, explained.budget
    yield from planning.head_lines(plan)
    if explained.calls:
        yield f"  model {explained.model}" + (f" (cannot be asked: {explained.problem})" if explained.problem else "")
    yield "\nwhat runs, in this order:"
    for one in plan.steps:
        yield f"  {_step_words(one.foreseen)}"
    yield "\nwhat it touches, and what the policy says:"
    yield from explaining.touched_lines(explained.reached, plan.notes)
    yield "\nwhat it may use at most:"
    if not explained.calls:
        yield "  no model is asked"
        return
    yield f"  {wording.counted(explained.calls, 'call')} of models, if every step takes all its turns, attempts and repairs"
    cost = explained.cost
    unknown = "unknown: the price or the window of this model is not listed"
    yield f"  cost: {unknown if cost is None else wording.money(cost)}"
    if budget.money is not None and (cost is None or cost > budget.money):
        yield f"  the budget of {wording.money(budget.money)} may pause the run"


def _step_words(foreseen: Foreseen) -> str:
    step = foreseen.step
    words = [f"{step.id} {step.name}:" if step.name else f"{step.id}:"]
    words += [f"if {step.condition_text}," if step.condition is not None else ""]
    words += ["asks for approval, then" if step.approval else "", _done(planning.action_words(foreseen))]
    checked = "; its output must be JSON" if step.output is not None and step.output.type == "json" else ""
    checked += "; its postcondition must hold" if step.postcondition is not None else ""
    return " ".join(word for word in words if word) + checked


def _done(action: str) -> str:
    """What the step does: `runs ls` of `run ls`."""
    verb, blank, rest = action.partition(" ")
    return f"{verb}s{blank}{rest}" if verb in ("run", "send", "call", "ask") else action
