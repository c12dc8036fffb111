"""`--dry-run` of a pipeline: every step as it would be performed. Nothing is, so what earlier steps give is not known."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from cuebook.dialects.pipeline.foreseeing import Foreseen, foresee
from cuebook.kernel.effects import Acting, AskModel, CallTool, RunCommand, SendHttp
from cuebook.surfaces.cli import live, planning
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.plain import say
from cuebook.surfaces.cli.playbooks import Playbook
from cuebook.surfaces.wiring import Wiring


def show(
    given: Given, playbook: Playbook, inputs: Mapping[str, Any], wiring: Wiring, *, options: Mapping[str, Any], **_: Any
) -> int:
    """Exit code 1 where the run could only fail."""
    steps = foresee(playbook.document, inputs, options)
    if given["as_json"]:
        sys.stdout.write(live.json_line([_object(one) for one in steps]))
    else:
        for number, one in enumerate(steps):
            say(("\n" if number else "") + "\n".join(_lines(one)))
    return 1 if any(one.problem and one.condition and one.step.on_error == "stop" for one in steps) else 0


def _object(one: Foreseen) -> dict[str, Any]:
    return {
        "step": one.step.id,
        "name": one.step.name,
        "condition": one.step.condition_text or None,
        "runs": one.condition,
        "approval": one.step.approval,
        "action": planning.action_object(one),
        "secrets": [{"at": use.at, "handle": use.handle} for use in _secrets(one)],
        "unknown": list(one.unknown),
        "failed": one.problem or None,
    }


def _secrets(one: Foreseen) -> tuple[Any, ...]:
    return one.effect.secrets if isinstance(one.effect, Acting) else ()


def _lines(one: Foreseen) -> Iterator[str]:
    step = one.step
    yield f"=== Step {step.id}{f': {step.name}' if step.name else ''}"
    if step.condition is not None:
        known = {True: ", which holds", False: ", which does not hold: it is skipped", None: ""}
        yield f"--- if {step.condition_text}{known[one.condition]}"
    if step.approval:
        yield "--- once it is approved"
    if one.problem:
        yield f"failed: {one.problem}"
    yield from _effect_lines(one)
    for use in _secrets(one):
        yield f"--- secret for {use.at}\n{use.form.replace('{}', f'<{use.handle}>')}"


def _effect_lines(one: Foreseen) -> Iterator[str]:
    match one.effect:
        case RunCommand(argv=argv, cwd=cwd, env=env, stdin=stdin):
            yield f"--- command{f' in {cwd}' if cwd else ''}\n{shlex.join(argv)}"
            yield from ["--- environment", *(f"{name}={value}" for name, value in env.items())] if env else []
            yield from [f"--- stdin\n{stdin}"] if stdin else []
        case SendHttp(method=method, url=url, headers=headers, body=body):
            yield f"--- request\n{method} {url}"
            yield from (f"{name}: {value}" for name, value in headers.items())
            yield from [f"--- body\n{body}"] if body else []
        case CallTool(tool=tool, arguments=arguments):
            yield f"--- tool {tool}\n{live.json_text(arguments)}"
        case AskModel(model=model, prompt=prompt):
            yield f"--- prompt{f' ({model})' if model else ''}\n{prompt}"
        case _:
            pass
