"""The report on a run for an assistant: facts it can act on, and text from models and tools, marked as data.

Long text is cut, with a link to the resource that has all of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from mcp_types import CallToolResult, ContentBlock, ResourceLink, TextContent

from cuebook.dialects import registry
from cuebook.kernel.capabilities import in_words
from cuebook.kernel.engine.files import KeptFile
from cuebook.kernel.engine.waits import ALLOWANCE, NEEDS
from cuebook.kernel.events import FOR_HOST
from cuebook.kernel.journal import step_at
from cuebook.kernel.run import Budget, RunRow, StepRow, WaitRow
from cuebook.kernel.short_ids import short_id
from cuebook.kernel.votes import rule_of, votes_words
from cuebook.service.runs import objects as run_objects
from cuebook.service.runs.objects import INTERRUPTED
from cuebook.service.runs.tool_calls import ToolUse, plan_object
from cuebook.service.service import RunView
from cuebook.surfaces import display
from cuebook.surfaces.mcp.host import NOT_DRIVEN, Activity, Caller, Host, state_key
from cuebook.surfaces.mcp.tools.schemas import PARTS
from cuebook.surfaces.mcp.untrusted_text import ALL, LONGEST, Marking, as_json, brief, fitted, one_line

_MOST_STEPS, _LAST = 300, 20
"""Maximum number of steps in a report, and of notes per step; the latest are shown."""
_MOST_CALLS, _CALL = 50, 1_000
"""Maximum number of tool calls in a report, and of characters of their arguments and results."""
_MOST_FILES = 100
"""Maximum number of files in a report."""
UNTRUSTED = (
    "result",
    "playbook",
    "steps[].output",
    "steps[].title",
    "steps[].reason",
    "variables",
    "notes",
    "calls[].tool",
    "calls[].arguments",
    "calls[].result",
    "plans",
    "files[].filename",
    "error",
    "elicitation.prompt",
    "elicitation.options",
    "elicitation.default",
    "approval.prompt",
    "approval.preview",
    "approval.because",
)
LISTED = ("executions[].playbook", "executions[].step", "executions[].error")
"""Untrusted fields in a list of executions."""


def text_result(words: str, value: Any = None, *, wrong: bool = False) -> CallToolResult:
    """A plain answer: text for people, and a value for programs."""
    content: list[ContentBlock] = [TextContent(type="text", text=words)]
    return CallToolResult(content=content, structured_content=value, is_error=wrong)


def value_result(value: Mapping[str, Any], *, untrusted: Collection[str] = (), wrong: bool = False) -> CallToolResult:
    """An answer with a value, as text and as structured content. `untrusted` names the fields that are data."""
    shown = fitted(dict(value))
    if not untrusted:
        return text_result(as_json(shown), shown, wrong=wrong)
    return text_result(Marking().alone(as_json(shown)), {**shown, "untrusted": list(untrusted)}, wrong=wrong)


class Shortening:
    """Cuts long text, and collects links to the full text."""

    def __init__(self, run: str, incomplete: Collection[str] = ()) -> None:
        """`incomplete` are the steps whose output was not kept in full."""
        self._run = run
        self._incomplete = incomplete
        self._left = ALL
        self.links: dict[str, ResourceLink] = {}

    def text(self, whole: str, step: str) -> str:
        room = max(0, min(LONGEST, self._left))
        shown = whole[:room]
        self._left -= len(shown)
        if len(shown) == len(whole):
            return whole
        uri = output_uri(self._run, step)
        self.links[uri] = ResourceLink(
            type="resource_link",
            uri=uri,
            name=f"output of step {step}",
            description="The full text of an output that was cut.",
            mime_type="text/plain",
            size=len(whole.encode("utf-8", "replace")),
        )
        kept = "all that was kept" if step in self._incomplete else "the full text"
        return f"{shown}\n[cut: {len(shown):,} of {len(whole):,} characters; {kept} is the resource {uri}]"

    def value(self, value: Any, step: str) -> Any:
        """The value, or the beginning of its JSON text if it is too large."""
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(text) <= min(LONGEST, self._left):
            self._left -= len(text)
            return value
        return self.text(text, step)


def output_uri(run: str, step: str) -> str:
    return f"playbook://runs/{run}/outputs/{quote(step, safe='')}"


def book_uri(id: str) -> str:
    return f"playbook://playbooks/{id}"


def run_uri(run: str) -> str:
    return f"playbook://runs/{run}"


async def rows(found: Sequence[RunRow], host: Host, caller: Caller, left: Collection[str] = ()) -> list[dict[str, Any]]:
    """Short descriptions of runs; `left` are the runs that no process is driving."""
    playbooks = await host.histories.playbooks(found)
    return [
        _row_object(row, playbooks.get(row.id), caller) | ({"status": INTERRUPTED} if row.id in left else {})
        for row in found
    ]


def _row_object(row: RunRow, playbook: str | None, caller: Caller) -> dict[str, Any]:
    return {
        "execution_id": row.id,
        "playbook_id": playbook,
        "playbook": row.name,
        "dialect": row.dialect,
        "status": row.status,
        "reason": row.reason,
        "model": row.model,
        "step": row.step,
        **run_objects.steps_object(row),
        "tokens": row.totals.tokens,
        "cost": run_objects.known_cost(row.totals),
        "started": row.created,
        "updated": row.updated,
        "parent_execution_id": row.parent or None,
        **({"trigger": row.trigger} if row.trigger else {}),
        **({"started_by_execution_id": row.caller} if row.caller else {}),
        "error": None if row.error is None else {"code": row.error.code, "message": brief(str(row.error))},
        "link": caller.link(row.id),
    }


async def execution(
    view: RunView, host: Host, caller: Caller, *, activity: Activity, include: Collection[str] = PARTS, note: str = ""
) -> CallToolResult:
    """The state of a run, its results, and what to call next."""
    row, short = view.run, Shortening(view.run.id, view.incomplete)
    (value,) = await rows([row], host, caller, [row.id] if activity in NOT_DRIVEN else ())
    result = result_of(view)
    last = next(reversed(view.outputs), "")
    value["result"] = None if result is None else short.value(result, last)
    wait = waits_of(view)[0] if activity == "resting" and waits_of(view) else None
    decided = wait is not None and wait.kind in _DECIDED
    question = wait is not None and wait.kind == "question"
    value["elicitation"] = fitted(elicitation_object(wait), ALL // 2) if wait is not None and question else None
    value["approval"] = fitted(approval_object(wait, caller), ALL // 2) if wait is not None and decided else None
    if wait is not None and decided:
        value["link"] = caller.link(row.id, wait.id)
    held_up = await host.worker.waits_for(row.id)
    if held_up:
        value["waits_for"] = held_up
    value["next"] = next_call(view, host, caller, activity, held_up)
    value |= _parts(view, short, include)
    if view.files:
        value["files"] = [_file_object(one, row.id, caller) for one in view.files[:_MOST_FILES]]
        if len(view.files) > _MOST_FILES:
            value["more_files"] = len(view.files) - _MOST_FILES
    if view.incomplete:
        value["incomplete"] = sorted(view.incomplete)
    value["untrusted"] = list(UNTRUSTED)
    if note:
        value["note"] = note
    host.last_reports[caller.key(row.id)] = state_key(row, view.waits)
    content: list[ContentBlock] = [TextContent(type="text", text="\n".join(_lines(view, value, Marking(), activity)))]
    content += short.links.values()
    return CallToolResult(content=content, structured_content=fitted(value, 2 * ALL))


def result_of(view: RunView) -> Any:
    """The result of a run: its artifact, its program's return value, or its last output, parsed if it is JSON."""
    output, dialect = run_objects.final_output(view), registry.find(view.run.dialect)
    if output is None or (view.artifact is None and dialect is not None and dialect.talks):
        return view.result
    if view.artifact is None and (dialect is None or not dialect.writes_markdown):
        try:
            return msgspec.json.decode(str(output))
        except msgspec.DecodeError:
            pass
    return str(output)


def _parts(view: RunView, short: Shortening, include: Collection[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if "steps" in include or "outputs" in include:
        made["steps"] = [
            {
                "step": step.label,
                "visit": step.visit,
                "title": step.title,
                "status": step.status,
                **({"reason": brief(step.reason)} if step.reason else {}),
                **(
                    {"output": short.text(str(view.outputs[step.label]), step.label)}
                    if _shows(view, step, include)
                    else {}
                ),
            }
            for step in view.steps[-_MOST_STEPS:]
        ]
    if "variables" in include:
        made["variables"] = {
            name: short.value(value, _giver(view, name)) for name, value in {**view.inputs, **view.values}.items()
        }
    if "notes" in include and view.notes:
        made["notes"] = {step: [brief(note) for note in notes[-_LAST:]] for step, notes in view.notes.items()}
    if "calls" in include and view.calls:
        made["calls"] = [_call_object(call) for call in view.calls[-_MOST_CALLS:]]
        if len(view.calls) > _MOST_CALLS:
            made["earlier_calls"] = len(view.calls) - _MOST_CALLS
    if "calls" in include and view.plans:
        made["plans"] = [plan_object(plan) for plan in view.plans]
    return made


def _call_object(call: ToolUse) -> dict[str, Any]:
    """A tool call, with the beginning and the end of long arguments and results."""
    return {
        "id": call.id,
        "step": call.step,
        "tool": call.tool,
        **({"agent": call.agent, "title": call.title} if call.agent else {}),
        "arguments": _ends(call.malformed or as_json(call.arguments)),
        **({"malformed": True} if call.malformed else {}),
        "status": call.status,
        "result": _ends(call.result) if call.answered else None,
        "seconds": call.seconds,
    }


def _file_object(file: KeptFile, run: str, caller: Caller) -> dict[str, Any]:
    """A file that a step produced, and how a person gets it. Its content is never part of a report."""
    return {
        **run_objects.file_object(file),
        "command": display.command_line(f"files {run} {file.step}/{file.name} --to PATH"),
        "download": f"{caller.address}/api/runs/{run}/files/{file.digest}",
    }


def _ends(text: str) -> str:
    if len(text) <= _CALL:
        return text
    half = _CALL // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} of {len(text):,} characters are left out here]\n{text[-half:]}"


def _shows(view: RunView, step: Any, include: Collection[str]) -> bool:
    later = any(one.label == step.label and one.visit > step.visit for one in view.steps)
    return "outputs" in include and step.label in view.outputs and not later


def _giver(view: RunView, name: str) -> str:
    """The step whose output most likely has the full value."""
    return name if name in view.outputs else next(reversed(view.outputs), name)


# --- waits ---

_DECIDED = ("approval", "in_doubt")


def waits_of(view: RunView) -> list[WaitRow]:
    """The waits that need a person, decisions first."""
    order = {"approval": 0, "in_doubt": 1, "question": 2, "budget": 3, "secret": 4, "breakpoint": 5}
    return sorted((wait for wait in view.waits if wait.kind in order), key=lambda wait: order[wait.kind])


def elicitation_object(wait: WaitRow) -> dict[str, Any]:
    return {
        "type": wait.type or "input",
        "prompt": brief(wait.prompt, LONGEST),
        "options": list(wait.options),
        "default": wait.default,
        **({"schema": wait.details["schema"]} if "schema" in wait.details else {}),
        "step": step_at(wait.place),
        "wait_id": short_id(wait.id),
        "expires": wait.expires,
    }


def approval_object(wait: WaitRow, caller: Caller) -> dict[str, Any]:
    """An approval as an assistant sees it. It has no token: deciding needs a role."""
    return {
        "id": short_id(wait.id),
        "kind": wait.kind,
        "step": step_at(wait.place),
        "prompt": brief(wait.prompt, LONGEST),
        "preview": wait.details.get("preview", {}),
        "because": list(wait.details.get("rules", [])),
        **({"who_decides": words} if (words := rule_of(wait.details).words()) else {}),
        **({"votes": votes} if (votes := votes_words(wait.details, wait.answer)) else {}),
        "link": caller.link(wait.run, wait.id),
        "command": display.command_line(f"decide {short_id(wait.id)} {'|'.join(decisions_of(wait))}"),
        "expires": wait.expires,
    }


def decisions_of(wait: WaitRow) -> tuple[str, ...]:
    if wait.kind != "approval":
        return ("repeat", "stop")
    return ("approve", *(("changes",) if rule_of(wait.details).changes else ()), "deny")


def next_call(view: RunView, host: Host, caller: Caller, activity: Activity, held_up: str = "") -> dict[str, Any]:
    """The tool to call next, with its arguments and an explanation."""
    row, waits = view.run, waits_of(view)
    run = {"execution_id": row.id}
    if activity == "interrupted":
        words = "It was interrupted and does not continue on its own. Resume it to continue where it stopped."
        return _next("resume_playbook_execution", run, words)
    if activity == "elsewhere":
        words = "No process is driving it, and it belongs to another folder or program. A person can continue it there"
        return _next("", {}, f"{words} with `{display.command_line(f'resume {row.id}')}`.")
    if activity == "running" or row.reason == "timer":
        words = f"It waits for {held_up}. Then it continues on its own." if held_up else "It continues on its own."
        return _next("get_playbook_execution", {**run, "wait_seconds": 30}, words)
    match row.status:
        case "awaiting_approval":
            words = f"Ask the person to decide at the link, then check again: {caller.link(row.id, waits[0].id if waits else '')}"
            return _next("get_playbook_execution", {**run, "wait_seconds": 30}, words)
        case "awaiting_input" if row.reason == FOR_HOST:
            return _next("next_step", run, "Take the next step and do it yourself.")
        case "awaiting_input":
            asked = {"wait_id": short_id(waits[0].id)} if len(waits) > 1 else {}
            words = "Ask the person, and pass on what they say."
            return _next("respond_to_elicitation", {**run, **asked, "response": "..."}, words)
        case "paused" if row.reason == "budget":
            code = next((str(wait.details.get("code")) for wait in waits if wait.kind == "budget"), "")
            if code == ALLOWANCE:
                words = f"{brief(waits[0].prompt)} An approver can let it continue at the link: {caller.link(row.id)}"
                return _next("get_playbook_execution", {**run, "wait_seconds": 30}, words)
            if not host.may_raise(caller, row, {"unknown_price": "money"}.get(code, code)):
                words = f"Its budget is spent. Ask the person to raise it at the link, then check again: {caller.link(row.id)}"
                return _next("get_playbook_execution", {**run, "wait_seconds": 30}, words)
            words = "Its budget is spent. Ask the person whether it may use more, and how much."
            return _next("resume_playbook_execution", {**run, "budget": _larger(code)}, words)
        case "paused" if row.reason == "secret":
            missing = next((brief(wait.prompt) for wait in waits if wait.kind == "secret"), "")
            words = f"Tell the person which secret is missing, and resume the execution once it is set: {missing}"
            return _next("resume_playbook_execution", run, words)
        case "paused" if row.reason == NEEDS:
            words = f"It waits for {in_words(row.needs)}, and then continues on its own."
            return _next("get_playbook_execution", {**run, "wait_seconds": 30}, words)
        case "paused":
            return _next("resume_playbook_execution", run, "It continues with the next step.")
        case "failed" | "cancelled" | "expired" if row.step:
            words = "This starts a new execution that keeps what was done before this step."
            return _next("restart_playbook_execution", {**run, "step": row.step}, words)
        case _:
            return _next("", {}, "Nothing is left to do.")


def _next(tool: str, arguments: dict[str, Any], words: str) -> dict[str, Any]:
    return {"tool": tool or None, "arguments": arguments, "words": words}


def _larger(code: str) -> dict[str, str]:
    return {code: "..."} if code in Budget.__struct_fields__ else {}


# --- the report as text ---

_SHOWN, _BRIEF = 2_000, 200
"""Maximum number of characters of an output and of a variable in the text; the structured content has more."""


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)


def _output_in(value: Mapping[str, Any], step: StepRow) -> str:
    """The output of a step, if it was requested."""
    found = (one for one in value["steps"] if (one["step"], one["visit"]) == (step.label, step.visit))
    return str(next((one.get("output", "") for one in found), ""))


def _is_result(output: str, result: Any) -> bool:
    """Whether an output is also the result, which is shown last."""
    return result is not None and output in (result, _as_text(result))


def _lines(view: RunView, value: Mapping[str, Any], marking: Marking, activity: Activity) -> Iterator[str]:
    row = view.run
    held_up = value.get("waits_for", "")
    status = display.status_of(row, view.waits, interrupted=activity in NOT_DRIVEN, waits_for=held_up)
    yield f"Execution {row.id}: {status}, {display.steps_words(row)}."
    if value.get("note"):
        yield str(value["note"])
    if row.error is not None:
        yield f"Error ({one_line(row.error.code)}):\n{marking.data(brief(str(row.error)))}"
    for step in view.steps[-_MOST_STEPS:] if "steps" in value else ():
        yield f"step {one_line(step.label)}: {step.status}{':' if step.reason else ''}"
        if step.reason:
            yield marking.data(brief(step.reason))
        if (output := _output_in(value, step)) and not _is_result(output, value["result"]):
            yield f"Its output:\n{marking.data(brief(output, _SHOWN))}"
    for call in value.get("calls", ()):
        spent = "" if call["seconds"] is None else f" in {display.duration(call['seconds'])}"
        kind = "Arguments (not a JSON object)" if call.get("malformed") else "Arguments"
        yield f"Tool call in step {one_line(call['step'])}: {one_line(call['tool'])}, {call['status']}{spent}."
        yield f"{kind}:\n{marking.data(call['arguments'])}"
        if call["result"] is not None:
            yield f"Result:\n{marking.data(call['result'])}"
    for plan in value.get("plans", ()):
        items = "\n".join(f"{item['status']}: {item['text']}" for item in plan["items"])
        yield f"Plan of step {one_line(plan['step'])}:\n{marking.data(items)}"
    if value.get("variables"):
        named = (f"{name} = {brief(_as_text(one), _BRIEF)}" for name, one in value["variables"].items())
        yield f"Variables:\n{marking.data(chr(10).join(named))}"
    for one in value.get("files", ()):
        described = f"{display.size_words(one['size'])}, SHA-256 {one['digest']}"
        yield f"File {one_line(one['name'])} of step {one_line(one['step'])}: {described}.\nDownload it at {one['download']} or with `{one['command']}`."
    if value.get("more_files"):
        yield f"{value['more_files']} more files are not listed here."
    for label in sorted(view.incomplete):
        yield f"The output of step {one_line(label)} is incomplete: it exceeded its limit, and the rest was not kept."
    if value["elicitation"] is not None:
        asked = value["elicitation"]
        yield f"Step {one_line(asked['step'])} asks ({asked['type']}):\n{marking.data(asked['prompt'])}"
        if asked["options"]:
            yield f"Options:\n{marking.data(chr(10).join(asked['options']))}"
        if asked["default"] is not None:
            yield f"Default:\n{marking.data(asked['default'])}"
    if value["approval"] is not None:
        wanted = value["approval"]
        shown = "\n".join([wanted["prompt"], *display.preview_lines(wanted["preview"])])
        decision = f"Step {one_line(wanted['step'])} needs a person's decision ({wanted['id']})"
        yield f"{decision}:\n{marking.data(brief(shown, LONGEST))}"
        yield f"A person decides at {wanted['link']} or with `{wanted['command']}`. You cannot."
    result = value["result"]
    if result is not None:
        text = result if isinstance(result, str) else as_json(result)
        yield f"{'Result' if row.status == 'completed' else 'Output so far'}:\n{marking.data(text)}"
    yield marking.note
    following = value["next"]
    arguments = json.dumps(following["arguments"], ensure_ascii=False)
    call = f"Next: {following['tool']} {arguments}. " if following["tool"] else ""
    yield f"{call}{following['words']}"
