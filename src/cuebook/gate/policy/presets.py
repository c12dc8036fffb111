"""The presets of a policy: rules that a file or a run takes over by name, below its own rules."""

from __future__ import annotations

import msgspec

from cuebook.gate.policy.model import AGENT, AGENT_UNCONFINED, Bundle, Policy, Rules

_INSIDE = ("Read", "Glob", "Grep", "Write", "Edit", "Bash", "BashOutput", "KillBash", "TodoWrite", "Task")
"""The built-in tools whose effects stay in the workspace, or are examined one by one."""
_OF_CODING_AGENTS = ("agent_permission", "agent_read", "agent_write", "agent_run")
"""The requests of coding agents, whose files and commands are examined one by one."""
_WEB = ("WebFetch", "WebSearch", "network")
"""The built-in tools whose requests, and the commands whose network, the rules for hosts decide on."""

_AGENT = Bundle(
    # Every other tool leaves the workspace: those of tool servers and of skills.
    tools=Rules(allow=(*_INSIDE, *_OF_CODING_AGENTS, *_WEB), default="ask"),
    commands=Rules(allow=("*",)),
    egress=Rules(default="ask"),
    # Programs outside the sandbox run what is in there, such as git with its hooks.
    files=Rules(
        allow=("read:**", "write:**"), ask=("write:.git", "write:.git/**", "write:**/.git", "write:**/.git/**")
    ),
    from_outside="allow",
)

PRESETS: dict[str, Bundle] = {
    AGENT: _AGENT,
    AGENT_UNCONFINED: msgspec.structs.replace(_AGENT, commands=Rules(), from_outside="ask"),
}
ABOUT: dict[str, str] = {
    AGENT: "for autonomous nodes: read and write in the workspace and run commands there; ask before anything leaves it",
}
"""The presets that users can choose, in words."""


def unconfined(policy: Policy) -> Policy:
    """The policy for commands without a sandbox: no preset allows them."""
    if all(layer.bundle.preset != AGENT for layer in policy.layers):
        return policy
    changed = (
        msgspec.structs.replace(layer, bundle=msgspec.structs.replace(layer.bundle, preset=AGENT_UNCONFINED))
        if layer.bundle.preset == AGENT
        else layer
        for layer in policy.layers
    )
    return Policy(tuple(changed))
