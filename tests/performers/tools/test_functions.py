"""Python functions as tools."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest

from cuebook.kernel.effects import SecretUse
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Action, Limits
from cuebook.performers.tools.functions import python_tool
from cuebook.performers.tools.toolbox import Toolbox
from tests.performers.tools.calls import ToolCaller, described


def weather(
    city: str,
    days: int = 3,
    unit: Literal["c", "f"] = "c",
    tags: list[str] = [],  # noqa: B006
    near: float | None = None,
) -> dict[str, Any]:
    """The weather to come."""
    return {"city": city, "days": days, "unit": unit, "tags": tags, "near": near}


@dataclass
class Point:
    x: int
    y: int = 0


class Line(msgspec.Struct):
    start: Point
    end: Point


def test_the_schema_comes_from_the_signature_and_the_description_from_the_docstring():
    spec = python_tool(weather).spec
    assert (spec.name, spec.description) == ("weather", "The weather to come.")
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "default": 3},
            "unit": {"enum": ["c", "f"], "default": "c"},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            "near": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


async def test_a_function_is_called_with_its_defaults():
    box = Toolbox([python_tool(weather)])
    expected = {"city": "Ulm", "days": 3, "unit": "c", "tags": [], "near": None}
    assert await ToolCaller().value(box, "weather", {"city": "Ulm"}) == expected
    assert (await ToolCaller().value(box, "weather", {"city": "Ulm", "unit": "f", "near": 2}))["near"] == 2.0


@pytest.mark.parametrize(
    "arguments", [{}, {"city": 5}, {"city": "Ulm", "unit": "k"}, {"city": "Ulm", "days": True}, {"city": "x", "y": 1}]
)
async def test_arguments_of_the_wrong_type_never_reach_the_function(arguments: dict[str, Any]):
    assert (await ToolCaller().failure(Toolbox([python_tool(weather)]), "weather", arguments)).code == "bad_arguments"


async def test_types_made_of_plain_ones_are_converted():
    def length(line: Line, unit: Annotated[str, msgspec.Meta(max_length=2)] = "m") -> str:
        return f"{line.end.x - line.start.x}{unit}"

    box = Toolbox([python_tool(length)])
    assert await ToolCaller().value(box, "length", {"line": {"start": {"x": 1}, "end": {"x": 4}}}) == "3m"
    failed = await ToolCaller().failure(box, "length", {"line": {"start": {"x": 1}, "end": {"x": "far"}}})
    assert failed.details["path"] == "arguments.line.end.x"


def test_names_and_parameters_that_no_tool_can_have_are_refused():
    with pytest.raises(BadInput, match="is not a valid tool name"):
        python_tool(lambda: 1)
    with pytest.raises(BadInput, match=r"accepts '\*args'"):
        python_tool(lambda *args: 1, name="f")

    def odd(when: threading.Event) -> None: ...

    def unknown(it: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(BadInput, match="JSON cannot express"):
        python_tool(odd)
    with pytest.raises(BadInput, match="cannot be read"):
        python_tool(unknown)


async def test_objects_partials_and_positional_parameters_are_callable_too():
    class Adder:
        """Adds."""

        async def __call__(self, a: int, /, b: int) -> int:
            return a + b

    def scale(value: int, factor: int) -> int:
        return value * factor

    box = Toolbox([python_tool(Adder(), name="add"), python_tool(functools.partial(scale, factor=3), name="triple")])
    assert await ToolCaller().value(box, "add", {"a": 1, "b": 2}) == 3
    assert await ToolCaller().value(box, "triple", {"value": 4}) == 12


async def test_a_plain_function_runs_beside_the_loop_and_an_async_one_in_it():
    place: contextvars.ContextVar[str] = contextvars.ContextVar("place")
    place.set("here")
    loop = threading.get_ident()

    def beside() -> list[Any]:
        return [threading.get_ident() == loop, place.get()]

    async def within() -> list[Any]:
        return [threading.get_ident() == loop, place.get()]

    box = Toolbox([python_tool(beside), python_tool(within)])
    assert await ToolCaller().value(box, "beside") == [False, "here"]
    assert await ToolCaller().value(box, "within") == [True, "here"]


@pytest.mark.parametrize(
    "error", [ValueError("no such city"), TimeoutError("no such city"), SystemExit("no such city")]
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_an_error_of_a_function_is_reported(error: BaseException, is_async: bool):
    def plain() -> None:
        raise error

    async def waiting() -> None:
        raise error

    failed = await ToolCaller().failure(Toolbox([python_tool(waiting if is_async else plain, name="f")]), "f")
    assert failed.code == "tool_error"
    assert f"{type(error).__name__}: no such city" in failed.message
    assert failed.details == {"type": type(error).__name__}


async def test_a_function_that_takes_too_long_is_left_behind_and_that_is_said():
    over = threading.Event()
    box = Toolbox([python_tool(lambda: over.wait(60), name="slow")])
    failed = await ToolCaller(limits=Limits(seconds=0.05)).failure(box, "slow")
    over.set()
    assert failed.code == "timeout"
    assert "cannot be stopped" in failed.message


async def test_an_async_function_that_takes_too_long_is_stopped():
    stopped = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            stopped.set()

    failed = await ToolCaller(limits=Limits(seconds=0.05)).failure(Toolbox([python_tool(slow)]), "slow")
    assert failed.code == "timeout"
    assert "cannot be stopped" not in failed.message
    assert stopped.is_set()


async def test_a_cancelled_call_does_not_wait_for_the_thread():
    begun, over = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        over.wait(60)

    task = asyncio.create_task(ToolCaller().perform(Toolbox([python_tool(slow)]), "slow"))
    while not begun.is_set():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    over.set()


async def test_many_that_hang_do_not_keep_others_from_running():
    over = threading.Event()
    box = Toolbox([python_tool(lambda: over.wait(60), name="hangs"), python_tool(weather)])
    caller = ToolCaller(limits=Limits(seconds=0.2))
    stuck = await asyncio.gather(*(caller.failure(box, "hangs") for _ in range(50)))
    assert {failed.code for failed in stuck} == {"timeout"}
    assert (await ToolCaller().value(box, "weather", {"city": "Ulm"}))["city"] == "Ulm"
    over.set()


@pytest.mark.parametrize("value", [object(), {1: {2, 3}, "a": object()}, lambda: 1])
async def test_a_result_that_is_not_a_plain_value_is_refused(value: Any):
    failed = await ToolCaller().failure(Toolbox([python_tool(lambda: value, name="f")]), "f")
    assert failed.code == "bad_result"
    assert type(value).__name__ in failed.message


async def test_plain_results_come_back_as_the_journal_will_hold_them():
    box = Toolbox([python_tool(lambda: (1, Point(2), None), name="f")])
    assert await ToolCaller().value(box, "f") == [1, {"x": 2, "y": 0}, None]


async def test_a_function_can_say_by_itself_that_it_failed():
    box = Toolbox([python_tool(lambda: ToolResult("no", is_error=True), name="f")])
    assert await ToolCaller().perform(box, "f") == ToolResult("no", is_error=True)
    box = Toolbox([python_tool(lambda: Failed("full", "No room."), name="f")])
    assert await ToolCaller().failure(box, "f") == Failed("full", "No room.")


async def test_a_function_gets_its_secrets_by_argument():
    def login(user: str, token: str) -> str:
        return f"{user}:{len(token)}"

    use = SecretUse("arguments.token", "env:TOKEN")
    outcome = await ToolCaller(secrets={use.at: "s3cret-value"}).perform(
        Toolbox([python_tool(login)]), "login", {"user": "me"}, (use,)
    )
    assert outcome == ToolResult("me:12")


async def test_the_marks_are_as_they_were_given():
    box = Toolbox([python_tool(weather, reads_only=True, idempotent=True)])
    assert (await described(box, "weather", {"city": "Ulm"})).actions == (Action("tool", "weather", True),)
    tool = await box.find("weather")
    assert not isinstance(tool, Failed)
    assert tool.idempotent
