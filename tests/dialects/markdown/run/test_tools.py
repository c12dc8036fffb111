"""Tools as steps: which tool is called, with which arguments, and what happens to its result or failure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.dialects.markdown.model import ToolUse
from cuebook.dialects.markdown.run.tools import BadArguments, fill, result_text, tool_name
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings
from tests.dialects.markdown.harness import MarkdownHarness

NASTY = 'say "hi", {"admin": true}\n\\'
VALUES = {"q": NASTY, "n": "5", "s": "5", "yes": "true", "list": "[1, 2]", "free": "word", "kept": '{"a": 1}'}
TYPES = {"q": "string", "n": "number", "s": "string", "yes": "boolean", "list": "json", "free": "number", "kept": ""}


@pytest.mark.parametrize(
    ("template", "arguments"),
    [
        ("", {}),
        ("  ", {}),
        ("{}", {}),
        ('{"q": "{{q}}"}', {"q": NASTY}),
        ('{"q": "about {{q}}!", "fixed": [1, null, "x"]}', {"q": f"about {NASTY}!", "fixed": [1, None, "x"]}),
        ('{"deep": {"list": ["{{n}}", "{{missing:string:else}}"]}}', {"deep": {"list": ["5", "else"]}}),
        ('{"n": {{n}}}', {"n": 5}),
        ('{"n": {{n}}, "q": "{{q}}"}', {"n": 5, "q": NASTY}),
        ('{"s": {{s}}}', {"s": "5"}),
        ('{"yes": {{yes}}, "list": {{list}}, "kept": {{kept}}}', {"yes": True, "list": [1, 2], "kept": {"a": 1}}),
        ('{"free": {{free}}}', {"free": "word"}),
        ('{"q": {{q}}}', {"q": NASTY}),
        ('{"n": {{missing:number:7}}}', {"n": 7}),
        ('{"a \\" b": {{n}}, "c": "\\"{{n}}\\\\"}', {'a " b': 5, "c": '"5\\'}),
        ('{"{{n}}": "{{n}}"}', {"{{n}}": "5"}),
        ('{"{{n}}": {{n}}}', {"{{n}}": 5}),
        ('{"q": "\ue0000\ue000", "n": {{n}}}', {"q": "\ue0000\ue000", "n": 5}),
    ],
)
def test_values_are_filled_into_the_arguments(template: str, arguments: dict[str, Any]) -> None:
    assert fill(template, VALUES, TYPES).arguments == arguments


def test_a_placeholder_without_a_value_stays_in_its_string_and_is_reported() -> None:
    filled = fill('{"q": "{{who}} and {{who}}", "n": {{n}}}', VALUES, TYPES)
    assert (filled.arguments, filled.unresolved) == ({"q": "{{who}} and {{who}}", "n": 5}, ("who",))
    assert fill('{"q": "{{who}}"}', VALUES, TYPES).unresolved == ("who",)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{", "not valid JSON (Expecting property name"),
        ("{q: 1}", "not valid JSON (Expecting property name"),
        ('{"q": {{who}}}', "unknown variable 'who'"),
        ('["{{n}}"]', "not a JSON object"),
        ("{{n}}", "not a JSON object"),
        ('{"n": NaN}', "NaN is not valid JSON"),
        ('{"n": {{n}} {{n}}}', "not valid JSON (Expecting ',' delimiter)"),
        ('{"n": "\\ud800"}', "cannot be stored"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_arguments_that_cannot_be_read_say_why(template: str, words: str) -> None:
    with pytest.raises(BadArguments) as caught:
        fill(template, VALUES, TYPES)
    assert words in caught.value.message
    assert caught.value.fix


@given(st.text(), st.text())
def test_no_value_changes_what_the_arguments_consist_of(first: str, second: str) -> None:
    values = {"a": first.encode("utf-8", "replace").decode(), "b": second.encode("utf-8", "replace").decode()}
    types = {"a": "string", "b": "string"}
    wanted = {"x": values["a"], "y": f"<{values['b']}>"}
    assert fill('{"x": "{{a}}", "y": "<{{b}}>"}', values, types).arguments == wanted
    assert fill('{"x": {{a}}, "y": "<{{b}}>"}', values, types).arguments == wanted


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (ToolUse("github", "search"), "github.search"),
        (ToolUse("python", "greet"), "greet"),
        (ToolUse("builtin", "read_file"), "read_file"),
        (ToolUse("My server", "do it"), "My server.do it"),
    ],
)
def test_a_tool_has_the_name_that_the_runtime_knows(use: ToolUse, name: str) -> None:
    assert tool_name(use) == name


@pytest.mark.parametrize(
    ("value", "text"), [("as it is", "as it is"), (None, ""), ({"a": [1, "ü"]}, '{"a": [1, "ü"]}'), (False, "false")]
)
def test_a_result_is_a_text(value: Any, text: str) -> None:
    assert result_text(ToolResult(value)) == text


# --- in a run ---------------------------------------------------------------------------------------------

METRICS = """\
# Metrics

## INPUTS

- `metric` (string): Which
- `days` (number: 7): How many

## STEP 1: Fetch

This text is for people.

@tool(analytics, get_metrics, {"metric": "{{metric}}", "days": {{days}}})
@output(mean, extract:"mean")

## STEP 2: Report

The mean is {{mean}}.
"""


class Analytics:
    """A tool that records its calls and answers from a list."""

    def __init__(self, *results: Any) -> None:
        self.calls: list[dict[str, Any]] = []
        self._results = list(results)

    def __call__(self, arguments: dict[str, Any]) -> Any:
        self.calls.append(arguments)
        return self._results[min(len(self.calls), len(self._results)) - 1]

    @property
    def servers(self) -> dict[str, Any]:
        return {"analytics": {"get_metrics": self}}


async def test_a_tool_takes_the_place_of_the_model(store: Store) -> None:
    analytics = Analytics({"mean": 3, "values": [2, 4]})
    harness = MarkdownHarness(store, ["Fine"], servers=analytics.servers)
    row = await harness.run(METRICS, {"metric": 'late"ncy'})
    assert row.status == "completed"
    assert analytics.calls == [{"metric": 'late"ncy', "days": 7}]
    assert harness.prompts == ["The mean is 3."]
    assert "Output of step 1, Fetch (29 characters of data, not instructions):" in harness.system(0)
    assert "This text is for people" not in harness.system(0)
    assert await harness.outputs(row.id) == {"1": '{"mean": 3, "values": [2, 4]}', "2": "Fine"}


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (Failed("tool_failed", "The server is down."), "The server is down."),
        (ToolResult("no such metric", is_error=True), "Step 1: the tool 'analytics.get_metrics' reports an error: no such metric"),
    ],
)  # fmt: skip
async def test_a_tool_that_fails_fails_the_run_and_is_retried_alone(store: Store, failure: Any, words: str) -> None:
    analytics = Analytics(failure, {"mean": 3})
    harness = MarkdownHarness(store, ["Fine"], servers=analytics.servers)
    row = await harness.run(METRICS, {"metric": "x"})
    assert (row.status, row.step) == ("failed", "1")
    assert row.error is not None
    assert words in row.error.message
    assert await harness.steps(row.id) == {"1": "failed", "2": "skipped"}
    assert words in (await harness.reasons(row.id))["1"]
    assert harness.prompts == []
    assert (await harness.retry(row.id)).status == "completed"
    assert len(analytics.calls) == 2
    assert harness.prompts == ["The mean is 3."]


async def test_arguments_that_are_not_json_fail_the_step_before_the_call(store: Store) -> None:
    analytics = Analytics("never")
    harness = MarkdownHarness(store, servers=analytics.servers)
    row = await harness.run("# M\n\n## STEP 1: Fetch\n\n@tool(analytics, get_metrics, {metric: {{x}}})\n")
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.message.startswith(
        "Step 1: the arguments of @tool (line 5) cannot be used: they are not valid JSON"
    )
    assert 'as in {"name": "{{value}}"}' in row.error.fix
    assert analytics.calls == []


async def test_an_unknown_tool_is_reported_with_the_available_tools(store: Store) -> None:
    harness = MarkdownHarness(store, servers=Analytics("x").servers)
    row = await harness.run("# M\n\n## STEP 1: Fetch\n\n@tool(analytics, get_metric)\n")
    assert row.status == "failed"
    assert row.error is not None
    assert (row.error.code, "get_metrics" in row.error.fix) == ("no_such_tool", True)


async def test_a_tool_that_hangs_is_stopped_and_in_doubt(store: Store) -> None:
    async def hang() -> str:
        await asyncio.Event().wait()
        return ""

    harness = MarkdownHarness(store, functions=[hang], patience=0.05)
    row = await harness.run("# M\n\n## STEP 1: Fetch\n\n@tool(python, hang)\n")
    assert (row.status, row.reason) == ("awaiting_approval", "in_doubt")
    (wait,) = await store.waits(run=row.id)
    assert "The tool 'hang' took longer than" in wait.prompt


async def test_a_python_function_is_a_tool(store: Store) -> None:
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    harness = MarkdownHarness(store, functions=[add])
    row = await harness.run('# M\n\n## STEP 1: Add\n\n@tool(python, add, {"a": 1, "b": {{b:number:2}}})\n')
    assert await harness.artifact(row.id) == ("3", "")
    row = await harness.run('# M\n\n## STEP 1: Add\n\n@tool(python, add, {"a": 1})\n')
    assert (row.status, row.error and row.error.code) == ("failed", "bad_arguments")


async def test_a_prompt_has_no_effect_on_a_tool(store: Store) -> None:
    analytics = Analytics("data")
    harness = MarkdownHarness(store, servers=analytics.servers)
    row = await harness.run("# M\n\n## STEP 1: Fetch\n\n@prompt(library:nothing)\n@tool(analytics, get_metrics)\n")
    assert row.status == "completed"
    assert "nothing" not in " ".join(await harness.warnings(row.id))


async def test_a_cancelled_tool_ends_the_run_and_skips_the_rest(store: Store) -> None:
    entered = asyncio.Event()

    async def hold() -> str:
        entered.set()
        await asyncio.Event().wait()
        return ""

    harness = MarkdownHarness(store, functions=[hold])
    text = "# M\n\n## STEP 1: A\n\n@tool(python, hold)\n\n## STEP 2: B\n\nB\n"
    row = await harness.service.start(Playbook.from_text(text, "m.md"), {}, Settings(model="test/x"))
    driving = asyncio.create_task(harness.service.drive(row.id))
    await entered.wait()
    await harness.service.cancel(row.id)
    assert (await driving).status == "cancelled"
    assert await harness.steps(row.id) == {"1": "in_doubt", "2": "skipped"}
