"""The policy: which actions are allowed, denied or need approval, and why.

`model` defines the values, `load` reads files into them, `decide` applies them to actions, and `overrides` checks
and suggests the patterns of overrides.
"""

from __future__ import annotations

from cuebook.gate.policy.decide import BUILT_IN, Opinion, decide, decide_all, names_host, opinions, stricter_rules
from cuebook.gate.policy.load import (
    FoundFile,
    bundle_from,
    check_text,
    content_digest,
    content_of,
    duration,
    find,
    load_bundle,
    load_layer,
    load_policy,
    playbook_layer,
    trust_subject,
)
from cuebook.gate.policy.model import (
    TABLES,
    Approvals,
    ApprovalWishes,
    Bundle,
    Canceller,
    Decision,
    Layer,
    Override,
    Policy,
    Postconditions,
    Preset,
    Reason,
    Rule,
    Rules,
    Ruling,
    Whose,
    approvals_of,
    strictest,
)
from cuebook.gate.policy.patterns import Stand

__all__ = [
    "BUILT_IN",
    "TABLES",
    "ApprovalWishes",
    "Approvals",
    "Bundle",
    "Canceller",
    "Decision",
    "FoundFile",
    "Layer",
    "Opinion",
    "Override",
    "Policy",
    "Postconditions",
    "Preset",
    "Reason",
    "Rule",
    "Rules",
    "Ruling",
    "Stand",
    "Whose",
    "approvals_of",
    "bundle_from",
    "check_text",
    "content_digest",
    "content_of",
    "decide",
    "decide_all",
    "duration",
    "find",
    "load_bundle",
    "load_layer",
    "load_policy",
    "names_host",
    "opinions",
    "playbook_layer",
    "stricter_rules",
    "strictest",
    "trust_subject",
]
