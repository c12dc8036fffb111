"""A session with a running agent: one prompt at a time, what it says, and what it waits for.

It keeps the agent within bounds and translates between the protocol and calls of a program. It decides nothing.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.kernel.context import ToolCall
from cuebook.kernel.effects import ToolSpec
from cuebook.kernel.outcomes import Usage
from cuebook.kernel.tool_names import AGENTS_OWN
from cuebook.performers.agents.client_requests import permission_digest
from cuebook.performers.agents.pipes import Pipes
from cuebook.performers.agents.tool_server import ToolServer

if TYPE_CHECKING:
    from acp.connection import Connection

PROTOCOL = 1
SIGN_IN = "agent_sign_in"
"""The failure of an agent that has no account to work with."""
_AUTHENTICATION_REQUIRED = -32000
START_SECONDS = 60.0
"""How long an agent may take to start and to open its session."""
NOTES = 2_000
"""How many tool calls and plans of one turn are recorded."""
_TEXT = 8 << 20
"""How many characters an agent may say in one turn."""
_SHOWN = 2_000
"""How many characters of a tool call's input and output are recorded."""
_READABLE = 200_000
"""How many characters of a change are shown to the approver."""
_WAITING = 100
"""How many requests may wait at the same time."""

Note = Callable[[str, dict[str, Any]], None]
Answer = tuple[str, bool]
"""The result of a call as text, and whether it is an error."""


class Broken(Exception):
    """The agent cannot be used any further. The message says why, in sentences."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Grants:
    """The permissions that were given while the agent's process was gone, each for one request with that digest."""

    def __init__(self, digests: Sequence[str] = ()) -> None:
        self._left = list(digests)

    def take(self, digest: str) -> bool:
        if digest not in self._left:
            return False
        self._left.remove(digest)
        return True


class Session:
    """One process of an agent, and its session."""

    def __init__(
        self,
        agent: str,
        pipes: Pipes,
        *,
        relays: bool,
        grants: Grants,
        masked: Callable[[Any], Any],
        sign_in: str = "",
    ) -> None:
        from acp.connection import Connection

        self._agent = agent
        self._pipes = pipes
        self._relays = relays
        self._grants = grants
        self._masked = masked
        self._sign_in = sign_in
        """The way to sign in with the key in its environment, if it needs to be asked for."""
        self._ways: list[str] = []
        self.tools: ToolServer | None = None
        """The server that offers the step's tools to the agent, if it has any."""
        self._connection: Connection = Connection(self._handle, pipes)
        self._numbers = count(1)
        self._waiting: dict[str, tuple[ToolCall, asyncio.Future[Answer]]] = {}
        self._handed_out: set[str] = set()
        self._terminals: dict[str, asyncio.Future[Answer]] = {}
        self._asked = asyncio.Event()
        self._turn: asyncio.Task[dict[str, Any]] | None = None
        self._emit: Callable[[str], bool] | None = None
        self._note: Note | None = None
        self._unheard: list[tuple[str, Any]] = []
        self._pieces: list[str] = []
        self._segment = 0
        self._said = 0
        self._noted = 0
        self._calls: dict[str, dict[str, Any]] = {}
        self.on_close: Callable[[], None] = lambda: None
        self.id = ""
        self.loads = False
        """Whether the agent says that its session can be continued by another process."""
        self._resumes = False
        self.stopped = False
        """Whether the watch of the reply stopped it."""
        self._cost: float | None = None
        self._counted = 0.0
        """The part of the session's cost that earlier replies reported."""

    # --- starting ---

    async def start(self) -> None:
        """Agrees on the protocol. Raises `Broken`."""
        offers = {"fs": {"readTextFile": self._relays, "writeTextFile": self._relays}, "terminal": self._relays}
        found = await self._request(
            "initialize",
            {
                "protocolVersion": PROTOCOL,
                "clientCapabilities": offers,
                "clientInfo": {"name": "cuebook", "version": "1"},
            },
        )
        version = found.get("protocolVersion")
        if version != PROTOCOL:
            raise Broken("agent_protocol", f"It speaks version {version!r} of the protocol, not version {PROTOCOL}.")
        ways = found.get("authMethods")
        self._ways = [_text(one.get("id")) for one in ways if isinstance(one, dict)] if isinstance(ways, list) else []
        able = found.get("agentCapabilities")
        able = able if isinstance(able, dict) else {}
        sessions = able.get("sessionCapabilities")
        self._resumes = isinstance(sessions, dict) and sessions.get("resume") is not None
        self.loads = bool(able.get("loadSession")) or self._resumes
        self._loads = bool(able.get("loadSession"))

    async def new(self, cwd: str, servers: list[dict[str, Any]]) -> None:
        found = await self._signed_in("session/new", {"cwd": cwd, "mcpServers": servers})
        session = found.get("sessionId")
        if not isinstance(session, str) or not session or len(session) > 500:
            raise Broken("agent_protocol", "It opened a session without a usable id.")
        self.id = session

    async def load(self, session: str, cwd: str, servers: list[dict[str, Any]]) -> None:
        """Continues a session of an earlier process. What it replays was heard before."""
        if not self.loads:
            raise Broken("agent_session_lost", "It cannot continue a session of an earlier process.")
        method = "session/resume" if self._resumes else "session/load"
        try:
            await self._signed_in(method, {"sessionId": session, "cwd": cwd, "mcpServers": servers})
        except Broken as error:
            if error.code in ("agent_timeout", SIGN_IN):
                raise
            raise Broken("agent_session_lost", f"It could not continue its session: {error}") from None
        self.id = session
        self._unheard.clear()
        self._pieces.clear()
        self._segment = self._said = 0

    async def _signed_in(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Makes a request. If the agent has to be asked to use the key in its environment, it is asked."""
        try:
            return await self._request(method, params)
        except Broken as error:
            if error.code != SIGN_IN or self._sign_in not in self._ways:
                raise
        await self._request("authenticate", {"methodId": self._sign_in})
        return await self._request(method, params)

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        try:
            found = await self._until_closed(
                asyncio.ensure_future(self._connection.send_request(method, params)), START_SECONDS
            )
        except TimeoutError:
            raise Broken(
                "agent_timeout", f"It did not answer `{method}` within {START_SECONDS:g} s. {self._pipes.account}"
            ) from None
        return found if isinstance(found, dict) else {}

    async def _until_closed(self, work: asyncio.Future[Any], seconds: float) -> Any:
        closed = asyncio.ensure_future(self._pipes.closed.wait())
        try:
            await asyncio.wait({work, closed}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                if self._pipes.closed.is_set():
                    raise self._gone()
                raise TimeoutError
            try:
                return work.result()
            except ConnectionError:
                raise self._gone() from None
            except Exception as error:  # the package raises its own for an error of the agent
                if getattr(error, "code", None) == _AUTHENTICATION_REQUIRED:
                    raise Broken(SIGN_IN, f"It is not signed in: {_one_line(error).rstrip('.')}.") from None
                raise Broken("agent_error", f"It answered with an error: {_one_line(error)}") from None
        finally:
            closed.cancel()

    def _gone(self) -> Broken:
        code = "agent_protocol" if self._pipes.violation else "agent_died"
        return Broken(code, self._pipes.account or "It closed the connection.")

    # --- a turn ---

    def prompt(self, text: str) -> None:
        """Sends a prompt. Its turn lasts until it ends or waits for something."""
        self._pipes.renew()
        params = {"sessionId": self.id, "prompt": [{"type": "text", "text": text}]}
        self._turn = asyncio.ensure_future(self._connection.send_request("session/prompt", params))

    def answer(self, answers: dict[str, Answer]) -> bool:
        """Gives the agent what it waited for. Returns False if it waits for something else."""
        if not self._handed_out or not self._handed_out <= answers.keys():
            return False
        self._pipes.renew()
        for call in self._handed_out:
            _, future = self._waiting.pop(call)
            if not future.done():
                future.set_result(answers[call])
        self._handed_out = set()
        return True

    async def hear(
        self, emit: Callable[[str], bool], note: Note, seconds: float
    ) -> tuple[tuple[ToolCall, ...], dict[str, Any]]:
        """Listens until the agent waits for calls, which are returned, or its turn ends with a response.

        Raises `Broken` if it does neither within the time, or dies.
        """
        assert self._turn is not None
        self._emit, self._note = emit, note
        for kind, update in self._unheard:
            self._show(kind, update)
        self._unheard = []
        self._asked.clear()
        if self._open_requests():
            self._asked.set()
        asked = asyncio.ensure_future(self._asked.wait())
        closed = asyncio.ensure_future(self._pipes.closed.wait())
        try:
            await asyncio.wait({self._turn, asked, closed}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self.stopped:
                return (), {"stopReason": "watch"}
            if self._turn.done():
                with suppress(ConnectionError):
                    return (), await self._until_closed(self._turn, 0)
                raise self._gone()
            if self._open_requests():
                await asyncio.sleep(0.02)  # requests that an agent makes at the same time are handled together
                self._handed_out = set(self._open_requests())
                return tuple(self._waiting[one][0] for one in sorted(self._handed_out, key=_number)), {}
            if self._pipes.closed.is_set():
                raise self._gone()
            raise Broken("agent_timeout", f"It was still working after {seconds:g} s and was stopped.")
        finally:
            asked.cancel()
            closed.cancel()
            self._emit = self._note = None

    def _open_requests(self) -> list[str]:
        return [call for call, (_, future) in self._waiting.items() if not future.done()]

    def said(self) -> str:
        """What it said since its last tool call or request, or everything if that is nothing."""
        last = "".join(self._pieces[self._segment :]).strip()
        return last or "".join(self._pieces).strip()

    def begin_reply(self) -> None:
        self._pieces, self._segment, self._noted = [], 0, 0

    def usage(self, response: dict[str, Any]) -> Usage:
        """The usage of the reply, as far as the agent reports it. An unknown cost is never 0."""
        given = response.get("usage")
        given = given if isinstance(given, dict) else {}

        def number(name: str) -> int:
            value = given.get(name)
            return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0

        cached = number("cachedReadTokens")
        cost: float | None = None
        if self._cost is not None:
            cost, self._counted = max(0.0, self._cost - self._counted), self._cost
        return Usage(
            number("inputTokens") + cached + number("cachedWriteTokens"),
            number("outputTokens") + number("thoughtTokens"),
            cached,
            number("thoughtTokens"),
            cost,
            "unknown" if cost is None else "reported",
        )

    async def close(self) -> None:
        """Ends the process."""
        if self.tools is not None:
            self.tools.close()
        for _, future in self._waiting.values():
            future.cancel()
        if self._turn is not None:
            self._turn.cancel()
        with suppress(Exception):
            await self._connection.close()
        if not self._pipes.closed.is_set():
            await self._pipes.close()
        self.on_close()

    @property
    def worked(self) -> bool:
        """Whether it did or said anything in this turn, as far as it reports."""
        return bool(self._noted or self._handed_out or self.said())

    @property
    def alive(self) -> bool:
        return not self._pipes.closed.is_set()

    # --- what it asks for ---

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Answer:
        """A call to a tool of the step, over MCP."""
        if not isinstance(arguments, dict):
            return "The arguments must be an object.", True
        return await self._relay(name, arguments)

    async def _relay(self, name: str, arguments: dict[str, Any]) -> Answer:
        """Waits until the program has performed a call."""
        if not self._relays:
            return "Refused: here you may only look and answer.", True
        if len(self._open_requests()) >= _WAITING:
            return "Refused: too many requests are waiting.", True
        call = ToolCall(f"r{next(self._numbers)}", name, arguments)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[call.id] = (call, future)
        self._segment = len(self._pieces)
        self._asked.set()
        return await future

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:
        params = params if isinstance(params, dict) else {}
        if method == "session/update":
            update = params.get("update")
            if isinstance(update, dict) and self._is_ours(params):
                self._take(str(update.get("sessionUpdate", "")), update)
            return None
        handler = _HANDLERS.get(method)
        if is_notification and handler is None:
            return None  # an extension of the agent's own
        if handler is None or not self._is_ours(params):
            raise _refusal(f"There is no such request: {method[:100]}.", -32601)
        return await handler(self, params)

    def _is_ours(self, params: dict[str, Any]) -> bool:
        return not self.id or params.get("sessionId") == self.id

    async def _permission(self, params: dict[str, Any]) -> dict[str, Any]:
        call = params.get("toolCall")
        call = call if isinstance(call, dict) else {}
        before = self._calls.get(str(call.get("toolCallId", "")), {})
        call = {**before, **{name: value for name, value in call.items() if value is not None}}
        asked = {
            "agent": self._agent,
            "title": _text(call.get("title")),
            "kind": _text(call.get("kind")) or "other",
            "paths": _paths(call),
            "input": call.get("rawInput"),
            "change": _changes(call),
            "writes": _writes(call),
        }
        digest = permission_digest(asked)
        allowed = self._grants.take(digest)
        if not allowed:
            _, is_error = await self._relay("agent_permission", {**asked, "digest": digest})
            allowed = not is_error
        wanted = "allow_once" if allowed else "reject_once"
        options = params.get("options")
        for option in options if isinstance(options, list) else ():
            if isinstance(option, dict) and option.get("kind") == wanted and isinstance(option.get("optionId"), str):
                return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
        return {"outcome": {"outcome": "cancelled"}}

    async def _read_file(self, params: dict[str, Any]) -> dict[str, Any]:
        asked = {"path": _text(params.get("path"))}
        asked |= {name: params[name] for name in ("line", "limit") if isinstance(params.get(name), int)}
        return {"content": _granted(await self._relay("agent_read", asked))}

    async def _write_file(self, params: dict[str, Any]) -> dict[str, Any]:
        content = params.get("content")
        asked: dict[str, Any] = {
            "path": _text(params.get("path")),
            "content": content if isinstance(content, str) else "",
        }
        _granted(await self._relay("agent_write", asked))
        return {}

    async def _create_terminal(self, params: dict[str, Any]) -> dict[str, Any]:
        if len(self._terminals) >= _WAITING * 10:
            raise _refusal("Too many terminals.")
        asked: dict[str, Any] = {"command": _text(params.get("command"))}
        args, env = params.get("args"), params.get("env")
        if isinstance(args, list) and args:
            asked["args"] = [str(one) for one in args]
        if isinstance(params.get("cwd"), str):
            asked["cwd"] = params["cwd"]
        if isinstance(env, list) and env:
            pairs = [one for one in env if isinstance(one, dict)]
            asked["env"] = {_text(one.get("name")): _text(one.get("value")) for one in pairs}
        name = f"t{len(self._terminals) + 1}"
        self._terminals[name] = asyncio.ensure_future(self._relay("agent_run", asked))
        return {"terminalId": name}

    async def _terminal_output(self, params: dict[str, Any]) -> dict[str, Any]:
        running = self._terminal(params)
        if not running.done():
            return {"output": "", "truncated": False}
        text, code, cut = _ran(running.result())
        return {"output": text, "truncated": cut, "exitStatus": {"exitCode": code, "signal": None}}

    async def _terminal_exit(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"exitCode": _ran(await asyncio.shield(self._terminal(params)))[1], "signal": None}

    async def _leave_terminal(self, params: dict[str, Any]) -> dict[str, Any]:
        self._terminal(params)
        return {}

    def _terminal(self, params: dict[str, Any]) -> asyncio.Future[Answer]:
        found = self._terminals.get(_text(params.get("terminalId")))
        if found is None:
            raise _refusal("There is no such terminal.")
        return found

    # --- what it says ---

    def _take(self, kind: str, update: dict[str, Any]) -> None:
        if kind == "usage_update":
            cost = update.get("cost")
            amount = cost.get("amount") if isinstance(cost, dict) and cost.get("currency") == "USD" else None
            if isinstance(amount, int | float) and not isinstance(amount, bool) and 0 <= amount < 1e6:
                self._cost = float(amount)
            return
        if self._emit is None:  # between two calls of the program
            self._unheard.append((kind, update))
            return
        self._show(kind, update)

    def _show(self, kind: str, update: dict[str, Any]) -> None:
        match kind:
            case "agent_message_chunk":
                content = update.get("content")
                text = content.get("text") if isinstance(content, dict) else None
                if isinstance(text, str):
                    self._speak(text)
            case "tool_call" | "tool_call_update":
                self._segment = len(self._pieces)
                self._record_call(update)
            case "plan":
                entries = update.get("entries")
                if isinstance(entries, list):
                    kept = [one for one in entries if isinstance(one, dict)][:100]
                    plan = [{"text": self._cut(one.get("content")), "status": _text(one.get("status"))} for one in kept]
                    self._record("agent_plan", {"agent": self._agent, "entries": plan})
            case _:
                pass

    def _speak(self, text: str) -> None:
        self._said += len(text)
        if self._said > _TEXT:
            self._pipes.break_off(f"It said more than {_TEXT >> 20} million characters.")
            return
        self._pieces.append(text)
        if self._emit is not None and not self._emit(text):
            self.stopped = True
            self._asked.set()

    def _record_call(self, update: dict[str, Any]) -> None:
        name = _text(update.get("toolCallId"))[:200]
        if name not in self._calls and len(self._calls) >= NOTES:
            return
        before = self._calls.get(name, {})
        given = {key: value for key, value in update.items() if value is not None and key != "sessionUpdate"}
        call = self._calls[name] = {**before, **given}
        status = _text(call.get("status"))
        if before and status == _text(before.get("status")):
            return  # only its content grew
        self._record(
            "agent_call",
            {
                "agent": self._agent,
                "call": name,
                "title": self._cut(call.get("title")),
                "kind": _text(call.get("kind")) or "other",
                "status": status or "pending",
                "paths": _paths(call),
                "input": self._cut(call.get("rawInput")),
                "output": self._cut(call.get("rawOutput")) if status in ("completed", "failed") else "",
            },
        )

    def _cut(self, value: Any) -> str:
        if value is None:
            return ""
        value = self._masked(value)
        try:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        except (TypeError, ValueError):
            return ""
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} [cut: {len(text):,} characters]"

    def _record(self, name: str, data: dict[str, Any]) -> None:
        self._noted += 1
        if self._note is not None and self._noted <= NOTES:
            self._note(name, data)


_HANDLERS: dict[str, Callable[[Session, dict[str, Any]], Any]] = {
    "session/request_permission": Session._permission,
    "fs/read_text_file": Session._read_file,
    "fs/write_text_file": Session._write_file,
    "terminal/create": Session._create_terminal,
    "terminal/output": Session._terminal_output,
    "terminal/wait_for_exit": Session._terminal_exit,
    "terminal/release": Session._leave_terminal,
    "terminal/kill": Session._leave_terminal,
}


def offered(tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """The tools of a step that an agent lacks: it has its own for files and commands."""
    return [tool for tool in tools if tool.name not in AGENTS_OWN]


def _refusal(words: str, code: int = -32000) -> Exception:
    from acp.exceptions import RequestError

    return RequestError(code, words)


def _granted(answer: Answer) -> str:
    text, is_error = answer
    if is_error:
        raise _refusal(text[:2_000])
    return text


def _ran(answer: Answer) -> tuple[str, int | None, bool]:
    """The output of a command, its exit code, and whether the output was cut."""
    text, is_error = answer
    if is_error:
        return text, 1, False
    try:
        found = msgspec.json.decode(text)
        return str(found["output"]), int(found["exit_code"]), bool(found["cut"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return text, None, False


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _paths(call: dict[str, Any]) -> list[str]:
    locations = call.get("locations")
    found = (
        [_text(one.get("path")) for one in locations if isinstance(one, dict)] if isinstance(locations, list) else []
    )
    found += [_text(one.get("path")) for one in _diffs(call)]
    return list(dict.fromkeys(path for path in found if path))[:50]


def _diffs(call: dict[str, Any]) -> list[dict[str, Any]]:
    content = call.get("content")
    return (
        [one for one in content if isinstance(one, dict) and one.get("type") == "diff"]
        if isinstance(content, list)
        else []
    )


def _writes(call: dict[str, Any]) -> list[dict[str, str]]:
    """The paths and new contents of the edits that an agent shows, if they are short enough to be read by an approver."""
    made = [{"path": _text(one.get("path")), "content": _text(one.get("newText"))} for one in _diffs(call)]
    short = len(made) <= 10 and sum(len(one["content"]) for one in made) <= _READABLE
    # Several changes of one file are parts of it, and not its content.
    whole = len({one["path"] for one in made}) == len(made) and all(one["path"] for one in made)
    return made if short and whole else []


def _changes(call: dict[str, Any]) -> str:
    """The change that an agent shows for an edit, as a unified diff."""
    made: list[str] = []
    for one in _diffs(call):
        old, new, path = _text(one.get("oldText")), _text(one.get("newText")), _text(one.get("path"))
        made += difflib.unified_diff(old.splitlines(), new.splitlines(), path, path, lineterm="")
    return "\n".join(made)[:_READABLE]


def _number(call: str) -> int:
    return int(call[1:])


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__
