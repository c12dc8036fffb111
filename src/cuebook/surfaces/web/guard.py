"""What every request has to pass before anything answers it.

`Guard` looks at what a browser or a program sends with any request: for which host, from which page, how large. `Door`
stands before one way: it wants the right content type and somebody who may come this way, and turns errors into words.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cuebook.kernel.errors import CuebookError
from cuebook.service import Principal
from cuebook.surfaces.web import problems
from cuebook.surfaces.web.events import EventStream
from cuebook.surfaces.web.problems import Problem
from cuebook.surfaces.web.site import Site, Way

LARGEST_BODY = 2_000_000
"""Bytes of a request. A playbook's text has room in it."""
CHANGES = ("POST", "PUT", "PATCH", "DELETE")
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
HTML = "text/html"

_SAFE_SITES = ("", "none", "same-origin")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer` a browser hides the origin of our own forms, too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def csp(nonce: str) -> str:
    """Only what this server sends runs, and a script only with the nonce of this very page."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}' 'strict-dynamic'; style-src 'self' 'nonce-{nonce}';"
        " img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types cuebook"
    )


class Hosts:
    """The names that this server answers to. One that a page made up for its own address is not among them."""

    def __init__(self, names: Collection[str], *, any_address: bool = False) -> None:
        """With `any_address`, also any numeric address: it is bound to all that the machine has."""
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
    """Refuses what comes for another host or from another page, and what is too large; adds the headers of safety."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            await problems.told(Request(scope), problem)(scope, receive, guarded)
            return
        await self._app(scope, bounded, guarded)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or host not in self._hosts:
            raise Problem(
                421,
                "wrong_host",
                "This server does not go by that name.",
                fix="Open the address that `cuebook serve` printed.",
            )
        own = all(_host_of(origin) == host.lower() for origin in headers.getlist("origin"))
        near = all(site in _SAFE_SITES for site in headers.getlist("sec-fetch-site"))
        opened = scope["method"] == "GET" and headers.getlist("sec-fetch-mode") == ["navigate"]
        if not own or not (near or (opened and headers.getlist("sec-fetch-dest") == ["document"])):
            raise Problem(
                403, "foreign_origin", "This request comes from another site.", fix="Begin at a page of this one."
            )


def _host_of(origin: str) -> str:
    """The host that an origin names, with its port; empty for what is no origin."""
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
        told = headers.get("content-length", "0")
        if not told.isascii() or not told.isdigit() or int(told) > LARGEST_BODY:
            raise _too_large()

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _too_large()
        return message


def _too_large() -> Problem:
    return Problem(413, "too_large", f"A request has at most {LARGEST_BODY:,} bytes.")


class Door:
    """Before one way: who may come in, and with what."""

    def __init__(self, way: Way, site: Site) -> None:
        self._way = way
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except Exception as error:
            response = await self._told(request, error)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        who = await self._known(request)
        if self._way.method in CHANGES:
            _check_content(request, (JSON, FORM) if self._way.kind == "form" else (JSON,))
        if who is None:
            raise Problem(
                401,
                "not_signed_in",
                "Invalid token." if "authorization" in request.headers else "You are not signed in.",
                fix="Open the address that `cuebook serve` printed, or send a token as `Authorization: Bearer ...`.",
                WWW_Authenticate="Bearer",
            )
        request.state.who = who  # also for the page that says what they may not do
        if self._way.needs != "anyone" and self._way.needs != "trigger":
            who.require(self._way.needs, "do that")
        response = await self._way.handler(request, self._site, who)
        if isinstance(response, EventStream):
            response.permitted = lambda: self._still(request, who)
        return response

    async def _still(self, request: Request, who: Principal) -> bool:
        """Whether the user would be let in again."""
        now, needs = await self._known(request), self._way.needs
        if now is None or (now.name, now.tenant) != (who.name, who.tenant):
            return False
        return needs == "anyone" or needs == "trigger" or now.may(needs)

    async def _known(self, request: Request) -> Principal | None:
        match self._way.needs:
            case "anyone":
                return await self._site.sessions.who(request) or NOBODY
            case "trigger":
                return NOBODY  # the handler looks at the playbook's own token
            case _:
                return await self._site.sessions.who(request)

    async def _told(self, request: Request, error: Exception) -> Response:
        is_page = self._way.kind == "page" and JSON not in request.headers.get("accept", "")
        if is_page or problems.wants_page(request):
            who, waiting = getattr(request.state, "who", NOBODY), 0
            with suppress(Exception):  # what broke the page may break its menu, too
                waiting = await waiting_for(self._site, who)
            return problems.page(request, error, waiting)
        return problems.problem(request, error)


NOBODY = Principal("nobody", "", frozenset())


async def waiting_for(site: Site, who: Principal) -> int:
    """How much waits for somebody: questions and the like, and runs to resume. 0 where that is unknown."""
    with suppress(CuebookError):
        return len(await site.service.inbox_ids(who)) + len(await site.drivers.left(who))
    return 0


def wants_json(request: Request) -> bool:
    """Whether it comes from a program, which a page tells nothing."""
    accepted = request.headers.get("accept", "")
    return JSON in accepted and HTML not in accepted


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _check_content(request: Request, wanted: tuple[str, ...]) -> None:
    """A form of another site can send no JSON, so JSON is what a change is asked with."""
    if content_type(request) not in wanted:
        raise Problem(
            415,
            "content_type",
            f"This wants the content type {' or '.join(wanted)}.",
            fix="Set the header Content-Type.",
        )
