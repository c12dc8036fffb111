"""Interprets a Markdown playbook. Each step calls a tool, asks the user, takes a branch or calls a model.

The program is deterministic: it acts only through the effects that it yields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cuebook.dialects.markdown.inputs import unknown
from cuebook.dialects.markdown.model import ARTIFACT_TYPES, Book, Elicitation, Output, Step, approves_only
from cuebook.dialects.markdown.run.approvals import Question, noted, position_of, question
from cuebook.dialects.markdown.run.prompts import Piece, resolve
from cuebook.dialects.markdown.run.scope import Scope, unresolved_warning
from cuebook.dialects.markdown.run.tools import PLAYBOOK, BadArguments, fill, result_text, tool_name
from cuebook.dialects.people import feedback_of
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskHuman, AskModel, Breakpoint, CallTool, Inputs, Program, RunPlaybook
from cuebook.kernel.errors import with_fix
from cuebook.kernel.events import ArtifactMade, Noted, Planned, StepFinished, StepStarted, Warned
from cuebook.kernel.outcomes import Answer, EffectFailed, Failed, PlaybookResult, Reply, Resumed, ToolResult

Around = tuple[Piece, ...]
"""The text outside a branch. It is inserted before the text of each sub-step that calls a model."""

_SHOWN = 1_000


class Skipped(msgspec.Struct, frozen=True):
    """A step that was reached but has no output."""

    reason: str


_NOTHING_TO_ASK = Skipped("The step is empty.")


def interpret(book: Book, inputs: Inputs) -> Program[dict[str, Any]]:
    scope = Scope(book, inputs)
    yield from opening(book, inputs)
    return (yield from proceed(book, scope))


def proceed(book: Book, scope: Scope, position: int = 0) -> Program[dict[str, Any]]:
    """Runs the steps from this position to the end. A rehearsal may begin in the middle, with a matching scope."""
    while position < len(book.steps):
        try:
            yield from _visit(scope, book.steps[position], ())
            position += 1
        except EffectFailed as error:
            position = yield from _back(scope, book.steps, position, error)
    if scope.last is None:
        return {}
    label, output = scope.last
    type_, problem = _artifact_type(book, scope)
    if problem is not None:
        yield problem
    yield ArtifactMade(output, type_)
    return {"step": label, "digest": output.digest}


def opening(book: Book, inputs: Inputs) -> Iterator[Planned | Warned]:
    yield Planned(book.plan)
    for problem in (*book.warnings, *book.faults):
        where = f"Line {problem.line}: " if problem.line else ""
        yield Warned("playbook", f"{where}{with_fix(problem.message, problem.fix)}")
    for message in unknown(book, inputs):
        yield Warned("unknown_input", message)


def _visit(scope: Scope, step: Step, around: Around) -> Program[Text | None]:
    """Runs a step or sub-step, including its breakpoint. Returns its output, or None if it was skipped."""
    yield from scope.override((yield StepStarted(step.label, step.title)), after="")
    before = scope.last
    try:
        output = yield from _output(scope, step, around)
    except EffectFailed as error:
        feedback = feedback_of(error.failed)
        if feedback is not None:
            yield StepFinished(step.label, "failed", f"{error.failed.message} (back to step {feedback.to})")
        raise
    if output is None:
        yield StepFinished(step.label)
        yield from _pause(scope, step)
        return None
    if isinstance(output, Skipped):
        yield StepFinished(step.label, status="skipped", reason=output.reason)
        return None
    if scope.last is before or not scope.branches_on_itself(step):  # otherwise a sub-step has set a later output
        scope.last = (step.label, output)
    yield StepFinished(step.label, output=output)
    yield from _pause(scope, step)
    return output


def _pause(scope: Scope, step: Step) -> Program[None]:
    passed: Resumed = yield Breakpoint(step.label)
    yield from scope.override(passed.overrides, after=step.label, by=passed.by)


def _back(scope: Scope, steps: Sequence[Step], position: int, error: EffectFailed) -> Program[int]:
    """Continues at the step to which an approver sent the run back; returns its position. Raises any other failure again,
    and a request that leads to none of these steps.
    """
    feedback = feedback_of(error.failed)
    first = None if feedback is None else position_of(steps, feedback, position)
    if feedback is None or first is None:
        raise error
    yield from scope.go_back(feedback, str(error.failed.details.get("step", "")), steps[first : position + 1])
    yield Noted("changes", noted(feedback, scope.changes))
    return first


def _output(scope: Scope, step: Step, around: Around) -> Program[Text | Skipped | None]:
    """The output of a step; None if it only asks for an approval. A step that branches on its own output runs first and
    takes its branch afterwards.
    """
    asked = Question()
    if step.approval is not None:
        warnings: list[Warned] = []
        asked = question(scope, step, step.approval, warnings)
        yield from dict.fromkeys(warnings)
    try:
        return (yield from _approved_output(scope, step, around, asked))
    except EffectFailed as error:
        if feedback_of(error.failed) is None or "step" in error.failed.details:
            raise
        scope.requests[step.label] = scope.requests.get(step.label, 0) + 1
        details = {**error.failed.details, "step": step.label}
        raise EffectFailed(msgspec.structs.replace(error.failed, details=details), error.seq) from None


def _approved_output(scope: Scope, step: Step, around: Around, asked: Question) -> Program[Text | Skipped | None]:
    by_itself = scope.branches_on_itself(step)
    if step.tool is not None:
        yield from _ignored_parts(step, by_itself)
        own: Text | Skipped = yield from _call(scope, step, asked)
    else:
        if asked.approval:
            yield asked.effect()
        if approves_only(step):
            return None
        answer = (yield from _ask_person(scope, step, step.elicitation)) if step.elicitation is not None else None
        if step.branches and not by_itself:
            return (yield from _branch(scope, step, around))
        own = yield from _ask_model(scope, step, around, answer)
    return (yield from _branch_after(scope, step, own)) if by_itself else own


# --- tools ------------------------------------------------------------------------------------------------


def _call(scope: Scope, step: Step, asked: Question) -> Program[Text]:
    use = step.tool
    assert use is not None
    name = tool_name(use)
    try:
        filled = fill(use.arguments, scope.values, scope.types)
    except BadArguments as error:
        where = f" (line {use.line})" if use.line else ""
        words = f"Step {step.label}: the arguments of @tool{where} cannot be used: {error.message}"
        raise EffectFailed(Failed(error.code, words, error.fix)) from None
    for missing in filled.unresolved:
        yield unresolved_warning(step.label, missing)
    if use.connection == PLAYBOOK:
        done: PlaybookResult = yield RunPlaybook(
            use.tool, filled.arguments, approval=asked.approval, rule=asked.rule, preview=asked.preview
        )
        yield from scope.keep(step, done.text)
        return done.text
    result: ToolResult = yield CallTool(
        name, filled.arguments, approval=asked.approval, rule=asked.rule, preview=asked.preview
    )
    text = result_text(result)
    if result.is_error:
        words = f"Step {step.label}: the tool '{name}' reports an error: {text[:_SHOWN]}"
        raise EffectFailed(Failed("tool_failed", words, "Correct its arguments, or retry the run."))
    output = Text(text)
    yield from scope.keep(step, output)
    return output


def _ignored_parts(step: Step, by_itself: bool) -> Iterator[Warned]:
    """Warns about parts that have no effect because the step calls a tool."""
    if step.elicitation is not None:
        yield Warned("not_asked", f"Step {step.label} calls a tool, so its @elicit is not asked.")
    if step.branches and not by_itself:
        yield Warned("no_branch", f"Step {step.label} calls a tool, so its branches are not reached.")


# --- people -----------------------------------------------------------------------------------------------


def _ask_person(scope: Scope, step: Step, elicitation: Elicitation) -> Program[Text]:
    warnings: list[Warned] = []

    def rendered(text: str) -> str:
        return scope.render(step.label, text, warnings)

    kind = elicitation.type
    options = tuple(map(rendered, elicitation.options)) if kind == "select" else ()
    default = None if elicitation.default is None else rendered(elicitation.default)
    words = rendered(elicitation.prompt) or f"Step {step.label}: {step.title}"
    if kind == "select" and not options:
        warnings.append(
            Warned("no_options", f"Step {step.label}: @elicit(select) has no options, so any answer is accepted.")
        )
        kind = "input"
    yield from dict.fromkeys(warnings)
    schema, by = elicitation.schema, elicitation.by
    answer: Answer = yield AskHuman(words, kind, options, default, label=step.label, schema=schema, by=by)
    text = Text(answer.value)
    if schema is not None and isinstance(value := json.loads(answer.value), str):
        text = Text(value)
    yield from scope.keep_answer(step, words, text, answer.by)
    return text


# --- branches ---------------------------------------------------------------------------------------------


def _branch(scope: Scope, step: Step, around: Around) -> Program[Text | Skipped]:
    """Takes the first matching branch. The text outside the branch is sent with each of its sub-steps."""
    branch = scope.chosen(step)
    if branch is None:
        return Skipped(scope.why_none(step))
    around = (*around, *(yield from _own_pieces(scope, step)))
    if not branch.steps:
        return (yield from _send(scope, step, around))
    last = yield from _sub_steps(scope, branch.steps, around)
    if last is None:
        return Skipped("All sub-steps of its branch were skipped.")
    label, output = last
    yield from scope.keep_name(step, output, f"the output of step {label}")
    return output


def _branch_after(scope: Scope, step: Step, own: Text | Skipped) -> Program[Text | Skipped]:
    """Takes the branch of a step that branches on its own output. The output of the step does not change."""
    branch = scope.chosen(step)
    if branch is not None:
        yield from _sub_steps(scope, branch.steps, ())
    return own


def _sub_steps(scope: Scope, steps: tuple[Step, ...], around: Around) -> Program[tuple[str, Text] | None]:
    """Runs sub-steps. Returns the label and output of the last completed sub-step."""
    last: tuple[str, Text] | None = None
    position = 0
    while position < len(steps):
        try:
            output = yield from _visit(scope, steps[position], around)
        except EffectFailed as error:
            position = yield from _back(scope, steps, position, error)
            continue
        if output is not None:
            last = (steps[position].label, output)
        position += 1
    return last


# --- models -----------------------------------------------------------------------------------------------


def _ask_model(scope: Scope, step: Step, around: Around, answer: Text | None) -> Program[Text | Skipped]:
    """The model's reply, or the user's answer if the step has no text for a model."""
    own = yield from _own_pieces(scope, step)
    sent = (yield from _send(scope, step, (*around, *own))) if own or answer is None else _NOTHING_TO_ASK
    if answer is None or not isinstance(sent, Skipped):
        return sent
    yield from scope.keep_name(step, answer, f"the answer in step {step.label}")
    return answer


def _own_pieces(scope: Scope, step: Step) -> Program[Around]:
    """The text of `@prompt`, then the step's own text."""
    found = (yield from resolve(step.label, step.prompt, scope.values)) if step.prompt is not None else None
    own = Piece(step.content) if step.content else None
    return tuple(piece for piece in (found, own) if piece is not None)


def _send(scope: Scope, step: Step, pieces: Around) -> Program[Text | Skipped]:
    warnings: list[Warned] = []
    prompt = scope.assemble(step.label, pieces, warnings)
    if not prompt:
        return _NOTHING_TO_ASK
    yield from dict.fromkeys(warnings)
    ask = AskModel(context=scope.context, prompt=prompt, grammar=_grammar(step.output), relays=True)
    reply: Reply = yield ask
    if reply.session:
        from cuebook.kernel.conversation.relay import served  # only coding agents have sessions

        reply = yield from served(ask, reply)
    yield from scope.keep(step, reply.content)
    return reply.content


def _grammar(output: Output | None) -> str:
    """A grammar that allows only the options of an enum, for models that support grammars."""
    if output is None or output.type != "enum" or output.extract or not all(output.options):
        return ""
    return f"root ::= {' | '.join(json.dumps(option) for option in output.options)}" if output.options else ""


# --- the end ----------------------------------------------------------------------------------------------


def _artifact_type(book: Book, scope: Scope) -> tuple[str, Warned | None]:
    """The type of the artifact; empty, with a warning, if its value is not a valid type."""
    warnings: list[Warned] = []
    wanted = scope.render("", book.artifact_type, warnings).strip()
    if not wanted or wanted in ARTIFACT_TYPES:
        return wanted, None
    if wanted.lower() in ARTIFACT_TYPES:
        return wanted.lower(), None
    types = ", ".join(ARTIFACT_TYPES)
    return "", Warned("artifact_type", f"{wanted[:80]!a} is not an artifact type. Valid types: {types}.")
