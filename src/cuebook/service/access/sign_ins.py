"""Sign-ins in the audit: each that succeeds, and those that fail, unless there are so many that they would flood it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cuebook.gate.roles import Origin, Principal
from cuebook.kernel.errors import StoreError

if TYPE_CHECKING:
    from cuebook.service.admin import Administration

PERIOD = 60.0
"""Seconds over which failures are counted."""
EACH, ALL = 5, 30
"""How many failures of one address, and of all addresses, are recorded in that time. The rest is counted."""
_ADDRESSES = 1000


class SignIns:
    """Records sign-ins. Sessions that a person opens and tokens that a program uses for the first time count."""

    def __init__(self, records: Administration, clock: Callable[[], float], tenant: str = "local") -> None:
        self._records = records
        self._clock = clock
        self._tenant = tenant
        self._begun = 0.0
        self._count = 0
        self._left_out = 0
        self._each: OrderedDict[str, int] = OrderedDict()

    async def succeeded(self, who: Principal, way: str, **details: Any) -> None:
        """Records that someone signed in. `way` says how, as in `token`."""
        await self._records.record_act("sign_in", who.name, who, {"way": way, **self._unrecorded(), **details})

    async def ended(self, who: Principal) -> None:
        await self._records.record_act("sign_out", who.name, who)

    async def failed(self, way: str, reason: str, origin: Origin, subject: str = "") -> None:
        """Records a failed attempt, unless too many were recorded lately. Never raises: the attempt fails anyway."""
        if not self._counts(origin.address):
            self._left_out += 1
            return
        who = Principal("nobody", self._tenant, frozenset(), origin=origin)
        details = {"way": way, "reason": reason[:200], **self._unrecorded()}
        try:
            await self._records.record_act("sign_in", subject[:200], who, details, refused=True)
        except StoreError:
            self._left_out += 1

    def _counts(self, address: str) -> bool:
        now = self._clock()
        if not 0 <= now - self._begun < PERIOD:
            self._begun, self._count = now, 0
            self._each.clear()
        mine = self._each.get(address, 0)
        if self._count >= ALL or mine >= EACH:
            return False
        self._count += 1
        self._each[address] = mine + 1
        while len(self._each) > _ADDRESSES:
            self._each.popitem(last=False)
        return True

    def _unrecorded(self) -> dict[str, int]:
        """How many failures were left out since the last record."""
        left, self._left_out = self._left_out, 0
        return {"unrecorded_failures": left} if left else {}
