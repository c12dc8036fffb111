"""The port to every model: a request, the chunks that stream back, the ways it can fail, and token estimates.

Providers, prices and retries are handled elsewhere; a model is one method.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from cuebook.kernel.context import Block, Role, ToolCall
from cuebook.kernel.effects import AskModel, Effort, ToolSpec
from cuebook.kernel.errors import CuebookError

Finish = Literal["stop", "length", "tool_calls", "filter"]

_FINISHES: dict[str, Finish] = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "pause_turn", "eos", "eos_token"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("tool_calls", "tool_use", "function_call"), "tool_calls"),
    **dict.fromkeys(("content_filter", "refusal", "safety", "recitation", "blocklist", "prohibited_content"), "filter"),
}
"""The providers' names for the reasons why a reply ends."""

REPLY_LIMIT = 8 << 20
"""The number of bytes after which a reply is considered endless."""


class TurnFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """An image or a document of a turn."""

    media_type: str
    data: str
    """The content in base64."""
    name: str = ""


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn as it is sent to a provider."""

    role: Role
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    is_error: bool = False
    """For a tool's turn: whether the call failed."""
    files: tuple[TurnFile, ...] = ()
    thinking: tuple[dict[str, Any], ...] = ()
    """For an assistant's turn: its reasoning, in the provider's own form."""


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that is sent to a model. It contains no key and no URL, so it can be stored and compared."""

    model: str
    """The provider's own name for the model, without the provider prefix."""
    messages: tuple[Turn, ...]
    max_tokens: int
    temperature: float | None = None
    schema: dict[str, Any] | None = None
    tools: tuple[ToolSpec, ...] = ()
    stop: tuple[str, ...] = ()
    grammar: str = ""
    """A grammar for models that run in this process; it is not sent to others."""
    may_call: bool = True
    """Whether the model may call the tools."""
    effort: Effort | None = None
    """How much the model should reason; None means its own default."""


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """More of the reply. An empty chunk means that the model is still working."""

    text: str


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True):
    """The usage that a provider reported. `cached` and `written` are parts of `input`, `reasoning` of `output`."""

    input: int
    output: int
    cached: int = 0
    """Input read from the provider's cache."""
    written: int = 0
    """Input written to the provider's cache, which some providers price higher."""
    reasoning: int = 0


class Final(msgspec.Struct, frozen=True, tag="final", omit_defaults=True):
    """The last chunk of every stream that was not cut off."""

    finish: Finish = "stop"
    tokens: Tokens | None = None
    """None if the provider did not report them."""
    calls: tuple[ToolCall, ...] = ()
    model: str = ""
    """The model that actually replied, if the provider reports it."""
    cost: float | None = None
    """US dollars, if the provider reports them."""
    unknown: str = ""
    """The provider's own finish reason, if it is unknown here."""
    thinking: tuple[dict[str, Any], ...] = ()
    """The model's reasoning before its calls, in the provider's own form, to be sent back with them."""


def finish_of(reason: str, provider: str) -> tuple[Finish, str]:
    """Our finish reason for a provider's, and the provider's own if it is unknown."""
    if reason.lower() == "error":
        raise ModelError("dropped", f"{provider} broke off its reply with an error.")
    known = _FINISHES.get(reason.lower())
    return known or "stop", "" if known else reason[:100]


Chunk: TypeAlias = TextDelta | Final


class Model(Protocol):
    """Anything that answers a request with a stream of chunks, ending in one `Final`.

    `stream` raises `ModelError` for external failures. Closing the generator stops the generation.
    """

    def stream(self, request: Request) -> AsyncGenerator[Chunk, None]: ...


@runtime_checkable
class Counts(Protocol):
    """A model that counts with its own tokenizer. For other models, tokens are estimated; see `estimate_request`."""

    async def count(self, request: Request) -> int: ...

    async def count_text(self, text: str) -> int: ...


ErrorKind = Literal[
    "auth",
    "permission",
    "quota",
    "not_found",
    "bad_request",
    "context_length",
    "rate",
    "overloaded",
    "server",
    "network",
    "timeout",
    "dropped",
    "too_large",
    "tools_unsupported",
    "not_installed",
]

RETRYABLE: frozenset[ErrorKind] = frozenset({"rate", "overloaded", "server", "network", "timeout", "dropped"})

FIXES: dict[ErrorKind, str] = {
    "auth": "Check the provider's key and set it again.",
    "permission": "Use a key that may use this model, or choose another model.",
    "quota": "Add credit at the provider, or choose another model.",
    "not_found": "Check the model's name against the provider's list.",
    "bad_request": "Change the request as the provider says, or choose another model.",
    "context_length": "Shorten the step's input, or choose a model with a larger window.",
    "rate": "Wait and retry the step, or run fewer steps at once.",
    "overloaded": "Wait and retry the step, or choose another model.",
    "server": "Retry the step; if it persists, look at the provider's status page.",
    "network": "Check the connection and the provider's URL, then retry the step.",
    "timeout": "Retry the step, or raise the timeout.",
    "dropped": "Retry the step.",
    "too_large": "Choose another model, or raise `reply` in [limits] if replies of that size are expected.",
    "tools_unsupported": "Choose a model that can call tools, or remove the tools from the step.",
    "not_installed": "Install what is missing and retry the step.",
}


class ModelError(CuebookError):
    """The model could not answer."""

    code: ClassVar[str] = "model"

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        fix: str = "",
        status: int | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, fix=fix or FIXES[kind])
        self.kind: ErrorKind = kind
        self.status = status
        self.retryable = kind in RETRYABLE if retryable is None else retryable
        self.retry_after = retry_after
        """How many seconds the provider asked us to wait."""


def messages_of(effect: AskModel) -> tuple[Turn, ...]:
    """The context's blocks and the prompt as turns; the system blocks at the beginning become one."""
    context = effect.context
    lead = context.lead
    messages = [Turn("system", lead.joined())] if len(lead) else []
    if lead is not context:
        messages += [_turn(block) for block in list(context)[len(lead) :]]
    if effect.prompt:
        messages.append(Turn("user", effect.prompt))
    return tuple(messages)


def _turn(block: Block) -> Turn:
    files = tuple(TurnFile(one.media_type, str(one.data), one.name) for one in block.attachments)
    return Turn(block.role, str(block.text), block.calls, block.call_id, block.is_error, files, block.thinking)


class Room:
    """How much of a reply may still arrive: a provider that sends endlessly is stopped."""

    def __init__(self, limit: int, provider: str) -> None:
        self._limit = self._left = limit
        self._provider = provider

    def take(self, text: str) -> str:
        """Returns the text if there is room for it."""
        self.use(len(text.encode(errors="replace")))
        return text

    def begin_call(self) -> None:
        """Counts another tool call, so that a provider cannot send empty calls endlessly either."""
        self.use(64)

    def use(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ModelError("too_large", f"{self._provider} sent more than {self._limit:,} bytes in one reply.")


_CONTRACT = "Answer with JSON only: one JSON value, no words before or after it, no code fence. It must follow this JSON Schema: "


def unconstrained(request: Request) -> Request:
    """The request without an enforced schema: the prompt asks the model to follow it instead."""
    words = _CONTRACT + msgspec.json.encode(request.schema).decode()
    system, turns = system_and_turns(request.messages)
    messages = (Turn("system", f"{system}\n\n{words}".strip()), *turns)
    return msgspec.structs.replace(request, schema=None, messages=messages)


def call_of(call_id: str, name: str, raw: str) -> ToolCall:
    """A tool call from its arguments as text; anything that is not a JSON object is kept as it came."""
    if not raw.strip():
        return ToolCall(call_id, name)
    try:
        arguments = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return ToolCall(call_id, name, malformed=raw)
    if not isinstance(arguments, dict):
        return ToolCall(call_id, name, malformed=raw)
    return ToolCall(call_id, name, arguments)


def system_and_turns(messages: Sequence[Turn]) -> tuple[str, Sequence[Turn]]:
    """Separates the leading system message from the rest."""
    if messages and messages[0].role == "system":
        return messages[0].text, messages[1:]
    return "", messages


MESSAGE_OVERHEAD = 8
"""Tokens that a chat template adds to a turn, rounded up."""


class TokenEstimate(msgspec.Struct, frozen=True):
    likely: int
    upper: int


def estimate_text(text: str) -> TokenEstimate:
    ascii_count = len(text) if text.isascii() else sum(1 for c in text if c < "\x80")
    other = len(text) - ascii_count
    return TokenEstimate(math.ceil(ascii_count / 4 + other * 2 / 3), math.ceil(ascii_count / 3) + other)


def estimate_file(file: TurnFile) -> TokenEstimate:
    """An image counts by its area, which providers limit; a document by its pages, of which only the size is known."""
    if file.media_type.startswith("image/"):
        return TokenEstimate(1_600, 3_200)
    size = len(file.data) * 3 // 4
    return TokenEstimate(max(3_000, size // 20), max(6_000, size // 8))


def estimate_request(request: Request) -> TokenEstimate:
    likely = upper = 0
    texts = [message.text for message in request.messages]
    texts += [msgspec.json.encode(m.calls).decode() for m in request.messages if m.calls]
    texts += [msgspec.json.encode(tool).decode() for tool in request.tools]
    if request.schema is not None:
        texts.append(msgspec.json.encode(request.schema).decode())
    for text in texts:
        part = estimate_text(text)
        likely, upper = likely + part.likely, upper + part.upper
    for message in request.messages:
        for file in message.files:
            part = estimate_file(file)
            likely, upper = likely + part.likely, upper + part.upper
    overhead = MESSAGE_OVERHEAD * max(1, len(request.messages))
    return TokenEstimate(likely + overhead // 2, upper + overhead)


# --- keys in text ---------------------------------------------------------------------------------------

MASK = "[removed]"

# Providers quote a refused key in their errors, often with its middle starred out; neither form may be kept.
_KEY_SHAPED = re.compile(r"\b(?:sk|pk|rk|gsk|xai)[-_][A-Za-z0-9_*.\-]{8,}|(?<=[Bb]earer )[^\s\"',}]+")


def masked(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the given values and without anything shaped like a key."""
    for secret in sorted({s for s in secrets if s}, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _KEY_SHAPED.sub(MASK, text)
