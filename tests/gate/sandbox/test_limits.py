"""The eye that is kept on running processes: what it takes to be too much."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from cuebook.gate.sandbox import process_tree
from cuebook.gate.sandbox.limits import Overrun, Watched
from cuebook.kernel.ports import Limits

SEVERAL = 1 << 50
"""Bytes: more than any process may hold."""


@pytest.mark.parametrize(
    ("counts", "said"),
    [([SEVERAL, SEVERAL, SEVERAL], ["memory"]), ([SEVERAL, 0], []), ([SEVERAL, SEVERAL, 0], []), ([0], [])],
)
def test_memory_must_be_too_much_each_time_it_is_counted(
    monkeypatch: pytest.MonkeyPatch, counts: list[int], said: list[Overrun]
) -> None:
    """Processes that begin or end while they are counted make one count too high, and have done nothing wrong."""
    left = iter(counts)

    def counted(pids: Iterable[int]) -> int:
        assert os.getpid() in pids
        return next(left)

    monkeypatch.setattr(process_tree, "memory", lambda pids: SEVERAL)
    monkeypatch.setattr(process_tree, "fair_memory", counted)
    heard: list[Overrun] = []
    Watched(os.getpid(), Limits(), heard.append).look()
    assert heard == said
    assert list(left) == []
