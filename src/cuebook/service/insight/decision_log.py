"""Logs what people and assistants decide and request, in the process that they talk to."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, get_args

from cuebook.gate.roles import Principal
from cuebook.kernel.run import Signal, WaitRow
from cuebook.service.waits.decisions import Decision
from cuebook.system.logs import log_event

log = logging.getLogger("cuebook.people")

_DECISIONS = frozenset(get_args(Decision))


def log_decided(wait: WaitRow, answer: Mapping[str, Any], who: Principal) -> None:
    """Logs that a wait was answered or voted on. What the answer says is not logged, except for a decision."""
    said = answer.get("decision")
    log_event(
        log,
        "wait.decided",
        run=wait.run,
        wait=wait.id,
        kind=wait.kind,
        decision=said if said in _DECISIONS else "",
        state=wait.state,
        by=who.name,
        through=who.through,
    )


def log_requested(signal: Signal) -> None:
    """Logs that someone asked to cancel, retry or message a run."""
    log_event(log, f"{signal.kind}.requested", run=signal.run, by=signal.by)
