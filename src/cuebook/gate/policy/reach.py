"""What policies say about more than one action at a time: all of the network, any reading."""

from __future__ import annotations

from collections.abc import Sequence

from cuebook.gate.policy.bundle import Policy

STORE = "the store of runs"
"""The layer that keeps tools from the store, which is hidden from commands anyway."""


def denies_network(policies: Sequence[Policy]) -> bool:
    """Whether some layer denies every address: then a process that could reach any of them is denied too."""
    rules = [layer.bundle.egress for policy in policies for layer in policy.layers]
    return any(rule.default == "deny" or "*" in rule.deny for rule in rules)


def restricts_reading(policies: Sequence[Policy]) -> bool:
    """Whether some file of the workspace must not be read, or not without asking."""
    layers = [layer for policy in policies for layer in policy.layers if layer.where != STORE]
    patterns = [pattern for layer in layers for pattern in (*layer.bundle.files.deny, *layer.bundle.files.ask)]
    return any(not pattern.startswith("write:") for pattern in patterns)
