"""`cuebook plan`: a pipeline's steps as they would be performed, and what the gate would say to each. Nothing is run."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from cuebook.beginnings import options_of
from cuebook.dialects import registry
from cuebook.dialects.pipeline.foreseeing import Foreseen, foresee
from cuebook.dialects.pipeline.model import Pipeline
from cuebook.kernel.effects import AskModel, CallTool, RunCommand, SendHttp
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import Settings
from cuebook.surfaces import wording
from cuebook.surfaces.cli import live, options, session
from cuebook.surfaces.cli.inputs import gathered
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.plain import say
from cuebook.surfaces.cli.playbooks import FILE, INPUTS, Playbook, PlaybookCommand
from cuebook.surfaces.cli.predicting import Predicted, Predicting
from cuebook.surfaces.wiring import Wiring

HELP = """Say what each step of a pipeline would do, and what the policy would say to it.

FILE is a pipeline; its arguments are given as to `cuebook run`, and those that are not given stand for themselves, as
outputs of earlier steps do. Told are the steps as they would be performed, whether each is allowed, asked about or denied
and by which rules, the secrets and hosts that are needed, and which steps change something without saying how to tell
that it worked (postcondition) or how to undo it (rollback_hint). Nothing is run, and no secret is read.

The exit code is 0 where a person would be asked, and 1 where a step would be denied or is bound to fail: an argument does
not fit, or a secret or tool is not there.
"""

_WORDS = {"allow": "allowed", "ask": "asked about", "deny": "denied", "unknown": "not known yet"}


class Plan(msgspec.Struct, frozen=True):
    pipeline: Pipeline
    args: Mapping[str, Any]
    steps: list[Predicted]
    notes: list[str]
    refused: str
    """Why a run would not even begin; empty where it would."""
    unfit: bool = False
    """Whether an argument that is given does not fit."""

    @property
    def denied(self) -> bool:
        return bool(self.refused) or any(one.decision == "deny" for one in self.reached)

    @property
    def fails(self) -> bool:
        return self.unfit or any(one.fails for one in self.reached)

    @property
    def reached(self) -> list[Predicted]:
        """Those that are not sure to be skipped."""
        return [one for one in self.steps if one.foreseen.condition is not False]


def plan(given: Given, playbook: Playbook) -> int:
    if not isinstance(playbook.document, Pipeline):
        raise BadInput(
            f"{playbook.path}: `cuebook plan` is for pipelines; this is a playbook of the dialect {playbook.dialect.name}.",
            fix=f"`cuebook explain {shlex.quote(playbook.path)}` says what a run of it would do.",
        )
    planned = asyncio.run(planned_by(given, playbook, session.wiring_of(given), options.chosen(given)))
    if given["as_json"]:
        sys.stdout.write(live.json_line(as_object(planned)))
    else:
        say("\n".join(lines_of(planned)))
    return 1 if planned.denied or planned.fails else 0


# --- predicting -----------------------------------------------------------------------------------------


async def planned_by(given: Given, playbook: Playbook, wiring: Wiring, chosen: Mapping[str, Any]) -> Plan:
    pipeline: Pipeline = playbook.document
    notes: list[str] = []
    wanted = gathered(given, pipeline, playbook.dialect)
    args = known_args(playbook, wanted, notes)
    chosen = options_of(playbook.dialect, pipeline, playbook.path, Settings(options=dict(chosen)))
    async with session.opened(wiring, empty=True) as service:
        masked = service.engine.redactor.value
        predicting = await Predicting.made(service, wiring, playbook)
        steps = [await predicting.predicted(one) for one in foresee(pipeline, masked(dict(args)), chosen)]
        return Plan(
            pipeline, masked(dict(args)), steps, notes, predicting.refused, any(name not in args for name in wanted)
        )


def known_args(playbook: Playbook, given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """The arguments as a run would keep them. Those that are missing or wrong are told, and left out."""
    pipeline: Pipeline = playbook.document
    try:
        return playbook.dialect.accept(pipeline, given)
    except BadInput as error:
        notes.append(error.message)
    kept: dict[str, Any] = {}
    for name, arg in pipeline.args.items():
        alone = msgspec.structs.replace(pipeline, args={name: arg})
        try:
            kept |= playbook.dialect.accept(alone, {name: given[name]} if name in given else {})
        except BadInput:
            continue
    return kept


# --- as an object ---------------------------------------------------------------------------------------


def as_object(planned: Plan) -> dict[str, Any]:
    return {
        "title": planned.pipeline.title,
        "args": dict(planned.args),
        "steps": [_step_object(one) for one in planned.steps],
        "secrets": _secrets(planned),
        "hosts": list(dict.fromkeys(host for one in planned.steps for host in one.hosts)),
        "allowed_domains": list(planned.pipeline.allowed_domains),
        "refused": planned.refused or None,
        "denied": planned.denied,
        "fails": planned.fails,
        "notes": planned.notes,
    }


def _step_object(one: Predicted) -> dict[str, Any]:
    step = one.foreseen.step
    return {
        "step": step.id,
        "name": step.name,
        "line": step.line,
        "namespace": step.namespace,
        "action": action_object(one.foreseen),
        "unknown": list(one.foreseen.unknown),
        "condition": step.condition_text or None,
        "runs": one.foreseen.condition,
        "decision": one.decision,
        "rules": list(one.rules),
        "approval": step.approval,
        "changes": not step.reads_only,
        "lacks": list(one.foreseen.lacks),
        "secrets": [{"at": use.at, "handle": use.handle} for use in one.secrets],
        "hosts": list(one.hosts),
        "tools": [{"tool": tool, "decision": decision} for tool, decision in one.tools],
        "timeout": step.timeout,
        "attempts": step.retry.max_attempts if step.retry is not None else 1,
        "on_error": step.on_error,
        "notes": list(one.notes),
    }


def action_object(foreseen: Foreseen) -> dict[str, Any] | None:
    """The effect as it would be performed, secrets by their handles."""
    effect = foreseen.effect
    match effect:
        case None:
            return None
        case AskModel():
            return {"model": effect.model, "prompt": effect.prompt}
    left_out = ("is", "approval", "witnessed", "reads_only", "secrets", "timeout")
    made = msgspec.to_builtins(effect, enc_hook=str)
    return {name: value for name, value in made.items() if name not in left_out}


def _secrets(planned: Plan) -> list[str]:
    """The handles that are needed, and the secret arguments that are not given."""
    handles = [use.handle for one in planned.steps for use in one.secrets]
    return list(dict.fromkeys((*handles, *(name for one in planned.steps for name in one.foreseen.open_secrets))))


# --- in words -------------------------------------------------------------------------------------------


def head_lines(planned: Plan) -> Iterator[str]:
    yield planned.pipeline.title
    for name in planned.pipeline.args:
        value = planned.args.get(name)
        yield f"  {name} = {wording.short(_plain(value))}" if value is not None else f"  {name} is not given"


def lines_of(planned: Plan) -> Iterator[str]:
    yield from head_lines(planned)
    for one in planned.steps:
        yield ""
        yield from _step_lines(one)
    yield ""
    hosts = list(dict.fromkeys(host for one in planned.steps for host in one.hosts))
    asked = [
        f"{one.foreseen.step.id}{_of_tools(one)}" for one in planned.reached if one.decision == "ask" or _of_tools(one)
    ]
    denied = [one.foreseen.step.id for one in planned.reached if one.decision == "deny"]
    for name, words in (
        ("secrets", ", ".join(_secrets(planned))),
        ("hosts", ", ".join(hosts)),
        ("asked", ", ".join(asked)),
        ("denied", ", ".join(denied)),
        ("fails", ", ".join(one.foreseen.step.id for one in planned.reached if one.fails)),
    ):
        yield f"{name + ':':<12}{words or 'none'}"
    if planned.refused:
        yield f"\nA run would not begin:\n{planned.refused}"
    yield from (f"{'note:':<12}{' '.join(words.split())}" for words in planned.notes)


def _of_tools(one: Predicted) -> str:
    """What is added to a step that is allowed itself, and in which the calls of its model are asked about."""
    return " (calls of tools)" if one.decision != "ask" and any(ruled == "ask" for _, ruled in one.tools) else ""


def _step_lines(one: Predicted) -> Iterator[str]:
    foreseen, step = one.foreseen, one.foreseen.step
    skipped = ", which does not hold: it is skipped" if foreseen.condition is False else ""
    yield f"{step.id}{f'  {step.name}' if step.name else ''}"
    lines = [
        ("does", action_words(foreseen)),
        ("if", f"{step.condition_text}{skipped}" if step.condition is not None else ""),
        ("would be" if skipped else "is", f"{_WORDS[one.decision]}{_because(one)}"),
        ("secrets", ", ".join(f"{use.at} from {use.handle}" for use in one.secrets)),
        ("not known", ", ".join((*foreseen.unknown, *(f"{name} (secret)" for name in foreseen.open_secrets)))),
        ("tools", ", ".join(f"{tool} ({_WORDS.get(decision, decision)})" for tool, decision in one.tools)),
        ("tries", f"{step.retry.max_attempts} times at most" if step.retry is not None else ""),
        ("if it fails", step.on_error.replace("_", " the ") if step.on_error != "stop" else ""),
        ("lacks", f"{', '.join(foreseen.lacks)} (it may change something)" if foreseen.lacks else ""),
    ]
    lines += [("note", " ".join(words.split())) for words in one.notes]
    yield from (f"  {name + ':':<13}{words}" for name, words in lines if words)


def _because(one: Predicted) -> str:
    if not one.rules:
        return ""
    rules = "; ".join(one.rules)
    return f": it may be for {rules}" if one.decision == "unknown" else f": {rules}"


def action_words(foreseen: Foreseen) -> str:
    """One line, as a person would say it."""
    match foreseen.effect:
        case RunCommand(argv=argv, cwd=cwd):
            return f"run {' '.join(map(_quoted, argv))}{f' in {cwd}' if cwd else ''}"
        case SendHttp(method=method, url=url):
            return f"send {method} {url}"
        case CallTool(tool=tool, arguments=arguments):
            return f"call {tool} {wording.short(live.json_text(arguments))}"
        case AskModel(model=model, prompt=prompt):
            return f"ask {model or 'the model'}: {wording.short(prompt)}"
        case _:
            return "can only fail"


def _quoted(word: str) -> str:
    """A word as it would be typed; a reference in it stays readable."""
    return word if word.startswith("$") and " " not in word else shlex.quote(word)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else live.json_text(value)


OPTIONS: list[click.Parameter] = [
    FILE,
    *INPUTS,
    *options.SETTINGS,
    *options.choices(
        [option for dialect in registry.dialects() if dialect.name == "pipeline" for option in dialect.options]
    ),
    options.STORE,
    options.AS_JSON,
]

plan_command = PlaybookCommand("plan", OPTIONS, HELP, "Say what each step of {title} would do.", plan)
