"""Builds what signs people in with the identity provider of the configuration. Its libraries are imported on demand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cuebook.config import Config
from cuebook.formats.words import with_extra
from cuebook.gate.roles import ROLES
from cuebook.kernel.errors import BadInput, CuebookError

if TYPE_CHECKING:
    from cuebook.gate.identity import IdentitySettings
    from cuebook.service.access.identity import Identities
    from cuebook.service.access.sign_ins import SignIns
    from cuebook.service.service import Service

log = logging.getLogger("cuebook")

_ANYONE = ("https://accounts.google.com",)
"""Issuers that sign in anyone in the world."""


def identity_settings(config: Config) -> IdentitySettings | None:
    """The table `[oidc]`; None if it names no issuer. Raises `BadInput` if it cannot be used."""
    issuer, where = config.get("oidc.issuer"), config.origin("oidc.issuer")
    if issuer is None:
        return None
    if config.get("oidc.client_id") is None:
        raise BadInput(f"{where}: oidc.issuer needs oidc.client_id.", fix="Set it to the id that the provider gave.")
    groups = {role: config.get(f"oidc.{role}_groups") for role in ROLES}
    if "*" in [one for given in groups.values() for one in given] and issuer in _ANYONE:
        raise BadInput(
            f"{where}: {issuer} signs in anyone in the world, so no role can be for everyone.",
            fix='Set oidc.groups_claim = "hd", and use the name of your domain as a group.',
        )
    if find_spec("authlib") is None or find_spec("joserfc") is None:
        raise BadInput(f"{where}: the libraries for signing in are not installed.", fix=with_extra("identity"))
    from cuebook.gate.identity import IdentitySettings

    return IdentitySettings(
        issuer=issuer,
        client_id=config.get("oidc.client_id"),
        secret=config.get("oidc.client_secret") or "",
        name=config.get("oidc.name") or "",
        scopes=config.get("oidc.scopes"),
        name_claim=config.get("oidc.name_claim"),
        groups_claim=config.get("oidc.groups_claim"),
        groups=groups,
        team_groups=config.get("oidc.team_groups"),
        session=config.get("oidc.session"),
        recheck=config.get("oidc.recheck"),
        local_sign_in=config.get("oidc.local_sign_in"),
        audience=config.get("oidc.audience") or "",
        mcp_scopes=config.get("oidc.mcp_scopes"),
    )


async def provider_problem(config: Config, reveal: Callable[[str], Awaitable[str]]) -> str:
    """Why nobody could sign in with the configured provider; empty if it answers as it should."""
    try:
        settings = identity_settings(config)
        if settings is None:
            return ""
        from cuebook.gate.identity import Provider

        if settings.secret:
            await reveal(settings.secret)
        provider = Provider(settings, reveal)
        try:
            await provider.keys()
        finally:
            await provider.close()
    except CuebookError as error:
        return str(error)
    return ""


@asynccontextmanager
async def sign_in_checked(config: Config, reveal: Callable[[str], Awaitable[str]]) -> AsyncIterator[None]:
    """Meanwhile, finds out whether anyone can sign in with the configured provider, and logs why not. Nothing waits for it,
    because the provider may be slow."""

    async def check() -> None:
        problem = await provider_problem(config, reveal)
        if problem:
            log.warning("Nobody can sign in with %s now: %s", config.get("oidc.issuer"), problem)

    task = asyncio.create_task(check())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def identities_of(
    config: Config, service: Service, reveal: Callable[[str], Awaitable[str]], sign_ins: SignIns
) -> Identities | None:
    """The people of the configured provider; None if there is none."""
    settings = identity_settings(config)
    if settings is None:
        return None
    from cuebook.gate.identity import Provider
    from cuebook.service.access.identity import Identities

    provider = Provider(settings, reveal, clock=service.clock)
    return Identities(provider, service.people, sign_ins, service.clock)
