"""Shows a reply to observers as it arrives: redacted, and through the effect's watch if it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.kernel.effects import AskModel, Effect
from cuebook.kernel.events import TextChunk, TextReset
from cuebook.kernel.journal import Key
from cuebook.kernel.outcomes import Reply
from cuebook.kernel.ports import Filter

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver


class ReplyStream:
    """Shows a reply as it arrives, through the effect's watch if it has one."""

    def __init__(self, driver: Driver, key: Key, seq: int, effect: Effect) -> None:
        self._publish = driver.engine.publish
        self._run, self._step, self._seq = driver.run_id, key[1], seq
        self._driver, self._watched = driver, effect.watch if isinstance(effect, AskModel) else None
        self._watch = self._watch_anew()
        self._masked = driver.redactor.stream
        self._filter: Filter | None = None
        self._offset = 0
        self._shown: list[str] = []

    def _watch_anew(self) -> Any:
        watched = self._watched
        return None if watched is None else self._driver.engine.watch(watched.name, watched.arguments)

    @property
    def said(self) -> str:
        """The part of the reply that observers have seen."""
        return "".join(self._shown)

    def emit(self, text: str) -> bool:
        if self._filter is None:
            self._filter = self._masked()
        return self._see(self._filter.feed(text))

    def _see(self, text: str) -> bool:
        release, go_on = text, True
        if self._watch is not None:
            seen = self._watch.feed(text)
            release, go_on = seen.release, not seen.stop
        self._show(release)
        return go_on

    def reset(self) -> None:
        self._watch, self._filter, self._offset = self._watch_anew(), None, 0
        self._shown.clear()
        self._publish(TextReset(self._run, self._seq, self._step))

    def close(self, reply: Reply) -> Reply:
        if reply.finish != "watch" and not self._see("" if self._filter is None else self._filter.finish()):
            reply = msgspec.structs.replace(reply, finish="watch")
        if self._watch is None:
            return reply
        if reply.finish != "watch":
            self._show(self._watch.finish())
        return msgspec.structs.replace(reply, released=self._offset)

    def _show(self, text: str) -> None:
        if text:
            self._publish(TextChunk(self._run, self._seq, self._step, self._offset, text))
            self._offset += len(text)
            self._shown.append(text)
