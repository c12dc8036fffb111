"""A run without a world: follows a program, shows what each model would be asked, and performs nothing."""

from __future__ import annotations

from typing import Any

from cuebook.kernel.context import Text
from cuebook.kernel.effects import (
    Answer,
    AskHuman,
    AskModel,
    Breakpoint,
    Checkpoint,
    Done,
    Effect,
    Elapsed,
    Program,
    Reply,
    Resumed,
    Wait,
)
from cuebook.kernel.events import StepFinished, StepStarted, Warned


def rehearsed(program: Program[Any]) -> list[dict[str, Any]]:
    """Every request in order. Where an earlier output would stand, a mark says whose."""
    shown: list[dict[str, Any]] = []
    step = StepStarted("")
    send: Any = None
    while True:
        try:
            asked = program.send(send)
        except StopIteration:
            return shown
        send = None
        if isinstance(asked, StepStarted):
            step, send = asked, {}
        elif isinstance(asked, Warned):
            shown.append({"warning": asked.message})
        elif isinstance(asked, StepFinished) and asked.status == "skipped":
            shown.append({"step": step.label, "title": step.title, "skipped": asked.reason})
        elif isinstance(asked, AskModel):
            system = "\n\n".join(str(block.text) for block in asked.context if block.role == "system")
            shown.append({"step": step.label, "title": step.title, "system": system, "prompt": asked.prompt})
            send = Reply(Text(f"<output of step {step.label}>"))
        elif isinstance(asked, Effect):
            send = _stand_in(asked)


def _stand_in(effect: Effect) -> Any:
    match effect:
        case Breakpoint() | Checkpoint():
            return Resumed()
        case AskHuman(default=default):
            return Answer(default or "<answer>")
        case Wait():
            return Elapsed()
        case _:
            return Done()


def in_words(shown: list[dict[str, Any]]) -> str:
    parts: list[str] = []
    for one in shown:
        if "warning" in one:
            parts.append(f"warning: {one['warning']}")
            continue
        heading = f"=== Step {one['step']}: {one['title']}"
        if "skipped" in one:
            parts.append(f"{heading}\nskipped: {one['skipped']}")
            continue
        system = f"--- system\n{one['system']}\n" if one["system"] else ""
        parts.append(f"{heading}\n{system}--- prompt\n{one['prompt']}")
    return "\n\n".join(parts) + "\n"
