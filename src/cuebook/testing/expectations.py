"""Compares the result of a run with the expectations of a case. Pure: takes values and returns mismatches with their
lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects.presentation.projection import Refusal
from cuebook.formats.suggestions import meant
from cuebook.testing.cases import Called, Expected, Listed, Messages, Words
from cuebook.testing.scripts import Done
from cuebook.testing.stage import Asked, ToolRequest


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run."""

    refused: str | None = None
    """Why it did not start."""
    status: str = ""
    error: str = ""
    step: str = ""
    """The last step that was reached."""
    ran: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    """Every visit to a step, in order."""
    results: Mapping[str, Any] = {}
    events: tuple[str, ...] = ()
    variables: Mapping[str, Any] = {}
    outputs: Mapping[str, str] = {}
    asked: tuple[Asked, ...] = ()
    calls: tuple[ToolRequest, ...] = ()
    missing: Mapping[str, str] = {}
    """By Python playbook: why it has no result."""
    commands: tuple[Done, ...] = ()
    requests: tuple[Done, ...] = ()
    approvals: tuple[tuple[str, str], ...] = ()
    """Step and prompt of each requested approval."""
    artifact: str | None = None
    artifact_type: str = ""
    warnings: tuple[str, ...] = ()
    questions: tuple[tuple[str, str], ...] = ()
    """Step and text of each question."""
    refused_answers: tuple[tuple[str, str], ...] = ()
    left: int = 0
    """Scripted replies that were not used."""
    answers_left: int = 0
    """Ordered answers that were not used."""
    messages: tuple[str, ...] = ()
    """The messages to the user."""
    result: Any = None
    """The value that the run returned."""
    refusals: tuple[Refusal, ...] = ()
    """Rejected replies."""
    triggers: tuple[str, ...] = ()


class Mismatch(msgspec.Struct, frozen=True):
    """One expectation that was not met."""

    line: int
    about: str
    """The subject, as in `prompt of step 2`."""
    expected: str
    got: str
    step: str = ""


def compare(expected: Expected, outcome: Outcome) -> Iterator[Mismatch]:
    if outcome.refused is not None or expected.refused is not None:
        yield from _refused(expected, outcome)
        return
    for name, why in outcome.missing.items():
        yield Mismatch(expected.line, f"call to {name}", "a result in the test", why, name)
    yield from _status(expected, outcome)
    if expected.error is not None:
        yield from _words(expected.error, outcome.error, "error", outcome.step)
    yield from _steps(expected, outcome)
    yield from _traced(expected, outcome)
    yield from _by_name(expected.variables, outcome.variables, "variable")
    yield from _by_name(expected.outputs, outcome.outputs, "output of step", steps=True)
    yield from _requests(expected, outcome)
    yield from _artifact(expected, outcome)
    yield from _conversation(expected, outcome)
    yield from _warnings(expected.warnings, outcome.warnings)
    yield from _questions(expected, outcome)
    for call in expected.calls:
        yield from _called(call, outcome.calls)
    yield from _done(expected.commands, outcome.commands, "command", "no command was run in this step")
    yield from _done(expected.requests, outcome.requests, "request", "nothing was sent in this step")
    asked = tuple(step for step, _ in outcome.approvals)
    if expected.approvals is not None and expected.approvals.texts != asked:
        wanted = _list(expected.approvals.texts)
        yield Mismatch(expected.approvals.line, "steps that asked for approval", wanted, _list(asked))
    if outcome.left and outcome.status == "completed":
        replies = f"{outcome.left} more repl{'y' if outcome.left == 1 else 'ies'} to be used"
        yield Mismatch(expected.line, "replies", replies, f"the run ended after {len(outcome.asked)} requests")
    if outcome.answers_left and outcome.status == "completed":
        answers = f"{outcome.answers_left} more answer{'s' * (outcome.answers_left > 1)} to be used"
        yield Mismatch(expected.line, "answers", answers, f"the run asked {len(outcome.questions)} times")


def _refused(expected: Expected, outcome: Outcome) -> Iterator[Mismatch]:
    if expected.refused is None:
        yield Mismatch(expected.line, "status", _wanted_status(expected), f"refused: {outcome.refused}")
    elif outcome.refused is None:
        got = f"the run is {outcome.status}"
        yield Mismatch(expected.refused.line, "refused", _wanted(expected.refused), got)
    else:
        yield from _words(expected.refused, outcome.refused, "refused")


def _status(expected: Expected, outcome: Outcome) -> Iterator[Mismatch]:
    wanted = _wanted_status(expected)
    if outcome.status == wanted:
        return
    line = expected.line if expected.status is None else expected.status.line
    waiting = {"awaiting_input": outcome.questions, "awaiting_approval": outcome.approvals}.get(outcome.status, ())
    asked = dict(waiting).get(outcome.step, "")
    why = outcome.error or "; ".join(words for _, words in outcome.refused_answers) or asked
    yield Mismatch(line, "status", wanted, f"{outcome.status}: {why}" if why else outcome.status, outcome.step)


def _wanted_status(expected: Expected) -> str:
    return "completed" if expected.status is None else expected.status.texts[0]


def _steps(expected: Expected, outcome: Outcome) -> Iterator[Mismatch]:
    if expected.ran is not None and expected.ran.texts != outcome.ran:
        yield Mismatch(expected.ran.line, "steps that ran", _list(expected.ran.texts), _list(outcome.ran))
    if expected.skipped is not None:
        ran = [label for label in expected.skipped.texts if label in outcome.ran]
        if ran:
            wanted = _list(expected.skipped.texts)
            yield Mismatch(expected.skipped.line, "steps that are skipped", wanted, f"{_list(ran)} ran", ran[0])


def _traced(expected: Expected, outcome: Outcome) -> Iterator[Mismatch]:
    if expected.path is not None and expected.path.texts != outcome.path:
        yield Mismatch(expected.path.line, "path", _list(expected.path.texts), _list(outcome.path))
    if expected.events is not None and not _follow(expected.events.texts, outcome.events):
        yield Mismatch(
            expected.events.line, "events, in this order", _list(expected.events.texts), _list(outcome.events)
        )
    for step, (line, wanted) in expected.results.items():
        if step not in outcome.results:
            yield Mismatch(line, f"result of {step}", _json(wanted), "nothing: it did not run", step)
        elif not _holds(wanted, outcome.results[step]):
            yield Mismatch(line, f"result of {step}", _json(wanted), _json(outcome.results[step]), step)


def _follow(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Whether the events occur in this order; other events may come in between."""
    rest = iter(found)
    return all(any(one == another for another in rest) for one in wanted)


def _by_name(
    wanted: Mapping[str, Words], found: Mapping[str, Any], what: str, *, steps: bool = False
) -> Iterator[Mismatch]:
    for name, words in wanted.items():
        step = name if steps else ""
        if name in found and _same_data(words.equals, found[name]):
            continue
        if name in found:
            yield from _words(words, _text(found[name]), f"{what} {name}", step)
            continue
        own = [one for one in found if not one.startswith("__")]
        got = f"nothing. {meant(name, own)}" if own else "nothing"
        yield Mismatch(words.line, f"{what} {name}", _wanted(words), got, step)


def _requests(expected: Expected, outcome: Outcome) -> Iterator[Mismatch]:
    for step, words in expected.prompts.items():
        yield from _among([one.prompt for one in outcome.asked if _of(one, step)], words, "prompt", step)
    for step, words in expected.system.items():
        texts = [one.system for one in outcome.asked if not step or _of(one, step)]
        if step:
            yield from _among(texts, words, "system message", step)
            continue
        for one in outcome.asked:
            problems = list(_words(words, one.system, f"system message of step {one.step}", one.step))
            yield from problems
            if problems:
                return


def _of(asked: Asked, step: str) -> bool:
    """Whether the request came from this step, or from a step in this group."""
    return step in (asked.step, asked.group)


def _done(wanted: Mapping[str, Words], done: Sequence[Done], what: str, none: str) -> Iterator[Mismatch]:
    for step, words in wanted.items():
        yield from _among([one.words for one in done if one.step == step], words, what, step, none)


def _among(
    texts: Sequence[str], words: Words, what: str, step: str, none: str = "no model was called in this step"
) -> Iterator[Mismatch]:
    """If a step has several candidates, at least one must match, and none may contain forbidden text."""
    about = f"{what} of step {step}"
    if not texts:
        yield Mismatch(words.line, about, _wanted(words), f"nothing: {none}", step)
        return
    problems = [list(_words(words, text, about, step)) for text in texts]
    if all(problems):
        yield from problems[-1]
        return
    for text in texts:
        yield from _words(Words(words.line, not_contains=words.not_contains), text, about, step)


def _artifact(expected: Expected, outcome: Outcome) -> Iterator[Mismatch]:
    wanted = expected.artifact
    if wanted is None:
        return
    line = wanted.words.line
    if outcome.artifact is None:
        yield Mismatch(line, "artifact", _wanted(wanted.words) or f"of type {wanted.type}", "nothing")
        return
    yield from _words(wanted.words, outcome.artifact, "artifact")
    if wanted.type is not None and wanted.type != outcome.artifact_type:
        yield Mismatch(line, "type of the artifact", wanted.type or "none", outcome.artifact_type or "none")


def _conversation(expected: Expected, outcome: Outcome) -> Iterator[Mismatch]:
    if expected.messages is not None:
        yield from _messages(expected.messages, outcome)
    if expected.result is not None and not _holds(expected.result[1], outcome.result):
        line, wanted = expected.result
        yield Mismatch(line, "result", _json(wanted), _json(outcome.result), outcome.step)
    rules = tuple(one.rule for one in outcome.refusals)
    if expected.refusals is not None and expected.refusals.texts != rules:
        got = "\n".join(f"{one.rule} at {one.position}: {one.problem}" for one in outcome.refusals) or "none"
        where = outcome.refusals[-1].playbook if outcome.refusals else ""
        yield Mismatch(expected.refusals.line, "refused replies", _list(expected.refusals.texts), got, where)
    if expected.triggers is not None and expected.triggers.texts != outcome.triggers:
        wanted_ids = _list(expected.triggers.texts)
        yield Mismatch(expected.triggers.line, "triggers that fired", wanted_ids, _list(outcome.triggers))


def _messages(wanted: Messages, outcome: Outcome) -> Iterator[Mismatch]:
    for number, (words, text) in enumerate(zip(wanted.words, outcome.messages, strict=False), 1):
        yield from _words(words, text, f"message {number}")
    said, expected = len(outcome.messages), len(wanted.words)
    if said < expected:
        missing = wanted.words[said]
        got = f"nothing more was said after {said} message{'s' * (said != 1)}"
        yield Mismatch(missing.line, f"message {said + 1}", _wanted(missing), got, outcome.step)
    if said > expected:
        more = "\n".join(outcome.messages[expected:])
        yield Mismatch(wanted.line, "messages", f"at most {expected}", f"{said}, including these extra ones:\n{more}")


def _same_data(wanted: str | None, found: Any) -> bool:
    """Whether a string is the JSON of a list or table, with its keys in any order."""
    if wanted is None or not isinstance(found, dict | list):
        return False
    try:
        return bool(json.loads(wanted) == found)
    except ValueError:
        return False


def _warnings(wanted: Listed | None, found: Sequence[str]) -> Iterator[Mismatch]:
    if wanted is None:
        return
    got = "\n".join(found) or "none"
    if not wanted.texts and found:
        yield Mismatch(wanted.line, "warnings", "none", got)
    for text in wanted.texts:
        if not any(text in warning for warning in found):
            yield Mismatch(wanted.line, "warnings", f"one that contains: {text}", got)


def _questions(expected: Expected, outcome: Outcome) -> Iterator[Mismatch]:
    steps = tuple(step for step, _ in outcome.questions)
    if expected.questions is not None and expected.questions.texts != steps:
        wanted = expected.questions
        yield Mismatch(wanted.line, "steps that asked a question", _list(wanted.texts), _list(steps))
    for step, words in expected.asked.items():
        texts = [text for one, text in outcome.questions if one == step]
        if not texts:
            yield Mismatch(words.line, f"question of step {step}", _wanted(words), "nothing was asked", step)
        elif texts[0]:  # an unattended run does not record the text of its questions
            yield from _words(words, texts[0], f"question of step {step}", step)


def _called(wanted: Called, made: Sequence[ToolRequest]) -> Iterator[Mismatch]:
    same = [call for call in made if call.tool == wanted.tool]
    if any(_holds(wanted.arguments, call.arguments) for call in same):
        return
    got = "\n".join(_json(call.arguments) for call in same)
    if not same:
        got = f"no such call. {meant(wanted.tool, dict.fromkeys(call.tool for call in made))}"
    step = same[-1].step if same else ""
    yield Mismatch(wanted.line, f"call to {wanted.tool}", _json(wanted.arguments), got, step)


def _holds(wanted: Any, found: Any) -> bool:
    """Whether everything expected is present; tables may contain more."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(name in found and _holds(value, found[name]) for name, value in wanted.items())
    return type(wanted) is type(found) and bool(wanted == found)


# --- texts --------------------------------------------------------------------------------------------------


def _words(wanted: Words, text: str, about: str, step: str = "") -> Iterator[Mismatch]:
    if wanted.equals is not None and wanted.equals.strip() != text.strip():
        yield Mismatch(wanted.line, about, wanted.equals, text, step)
    for part in wanted.contains:
        if part.strip() not in text:
            yield Mismatch(wanted.line, about, f"to contain: {part.strip()}", text, step)
    for part in wanted.not_contains:
        if part.strip() in text:
            yield Mismatch(wanted.line, about, f"not to contain: {part.strip()}", text, step)


def _wanted(words: Words) -> str:
    parts = [words.equals] if words.equals is not None else []
    parts += [f"to contain: {part.strip()}" for part in words.contains]
    return "\n".join([*parts, *(f"not to contain: {part.strip()}" for part in words.not_contains)])


def _list(texts: Sequence[str]) -> str:
    return ", ".join(texts) or "none"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
