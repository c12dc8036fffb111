"""Shorter times for leases, heartbeats and sweeps, so that tests need not wait as long as users do."""

from __future__ import annotations

from cuebook.service.dispatch import sweep
from cuebook.service.dispatch.temporal import workflow
from cuebook.stores import leases

BEAT, LEASE = 1.2, 1.2


def quicken(beat: float = BEAT, lease: float = LEASE) -> None:
    """Changes this process. A test's own process is changed with a patch instead."""
    workflow.HEARTBEAT, leases.LEASE = beat, lease
    sweep.EVERY, sweep.GRACE, sweep.AGAIN = 0.5, 0.3, 0.6
