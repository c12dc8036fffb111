"""The performer of `Send`: messages are read from the journal, so there is nothing more to do."""

from __future__ import annotations

from cuebook.kernel.effects import Send
from cuebook.kernel.outcomes import Done
from cuebook.kernel.ports import Call


class MessagePerformer:
    """A message reaches everyone who is watching the run as soon as it is recorded."""

    async def perform(self, effect: Send, call: Call) -> Done:
        return Done()
