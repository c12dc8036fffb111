"""Performs `AskModel`: finds the model, checks that the request fits, streams the reply, retries, and counts the cost.

It does not know any provider's protocol or any dialect. External failures become a `Failed` with a stable code.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress

import msgspec

from cuebook.kernel.capabilities import LOCAL_MODEL
from cuebook.kernel.context import INLINE_LIMIT, Text
from cuebook.kernel.effects import AskModel
from cuebook.kernel.errors import BadInput
from cuebook.kernel.model_names import chain
from cuebook.kernel.outcomes import REFUSED, REJECTED_BY, Failed, Reply, Usage
from cuebook.kernel.ports import Action, Call, Description, Estimate
from cuebook.kernel.run import Settings
from cuebook.performers.models.model import (
    RETRYABLE,
    Counts,
    ErrorKind,
    Final,
    ModelError,
    Request,
    Room,
    TextDelta,
    TokenEstimate,
    Tokens,
    estimate_request,
    estimate_text,
    masked,
    messages_of,
    unconstrained,
)
from cuebook.performers.models.prices import Facts, Prices
from cuebook.performers.models.providers import MissingKey, Providers, Resolved
from cuebook.performers.models.queue import Queued
from cuebook.performers.models.retries import DEFAULT_RETRIES, Retries

MAX_TOKENS = 16_384

_ROOM = 1_024
"""Output tokens worth keeping free. If the upper estimate of the input leaves fewer, the likely estimate is used."""

DOWN = 60.0
"""Seconds during which a model that was unavailable is passed over if there is a fallback."""

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)

_MANY = 10**9
"""A number of tokens beyond every price tier, to find out whether a model costs anything."""

_SAID = 300
"""How many characters of a refusal the error message quotes."""
_LONGEST = 2_000
"""How many characters of an error are kept."""

_CODES: dict[ErrorKind, str] = {
    "auth": "model_auth",
    "permission": "model_permission",
    "quota": "model_quota",
    "not_found": "model_not_found",
    "bad_request": "model_bad_request",
    "context_length": "context_too_long",
    "rate": "model_rate_limited",
    "overloaded": "model_overloaded",
    "server": "model_server_error",
    "network": "model_network",
    "timeout": "model_timeout",
    "dropped": "model_dropped",
    "too_large": "reply_too_large",
    "tools_unsupported": "tools_unsupported",
    "not_installed": "model_not_installed",
}


_REJECTS_KEY: frozenset[ErrorKind] = frozenset({"auth", "permission"})
"""The errors that another key can end."""


class _TooLong(Exception):
    def __init__(self, needed: int, window: int, exact: bool) -> None:
        self.needed, self.window, self.exact = needed, window, exact


class _Heard(msgspec.Struct):
    """The result of one attempt so far."""

    pieces: list[str] = []
    final: Final | None = None
    stopped: bool = False
    """Whether the watch stopped it."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class ModelPerformer:
    """Implements `kernel.ports.Performer` and `Describer` for `AskModel`, `Estimator` and `Pricing`."""

    def __init__(
        self,
        providers: Providers,
        *,
        prices: Prices | None = None,
        retries: Retries = DEFAULT_RETRIES,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._providers = providers
        self._prices = prices or Prices()
        self._retries = retries
        self._sleep = sleep
        self._draw = draw
        self._clock = clock
        self._elsewhere: set[tuple[str, str]] = set()
        """The runs and providers for which a warning has already been given."""
        self._refused: set[tuple[str, bytes]] = set()
        """Models, each with a schema that its provider does not enforce."""
        self._down: dict[str, float] = {}
        """Models with a fallback that were unavailable, and until when the fallback is called at once."""

    def estimate(self, effect: AskModel, settings: Settings) -> Estimate:
        """The most that the call can use. Input is estimated from its characters; see `estimate_request`.

        A call that will fail before it is sent, because a key or a model is missing, uses nothing.
        """
        try:
            found = self._found(effect, settings)
        except BadInput:
            return Estimate(0, 0, 0.0)
        size = estimate_request(_request(effect, settings, found[0][0], _wanted(effect, settings)))
        outputs = [_clamped(_wanted(effect, settings), size, facts) for _, facts in found]
        costs = [self._most(*one, size.upper, output) for one, output in zip(found, outputs, strict=True)]
        return Estimate(size.upper, max(outputs), _dearest(costs))

    def needs(self, effect: AskModel, settings: Settings) -> tuple[str, ...]:
        """A call of the embedded model needs a machine that has it."""
        with suppress(BadInput):
            names = chain(self._providers.full_name(settings.asked(effect.model), settings.model))
            return (LOCAL_MODEL,) if any(name.partition("/")[0] == "local" for name in names) else ()
        return ()

    def is_free(self, effect: AskModel, settings: Settings) -> bool:
        """Whether the price of the model, and of those it may fall back to, is known to be zero."""
        try:
            found = self._found(effect, settings)
        except BadInput:
            return False
        return all(self._most(*one, _MANY, _MANY) == 0.0 for one in found)

    async def describe(self, effect: AskModel, settings: Settings) -> Description:
        """Contains the model's full name, however the playbook writes it, because rules match full names."""
        name = settings.asked(effect.model)
        with suppress(BadInput):  # performing it reports what is wrong
            name = self._providers.full_name(name, settings.model)
        return Description(tuple(Action("model", one, reads_only=True) for one in chain(name)), f"Ask {name}")

    async def perform(self, effect: AskModel, call: Call) -> Reply | Failed:
        try:
            found = self._found(effect, call.settings)
        except MissingKey as error:
            return self._waiting_for_key(Failed.of(error), error.provider, sent=False)
        except BadInput as error:
            return Failed.of(error)
        try:
            async with asyncio.timeout(effect.timeout) as limit:
                return await self._first_available(effect, found, call, limit)
        except TimeoutError:
            message = f"{' or '.join(one.name for one, _ in found)} did not answer within {effect.timeout:g} s."
            return Failed("timeout", message, "Give it more time, or ask for less.", retryable=True)

    async def _first_available(
        self, effect: AskModel, found: Sequence[tuple[Resolved, Facts]], call: Call, limit: asyncio.Timeout
    ) -> Reply | Failed:
        """The reply of the first model in the chain that is not down. A request that a model refuses is not passed on."""
        *_, (last, _) = found
        for (resolved, facts), (following, _) in zip(found, [*found[1:], found[-1]], strict=True):
            if resolved is not last and self._down.get(resolved.name, 0.0) > self._clock():
                call.note("model_fallback", {"model": resolved.name, "to": following.name, "kind": "down"})
                continue
            outcome = await self._one(effect, resolved, facts, call, limit)
            if resolved is last or not isinstance(outcome, Failed) or outcome.details.get("kind") not in RETRYABLE:
                return outcome
            self._down[resolved.name] = self._clock() + DOWN
            call.reset()
            about = {"model": resolved.name, "to": following.name, "kind": outcome.details.get("kind")}
            call.note("model_fallback", {**about, "reason": outcome.message[:_SAID]})
            call.warn(
                "model_fallback",
                f"{resolved.name} is unavailable, so {following.name} was called instead: {outcome.message}",
            )
        raise AssertionError("the last model of a chain is always called")

    async def _one(
        self, effect: AskModel, resolved: Resolved, facts: Facts, call: Call, limit: asyncio.Timeout
    ) -> Reply | Failed:
        self._warn_elsewhere(effect, call, resolved)
        _warn_left_out(effect, call, resolved)
        try:
            request = await self._fitted(effect, call.settings, resolved, facts)
        except _TooLong as long:
            return _too_long(resolved, long)
        except ModelError as error:
            return self._failed(error, resolved, 0, call)
        return await self._answered(effect, request, resolved, facts, call, limit)

    def _warn_elsewhere(self, effect: AskModel, call: Call, resolved: Resolved) -> None:
        """Warns once per run about a playbook that uses a different key than the run's own model."""
        warned = (call.run, resolved.provider)
        own = {name.partition("/")[0] for name in chain(call.settings.model)}
        if not effect.model or resolved.provider in own or warned in self._elsewhere:
            return
        if self._providers.wants_key(resolved.provider):
            self._elsewhere.add(warned)
            call.warn(
                "other_provider",
                f"The playbook itself chose {resolved.name}, which uses your key for {resolved.provider}, in addition to"
                f" the run's own model {call.settings.model}.",
            )

    async def _answered(
        self, effect: AskModel, request: Request, resolved: Resolved, facts: Facts, call: Call, limit: asyncio.Timeout
    ) -> Reply | Failed:
        began = self._clock()
        queued = Queued(resolved, call, self._clock, limit)
        waited = 0.0
        retry = 0
        while True:
            heard = _Heard()
            try:
                async with queued.turn():
                    await self._attempt(request, resolved, call, heard)
                break
            except ModelError as error:
                if request.schema is not None and _names_schema(error):
                    request = self._without_schema(request, resolved, call, error)
                    continue
                wait = self._retries.wait(retry, error.retry_after, self._draw)
                if not error.retryable or retry + 1 >= self._retries.attempts or waited + wait > self._retries.total:
                    return self._failed(error, resolved, retry, call)
                if heard.pieces:
                    call.reset()
                    call.warn(
                        "reply_dropped",
                        f"The reply of {resolved.name} broke off after {len(heard.text)} characters and was"
                        " requested again; the cost of the lost part is not included in the total.",
                    )
                reason = self._shown(error, call, _SAID)
                about = {"model": resolved.name, "kind": error.kind, "wait": round(wait, 3)}
                call.note(
                    "model_attempt", {"number": retry + 2, "of": self._retries.attempts, "reason": reason, **about}
                )
            await self._sleep(wait)
            waited += wait
            retry += 1
        self._providers.accepted(resolved.provider)
        outcome = await self._outcome(
            request, resolved, facts, call, heard, self._clock() - began - queued.seconds, retry
        )
        if effect.schema is not None and request.schema is None:
            outcome = _without_fence(outcome)
        return _judged(effect, outcome, resolved, request.max_tokens, call)

    def _without_schema(self, request: Request, resolved: Resolved, call: Call, error: ModelError) -> Request:
        """The request for a provider that does not enforce its schema: from now on the prompt asks for it instead."""
        self._refused.add(_schema_of(resolved, request))
        call.warn(
            "schema_refused",
            f"{resolved.name} does not enforce the step's schema, so the prompt asks for it instead; the reply is"
            f" checked anyway. {self._shown(error, call, 500)}",
        )
        return unconstrained(request)

    async def _attempt(self, request: Request, resolved: Resolved, call: Call, heard: _Heard) -> None:
        timeouts = self._providers.timeouts
        room = Room(self._providers.reply_limit, resolved.name)
        try:
            async with asyncio.timeout(timeouts.total):
                async with aclosing(resolved.answers.stream(request)) as chunks:
                    while True:
                        async with asyncio.timeout(timeouts.idle):
                            chunk = await anext(chunks, None)
                        if chunk is None:
                            break
                        if isinstance(chunk, Final):
                            heard.final = chunk
                            break
                        room.take(chunk.text)
                        if not _emitted(chunk, call, heard):
                            return
        except TimeoutError:
            raise ModelError(
                "timeout", f"{resolved.name} sent nothing for {timeouts.idle:g} s, or took over {timeouts.total:g} s."
            ) from None
        if heard.final is None:
            raise ModelError("dropped", f"{resolved.name} ended the stream before the reply was complete.")

    async def _outcome(
        self,
        request: Request,
        resolved: Resolved,
        facts: Facts,
        call: Call,
        heard: _Heard,
        seconds: float,
        retries: int,
    ) -> Reply:
        final = heard.final or Final()
        tokens = final.tokens or await self._counted(request, resolved, heard.text)
        usage = self._usage(resolved, facts, tokens, final.cost)
        finish = "watch" if heard.stopped else final.finish
        if final.unknown:
            call.warn("unknown_finish", f"{resolved.name} ended its reply for an unknown reason: {final.unknown}.")
        model = f"{resolved.provider}/{final.model}" if final.model else resolved.name
        return Reply(
            Text(heard.text),
            final.calls,
            model,
            finish,
            usage,
            seconds,
            retries,
            window=facts.window,
            thinking=final.thinking if final.calls else (),
        )

    async def _fitted(self, effect: AskModel, settings: Settings, resolved: Resolved, facts: Facts) -> Request:
        """The request with as much output as there is room for. Raises `_TooLong` if the input alone does not fit."""
        request = _request(effect, settings, resolved, _wanted(effect, settings))
        if request.schema is not None and _schema_of(resolved, request) in self._refused:
            request = unconstrained(request)
        exact = isinstance(resolved.answers, Counts)
        size = await self._size(request, resolved)
        if facts.window is not None and size.likely >= facts.window:
            raise _TooLong(size.likely, facts.window, exact)
        return msgspec.structs.replace(request, max_tokens=_clamped(request.max_tokens, size, facts))

    async def _size(self, request: Request, resolved: Resolved) -> TokenEstimate:
        if isinstance(resolved.answers, Counts):
            count = await resolved.answers.count(request)
            return TokenEstimate(count, count)
        return estimate_request(request)

    async def _counted(self, request: Request, resolved: Resolved, text: str) -> Tokens:
        """Estimates the usage if the provider did not report it, perhaps because it was stopped."""
        size = await self._size(request, resolved)
        if isinstance(resolved.answers, Counts):
            return Tokens(size.likely, await resolved.answers.count_text(text))
        return Tokens(size.likely, estimate_text(text).likely)

    def _found(self, effect: AskModel, settings: Settings) -> list[tuple[Resolved, Facts]]:
        """The model and those to fall back to, in order."""
        chosen = self._providers.chosen(settings.asked(effect.model), settings.model)
        return [(one, self._facts(one)) for one in chosen]

    def _facts(self, resolved: Resolved) -> Facts:
        if _is_embedded(resolved):
            return Facts(window=resolved.window)
        return self._prices.facts(resolved.priced_as, resolved.model)

    def _most(self, resolved: Resolved, facts: Facts, input_tokens: int, output_tokens: int) -> float | None:
        if _is_embedded(resolved):
            return 0.0
        return None if facts.price is None else facts.price.most(input_tokens, output_tokens)

    def _usage(self, resolved: Resolved, facts: Facts, tokens: Tokens, reported: float | None) -> Usage:
        counts = (tokens.input, tokens.output, tokens.cached, tokens.reasoning)
        if reported is not None:
            return Usage(*counts, reported, "reported")
        # The embedded model's stream was stopped before it could say that it is free.
        if _is_embedded(resolved):
            return Usage(*counts, 0.0, "reported")
        if facts.price is not None:
            return Usage(*counts, facts.price.cost(tokens), "estimated")
        return Usage(*counts, None, "unknown")

    def _shown(self, error: ModelError, call: Call, most: int) -> str:
        """What a provider said. It is masked before it is cut: half of a value could not be recognised afterwards."""
        shown: str = call.masked(masked(error.message, self._providers.secrets()))
        return shown[:most]

    def _failed(self, error: ModelError, resolved: Resolved, retries: int, call: Call) -> Failed:
        words = self._shown(error, call, _LONGEST)
        if retries:
            stop = "." if words.endswith(".") else ""
            words = f"{words.removesuffix('.')} (tried {retries + 1} times){stop}"
        details: dict[str, object] = {"kind": error.kind, "model": resolved.name, "retries": retries}
        if error.status is not None:
            details["status"] = error.status
        failed = Failed(_CODES[error.kind], words, masked(error.fix), error.retryable, details)
        return self._waiting_for_key(failed, resolved.provider) if error.kind in _REJECTS_KEY else failed

    def _waiting_for_key(self, failed: Failed, provider: str, *, sent: bool = True) -> Failed:
        """The failure of a call that can be made with another key; unchanged if its provider has no key."""
        fix = self._providers.rejected(provider, sent=sent)
        if not fix:
            return failed
        return msgspec.structs.replace(failed, fix=fix, details={**failed.details, REJECTED_BY: provider})


def _request(effect: AskModel, settings: Settings, resolved: Resolved, max_tokens: int) -> Request:
    temperature = effect.temperature if effect.temperature is not None else settings.temperature
    made = Request(
        resolved.model,
        messages_of(effect),
        max_tokens,
        temperature,
        effect.schema,
        effect.tools,
        effect.stop,
        effect.grammar,
        effect.may_call,
        effect.effort or settings.effort,
    )
    if not any(message.files for message in made.messages):
        return made
    from cuebook.performers.models.attachments import fitted

    return fitted(made, resolved)


def _warn_left_out(effect: AskModel, call: Call, resolved: Resolved) -> None:
    """Warns about the latest images and documents that the model does not take; it learns of it as well."""
    last = effect.context.block
    if last is None or last.role != "tool":
        return
    from cuebook.performers.models.attachments import left_out

    if names := left_out(effect, resolved):
        words = f"{resolved.name} does not take {', '.join(names)}, which a tool read."
        call.warn("attachment_left_out", words)


def _wanted(effect: AskModel, settings: Settings) -> int:
    wanted = effect.max_tokens or settings.max_tokens or MAX_TOKENS
    return wanted if effect.room is None else max(1, min(wanted, effect.room))


def _clamped(wanted: int, size: TokenEstimate, facts: Facts) -> int:
    limit = wanted if facts.output is None else min(wanted, facts.output)
    if facts.window is None:
        return limit
    room = facts.window - size.upper
    if room < _ROOM:
        room = facts.window - size.likely
    return max(1, min(limit, room))


def _dearest(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return max(known) if len(known) == len(costs) else None


def _is_embedded(resolved: Resolved) -> bool:
    return resolved.provider == "local" and resolved.window is not None


def _emitted(chunk: TextDelta, call: Call, heard: _Heard) -> bool:
    if not chunk.text:
        return True
    heard.pieces.append(chunk.text)
    if call.emit(chunk.text):
        return True
    heard.stopped = True
    return False


def _too_long(resolved: Resolved, long: _TooLong) -> Failed:
    about = "" if long.exact else "about "
    return Failed(
        "context_too_long",
        f"The input has {about}{long.needed:,} tokens, but {resolved.name} has room for only {long.window:,}, including its reply.",
        "Shorten the step's input, or choose a model with a larger window.",
        False,
        {"input_tokens": long.needed, "window": long.window, "exact": long.exact, "model": resolved.name},
    )


def _names_schema(error: ModelError) -> bool:
    """Whether a provider rejected a request because of the reply's schema, and not because of a tool's schema."""
    if error.kind != "bad_request":
        return False
    words = error.message.lower()
    named = any(word in words for word in ("response_format", "json_schema", "output_config", "output_format"))
    return named or (("schema" in words or "grammar" in words) and "function" not in words and "tool" not in words)


def _without_fence(reply: Reply) -> Reply:
    """The JSON without the code fence that a model may put around it."""
    found = _FENCED.fullmatch(reply.text.strip())
    return msgspec.structs.replace(reply, content=Text(found[1])) if found else reply


def _schema_of(resolved: Resolved, request: Request) -> tuple[str, bytes]:
    return resolved.name, msgspec.json.encode(request.schema)


def _judged(effect: AskModel, reply: Reply, resolved: Resolved, max_tokens: int, call: Call) -> Reply | Failed:
    """The outcome of a reply: a refusal or an empty reply is a failure.

    A dialect that checks each reply itself (a lenient effect, or a watch) gets an empty reply, with a warning.
    """
    if reply.finish == "filter":
        said = call.masked(reply.text).strip()
        words = f"{resolved.name} refused to answer{f': {said[:_SAID]}' if said else ', and gave no reason'}"
        return _failed_reply(REFUSED, words, "Change the prompt, or choose another model.", reply, call)
    cut = f" It was cut at {max_tokens} tokens." if reply.finish == "length" else ""
    if reply.finish != "watch" and not reply.calls and not reply.text.strip():
        words = f"The reply of {resolved.name} is empty.{cut}"
        if not effect.lenient and effect.watch is None:
            fix = "Raise max_tokens." if cut else "Retry the step, or choose another model."
            return _failed_reply("reply_empty", words, fix, reply, call, retryable=True)
        call.warn("reply_empty", words)
    elif cut:
        call.warn(
            "reply_cut",
            f"The reply of {resolved.name} was cut at {max_tokens} tokens. Raise max_tokens, or ask for less.",
        )
    wrong = "" if effect.lenient else _wrong(effect, reply)
    if not wrong:
        return reply
    wrong = _wrong(effect, msgspec.structs.replace(reply, content=Text(call.masked(reply.text)))) or wrong
    return _failed_reply(
        "schema_mismatch",
        f"The reply of {resolved.name} does not follow the step's schema: {wrong}.{cut}",
        "Retry the step, loosen the schema, or choose a stronger model.",
        reply,
        call,
        retryable=True,
    )


def _wrong(effect: AskModel, reply: Reply) -> str:
    """How the reply violates the schema. A turn that calls tools or was stopped does not have to match it."""
    if effect.schema is None or reply.calls or reply.finish == "watch":
        return ""
    from cuebook.formats.schema import flaws, mismatches

    try:
        value = json.loads(reply.text)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON ({error})"
    for _, why in flaws(effect.schema):
        return f"the schema itself cannot be used ({why})"
    return next((one.removeprefix("$: ") for one in mismatches(effect.schema, value, most=1)), "")


def _failed_reply(code: str, words: str, fix: str, reply: Reply, call: Call, *, retryable: bool = False) -> Failed:
    """A failure that was paid for: its usage counts, and the text is kept."""
    said = call.masked(reply.text)[:INLINE_LIMIT]
    details = {"model": reply.model, "reply": said, "usage": msgspec.to_builtins(reply.usage)}
    return Failed(code, words, fix, retryable, {**details, "finish": reply.finish})
