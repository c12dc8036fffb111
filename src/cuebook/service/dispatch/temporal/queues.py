"""Task queues by capability: a run waits in the queue that is named after its needs, and workers poll the queues whose
needs they can meet.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from itertools import combinations

from cuebook.kernel.capabilities import Offer, lasting, named
from cuebook.kernel.run import RunRow

MOST = 3
"""How many capabilities other than the workspace a queue's name has at most. A worker that gets a run checks the rest."""
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,40}", re.ASCII)


def queue_of(base: str, row: RunRow, *, ending: bool = False) -> str:
    """The queue of a run. A run that only has to end needs nothing but its workspace."""
    return _queue(base, row.workspace, () if ending else lasting(row.needs))


def queues_of(base: str, offer: Offer) -> list[str]:
    """The queues of all runs that a worker with this offer can drive, the plain queue first."""
    known = sorted(offer.capabilities)
    several = [chosen for size in range(min(MOST, len(known)) + 1) for chosen in combinations(known, size)]
    return [_queue(base, place, chosen) for place in ("", *offer.workspaces) for chosen in several]


def _queue(base: str, workspace: str, needs: Iterable[str]) -> str:
    parts = named(workspace, sorted(needs)[:MOST])
    return f"{base}/{'+'.join(sorted(_part(one) for one in parts))}" if parts else base


def _part(capability: str) -> str:
    """A capability as part of a queue's name: `workspace.team`. A path, which others need not see, becomes a digest."""
    kind, colon, name = capability.partition(":")
    if not colon:
        return kind
    shown = name if _PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{kind}.{shown}"
