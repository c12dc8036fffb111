"""The kernel's limits on single processes, as far as they can be set from outside."""

from __future__ import annotations

import resource

from cuebook.kernel.confinement import Limits


def hard_memory(limits: Limits) -> int:
    """What one process may reserve. More than what it may use: threads reserve stacks that they never touch."""
    return 2 * limits.memory


def lower(pid: int, what: int, most: int) -> None:
    """Lowers a limit of another process; one that is lower already is left. `ProcessLookupError` if it is gone."""
    _, hard = resource.prlimit(pid, what)
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    # The time on the processor is first warned about, then enforced.
    above = allowed + 1 if what == resource.RLIMIT_CPU and allowed != hard else allowed
    resource.prlimit(pid, what, (allowed, above))
