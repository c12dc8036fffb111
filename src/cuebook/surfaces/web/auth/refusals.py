"""Counts the requests of each address that were refused, so that an address that keeps trying has to wait."""

from __future__ import annotations

import time
from collections import OrderedDict

MOST = 60
"""Refused requests of one address in a minute, after which it has to wait. What is signed is still accepted: behind a proxy, all have one address."""
_ADDRESSES = 1000


class Refusals:
    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def is_full(self, address: str) -> bool:
        minute, count = self._counts.get(address, (0, 0))
        return minute == _minute() and count >= MOST

    def add(self, address: str) -> None:
        minute, count = self._counts.pop(address, (0, 0))
        self._counts[address] = (_minute(), count + 1 if minute == _minute() else 1)
        while len(self._counts) > _ADDRESSES:
            self._counts.popitem(last=False)


def _minute() -> int:
    return int(time.monotonic() // 60)
