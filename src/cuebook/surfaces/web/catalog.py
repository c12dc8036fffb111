"""The JSON API: playbooks, models and connections."""

from __future__ import annotations

import asyncio
import shutil
import socket
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cuebook.config.reach import ToolServer
from cuebook.gate.people import NotAllowed
from cuebook.performers.addresses import is_loopback
from cuebook.performers.models.offers import Offer
from cuebook.performers.models.providers import ProviderStatus
from cuebook.service import Principal
from cuebook.surfaces.keys import backend, checked_key
from cuebook.surfaces.web import bodies
from cuebook.surfaces.web.answers import answer
from cuebook.surfaces.web.bodies import body
from cuebook.surfaces.web.objects import playbook_object
from cuebook.surfaces.web.site import Site

LOCAL = Principal()
_SOON = 0.3
"""Seconds in which something at this machine answers."""


async def playbooks(request: Request, site: Site, who: Principal) -> Response:
    shelf = await site.library.read(None)
    told = [{"path": str(one.path), "problem": one.problem} for one in shelf.broken]
    return answer({"playbooks": [playbook_object(one) for one in shelf.listed], "broken": told})


async def playbook(request: Request, site: Site, who: Principal) -> Response:
    one = await site.library.find(request.path_params["id"])
    return answer({**playbook_object(one), "text": one.text})


async def models(request: Request, site: Site, who: Principal) -> Response:
    return answer(await asyncio.to_thread(usable_models, site))


def usable_models(site: Site, patience: float | None = None) -> dict[str, Any]:
    """The models that providers with a key say they offer, the default first; and what each provider lacks."""
    wiring = site.wiring
    statuses = _statuses(site)
    usable = {one.name for one in statuses if one.usable}
    offers = {offer.provider: offer for offer in wiring.offers.listed(patience) if offer.provider in usable}
    names = [wiring.model] if wiring.model.partition("/")[0] in usable else []
    names += [name for offer in offers.values() for name in offer.models]
    told = []
    for one in statuses:
        offer = offers.get(one.name, Offer(one.name))
        about = {"answered": offer.answered, "models": list(offer.models), "listing": offer.reason}
        told.append({"name": one.name, "usable": one.usable, "reason": one.reason, **about})
    return {"default": wiring.model, "models": list(dict.fromkeys(names)), "providers": told}


async def connections(request: Request, site: Site, who: Principal) -> Response:
    return answer(await asyncio.to_thread(connected, site))


def connected(site: Site) -> dict[str, Any]:
    """Which providers and tool servers there are, and where a key comes from; never the key itself."""
    wiring = site.wiring
    name, keeps = backend()
    providers = []
    offers = {offer.provider: offer for offer in wiring.offers.listed()}
    for one in _statuses(site):
        offer = offers.get(one.name, Offer(one.name))
        config = wiring.provider_configs.get(one.name)
        key = None if config is None else config.key
        providers.append(
            {
                "name": one.name,
                "usable": one.usable,
                "reason": one.reason,
                "address": None if config is None else _shown(config.base_url),
                "key": key,
                "key_from": None if key is None else wiring.keys.source(key),
                "answered": offer.answered,
                "offers": len(offer.models),
                "listing": offer.reason,
            }
        )
    servers = [_server(server) for server in wiring.config.reach.servers.values()]
    return {"providers": providers, "servers": servers, "keyring": name, "keeps_keys": keeps}


def _statuses(site: Site) -> list[ProviderStatus]:
    """As the providers say it themselves; one at this machine is of no use unless something answers there."""
    told = []
    for one in site.wiring.providers.available():
        config = site.wiring.provider_configs.get(one.name)
        silent = _silent(config.base_url) if one.usable and config is not None else ""
        told.append(msgspec.structs.replace(one, usable=False, reason=silent) if silent else one)
    return told


def _server(server: ToolServer) -> dict[str, Any]:
    reason = _silent(server.url) if server.url else ""
    if server.command and shutil.which(server.command[0]) is None:
        reason = f"There is no command {server.command[0]}."
    runs = " ".join(server.command) or _shown(server.url)
    return {"name": server.name, "runs": runs, "where": server.where, "reachable": not reason, "reason": reason}


def _shown(address: str) -> str:
    """An address without what may be secret in it: a name and password, and what comes after its path."""
    parts = urlsplit(address)
    query = "?..." if parts.query or parts.fragment else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}"


def _silent(address: str) -> str:
    """Why nobody answers at an address of this machine; empty for any other, which is not tried."""
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if not is_loopback(host):
        return ""
    try:
        socket.create_connection((host, port), timeout=_SOON).close()
    except OSError:
        return f"Nothing listens at {host}:{port}."
    return ""


def _check_owns_keys(who: Principal) -> None:
    """Keys are the server's, and every tenant's runs are paid with them: they are for those who serve it to change."""
    if who.tenant != LOCAL.tenant:
        raise NotAllowed(
            f"{who.name} may not change the keys of providers: they are this server's.", fix="Ask whoever serves it."
        )


async def set_key(request: Request, site: Site, who: Principal) -> Response:
    _check_owns_keys(who)
    asked = await body(request, bodies.NewKey)
    name = site.wiring.key_name(request.path_params["provider"])
    await asyncio.to_thread(site.wiring.keys.set, name, checked_key(asked.key))
    return Response(status_code=204)


async def remove_key(request: Request, site: Site, who: Principal) -> Response:
    _check_owns_keys(who)
    name = site.wiring.key_name(request.path_params["provider"])
    await asyncio.to_thread(site.wiring.keys.remove, name)
    return Response(status_code=204)
