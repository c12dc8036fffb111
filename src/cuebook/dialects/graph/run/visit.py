"""One visit to a node: its requirements, the conversation with its model, its evaluators, and retries.

A failed model call fails the node, not the run. A failure that results from a user's decision ends the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from cuebook.dialects.graph.model import Node, Requires, Retry, effort_of
from cuebook.dialects.graph.paths import missing, unmatched
from cuebook.dialects.graph.run.evaluators import call_lines, error_of, evaluate
from cuebook.dialects.graph.run.people import answered, approved
from cuebook.dialects.graph.run.replies import data_of
from cuebook.dialects.graph.run.results import Result, Verdict, encoded, failure
from cuebook.dialects.graph.run.scope import Scope
from cuebook.dialects.graph.run.state import Walk
from cuebook.dialects.graph.run.tools import Toolset, toolset
from cuebook.dialects.interception import Share, Spent, limited
from cuebook.dialects.people import feedback_section
from cuebook.kernel.context import Context
from cuebook.kernel.conversation import LAST_CALL, Agent, Talk, Turns, converse
from cuebook.kernel.conversation.subagents import TASK, task_spec, task_tool
from cuebook.kernel.effects import All, AskModel, CallTool, Program
from cuebook.kernel.engine.budget import money_words
from cuebook.kernel.events import Noted, Warned
from cuebook.kernel.outcomes import EffectFailed, Failed, Reply

MAX_TURNS = 50
"""The default limit for model turns of a node."""

ENDING = frozenset({"cancelled", "denied", "expired", "in_doubt"})
"""Failures that result from a user's decision. They end the run regardless of the node's settings."""


_EMPTY = Failed("empty_reply", "The model's reply was empty.", "Retry the run, or choose another model.")


def visit(walk: Walk, node: Node, number: int) -> Program[Result]:
    """The result of one visit to a node."""
    if node.requires is not None:
        unmet = _unmet(node.requires, walk.scope)
        if unmet is not None:
            return unmet
    extras = walk.extras(node)
    if extras.approval is not None:
        yield approved(node, extras.approval, walk.scope, walk.requests, walk.visits)
    feedback, _ = walk.requests.for_visit(node.id, number)
    if extras.input is not None:
        return (yield from answered(node, extras.input, walk.material.content(node.instruction), feedback))
    tools = yield from toolset(walk.material, node, walk.playbooks)
    if number == 1:
        yield from tools.warnings
    trying = _attempts(walk, node, tools, feedback)
    if extras.budget_tokens is not None or extras.budget_money is not None:
        trying = _within_budget(trying, walk, node, extras.budget_tokens, extras.budget_money)
    result = yield from trying
    if result.status == "failed" and result.softens and node.fail_soft:
        return Result("success", {**result.data, "fail_soft": True}, result.calls)
    return result


def _unmet(requires: Requires, scope: Scope) -> Result | None:
    """The result of a node whose requirements do not hold; None if they hold."""
    checks = (
        missing(requires.output_required, scope, of_nodes=True),
        unmatched(requires.output_matches, scope, of_nodes=True),
    )
    problems = "\n  - ".join(problem for problem in checks if problem)
    if not problems:
        return None
    if requires.on_fail == "skip":
        return Result("skipped", {"skipped_reason": f"requires not met:\n  - {problems}"})
    return failure("requires_failed", f"requires failed:\n  - {problems}")


def _attempts(walk: Walk, node: Node, tools: Toolset, feedback: str) -> Program[Result]:
    """Repeats the conversation until all evaluators pass or no attempts are left. `feedback` asks for changes."""
    material = walk.material
    base = material.content(node.instruction)
    instruction = assemble(base, material.rules(node), material.background(node), tools.instructions, walk.scope.input)
    if feedback:
        instruction = f"{instruction}{BETWEEN}{feedback_section(feedback)}"
    prompt, tried = instruction, 0
    while True:
        result = yield from _once(walk, node, prompt, tools)
        if result.status != "success":
            return result
        try:
            if not result.verdicts:
                result.verdicts = yield from evaluate(walk.workflow, node, result)
        except EffectFailed as ended:
            return _spent(result, ended)
        if result.verdicts:
            yield Noted("evals", {"node": node.id, "evals": [verdict.plain() for verdict in result.verdicts]})
        error = error_of(result.verdicts)
        if not error:
            return result
        result.status, result.data = "failed", {**result.data, "error": error}
        result.failed = Failed("eval_failed", error, "Correct the node's instruction or its evaluators.")
        if node.retry is None or tried >= node.retry.max:
            return result
        tried += 1
        try:
            reflecting = AskModel(
                context=_context(walk, node), model=_model(walk, node), effort=effort_of(walk.workflow, node)
            )
            words = yield from preamble(node.retry, base, result, reflecting)
        except EffectFailed as ended:
            return _spent(result, ended)
        yield Noted("retry", {"node": node.id, "attempt": tried, "reason": error, "preamble": words})
        prompt = f"{words}{BETWEEN}{instruction}"


def _spent(result: Result, error: EffectFailed) -> Result:
    """The result if the budget was used up between two conversations. It keeps the data of the last conversation."""
    if error.failed.code != SPENT:
        raise error
    result.status, result.data = "failed", {**result.data, "error": error.failed.message}
    result.failed = error.failed
    return result


def _once(walk: Walk, node: Node, prompt: str, tools: Toolset) -> Program[Result]:
    """Holds one conversation with the model."""
    ask = asking(walk, node, prompt, tools)
    model, specs = ask.model, ask.tools
    talk = Talk()
    read: dict[int, tuple[dict[str, Any], str]] = {}

    def flaw(reply: Reply) -> str:
        if not reply.text.strip():
            return "it is empty"
        read[len(talk.replies)] = found = data_of(reply.text, node.output)
        return found[1]

    most = node.max_turns or MAX_TURNS
    turns = Turns(most)
    offered: dict[str, CallTool | Agent] = {**tools.calls, **tools.playbooks}
    if _delegates(walk, tools) and specs:
        shared = walk.version >= 3
        offered[TASK] = task_tool(ask, tools.calls, turns if shared else Turns(most), shared=shared)
    try:
        yield from converse(
            ask,
            offered,
            max_turns=turns,
            talk=talk,
            flaw=flaw,
            version=walk.version,
            # The specification wants a node that reaches its limit to fail, with its partial result.
            closes=not walk.strict,
        )
    except EffectFailed as error:
        if error.failed.code in ENDING:
            raise
        if error.failed.code == "tools_unsupported" and specs and not tools.of_skills:
            walk.toolless.add(model or "")
            yield Warned(
                "tools_unsupported",
                f"Node {node.id}: its model does not support tools, so the node continues without them.",
            )
            return (yield from _once(walk, node, prompt, tools))
        return _unfinished(talk, error)
    if not talk.reply.text.strip():
        return _unfinished(talk, EffectFailed(_EMPTY))
    data, problem = read.get(len(talk.replies)) or data_of(talk.reply.text, node.output)
    verdicts = [Verdict("output_schema", "value", False, problem)] if problem else []
    return Result("success", data, talk.calls, verdicts)


def asking(walk: Walk, node: Node, prompt: str, tools: Toolset) -> AskModel:
    """The effect that begins the conversation."""
    model = _model(walk, node)
    context = _context(walk, node)
    if node.output is not None:
        context = context.add("system", f"End with JSON that follows this schema: {encoded(node.output)}")
    specs = () if (model or "") in walk.toolless else tools.specs
    if specs and _delegates(walk, tools):
        specs = (*specs, task_spec([spec.name for spec in specs]))
    effort = effort_of(walk.workflow, node)
    return AskModel(prompt, context, model, schema=node.output, tools=specs, lenient=True, effort=effort)


def _delegates(walk: Walk, tools: Toolset) -> bool:
    return tools.delegates and TASK not in tools.calls and walk.version >= 2 and not walk.strict


def _unfinished(talk: Talk, error: EffectFailed) -> Result:
    """The result of an unfinished conversation. It keeps the last reply."""
    said = next((reply.text for reply in reversed(talk.replies) if reply.text.strip()), "")
    partial = data_of(said, None)[0] if said else {}
    data = {**partial, "error": error.failed.message}
    return Result("failed", data, talk.calls, failed=error.failed, seq=error.seq, softens=True)


def _context(walk: Walk, node: Node) -> Context:
    wanted = walk.extras(node).context
    return walk.scope.context if wanted is None else walk.scope.only(wanted)


def _model(walk: Walk, node: Node) -> str | None:
    return node.model or walk.workflow.model or None


# --- retries ------------------------------------------------------------------------------------------------


_FAILED = "## Previous attempt failed evaluation"
_REFLECT = "Diagnose in two to four sentences what went wrong, and how you will go about it this time."


def preamble(retry: Retry, base: str, result: Result, ask: AskModel) -> Program[str]:
    """The text before the next attempt. `ask` gives the model for a reflection, its settings and its context."""
    failures = _failures(result.verdicts)
    if retry.mode == "static":
        return f"## Retry guidance\n\n{retry.text}\n\n{_FAILED}\n\n{failures}"
    if retry.mode != "default":
        said = yield from _reflection(retry, base, failures, result, ask)
        if said:
            return f"## Reflection on previous attempt\n\n{said}\n\n{_FAILED}\n\n{failures}"
    return f"{_FAILED}\n\n{failures}\n\nMend this and try again."


def _failures(verdicts: Sequence[Verdict]) -> str:
    return "\n".join(f"  - {verdict}" for verdict in verdicts if not verdict.passed)


def _reflection(retry: Retry, base: str, failures: str, result: Result, ask: AskModel) -> Program[str]:
    question = (
        f"You attempted this:\n\n{base}\n\nThe evaluation failed:\n{failures}\n\n"
        f"Tools that you called:\n{call_lines(result.calls)}\n\n{retry.text or _REFLECT}"
    )
    # Within an `All`, the reply does not count as the node's reply, and a failure is returned instead of raised.
    outcomes: tuple[Reply | Failed, ...] = yield All((msgspec.structs.replace(ask, prompt=question),))
    reply = outcomes[0]
    said = "" if isinstance(reply, Failed) else reply.text.strip()
    if not said:
        why = str(reply) if isinstance(reply, Failed) else "its reply was empty"
        yield Warned(
            "reflection",
            f"The reflection before the next attempt failed ({why}); the default preamble is used instead.",
        )
    return said


# --- the budget of a node -----------------------------------------------------------------------------------


T = TypeVar("T")

SPENT = "node_budget"
"""The failure code when the budget is used up."""


def _within_budget(program: Program[T], walk: Walk, node: Node, tokens: int | None, money: float | None) -> Program[T]:
    """Runs a program until the budget is used up; then model calls fail. A call in progress is not interrupted.

    While a conversation with tools can still afford one more call, that call is its closing turn.
    """
    closes = walk.version >= 2 and not walk.strict

    def over(spent: Spent, ask: AskModel) -> Failed | None:
        failed = _over(node, tokens, money, spent)
        if failed is None and closes and ask.tools and ask.may_call:
            # The next call is about as large as the last one, and so is the closing turn after it.
            coming = Spent(spent.tokens + 2 * spent.last_tokens, spent.money + 2 * spent.last_money)
            failed = _over(node, tokens, money, coming, nearly=True)
        return failed

    def shares(spent: Spent, agents: int) -> Share:
        # The node keeps a share for itself, with which it reads what they report.
        return Share(
            None if tokens is None else max(0, tokens - spent.tokens) // (agents + 1),
            None if money is None else max(0.0, money - spent.money) / (agents + 1),
            lambda why, last: Failed(
                SPENT,
                f"The sub-agent has used up its share of the budget of node {node.id} ({why}).",
                details={LAST_CALL: True} if last else {},
            ),
        )

    return limited(program, over, shares if walk.version >= 3 else None)


def _over(node: Node, tokens: int | None, money: float | None, spent: Spent, *, nearly: bool = False) -> Failed | None:
    words = f"Node {node.id} has used up its budget"
    fix = "Raise it under x_cuebook."
    if nearly:
        words = f"Node {node.id} has nearly used up its budget"
        over = (tokens is not None and spent.tokens > tokens) or (money is not None and spent.money > money)
        limit = f"{tokens} tokens" if tokens is not None and spent.tokens > tokens else money_words(money or 0.0)
        return Failed(SPENT, f"{words} of {limit}.", fix, details={LAST_CALL: True}) if over else None
    if tokens is not None and spent.tokens >= tokens:
        return Failed(SPENT, f"{words} of {tokens} tokens ({spent.tokens} used).", fix)
    if money is not None and spent.unknown:
        return Failed(SPENT, f"{words}: the cost of its calls is unknown.", "Set a token budget instead.")
    if money is not None and spent.money >= money:
        return Failed(SPENT, f"{words} of {money_words(money)} ({money_words(spent.money)} used).", fix)
    return None


# --- the prompt of a node -----------------------------------------------------------------------------------


RULES = "## Rules — You MUST Follow These"
BACKGROUND = "## Background Context"
LEGACY = "## Additional Context & Rules"
BETWEEN = "\n\n---\n\n"


def assemble(
    base: str,
    rules: Sequence[str],
    background: Sequence[str],
    skills: Iterable[tuple[str, str]],
    inputs: Mapping[str, Any],
) -> str:
    """The prompt. `skills` are names and instructions, in the node's order; `base` stays unchanged."""
    sections = [
        f"{heading}\n\n{text}"
        for heading, texts in ((RULES, rules), (BACKGROUND, background))
        if (text := "\n\n".join(one for one in texts if one))
    ]
    legacy = inputs.get("additionalContext")
    if not sections and isinstance(legacy, str) and legacy:
        sections.append(f"{LEGACY}\n\n{legacy}")
    sections += [f"## Skill: {name}\n\n{instruction}" for name, instruction in skills]
    return BETWEEN.join((*sections, base)) if sections else base
