"""The performer of `Send`: the journal is where messages are read, so that nothing more is to be done for one."""

from __future__ import annotations

from cuebook.kernel.effects import Send
from cuebook.kernel.outcomes import Done
from cuebook.kernel.ports import Call


class MessagePerformer:
    """A message is with whoever watches the run as soon as it is recorded."""

    async def perform(self, effect: Send, call: Call) -> Done:
        return Done()
