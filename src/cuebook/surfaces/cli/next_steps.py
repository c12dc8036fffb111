"""The commands to suggest after a command, and its exit code."""

from __future__ import annotations

import os
import shlex
from typing import Any

from cuebook.formats.forms import example, fields_of
from cuebook.kernel.capabilities import comes_and_goes
from cuebook.kernel.engine.waits import ALLOWANCE, NEEDS, WHOLE
from cuebook.kernel.events import FOR_HOST
from cuebook.kernel.journal import step_at
from cuebook.kernel.run import RunRow, WaitRow
from cuebook.kernel.short_ids import short_id
from cuebook.kernel.votes import rule_of, votes_words
from cuebook.service.runs.objects import run_object
from cuebook.service.service import RunView
from cuebook.service.waits.decisions import outcome_shape
from cuebook.service.waits.lasting_approvals import offered
from cuebook.surfaces.display import SHORT, asked_again, command_line, is_decided, moment, patterns_words, preview_lines

EXIT_CODES = {
    "completed": 0,
    "failed": 1,
    "paused": 3,
    "awaiting_input": 3,
    "awaiting_approval": 3,
    "cancelled": 5,
    "expired": 5,
}


_CONNECTS = f"{command_line('mcp install')} connects one"


def exit_code(row: RunRow) -> int:
    if row.status == "paused" and row.reason == "budget":
        return 4
    if row.status == "failed" and row.reason == "forbidden":
        return 5
    return EXIT_CODES.get(row.status, 1)


def what_next(row: RunRow, waits: list[WaitRow], *, interrupted: bool = False, waits_for: str = "") -> str:
    """The command to type next. For a run that was answered and waits for a worker, `resume` follows it or drives it."""
    resumes = interrupted or is_decided(row, waits, waits_for)
    return command_line((f"resume {row.id}" if resumes else _next(row, waits)).strip())


def _next(row: RunRow, waits: list[WaitRow]) -> str:
    match row.status:
        case "completed":
            return f"show {row.id}"
        case "failed" | "expired":
            return f"retry {row.id}"
        case "cancelled":
            return f"show {row.id}"
        case "awaiting_input" if row.reason == FOR_HOST:
            return f"events {row.id} --follow"
        case "awaiting_input":
            name, wait = _named(row, waits, "question")
            return f"answer {name} {_answers(wait)}"
        case "awaiting_approval" if any(wait.kind == "approval" for wait in waits):
            name, wait = _named(row, waits, "approval")
            more = "|changes" if wait is not None and rule_of(wait.details).changes else ""
            return f"decide {name} approve{more}|deny"
        case "awaiting_approval":
            return f"decide {_named(row, waits, 'in_doubt')[0]} repeat|stop"
        case "paused" if row.reason == "budget":
            return f"resume {row.id} {_larger(waits)}" if not waits_for_allowance(waits) else f"budget allow {row.id}"
        case "paused" if row.reason == NEEDS:
            return f"events {row.id} --follow"
        case "paused":
            return f"resume {row.id}"
        case _:
            return f"events {row.id} --follow"


def hints(row: RunRow, waits: list[WaitRow]) -> list[tuple[str, str]]:
    """Other commands, and hints for the next one, as name and text."""
    if row.status == "failed" and row.playbook:
        new_run = f"`cuebook run {shlex.quote(row.name)}` uses" if os.path.isfile(row.name) else "a new run uses"
        return [("if edited", f"{new_run} the current text of the playbook; a retry uses the original")]
    lines = []
    if row.status == "paused" and row.reason == NEEDS and any(map(comes_and_goes, row.needs)):
        shows = f"`{command_line('nodes list')}` shows which machines are paired, and when each was last connected"
        lines.append(("node", f"{shows}; `cuebook node --connect URL` starts one, on that machine"))
    for wait in waits:
        name = row.id if sum(one.kind == wait.kind for one in waits) == 1 else wait.id
        if wait.kind == "approval" or (WHOLE in wait.details and wait.kind != FOR_HOST):
            lines.append(("in full", command_line(f"inbox {name}")))
        if wait.kind == "in_doubt":
            given = "" if "late" in wait.details else f" --outcome {shlex.quote(outcome_shape(wait))}"
            lines.append(("if done", command_line(f"decide {name} done{given}")))
            if any(one.kind == "approval" for one in waits):  # the next command is then about the approval
                lines.append(("if not", command_line(f"decide {name} repeat|stop")))
    if any(wait.kind == FOR_HOST for wait in waits):
        lines.append(("assistant", f"does it with its tools next_step and complete_step; {_CONNECTS}"))
    return lines


def other_answers(waits: list[WaitRow]) -> list[tuple[str, str]]:
    """The commands that answer the open questions after the first, as name and text."""
    questions = [wait for wait in waits if wait.kind == "question"]
    return [("or", command_line(f"answer {wait.id} {_answers(wait)}")) for wait in questions[1:]]


def _named(row: RunRow, waits: list[WaitRow], kind: str) -> tuple[str, WaitRow | None]:
    """The id to use in a command, and the wait: the id of the run if it has only one wait of this kind."""
    fitting = [wait for wait in waits if wait.kind == kind]
    if not fitting:
        return row.id, None
    return row.id if len(fitting) == 1 else fitting[0].id, fitting[0]


def _answers(wait: WaitRow | None) -> str:
    """The placeholder for the answer in a command: the options if they are few, otherwise VALUE."""
    if wait is not None and wait.type == "confirm":
        return "yes|no"
    if wait is not None and wait.type == "form":
        return shlex.quote(example(wait.details.get("schema", {}))) if fields_of(wait.details.get("schema")) else "JSON"
    # A value that begins with @ would be read as the name of a file.
    values = [shlex.quote(f"@{one}" if one.startswith("@") else one) for one in (wait.options if wait else ())]
    listed = "|".join(values)
    return listed if listed and len(listed) <= SHORT else "VALUE"


def waits_for_allowance(waits: list[WaitRow]) -> bool:
    """Whether a budget of a person, a playbook or of all runs is spent, and not the run's own."""
    return any(wait.kind == "budget" and wait.details.get("code") == ALLOWANCE for wait in waits)


def _larger(waits: list[WaitRow]) -> str:
    code = next((str(wait.details.get("code")) for wait in waits if wait.kind == "budget"), "")
    return f"--budget-{code} MORE" if code in ("money", "tokens", "seconds", "steps") else ""


def as_object(view: RunView, *, interrupted: bool = False, waits_for: str = "") -> dict[str, Any]:
    """The object that `--json` prints for a run."""
    next = what_next(view.run, view.waits, interrupted=interrupted, waits_for=waits_for)
    return {**run_object(view, interrupted=interrupted, waits_for=waits_for), "next": next}


def approval_lines(wait: WaitRow) -> list[str]:
    """An approval as plain text, with the commands that show it in full and decide on it."""
    lines = [f"approval {wait.id}, run {wait.run}, step {step_at(wait.place) or '-'}", wait.prompt, ""]
    lines += [*preview_lines(wait.details.get("preview", {})), ""]
    for name, words in (
        ("in full", command_line(f"inbox {wait.id}") if WHOLE in wait.details else ""),
        ("asked again", asked_again(wait.details)),
        ("asked because", "; ".join(wait.details.get("rules", []))),
        ("asked by", wait.details.get("requester", "")),
        ("who decides", rule_of(wait.details).words()),
        ("votes", votes_words(wait.details, wait.answer)),
        ("short id", short_id(wait.id)),
        ("since", moment(wait.opened)),
        ("until", _until(wait)),
        ("digest", wait.details.get("digest", "")),
        *offer_lines(wait),
        ("only once", wait.details.get("once_only", "")),
        ("yes", command_line(f"decide {wait.id} approve --reason WHY")),
        ("for this run", command_line(f"decide {wait.id} approve --for run") if offered(wait) else ""),
        ("changes", _changes(wait)),
        ("no", command_line(f"decide {wait.id} deny --reason WHY")),
    ):
        if words:
            lines.append(f"{name + ':':<15}{words}")
    always = wait.details.get("always", [])
    if (
        always and wait.details.get("purpose", "policy") == "policy"
    ):  # no rule replaces an approval that a step requires
        commands = (command_line(f"policy allow {domain} {shlex.quote(pattern)}") for domain, pattern in always)
        lines.append(f"{'always:':<15}{' && '.join(commands)}")
    return lines


def _changes(wait: WaitRow) -> str:
    """The command that sends the run back; empty if the approval does not allow that."""
    steps = rule_of(wait.details).changes
    to = f" --to {'|'.join(steps)}" if len(steps) > 1 else ""
    return command_line(f"decide {wait.id} changes --reason WHAT{to}") if steps else ""


def offer_lines(wait: WaitRow) -> list[tuple[str, str]]:
    """What an approval for this run or for all runs would allow, as name and text; `--offer` chooses among several."""
    choices = [patterns_words(one) for one in offered(wait)]
    if len(choices) == 1:
        return [("would allow", choices[0])]
    return [(f"offer {number}", f"would allow {words}") for number, words in enumerate(choices, start=1)]


def _until(wait: WaitRow) -> str:
    if wait.expires is None:
        return "held: it timed out and is still waiting" if wait.details.get("held") else "it does not expire"
    ends = {
        "cancel": "after that, the run ends",
        "hold": "after that, it keeps waiting",
        "deny": "after that, it is denied",
    }
    return f"{moment(wait.expires)} ({ends.get(wait.details.get('on_expiry', ''), 'it then expires')})"
