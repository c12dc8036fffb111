"""Keeps a conversation within its model's window: rarely and deeply, so that the prompt stays cacheable in between.

Everything is computed from outcomes (the window and the tokens of each reply, the failure of a call that did not fit) and
from lengths, so a replay takes the same path without loading a text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cuebook.kernel.context import EMPTY, Attachment, Block, Context, Text, ToolCall
from cuebook.kernel.conversation.calls import arguments_of, trimmed
from cuebook.kernel.effects import All, AskModel, Program
from cuebook.kernel.events import Noted, Warned
from cuebook.kernel.outcomes import EffectFailed, Failed, Reply, ToolResult

PLAN_TOOL = "TodoWrite"
"""The tool whose latest call is the open plan. It stays, whatever else is removed."""

TOO_LONG = "context_too_long"
"""The failure of a call whose input does not fit."""

FULL = 0.8
"""The part of the window from which a conversation is compacted."""
DEEP = 0.4
"""The part of the window that it should take afterwards."""
ENOUGH = 0.5
"""If removing old results leaves more than this, the model summarises the older turns."""
HOPELESS = 0.6
"""If even that leaves more than this, the conversation is not compacted again: at least a fifth of the window lies between two
compactions, which bounds how often they happen."""
CLOSING = 0.9
"""The part of the window from which a conversation that cannot be compacted again has to end."""
LATEST = 0.2
"""The part of the window that the latest turns may keep when older turns are summarised."""
TURN = 0.25
"""The part of the window that the results of one turn may take."""
OVERFLOWS = 2
"""How often in a row a call that did not fit is compacted and made again."""

SUMMARIES = 8
"""How many summaries a model is asked for in one conversation. After that, its earlier calls are listed instead."""

SUMMARY_TOKENS = 4_096
"""The most that a summary may take."""
_SMALL = 400
"""Results of up to this many characters are not worth removing."""
_RATE = 0.3
"""Tokens per character until the replies say otherwise."""
_LEAST, _MOST = 0.15, 1.5
_SAMPLE = 4_000
"""Characters that must have been added before the rate is measured."""
_LISTED = 60
"""How many calls are listed if the model gives no summary."""
_LINE = 160

SUMMARISE = (
    "The conversation is about to be shortened. Summarise it for yourself, so that you can continue the work with nothing but"
    " the task and your summary: what was done and found (with exact names, paths, values and errors), what was decided and"
    " why, what failed, and what remains to be done. Do not call tools, and do not start on the next step."
)
_IMAGE = 6_400
"""Characters that take as much of the window as an image."""
_DENSITY = 20
"""How many bytes of a document, in base64, take as much of the window as a character."""
_SUMMARY = "[Earlier turns were removed to make room. This is the summary of them.]"
_PLAN = "[The open plan:]"


class Window:
    """The window of the conversation's model, as far as the outcomes tell, and how much of it the next call takes."""

    def __init__(self, ask: AskModel, summaries: int = SUMMARIES) -> None:
        self._summaries = summaries
        self._task = ask.context.size + (1 if ask.prompt else 0)
        """How many blocks the conversation begins with. They stay."""
        self._size: int | None = None
        self._ceiling: int | None = None
        """What is left of an unknown window after a call did not fit."""
        self._rate = _RATE
        self._known: tuple[int, int] | None = None
        """The tokens and characters of the last reply's input and output."""
        self._sizes: dict[str, int] = {}
        """The true sizes of the results, in bytes, by the id of their calls."""
        self._spent = False
        """Whether compacting it again would not help."""

    # --- what is known ---

    def saw(self, ask: AskModel, reply: Reply) -> None:
        """Takes the window and the tokens from a reply."""
        known = [size for size in (reply.window, self._ceiling) if size is not None]
        self._size = min(known) if known else self._size
        if not reply.usage.input:
            return
        chars = weight_of(ask)
        said = len(reply.content) + _length_of(reply.calls)
        tokens = reply.usage.input + reply.usage.output
        if self._known is not None and chars - self._known[1] >= _SAMPLE:
            self._measure((reply.usage.input - self._known[0]) / (chars - self._known[1]))
        self._known = (tokens, chars + said)

    def _measure(self, rate: float) -> None:
        self._rate = min(_MOST, max(_LEAST, rate))

    def _overflowed(self, ask: AskModel, failed: Failed) -> None:
        """Takes what a call that did not fit says about the window; if nothing, what was sent was too much."""
        tokens = self._tokens(ask)
        needed, window = failed.details.get("input_tokens"), failed.details.get("window")
        if isinstance(needed, int) and isinstance(window, int):
            self._size = window
            chars = weight_of(ask)
            self._measure(max(self._rate, needed / max(1, chars)))
            self._known = (needed, chars)
        else:
            self._size = self._ceiling = min(tokens, self._size or tokens)

    def _tokens(self, ask: AskModel) -> int:
        """About how many tokens the call will send."""
        chars = weight_of(ask)
        if self._known is None:
            return int(chars * self._rate)
        tokens, known = self._known
        return max(0, int(tokens + (chars - known) * self._rate))

    # --- results that enter the conversation ---

    def trim(self, answered: Sequence[tuple[ToolCall, ToolResult]], texts: Sequence[str]) -> list[str]:
        """The results of one turn, each with its beginning and its end if together they take too much of the window."""
        for (call, result), text in zip(answered, texts, strict=True):
            self._sizes[call.id] = result.size or len(text.encode("utf-8", "replace"))
        room = None if self._size is None else int(self._size * TURN / self._rate)
        if room is None or sum(map(len, texts)) <= room:
            return list(texts)
        share, left = 0, len(texts)
        for size in sorted(map(len, texts)):  # what short results leave is shared by the longer ones
            share = room // left
            room, left = room - min(size, share), left - 1
        sizes = [self._sizes[call.id] for call, _ in answered]
        return [trimmed(text, share, size) for text, size in zip(texts, sizes, strict=True)]

    # --- calls ---

    def fitted(self, ask: AskModel) -> Program[AskModel]:
        """The call, compacted if it would take too much of the window."""
        if self._size is None or self._spent or self._tokens(ask) <= FULL * self._size:
            return ask
        return (yield from self._compacted(ask))

    def is_full(self, ask: AskModel) -> bool:
        """Whether there is room for one last reply only."""
        return self._size is not None and self._spent and self._tokens(ask) > CLOSING * self._size

    def asked(self, ask: AskModel, call: Callable[[AskModel], Program[Reply]]) -> Program[tuple[AskModel, Reply]]:
        """Makes a call. If its input does not fit, it is compacted and made again. Returns it as it was made, and the reply."""
        for overflow in range(OVERFLOWS + 1):
            try:
                reply = yield from call(ask)
            except EffectFailed as error:
                if error.failed.code != TOO_LONG or overflow == OVERFLOWS or ask.context.size <= self._task:
                    raise
                self._overflowed(ask, error.failed)
                smaller = yield from self._compacted(ask, overflowed=True)
                if smaller is ask:
                    raise
                ask = smaller
                continue
            self.saw(ask, reply)
            return ask, reply
        raise AssertionError("a call returns or fails")

    def _compacted(self, ask: AskModel, *, overflowed: bool = False) -> Program[AskModel]:
        window = self._size or 0
        before = self._tokens(ask)
        blocks = list(ask.context)
        task, rounds = blocks[: self._task], _rounds(blocks[self._task :])
        rounds, removed = self._without_results(rounds, before - DEEP * window)
        smaller = _context(task, rounds)
        after = self._less(ask, smaller, before)
        summarised = False
        older, latest = self._divided(rounds, LATEST * window)
        if after > ENOUGH * window and older:
            source = smaller if overflowed or before + SUMMARY_TOKENS > window else ask.context
            summary = yield from self._summary(ask, source, older, window)
            plan = _plan(older, latest)
            smaller = _context([*task, Block("user", Text(f"{_SUMMARY}\n\n{summary}{plan}"))], latest)
            after, summarised = self._less(ask, smaller, before), True
        self._spent = after > HOPELESS * window
        if not removed and not summarised:
            return ask
        sizes = {"before": before, "after": after, "window": window}
        yield Noted("compaction", {**sizes, "results": removed, "summary": summarised})
        self._known = (after, _weight_of(smaller) + len(ask.prompt))
        return msgspec.structs.replace(ask, context=smaller)

    def _less(self, ask: AskModel, smaller: Context, before: int) -> int:
        chars = sum(_size_of(block) for block in ask.context) - sum(_size_of(block) for block in smaller)
        return max(0, int(before - chars * self._rate))

    def _without_results(self, rounds: list[list[Block]], excess: float) -> tuple[list[list[Block]], int]:
        """The turns without their oldest results, until `excess` tokens are gone. The last turn and the plan stay."""
        calls = {call.id: call for one in rounds for block in one for call in block.calls}
        plan = next((call.id for call in reversed(calls.values()) if call.name == PLAN_TOOL), "")
        removed, found = 0, [list(one) for one in rounds]
        for one in found[:-1]:
            for number, block in enumerate(one):
                if excess <= 0:
                    return found, removed
                small = len(block.text) <= _SMALL and not block.attachments
                if block.role != "tool" or small or block.call_id == plan:
                    continue
                call = calls.get(block.call_id)
                note = _note(
                    call.name if call is not None else "a tool", self._sizes.get(block.call_id, len(block.text))
                )
                one[number] = Block("tool", Text(note), call_id=block.call_id, is_error=block.is_error)
                excess -= (_size_of(block) - len(note)) * self._rate
                removed += 1
        return found, removed

    def _divided(self, rounds: list[list[Block]], room: float) -> tuple[list[list[Block]], list[list[Block]]]:
        """The turns to summarise, and the latest turns, which stay."""
        at = len(rounds)
        while at > 0:
            room -= sum(map(_size_of, rounds[at - 1])) * self._rate
            if room < 0 and at < len(rounds):
                break
            at -= 1
        return rounds[:at], rounds[at:]

    def _summary(self, ask: AskModel, context: Context, older: list[list[Block]], window: int) -> Program[str]:
        if self._summaries <= 0:
            return _listed(older)
        self._summaries -= 1
        most = max(256, min(SUMMARY_TOKENS, window // 10))
        asking = msgspec.structs.replace(
            ask,
            prompt=SUMMARISE,
            context=context,
            may_call=False,
            relays=False,
            schema=None,
            max_tokens=most,
            lenient=True,
        )
        # Within an `All`, the reply does not count as the step's reply, and a failure is returned instead of raised.
        outcomes: tuple[Reply | Failed, ...] = yield All((asking,))
        reply = outcomes[0]
        said = "" if isinstance(reply, Failed) else reply.text.strip()
        if said:
            return said
        why = str(reply) if isinstance(reply, Failed) else "its reply was empty"
        yield Warned(
            "no_summary", f"The model did not summarise its earlier turns ({why}), so only its calls are listed."
        )
        return _listed(older)


def _note(tool: str, size: int) -> str:
    return f"[The result of {tool} ({size:,} bytes) was removed to make room. Call it again if you need it.]"


def _listed(older: list[list[Block]]) -> str:
    """The calls of the removed turns, if there is no better summary, after an earlier summary."""
    earlier = [str(block.text) for one in older for block in one if block.role == "user"]
    lines = [
        trimmed(f"- {call.name} {arguments_of(call).decode('utf-8', 'replace')}", _LINE).replace("\n", " ")
        for one in older
        for block in one
        for call in block.calls
    ]
    return "\n".join((*(trimmed(text, 8_000) for text in earlier[:1]), "Calls that were made:", *lines[-_LISTED:]))


def _plan(older: list[list[Block]], latest: list[list[Block]]) -> str:
    """The open plan, if its call is among the removed turns."""

    def latest_plan(rounds: list[list[Block]]) -> ToolCall | None:
        calls = (call for one in reversed(rounds) for block in one for call in reversed(block.calls))
        return next((call for call in calls if call.name == PLAN_TOOL), None)

    if latest_plan(latest) is not None:
        return ""
    plan = latest_plan(older)
    if plan is not None:
        return f"\n\n{_PLAN}\n{PLAN_TOOL} {arguments_of(plan).decode('utf-8', 'replace')}"
    earlier = next((str(block.text) for one in older for block in one if block.role == "user"), "")
    return f"\n\n{_PLAN}{earlier.rpartition(_PLAN)[2]}" if _PLAN in earlier else ""


def _rounds(blocks: Sequence[Block]) -> list[list[Block]]:
    """The turns: a reply of the model with everything up to its next reply."""
    rounds: list[list[Block]] = []
    for block in blocks:
        if block.role == "assistant" or not rounds:
            rounds.append([block])
        else:
            rounds[-1].append(block)
    return rounds


def _context(task: Sequence[Block], rounds: Sequence[Sequence[Block]]) -> Context:
    context = EMPTY
    for block in (*task, *(block for one in rounds for block in one)):
        context = Context(context, block)
    return context


def weight_of(ask: AskModel) -> int:
    """The characters that a call sends, with its attachments counted as characters."""
    return _weight_of(ask.context) + len(ask.prompt)


def _weight_of(context: Context) -> int:
    """The characters of a context. Each context remembers its own, so a prefix that many conversations share is counted once."""
    uncounted: list[Context] = []
    node: Context | None = context
    while node is not None and node.weight is None:
        uncounted.append(node)
        node = node.parent
    weight = 0 if node is None else node.weight or 0
    for node in reversed(uncounted):
        weight += 0 if node.block is None else _size_of(node.block)
        node.weight = weight
    return weight


def _size_of(block: Block) -> int:
    """How much of the window it takes, in characters."""
    return len(block.text) + _length_of(block.calls) + sum(map(_size_of_file, block.attachments))


def _size_of_file(file: Attachment) -> int:
    """Providers count an image by its area, up to about 1,600 tokens, and a document by its pages."""
    return _IMAGE if file.media_type.startswith("image/") else max(_IMAGE, len(file.data) // _DENSITY)


def _length_of(calls: Sequence[ToolCall]) -> int:
    return sum(len(call.name) + len(arguments_of(call)) for call in calls)
