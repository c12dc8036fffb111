"""Evaluators, which check the result of a node by its data, its tool calls, or a judge.

All evaluators run, and judges are called in parallel. A judge whose reply has no verdict is called once more, and then
counts as failed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects.graph.model import Evaluator, Node, Rule, Workflow
from cuebook.dialects.graph.paths import missing, unmatched
from cuebook.dialects.graph.run.replies import found_in
from cuebook.dialects.graph.run.results import Result, Verdict, encoded
from cuebook.dialects.graph.run.tools import plain_name
from cuebook.kernel.context import ToolCall
from cuebook.kernel.effects import All, AskModel, Program
from cuebook.kernel.outcomes import Failed, Reply, ToolResult
from cuebook.kernel.run import HOST

Calls = Sequence[tuple[ToolCall, ToolResult]]

_VERDICT = re.compile(r"^[ \t\"'*`>#{-]*verdict[\"'*` \t]*:[\"'*` \t]*([^\s\"'*`,}]+)", re.IGNORECASE | re.MULTILINE)
_REASONING = re.compile(r"reasoning[\"'*\s]*:\s*(.*)", re.IGNORECASE | re.DOTALL)
_UNREADABLE = "judge parse failure: the reply had no VERDICT line, or several that differ"
_PREVIEW = 200


def evaluate(workflow: Workflow, node: Node, result: Result) -> Program[list[Verdict]]:
    """The verdicts of all evaluators on a successful result."""
    judges = {number: one for number, one in enumerate(node.eval) if one.kind == "judge"}
    judged = (yield from _judge(workflow, node, judges, result)) if judges else {}
    return [judged[number] if number in judged else _checked(one, result) for number, one in enumerate(node.eval)]


def error_of(verdicts: Sequence[Verdict]) -> str:
    """The failed verdicts, one per line; empty if all passed."""
    failed = [f"  - {verdict}" for verdict in verdicts if not verdict.passed]
    return "\n".join(("eval failed (policy: all_pass):", *failed)) if failed else ""


def _checked(evaluator: Evaluator, result: Result) -> Verdict:
    if evaluator.kind == "value":
        problems = _of_value(evaluator.rule, result.data)
    else:
        problems = _of_function(evaluator.rule, result.calls)
    return Verdict(evaluator.name, evaluator.kind, not problems, "; ".join(problems))


def _of_value(rule: Rule, data: dict[str, Any]) -> list[str]:
    return [said for said in (missing(rule.output_required, data), unmatched(rule.output_matches, data)) if said]


# --- tool calls ---------------------------------------------------------------------------------


def _of_function(rule: Rule, calls: Calls) -> list[str]:
    """The problems with the tool calls. Only successful calls count, except for `no_tool_called`, where any call counts."""
    tried = {plain_name(call.name) for call, _ in calls}
    done = {plain_name(call.name) for call, result in calls if succeeded(result)}
    called = f"called: [{', '.join(call.name for call, _ in calls) or 'none'}]"
    problems = []
    if rule.any_tool_called and not any(plain_name(name) in done for name in rule.any_tool_called):
        problems.append(f"any_tool_called: required one of [{', '.join(rule.any_tool_called)}] to succeed, {called}")
    absent = [name for name in rule.all_tools_called if plain_name(name) not in done]
    if absent:
        problems.append(f"all_tools_called: no successful call to [{', '.join(absent)}], {called}")
    found = [name for name in rule.no_tool_called if plain_name(name) in tried]
    if found:
        problems.append(f"no_tool_called: [{', '.join(found)}] must not be called, {called}")
    return problems


def succeeded(result: ToolResult) -> bool:
    """Whether a tool call succeeded. A result that is an object with an `error` is a failure too."""
    if result.is_error:
        return False
    error = result.value.get("error") if isinstance(result.value, dict) else None
    return error is None or error is False


# --- judges -------------------------------------------------------------------------------------------------


def _judge(
    workflow: Workflow, node: Node, judges: Mapping[int, Evaluator], result: Result
) -> Program[dict[int, Verdict]]:
    verdicts: dict[int, Verdict] = {}
    unheard: dict[int, str] = {}
    asks = {
        number: AskModel(_question(judge, result), model=_model(workflow, node, judge), judges=True)
        for number, judge in judges.items()
    }
    for _ in range(2):
        left = [number for number in asks if number not in verdicts]
        if not left:
            break
        replies: tuple[Reply | Failed, ...] = yield All(tuple(asks[number] for number in left))
        for number, reply in zip(left, replies, strict=True):
            verdict = _heard(judges[number], reply)
            if verdict is not None:
                verdicts[number] = verdict
            unheard[number] = f"the judge could not be asked: {reply}" if isinstance(reply, Failed) else _UNREADABLE
    return {
        number: verdicts.get(number) or Verdict(judge.name, "judge", False, unheard[number])
        for number, judge in judges.items()
    }


def _heard(judge: Evaluator, reply: Reply | Failed) -> Verdict | None:
    if isinstance(reply, Failed):
        return None
    text = reply.text
    found = {said.rstrip(".").casefold() for said in [*_VERDICT.findall(text), *_in_json(text)]}
    if len(found) != 1:
        return None
    reasoning = _REASONING.search(text)
    said = reasoning[1].strip().strip('"}').strip() if reasoning is not None else ""
    return Verdict(judge.name, "judge", found == {judge.pass_when.casefold()}, said, reply.model == HOST)


def _in_json(text: str) -> list[str]:
    """The verdict in a reply that begins with JSON. JSON after other text may be a quotation."""
    value = found_in(text) if text.lstrip().startswith(("{", "```")) else None
    return [str(value["verdict"])] if isinstance(value, dict) and "verdict" in value else []


def _model(workflow: Workflow, node: Node, judge: Evaluator) -> str | None:
    return judge.model or node.judge_model or workflow.judge_model or node.model or workflow.model or None


def _question(judge: Evaluator, result: Result) -> str:
    against = "no" if judge.pass_when.casefold() == "yes" else f"not_{judge.pass_when}"
    data = msgspec.json.format(encoded(result.data), indent=2)
    return f"""You judge the result of one step of a workflow. Read the rubric, the step's data and the tools it called, and \
decide whether the result satisfies the rubric.

## Rubric

{judge.rubric}

## Data of the step

```json
{data}
```

## Tool calls

{call_lines(result.calls, _PREVIEW)}

## Your answer

Exactly two lines, and nothing else:

VERDICT: <{judge.pass_when}|{against}>
REASONING: <at most three sentences>

Where the rubric does not apply to this result, the verdict is {judge.pass_when}."""


def call_lines(calls: Calls, preview: int = 0) -> str:
    """The tool calls, one per line, with the first `preview` characters of input and output."""
    lines = []
    for call, result in calls:
        line = f"- {call.name} ({'ok' if succeeded(result) else 'error'})"
        if preview:
            line += f" input={_cut(call.arguments, preview)} output={_cut(result.value, preview)}"
        lines.append(line)
    return "\n".join(lines) or "(no tools were called)"


def _cut(value: Any, most: int) -> str:
    text = encoded(value)
    return text if len(text) <= most else f"{text[:most]}…"
