"""Comparisons over REST: those that were started, and of runs that are chosen."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from cuebook.kernel.errors import BadInput
from cuebook.service.service import Principal
from cuebook.surfaces.web.api.objects import answer
from cuebook.surfaces.web.site import Site
from cuebook.testing.comparison.objects import comparison_object, table_object
from cuebook.testing.comparison.table import Table, table_of, table_of_runs

_MOST = 50
"""The most runs that can be chosen."""


async def comparisons(request: Request, site: Site, who: Principal) -> Response:
    """The comparisons that were started, or the comparison of the runs that are chosen."""
    runs = chosen_runs(request)
    if runs:
        return answer(table_object(await table_for(site, runs, who)))
    return answer({"comparisons": [comparison_object(one) for one in await site.service.comparisons.listed(who)]})


async def comparison(request: Request, site: Site, who: Principal) -> Response:
    return answer(table_object(await table_for(site, request.path_params["id"], who)))


def chosen_runs(request: Request) -> list[str]:
    """The runs in the query, as `runs=a,b` or as several `runs`."""
    given = " ".join(request.query_params.getlist("runs")).replace(",", " ").split()
    if len(given) > _MOST:
        raise BadInput(f"At most {_MOST} runs can be compared on a page.", fix="Choose fewer.")
    return given


async def table_for(site: Site, which: str | Sequence[str], who: Principal) -> Table:
    """The table of the comparison with this id, or of these runs."""
    if not isinstance(which, str):
        return await table_of_runs(site.service, which, who)
    return await table_of(site.service, await site.service.comparisons.get(which, who), who)
