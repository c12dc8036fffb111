"""Runs one Python function to its next call or its end, in a separate process that `performer` starts.

It reads its task as JSON from stdin and writes the result as JSON to stdout. It imports no other Cuebook modules. The
clock is fixed, random numbers are always the same, and sleeping takes no time, so the function does the same each time.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

FILE = "<playbooks>"


class PlaybookError(Exception):
    """A call that failed."""


class _Standstill(BaseException):
    """Every coroutine is waiting for a call."""


class _Differs(BaseException):
    """The function makes a different call than before."""


# --- the environment of the function ---


class Message(str):
    """An incoming message."""

    @property
    def content(self) -> str:
        return str(self)


class Dialogue:
    """The calls of the function, in order: answered with known replies, or left open."""

    def __init__(self, replies: list[dict[str, Any]], pending: Callable[[], Any]) -> None:
        self._replies, self.pending = replies, pending
        self.made = 0
        self.open: list[dict[str, Any]] = []

    async def call(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        made = {"name": name, "args": _plain(args), "named": _plain(named)}
        number, self.made = self.made, self.made + 1
        if number >= len(self._replies):
            self.open.append(made)
            return await self.pending()
        reply = self._replies[number]
        if reply["call"] != [made["name"], made["args"], made["named"]]:
            before = reply["call"]
            raise _Differs(
                f"its call {number + 1} was {before[0]}({before[1]}, {before[2]}), but is now {name}({made['args']}, {made['named']})"
            )
        if "error" in reply:
            raise PlaybookError(reply["error"])
        value = reply["value"]
        return [Message(one) for one in value] if name == "WaitForMessage" else value


class Stub:
    """A playbook that the function can call, or an agent whose attributes are its playbooks."""

    def __init__(self, dialogue: Dialogue, name: str) -> None:
        self._dialogue, self._name = dialogue, name

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._dialogue.call(self._name, args, named)

    def __getattr__(self, name: str) -> Stub:
        if name.startswith("_"):
            raise AttributeError(name)
        return Stub(self._dialogue, f"{self._name}.{name}")


def _plain(value: Any) -> Any:
    """The value after a round trip through JSON."""
    return json.loads(json.dumps(value))


def freeze(moment: float) -> None:
    """Fixes the clock at one moment, and makes random numbers always the same."""
    made = random.Random(0)
    random.seed(0)
    os.urandom = made.randbytes
    random._urandom = made.randbytes  # type: ignore[attr-defined]
    localtime, gmtime, ctime, strftime = time.localtime, time.gmtime, time.ctime, time.strftime

    def at(function: Any) -> Any:
        return lambda seconds=None: function(moment if seconds is None else seconds)

    fixed: dict[str, Any] = {
        "time": lambda: moment,
        "time_ns": lambda: int(moment * 1e9),
        **dict.fromkeys(("monotonic", "perf_counter", "process_time"), lambda: 0.0),
        **dict.fromkeys(("monotonic_ns", "perf_counter_ns", "process_time_ns"), lambda: 0),
        "sleep": lambda seconds: None,
        "localtime": at(localtime),
        "gmtime": at(gmtime),
        "ctime": at(ctime),
        "strftime": lambda format, when=None: strftime(format, localtime(moment) if when is None else when),
    }
    for name, function in fixed.items():
        setattr(time, name, function)

    class Date(datetime.date):
        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(moment)

    class DateTime(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(moment, tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(moment, datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(moment)

    datetime.date, datetime.datetime = Date, DateTime  # type: ignore[misc]


def namespace_of(given: dict[str, Any], dialogue: Dialogue) -> tuple[dict[str, Any], dict[str, Any]]:
    """The definitions in the source, and its playbooks by name. Calls to playbooks are sent out like any other call."""
    playbooks: dict[str, Any] = {}

    def playbook(function: Any = None, **about: Any) -> Any:
        def taken(one: Any) -> Any:
            playbooks[one.__name__] = one
            return Stub(dialogue, one.__name__)

        return taken if function is None else taken(function)

    space: dict[str, Any] = {"__name__": "playbooks", "playbook": playbook, "PlaybookError": PlaybookError}
    for name in given["names"]:
        first = name.partition(".")[0]
        space.setdefault(first, Stub(dialogue, first))
    exec(compile(given["source"], FILE, "exec"), space)
    return space, playbooks


# --- running it ---


class Pending:
    """The awaitable of an open call."""

    def __await__(self) -> Generator[Any, Any, Any]:
        raise _Standstill
        yield


def to_its_end(value: Any) -> Any:
    """Runs a coroutine that awaits only calls, one after another."""
    try:
        value.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("it awaits something that is not a call; import asyncio to do that")


def answer(given: dict[str, Any]) -> dict[str, Any]:
    """The result: `returned`, `called`, `raised` or `differs`."""
    finish: Callable[[Any], Any] = to_its_end
    pending: Callable[[], Any] = Pending
    freeze(given["moment"])
    if "asyncio" in given["source"]:  # takes half of this process's lifetime, so only if it is used
        finish, pending = _loop().started(_Standstill)
    dialogue = Dialogue(given["replies"], pending)
    try:
        space, playbooks = namespace_of(given, dialogue)
        function = playbooks.get(given["function"]) or space.get(given["function"])
        if not callable(function):
            return {"raised": f"there is no function '{given['function']}'", "type": "NameError"}
        value = function(*given["args"], **given["named"])
        value = finish(value) if hasattr(value, "__await__") else value
    except _Standstill:
        return (
            {"called": dialogue.open}
            if dialogue.open
            else {"raised": "it is waiting for something that never happens", "type": "Deadlock"}
        )
    except _Differs as differs:
        return {"differs": str(differs)}
    except BaseException as error:
        return {"raised": str(error), "type": type(error).__name__, "line": _line(error)}
    try:
        return {"returned": _plain(value)}
    except (TypeError, ValueError, RecursionError) as error:
        return {"raised": f"its return value cannot be stored: {error}", "type": "TypeError"}


def _loop() -> Any:
    """Loads the module next to this one by its path, because the folder may not be readable."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("loop", os.path.join(os.path.dirname(__file__), "loop.py"))
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _line(error: BaseException) -> int:
    """The line of the source that raised the error."""
    line = int(getattr(error, "lineno", 0) or 0)
    trace = error.__traceback__
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == FILE else line
        trace = trace.tb_next
    return line


def main() -> None:
    given = json.load(sys.stdin)
    with contextlib.suppress(ValueError, OSError):  # a sandbox that forbids setting limits also forbids writing
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it cannot write to a file, even if it may open one
    out = os.dup(1)
    os.dup2(2, 1)  # printed text must not become part of the result
    left = json.dumps(answer(given)).encode()
    while left:
        left = left[os.write(out, left) :]
    os._exit(0)  # waiting coroutines must not be unwound, because that would run their code


if __name__ == "__main__":
    main()
