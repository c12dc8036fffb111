"""Converts an outcome to a step's result and checks it against the output contract. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Cli, ExitCode, HttpStatus, Llm, Output, Step, references_of
from cuebook.dialects.pipeline.run.postconditions import check, evidence_of
from cuebook.dialects.pipeline.run.results import Facts, Result, written
from cuebook.formats.schema import Draft, mismatches
from cuebook.kernel.context import Text
from cuebook.kernel.outcomes import AnyOutcome, CommandResult, Failed, HttpResponse, Page, ToolResult

VIOLATED = "output_contract"
"""Failure code for an output that breaks its contract."""

DRAFT: Draft = "2019-09"
"""Default draft of JSON Schema."""

_BARRED = ("Read-only file system", "Permission denied")
"""Error messages of commands that were not allowed to write."""

_UNREACHED = ("Could not resolve host", "Network is unreachable", "Temporary failure in name resolution")
"""Error messages of commands that had no network."""

_SAID = 500
"""The maximum number of characters of error output in a message."""


def read(step: Step, outcome: AnyOutcome) -> Result:
    """The result of the step's effect; failed if its outcome is a failure."""
    is_text = step.output is not None and step.output.type == "text"
    may_be_cut = step.output is not None and step.output.may_be_cut
    match outcome:
        case CommandResult():
            facts = Facts(
                is_text,
                outcome.truncated,
                outcome.replaced,
                size=outcome.size,
                exit_code=outcome.exit_code,
                may_be_cut=may_be_cut,
                stderr=str(outcome.stderr),
                stderr_cut=outcome.stderr_truncated,
                files={one.name: one for one in outcome.files},
            )
            result = Result(outcome.stdout, facts)
            return (
                result if outcome.exit_code == 0 or _names_exit(step, outcome) else result.failing(_exit(step, outcome))
            )
        case HttpResponse():
            facts = Facts(
                is_text,
                outcome.truncated,
                outcome.replaced,
                size=outcome.size,
                status=outcome.status,
                may_be_cut=may_be_cut,
                headers={name.lower(): value for name, value in outcome.headers.items()},
                files={one.name: one for one in outcome.files},
            )
            result = Result(outcome.body, facts)
            result.html = "html" in _header(outcome, "content-type")
            return result.failing(_refused(outcome)) if outcome.status >= 400 and not _names_status(step) else result
        case Page():
            facts = Facts(
                is_text,
                outcome.truncated,
                size=outcome.size,
                status=outcome.status,
                files={one.name: one for one in outcome.files},
            )
            result = Result(outcome.text, facts)
            result.page = outcome
            failing = (outcome.status or 0) >= 400 and not _names_status(step)
            return result.failing(_refused_page(outcome)) if failing else result
        case ToolResult():
            facts = Facts(is_text, outcome.kept is not None, size=outcome.size, may_be_cut=may_be_cut)
            result = Result(Text(written(outcome.value)[: outcome.kept]), facts)
            if outcome.is_error:
                return result.failing(Failed("tool_error", f"The tool failed: {_short(str(result.text))}"))
            return result
        case _:
            raise TypeError(f"unexpected outcome of {step.namespace}: {type(outcome).__name__}")


def broken_off(step: Step, failed: Failed, seq: int | None) -> Result:
    """The result of an effect that failed, with the output before the failure."""
    printed = failed.details.get("stdout", "")
    is_text = step.output is not None and step.output.type == "text"
    truncated, replaced, approved = (bool(failed.details.get(name)) for name in ("truncated", "replaced", "approved"))
    size = int(failed.details.get("size") or 0)
    may_be_cut = step.output is not None and step.output.may_be_cut
    stderr = failed.details.get("stderr", "")
    facts = Facts(
        is_text,
        truncated,
        replaced,
        size=size,
        approved=approved,
        may_be_cut=may_be_cut,
        stderr=stderr if isinstance(stderr, str) else "",
    )
    return Result(Text(printed if isinstance(printed, str) else ""), facts).failing(failed, seq)


def _exit(step: Step, outcome: CommandResult) -> Failed:
    said = _short(str(outcome.stderr)) or _short(str(outcome.stdout))
    how = f"killed by {outcome.signal}" if outcome.signal else f"exit code {outcome.exit_code}"
    barred = step.reads_only and any(words in f"{outcome.stderr}{outcome.stdout}" for words in _BARRED)
    fix = ""
    if barred:
        fix = "The step has `effect: read`, so its command cannot change anything: remove that if it should."
    elif _wants_network(step, f"{outcome.stderr}{outcome.stdout}"):
        fix = "Commands have no network access: list the hosts that it needs in `network`, or use an `http` step."
    return Failed("exit_code", f"The command failed ({how}){f': {said}' if said else '.'}", fix)


def _wants_network(step: Step, said: str) -> bool:
    """Whether a command may have failed for lack of network access."""
    program = step.action.argv[0].parts if isinstance(step.action, Cli) and step.action.argv else ()
    if step.network:
        return False
    return program[:1] in (("curl",), ("wget",)) or any(words in said for words in _UNREACHED)


def _refused(outcome: HttpResponse) -> Failed:
    said = _short(str(outcome.body))
    return Failed(
        "http_status",
        f"The server answered with status {outcome.status}{f': {said}' if said else '.'}",
        "If this status is expected, add a postcondition of type http_status for it.",
        details={"status": outcome.status},
    )


def _refused_page(outcome: Page) -> Failed:
    return Failed(
        "http_status",
        f"{outcome.url} answered with status {outcome.status}.",
        "If this status is expected, add a postcondition of type http_status for it.",
        details={"status": outcome.status},
    )


def _names_exit(step: Step, outcome: CommandResult) -> bool:
    """Whether a postcondition checks the exit code and so decides what counts as a failure."""
    found = step.postcondition.assertions if step.postcondition is not None else ()
    return not outcome.signal and any(isinstance(one, ExitCode) for one in found)


def _names_status(step: Step) -> bool:
    """Whether a postcondition checks the status and so decides what counts as a failure."""
    found = step.postcondition.assertions if step.postcondition is not None else ()
    return any(isinstance(one, HttpStatus) for one in found)


def _header(outcome: HttpResponse, name: str) -> str:
    return next((value for key, value in outcome.headers.items() if key.lower() == name), "").lower()


def _short(text: str) -> str:
    """The last lines that fit into a message, or the end of a line that is too long."""
    text = text.strip()
    if len(text) <= _SAID:
        return text
    last = text[-_SAID:]
    return f"…\n{last.partition(chr(10))[2]}" if "\n" in last else f"…{last}"


# --- the contract ---


def violations(output: Output | None, result: Result) -> list[str]:
    """How a result breaks its contract; empty if it does not, or if there is no contract."""
    if output is None or output.type == "text":
        return []
    try:
        value = result.json()
    except ValueError as why:
        return [f"it is not JSON: {why}"]
    return [] if output.schema is None else mismatches(output.schema, value, DRAFT, most=None)


def broken(step: Step, outcome: AnyOutcome) -> str:
    """How an outcome breaks the step's contract or postcondition, as a clause. An outcome that is a failure breaks neither."""
    if isinstance(outcome, Failed) or isinstance(
        step.action, Llm
    ):  # the contract of an llm step is about the reply, not about one tool
        return ""
    result = read(step, outcome)
    if result.failed is not None:
        return ""
    problems = violations(step.output, result)
    if problems or step.postcondition is None:
        return "; ".join(problems)
    # What it compares with earlier steps is checked once the step has its result.
    plain = tuple(one for one in step.postcondition.assertions if not references_of(one))
    report = check(msgspec.structs.replace(step.postcondition, assertions=plain), evidence_of(result))
    return report.words if report.verdict == "failed" else ""


def violated(problems: list[str]) -> Failed:
    message = f"Output contract violated: {'; '.join(problems)}"
    return Failed(VIOLATED, message, "Correct the output or its contract.")


def evidence(problems: list[str], result: Result) -> dict[str, Any]:
    """The evidence of a broken contract, with the value if there is one."""
    return {"problems": problems, **({"value": result.json()} if result.has_json() else {})}
