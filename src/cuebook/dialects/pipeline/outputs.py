"""From an outcome to a step's result, and what its output contract says of it. Pure."""

from __future__ import annotations

from typing import Any

from cuebook.dialects.pipeline.model import Cli, HttpStatus, Llm, Output, Step
from cuebook.dialects.pipeline.postconditions import check, evidence_of
from cuebook.dialects.pipeline.results import Facts, Result, written
from cuebook.dialects.schemas import Draft, mismatches
from cuebook.kernel.context import Text
from cuebook.kernel.outcomes import AnyOutcome, CommandResult, Failed, HttpResponse, ToolResult

VIOLATED = "output_contract"
"""The code of a failure for an output that breaks its contract."""

DRAFT: Draft = "2019-09"
"""Of JSON Schema, where a schema names none itself."""

_BARRED = ("Read-only file system", "Permission denied")
"""What commands say that were kept from writing."""

_UNREACHED = ("Could not resolve host", "Network is unreachable", "Temporary failure in name resolution")
"""What commands say that were kept from the network."""

_SAID = 500
"""Characters of an error output that are told."""


def read(step: Step, outcome: AnyOutcome) -> Result:
    """What came of the step's effect, failed where its outcome says so."""
    is_text = step.output is not None and step.output.type == "text"
    match outcome:
        case CommandResult():
            facts = Facts(is_text, outcome.truncated, outcome.replaced, size=outcome.size, exit_code=outcome.exit_code)
            result = Result(outcome.stdout, facts)
            return result if outcome.exit_code == 0 else result.failing(_exit(step, outcome))
        case HttpResponse():
            facts = Facts(is_text, outcome.truncated, outcome.replaced, size=outcome.size, status=outcome.status)
            result = Result(outcome.body, facts)
            result.html = "html" in _header(outcome, "content-type")
            return result.failing(_refused(outcome)) if outcome.status >= 400 and not _names_status(step) else result
        case ToolResult():
            facts = Facts(is_text, outcome.kept is not None, size=outcome.size)
            result = Result(Text(written(outcome.value)[: outcome.kept]), facts)
            if outcome.is_error:
                return result.failing(Failed("tool_error", f"The tool failed: {_short(str(result.text))}"))
            return result
        case _:
            raise TypeError(f"a step of {step.namespace} gave a {type(outcome).__name__}")


def broken_off(step: Step, failed: Failed, seq: int | None) -> Result:
    """The result of an effect that failed: with what it had given until then."""
    printed = failed.details.get("stdout", "")
    is_text = step.output is not None and step.output.type == "text"
    truncated, replaced, approved = (bool(failed.details.get(name)) for name in ("truncated", "replaced", "approved"))
    size = int(failed.details.get("size") or 0)
    facts = Facts(is_text, truncated, replaced, size=size, approved=approved)
    return Result(Text(printed if isinstance(printed, str) else ""), facts).failing(failed, seq)


def _exit(step: Step, outcome: CommandResult) -> Failed:
    said = _short(str(outcome.stderr)) or _short(str(outcome.stdout))
    how = f"ended by {outcome.signal}" if outcome.signal else f"exit code {outcome.exit_code}"
    barred = step.reads_only and any(words in f"{outcome.stderr}{outcome.stdout}" for words in _BARRED)
    fix = ""
    if barred:
        fix = "The step says `effect: read`, so its command can change nothing: leave that out if it should."
    elif _wants_network(step, f"{outcome.stderr}{outcome.stdout}"):
        fix = "A command has no network: send requests by a step of `http`."
    return Failed("exit_code", f"The command failed ({how}){f': {said}' if said else '.'}", fix)


def _wants_network(step: Step, said: str) -> bool:
    """Whether a command may have failed because it could reach nobody."""
    program = step.action.argv[0].parts if isinstance(step.action, Cli) and step.action.argv else ()
    return program[:1] in (("curl",), ("wget",)) or any(words in said for words in _UNREACHED)


def _refused(outcome: HttpResponse) -> Failed:
    said = _short(str(outcome.body))
    return Failed(
        "http_status",
        f"The server answered with status {outcome.status}{f': {said}' if said else '.'}",
        "Where this status is expected, name it in a postcondition of the type http_status.",
        details={"status": outcome.status},
    )


def _names_status(step: Step) -> bool:
    """Whether a postcondition says which status is right: then it decides, not the number."""
    found = step.postcondition.assertions if step.postcondition is not None else ()
    return any(isinstance(one, HttpStatus) for one in found)


def _header(outcome: HttpResponse, name: str) -> str:
    return next((value for key, value in outcome.headers.items() if key.lower() == name), "").lower()


def _short(text: str) -> str:
    """Its last lines: as many as are told, or the end of one that is too long."""
    text = text.strip()
    if len(text) <= _SAID:
        return text
    last = text[-_SAID:]
    return f"…\n{last.partition(chr(10))[2]}" if "\n" in last else f"…{last}"


# --- the contract ---


def violations(output: Output | None, result: Result) -> list[str]:
    """How a result breaks its contract; empty where it does not, or where there is none."""
    if output is None or output.type == "text":
        return []
    try:
        value = result.json()
    except ValueError as why:
        return [f"it is not JSON: {why}"]
    return [] if output.schema is None else mismatches(output.schema, value, DRAFT, most=None)


def broken(step: Step, outcome: AnyOutcome) -> str:
    """How an outcome breaks the step's contract or its postcondition, as a clause. One that says of itself that the step
    has failed breaks nothing: it promises nothing.
    """
    if isinstance(outcome, Failed) or isinstance(step.action, Llm):  # of a model's tool, which promises nothing
        return ""
    result = read(step, outcome)
    if result.failed is not None:
        return ""
    problems = violations(step.output, result)
    if problems or step.postcondition is None:
        return "; ".join(problems)
    report = check(step.postcondition, evidence_of(result))
    return report.words if report.verdict == "failed" else ""


def violated(problems: list[str]) -> Failed:
    message = f"Output contract violated: {'; '.join(problems)}"
    return Failed(VIOLATED, message, "Mend what gives the output, or its contract.")


def evidence(problems: list[str], result: Result) -> dict[str, Any]:
    """What is noted of a broken contract: with the value, where there is one."""
    return {"problems": problems, **({"value": result.json()} if result.has_json() else {})}
