"""What runs used, and the budgets that limit it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cuebook.kernel.errors import BadInput
from cuebook.service.budgets.objects import budget_object
from cuebook.service.service import Principal
from cuebook.service.usage import BY, By, UsageReport, report_object
from cuebook.service.usage.period import period_of
from cuebook.surfaces.web.api import bodies
from cuebook.surfaces.web.api.bodies import body
from cuebook.surfaces.web.api.objects import answer
from cuebook.surfaces.web.site import Site


async def report_for(request: Request, site: Site, who: Principal, parts: Sequence[By] = BY) -> UsageReport:
    """The report that a request asks for."""
    query, service = request.query_params, site.service
    today = service.calendar.day(service.clock())
    since, until = period_of(query.get("since", "") or "30d", query.get("until", ""), today)
    return await service.usage(who, since=since, until=until, playbook=query.get("playbook", ""), parts=parts)


async def spending(request: Request, site: Site, who: Principal) -> Response:
    asked = request.query_params.get("by", "day")
    by: By | None = next((one for one in BY if one == asked), None)
    if by is None:
        raise BadInput(f"Use cannot be added up by '{asked}'.", fix=f"Use {', '.join(BY)}.")
    return answer(report_object(await report_for(request, site, who, [by]), by))


async def budgets(request: Request, site: Site, who: Principal) -> Response:
    waiting = await site.service.budgets.paused(who)
    found = await site.service.budgets.listed(who)
    return answer({"budgets": [budget_object(one, waiting.get(one.budget.name, ())) for one in found]})


async def set_budget(request: Request, site: Site, who: Principal) -> Response:
    """Limits that are left out stay as they are; null removes one."""
    asked = await body(request, bodies.SetBudget)
    given = msgspec.structs.asdict(asked)
    changes = {name: value for name, value in given.items() if name != "name" and value is not msgspec.UNSET}
    made, runs = await site.service.budgets.set(asked.name, changes, who)
    state = await site.service.budgets.state(made.name, who)
    return answer({**budget_object(state), "continued": list(runs)})


async def remove_budget(request: Request, site: Site, who: Principal) -> Response:
    runs = await site.service.budgets.remove(request.path_params["name"], who)
    return answer({"continued": list(runs)})


async def allow(request: Request, site: Site, who: Principal) -> Response:
    """Lets one run continue although a budget is spent."""
    asked = await body(request, bodies.AllowOver)
    made = await site.service.budgets.allow(request.path_params["id"], who, reason=asked.reason)
    for run in {one.run for one in made}:
        await site.worker.take(run)
    return answer({"allowed": [msgspec.to_builtins(one) for one in made]})
