"""Python functions as tools: the schema comes from the signature, the description from the docstring.

It deals with functions and threads, not with their callers.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import re
import threading
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cuebook.kernel.effects import ToolSpec
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.journal import plain
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Call
from cuebook.performers.tools.toolbox import SimpleTool, Tool, in_time

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SHOWN = 1_000
_RUNS_ON = "It runs in a thread, which cannot be stopped from outside, so it may still be running."


def python_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    reads_only: bool = False,
    idempotent: bool = False,
) -> Tool:
    """A tool that calls the function. Its parameters need type hints that JSON can express.

    An async function is awaited; any other function runs in its own thread.
    """
    given = name if name is not None else getattr(function, "__name__", type(function).__name__)
    if not _NAME.fullmatch(given):
        raise BadInput(
            f"'{given}' is not a valid tool name.",
            fix="Use a name of letters, digits, '_' and '-' that begins with a letter.",
        )
    signature = _Signature(function, given)
    words = description if description is not None else inspect.getdoc(function) or ""
    spec = ToolSpec(given, words, signature.schema())

    async def run(arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        return await _run(function, signature, given, arguments, call)

    return SimpleTool(spec, run, None, reads_only, idempotent, takes_secrets=True)


class _Signature:
    """The parameters of a function as a type that arguments are converted to."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        hints = _hints(function, name)
        self._by_position: list[str] = []
        fields: list[Any] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise BadInput(
                    f"The function '{name}' accepts '*{parameter.name}', which has no schema.",
                    fix="Give it named parameters, or wrap it in a function that has them.",
                )
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self._by_position.append(parameter.name)
            fields.append(_field(parameter, hints.get(parameter.name, Any)))
        try:
            self._type = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
            self._schema = _flat(msgspec.json.schema(self._type))
        except (TypeError, ValueError, NameError) as error:
            raise BadInput(
                f"The function '{name}' has a parameter that JSON cannot express: {error}.",
                fix="Use str, int, float, bool, list, dict, Optional, Literal, or types made of these.",
            ) from None

    def schema(self) -> dict[str, Any]:
        return self._schema

    def bind(self, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The positional and named arguments of the call, converted to their types."""
        made = msgspec.convert(arguments, self._type)
        named = {field: getattr(made, field) for field in self._type.__struct_fields__}
        return [named.pop(field) for field in self._by_position], named


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(_underlying(function), include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise BadInput(
            f"The type hints of the function '{name}' cannot be read: {error}.",
            fix="Use types that are known where the function is defined.",
        ) from None


def _underlying(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that carries the type hints: below a partial, or the method that makes an object callable."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _field(parameter: inspect.Parameter, hint: Any) -> tuple[Any, ...]:
    if parameter.default is parameter.empty:
        return (parameter.name, hint)
    default = parameter.default
    if not isinstance(default, list | dict | set):
        return (parameter.name, hint, default)
    # An empty default is given as its type, because only then does the schema show the default.
    return (parameter.name, hint, msgspec.field(default_factory=default.copy if default else type(default)))


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its top-level type inlined, as models and checkers expect it."""
    parts = dict(schema["$defs"])
    top = parts.pop("Arguments")
    top.pop("title", None)
    return {**top, "$defs": parts} if parts else top


async def _run(
    function: Callable[..., Any], signature: _Signature, name: str, arguments: dict[str, Any], call: Call
) -> ToolResult | Failed:
    try:
        positional, named = signature.bind(arguments)
    except msgspec.ValidationError as error:
        return Failed("bad_arguments", f"The arguments of the tool '{name}' do not match: {error}.")

    async def work() -> Any:
        if _is_async(function):
            return await function(*positional, **named)
        value = await _in_thread(lambda: function(*positional, **named))
        return await value if inspect.isawaitable(value) else value

    try:
        outcome = await in_time(name, call.limits.seconds, _held(work), "" if _is_async(function) else _RUNS_ON)
    except _Raised as raised:
        return Failed(
            "tool_error",
            f"The tool '{name}' raised {raised.kind}: {call.masked(str(raised))[:_SHOWN]}",
            fix="Correct the arguments or the tool.",
            details={"type": raised.kind},
        )
    return _result(name, outcome)


class _Raised(Exception):
    """Wraps a tool's error, so that its timeout is not mistaken for ours, or its exit for an exit of this process."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.kind = type(error).__name__


async def _held(work: Callable[[], Any]) -> Any:
    try:
        return await work()
    except _Raised:
        raise
    except (Exception, SystemExit) as error:
        raise _Raised(error) from error


def _result(name: str, value: Any) -> ToolResult | Failed:
    if isinstance(value, ToolResult | Failed):
        return value
    try:
        return ToolResult(plain(value))
    except (CuebookError, RecursionError):
        return Failed(
            "bad_result",
            f"The tool '{name}' returned a value of type {type(value).__name__}, which cannot be stored.",
            fix="Return strings, numbers, lists, or dictionaries with string keys.",
        )


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(_underlying(function))


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Calls the function in its own thread. Unlike in the shared pool of `asyncio.to_thread`, a function that never
    returns blocks neither other functions nor the exit of the program.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: _Raised | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def run() -> None:
        value, error = None, None
        try:
            value = context.run(function)
        except BaseException as raised:
            error = _Raised(raised)
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            pass  # the loop is closed, so nothing is waiting for the result

    threading.Thread(target=run, name="cuebook-tool", daemon=True).start()
    return await future
