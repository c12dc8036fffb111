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

from cuebook.config.tools import ToolServer
from cuebook.gate.roles import NotAllowed
from cuebook.performers.models.model_lists import Offer
from cuebook.performers.models.providers import ProviderStatus
from cuebook.service.service import Principal
from cuebook.surfaces.web.api import bodies
from cuebook.surfaces.web.api.bodies import body
from cuebook.surfaces.web.api.objects import answer, playbook_object
from cuebook.surfaces.web.site import Site
from cuebook.system.network import is_loopback
from cuebook.wiring.keys import backend, checked_key

LOCAL = Principal()
_SOON = 0.3
"""Seconds to wait for a server on this machine."""


async def playbooks(request: Request, site: Site, who: Principal) -> Response:
    shelf = await site.library.read(None)
    broken = [{"path": str(one.path), "problem": one.problem} for one in shelf.broken]
    return answer({"playbooks": [playbook_object(one) for one in shelf.listed], "broken": broken})


async def playbook(request: Request, site: Site, who: Principal) -> Response:
    one = await site.library.find(request.path_params["id"])
    return answer({**playbook_object(one), "text": one.text})


async def models(request: Request, site: Site, who: Principal) -> Response:
    return answer(await asyncio.to_thread(usable_models, site))


def usable_models(site: Site, patience: float | None = None) -> dict[str, Any]:
    """The models that usable providers offer, the default first, and the reasons why others are not usable."""
    wiring = site.wiring
    statuses = _statuses(site)
    usable = {one.name for one in statuses if one.usable}
    offers = {offer.provider: offer for offer in wiring.offers.listed(patience) if offer.provider in usable}
    names = [wiring.model] if wiring.model.partition("/")[0] in usable else []
    names += [name for offer in offers.values() for name in offer.models]
    providers = []
    for one in statuses:
        offer = offers.get(one.name, Offer(one.name))
        about = {"answered": offer.answered, "models": list(offer.models), "listing": offer.reason}
        providers.append({"name": one.name, "usable": one.usable, "reason": one.reason, **about})
    return {"default": wiring.model, "models": list(dict.fromkeys(names)), "providers": providers}


async def connections(request: Request, site: Site, who: Principal) -> Response:
    return answer(await asyncio.to_thread(connected, site))


def connected(site: Site) -> dict[str, Any]:
    """The providers and tool servers, and where their keys come from; never the keys themselves."""
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
    """The providers' own statuses; a provider on this machine is usable only if something listens there."""
    statuses = []
    for one in site.wiring.providers.available():
        config = site.wiring.provider_configs.get(one.name)
        silent = _silent(config.base_url) if one.usable and config is not None else ""
        statuses.append(msgspec.structs.replace(one, usable=False, reason=silent) if silent else one)
    return statuses


def _server(server: ToolServer) -> dict[str, Any]:
    reason = _silent(server.url) if server.url else ""
    if server.command and shutil.which(server.command[0]) is None:
        reason = f"The command {server.command[0]} was not found."
    runs = " ".join(server.command) or _shown(server.url)
    return {"name": server.name, "runs": runs, "where": server.where, "reachable": not reason, "reason": reason}


def _shown(address: str) -> str:
    """A URL without the parts that may be secret: user, password, query and fragment."""
    parts = urlsplit(address)
    query = "?..." if parts.query or parts.fragment else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}"


def _silent(address: str) -> str:
    """Why an address on this machine cannot be reached; empty if it can, or if it is on another machine."""
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if not is_loopback(host):
        return ""
    try:
        socket.create_connection((host, port), timeout=_SOON).close()
    except OSError:
        return f"Nothing is listening on {host}:{port}."
    return ""


def _check_owns_keys(who: Principal) -> None:
    """Raise `NotAllowed` for other tenants: keys belong to the server, and pay for the runs of every tenant."""
    if who.tenant != LOCAL.tenant:
        raise NotAllowed(
            f"{who.name} may not change provider keys: they belong to the server.",
            fix="Ask the person who runs the server.",
        )


async def set_key(request: Request, site: Site, who: Principal) -> Response:
    _check_owns_keys(who)
    asked = await body(request, bodies.NewKey)
    name = site.wiring.key_name(request.path_params["provider"])
    await asyncio.to_thread(site.wiring.keys.set, name, checked_key(asked.key))
    await site.service.record_act("key.set", request.path_params["provider"], who, {"name": name})
    await site.service.key_waits.continue_with(request.path_params["provider"], who.name)
    return Response(status_code=204)


async def remove_key(request: Request, site: Site, who: Principal) -> Response:
    _check_owns_keys(who)
    name = site.wiring.key_name(request.path_params["provider"])
    if await asyncio.to_thread(site.wiring.keys.remove, name):
        await site.service.record_act("key.remove", request.path_params["provider"], who, {"name": name})
    return Response(status_code=204)
