"""The web application: its table of endpoints, and how the app is built."""

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
from starlette.routing import Route, WebSocketRoute

from cuebook.kernel.errors import StoreError
from cuebook.performers.nodes.protocol import PATH
from cuebook.service.access.sign_ins import SignIns
from cuebook.service.insight.metrics import Metrics
from cuebook.service.playbooks.history import Histories
from cuebook.service.playbooks.library import Library
from cuebook.service.readiness import Readiness
from cuebook.service.service import Principal, Service
from cuebook.surfaces.mcp.http import Mounted
from cuebook.surfaces.web import problems
from cuebook.surfaces.web.api import (
    comparisons,
    evidence,
    files,
    hooks,
    nodes,
    notifications,
    runs,
    schedules,
    spending,
    triggers,
    users,
)
from cuebook.surfaces.web.api import library as catalog
from cuebook.surfaces.web.auth import oidc
from cuebook.surfaces.web.auth.access_log import AccessLog, sign_in_refused
from cuebook.surfaces.web.auth.guard import ANONYMOUS, EndpointGuard, Guard, Hosts, waiting_for
from cuebook.surfaces.web.auth.sessions import Sessions, bearer_of
from cuebook.surfaces.web.node_socket import NodeSocket
from cuebook.surfaces.web.pages import comparison as comparison_pages
from cuebook.surfaces.web.pages import pages, people, static
from cuebook.surfaces.web.pages.notifications import notifications as notifications_page
from cuebook.surfaces.web.pages.usage import usage as usage_page
from cuebook.surfaces.web.problems import Problem
from cuebook.surfaces.web.site import Endpoint, Site
from cuebook.wiring.triggers import administration_of
from cuebook.wiring.wiring import Wiring

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("/", "GET", pages.library, "viewer", "page"),
    Endpoint("/playbooks", "GET", pages.to_library, "viewer", "page"),
    Endpoint("/playbooks/{id}", "GET", pages.playbook, "viewer", "page"),
    Endpoint("/playbooks/{id}/run", "GET", pages.preflight, "runner", "page"),
    Endpoint("/playbooks/{id}/run", "POST", pages.begin, "runner", "form"),
    Endpoint("/runs", "GET", pages.runs, "viewer", "page"),
    Endpoint("/runs/{id}", "GET", pages.run, "viewer", "page"),
    Endpoint("/runs/{id}/diff/{other}", "GET", pages.diff, "viewer", "page"),
    Endpoint("/runs/{id}/sent/{record}", "GET", pages.sent, "viewer", "page"),
    Endpoint("/compare", "GET", comparison_pages.comparisons, "viewer", "page"),
    Endpoint("/compare/{id}", "GET", comparison_pages.comparison, "viewer", "page"),
    Endpoint("/inbox", "GET", pages.inbox, "viewer", "page"),
    Endpoint("/waits/{id}", "GET", pages.wait, "viewer", "page"),
    Endpoint("/schedules", "GET", pages.schedules, "viewer", "page"),
    Endpoint("/schedules/{kind}/{name}", "GET", pages.schedule, "viewer", "page"),
    Endpoint("/usage", "GET", usage_page, "viewer", "page"),
    Endpoint("/settings/connections", "GET", pages.connections, "viewer", "page"),
    Endpoint("/settings/overrides", "GET", pages.overrides, "viewer", "page"),
    Endpoint("/settings/nodes", "GET", pages.nodes, "viewer", "page"),
    Endpoint("/settings/users", "GET", people.users, "admin", "page"),
    Endpoint("/settings/audit", "GET", people.audit, "admin", "page"),
    Endpoint("/settings/notifications", "GET", notifications_page, "viewer", "page"),
    Endpoint("/sign-in", "GET", pages.sign_in, "anyone", "page"),
    Endpoint("/sign-in", "POST", pages.take_token, "anyone", "form"),
    Endpoint("/sign-in/oidc", "GET", oidc.begin, "anyone", "page"),
    Endpoint(oidc.CALLBACK, "GET", oidc.callback, "anyone", "page"),
    Endpoint(oidc.RESOURCE, "GET", oidc.resource, "anyone", "json"),
    Endpoint(oidc.RESOURCE + oidc.MCP, "GET", oidc.resource, "anyone", "json"),
    Endpoint("/sign-out", "POST", pages.sign_out, "anyone", "form"),
    Endpoint("/static/{name}", "GET", static.static, "anyone", "static"),
    Endpoint("/healthz", "GET", static.healthz, "anyone", "json"),
    Endpoint("/readyz", "GET", static.readyz, "anyone", "json"),
    Endpoint("/metrics", "GET", static.metrics, "metrics", "static"),
    Endpoint("/api/openapi.yaml", "GET", static.openapi, "anyone", "static"),
    Endpoint("/api/playbooks", "GET", catalog.playbooks, "viewer", "json"),
    Endpoint("/api/playbooks/{id}", "GET", catalog.playbook, "viewer", "json"),
    Endpoint("/api/playbooks/{id}/token", "POST", triggers.make_token, "admin", "json"),
    Endpoint("/api/playbooks/{id}/token", "DELETE", triggers.remove_token, "admin", "json"),
    Endpoint("/api/playbooks/{id}/trigger", "POST", triggers.trigger, "trigger", "json"),
    Endpoint("/api/models", "GET", catalog.models, "viewer", "json"),
    Endpoint("/api/runs", "GET", runs.runs, "viewer", "json"),
    Endpoint("/api/runs", "POST", runs.start_run, "runner", "json"),
    Endpoint("/api/runs/bulk", "POST", runs.bulk, "viewer", "json"),
    Endpoint("/api/runs/{id}", "GET", runs.run, "viewer", "json"),
    Endpoint("/api/runs/{id}", "DELETE", runs.delete, "admin", "json"),
    Endpoint("/api/runs/{id}/resume", "POST", runs.resume, "runner", "form"),
    Endpoint("/api/runs/{id}/cancel", "POST", runs.cancel, "viewer", "json"),
    Endpoint("/api/runs/{id}/retry", "POST", runs.retry, "runner", "json"),
    Endpoint("/api/runs/{id}/restart", "POST", runs.restart, "runner", "json"),
    Endpoint("/api/runs/{id}/fork", "POST", runs.fork, "runner", "json"),
    Endpoint("/api/runs/{id}/edit", "POST", runs.edit, "runner", "json"),
    Endpoint("/api/runs/{id}/events", "GET", runs.events, "viewer", "stream"),
    Endpoint("/api/runs/{id}/stream", "GET", runs.stream, "viewer", "stream"),
    Endpoint("/api/runs/{id}/artifact", "GET", runs.artifact, "viewer", "json"),
    Endpoint("/api/runs/{id}/pages/{record}/picture", "GET", runs.page_picture, "viewer", "json"),
    Endpoint("/api/runs/{id}/pages/{record}/elements", "GET", runs.page_elements, "viewer", "json"),
    Endpoint("/api/runs/{id}/evidence", "GET", evidence.run, "viewer", "json"),
    Endpoint("/api/runs/{id}/files", "GET", files.files, "viewer", "json"),
    Endpoint("/api/runs/{id}/files/{digest}", "GET", files.file, "viewer", "json"),
    Endpoint("/api/runs/{id}/diff/{other}", "GET", runs.diff, "viewer", "json"),
    Endpoint("/api/compare", "GET", comparisons.comparisons, "viewer", "json"),
    Endpoint("/api/compare/{id}", "GET", comparisons.comparison, "viewer", "json"),
    Endpoint("/api/runs/{id}/allow", "POST", spending.allow, "approver", "json"),
    Endpoint("/api/usage", "GET", runs.usage, "viewer", "json"),
    Endpoint("/api/spending", "GET", spending.spending, "viewer", "json"),
    Endpoint("/api/budgets", "GET", spending.budgets, "viewer", "json"),
    Endpoint("/api/budgets", "POST", spending.set_budget, "admin", "json"),
    Endpoint("/api/budgets/{name}", "DELETE", spending.remove_budget, "admin", "json"),
    Endpoint("/api/inbox", "GET", runs.inbox, "viewer", "json"),
    Endpoint("/api/waits/{id}", "GET", runs.wait, "viewer", "json"),
    Endpoint("/api/waits/{id}/answer", "POST", runs.answer_wait, "runner", "json"),
    Endpoint("/api/waits/{id}/decide", "POST", runs.decide_wait, "approver", "json"),
    Endpoint("/api/overrides", "GET", runs.overrides, "viewer", "json"),
    Endpoint("/api/overrides/{id}", "DELETE", runs.revoke_override, "approver", "json"),
    Endpoint("/api/schedules", "POST", schedules.add_schedule, "runner", "json"),
    Endpoint("/api/triggers", "GET", schedules.triggers, "viewer", "json"),
    Endpoint("/api/triggers/{kind}/{name}", "GET", schedules.trigger, "viewer", "json"),
    Endpoint("/api/triggers/{kind}/{name}", "DELETE", schedules.remove, "runner", "json"),
    Endpoint("/api/triggers/{kind}/{name}/pause", "POST", schedules.pause, "runner", "json"),
    Endpoint("/api/triggers/{kind}/{name}/resume", "POST", schedules.resume, "runner", "json"),
    Endpoint("/api/triggers/{kind}/{name}/run", "POST", schedules.run, "runner", "json"),
    Endpoint("/api/triggers/{kind}/{name}/allow", "POST", schedules.allow, "approver", "json"),
    Endpoint("/api/triggers/{kind}/{name}/allow", "DELETE", schedules.disallow, "approver", "json"),
    Endpoint("/api/nodes", "GET", nodes.nodes, "viewer", "json"),
    Endpoint("/api/nodes", "POST", nodes.add, "admin", "json"),
    Endpoint("/api/nodes/{name}", "DELETE", nodes.revoke, "admin", "json"),
    Endpoint("/api/nodes/{name}/rename", "POST", nodes.rename, "admin", "json"),
    Endpoint("/api/nodes/{name}/token", "POST", nodes.renew, "admin", "json"),
    Endpoint("/api/users", "GET", users.users, "admin", "json"),
    Endpoint("/api/users", "POST", users.add, "admin", "json"),
    Endpoint("/api/users/{name}", "DELETE", users.remove, "admin", "json"),
    Endpoint("/api/users/{name}/grant", "POST", users.grant, "admin", "json"),
    Endpoint("/api/users/{name}/revoke", "POST", users.revoke, "admin", "json"),
    Endpoint("/api/users/{name}/join", "POST", users.join, "admin", "json"),
    Endpoint("/api/users/{name}/leave", "POST", users.leave, "admin", "json"),
    Endpoint("/api/users/{name}/token", "POST", users.token, "admin", "json"),
    Endpoint("/api/users/{name}/link", "POST", users.link, "admin", "json"),
    Endpoint("/api/acts", "GET", users.acts, "admin", "json"),
    Endpoint("/api/acts/export", "GET", evidence.everything, "admin", "json"),
    Endpoint("/api/evidence/key", "GET", evidence.key, "viewer", "json"),
    Endpoint("/api/notifications/preferences", "GET", notifications.preferences, "viewer", "json"),
    Endpoint("/api/notifications/preferences", "PUT", notifications.set_preferences, "viewer", "json"),
    Endpoint("/api/notifications/status", "GET", notifications.status, "viewer", "json"),
    Endpoint("/api/notifications/test", "POST", notifications.test, "admin", "json"),
    Endpoint("/api/notifications/retry", "POST", notifications.retry, "admin", "json"),
    Endpoint("/api/notifications/links", "GET", notifications.links, "viewer", "json"),
    Endpoint("/api/notifications/links", "POST", notifications.link, "viewer", "json"),
    Endpoint("/api/notifications/links/{account}", "DELETE", notifications.unlink, "viewer", "json"),
    Endpoint("/api/notifications/slack/{channel}", "POST", notifications.slack, "anyone", "form"),
    Endpoint("/api/connections", "GET", catalog.connections, "viewer", "json"),
    Endpoint("/api/connections/{provider}/key", "PUT", catalog.set_key, "admin", "json"),
    Endpoint("/api/connections/{provider}/key", "DELETE", catalog.remove_key, "admin", "json"),
    Endpoint("/hooks/{name}", "POST", hooks.hook, "trigger", "form"),
    Endpoint("/playbooks/runtime", "POST", triggers.runtime, "viewer", "json"),
)
"""All endpoints of the app. Tests check each of them, and compare the table with openapi.yaml."""


def make_site(
    wiring: Wiring,
    service: Service,
    *,
    folders: Iterable[Path] = (),
    serve_token: str = "",
    metrics: Metrics | None = None,
) -> Site:
    library = Library(folders)
    worker = wiring.worker(service)
    sign_ins = SignIns(service, service.clock)
    identities = wiring.identities(service, sign_ins)
    return Site(
        wiring=wiring,
        service=service,
        library=library,
        histories=Histories(service, library),
        sessions=Sessions(
            service, serve_token, identities=identities, public_url=wiring.config.get("serve.public_url") or ""
        ),
        sign_ins=sign_ins,
        identities=identities,
        worker=worker,
        runtime=wiring.runtime(service, library.stored, worker),
        readiness=Readiness(service),
        nodes=wiring.node_connections(service),
        notifier=wiring.notifier(service),
        metrics=metrics,
        metrics_token=wiring.metrics_token,
        triggers=administration_of(wiring, service),
    )


async def _release_runs(site: Site) -> None:
    """Release the runs as soon as the server starts to shut down, while requests are still being answered."""
    await site.closing.wait()
    site.nodes.hub.closing = True  # nodes go on with what they do
    await site.worker.close()
    await site.nodes.close()


async def _warm_up(site: Site) -> None:
    """Read the library, so that the first page does not wait for it."""
    await site.faces.of(await site.library.read(None))


def make_app(site: Site, hosts: Hosts) -> Starlette:
    """Build the app of a site. It drives runs while it is up. The caller closes the service."""
    logs_requests = site.wiring.config.get("log.access")
    routes = [Route(endpoint.path, EndpointGuard(endpoint, site), methods=[endpoint.method]) for endpoint in ENDPOINTS]

    async def holder(request: Request) -> Principal | None:
        bearer = bearer_of(request)
        found = await oidc.holder(request, site, bearer)
        if found is None and bearer:
            sign_in_refused(request, "token")
            if site.identities is None or bearer.count(".") != 2:  # those of the provider are recorded with the reason
                await site.sign_ins.failed("token", "unknown token", oidc.origin_of(request, "mcp"))
        return found

    mcp = Mounted(
        site.wiring,
        site.service,
        site.library,
        site.worker,
        holder,
        site.closing,
        lambda request: oidc.challenge(request, site, invalid=bool(bearer_of(request))),
    )

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        await site.worker.open()
        releasing = asyncio.create_task(_release_runs(site))
        warming_up = asyncio.create_task(_warm_up(site))
        try:
            yield
        finally:
            warming_up.cancel()
            site.closing.set()
            await mcp.close()
            await releasing
            await site.service.stream.close()
            if site.identities is not None:
                await site.identities.provider.close()

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            fitting = [one.methods or set() for one in routes if one.path_regex.match(request.url.path)]
            methods = ", ".join(sorted(set().union(*fitting)))
            fix = f"Allowed: {methods}."
            problem = Problem(405, "method", f"{request.method} is not allowed here.", fix=fix, Allow=methods)
        else:
            problem = problems.not_found()
        if not problems.wants_page(request):
            return problems.problem(request, problem)
        request.state.who = ANONYMOUS
        with suppress(StoreError):
            request.state.who = await site.sessions.who(request) or ANONYMOUS
        return problems.page(request, problem, await waiting_for(site, request.state.who))

    return Starlette(
        routes=[*routes, Route("/mcp", mcp), WebSocketRoute(PATH, NodeSocket(site.nodes))],
        middleware=[*([Middleware(AccessLog)] if logs_requests else []), Middleware(Guard, hosts=hosts)],
        exception_handlers={HTTPException: unknown},
        lifespan=life,
    )
