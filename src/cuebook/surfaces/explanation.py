"""An explanation as text and as JSON, for every surface."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cuebook.dialects.presentation.preview import Branch, Preview, Step, question_details
from cuebook.kernel.effects import (
    AskApproval,
    AskHuman,
    AskModel,
    Browse,
    CallNode,
    CallTool,
    Effect,
    ReadSource,
    RunCommand,
    SendHttp,
)
from cuebook.kernel.tool_names import WORKTREE_MERGE
from cuebook.service.preview.asked import StepRuling
from cuebook.service.preview.bound import UNSEEN, Bound, Terms, Use
from cuebook.service.preview.explanation import Explanation
from cuebook.service.preview.rulings import ActRuling
from cuebook.service.preview.tool_rulings import KindRuling, ToolRuling
from cuebook.service.preview.touches import AgentAccess, Touches
from cuebook.surfaces import display

NO_PRICE = "unknown: no price is listed for this model"

# --- in full ---------------------------------------------------------------------------------------------


def explanation_object(explained: Explanation) -> dict[str, Any]:
    preview, rulings = explained.preview, {one.act.label: one for one in explained.rulings}
    return {
        "title": preview.title,
        "inputs": dict(preview.inputs),
        "missing": preview.missing,
        **preview.details,
        **preview.listings,
        **(verdict_object(explained) if rulings else {}),
        "model": {"name": explained.model, "problem": explained.problem or None},
        preview.steps_key: [
            {**step.details, **(ruling_object(rulings[step.label]) if step.label in rulings else {})}
            for step in preview.steps
        ],
        "questions": [
            {"step": act.label, **question_details(act.effect)}
            for act in preview.questions
            if isinstance(act.effect, AskHuman)
        ],
        "touches": [
            {
                "kind": one.domain,
                "target": one.target,
                "steps": list(one.steps),
                "decision": one.decision,
                "rules": [{"rule": rule, "where": where} for rule, where in one.rules],
            }
            for one in explained.touches.touched
        ],
        "hosts": [{"host": host, "for": what} for host, what in explained.touches.hosts.items()],
        "agents": [{"agent": name, **msgspec.to_builtins(access)} for name, access in explained.touches.agents.items()],
        "notes": [*explained.touches.problems, *explained.notes],
        "asked": asked_object(explained),
        "bound": _bound_object(explained),
        "budgets": list(explained.budgets),
    }


def _bound_object(explained: Explanation) -> dict[str, Any]:
    bound, limits = explained.bound, explained.preview.limits
    made: dict[str, Any] = {"calls": bound.calls, "cost": bound.cost, "price_known": bound.cost is not None}
    if limits is not None:
        made |= limits.details
    if bound.use is not None:
        made |= {"input_tokens": bound.use.input_tokens, "output_tokens": bound.use.output_tokens}
        made["assumes"] = _assumptions(explained, bound.use)
    return made


def explanation_lines(explained: Explanation) -> Iterator[str]:
    preview = explained.preview
    yield from head_lines(preview)
    if explained.bound.calls != 0:
        problem = f" (cannot be called: {explained.problem})" if explained.problem else ""
        yield f"  model {explained.model}{problem}"
    yield f"\n{preview.heading}:"
    for step in preview.steps:
        yield from _step_lines(step, "  ")
    for kind, states in preview.listings.items():
        if states:
            yield f"\nits {kind}:"
            yield from (f"  {name}: {state}" for name, state in states.items())
    yield "\nwhat it touches, and what the policy says:"
    yield from _touches_lines(explained.touches, explained.notes)
    yield "\nwhat would be asked:"
    yield from (f"  {line}" for line in asked_lines(explained))
    yield "\nmaximum usage:"
    yield from (f"  {line}" for line in _bound_lines(explained))


def head_lines(preview: Preview) -> Iterator[str]:
    yield preview.title
    for name in dict.fromkeys((*preview.declared, *preview.inputs)):
        value = preview.inputs.get(name)
        yield f"  {name} is not set" if value is None else f"  {name} = {display.short(_plain(value))}"


def _step_lines(step: Step, indent: str) -> Iterator[str]:
    words = _step_words(step)
    yield f"{indent}{_named(step.label, display.short(step.title))}{f': {words}' if words else ''}"
    inner = f"{indent}  "
    if step.decided_by:
        yield f"{inner}{step.decided_by}:"
        inner += "  "
    for branch in step.branches:
        yield from _branch_lines(branch, inner)
    for one in step.steps:
        yield from _step_lines(one, f"{indent}  ")


def _branch_lines(branch: Branch, indent: str) -> Iterator[str]:
    yield f"{indent}{branch.words}"
    for step in branch.steps:
        yield from _step_lines(step, f"{indent}  ")


def _named(label: str, title: str) -> str:
    return f"{label} {title}" if title else label


def _step_words(step: Step) -> str:
    clauses = [clause if isinstance(clause, str) else _clause(clause) for clause in step.does]
    if step.asks_approval:
        clauses.insert(0, "asks for approval")
    words = ", then ".join(clauses)
    if step.gives:
        words = f"{words}, produces {', '.join(step.gives)}" if words else f"produces {', '.join(step.gives)}"
    if step.condition:
        words = f"if {step.condition}, {words}"
    return "; ".join(filter(None, [words, *step.also]))


def _touches_lines(found: Touches, notes: Sequence[str]) -> Iterator[str]:
    for one in found.touched:
        steps = "" if one.domain == "model" or not any(one.steps) else f" ({_steps(one.steps)})"
        why = "; ".join(f"{rule} ({where})" for rule, where in one.rules)
        yield f"  {one.decision:<6}{one.domain} {one.target}{steps}: {why}"
    if not found.touched:
        yield "  nothing"
    for host, what in found.hosts.items():
        yield f"  host  {host} ({what})"
    for name, access in found.agents.items():
        yield from (f"  gives {name} {words}" for words in access_words(access))
    for words in (*found.problems, *notes):
        yield f"  note  {one_line(words)}"


def access_words(access: AgentAccess) -> Iterator[str]:
    """What a coding agent is given when it is started, one clause each."""
    yield "the workspace and a home folder of its own, to change"
    if access.readable:
        yield f"{', '.join(access.readable)}, to read"
    for name, handle in access.variables.items():
        yield f"the secret {handle} in the variable {name}{', if it exists' if name in access.optional else ''}"
    for name, handle in access.files.items():
        yield f"the secret {handle} in the file {name} of its home folder, to read"


def _steps(labels: Sequence[str]) -> str:
    return f"step {labels[0]}" if len(labels) == 1 else f"steps {', '.join(labels)}"


def _bound_lines(explained: Explanation) -> Iterator[str]:
    bound, budget, limits = explained.bound, explained.budget, explained.preview.limits
    if limits is not None:
        yield from limits.words
    elif bound.calls == 0:
        yield "no model is called"
    if bound.calls == 0:
        return
    use = bound.use
    if use is not None:
        yield f"{display.counted(use.calls, 'call')}, {use.input_tokens:,} tokens in, {use.output_tokens:,} out"
    yield f"cost: {cost_words(bound, explained.terms)}"
    yield from explained.budgets
    if budget.money is not None and (bound.cost is None or bound.cost > budget.money):
        yield f"the budget of {display.money(budget.money)} may pause the run"
    elif bound.cost is None and bound.calls is None:
        yield "--budget-money and --budget-tokens pause a run before it uses more"
    if use is not None:
        if budget.tokens is not None and use.input_tokens + use.output_tokens > budget.tokens:
            yield f"the budget of {budget.tokens:,} tokens may pause the run"
        yield _assumptions(explained, use)


def cost_words(bound: Bound, terms: Terms) -> str:
    """The maximum cost of a run, or why it is unknown."""
    if bound.cost is not None:
        return display.money(bound.cost)
    if bound.calls is None:
        return "unbounded"
    if terms.facts.price is None:
        return NO_PRICE
    return "unknown: the context window of this model is not listed"


def _assumptions(explained: Explanation, use: Use) -> str:
    words = f"Every reply is counted at its limit of {explained.terms.reply:,} tokens; repeated calls are not counted."
    if use.guessed:
        words += f" An answer, input or text that is not known yet is counted as {UNSEEN:,} tokens."
    return words


def verdict_object(explained: Explanation) -> dict[str, Any]:
    return {
        "secrets": secrets_of(explained),
        "refused": explained.refused or None,
        "denied": explained.denied,
        "fails": explained.fails,
    }


def ruling_object(one: ActRuling) -> dict[str, Any]:
    return {
        "decision": one.decision,
        "rules": list(one.rules),
        "secrets": [{"at": use.at, "handle": use.handle} for use in one.secrets],
        "hosts": list(one.hosts),
        "tools": [{"tool": tool.tool, "decision": tool.decision} for tool in one.tools],
        "notes": list(one.notes),
    }


def secrets_of(explained: Explanation) -> list[str]:
    """The handles of the secrets in use, and the secret inputs that are not set."""
    handles = [use.handle for one in explained.rulings for use in one.secrets]
    return list(dict.fromkeys((*handles, *(name for one in explained.rulings for name in one.act.open.secrets))))


# --- what would be asked ---------------------------------------------------------------------------------


def asked_object(explained: Explanation) -> dict[str, Any]:
    """What would be asked, step by step; `decision` is `unknown` where only the run can show it."""
    return {
        "asks": bool(explained.asking),
        "known": not explained.preview.unforeseeable and all(one.act.decision != "unknown" for one in explained.asked),
        "steps": [
            {
                "step": one.act.act.label,
                "action": _effect_words(one.act.act.effect),
                "decision": one.act.decision,
                "rules": list(one.act.rules),
                "asks": one.asks,
                "tools": [
                    {
                        "tool": tool.tool,
                        "decision": tool.decision,
                        "rules": list(tool.rules),
                        "kinds": [
                            {
                                "kind": kind.words,
                                "decision": kind.decision,
                                "rules": list(kind.rules),
                                "except": list(kind.except_for),
                            }
                            for kind in tool.kinds
                        ],
                    }
                    for tool in one.act.tools
                ],
            }
            for one in explained.asked
        ],
    }


def asked_lines(explained: Explanation) -> Iterator[str]:
    """What would be asked, step by step, and what that means for a run without anyone to ask."""
    for one in explained.asked:
        yield f"{one.act.decision:<8}{act_words(one.act)}{because(one.act.rules)}"
        for tool in one.act.tools:
            yield from (f"  {line}" for line in _tool_lines(tool))
    yield asked_summary(explained)


def _tool_lines(tool: ToolRuling) -> Iterator[str]:
    """One line for a tool, or for each kind of action if these are decided differently."""
    decisions = {one.decision for one in tool.kinds}
    if len(decisions) > 1 and tool.decision in decisions:
        for kind in tool.kinds:
            yield f"{kind.decision:<8}{tool.tool}, {kind.words}{because(kind.rules)}"
            yield from _exceptions(kind)
        return
    own = because(tool.rules) if tool.decision not in decisions else ""
    kinds = f", {', '.join(one.words for one in tool.kinds)}" if tool.kinds else ""
    why = own or because([rule for one in tool.kinds for rule in one.rules])
    yield f"{tool.decision:<8}{tool.tool}{kinds}{why}"
    for kind in tool.kinds:
        yield from _exceptions(kind)


def _exceptions(kind: KindRuling) -> Iterator[str]:
    if kind.except_for:
        yield f"        except for {'; '.join(kind.except_for)}"


def because(rules: Sequence[str]) -> str:
    return f": {'; '.join(rules)}" if rules else ""


def asked_summary(explained: Explanation) -> str:
    """In one line, where someone would be asked for approval."""
    places: dict[str, dict[str, None]] = {}
    for one in explained.asking:
        places.setdefault(one.act.act.label or "before the first step", {}).update(dict.fromkeys(one.asking_tools))
    unknown = [one.act.act.label or "its sources" for one in explained.asked if one.act.decision == "unknown"]
    if explained.preview.unforeseeable:
        return f"Only the run shows what it asks: {explained.preview.unforeseeable}."
    also = f" Only the run shows it for: {', '.join(dict.fromkeys(unknown))}." if unknown else ""
    if not places:
        return f"No approval would be needed.{also}"
    listed = [f"{label} ({', '.join(tools)})" if tools else label for label, tools in places.items()]
    return f"An unattended run may wait for approval in: {', '.join(listed)}.{also}"


# --- at a glance -----------------------------------------------------------------------------------------


class Overview(msgspec.Struct, frozen=True):
    """A short overview of a run: the approvals it needs, what it reaches and its maximum usage."""

    asks: tuple[str, ...] = ()
    """Actions that need approval."""
    depends: tuple[str, ...] = ()
    """Actions that the policy can decide only during the run."""
    denied: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    reaches: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Models, hosts, tools, commands and so on, by kind."""
    most: str = ""
    model: str = ""
    """The model that `most` applies to; empty if no model is called."""
    problems: tuple[str, ...] = ()
    asked: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = ()
    """Each step, and in it each action or tool with the decision and the reason."""
    summary: str = ""
    """Where someone would be asked, in one line."""


_KINDS = {"model": "Models", "tool": "Tools", "command": "Commands", "file": "Files", "secret": "Secrets"}


def overview(explained: Explanation) -> Overview:
    touched, reached = explained.touches.touched, explained.reached
    asks = [act_words(one.act) for one in explained.asked if one.act.decision == "ask"]
    asks += [f"tool {tool}" for one in explained.asked for tool in one.asking_tools]
    hosts = [*explained.touches.hosts, *(host for one in reached for host in one.hosts)]
    reaches = {"Hosts": tuple(dict.fromkeys(hosts))}
    for kind, name in _KINDS.items():
        reaches[name] = tuple(dict.fromkeys(display.short(one.target) for one in touched if one.domain == kind))
    given = [f"{handle} ({name})" for name, one in explained.touches.agents.items() for handle in _handles(one)]
    reaches["Secrets"] = tuple(dict.fromkeys((*reaches["Secrets"], *given)))
    flaws = [note for note in explained.notes if note not in explained.preview.notes]
    problems = [explained.refused, *explained.budgets, *explained.touches.problems, *flaws]
    return Overview(
        asks=tuple(dict.fromkeys(asks)),
        depends=tuple(act_words(one) for one in reached if one.decision == "unknown"),
        denied=tuple(act_words(one) for one in reached if one.decision == "deny"),
        questions=tuple(f"{act.label}: {display.short(_question(act.effect))}" for act in explained.preview.questions),
        reaches=tuple((name, reaches[name]) for name in (*_KINDS.values(), "Hosts") if reaches[name]),
        most=_most_words(explained.bound, explained.terms),
        model="" if explained.bound.calls == 0 else explained.model,
        problems=tuple(one_line(words) for words in problems if words),
        asked=tuple((one.act.act.label, tuple(_asked_rows(one))) for one in explained.asked),
        summary=asked_summary(explained),
    )


def _handles(access: AgentAccess) -> list[str]:
    return [*access.variables.values(), *access.files.values()]


def _asked_rows(one: StepRuling) -> Iterator[tuple[str, str, str]]:
    words = act_words(one.act).partition(": ")[2]
    yield one.act.decision, words, "; ".join(one.act.rules)
    for tool in one.act.tools:
        line, *more = _tool_lines(tool)
        named, _, why = line[8:].partition(": ")
        yield tool.decision, named, "; ".join(filter(None, [why, *(words.strip() for words in more)]))


def act_words(one: ActRuling) -> str:
    """One line that describes a step. It does not name the model: a run may replace the one that its playbook names."""
    where = f"step {one.act.label}" if one.act.label else "before the first step"
    return f"{where}: {_effect_words(one.act.effect)}"


def _effect_words(effect: Effect | None) -> str:
    if isinstance(effect, CallTool) and effect.tool == WORKTREE_MERGE:
        return "merge the changes in the worktree, if there are any"
    return "ask the model" if isinstance(effect, AskModel) else display.short(action_words(effect))


def _question(effect: Effect | None) -> str:
    return effect.question if isinstance(effect, AskHuman) else ""


def _most_words(bound: Bound, terms: Terms) -> str:
    """The maximum usage of a run: model calls, tokens and money."""
    if bound.calls == 0:
        return "no model is called"
    calls = "any number of model calls" if bound.calls is None else display.counted(bound.calls, "model call")
    parts = [calls] if bound.use is None else [calls, *_token_words(bound.use)]
    return f"{', '.join(parts)}; cost: {cost_words(bound, terms)}"


def _token_words(use: Use) -> list[str]:
    return [f"{use.input_tokens:,} tokens in", f"{use.output_tokens:,} out"]


# --- effects as text ------------------------------------------------------------------------------------


def action_words(effect: Effect | None) -> str:
    """One line that describes an effect."""
    match effect:
        case RunCommand(argv=argv, cwd=cwd, network=hosts, reads=reads):
            reaching = f", which may reach {', '.join(hosts)}" if hosts else ""
            reaching += f"{' and' if hosts else ', which may'} read {', '.join(reads)}" if reads else ""
            return f"run {' '.join(map(_quoted, argv))}{f' in {cwd}' if cwd else ''}{reaching}"
        case SendHttp(method=method, url=url):
            return f"send {method} {url}"
        case Browse(action=action, arguments=arguments):
            return f"browse: {display.browsing_words(action, arguments)}"
        case CallNode(node=node, capability=capability, action=action, arguments=arguments):
            where = f"node {node}" if node else "a node"
            return f"on {where}: {display.short(display.node_words(capability, action, arguments))}"
        case CallTool(tool=tool, arguments=arguments):
            return f"call {tool} {display.short(_json(arguments))}"
        case AskModel(model=model, prompt=prompt):
            return f"ask {model or 'the model'}: {display.short(prompt)}"
        case ReadSource(source=source):
            return f"read {source}"
        case AskHuman(question=question):
            return f"ask a person: {display.short(question)}"
        case AskApproval():
            return "ask for an approval"
        case _:
            return "can only fail"


def _clause(effect: Effect) -> str:
    """`action_words` in the third person: `runs ls` for `run ls`."""
    verb, blank, rest = action_words(effect).partition(" ")
    return f"{verb}s{blank}{rest}"


def _quoted(word: str) -> str:
    """Quotes a word for a shell, except for a reference, which stays readable."""
    return word if word.startswith("$") and " " not in word else shlex.quote(word)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def one_line(words: str) -> str:
    return " ".join(words.split())


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
