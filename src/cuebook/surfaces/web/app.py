"""The app: one table of ways, and everything they work with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cuebook.kernel.errors import StoreError
from cuebook.service import Service
from cuebook.surfaces.driving import Drivers
from cuebook.surfaces.histories import Histories
from cuebook.surfaces.library import Library
from cuebook.surfaces.mcp.mounting import Mounted
from cuebook.surfaces.web import catalog, files, pages, problems, rest, triggers
from cuebook.surfaces.web.feeds import Feeds
from cuebook.surfaces.web.guard import NOBODY, Door, Guard, Hosts, waiting_for
from cuebook.surfaces.web.problems import Problem
from cuebook.surfaces.web.sessions import Sessions, bearer_of
from cuebook.surfaces.web.site import Site, Way
from cuebook.surfaces.wiring import Wiring

WAYS: tuple[Way, ...] = (
    Way("/", "GET", pages.library, "viewer", "page"),
    Way("/playbooks", "GET", pages.to_library, "viewer", "page"),
    Way("/playbooks/{id}", "GET", pages.playbook, "viewer", "page"),
    Way("/playbooks/{id}/run", "GET", pages.preflight, "runner", "page"),
    Way("/runs", "GET", pages.runs, "viewer", "page"),
    Way("/runs/{id}", "GET", pages.run, "viewer", "page"),
    Way("/runs/{id}/diff/{other}", "GET", pages.diff, "viewer", "page"),
    Way("/runs/{id}/sent/{record}", "GET", pages.sent, "viewer", "page"),
    Way("/inbox", "GET", pages.inbox, "viewer", "page"),
    Way("/waits/{id}", "GET", pages.wait, "viewer", "page"),
    Way("/settings/connections", "GET", pages.connections, "viewer", "page"),
    Way("/sign-in", "GET", pages.sign_in, "anyone", "page"),
    Way("/sign-in", "POST", pages.take_token, "anyone", "form"),
    Way("/sign-out", "POST", pages.sign_out, "anyone", "form"),
    Way("/static/{name}", "GET", files.static, "anyone", "static"),
    Way("/healthz", "GET", files.healthz, "anyone", "json"),
    Way("/api/openapi.yaml", "GET", files.openapi, "anyone", "static"),
    Way("/api/playbooks", "GET", catalog.playbooks, "viewer", "json"),
    Way("/api/playbooks/{id}", "GET", catalog.playbook, "viewer", "json"),
    Way("/api/playbooks/{id}/token", "POST", triggers.make_token, "admin", "json"),
    Way("/api/playbooks/{id}/token", "DELETE", triggers.remove_token, "admin", "json"),
    Way("/api/playbooks/{id}/trigger", "POST", triggers.trigger, "trigger", "json"),
    Way("/api/models", "GET", catalog.models, "viewer", "json"),
    Way("/api/runs", "GET", rest.runs, "viewer", "json"),
    Way("/api/runs", "POST", rest.start_run, "runner", "json"),
    Way("/api/runs/{id}", "GET", rest.run, "viewer", "json"),
    Way("/api/runs/{id}/resume", "POST", rest.resume, "runner", "form"),
    Way("/api/runs/{id}/cancel", "POST", rest.cancel, "viewer", "json"),
    Way("/api/runs/{id}/retry", "POST", rest.retry, "runner", "json"),
    Way("/api/runs/{id}/restart", "POST", rest.restart, "runner", "json"),
    Way("/api/runs/{id}/fork", "POST", rest.fork, "runner", "json"),
    Way("/api/runs/{id}/events", "GET", rest.events, "viewer", "stream"),
    Way("/api/runs/{id}/stream", "GET", rest.stream, "viewer", "stream"),
    Way("/api/runs/{id}/artifact", "GET", rest.artifact, "viewer", "json"),
    Way("/api/runs/{id}/diff/{other}", "GET", rest.diff, "viewer", "json"),
    Way("/api/inbox", "GET", rest.inbox, "viewer", "json"),
    Way("/api/waits/{id}", "GET", rest.wait, "viewer", "json"),
    Way("/api/waits/{id}/answer", "POST", rest.answer_wait, "runner", "json"),
    Way("/api/waits/{id}/decide", "POST", rest.decide_wait, "approver", "json"),
    Way("/api/connections", "GET", catalog.connections, "viewer", "json"),
    Way("/api/connections/{provider}/key", "PUT", catalog.set_key, "admin", "json"),
    Way("/api/connections/{provider}/key", "DELETE", catalog.remove_key, "admin", "json"),
    Way("/playbooks/runtime", "POST", triggers.runtime, "viewer", "json"),
)
"""Every way into the app. Tests walk over it, and openapi.yaml is compared with it."""


def make_site(
    wiring: Wiring, service: Service, *, folders: Iterable[Path] = (), serve_token: str = "", at_once: int = 20
) -> Site:
    library = Library(folders)
    drivers = Drivers(service, wiring.reaching.workspace, at_once=at_once)
    return Site(
        wiring=wiring,
        service=service,
        library=library,
        histories=Histories(service, library),
        sessions=Sessions(service, serve_token),
        drivers=drivers,
        feeds=Feeds(service),
        runtime=wiring.runtime(service, library.stored, drivers.take),
    )


async def _let_go(site: Site) -> None:
    """Lets go of what is under way as soon as the server is to end, while requests are still answered."""
    await site.closing.wait()
    await asyncio.gather(site.drivers.close(), site.runtime.close())


async def _look_beforehand(site: Site) -> None:
    """Reads the library, so that the first page does not wait for it."""
    await site.faces.of(await site.library.read(None))


def make_app(site: Site, hosts: Hosts) -> Starlette:
    """The app of a site. It drives runs while it is up; the service is closed by whoever opened it."""
    routes = [Route(way.path, Door(way, site), methods=[way.method]) for way in WAYS]
    mcp = Mounted(
        site.wiring,
        site.service,
        site.library,
        site.drivers,
        lambda request: site.sessions.holder(bearer_of(request)),
        site.closing,
    )

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        await site.drivers.open()
        letting_go = asyncio.create_task(_let_go(site))
        looking = asyncio.create_task(_look_beforehand(site))
        try:
            yield
        finally:
            looking.cancel()
            site.closing.set()
            await mcp.close()
            await letting_go
            await site.feeds.close()

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            fitting = [one.methods or set() for one in routes if one.path_regex.match(request.url.path)]
            methods = ", ".join(sorted(set().union(*fitting)))
            fix = f"Possible: {methods}."
            problem = Problem(405, "method", f"{request.method} is not possible here.", fix=fix, Allow=methods)
        else:
            problem = problems.not_found()
        if not problems.wants_page(request):
            return problems.problem(request, problem)
        request.state.who = NOBODY
        with suppress(StoreError):
            request.state.who = await site.sessions.who(request) or NOBODY
        return problems.page(request, problem, await waiting_for(site, request.state.who))

    return Starlette(
        routes=[*routes, Route("/mcp", mcp)],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={HTTPException: unknown},
        lifespan=life,
    )
