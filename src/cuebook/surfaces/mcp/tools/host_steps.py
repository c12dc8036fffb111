"""The tools with which an assistant does the steps of a run itself (`model_id: host`): take a step, use its tools, complete it.

Order, checks and approvals stay with Cuebook: an assistant gets only the step that is next, and its tools are called by the run.
"""

from __future__ import annotations

from typing import Any

from mcp_types import CallToolResult, ImageContent, InputRequiredResult

from cuebook.kernel.context import Attachment
from cuebook.kernel.errors import Leased, Refused
from cuebook.kernel.events import FOR_HOST
from cuebook.kernel.journal import Place, step_at
from cuebook.kernel.run import RunRow
from cuebook.service.host_steps import Completion, HostStep
from cuebook.service.runs.views import Sent
from cuebook.surfaces import display
from cuebook.surfaces.mcp.elicitation import attend, continue_call
from cuebook.surfaces.mcp.progress import Progress, follow
from cuebook.surfaces.mcp.run_report import text_result
from cuebook.surfaces.mcp.tools.runs import run_to_continue
from cuebook.surfaces.mcp.tools.schemas import CallStepTool, CompleteStep, NextStep
from cuebook.surfaces.mcp.tools.tool import RUNS, Answer, Call, Offered
from cuebook.surfaces.mcp.untrusted_text import ALL, LONGEST, Marking, as_json, brief, fitted, one_line

_PAGE = 20_000
"""Characters of the context in one answer."""
UNTRUSTED = ("context", "results", "title", "refused")
"""Fields of a step that are data. The instruction is the playbook's."""


async def next_step(call: Call, given: NextStep) -> Answer:
    again = await continue_call(call, given.wait_seconds)
    if again is not None:
        return again
    host = call.host
    row = await run_to_continue(call, given.execution_id)
    if await host.service.is_due(row.id):
        await host.worker.take(row.id)
    elif await host.service.host_steps.open(row.id):
        return await _given(call, row, given.claim_id, given.offset)
    row, _ = await follow(host, row.id, Progress(call.ctx.session.report_progress), given.wait_seconds)
    if await host.service.host_steps.open(row.id):
        return await _given(call, row, given.claim_id, given.offset)
    return await attend(call, row.id, given.wait_seconds)


async def complete_step(call: Call, given: CompleteStep) -> Answer:
    again = await continue_call(call, given.wait_seconds)
    if again is not None:
        return again
    host, who = call.host, call.caller.principal
    row = await run_to_continue(call, given.execution_id)
    done = await host.service.host_steps.complete(row, given.claim_id, given.result, who)
    if done.refused and done.left:
        return _refusal(row, given.claim_id, done)
    await host.worker.take(row.id)
    answer = await attend(call, row.id, given.wait_seconds)
    if isinstance(answer, InputRequiredResult):
        return answer
    return await _completion(call, row, done, answer)


async def call_step_tool(call: Call, given: CallStepTool) -> Answer:
    again = await continue_call(call, given.wait_seconds)
    if again is not None:
        return again
    host, who = call.host, call.caller.principal
    row = await run_to_continue(call, given.execution_id)
    done = await host.service.host_steps.call(row, given.claim_id, given.tool, given.arguments, who)
    await host.worker.take(row.id)
    answer = await attend(call, row.id, given.wait_seconds)
    if isinstance(answer, InputRequiredResult):
        return answer
    row = await host.service.row(row.id)
    try:
        return _step_result(call, row, await _take(call, row, "", done.wait.place), whole=False)
    except Refused:  # it waits for a person, has ended, or another assistant was faster
        return answer


async def _given(call: Call, row: RunRow, claim: str, offset: int) -> CallToolResult:
    return _step_result(call, row, await _take(call, row, claim), offset=offset)


async def _take(call: Call, row: RunRow, claim: str, at: Place | None = None) -> HostStep:
    """Take a step. A connection that already has one gets it again, even if it does not repeat its claim."""
    service, who = call.host.service, call.caller.principal
    own = call.host.claims_of(call.caller, call.ctx.session)
    if not claim:
        waits = [wait for wait in await service.host_steps.open(row.id) if at is None or _same_step(wait.place, at)]
        claim = next((own[wait.id] for wait in waits if wait.id in own), "")
    try:
        step = await service.host_steps.take(row, who, claim, at)
    except Leased:
        if not claim or claim not in own.values():
            raise
        step = await service.host_steps.take(row, who, at=at)  # another assistant had taken it over
    own[step.wait.id] = step.claim
    return step


def _same_step(one: Place, other: Place) -> bool:
    return one.key[:3] == other.key[:3]


# --- answers ---


def _step_result(call: Call, row: RunRow, step: HostStep, *, offset: int = 0, whole: bool = True) -> CallToolResult:
    """A step with everything that is needed to do it; without `whole`, only what is new since the last call: the results, and
    the instruction if there is another one.
    """
    instruction, context = _parts(step)
    answers = [one for one in step.latest if one.role == "tool"]
    value: dict[str, Any] = {
        "execution_id": row.id,
        "status": row.status,
        "step": step_at(step.wait.place),
        "claim_id": step.claim,
        "until": step.until,
        "expires": step.wait.expires,
        "results": [brief(_result(one), LONGEST, "the rest was not kept") for one in answers],
        "refused": list(step.refused),
        "refusals_left": step.left,
        "link": call.caller.link(row.id),
    }
    if whole:
        page = context[offset : offset + _PAGE]
        more = offset + len(page)
        value |= {"context": page, "next_offset": more if more < len(context) else None}
    if whole or any(one.role == "user" for one in step.latest):
        value |= {
            "instruction": brief(instruction, LONGEST),
            "schema": step.schema,
            "tools": [
                {"name": one.name, "description": one.description, "parameters": one.parameters} for one in step.tools
            ],
        }
    arguments = {"execution_id": row.id, "claim_id": step.claim}
    words = "Do this step yourself, then complete it with its result."
    if step.tools:
        words += " Use its tools only through call_step_tool."
    elif not whole:
        words = "You cannot call tools in this step any more. Complete it with its result."
    value["next"] = {"tool": "complete_step", "arguments": {**arguments, "result": "..."}, "words": words}
    value["untrusted"] = list(UNTRUSTED)
    answer = text_result("\n".join(_lines(value, Marking())), fitted(value, 2 * ALL))
    images = [file for one in answers for file in one.files if _is_image(file)]
    answer.content += [ImageContent(type="image", data=str(one.data), mime_type=one.media_type) for one in images]
    return answer


def _is_image(file: Attachment) -> bool:
    return file.media_type.startswith("image/")


def _result(answer: Sent) -> str:
    """The text of a tool's result. Its images follow as content of their own; other files cannot be sent."""
    left = [file.name or "the file" for file in answer.files if not _is_image(file)]
    notes = [
        f"[{name} cannot be sent to an assistant. Extract its text with a command, such as `pdftotext {name} -`, or work"
        " without it.]"
        for name in left
    ]
    return "\n".join([answer.text, *notes])


def _parts(step: HostStep) -> tuple[str, str]:
    """The instruction, and everything else that a model would get, as text."""
    before = len(step.messages) - len(step.latest)
    messages = [*step.messages[:before], *(one for one in step.latest if one.role != "tool")]
    last = max((number for number, one in enumerate(messages) if one.role == "user"), default=-1)
    others = [one for number, one in enumerate(messages) if number != last and one.text]
    return messages[last].text if last >= 0 else "", "\n\n".join(f"[{one.role}]\n{one.text}" for one in others)


def _lines(value: dict[str, Any], marking: Marking) -> list[str]:
    kept = f"kept for you until {display.moment(value['until'])}"
    lines = [
        f"Step {one_line(value['step'])} of execution {value['execution_id']}, {kept}, under claim_id {value['claim_id']}"
    ]
    if value["results"]:
        lines += ["Results of your calls:", *(marking.data(one) for one in value["results"])]
    if value.get("context"):
        more = value["next_offset"]
        rest = f" (continues: call next_step with this claim_id and offset {more})" if more else ""
        lines += [f"Context{rest}:", marking.data(value["context"])]
    if value.get("instruction"):
        lines += ["Instruction:", value["instruction"]]
    if value.get("schema") is not None:
        lines += ["The result must be JSON that follows this schema:", as_json(value["schema"])]
    if value.get("tools"):
        lines += ["Tools of this step, for call_step_tool:", as_json(value["tools"])]
    if value["refused"]:
        lines += ["Refused so far:", marking.data("\n".join(value["refused"]))]
    following = value["next"]
    return [*lines, marking.note, f"Next: {following['tool']} {as_json(following['arguments'])}. {following['words']}"]


def _refusal(row: RunRow, claim: str, done: Completion) -> CallToolResult:
    """The answer to a result that does not fit. The step stays with the assistant."""
    arguments = {"execution_id": row.id, "claim_id": claim, "result": "..."}
    value = {
        "execution_id": row.id,
        "step": step_at(done.wait.place),
        "claim_id": claim,
        "accepted": False,
        "refused": [done.refused],
        "refusals_left": done.left,
        "next": {"tool": "complete_step", "arguments": arguments, "words": "Correct the result and send it again."},
    }
    words = (
        f"Refused: {one_line(done.refused, 1000)}. It may be refused {done.left} more times. Send it again, corrected."
    )
    return text_result(words, value, wrong=True)


async def _completion(call: Call, row: RunRow, done: Completion, answer: CallToolResult) -> CallToolResult:
    """What became of a completed step, and of its run: briefly if the next step can be taken."""
    service = call.host.service
    step = step_at(done.wait.place)
    refused = [done.refused] if done.refused else await service.host_steps.refused_since(row, done.wait.id)
    row = await service.row(row.id)
    value: dict[str, Any] = {"step": step, "accepted": not refused, "repeated": done.repeated, "refused": refused}
    words = _words(one_line(step), value)
    if row.status == "awaiting_input" and row.reason == FOR_HOST:
        following = "The step's checks say what is missing: take it again." if refused else "Take the next step."
        value |= {
            "execution_id": row.id,
            "status": row.status,
            "next": {"tool": "next_step", "arguments": {"execution_id": row.id}, "words": following},
            "untrusted": ["refused"],
        }
        return text_result(f"{words}\nNext: next_step {as_json({'execution_id': row.id})}. {following}", value)
    answer.content = [*text_result(words).content, *answer.content]
    answer.structured_content = {**(answer.structured_content or {}), **value}
    return answer


def _words(step: str, value: dict[str, Any]) -> str:
    if value["repeated"]:
        return f"Step {step} was already completed with this claim; the first result counts."
    if value["refused"]:
        return f"Step {step} was not accepted:\n{Marking().alone(chr(10).join(value['refused']))}"
    return f"Step {step} was completed."


TOOLS: tuple[Offered, ...] = (
    Offered(
        "next_step",
        "Take the next step",
        "For an execution that runs with model_id host: takes its next step for you to do. Returns the instruction, its context,"
        " the schema of the result and the tools that you may use in this step. The step is kept for you for some minutes; each"
        " call with its claim_id renews that.",
        NextStep,
        next_step,
        "runner",
        RUNS,
    ),
    Offered(
        "complete_step",
        "Complete a step",
        "Completes the step that you took with next_step. The result is checked; if it does not fit, it is refused with the"
        " reason, and you send it again. Repeating a call with the same claim_id changes nothing.",
        CompleteStep,
        complete_step,
        "runner",
        RUNS,
    ),
    Offered(
        "call_step_tool",
        "Use a tool in a step",
        "Calls one of the tools of the step that you took, and returns its result and a new claim_id. The execution makes the"
        " call: its policy applies, and a person may have to approve it first.",
        CallStepTool,
        call_step_tool,
        "runner",
        RUNS,
    ),
)
