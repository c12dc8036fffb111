"""What a store knows of nodes: how each is paired, and what it was when it was last seen.

These are two records, so that a server which notes that a node is still there cannot undo what an administrator did.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from cuebook.kernel.capabilities import any_node, node, of_tenant
from cuebook.performers.nodes.protocol import Offered

PAIRING, PRESENCE = "node", "node_seen"
"""The kinds of these records. Their names are those of the nodes."""


class Pairing(msgspec.Struct, frozen=True, omit_defaults=True):
    created: float
    by: str
    token: str = ""
    """The digest of its pairing token, also after it was used."""
    expires: float = 0.0
    """When the pairing token stops working."""
    key: str = ""
    """The digest of its key; empty until it is paired."""
    paired: float = 0.0
    host: str = ""
    """The machine that was paired."""


class Presence(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str = ""
    seen: float = 0.0
    """When it last connected, or was last connected."""
    server: str = ""
    """The driver of the process that it is connected to; empty if it is not."""
    host: str = ""
    system: str = ""
    release: str = ""
    pid: int = 0
    capabilities: tuple[Offered, ...] = ()


class Paired(msgspec.Struct, frozen=True):
    """A node of a tenant."""

    name: str
    pairing: Pairing
    presence: Presence = Presence()

    @property
    def key(self) -> str:
        return self.pairing.key

    def offers(self, capability: str) -> bool:
        return any(one.name == capability for one in self.presence.capabilities)


def names_of(paired: Paired, tenant: str) -> Iterator[str]:
    """What runs of a tenant may need of a connected node, by name."""
    yield of_tenant(node(paired.name), tenant)
    for one in paired.presence.capabilities:
        yield of_tenant(any_node(one.name), tenant)


class Kept(Protocol):
    async def kept(self, tenant: str, kind: str) -> dict[str, dict[str, Any]]: ...


async def paired_nodes(store: Kept, tenant: str) -> dict[str, Paired]:
    """The nodes of a tenant by name, also those that have not used their pairing token yet."""
    seen = await store.kept(tenant, PRESENCE)
    found = {}
    for name, body in (await store.kept(tenant, PAIRING)).items():
        pairing = msgspec.convert(body, Pairing)
        presence = msgspec.convert(seen.get(name, {}), Presence)
        mine = bool(pairing.key) and presence.key == pairing.key
        found[name] = Paired(name, pairing, presence if mine else Presence())
    return found
