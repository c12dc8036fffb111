"""A model call whose provider rejects our key waits until the key is changed, instead of failing.

Which keys there are, and where they come from, is known to the performer and to the code that ends the wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from cuebook.kernel.errors import with_fix
from cuebook.kernel.events import KEY_REJECTED, Noted
from cuebook.kernel.journal import Key, Place
from cuebook.kernel.outcomes import REJECTED_BY, Failed
from cuebook.kernel.spending import Spending

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver, Line

PURPOSE = "key"
"""How the purpose of these waits begins."""


async def rejected(
    driver: Driver, line: Line, key: Key, attempt: int, failed: Failed, spent: Sequence[Spending]
) -> bool:
    """Records that the call was rejected, which cost nothing, and waits. Returns False if the run was cancelled."""
    provider = failed.details[REJECTED_BY]
    driver.writer.note(Noted(KEY_REJECTED, {"provider": provider}), Place(*key, attempt), spent=spent)
    return await changed(driver, line, key, failed)


async def changed(driver: Driver, line: Line, key: Key, failed: Failed | None = None) -> bool:
    """Waits until the key has been changed; without a failure, only if such a wait is open."""
    recorded = driver.recorded
    purpose, known = "", None
    for number in count(1):
        purpose = f"{PURPOSE}:{number}"
        known = recorded.opened.get((key, purpose))
        if known is None or known.wait not in recorded.closed:
            break
    if known is None and failed is None:
        return True
    prompt, details = "", {}
    if failed is not None:
        prompt = with_fix(failed.message, failed.fix)
        details = {"code": failed.code, REJECTED_BY: failed.details[REJECTED_BY]}
    elif known is not None:
        prompt, details = known.prompt, known.details
    closed = await driver.waits.wait(line, key, "secret", prompt, purpose=purpose, details=details)
    return closed.how == "answered"
