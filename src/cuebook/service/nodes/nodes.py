"""Nodes, the machines that are paired with this store: who may connect, under which name, and which are connected.

A pairing token and a node's key are stored as digests only.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput, NotFound, Refused
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow
from cuebook.performers.nodes.protocol import NAME, digest
from cuebook.performers.nodes.records import PAIRING, PRESENCE, Paired, Pairing, Presence, names_of, paired_nodes
from cuebook.system.logs import log_event

log = logging.getLogger("cuebook")

TOKEN_LIVES = 24 * 3600.0
"""Seconds for which a pairing token can be used."""
STALE = 60.0
"""Seconds after which a connection that its server no longer confirms counts as lost: the server was killed."""
_NAME = re.compile(NAME, re.ASCII)
_CHANGE = "change nodes"
_LIST = "`cuebook nodes list` lists the nodes."


class UnknownKey(Refused):
    """No node has this key or token."""

    code = "unknown_key"


class PairedAlready(Refused):
    """This pairing token was used."""

    code = "paired_already"


class TokenExpired(Refused):
    """This pairing token is too old."""

    code = "token_expired"


class Node(msgspec.Struct, frozen=True):
    """A node, and whether it is connected to a process now."""

    paired: Paired
    connected: bool

    @property
    def name(self) -> str:
        return self.paired.name

    @property
    def state(self) -> str:
        if self.connected:
            return "connected"
        return "not connected" if self.paired.key else "not paired yet"


class Candidate(msgspec.Struct, frozen=True):
    """The node that a connection claims to be."""

    tenant: str
    name: str
    token: str = ""
    """The digest of the pairing token that it presented; empty if it presented its key."""
    key: str = ""


def node_object(node: Node) -> dict[str, Any]:
    """A node as JSON, without digests."""
    pairing, presence = node.paired.pairing, node.paired.presence
    return {
        "name": node.name,
        "state": node.state,
        "connected": node.connected,
        "created": pairing.created,
        "by": pairing.by,
        "paired": pairing.paired or None,
        "seen": presence.seen or None,
        "host": presence.host,
        "system": presence.system,
        "release": presence.release,
        "capabilities": msgspec.to_builtins(presence.capabilities),
    }


Record = Callable[[str, str, Principal, dict[str, Any]], Awaitable[object]]
"""Records an administrative act: what, the node, who, and details."""


class Nodes:
    """Pairs, names and revokes nodes."""

    def __init__(self, store: Store, clock: Callable[[], float], record: Record) -> None:
        self._store = store
        self._clock = clock
        self._record = record
        self.on_change: Callable[[], object] = lambda: None
        """Called when a pairing was changed in this process."""

    # --- for administrators ---

    async def list(self, who: Principal = Principal()) -> list[Node]:
        who.require("viewer", "view nodes")
        return [self._node(one) for one in (await paired_nodes(self._store, who.tenant)).values()]

    async def names(self, tenant: str) -> tuple[str, ...]:
        """The names of a tenant's nodes."""
        return tuple(sorted(await self._store.kept(tenant, PAIRING)))

    async def add(self, name: str, who: Principal = Principal()) -> tuple[Node, str]:
        """Adds a node. Returns it and its pairing token, which is not shown again."""
        who.require("admin", _CHANGE)
        self._check_name(name)
        if await self._store.is_kept(who.tenant, PAIRING, name):
            raise BadInput(
                f"The node '{name}' already exists; nothing was changed.",
                fix=f"`cuebook nodes token {name}` creates a new pairing token and ends the old pairing.",
            )
        return await self._with_token("node.add", name, Pairing(self._clock(), who.name), who)

    async def renew(self, name: str, who: Principal = Principal()) -> tuple[Node, str]:
        """Creates a new pairing token for a node, which is not shown again. Its key and its old token become invalid."""
        who.require("admin", _CHANGE)
        before = await self._pairing(name, who.tenant)
        return await self._with_token("node.token", name, Pairing(before.created, who.name), who)

    async def rename(self, name: str, new: str, who: Principal = Principal()) -> Node:
        """Gives a node another name. It stays paired and connected."""
        who.require("admin", _CHANGE)
        pairing = await self._pairing(name, who.tenant)
        self._check_name(new)
        if await self._store.is_kept(who.tenant, PAIRING, new):
            raise BadInput(f"The node '{new}' already exists; nothing was changed.", fix=_LIST)
        presence = (await self._store.kept(who.tenant, PRESENCE)).get(name)
        if presence is not None:
            await self._store.keep(who.tenant, PRESENCE, new, presence)
        await self._keep(who.tenant, new, pairing)
        await self._forget(who.tenant, name)
        await self._record("node.rename", name, who, {"new": new})
        log_event(log, "node.renamed", node=name, new=new, by=who.name)
        self.on_change()
        return await self.get(new, who.tenant)

    async def revoke(self, name: str, who: Principal = Principal()) -> None:
        """Forgets a node: its connection ends, and neither its key nor its token is valid any more."""
        who.require("admin", _CHANGE)
        await self._pairing(name, who.tenant)
        await self._forget(who.tenant, name)
        await self._record("node.revoke", name, who, {})
        log_event(log, "node.revoked", node=name, by=who.name)
        self.on_change()

    async def get(self, name: str, tenant: str) -> Node:
        found = (await paired_nodes(self._store, tenant)).get(name)
        if found is None:
            raise NotFound(f"There is no node '{name}'.", fix=_LIST)
        return self._node(found)

    async def serve(self, row: RunRow) -> bool:
        """Whether all that a run waits for is connected to some process, which then continues it."""
        known = [self._node(one) for one in (await paired_nodes(self._store, row.tenant)).values()]
        here = {name for one in known if one.connected for name in names_of(one.paired, row.tenant)}
        return bool(row.needs) and here.issuperset(row.needs)

    # --- for connections ---

    async def admit(self, bearer: str) -> Candidate:
        """The node that presents this key or pairing token. Raises `Refused` if it may not connect."""
        given = digest(bearer)
        for tenant in await self._store.tenants(PAIRING):
            for name, body in (await self._store.kept(tenant, PAIRING)).items():
                pairing = msgspec.convert(body, Pairing)
                if pairing.key and hmac.compare_digest(pairing.key, given):
                    return Candidate(tenant, name, key=given)
                if pairing.token and hmac.compare_digest(pairing.token, given):
                    self._check_token(name, pairing)
                    return Candidate(tenant, name, token=given)
        raise UnknownKey(
            "No node of this server has this key or pairing token.",
            fix="An administrator creates a pairing token: `cuebook nodes add NAME`, or `cuebook nodes token NAME`.",
        )

    def _check_token(self, name: str, pairing: Pairing) -> None:
        fix = f"`cuebook nodes token {name}` creates a new one and ends the old pairing."
        if pairing.key:
            raise PairedAlready(
                f"This pairing token was used at {moment(pairing.paired)} by the machine '{pairing.host}'.", fix=fix
            )
        if self._clock() > pairing.expires:
            raise TokenExpired(f"This pairing token of node '{name}' expired at {moment(pairing.expires)}.", fix=fix)

    async def pair(self, candidate: Candidate, key: str, host: str) -> Candidate:
        """Binds a node to the key of a machine, which uses up its pairing token. Raises `Refused` if it was used already."""
        pairing = await self._pairing(candidate.name, candidate.tenant)
        if not hmac.compare_digest(pairing.token, candidate.token):
            raise UnknownKey("The pairing token was replaced.", fix="Use the new one.")
        self._check_token(candidate.name, pairing)
        bound = msgspec.structs.replace(pairing, key=key, paired=self._clock(), host=host[:200])
        await self._keep(candidate.tenant, candidate.name, bound)
        log_event(log, "node.paired", node=candidate.name)
        return Candidate(candidate.tenant, candidate.name, key=key)

    async def by_key(self, tenant: str) -> dict[str, str]:
        """The names of a tenant's paired nodes, by the digests of their keys."""
        found = (await self._store.kept(tenant, PAIRING)).items()
        return {str(body["key"]): name for name, body in found if body.get("key")}

    async def saw(self, tenant: str, name: str, presence: Presence) -> None:
        """Notes that a node is, or was, connected."""
        if await self._store.is_kept(tenant, PAIRING, name):
            await self._store.keep(tenant, PRESENCE, name, msgspec.to_builtins(presence))

    async def left(self, tenant: str, name: str, key: str, server: str) -> None:
        """Notes that a node is no longer connected to this process."""
        kept = (await self._store.kept(tenant, PRESENCE)).get(name, {})
        presence = msgspec.convert(kept, Presence)
        if presence.key == key and presence.server == server:
            await self.saw(tenant, name, msgspec.structs.replace(presence, server="", seen=self._clock()))

    # --- inside ---

    def _node(self, paired: Paired) -> Node:
        presence = paired.presence
        return Node(paired, bool(presence.server) and self._clock() - presence.seen < STALE)

    async def _pairing(self, name: str, tenant: str) -> Pairing:
        body = (await self._store.kept(tenant, PAIRING)).get(name)
        if body is None:
            raise NotFound(f"There is no node '{name}'.", fix=_LIST)
        return msgspec.convert(body, Pairing)

    async def _with_token(self, what: str, name: str, pairing: Pairing, who: Principal) -> tuple[Node, str]:
        token = secrets.token_urlsafe(32)
        made = msgspec.structs.replace(pairing, token=digest(token), expires=self._clock() + TOKEN_LIVES)
        await self._keep(who.tenant, name, made)
        await self._record(what, name, who, {})
        log_event(log, "node.token", node=name, by=who.name)
        self.on_change()
        return await self.get(name, who.tenant), token

    async def _keep(self, tenant: str, name: str, pairing: Pairing) -> None:
        body: dict[str, Any] = msgspec.to_builtins(pairing)
        await self._store.keep(tenant, PAIRING, name, body)

    async def _forget(self, tenant: str, name: str) -> None:
        await self._store.forget(tenant, PAIRING, name)
        await self._store.forget(tenant, PRESENCE, name)

    def _check_name(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise BadInput(
                f"'{name[:80]}' is not a valid node name.",
                fix="Use up to 64 letters, digits, - and _, no - or _ first.",
            )


def moment(at: float) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
