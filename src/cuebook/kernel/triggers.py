"""What starts runs other than people, as in journals and lists: a kind and, for most kinds, a name."""

from __future__ import annotations

from cuebook.kernel.errors import BadInput

SCHEDULE, WEBHOOK, FILES, AFTER = "schedule", "webhook", "files", "after"
"""The kinds with a name: `schedule:nightly`, `webhook:github`, `files:inbox`, `after:build`."""
TOKEN, MCP = "trigger", "mcp"
"""The kinds without one: the token of a playbook, with which another program starts it, and an assistant over MCP."""
NAMED_TRIGGERS = (SCHEDULE, WEBHOOK, FILES, AFTER)
COMPARE = "compare"
"""A comparison, whose id follows: `compare:k3xnpbf8wq2d`."""
TRIGGERS = (*NAMED_TRIGGERS, COMPARE, TOKEN, MCP)


def trigger_of(kind: str, name: str = "") -> str:
    """The trigger of this kind with this name."""
    return f"{kind}:{name}" if name else kind


def checked_trigger(trigger: str) -> str:
    """The trigger of a new run. Raises `BadInput` if there is none of this kind, or its name is missing."""
    kind, _, name = trigger.partition(":")
    if trigger and (kind not in TRIGGERS or bool(name) != (kind in (*NAMED_TRIGGERS, COMPARE))):
        raise BadInput(f"Unknown trigger '{trigger}'.", fix=f"Use {trigger_words()}.")
    return trigger


def trigger_words() -> str:
    """The possible triggers, for messages."""
    return ", ".join([f"{kind}:NAME" for kind in NAMED_TRIGGERS] + [f"{COMPARE}:ID", f"{TOKEN} or {MCP}"])
