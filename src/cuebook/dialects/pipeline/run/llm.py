"""A step that calls a model: JSON only, with the tools it is allowed, within its budgets.

A reply that breaks the contract is sent back for repair, without tools and a limited number of times. If the user
denies a tool, the model is informed; if the policy denies it or it fails, the step fails.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cuebook.dialects.interception import Spent, limited
from cuebook.dialects.people import feedback_section
from cuebook.dialects.pipeline.model import DEFAULT_MODEL, Llm, Step
from cuebook.dialects.pipeline.run.action import Given, texts
from cuebook.dialects.pipeline.run.outputs import violations
from cuebook.dialects.pipeline.run.resolve import Scope, run_refs
from cuebook.dialects.pipeline.run.results import ENDING, Facts, Result, encoded
from cuebook.kernel.context import ToolCall
from cuebook.kernel.conversation import CallOutcome, Heard, converse
from cuebook.kernel.effects import AskApproval, AskModel, CallTool, Program, ReadSource, ToolSpec
from cuebook.kernel.events import Noted
from cuebook.kernel.outcomes import EffectFailed, Failed, Reply, Source
from cuebook.kernel.tool_names import READING, visible
from cuebook.kernel.votes import Rule

MOST_BYTES = 32_768
"""Default size limit of a reply."""

_LETTERS = 4
"""Upper bound for the average length of a token in characters. It yields a lower bound for the tokens sent."""

CONVERSATION = 1
"""The version of the conversation: a step has few calls and reads nothing but results, which it can neither lose nor summarise."""

_JSON_ONLY = "Answer with JSON only: one JSON value, no words before or after it, no code fence."


def asking(
    step: Step,
    action: Llm,
    scope: Scope,
    given: Given,
    shown: Mapping[str, str],
    approval: str,
    rule: Rule | None = None,
) -> Program[Result]:
    """Calls a model and returns the result. `approval` is the question for the approver before the first call."""
    prompt = prompt_of(step, action, scope)
    if approval:
        about = {"model": action.model, "prompt": prompt, "tools": ", ".join(action.tools)}
        preview = {**{k: v for k, v in about.items() if v}, **shown}
        yield AskApproval(approval=approval, rule=rule, preview=preview)
    cap = given.most_of(step) or MOST_BYTES
    changes = _Changes()
    asked = _answered(step, action, prompt, cap, changes)
    if action.max_tokens is not None:
        most = action.max_tokens
        asked = limited(asked, lambda spent, ask: _over(most, spent, ask))
    try:
        result = yield from asked
    except EffectFailed as error:
        if error.failed.code in ENDING:
            raise
        result = Result().failing(error.failed, error.seq)
    return result.but(approved=bool(approval), acted=changes.done)


def prompt_of(step: Step, action: Llm, scope: Scope) -> str:
    """The author's prompt, the step's stdin, and the contract."""
    parts = [scope.text(action.prompt)]
    given = texts(step.stdin, scope)
    if given:
        parts.append(f"## Input\n\n{given}")
    asked = scope.changes
    if asked.get("step") == step.id and not any(ref.source == "changes" for ref in run_refs((action, step.stdin))):
        parts.append(feedback_section(asked["feedback"]))
    parts.append(_contract(step))
    return "\n\n".join(parts)


def _contract(step: Step) -> str:
    schema = step.output.schema if step.output is not None else None
    return _JSON_ONLY if schema is None else f"{_JSON_ONLY} It must follow this JSON Schema: {encoded(schema)}"


def _over(most: int, spent: Spent, ask: AskModel) -> Failed | None:
    """Returns a failure if the next call would certainly exceed the step's token budget."""
    sent = (sum(len(block.text) for block in ask.context) + len(ask.prompt)) // _LETTERS
    if spent.tokens + sent < most:
        return None
    words = f"The step's budget of {most} tokens is used up ({spent.tokens} used, at least {sent} more to send)."
    return Failed("step_budget", words, "Raise max_tokens, or ask for less.")


# --- the conversation -------------------------------------------------------------------------------------------


def _answered(step: Step, action: Llm, prompt: str, cap: int, changes: _Changes) -> Program[Result]:
    specs, calls = yield from _tools(step, action)
    schema = step.output.schema if step.output is not None else None
    ask = AskModel(
        prompt,
        model=None if action.model == DEFAULT_MODEL else action.model,
        max_tokens=action.max_tokens,
        schema=schema if isinstance(schema, dict) else None,
        tools=specs,
        lenient=True,
        timeout=step.timeout,
    )
    most = action.max_tool_calls
    turns = max(3, 2 * most + 3) if specs else 1
    try:
        talk = yield from converse(
            ask, calls, max_turns=turns, max_calls=most, heard=changes.listener(calls), version=CONVERSATION
        )
    except EffectFailed as error:
        if error.failed.code != "too_many_calls":
            raise
        raise EffectFailed(Failed("tool_call_limit", f"tool-call limit exceeded (max={most})"), error.seq) from None
    context, reply, result = talk.context, talk.reply, _read(talk.reply, cap)
    for number in range(1, action.max_repairs + 1):
        problems = violations(step.output, result)
        if not problems:
            break
        yield Noted("repair", {"number": number, "problems": problems})
        context = context.add("assistant", reply.content)
        words = f"This breaks the contract: {'; '.join(problems)}. Send it again, corrected. {_contract(step)}"
        reply = yield msgspec.structs.replace(ask, prompt=words, context=context, tools=())
        context = context.add("user", words)
        result = _read(reply, cap)
    return result


def _read(reply: Reply, cap: int) -> Result:
    return Result(reply.content, Facts(truncated=len(reply.text.encode()) > cap or reply.finish == "length"))


class _Changes:
    """Tracks whether a tool that may change something has run: another attempt could repeat the change."""

    def __init__(self) -> None:
        self.done = False

    def listener(self, tools: Mapping[str, CallTool]) -> Heard:
        """A listener for the outcomes of these tools."""

        def heard(call: ToolCall, outcome: CallOutcome) -> Failed | None:
            denied = isinstance(outcome, Failed) and outcome.code == "denied"
            self.done = self.done or not (isinstance(outcome, str) or denied or tools[call.name].reads_only)
            return _ended(call, outcome)

        return heard


def _ended(call: ToolCall, outcome: CallOutcome) -> Failed | None:
    """Returns the failure that ends the conversation. After a denial by the user or malformed arguments, the model may
    continue."""
    if isinstance(outcome, Failed):
        return None if outcome.code == "denied" else outcome
    if isinstance(outcome, str):
        return None if call.malformed else Failed("tool_not_allowed", f"The model called '{call.name}': {outcome}")
    if outcome.is_error:
        said = outcome.value if isinstance(outcome.value, str) else encoded(outcome.value)
        return Failed("tool_error", f"The tool '{call.name}' failed: {said[:500]}")
    return None


# --- tools ------------------------------------------------------------------------------------------------------


def _tools(step: Step, action: Llm) -> Program[tuple[tuple[ToolSpec, ...], dict[str, CallTool]]]:
    """The tools that the model may call, as it sees them. A missing tool fails the step before any call."""
    if not action.tools or not action.max_tool_calls:
        return (), {}
    specs: list[ToolSpec] = []
    calls: dict[str, CallTool] = {}
    for name in action.tools:  # one by one: the user is asked about each server once, at its first tool
        listed: Source = yield ReadSource(f"tools:{name}")
        spec = _spec(name, listed)
        shown = visible(name)
        specs.append(msgspec.structs.replace(spec, name=shown))
        # A call that fails ends the step: the model could not check whether it was done.
        calls[shown] = CallTool(name, reads_only=name in READING, witnessed=True, timeout=step.timeout, doubt="ask")
    return tuple(specs), calls


def _spec(name: str, listed: Source) -> ToolSpec:
    found = msgspec.json.decode(str(listed.content), type=tuple[ToolSpec, ...])
    spec = next((one for one in found if one.name == name), None)
    if spec is not None:
        return spec
    message = f"There is no tool '{name}', so the model was not called."
    raise EffectFailed(Failed("no_such_tool", message, "Correct its name."))
