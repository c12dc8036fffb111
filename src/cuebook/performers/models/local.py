"""The embedded model: a small real language model, run in this process through llama.cpp.

One instance serves the whole process, one request at a time, in its own thread, so that the event loop never waits for
it.
"""

from __future__ import annotations

import asyncio
import atexit
import http.client
import json
import os
import queue
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from cuebook.formats.words import with_extra
from cuebook.kernel.context import ToolCall
from cuebook.performers.models.model import (
    Chunk,
    Final,
    Finish,
    ModelError,
    Request,
    TextDelta,
    Tokens,
    Turn,
    system_and_turns,
)
from cuebook.performers.models.providers import EMBEDDED, EMBEDDED_WINDOW
from cuebook.performers.models.weights import WeightsMissing, require_weights

_INTRODUCTION = (
    "You can use tools. Reply with one JSON object: "
    '{"tool": name, "arguments": {...}} to use a tool, or {"answer": ...} to answer the user. Tools:'
)


class Choice(msgspec.Struct, frozen=True):
    """A choice between calling one of the tools and answering."""

    schema: dict[str, Any]
    explanation: str
    plain: bool
    """Whether the answer is text; otherwise it is a value that follows the request's schema."""

    def read(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """The answer or the call. Incomplete JSON is returned unchanged."""
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text, ()
        if not isinstance(value, dict):
            return text, ()
        if "tool" in value:
            call_id = f"call_{uuid.uuid4().hex[:12]}"
            return "", (ToolCall(call_id, value["tool"], value.get("arguments") or {}),)
        answer = value.get("answer", "")
        return (str(answer) if self.plain else msgspec.json.encode(answer).decode()), ()


def choice_of(request: Request) -> Choice | None:
    if not request.tools:
        return None
    definitions: dict[str, Any] = {}
    alternatives: list[dict[str, Any]] = []
    lines = [_INTRODUCTION]
    for tool in request.tools:
        parameters = _hoisted(tool.parameters, definitions)
        alternatives.append(_closed({"tool": {"const": tool.name}, "arguments": parameters}))
        shown = msgspec.json.encode(tool.parameters.get("properties", {})).decode()
        lines.append(f"- {tool.name}: {tool.description} Arguments: {shown}")
    answer = {"type": "string"} if request.schema is None else _hoisted(request.schema, definitions)
    alternatives.append(_closed({"answer": answer}))
    schema: dict[str, Any] = {"anyOf": alternatives, **definitions}
    return Choice(schema, "\n".join(lines), request.schema is None)


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _hoisted(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema without its definitions, which must be at the top for references to find them."""
    for name in ("$defs", "definitions"):
        if name in schema:
            definitions.setdefault(name, {}).update(schema[name])
    return {name: part for name, part in schema.items() if name not in ("$defs", "definitions", "$schema", "$id")}


def with_choice(messages: tuple[Turn, ...], choice: Choice) -> tuple[Turn, ...]:
    system, turns = system_and_turns(messages)
    return (Turn("system", f"{system}\n\n{choice.explanation}".strip()), *turns)


_BATCH = 64
"""How many prompt tokens are read between two chances to stop; the engine reads about a hundred per second."""

_SIGN_OF_LIFE = 5.0
"""Seconds after which a waiting request signals that it is alive."""

_SEED = 1

_FREE_TEXT = {
    "repeat_penalty": 1.1,
    "dry_multiplier": 0.8,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": EMBEDDED_WINDOW,
}
"""Makes recent words and repeated sequences less likely, so that replies do not go on forever."""

MOST_TOOLS = 4
"""The model is too small to choose among more tools: it repeats text from their descriptions, and calls them endlessly."""


class LocalModel:
    """SmolLM2-135M-Instruct. It answers anything, but is often wrong: 135 million parameters are not many."""

    def __init__(
        self, weights: Path | None = None, *, reuse_prompt: bool = True, engine: Callable[[Path], Engine] | None = None
    ) -> None:
        self._weights = weights
        self._reuse_prompt = reuse_prompt
        """Keeps the common prefix of the last prompt and the next. Without it, a reply does not depend on earlier
        requests; with it, rounding may differ."""
        self._engine = engine or shared_engine

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        if len(request.tools) > MOST_TOOLS:
            message = f"The embedded model is too small for {len(request.tools)} tools: it can choose among at most {MOST_TOOLS}."
            raise ModelError("tools_unsupported", message)
        choice = choice_of(request)
        engine = await asyncio.to_thread(self._loaded)
        job = _Job(_body(request, choice, reuse_prompt=self._reuse_prompt), asyncio.get_running_loop())
        engine.submit(job)
        reading = _Reading()
        try:
            while (item := await job.next()) is not None:
                text = reading.take(item)
                # A choice between tools and an answer is one JSON value, which means nothing until it is complete.
                yield TextDelta("" if choice else text)
        finally:
            job.stop()
        if reading.finish is None:
            raise ModelError("dropped", "The embedded model was closed before its reply was complete.")
        text, calls = choice.read(reading.text) if choice else ("", ())
        if text:
            yield TextDelta(text)
        yield Final("tool_calls" if calls else reading.finish, reading.tokens, calls, EMBEDDED, cost=0.0)

    async def count(self, request: Request) -> int:
        body = _body(request, choice_of(request), reuse_prompt=True)
        return await asyncio.to_thread(lambda: self._loaded().count(body["messages"]))

    async def count_text(self, text: str) -> int:
        return await asyncio.to_thread(lambda: self._loaded().count_text(text))

    def _loaded(self) -> Engine:
        try:
            return self._engine(self._weights or require_weights())
        except WeightsMissing as error:
            raise ModelError("not_installed", error.message, fix=error.fix) from None


def _body(request: Request, choice: Choice | None, *, reuse_prompt: bool) -> dict[str, Any]:
    messages = with_choice(request.messages, choice) if choice else request.messages
    body: dict[str, Any] = {
        "messages": [_turn(message) for message in messages],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature or 0.0,
        "seed": _SEED,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        "cache_prompt": reuse_prompt,
    }
    schema = choice.schema if choice else request.schema
    if schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
    elif request.grammar and choice is None:
        body["grammar"] = request.grammar
    else:
        # Not with a schema or a grammar, which require repeated names and punctuation. Free text would otherwise repeat
        # itself until it is cut off.
        body |= _FREE_TEXT
    if request.stop:
        body["stop"] = list(request.stop)
    return body


def _turn(message: Turn) -> dict[str, str]:
    """A turn as plain text, because the model's template does not support tool calls and results."""
    if message.role == "tool":
        return {"role": "user", "content": f"The tool gave: {message.text}"}
    calls = [msgspec.json.encode({"tool": c.name, "arguments": c.arguments}).decode() for c in message.calls]
    return {"role": message.role, "content": "\n".join([message.text, *calls]).strip() if calls else message.text}


class _Reading:
    """The reply so far, read from the engine's chunks."""

    def __init__(self) -> None:
        self.text = ""
        self.finish: Finish | None = None
        self.tokens: Tokens | None = None

    def take(self, item: dict[str, Any]) -> str:
        if "error" in item:
            raise _refused(item["error"])
        usage = item.get("usage")
        if usage:
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            self.tokens = Tokens(usage["prompt_tokens"], usage["completion_tokens"], cached)
        choices = item.get("choices")
        if not choices:
            return ""
        reason = choices[0].get("finish_reason")
        if reason is not None:
            self.finish = "length" if reason == "length" else "stop"
        text = choices[0].get("delta", {}).get("content") or ""
        self.text += text
        return text


def _refused(error: dict[str, Any]) -> ModelError:
    message = str(error.get("message", "no reason given"))
    if error.get("type") == "exceed_context_size_error":
        return ModelError("context_length", f"The embedded model refused the request: {message}")
    return ModelError("bad_request", f"The embedded model refused the request: {message}")


class _Job:
    """One request to the engine's thread, and its results."""

    def __init__(self, body: dict[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        self.body = body
        self.stopped = threading.Event()
        self._loop = loop
        self._items: asyncio.Queue[dict[str, Any] | BaseException | None] = asyncio.Queue()

    def put(self, item: dict[str, Any] | BaseException | None) -> None:
        """Called in the engine's thread. If the event loop is gone, the job is stopped."""
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:
            self.stop()

    async def next(self) -> dict[str, Any] | None:
        """The next chunk, None at the end, or an empty chunk if nothing arrives for a while."""
        try:
            async with asyncio.timeout(_SIGN_OF_LIFE):
                item = await self._items.get()
        except TimeoutError:
            return {}
        if isinstance(item, BaseException):
            raise item
        return item

    def stop(self) -> None:
        self.stopped.set()


class Engine:
    """llama.cpp with the weights loaded, and the one thread that talks to it."""

    def __init__(self, weights: Path) -> None:
        self.weights = weights
        self._key = secrets.token_urlsafe(32)
        self._folder = Path(tempfile.mkdtemp(prefix="cuebook-"))
        self._server = self._start(weights)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._current: _Job | None = None
        self._thread = threading.Thread(target=self._work, name="cuebook-local-model", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _start(self, weights: Path) -> Any:
        try:
            import xllamacpp
        except ImportError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise ModelError(
                "not_installed",
                f"The embedded model needs the Python package xllamacpp, which cannot be imported ({error}).",
                fix=with_extra("local"),
            ) from None
        params = xllamacpp.CommonParams()
        params.model.path = str(weights)
        params.n_ctx = EMBEDDED_WINDOW
        params.n_parallel = 1
        params.n_batch = params.n_ubatch = _BATCH
        # On a busy machine with few cores, one thread is fastest and leaves the other cores to the program.
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.n_gpu_layers = 0
        params.warmup = False
        params.cache_ram_mib = 0
        params.verbosity = -1
        # The engine insists on serving HTTP. A socket in a private folder and a key keep others out.
        params.api_keys = [self._key]
        params.cors_origins = ""
        params.ui = False
        params.endpoint_slots = params.endpoint_props = False
        params.n_threads_http = 1
        # The server treats a name that ends in .sock as a socket, and any other as a host.
        path = str(self._folder / "m.sock")
        if sys.platform != "win32" and len(path) < 100:
            params.hostnames = [path]
        try:
            return xllamacpp.Server(params)
        except (RuntimeError, ValueError) as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise ModelError(
                "not_installed",
                f"The weights in {weights} could not be loaded ({error}).",
                fix="Run `cuebook models install local` to fetch them again.",
            ) from None

    def submit(self, job: _Job) -> None:
        self._jobs.put(job)

    def close(self) -> None:
        """Stops the current generation. Called when the process exits, while threads can still finish."""
        atexit.unregister(self.close)
        if self._current is not None:
            self._current.stop()
        self._jobs.put(None)
        with suppress(KeyboardInterrupt):  # an impatient second Ctrl-C: the process is exiting anyway
            self._thread.join(timeout=10)
        self._server = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.stopped.is_set():
                continue
            self._current = job
            job.put(self._generate(job))
            self._current = None
            # Without this, the last request would be kept alive until the next one arrives.
            del job
        while not self._jobs.empty():
            left = self._jobs.get()
            if left is not None:
                left.put(None)

    def _generate(self, job: _Job) -> BaseException | None:
        def take(item: dict[str, Any]) -> bool:
            # The engine stops as soon as this returns True.
            if job.stopped.is_set():
                return True
            job.put(item)
            return False

        try:
            self._server.handle_chat_completions(job.body, take)
        except (ValueError, RuntimeError) as error:
            return ModelError("bad_request", f"The embedded model refused the request: {error}")
        return None

    def count(self, messages: list[dict[str, str]]) -> int:
        return int(self._post("/v1/chat/completions/input_tokens", {"messages": messages})["input_tokens"])

    def count_text(self, text: str) -> int:
        return len(self._post("/tokenize", {"content": text})["tokens"])

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        connection = _connection(self._server.listening_address)
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        try:
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ModelError("server", f"The embedded model's tokenizer did not answer ({error}).") from None
        finally:
            connection.close()
        if response.status != 200:
            raise _refused(answer.get("error") or {})
        return answer


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix domain socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connection(address: str) -> http.client.HTTPConnection:
    scheme, _, rest = address.partition("://")
    if scheme == "unix":
        return _SocketConnection(rest)
    return http.client.HTTPConnection(rest, timeout=60)


_loading = threading.Lock()
_engine: Engine | None = None
_engine_process = 0


def shared_engine(weights: Path) -> Engine:
    """The process's one engine, loaded on first use. A forked child loads its own: threads do not survive a fork."""
    global _engine, _engine_process
    with _loading:
        if _engine is None or _engine_process != os.getpid() or _engine.weights != weights:
            if _engine is not None and _engine_process == os.getpid():
                _engine.close()
            _engine = None
            _engine, _engine_process = Engine(weights), os.getpid()
        return _engine
