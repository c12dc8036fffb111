"""Administrative acts: how they are recorded."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Any

from cuebook.gate.roles import Principal
from cuebook.kernel.ports.admin_acts import AdminAct


def act_of(what: str, subject: str, who: Principal, details: dict[str, Any], at: float, refused: bool) -> AdminAct:
    """The act of this user, with where they did it."""
    if who.through:
        details = {**details, "through": who.through}
    return AdminAct(
        tenant=who.tenant,
        at=at,
        what=what,
        by=who.name,
        subject=subject,
        surface=who.origin.surface,
        address=who.origin.address or _this_process(),
        refused=refused,
        details=details,
    )


def _this_process() -> str:
    """The user and the machine of this process, for what was not asked for over the network."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without an entry, as in a container
        user = f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"
