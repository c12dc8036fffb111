"""The interfaces that the engine needs: performers, gate, sandbox and store. Kept minimal.

The kernel defines them and imports none of their implementations.
"""

from cuebook.kernel.ports.gate import Admitted, Case, Filter, Gate, Needed, OnExpiry, Redactor
from cuebook.kernel.ports.performers import (
    ActingModels,
    Action,
    Awaiting,
    Call,
    Describer,
    Description,
    Domain,
    Estimate,
    Estimator,
    Needing,
    Observer,
    Outliner,
    Performer,
    Recalling,
    Trust,
)
from cuebook.kernel.ports.sandbox import EVERYWHERE, Confined, Confinement, Limits, Sandbox, SandboxName, at_once
from cuebook.kernel.ports.store import Batch, Claim, Fate, KeptRecord, News, Notice, RunCopy, Store, Whole

__all__ = [
    "EVERYWHERE",
    "ActingModels",
    "Action",
    "Admitted",
    "Awaiting",
    "Batch",
    "Call",
    "Case",
    "Claim",
    "Confined",
    "Confinement",
    "Describer",
    "Description",
    "Domain",
    "Estimate",
    "Estimator",
    "Fate",
    "Filter",
    "Gate",
    "KeptRecord",
    "Limits",
    "Needed",
    "Needing",
    "News",
    "Notice",
    "Observer",
    "OnExpiry",
    "Outliner",
    "Performer",
    "Recalling",
    "Redactor",
    "RunCopy",
    "Sandbox",
    "SandboxName",
    "Store",
    "Trust",
    "Whole",
    "at_once",
]
