"""Administrative acts: how they are recorded, verified and exported."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cuebook.gate.roles import Origin, Principal
from cuebook.kernel.errors import Conflict, StoreReadOnly
from cuebook.kernel.ports import Store
from cuebook.kernel.ports.admin_acts import AdminAct, KeptChange


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


POLICY_FILE = "policy_file"
"""The kind of store record for the digest of each policy file, as it was seen last."""


async def notice_policy_files(store: Store, tenant: str, digests: Mapping[str, str]) -> None:
    """Records which policy files are new, changed or gone since a process last read them. Best effort: a process that may
    not write to the store only reads them.
    """
    known = {path: str(body["digest"]) for path, body in (await store.kept(tenant, POLICY_FILE)).items()}
    missing = [path for path in known if path not in digests]
    gone = {path: "" for path in missing if not await asyncio.to_thread(os.path.exists, path)}
    for path, digest in {**digests, **gone}.items():
        before = known.get(path, "")
        if digest == before:
            continue
        details = {name: one for name, one in (("before", before), ("digest", digest)) if one}
        what = "policy.changed" if before and digest else "policy.found" if digest else "policy.gone"
        bodies = [{"digest": one} if one else None for one in (before, digest)]
        act = act_of(what, path, _itself(tenant), details, store.now(), False)
        with suppress(Conflict, StoreReadOnly):  # another process was faster
            await store.record_act(act, [KeptChange(tenant, POLICY_FILE, path, *bodies)])


def _itself(tenant: str) -> Principal:
    return Principal("cuebook", tenant, frozenset(), origin=Origin("server"))
