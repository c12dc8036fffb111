"""Compares the result of a run with the expectations of a case. Pure: takes values and returns mismatches with their
lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from cuebook.dialects.presentation.projection import Refusal
from cuebook.formats.suggestions import meant
from cuebook.testing.cases import Artifact, Called, Expected, Listed, Messages, Words
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
    unrecorded: frozenset[str] = frozenset()
    """Which of `commands`, `requests` and `calls` lack some that only read: the journal does not contain them."""


class Mismatch(msgspec.Struct, frozen=True):
    """One expectation that was not met."""

    line: int
    about: str
    """The subject, as in `prompt of step 2`."""
    expected: str
    got: str
    step: str = ""


class Check(NamedTuple):
    """One thing that a case expects of a run."""

    name: str
    """What it is about, as in `output of step 2`."""
    find: Callable[[Outcome], Iterator[Mismatch]]
    """Returns how a run differs."""
    needs: str = ""
    """What the outcome must have recorded in full: `commands`, `requests` or `calls`; empty if it always has."""


def compare(expected: Expected, outcome: Outcome) -> Iterator[Mismatch]:
    if outcome.refused is not None or expected.refused is not None:
        yield from _refused(expected, outcome)
        return
    for name, why in outcome.missing.items():
        yield Mismatch(expected.line, f"call to {name}", "a result in the test", why, name)
    for check in checks(expected):
        yield from check.find(outcome)
    if outcome.left and outcome.status == "completed":
        replies = f"{outcome.left} more repl{'y' if outcome.left == 1 else 'ies'} to be used"
        yield Mismatch(expected.line, "replies", replies, f"the run ended after {len(outcome.asked)} requests")
    if outcome.answers_left and outcome.status == "completed":
        answers = f"{outcome.answers_left} more answer{'s' * (outcome.answers_left > 1)} to be used"
        yield Mismatch(expected.line, "answers", answers, f"the run asked {len(outcome.questions)} times")


def checks(expected: Expected) -> Iterator[Check]:
    """All that a case expects of a run that starts, each by itself."""
    yield Check("status", partial(_status, expected))
    if expected.error is not None:
        yield Check("error", partial(_error, expected.error))
    if expected.ran is not None:
        yield Check("steps that ran", partial(_ran, expected.ran))
    if expected.skipped is not None:
        yield Check("steps that are skipped", partial(_skipped, expected.skipped))
    if expected.path is not None:
        yield Check("path", partial(_path, expected.path))
    if expected.events is not None:
        yield Check("events", partial(_events, expected.events))
    for step, (line, wanted) in expected.results.items():
        yield Check(f"result of {step}", partial(_step_result, step, line, wanted))
    for name, words in expected.variables.items():
        yield Check(f"variable {name}", partial(_variable, name, words))
    for step, words in expected.outputs.items():
        yield Check(f"output of step {step}", partial(_output, step, words))
    for step, words in expected.prompts.items():
        yield Check(f"prompt of step {step}", partial(_prompt, step, words))
    for step, words in expected.system.items():
        yield Check(f"system message of step {step}" if step else "system message", partial(_system, step, words))
    if expected.artifact is not None:
        yield Check("artifact", partial(_artifact, expected.artifact))
    yield from _conversation(expected)
    if expected.warnings is not None:
        yield Check("warnings", partial(_warnings, expected.warnings))
    if expected.questions is not None:
        yield Check("steps that asked a question", partial(_questions, expected.questions))
    for step, words in expected.asked.items():
        yield Check(f"question of step {step}", partial(_question, step, words))
    for number, call in enumerate(expected.calls, 1):
        again = sum(one.tool == call.tool for one in expected.calls[: number - 1])
        name = f"call to {call.tool}" + (f" ({again + 1})" if again else "")
        yield Check(name, partial(_called, call), "calls")
    for step, words in expected.commands.items():
        yield Check(f"command of step {step}", partial(_command, step, words), "commands")
    for step, words in expected.requests.items():
        yield Check(f"request of step {step}", partial(_request, step, words), "requests")
    if expected.approvals is not None:
        yield Check("steps that asked for approval", partial(_approvals, expected.approvals))


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


def _error(words: Words, outcome: Outcome) -> Iterator[Mismatch]:
    yield from _words(words, outcome.error, "error", outcome.step)


def _wanted_status(expected: Expected) -> str:
    return "completed" if expected.status is None else expected.status.texts[0]


def _ran(wanted: Listed, outcome: Outcome) -> Iterator[Mismatch]:
    if wanted.texts != outcome.ran:
        yield Mismatch(wanted.line, "steps that ran", _list(wanted.texts), _list(outcome.ran))


def _skipped(wanted: Listed, outcome: Outcome) -> Iterator[Mismatch]:
    ran = [label for label in wanted.texts if label in outcome.ran]
    if ran:
        yield Mismatch(wanted.line, "steps that are skipped", _list(wanted.texts), f"{_list(ran)} ran", ran[0])


def _path(wanted: Listed, outcome: Outcome) -> Iterator[Mismatch]:
    if wanted.texts != outcome.path:
        yield Mismatch(wanted.line, "path", _list(wanted.texts), _list(outcome.path))


def _events(wanted: Listed, outcome: Outcome) -> Iterator[Mismatch]:
    if not _follow(wanted.texts, outcome.events):
        yield Mismatch(wanted.line, "events, in this order", _list(wanted.texts), _list(outcome.events))


def _step_result(step: str, line: int, wanted: Any, outcome: Outcome) -> Iterator[Mismatch]:
    if step not in outcome.results:
        yield Mismatch(line, f"result of {step}", _json(wanted), "nothing: it did not run", step)
    elif not _holds(wanted, outcome.results[step]):
        yield Mismatch(line, f"result of {step}", _json(wanted), _json(outcome.results[step]), step)


def _follow(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Whether the events occur in this order; other events may come in between."""
    rest = iter(found)
    return all(any(one == another for another in rest) for one in wanted)


def _variable(name: str, words: Words, outcome: Outcome) -> Iterator[Mismatch]:
    yield from _named(name, words, outcome.variables, f"variable {name}")


def _output(step: str, words: Words, outcome: Outcome) -> Iterator[Mismatch]:
    yield from _named(step, words, outcome.outputs, f"output of step {step}", step)


def _named(name: str, words: Words, found: Mapping[str, Any], about: str, step: str = "") -> Iterator[Mismatch]:
    if name in found and _same_data(words.equals, found[name]):
        return
    if name in found:
        yield from _words(words, _text(found[name]), about, step)
        return
    own = [one for one in found if not one.startswith("__")]
    got = f"nothing. {meant(name, own)}" if own else "nothing"
    yield Mismatch(words.line, about, _wanted(words), got, step)


def _prompt(step: str, words: Words, outcome: Outcome) -> Iterator[Mismatch]:
    yield from _among([one.prompt for one in outcome.asked if _of(one, step)], words, "prompt", step)


def _system(step: str, words: Words, outcome: Outcome) -> Iterator[Mismatch]:
    if step:
        texts = [one.system for one in outcome.asked if _of(one, step)]
        yield from _among(texts, words, "system message", step)
        return
    for one in outcome.asked:
        problems = list(_words(words, one.system, f"system message of step {one.step}", one.step))
        yield from problems
        if problems:
            return


def _of(asked: Asked, step: str) -> bool:
    """Whether the request came from this step, or from a step in this group."""
    return step in (asked.step, asked.group)


def _command(step: str, words: Words, outcome: Outcome) -> Iterator[Mismatch]:
    texts = [one.words for one in outcome.commands if one.step == step]
    yield from _among(texts, words, "command", step, "no command was run in this step")


def _request(step: str, words: Words, outcome: Outcome) -> Iterator[Mismatch]:
    texts = [one.words for one in outcome.requests if one.step == step]
    yield from _among(texts, words, "request", step, "nothing was sent in this step")


def _approvals(wanted: Listed, outcome: Outcome) -> Iterator[Mismatch]:
    asked = tuple(step for step, _ in outcome.approvals)
    if wanted.texts != asked:
        yield Mismatch(wanted.line, "steps that asked for approval", _list(wanted.texts), _list(asked))


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


def _artifact(wanted: Artifact, outcome: Outcome) -> Iterator[Mismatch]:
    line = wanted.words.line
    if outcome.artifact is None:
        yield Mismatch(line, "artifact", _wanted(wanted.words) or f"of type {wanted.type}", "nothing")
        return
    yield from _words(wanted.words, outcome.artifact, "artifact")
    if wanted.type is not None and wanted.type != outcome.artifact_type:
        yield Mismatch(line, "type of the artifact", wanted.type or "none", outcome.artifact_type or "none")


def _conversation(expected: Expected) -> Iterator[Check]:
    if expected.messages is not None:
        yield Check("messages", partial(_messages, expected.messages))
    if expected.result is not None:
        yield Check("result", partial(_result, *expected.result))
    if expected.refusals is not None:
        yield Check("refused replies", partial(_refusals, expected.refusals))
    if expected.triggers is not None:
        yield Check("triggers that fired", partial(_triggers, expected.triggers))


def _result(line: int, wanted: Any, outcome: Outcome) -> Iterator[Mismatch]:
    if not _holds(wanted, outcome.result):
        yield Mismatch(line, "result", _json(wanted), _json(outcome.result), outcome.step)


def _refusals(wanted: Listed, outcome: Outcome) -> Iterator[Mismatch]:
    rules = tuple(one.rule for one in outcome.refusals)
    if wanted.texts != rules:
        got = "\n".join(f"{one.rule} at {one.position}: {one.problem}" for one in outcome.refusals) or "none"
        where = outcome.refusals[-1].playbook if outcome.refusals else ""
        yield Mismatch(wanted.line, "refused replies", _list(wanted.texts), got, where)


def _triggers(wanted: Listed, outcome: Outcome) -> Iterator[Mismatch]:
    if wanted.texts != outcome.triggers:
        yield Mismatch(wanted.line, "triggers that fired", _list(wanted.texts), _list(outcome.triggers))


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


def _warnings(wanted: Listed, outcome: Outcome) -> Iterator[Mismatch]:
    found = outcome.warnings
    got = "\n".join(found) or "none"
    if not wanted.texts and found:
        yield Mismatch(wanted.line, "warnings", "none", got)
    for text in wanted.texts:
        if not any(text in warning for warning in found):
            yield Mismatch(wanted.line, "warnings", f"one that contains: {text}", got)


def _questions(wanted: Listed, outcome: Outcome) -> Iterator[Mismatch]:
    steps = tuple(step for step, _ in outcome.questions)
    if wanted.texts != steps:
        yield Mismatch(wanted.line, "steps that asked a question", _list(wanted.texts), _list(steps))


def _question(step: str, words: Words, outcome: Outcome) -> Iterator[Mismatch]:
    texts = [text for one, text in outcome.questions if one == step]
    if not texts:
        yield Mismatch(words.line, f"question of step {step}", _wanted(words), "nothing was asked", step)
    elif texts[0]:  # an unattended run does not record the text of its questions
        yield from _words(words, texts[0], f"question of step {step}", step)


def _called(wanted: Called, outcome: Outcome) -> Iterator[Mismatch]:
    made = outcome.calls
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
