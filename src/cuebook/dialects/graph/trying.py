"""One visit of a node: what must hold before, the conversation with its model, its evaluators, and trying again.

A model that fails makes the node fail, not the run; what a person stopped ends the run.
"""

from __future__ import annotations

from cuebook.dialects.graph.assembly import BETWEEN, assemble
from cuebook.dialects.graph.evaluating import error_of, evaluate
from cuebook.dialects.graph.model import Node, Requires
from cuebook.dialects.graph.paths import missing, unmatched
from cuebook.dialects.graph.replies import data_of
from cuebook.dialects.graph.results import Result, Verdict, encoded, failure
from cuebook.dialects.graph.retrying import preamble
from cuebook.dialects.graph.scope import Scope
from cuebook.dialects.graph.spending import SPENT, within
from cuebook.dialects.graph.tools import Toolset, toolset
from cuebook.dialects.graph.walk import Walk
from cuebook.kernel.context import Context
from cuebook.kernel.conversation import Talk, converse
from cuebook.kernel.effects import AskApproval, AskModel, Program
from cuebook.kernel.events import Noted, Warned
from cuebook.kernel.outcomes import EffectFailed, Failed, Reply

MAX_TURNS = 50
"""Model turns of a node that says nothing about it."""

ENDING = frozenset({"cancelled", "denied", "expired", "in_doubt"})
"""Failures that a person decided on: they end the run, whatever the node says."""


_EMPTY = Failed("empty_reply", "The model's reply was empty.", "Retry the run, or choose another model.")


def visit(walk: Walk, node: Node, number: int) -> Program[Result]:
    """What comes of a node, this time."""
    if node.requires is not None:
        unmet = _unmet(node.requires, walk.scope)
        if unmet is not None:
            return unmet
    extras = walk.extras(node)
    if extras.approval:
        yield AskApproval(approval=extras.approval)
    tools = yield from toolset(walk.material, node)
    if number == 1:
        yield from tools.warnings
    trying = _attempts(walk, node, tools)
    if extras.budget_tokens is not None or extras.budget_money is not None:
        trying = within(trying, node, extras.budget_tokens, extras.budget_money)
    result = yield from trying
    if result.status == "failed" and result.softens and node.fail_soft:
        return Result("success", {**result.data, "fail_soft": True}, result.calls)
    return result


def _unmet(requires: Requires, scope: Scope) -> Result | None:
    """The result of a node whose requirements do not hold; None where they do."""
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


def _attempts(walk: Walk, node: Node, tools: Toolset) -> Program[Result]:
    """Tries until the evaluators are content or no attempts are left."""
    material = walk.material
    base = material.content(node.instruction)
    instruction = assemble(base, material.rules(node), material.background(node), tools.instructions, walk.scope.input)
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
        result.failed = Failed("eval_failed", error, "Mend the node's instruction or its evaluators.")
        if node.retry is None or tried >= node.retry.max:
            return result
        tried += 1
        try:
            words = yield from preamble(node.retry, base, result, _context(walk, node), _model(walk, node))
        except EffectFailed as ended:
            return _spent(result, ended)
        yield Noted("retry", {"node": node.id, "attempt": tried, "reason": error, "preamble": words})
        prompt = f"{words}{BETWEEN}{instruction}"


def _spent(result: Result, error: EffectFailed) -> Result:
    """Its budget ended between two conversations: what the last one gave is kept."""
    if error.failed.code != SPENT:
        raise error
    result.status, result.data = "failed", {**result.data, "error": error.failed.message}
    result.failed = error.failed
    return result


def _once(walk: Walk, node: Node, prompt: str, tools: Toolset) -> Program[Result]:
    """One conversation, to its end."""
    ask = asking(walk, node, prompt, tools)
    model, specs = ask.model, ask.tools
    talk = Talk()
    try:
        turns = node.max_turns or MAX_TURNS
        yield from converse(ask, tools.calls, max_turns=turns, talk=talk, flaw=lambda reply: _flaw(reply, node))
    except EffectFailed as error:
        if error.failed.code in ENDING:
            raise
        if error.failed.code == "tools_unsupported" and specs and not tools.of_skills:
            walk.toolless.add(model or "")
            yield Warned("tools_unsupported", f"Node {node.id}: its model takes no tools, so it goes on without them.")
            return (yield from _once(walk, node, prompt, tools))
        return _broken_off(talk, error)
    if not talk.reply.text.strip():
        return _broken_off(talk, EffectFailed(_EMPTY))
    data, problem = data_of(talk.reply.text, node.output)
    verdicts = [Verdict("output_schema", "value", False, problem)] if problem else []
    return Result("success", data, talk.calls, verdicts)


def _flaw(reply: Reply, node: Node) -> str:
    return data_of(reply.text, node.output)[1] if reply.text.strip() else "it is empty"


def asking(walk: Walk, node: Node, prompt: str, tools: Toolset) -> AskModel:
    """What the conversation begins with."""
    model = _model(walk, node)
    context = _context(walk, node)
    if node.output is not None:
        context = context.add("system", f"End with JSON that follows this schema: {encoded(node.output)}")
    specs = () if (model or "") in walk.toolless else tools.specs
    return AskModel(prompt, context, model, schema=node.output, tools=specs, lenient=True)


def _broken_off(talk: Talk, error: EffectFailed) -> Result:
    """A conversation that came to no end: what was said last is kept."""
    said = next((reply.text for reply in reversed(talk.replies) if reply.text.strip()), "")
    partial = data_of(said, None)[0] if said else {}
    data = {**partial, "error": error.failed.message}
    return Result("failed", data, talk.calls, failed=error.failed, seq=error.seq, softens=True)


def _context(walk: Walk, node: Node) -> Context:
    wanted = walk.extras(node).context
    return walk.scope.context if wanted is None else walk.scope.only(wanted)


def _model(walk: Walk, node: Node) -> str | None:
    return node.model or walk.workflow.model or None
