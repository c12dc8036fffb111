"""Signing in with the identity provider: the way there, the way back, and what assistants have to know about it.

A cookie that other sites cannot set carries the state, the nonce and the verifier of one attempt; it is valid once, for ten minutes.
"""

from __future__ import annotations

import logging
import re
from urllib.parse import urlencode, urlsplit

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from cuebook.gate.identity import ProviderDown
from cuebook.gate.identity.provider import Login, is_secure
from cuebook.gate.roles import NotAllowed, Origin, Principal
from cuebook.kernel.errors import CuebookError
from cuebook.service.access.identity import WAY, Identities
from cuebook.surfaces.web import problems
from cuebook.surfaces.web.auth.access_log import sign_in_refused, signed_in
from cuebook.surfaces.web.auth.redirect import HOME, safe_path
from cuebook.surfaces.web.auth.sessions import Ticket
from cuebook.surfaces.web.pages.render import page
from cuebook.surfaces.web.site import Site
from cuebook.system.network import is_loopback, is_number

log = logging.getLogger("cuebook")

CALLBACK = "/sign-in/oidc/callback"
RESOURCE = "/.well-known/oauth-protected-resource"
MCP = "/mcp"
_BACK_WITHIN = 600
"""Seconds for signing in at the provider."""
_STATE = re.compile(r"[A-Za-z0-9_-]{43}")
_SILENT_REFUSALS = ("login_required", "interaction_required", "consent_required", "account_selection_required")


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """The content of the cookie of one attempt to sign in."""

    login: Login
    next: str
    silent: bool
    until: int
    session: Ticket | None = None
    """The session that is checked: when the provider leads back here, the browser does not send its cookie."""


async def begin(request: Request, site: Site, who: Principal) -> Response:
    """Redirects to the provider. With `silent`, it only says whether the person is still signed in there."""
    identities = _identities(site)
    onward, silent = safe_path(request.query_params.get("next", "")), "silent" in request.query_params
    login = Login.new()
    try:
        place = await identities.provider.authorization_url(login, _redirect_uri(request, site), silent=silent)
    except ProviderDown as error:
        return _failed(request, site, error, onward)
    response = RedirectResponse(place, 303)
    session = site.sessions.of_provider(request) if silent and who.roles else None
    attempt = Attempt(login, onward, silent, int(site.service.clock()) + _BACK_WITHIN, session)
    secure = site.sessions.is_over_tls(request)
    response.set_cookie(
        _cookie(request, site, login.state),
        site.sessions.sealed("attempt", attempt),
        max_age=_BACK_WITHIN,
        path=_path(secure),
        httponly=True,
        samesite="lax",  # it has to come along when the provider leads back here
        secure=secure,
    )
    return response


async def callback(request: Request, site: Site, who: Principal) -> Response:
    """Signs in who comes back from the provider, and continues with the page that they wanted."""
    identities, query = _identities(site), request.query_params
    state = query.get("state", "")
    state = state if _STATE.fullmatch(state) else ""  # it becomes the name of a cookie
    cookie = _cookie(request, site, state)
    attempt = site.sessions.unsealed("attempt", request.cookies.get(cookie, ""), Attempt)
    onward = attempt.next if attempt is not None else HOME
    try:
        attempt = await _checked(request, site, attempt, state)
        if "error" in query:
            return await _refused(request, site, attempt, query["error"])
        known = attempt.session
        person = await identities.signed_in(
            query.get("code", ""),
            attempt.login,
            _redirect_uri(request, site),
            origin_of(request),
            known="" if known is None else known.user,
        )
        if known is not None and known.user != person.name:
            onward = HOME  # it was the page of someone else
            await site.sessions.end(known)
        ticket = await site.sessions.ticket_of(person, known)
        signed_in(request, person.name, WAY)
    except (NotAllowed, ProviderDown) as error:
        sign_in_refused(request, WAY)
        response = _failed(request, site, error, onward)
        if isinstance(error, NotAllowed) and attempt is not None and attempt.session is not None:
            await _end(request, site, attempt.session, response)  # they have lost their roles
    else:
        # The provider is another site: from it, a redirect would not send the new cookie; a page of our own does.
        response = page(request, "signed-in.html", next=onward)
        if ticket is not None:
            site.sessions.open(request, response, ticket)
    _drop(request, site, response, cookie)
    return response


async def _checked(request: Request, site: Site, attempt: Attempt | None, state: str) -> Attempt:
    """The attempt, if this browser began it and it comes back for the first time, from its issuer."""
    words = ""
    if attempt is None or attempt.login.state != state or attempt.until < site.service.clock():
        words = "This sign-in was not begun in this browser, or is too old."
    elif request.query_params.get("iss", _identities(site).settings.issuer) != _identities(site).settings.issuer:
        words = "This sign-in comes from another provider."
    elif not site.used_states.take(state):
        words = "This sign-in was already used."
    if words or attempt is None:
        await site.sign_ins.failed(WAY, words, origin_of(request))
        raise NotAllowed(words, fix="Sign in again.")
    return attempt


async def _refused(request: Request, site: Site, attempt: Attempt, error: str) -> Response:
    """The provider did not sign anyone in."""
    label = _identities(site).settings.label
    if attempt.silent and error in _SILENT_REFUSALS:
        words = NotAllowed(f"Your session at {label} has ended.", fix="Sign in again.")
    else:
        shown = "".join(one for one in error[:60] if one.isalnum() or one in "_-")
        words = NotAllowed(f"{label} did not sign you in: {shown}.", fix="Sign in again.")
        sign_in_refused(request, WAY)
        await site.sign_ins.failed(WAY, words.message, origin_of(request))
    response = _failed(request, site, words, attempt.next)
    if attempt.session is not None:
        await _end(request, site, attempt.session, response)
    _drop(request, site, response, _cookie(request, site, attempt.login.state))
    return response


async def _end(request: Request, site: Site, session: Ticket, response: Response) -> None:
    site.sessions.drop(request, response)
    await site.sessions.end(session)


def _failed(request: Request, site: Site, error: CuebookError, onward: str) -> Response:
    log.warning("Sign-in failed: %s", error.message)
    status = 503 if isinstance(error, ProviderDown) else 403
    fix = problems.for_pages(error.fix)
    return sign_in_page(request, site, onward, f"{error.message} {fix}".strip(), status)


def sign_in_page(
    request: Request, site: Site, onward: str, words: str = "", status: int = 200, *, out: str = ""
) -> Response:
    request.state.ways = ways(site, out)
    return page(request, "sign-in.html", status, words=words, command=problems.NEW_TOKEN, next=onward, comes_back=False)


def ways(site: Site, out: str = "") -> dict[str, object]:
    """How people sign in here, for the page. `out` is where they end their session at the provider."""
    label = "" if site.identities is None else site.identities.settings.label
    return {"provider": label, "local": site.sessions.local, "linked": site.sessions.linked, "out": out}


def recheck(request: Request, path: str) -> Response:
    """Leads a page's reader past the provider, which says whether they are still signed in there."""
    return RedirectResponse(f"/sign-in/oidc?{urlencode({'silent': '1', 'next': path})}", 303)


async def sign_out_place(request: HTTPConnection, site: Site) -> str:
    """Where someone can end their session at the provider too; empty if it offers no such page."""
    if site.identities is None:
        return ""
    try:
        place = (await site.identities.provider.metadata()).get("end_session_endpoint")
    except ProviderDown:
        return ""
    if not isinstance(place, str) or not is_secure(place):
        return ""
    query = {
        "client_id": site.identities.settings.client_id,
        "post_logout_redirect_uri": f"{address(request, site)}/sign-in",
    }
    return f"{place}{'&' if urlsplit(place).query else '?'}{urlencode(query)}"


# --- assistants ---


async def resource(request: Request, site: Site, who: Principal) -> Response:
    """The metadata of `/mcp` as a protected resource (RFC 9728): where assistants get tokens for it."""
    settings = _identities(site).settings
    found = {
        "resource": address(request, site) + MCP,
        "authorization_servers": [settings.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": "Cuebook",
        **({"scopes_supported": list(settings.mcp_scopes)} if settings.mcp_scopes else {}),
    }
    return JSONResponse(found)


def challenge(request: HTTPConnection, site: Site, *, invalid: bool) -> str:
    """What `/mcp` asks for, as the header `WWW-Authenticate`."""
    if site.identities is None:
        return "Bearer"
    parts = [f'resource_metadata="{address(request, site)}{RESOURCE}{MCP}"']
    parts += ['error="invalid_token"'] if invalid else []
    scopes = site.identities.settings.mcp_scopes
    parts += [f'scope="{" ".join(scopes)}"'] if scopes else []
    return f"Bearer {', '.join(parts)}"


async def holder(request: HTTPConnection, site: Site, token: str) -> Principal | None:
    """The holder of a token for `/mcp`: of Cuebook, or an access token of the provider."""
    found = await site.sessions.holder(token) if token else None
    if found is not None or site.identities is None or token.count(".") != 2:
        return found
    audience = site.identities.settings.audience or resource_address(request, site)
    if not audience:
        log.warning("Access tokens are refused: set public_url in [serve], or audience in [oidc].")
        return None
    try:
        return await site.identities.bearer(token, audience, origin_of(request, "mcp"))
    except ProviderDown as error:
        log.warning("%s", error.message)
        return None


def resource_address(request: HTTPConnection, site: Site) -> str:
    """The address of `/mcp`; empty if it is not certain: a server on all addresses only knows the number that a request names."""
    host = request.url.hostname or ""
    if not site.wiring.config.get("serve.public_url") and is_number(host) and not is_loopback(host):
        return ""
    return address(request, site) + MCP


# --- inside ---


def address(request: HTTPConnection, site: Site) -> str:
    """The address of this server as others see it."""
    configured = site.wiring.config.get("serve.public_url")
    return str(configured) if configured else f"{request.url.scheme}://{request.headers.get('host', '')}"


def origin_of(request: HTTPConnection, surface: str = "web") -> Origin:
    return Origin(surface, request.client.host if request.client is not None else "")


def _redirect_uri(request: Request, site: Site) -> str:
    return address(request, site) + CALLBACK


def _cookie(request: Request, site: Site, state: str) -> str:
    """The cookie's name: one for each attempt, because people open several tabs."""
    return f"{site.sessions.cookie_of(request)}-{state[:12]}"


def _path(secure: bool) -> str:
    """Where the cookie is sent: what no other host of the domain can set has to be sent everywhere."""
    return "/" if secure else CALLBACK


def _drop(request: Request, site: Site, response: Response, cookie: str) -> None:
    secure = site.sessions.is_over_tls(request)
    response.delete_cookie(cookie, path=_path(secure), httponly=True, samesite="lax", secure=secure)


def _identities(site: Site) -> Identities:
    if site.identities is None:
        raise problems.not_found()
    return site.identities
