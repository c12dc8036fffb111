"""The toolbox: finds tools, checks their arguments, inserts secrets and enforces the limits of tools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.kernel.effects import CallTool, SecretUse, ToolSpec
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Action, Call, Description, Limits
from cuebook.kernel.run import Settings
from cuebook.performers.tools.arguments import check
from cuebook.performers.tools.toolbox import SimpleTool, Tool, Toolbox
from tests.performers.tools.calls import ToolCaller, described, not_described

OPEN: dict[str, Any] = {"type": "object"}


def echo(name: str = "echo", schema: dict[str, Any] | None = None, **marks: Any) -> SimpleTool:
    async def run(arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        return ToolResult(arguments)

    return SimpleTool(ToolSpec(name, "Gives back what it gets.", OPEN if schema is None else schema), run, **marks)


def giving(value: Any) -> SimpleTool:
    async def run(arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        return ToolResult(value)

    return SimpleTool(ToolSpec("give", "", OPEN), run)


class Shelf:
    """A tool server without a process."""

    def __init__(self, *tools: Tool, failing: Failed | None = None) -> None:
        self._tools = tools
        self._failing = failing
        self.asked = 0

    async def find(self, tool: str, seconds: float | None = None) -> Tool | Failed:
        return next(one for one in self._tools if one.spec.name.endswith(f".{tool}"))

    async def tools(self) -> list[Tool] | Failed:
        self.asked += 1
        return self._failing or list(self._tools)

    async def describe(self) -> Description | Failed:
        return Description((), "List its tools")

    async def close(self) -> None:
        pass


async def test_a_tool_is_called_by_name():
    assert await ToolCaller().value(Toolbox([echo()]), "echo", {"a": 1}) == {"a": 1}


async def test_the_error_for_an_unknown_tool_lists_similar_and_available_ones():
    box = Toolbox([echo("Read"), echo("Write")], {"github": Shelf()})
    failed = await ToolCaller().failure(box, "Raed")
    assert failed.code == "no_such_tool"
    assert "Did you mean Read" in failed.fix
    assert "There are: Read, Write, github.*." in failed.fix
    assert (await not_described(box, "githup.search")).code == "no_such_tool"


def test_two_tools_of_one_name_and_names_with_dots_are_refused():
    with pytest.raises(BadInput, match="two tools named 'echo'"):
        Toolbox([echo(), echo()])
    with pytest.raises(BadInput, match="contains a dot"):
        Toolbox([echo("a.b")])


# --- what a call comes to ---


async def test_a_description_begins_with_the_tool_and_its_mark():
    box = Toolbox([echo("reads", reads_only=True), echo("writes")])
    assert (await described(box, "reads")).actions == (Action("tool", "reads", True),)
    assert (await described(box, "writes", {"a": 1})).actions == (Action("tool", "writes", False),)
    assert '"a": 1' in (await described(box, "writes", {"a": 1})).preview["arguments"]


async def test_what_a_tool_adds_to_its_description_comes_after():
    async def describing(arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        return Description((Action("file", "write:a"),), "Write a", bound={"a": 1})

    description = await described(Toolbox([echo("w", describing=describing)]), "w")
    assert description.actions == (Action("tool", "w"), Action("file", "write:a"))
    assert description.bound == {"a": 1}


# --- arguments ---

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        "auth": {"type": "object", "properties": {"token": {"type": "string", "pattern": "^x"}}, "required": ["token"]},
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "path", "words"),
    [
        ({}, "arguments", "'path' is a required property"),
        ({"path": 5}, "arguments.path", "not of type 'string'"),
        ({"path": "a", "items": [{"n": 1}, {"n": "two"}]}, "arguments.items[1].n", "not of type 'integer'"),
        ({"path": "a", "other": 1}, "arguments", "'other' is not expected"),
        ({"path": "a", "auth": {"token": "abc"}}, "arguments.auth.token", "does not match"),
    ],
)
async def test_invalid_arguments_are_reported_with_their_path(arguments: dict[str, Any], path: str, words: str) -> None:
    called = []

    async def run(given: dict[str, Any], call: Call) -> ToolResult | Failed:
        called.append(given)
        return ToolResult()

    box = Toolbox([SimpleTool(ToolSpec("t", "", SCHEMA), run)])
    failed = await ToolCaller().failure(box, "t", arguments)
    assert failed.code == "bad_arguments"
    assert failed.details["path"] == path
    assert words in failed.message
    assert "path (required)" in failed.fix
    assert (await not_described(box, "t", arguments)).code == "bad_arguments"
    assert not called


def test_the_error_for_an_invalid_schema_names_the_server():
    failed = check("github.search", {"type": "object", "properties": {"a": {"type": "nonsense"}}}, {"a": 1})
    assert failed is not None
    assert failed.code == "bad_schema"
    assert failed.details == {"server": "github"}
    assert "'github'" in failed.fix


def doubling(depth: int) -> dict[str, Any]:
    parts: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(depth)
    }
    return {"$defs": {**parts, f"d{depth}": {}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"$ref": "https://example.com/schema.json"}, "bad_schema"),
        ({"$ref": "#/$defs/missing"}, "bad_schema"),
        ({"$ref": "#"}, "bad_schema"),
        (doubling(60), "bad_schema"),
        ({"properties": {"x" * 300_000: {}}}, "bad_schema"),
        ({"properties": {"a": {"pattern": "^(a+)+$"}}}, "bad_arguments"),
        ({"patternProperties": {"^(a+)+$": {"type": "integer"}}, "additionalProperties": False}, "bad_arguments"),
    ],
)
def test_a_hostile_schema_neither_hangs_nor_fetches(schema: dict[str, Any], code: str):
    failed = check("s.t", schema, {"a": "a" * 40 + "!", "a" * 40 + "!": 1})
    assert failed is not None
    assert failed.code == code


def test_patterns_of_properties_are_checked():
    schema = {"patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": False}
    assert check("t", schema, {"n_a": 1}) is None
    assert check("t", schema, {"n_a": "one"}) is not None
    assert check("t", schema, {"other": 1}) is not None
    assert check("t", {"properties": {"a": {"pattern": "(?=x)"}}}, {"a": "y"}) is None  # left to the tool


@given(st.recursive(st.none() | st.booleans() | st.text() | st.integers(), lambda v: st.dictionaries(st.text(), v)))
def test_whatever_is_given_as_a_schema_is_an_answer_and_no_crash(schema: Any):
    if isinstance(schema, dict):
        assert check("s.t", schema, {"a": 1}) is None or isinstance(check("s.t", schema, {"a": 1}), Failed)


# --- secrets ---

TOKEN = SecretUse("arguments.auth.token", "env:TOKEN")


async def test_a_secret_is_put_in_at_the_last_moment_and_counts_as_given():
    box = Toolbox([echo("t", SCHEMA, takes_secrets=True)])
    arguments: dict[str, Any] = {"path": "a", "auth": {}}
    caller = ToolCaller(secrets={TOKEN.at: "s3cret-value"})
    outcome = await caller.perform(box, "t", arguments, (TOKEN,))
    assert outcome == ToolResult({"path": "a", "auth": {"token": "s3cret-value"}})
    assert arguments == {"path": "a", "auth": {}}


async def test_a_person_is_shown_the_handle_of_a_secret_and_never_its_value():
    box = Toolbox([echo("t", SCHEMA, takes_secrets=True)])
    description = await described(box, "t", {"path": "a"}, (TOKEN,))
    assert "<secret env:TOKEN>" in description.preview["arguments"]


async def test_a_person_is_shown_the_words_around_a_secret():
    box = Toolbox([echo("t", SCHEMA, takes_secrets=True)])
    use = SecretUse(TOKEN.at, TOKEN.handle, "some words {} and more")
    description = await described(box, "t", {"path": "a"}, (use,))
    assert "some words <secret env:TOKEN> and more" in description.preview["arguments"]


@pytest.mark.parametrize("at", ["env.TOKEN", "headers.X", "arguments", "arguments.", "arguments..a", "body"])
async def test_a_secret_that_is_meant_for_no_argument_is_refused(at: str):
    box = Toolbox([echo("t", takes_secrets=True)])
    failed = await ToolCaller(secrets={at: "s3cret-value"}).failure(box, "t", {}, (SecretUse(at, "env:TOKEN"),))
    assert failed.code == "secret_misplaced"


async def test_a_secret_cannot_be_inserted_below_a_value_that_is_not_an_object():
    box = Toolbox([echo("t", takes_secrets=True)])
    failed = await ToolCaller(secrets={TOKEN.at: "s3cret-value"}).failure(box, "t", {"auth": "text"}, (TOKEN,))
    assert failed.code == "secret_misplaced"


async def test_a_tool_whose_arguments_are_seen_gets_no_secret():
    failed = await ToolCaller(secrets={TOKEN.at: "s3cret-value"}).failure(Toolbox([echo("t")]), "t", {}, (TOKEN,))
    assert failed.code == "secret_misplaced"


async def test_a_secret_that_was_not_handed_over_is_missed():
    failed = await ToolCaller().failure(Toolbox([echo("t", takes_secrets=True)]), "t", {}, (TOKEN,))
    assert failed.code == "secret_missing"


async def test_what_a_tool_hands_on_carries_no_secrets_of_its_own():
    seen = []

    async def run(given: dict[str, Any], call: Call) -> ToolResult | Failed:
        seen.append(call.secrets())
        return ToolResult()

    box = Toolbox([SimpleTool(ToolSpec("t", "", OPEN), run, takes_secrets=True)])
    await ToolCaller(secrets={TOKEN.at: "s3cret-value"}).perform(box, "t", {}, (TOKEN,))
    assert seen == [{}]


# --- limits ---


async def test_a_tool_that_does_not_keep_to_its_time_is_ended():
    ended = asyncio.Event()

    async def run(given: dict[str, Any], call: Call) -> ToolResult | Failed:
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()
        return ToolResult()

    box = Toolbox([SimpleTool(ToolSpec("t", "", OPEN), run)])
    caller = ToolCaller(limits=Limits(seconds=0.05, grace=-1.0))
    assert (await caller.failure(box, "t")).code == "timeout"
    assert ended.is_set()


async def test_a_cancellation_goes_through():
    begun = asyncio.Event()

    async def run(given: dict[str, Any], call: Call) -> ToolResult | Failed:
        begun.set()
        await asyncio.sleep(600)
        return ToolResult()

    box = Toolbox([SimpleTool(ToolSpec("t", "", OPEN), run)])
    task = asyncio.create_task(ToolCaller().perform(box, "t"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_long_result_is_cut_and_says_so():
    caller = ToolCaller(limits=Limits(output=100))
    value = await caller.value(Toolbox([giving("é" * 100)]), "give")
    assert value == "é" * 50 + "\n[cut: the first 100 of 200 bytes are shown]"
    result = await caller.perform(Toolbox([giving("é" * 100)]), "give")
    assert isinstance(result, ToolResult)
    assert result.kept == 50
    caller.warnings.pop()
    assert caller.warnings == ["output_cut"]


async def test_a_result_for_a_conversation_keeps_its_beginning_and_its_end():
    """A model finds the verdict of a long output at its end."""
    caller = ToolCaller(limits=Limits(output=100))
    effect = CallTool("give", ends=True)
    for value in ("first" + "x" * 300 + "last", {"first": "x" * 300, "last": 1}):
        result = await Toolbox([giving(value)]).perform(effect, caller.call())
        assert isinstance(result, ToolResult)
        assert "first" in result.value[:50]
        assert "last" in result.value[-50:]
        assert f"of {result.size:,} bytes" in result.value
        assert result.size > 300


async def test_a_large_structured_result_becomes_text_that_is_cut():
    caller = ToolCaller(limits=Limits(output=50))
    value = await caller.value(Toolbox([giving({"rows": list(range(100))})]), "give")
    assert value.startswith('{"rows":[0,1,2')
    assert "bytes of JSON are shown]" in value


async def test_a_result_within_the_limit_is_left_as_it_is():
    caller = ToolCaller(limits=Limits(output=100))
    assert await caller.value(Toolbox([giving({"a": [1, None, "x"]})]), "give") == {"a": [1, None, "x"]}
    assert caller.warnings == []


# --- what there is ---


@pytest.mark.parametrize(
    ("pattern", "names", "asked"),
    [
        ("*", ["Glob", "Read", "github.issue", "github.search"], 1),
        ("Read", ["Read"], 0),
        ("R*", ["Read"], 0),
        ("github.*", ["github.issue", "github.search"], 1),
        ("github.s*", ["github.search"], 1),
        ("github.search", ["github.search"], 1),
        ("git*", ["github.issue", "github.search"], 1),
        ("gitlab.*", [], 0),
    ],
)
async def test_tools_are_listed_by_pattern_and_only_the_servers_in_question_are_asked(
    pattern: str, names: list[str], asked: int
) -> None:
    shelf = Shelf(echo("github.search"), echo("github.issue"))
    specs = await Toolbox([echo("Read"), echo("Glob")], {"github": shelf}).specs(pattern)
    assert isinstance(specs, list)
    assert [spec.name for spec in specs] == names
    assert shelf.asked == asked


async def test_a_server_that_cannot_be_listed_is_not_passed_over():
    box = Toolbox([echo("Read")], {"github": Shelf(failing=Failed("server_failed", "It died."))})
    assert await box.specs("*") == Failed("server_failed", "It died.")
    assert isinstance(await box.specs("Read"), list)


async def test_tools_of_servers_are_called_by_the_servers_name():
    box = Toolbox([], {"github": Shelf(echo("github.search"))})
    assert await box.perform(CallTool(tool="github.search", arguments={"q": "x"}), ToolCaller().call()) == ToolResult(
        {"q": "x"}
    )


async def test_the_time_in_which_a_tool_is_found_is_part_of_its_limit_and_the_limit_is_named_as_it_was_given():
    class Slow(Shelf):
        async def find(self, tool: str, seconds: float | None = None) -> Tool | Failed:
            await asyncio.sleep(0.2)
            return await super().find(tool, seconds)

    async def run(arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        return ToolResult([call.limits.seconds, call.given])

    box = Toolbox([], {"far": Slow(SimpleTool(ToolSpec("far.tell", "", OPEN), run))})
    left, whole = await ToolCaller(limits=Limits(seconds=20)).value(box, "far.tell")
    assert 0 < left <= 19.9
    assert f"{whole:g}" == "20"
