"""The checks that every request passes before a handler answers it.

`Guard` checks the host, the origin and the size of every request. `EndpointGuard` guards one endpoint: it checks the content type and
the user's role, and turns errors into responses.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cuebook.gate.roles import NotAllowed
from cuebook.kernel.errors import CuebookError, NotFound
from cuebook.service.service import Principal
from cuebook.surfaces.web import node_socket, problems
from cuebook.surfaces.web.auth import oidc
from cuebook.surfaces.web.auth.access_log import forbidden, sign_in_refused
from cuebook.surfaces.web.auth.redirect import path_of
from cuebook.surfaces.web.auth.sessions import bearer_of
from cuebook.surfaces.web.live.sse import EventStream
from cuebook.surfaces.web.problems import Problem
from cuebook.surfaces.web.site import Endpoint, Needs, Site

LARGEST_BODY = 2_000_000
"""Maximum size of a request in bytes; enough for a playbook's text."""
CHANGES = ("POST", "PUT", "PATCH", "DELETE")
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
HTML = "text/html"

_SAFE_SITES = ("", "none", "same-origin")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer`, a browser would also hide the origin of our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def csp(nonce: str) -> str:
    """The content security policy: only this server's content, and scripts only with the nonce of this page."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}' 'strict-dynamic'; style-src 'self' 'nonce-{nonce}';"
        " img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types cuebook"
    )


class Hosts:
    """The host names that this server answers to. This protects against DNS rebinding."""

    def __init__(self, names: Collection[str], *, any_address: bool = False) -> None:
        """With `any_address`, any numeric address is accepted: the server listens on all of them."""
        self._names = frozenset(name.lower() for name in names)
        self._any_address = any_address

    def __contains__(self, host: str) -> bool:
        if host.lower() in self._names:
            return True
        try:
            return self._any_address and ipaddress.ip_address(urlsplit(f"//{host}").hostname or "") is not None
        except ValueError:
            return False


class Guard:
    """Refuses requests that are for other hosts, from other sites, or too large. Adds security headers."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._upgrade(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(MutableHeaders(scope=message), nonce)
            await send(message)

        try:
            self._check(scope)
            bounded = _Bounded(receive, Headers(scope=scope))
        except Problem as problem:
            await problems.response_to(Request(scope), problem)(scope, receive, guarded)
            return
        await self._app(scope, bounded, guarded)

    async def _upgrade(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses a WebSocket for the same reasons as a request. Its messages are bounded by the server."""
        try:
            self._check_host(Headers(scope=scope))
            node_socket.check_upgrade(scope)
        except Problem as problem:
            await node_socket.refuse(scope, send, problem)
            return
        await self._app(scope, receive, send)

    def _check_host(self, headers: Headers) -> str:
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or host not in self._hosts:
            raise Problem(
                421,
                "wrong_host",
                "Unknown host name.",
                fix="Open the address that `cuebook serve` printed. If this is its own name, set it with `--allow-host`, or with"
                " public_url in [serve].",
            )
        return host

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = self._check_host(headers)
        own = all(_host_of(origin) == host.lower() for origin in headers.getlist("origin"))
        near = all(site in _SAFE_SITES for site in headers.getlist("sec-fetch-site"))
        opened = scope["method"] == "GET" and headers.getlist("sec-fetch-mode") == ["navigate"]
        if not own or not (near or (opened and headers.getlist("sec-fetch-dest") == ["document"])):
            raise Problem(
                403, "foreign_origin", "This request comes from another site.", fix="Start from a page of this site."
            )


def _host_of(origin: str) -> str:
    """The host and port of an origin; empty if it is invalid."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _add_headers(headers: MutableHeaders, nonce: str) -> None:
    for name, value in _HEADERS.items():
        headers[name] = value
    headers.setdefault("Content-Security-Policy", csp(nonce))
    headers.setdefault("Cache-Control", "no-store")


class _Bounded:
    """Reads a body up to a limit."""

    def __init__(self, receive: Receive, headers: Headers) -> None:
        self._receive = receive
        self._left = LARGEST_BODY
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > LARGEST_BODY:
            raise _too_large()

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _too_large()
        return message


def _too_large() -> Problem:
    return Problem(413, "too_large", f"A request may be at most {LARGEST_BODY:,} bytes long.")


class EndpointGuard:
    """Guards one endpoint: who may use it, and with which content type."""

    def __init__(self, endpoint: Endpoint, site: Site) -> None:
        self._endpoint = endpoint
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        request.state.ways = oidc.ways(self._site)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except Exception as error:
            response = await self._error_response(request, error)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        who = await self._known(request)
        if self._endpoint.method in CHANGES:
            _check_content(request, (JSON, FORM) if self._endpoint.kind == "form" else (JSON,))
        if who is None:
            if "authorization" in request.headers:
                sign_in_refused(request, "token")
                await self._site.sign_ins.failed("token", "unknown token", oidc.origin_of(request, "api"))
            raise Problem(
                401,
                "not_signed_in",
                "Invalid token." if "authorization" in request.headers else "You are not signed in.",
                fix="Open the address that `cuebook serve` printed, or send a token as `Authorization: Bearer ...`.",
                WWW_Authenticate="Bearer",
            )
        if who != ANONYMOUS:
            surface = "api" if "authorization" in request.headers else "web"
            who = msgspec.structs.replace(who, origin=oidc.origin_of(request, surface))
        request.state.who = who  # also for the error page
        if await self._is_to_recheck(request):
            return oidc.recheck(request, path_of(request))
        if await self._is_overdue(request):
            words = "Your session has to be checked again."
            raise Problem(401, "not_checked", words, fix="Reload the page.", WWW_Authenticate="Bearer")
        try:
            _check_role(self._endpoint.needs, who)
        except NotAllowed:
            forbidden(request, who)
            raise
        response = await self._endpoint.handler(request, self._site, who)
        if isinstance(response, EventStream):
            response.permitted = lambda: self._still(request, who)
        return response

    async def _is_to_recheck(self, request: Request) -> bool:
        """Whether to ask the identity provider again before this page is shown. Not while it is down."""
        opened = self._endpoint.kind == "page" and self._endpoint.needs != "anyone" and request.method == "GET"
        if request.headers.get("sec-fetch-mode", "navigate") != "navigate":
            return False  # a script of a page cannot go there and come back
        if not opened or not problems.wants_page(request) or not self._site.sessions.is_to_recheck(request):
            return False
        identities = self._site.identities
        return bool(path_of(request)) and identities is not None and await identities.provider.is_up()

    async def _is_overdue(self, request: Request) -> bool:
        """Whether a page that stays open, or a program with its cookie, has evaded that check for too long."""
        identities = self._site.identities
        if identities is None or self._endpoint.needs in ("anyone", "trigger"):
            return False
        return self._site.sessions.is_overdue(request) and await identities.provider.is_up()

    async def _still(self, request: Request, who: Principal) -> bool:
        """Whether the user is still signed in and allowed."""
        now, needs = await self._known(request), self._endpoint.needs
        if now is None or (now.name, now.tenant) != (who.name, who.tenant):
            return False
        if "/runs/{id}" in self._endpoint.path and not await self._sees(request.path_params["id"], now):
            return False
        return needs == "anyone" or needs == "trigger" or needs == "metrics" or now.may(needs)

    async def _sees(self, run: str, who: Principal) -> bool:
        """Whether the user still sees a run: they may have left a team."""
        service = self._site.service
        if not service.visibility.is_limited(who):
            return True
        with suppress(NotFound, NotAllowed):
            await service.get(run, who)
            return True
        return False

    async def _known(self, request: Request) -> Principal | None:
        match self._endpoint.needs:
            case "anyone":
                return await self._site.sessions.who(request) or ANONYMOUS
            case "trigger":
                return ANONYMOUS  # the handler checks the playbook's own token
            case "metrics" if _is_for_metrics(bearer_of(request), self._site.metrics_token):
                return SCRAPER
            case _:
                return await self._site.sessions.who(request)

    async def _error_response(self, request: Request, error: Exception) -> Response:
        is_page = self._endpoint.kind == "page" and JSON not in request.headers.get("accept", "")
        if is_page or problems.wants_page(request):
            who, waiting = getattr(request.state, "who", ANONYMOUS), 0
            with suppress(Exception):  # the same failure may also break the menu
                waiting = await waiting_for(self._site, who)
            return problems.page(request, error, waiting)
        return problems.problem(request, error)


ANONYMOUS = Principal("nobody", "", frozenset())
SCRAPER = Principal("metrics", "", frozenset())
"""The holder of the token for metrics."""


def _is_for_metrics(given: str, token: str) -> bool:
    return bool(token) and secrets.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _check_role(needs: Needs, who: Principal) -> None:
    """Raises `NotAllowed` unless the user has the role."""
    if needs == "metrics":
        if (who.name, who.tenant) != (SCRAPER.name, SCRAPER.tenant):  # no user has an empty tenant
            who.require("admin", "read the metrics")
            if who.tenant != Principal().tenant:  # they are about all tenants
                raise NotAllowed("The metrics are about all tenants.", fix="Ask the operator of this server.")
    elif needs != "anyone" and needs != "trigger":
        who.require(needs, "do that")


async def waiting_for(site: Site, who: Principal) -> int:
    """The number of items in a user's inbox: waits and interrupted runs. 0 if it is unknown."""
    with suppress(CuebookError):
        return len(await site.service.inbox_ids(who)) + len(await site.worker.interrupted(who))
    return 0


def wants_json(request: Request) -> bool:
    """Whether the request comes from a program, which cannot use a page."""
    accepted = request.headers.get("accept", "")
    return JSON in accepted and HTML not in accepted


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _check_content(request: Request, wanted: tuple[str, ...]) -> None:
    """Require JSON for changes: forms of other sites cannot send it."""
    if content_type(request) not in wanted:
        raise Problem(
            415,
            "content_type",
            f"Expected the content type {' or '.join(wanted)}.",
            fix="Set the header Content-Type.",
        )
