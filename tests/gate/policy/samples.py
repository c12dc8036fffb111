"""Short helpers to build policies and actions."""

from __future__ import annotations

from typing import Any

from cuebook.gate.policy import Decision, Layer, Override, Policy, bundle_from, decide
from cuebook.kernel.ports import Action, Domain


def layer(values: dict[str, Any], whose: Any = "user", *, may_allow: bool = True, where: str = "policy.toml") -> Layer:
    return Layer(whose, where, bundle_from(values), may_allow)


def policy(*layers: Layer | dict[str, Any]) -> Policy:
    return Policy(tuple(one if isinstance(one, Layer) else layer(one) for one in layers))


def ruled(action: Action, *layers: Layer | dict[str, Any]) -> Decision:
    return decide(action, [policy(*layers)]).decision


def override(pattern: str, domain: Domain = "tool", **more: Any) -> Override:
    return Override(id="o1", domain=domain, pattern=pattern, by="ada", created=0.0, **more)
