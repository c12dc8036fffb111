"""The commands that are suggested for a run that waits."""

from __future__ import annotations

import msgspec

from cuebook.surfaces.cli.next_steps import hints
from tests.support.programs import new_row
from tests.support.records import wait_row


def test_a_call_in_doubt_beside_an_approval_says_every_way_to_decide_it() -> None:
    row = msgspec.structs.replace(new_row("p"), status="awaiting_approval")
    doubt = wait_row("w1", kind="in_doubt")
    both = dict(hints(row, [wait_row("w2", kind="approval"), doubt]))
    assert both["if done"].startswith("cuebook decide run done")
    assert both["if not"] == "cuebook decide run repeat|stop"
    assert "if not" not in dict(hints(row, [doubt])), "the next command has it"
