"""`run --dry-run`: shows what each model would be asked, and performs nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from cuebook.dialects.markdown.model import Step
from cuebook.kernel.effects import AskModel, Effect
from cuebook.kernel.run import Settings
from cuebook.surfaces.cli import live
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.plain import say
from cuebook.surfaces.cli.playbooks import Playbook
from cuebook.surfaces.cli.rehearsing import Read, Rehearsal, Shown, Ways, rehearse
from cuebook.surfaces.cli.texts import LocalTexts
from cuebook.surfaces.reading.foreseeing import Way, foresee, fork_words, way_words
from cuebook.surfaces.wiring import Wiring


def show(
    given: Given,
    playbook: Playbook,
    inputs: Mapping[str, str],
    wiring: Wiring,
    *,
    answers: Mapping[str, str] | None = None,
    unattended: bool = False,
    options: Mapping[str, Any] | None = None,
) -> int:
    """`--dry-run`: exit code 1 where the run could only fail. Answers are those that are given beforehand."""
    settings = Settings(
        answers=dict(answers or {}), unattended=unattended, folder=playbook.folder, options=dict(options or {})
    )
    rehearsal = rehearsed(playbook, inputs, settings, LocalTexts(wiring, settings))
    if given["as_json"]:
        sys.stdout.write(live.json_line(as_objects(rehearsal)))
    else:
        for number, words in enumerate(in_words(rehearsal)):
            say(f"\n{words}" if number else words)
    return 1 if rehearsal.failed else 0


def rehearsed(playbook: Playbook, inputs: Mapping[str, str], settings: Settings, read: Read) -> Rehearsal:
    book = playbook.document
    return rehearse(book, inputs, foresee(book, inputs, settings), settings=settings, read=read)


# --- in words -------------------------------------------------------------------------------------------


def as_objects(rehearsal: Rehearsal) -> list[dict[str, Any]]:
    """What `--json` prints: everything in order, with all ways of a step under it."""
    return [_ways_object(part) if isinstance(part, Ways) else _object(part) for part in _flat(rehearsal)]


def _flat(rehearsal: Rehearsal) -> list[Shown | Ways]:
    flat: list[Shown | Ways] = []
    for part in rehearsal.parts:
        flat += [*part.before, part] if isinstance(part, Ways) else [part]
    return flat


def _object(shown: Shown) -> dict[str, Any]:
    if "warning" in shown.what and not shown.label:
        return shown.what
    system = {"system": _system(shown.effect)} if isinstance(shown.effect, AskModel) else {}
    return {"step": shown.label, "title": shown.title, **system, **shown.what}


def _system(effect: Effect | None) -> str:
    context = effect.context if isinstance(effect, AskModel) else ()
    return "\n\n".join(str(block.text) for block in context if block.role == "system")


def _ways_object(ways: Ways) -> dict[str, Any]:
    step = ways.fork.step
    return {
        "step": step.label,
        "title": step.title,
        "depends_on": list(ways.fork.on),
        "ways": [
            {"when": way_words(step, way), "values": way.values, "shown": [_object(one) for one in shown]}
            for way, shown in ways.shown
        ],
        "followed": way_words(step, ways.followed),
    }


def in_words(rehearsal: Rehearsal) -> Iterator[str]:
    """One passage after the other: together they may be far longer than the playbook."""
    parts = _flat(rehearsal)
    for part in parts:
        yield from _ways_words(part, part is parts[-1]) if isinstance(part, Ways) else [_words(part)]


def _ways_words(ways: Ways, last: bool) -> Iterator[str]:
    step = ways.fork.step
    yield f"=== Step {step.label}: {step.title}\nwhere it goes on depends on {fork_words(ways.fork)}"
    for way, shown in ways.shown:
        yield f">>> {_when(step, way)}{'' if shown else ': nothing'}"
        yield from map(_words, shown)
    if not last:
        yield f"<<< what follows is shown {_as_when(step, ways.followed)}"


def _as_when(step: Step, way: Way) -> str:
    words = way_words(step, way)
    return "as on the last of these ways" if words == "otherwise" else f"as if {words}"


def _when(step: Step, way: Way) -> str:
    words = way_words(step, way)
    return words if words == "otherwise" else f"if {words}"


def _words(shown: Shown) -> str:
    what = shown.what
    if "warning" in what:
        return f"warning: {what['warning']}"
    heading = f"=== Step {shown.label}: {shown.title}"
    if "prompt" in what:
        system = _system(shown.effect)
        system = f"--- system\n{system}\n" if system else ""
        return f"{heading}\n{system}--- prompt\n{what['prompt']}"
    if "question" in what:
        return f"{heading}\n{_question_words(what)}"
    if "tool" in what:
        arguments = json.dumps(what["arguments"], ensure_ascii=False, indent=2)
        return f"{heading}\n--- tool {what['tool']}\n{arguments}"
    if "source" in what:
        return f"{heading}\n--- text {what['source']}{'' if what['read'] else ' (not read here)'}"
    name = next(iter(what))
    return f"{heading}\n{name}: {what[name]}"


def _question_words(what: Mapping[str, Any]) -> str:
    asked = what["question"]
    options = f"\noptions: {', '.join(asked['options'])}" if asked["options"] else ""
    default = f"\ndefault: {asked['default']}" if asked["default"] is not None else ""
    answer = f"answered: {what['answer']}" if "answer" in what else f"shown as if answered: {what['as_if']}"
    return f"--- question ({asked['type']})\n{asked['prompt']}{options}{default}\n{answer}"
