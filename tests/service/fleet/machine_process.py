"""`cuebook` as on another machine: `machine_process.py DEVIATIONS ARGS...`, where DEVIATIONS is a JSON object.

The deviations are: `clock` (seconds that the wall clock is ahead), `host` (its identity), `lease` (seconds), `lacks`
(capabilities that this machine does not have), `upgraded` (whether it has the next version of the Markdown interpreter) and
`parting` (seconds that a worker has to close everything).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

NEXT = "next"
"""The name of the value that the next version of the interpreter sets."""


def set_clock(ahead: float) -> None:
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + ahead
    time.time_ns = lambda: real_ns() + int(ahead * 1e9)


def set_leases(seconds: float, host: str) -> None:
    from cuebook.kernel.engine.engine import Engine
    from cuebook.stores import leases

    leases.LEASE = seconds
    defaults: Any = Engine.__init__.__kwdefaults__
    defaults["heartbeat_every"] = seconds / 4
    if host:
        patch.object(leases, "this_host", lambda: host).start()


def take_away(capabilities: list[str]) -> None:
    from cuebook.wiring.wiring import Wiring

    found = Wiring._capabilities

    def fewer(wiring: Wiring) -> Iterator[str]:
        return (name for name in found(wiring) if name not in capabilities)

    patch.object(Wiring, "_capabilities", fewer).start()


def upgrade() -> None:
    """Adds a version of the Markdown interpreter that also sets a value."""
    from cuebook.dialects import markdown
    from cuebook.kernel.effects import Program
    from cuebook.kernel.events import ValueSet

    current = markdown._INTERPRETERS[markdown.Markdown.interpreter]

    def following(*given: Any, **more: Any) -> Program[Any]:
        yield ValueSet(NEXT, "yes")
        return (yield from current(*given, **more))

    version = markdown.Markdown.interpreter + 1
    markdown.Markdown.interpreter = version
    markdown._INTERPRETERS[version] = following


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    set_clock(given.get("clock", 0.0))  # before anything else is imported
    set_leases(given.get("lease", 10.0), given.get("host", ""))
    if given.get("lacks"):
        take_away(given["lacks"])
    if given.get("upgraded"):
        upgrade()
    if "parting" in given:
        from cuebook.surfaces.cli.commands import worker

        worker._PARTING = given["parting"]
    from cuebook.surfaces.cli import main

    sys.argv[:] = ["cuebook", *sys.argv[2:]]
    main()
