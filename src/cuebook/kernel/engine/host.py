"""Host mode: a model call that a connected assistant answers. It is a wait of the kind `model`.

The answer becomes an ordinary reply, so programs cannot tell the difference. Which assistant may answer, and whether its
result fits, is decided before it reaches the wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.effects import AskModel
from cuebook.kernel.engine.handlers import unanswered
from cuebook.kernel.engine.reply_stream import ReplyStream
from cuebook.kernel.events import FOR_HOST, ModelAsked, WaitClosed, Warned
from cuebook.kernel.journal import Key, Place, outcome_from
from cuebook.kernel.outcomes import AnyOutcome, Failed, Reply, Usage
from cuebook.kernel.ports import Admitted
from cuebook.kernel.run import HOST

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver, Line

EXPIRES_AFTER = 86_400.0
"""Seconds after which a wait for an assistant expires, if the run's settings say nothing."""

ASKED, SCHEMA, TOOLS = "asked", "schema", "tools"
"""In a wait's details: the record of the model call. In its full preview: the reply's schema and the step's tools, as JSON."""

TEXT, CALLS, FAILED, SECONDS, CLAIM = "text", "calls", "failed", "seconds", "claim"
"""In the answer: the reply, the tool calls in it, or the failure that takes its place; how long the assistant had it, and its
claim."""

_PROMPT = "Waiting for the assistant to do this step."


async def ask(driver: Driver, line: Line, key: Key, effect: AskModel, admitted: Admitted) -> AnyOutcome:
    """Opens the wait, or finds it, and returns the outcome when an assistant has answered."""
    opened = driver.recorded.opened.get((key, FOR_HOST))
    try:
        asked = opened.details[ASKED] if opened is not None else _note_call(driver, key, effect, admitted)
    except UnicodeError as error:
        return Failed("not_storable", f"The prompt is not valid text: {error}.")
    expiry = driver.settings.pause_expiry
    closed = await driver.waits.wait(
        line,
        key,
        FOR_HOST,
        _PROMPT,
        expires_after=EXPIRES_AFTER if expiry is None else expiry,
        details={ASKED: asked},
        whole=_request(effect),
    )
    if closed.how != "answered":
        return unanswered(closed.how, FOR_HOST)
    if effect.judges:
        words = "The assistant that does this run's work also judged it; give judges and routers a model of their own."
        driver.writer.note(Warned("self_judged", f"Step {key[1]}: {words}" if key[1] else words), Place(*key, 1))
    return _outcome(driver, key, effect, asked, closed)


def _note_call(driver: Driver, key: Key, effect: AskModel, admitted: Admitted) -> int:
    effect.prompt.encode()
    since, added = driver.writer.keep_context(effect.context)
    event = ModelAsked(
        HOST,
        effect.context.digest,
        Text(effect.prompt),
        effect.fingerprint,
        ruling=admitted.ruling,
        since=since,
        added=added,
    )
    return driver.writer.note(event, Place(*key, 1))


def _request(effect: AskModel) -> dict[str, str]:
    """What an assistant needs in addition to the text: stored once, however often the same tools are offered."""
    parts: dict[str, Any] = {}
    if effect.schema is not None:
        parts[SCHEMA] = effect.schema
    if effect.tools and effect.may_call:
        parts[TOOLS] = effect.tools
    return {name: msgspec.json.encode(part).decode() for name, part in parts.items()}


def _outcome(driver: Driver, key: Key, effect: AskModel, asked: int, closed: WaitClosed) -> AnyOutcome:
    answer = closed.answer
    if answer.get(FAILED) is not None:
        return outcome_from(answer[FAILED])
    calls = msgspec.convert(answer.get(CALLS, []), tuple[ToolCall, ...])
    text = str(answer.get(TEXT, ""))
    reply = Reply(Text(text), calls, HOST, "tool_calls" if calls else "stop", Usage(), float(answer.get(SECONDS, 0.0)))
    stream = ReplyStream(driver, key, asked, effect)
    if text and not stream.emit(text):
        reply = msgspec.structs.replace(reply, finish="watch")
    return stream.close(reply)
