"""`cuebook explain`: what a run would do, what it touches and what the policy says to that, and what it may cost.

It runs nothing and creates nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import click
import msgspec

from cuebook.dialects.markdown.model import Book, Branch, Step
from cuebook.dialects.markdown.tools import tool_name
from cuebook.gate.policy import Policy
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import Budget, Settings
from cuebook.performers.models import MAX_TOKENS, Facts, Prices
from cuebook.performers.models.local import WINDOW
from cuebook.surfaces import wording
from cuebook.surfaces.cli import dry_run, live, options, session
from cuebook.surfaces.cli.bounding import UNSEEN, Bound, Terms, bound_of
from cuebook.surfaces.cli.inputs import gathered
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.plain import say
from cuebook.surfaces.cli.playbooks import FILE, INPUTS, Playbook, PlaybookCommand
from cuebook.surfaces.cli.rehearsing import Rehearsal, Shown
from cuebook.surfaces.cli.texts import LocalTexts, strictest_policy
from cuebook.surfaces.cli.touching import Decide, Reached, deciding, everything, reached
from cuebook.surfaces.reading import foreseeing
from cuebook.surfaces.reading.foreseeing import Foresight, condition_words, foresee, fork_words, origin_words
from cuebook.surfaces.wiring import Wiring

T = TypeVar("T")

HELP = """Say what a run would do, what it touches and what it may cost.

FILE is a Markdown playbook, a workflow graph, a pipeline or a program; its inputs are given as to `cuebook run`, and those
that are not given are not known. Told are the steps in order, what each branch depends on, who is asked what, which models, tools, texts and hosts are used,
what the policy says to each of them and by which rule, and the most that the models may cost. Nothing is run, called or
created.
"""

OPTIONS: list[click.Parameter] = [FILE, *INPUTS, *options.SETTINGS, options.STORE, options.AS_JSON]


class Explained(msgspec.Struct, frozen=True):
    book: Book
    inputs: Mapping[str, str]
    model: str
    problem: str
    """Why the model cannot be asked as things stand."""
    foresight: Foresight
    rehearsal: Rehearsal
    reached: Reached
    bound: Bound
    terms: Terms
    budget: Budget


def explain(given: Given, playbook: Playbook) -> int:
    if playbook.dialect.name == "graph":
        from cuebook.surfaces.cli import graph_explaining

        return graph_explaining.explain(given, playbook)
    if playbook.dialect.name == "pipeline":
        from cuebook.surfaces.cli import pipeline_explaining

        return pipeline_explaining.explain(given, playbook)
    if playbook.dialect.name == "program":
        from cuebook.surfaces.cli import program_explaining

        return program_explaining.explain(given, playbook)
    wiring = session.wiring_of(given)
    explained = asyncio.run(_explained(given, playbook, wiring))
    return told(given, _object, _lines, explained)


def told(given: Given, as_object: Callable[[T], Any], lines: Callable[[T], Iterable[str]], explained: T) -> int:
    """Prints what was found out about a playbook, as JSON or for people."""
    if given["as_json"]:
        sys.stdout.write(live.json_line(as_object(explained)))
    else:
        say("\n".join(lines(explained)))
    return 0


async def _explained(given: Given, playbook: Playbook, wiring: Wiring) -> Explained:
    book: Book = playbook.document
    inputs = _known(playbook, gathered(given, book, playbook.dialect))
    settings = Settings(folder=playbook.folder)
    read = LocalTexts(wiring, settings)
    rehearsal = await asyncio.to_thread(dry_run.rehearsed, playbook, inputs, settings, read)
    terms, problem = terms_of(wiring)
    return Explained(
        book=book,
        inputs=inputs,
        model=wiring.model,
        problem=problem,
        foresight=foresee(book, inputs),
        rehearsal=rehearsal,
        reached=await reached(everything(rehearsal), wiring, await policy_of_today(wiring)),
        bound=bound_of(rehearsal, book, inputs, terms),
        terms=terms,
        budget=wiring.config.budget,
    )


def _known(playbook: Playbook, given: Mapping[str, Any]) -> dict[str, str]:
    """The inputs as a run would keep them; those that are missing are left out."""
    book: Book = playbook.document
    absent = {
        declared.name
        for declared in book.inputs
        if declared.default is None and given.get(declared.name) in (None, "") and declared.required
    }
    asked = msgspec.structs.replace(book, inputs=tuple(one for one in book.inputs if one.name not in absent))
    return playbook.dialect.accept(asked, {name: value for name, value in given.items() if name not in absent})


async def policy_of_today(wiring: Wiring, playbook: Playbook | None = None) -> Decide:
    """By the policy of today, and of a playbook that has one itself. Without a store nothing was ever trusted or allowed,
    and none is created to say so.
    """
    own = getattr(playbook.document, "policy", None) if playbook is not None else None

    def with_own(policy: Policy) -> Policy:
        return policy if own is None or playbook is None else policy.with_playbook(own, playbook.name)

    if not wiring.has_store():
        return deciding(with_own(strictest_policy(wiring)))
    async with session.opened(wiring) as service:
        return deciding(with_own(await service.policy()), await service.overrides(), service.engine.clock())


def terms_of(wiring: Wiring) -> tuple[Terms, str]:
    """What is known of the model; a key is not needed for that."""
    problem = ""
    try:
        wiring.providers.check(wiring.model)
    except BadInput as error:
        problem = str(error)
    provider, _, model = wiring.model.partition("/")
    limit, tool_output = wiring.max_tokens or MAX_TOKENS, wiring.config.get("limits.output")
    if provider == "local":
        return Terms(Facts(window=WINDOW), limit, tool_output, free=True), problem
    config = wiring.provider_configs.get(provider)
    priced_as = config.prices if config is not None and config.prices else provider
    facts = Prices(wiring.config.get("prices")).facts(priced_as, model)
    return Terms(facts, limit, tool_output), problem


# --- as an object ---------------------------------------------------------------------------------------


def _object(explained: Explained) -> dict[str, Any]:
    book, bound = explained.book, explained.bound
    return {
        "title": book.title,
        "inputs": dict(explained.inputs),
        "missing": _missing(explained),
        "model": {"name": explained.model, "problem": explained.problem or None},
        "steps": [_step_object(explained, step, position, around=None) for position, step in enumerate(book.steps)],
        "questions": [{"step": one.label, **one.what["question"]} for one in _questions(explained)],
        "touches": touched_objects(explained.reached),
        "hosts": [{"host": host, "for": what} for host, what in explained.reached.hosts.items()],
        "notes": [*explained.reached.problems, *_failures(explained)],
        "bound": {
            "calls": bound.calls,
            "input_tokens": bound.input_tokens,
            "output_tokens": bound.output_tokens,
            "cost": bound.cost,
            "price_known": bound.cost is not None,
            "assumes": _assumptions(explained),
        },
    }


def touched_objects(found: Reached) -> list[dict[str, Any]]:
    return [
        {
            "kind": one.domain,
            "target": one.target,
            "steps": list(one.steps),
            "decision": one.decision,
            "rules": [{"rule": rule, "where": where} for rule, where in one.rules],
        }
        for one in found.touched
    ]


def _missing(explained: Explained) -> list[str]:
    return [declared.name for declared in explained.book.inputs if declared.name not in explained.inputs]


def _questions(explained: Explained) -> list[Shown]:
    found = [one for one in everything(explained.rehearsal) if "question" in one.what]
    return list({(one.position, one.label): one for one in found}.values())


def _failures(explained: Explained) -> list[str]:
    shown = everything(explained.rehearsal)
    failed = [f"Step {one.label} would fail: {one.what['failed']}" for one in shown if "failed" in one.what]
    return list(dict.fromkeys([*failed, *(one.what["warning"] for one in shown if "warning" in one.what)]))


def _step_object(explained: Explained, step: Step, position: int, around: Step | None) -> dict[str, Any]:
    book = explained.book
    branching = around is None and foreseeing.reaches_branches(book, step)
    fork = explained.foresight.forks.get(position) if branching else None
    made: dict[str, Any] = {
        "label": step.label,
        "title": step.title,
        "line": step.line,
        "does": _does(book, step, around),
        "gives": step.output.name if step.output is not None else None,
    }
    if step.tool is not None:
        made["tool"] = tool_name(step.tool)
    if step.prompt is not None and step.tool is None:
        made["prompt"] = step.prompt.argument
    if branching:
        on = fork.on if fork is not None else ()
        made["depends_on"] = [{"name": name, "from": _whence(explained, step, position, name)} for name in _names(step)]
        made["known"] = not on
        made["branches"] = [
            {
                "when": condition_words(branch),
                "taken": _taken(explained, position, number),
                "steps": [_step_object(explained, sub, position, step) for sub in branch.steps],
            }
            for number, branch in enumerate(step.branches)
        ]
    return made


def _does(book: Book, step: Step, around: Step | None) -> list[str]:
    """In the order of a step's life."""
    if step.tool is not None:
        return ["tool", "branch"] if foreseeing.reaches_branches(book, step) else ["tool"]
    found = ["question"] if step.elicitation is not None else []
    has_text = bool(step.content or step.prompt is not None)
    outside = around is not None and bool(around.content or around.prompt is not None)
    outside = outside and around is not None and not foreseeing.branches_on_itself(book, around)
    if step.branches and not foreseeing.branches_on_itself(book, step):
        return [*found, "branch"]
    if has_text or (outside and not found):
        found.append("model")
    return [*found, "branch"] if step.branches else found


def _names(step: Step) -> list[str]:
    return list(dict.fromkeys(branch.condition.variable for branch in step.branches if branch.condition is not None))


def _whence(explained: Explained, step: Step, position: int, name: str) -> str:
    fork = explained.foresight.forks.get(position)
    if fork is not None and name in fork.origins:
        return origin_words(fork.origins[name])
    if name in explained.inputs:
        return "an input"
    return "known before the run" if name in {one.name for one in explained.book.inputs} else "nothing sets it"


def _taken(explained: Explained, position: int, number: int) -> bool | None:
    """None where only the run can tell."""
    if position in explained.foresight.taken:
        return explained.foresight.taken[position] == number
    fork = explained.foresight.forks.get(position)
    return None if fork is not None and any(way.branch == number for way in fork.ways) else False


# --- in words -------------------------------------------------------------------------------------------


def _lines(explained: Explained) -> Iterator[str]:
    book = explained.book
    yield book.title
    for declared in book.inputs:
        value = explained.inputs.get(declared.name)
        yield f"  {declared.name} = {_short(value)}" if value is not None else f"  {declared.name} is not given"
    yield f"  model {explained.model}" + (f" (cannot be asked: {explained.problem})" if explained.problem else "")
    yield "\nwhat runs, in this order:"
    for position, step in enumerate(book.steps):
        yield from _step_lines(explained, step, position)
    yield "\nwhat it touches, and what the policy says:"
    yield from touched_lines(explained.reached, _failures(explained))
    yield "\nwhat it may use at most:"
    yield from _bound_lines(explained)


def _short(text: str, most: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _step_lines(explained: Explained, step: Step, position: int) -> Iterator[str]:
    yield f"  {step.label} {step.title}: {_step_words(explained.book, step, None)}"
    if not foreseeing.reaches_branches(explained.book, step):
        return
    fork = explained.foresight.forks.get(position)
    if fork is not None:
        yield f"    goes on by {fork_words(fork)}:"
    elif explained.foresight.taken[position] is None:
        yield f"    no branch fits: {_values(explained, step)}"
    for number, branch in enumerate(step.branches):
        taken = _taken(explained, position, number)
        if taken is False:
            continue
        reason = "" if taken is None else f" (which holds: {_values(explained, step)})"
        yield f"    {_if(branch)}{reason}"
        for sub in branch.steps:
            yield f"      {sub.label} {sub.title}: {_step_words(explained.book, sub, step)}"
    if fork is not None and any(way.branch is None for way in fork.ways):
        yield "    otherwise nothing more"


def _if(branch: Branch) -> str:
    words = condition_words(branch)
    return words if branch.condition is None else f"if {words}"


def _values(explained: Explained, step: Step) -> str:
    return ", ".join(f"{name} is {_short(explained.inputs.get(name, '') or 'empty')}" for name in _names(step))


def _step_words(book: Book, step: Step, around: Step | None) -> str:
    said: Mapping[str, str] = {
        "tool": f"calls {tool_name(step.tool)}" if step.tool is not None else "",
        "question": f"asks a person ({_question(step)})",
        "model": "asks the model" + (f", beginning with {step.prompt.argument}" if step.prompt is not None else ""),
        "branch": "takes a branch",
    }
    words = [said[doing] for doing in _does(book, step, around)] or ["does nothing"]
    if step.output is not None:
        words.append(f"gives {step.output.name}")
    return ", then ".join(words[:-1]) + f", {words[-1]}" if step.output is not None else ", then ".join(words)


def _question(step: Step) -> str:
    asked = step.elicitation
    if asked is None:
        return ""
    words = [asked.type, f'"{_short(asked.prompt or step.title)}"']
    words += [f"one of {', '.join(asked.options)}"] if asked.type == "select" else []
    words += [f"default {asked.default}"] if asked.default is not None else []
    return "; ".join(words)


def touched_lines(found: Reached, notes: Sequence[str]) -> Iterator[str]:
    for one in found.touched:
        steps = "" if one.domain == "model" or not any(one.steps) else f" ({_steps(one.steps)})"
        why = "; ".join(f"{rule} ({where})" for rule, where in one.rules)
        yield f"  {one.decision:<6}{one.domain} {one.target}{steps}: {why}"
    if not found.touched:
        yield "  nothing"
    for host, what in found.hosts.items():
        yield f"  host  {host} ({what})"
    for words in (*found.problems, *notes):
        yield f"  note  {' '.join(words.split())}"


def _steps(labels: Sequence[str]) -> str:
    return f"step {labels[0]}" if len(labels) == 1 else f"steps {', '.join(labels)}"


def _bound_lines(explained: Explained) -> Iterator[str]:
    bound, budget = explained.bound, explained.budget
    if not bound.calls:
        yield "  no model is asked"
        return
    tokens = f"{bound.input_tokens:,} tokens in, {bound.output_tokens:,} out"
    cost = "unknown: no price is listed for this model" if bound.cost is None else wording.money(bound.cost)
    yield f"  {wording.counted(bound.calls, 'call')}, {tokens}"
    yield f"  cost: {cost}"
    if budget.money is not None and (bound.cost is None or bound.cost > budget.money):
        yield f"  the budget of {wording.money(budget.money)} may pause the run"
    if budget.tokens is not None and bound.input_tokens + bound.output_tokens > budget.tokens:
        yield f"  the budget of {budget.tokens:,} tokens may pause the run"
    yield f"  {_assumptions(explained)}"


def _assumptions(explained: Explained) -> str:
    terms, guessed = explained.terms, explained.bound.guessed
    words = f"Every reply is counted at its limit of {terms.reply:,} tokens; calls that are repeated are not counted."
    if guessed:
        words += f" An answer, input or text that is not known yet is counted as {UNSEEN:,} tokens."
    return words


explain_command = PlaybookCommand("explain", OPTIONS, HELP, "Say what a run of {title} would do.", explain)
