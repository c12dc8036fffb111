"""The policy: which actions are allowed, asked about or denied, and why.

`bundle` holds the values, `load` reads files into them, `decide` holds actions against them.
"""

from __future__ import annotations

from cuebook.gate.policy.bundle import (
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
    Reason,
    Rule,
    Rules,
    Ruling,
    Whose,
    approvals_of,
    strictest,
)
from cuebook.gate.policy.decide import BUILT_IN, Opinion, decide, decide_all, names_host, opinions
from cuebook.gate.policy.foreseen import stricter_rules
from cuebook.gate.policy.load import (
    FoundFile,
    bundle_from,
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
from cuebook.gate.policy.overriding import check_override, problem_with, safe_pattern, suggested
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
    "Reason",
    "Rule",
    "Rules",
    "Ruling",
    "Stand",
    "Whose",
    "approvals_of",
    "bundle_from",
    "check_override",
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
    "problem_with",
    "safe_pattern",
    "stricter_rules",
    "strictest",
    "suggested",
    "trust_subject",
]
