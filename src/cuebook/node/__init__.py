"""A node: the program on a paired machine that offers named capabilities to a `cuebook serve`.

`Action`, `Capability`, `Result` and `Work` are for packages that bring capabilities of their own, by an entry point of the
group `cuebook.capabilities`. A node knows nothing of playbooks, runs and stores: it performs single requests.
"""

from __future__ import annotations

from cuebook.node.capabilities.capability import Action, Capability, Result, Work

__all__ = ["Action", "Capability", "Result", "Work"]
