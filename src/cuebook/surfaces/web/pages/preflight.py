"""The content of a playbook's pages before a run: an overview of its explanation, and the cost with each model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cuebook.kernel.errors import CuebookError
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.playbooks.library import Listed
from cuebook.service.preview.bound import Bound, Terms, TypicalUse, bound_of, typical_use
from cuebook.service.preview.explanation import Explanation, explain
from cuebook.service.service import Principal
from cuebook.surfaces.display import money
from cuebook.surfaces.explanation import NO_PRICE, Overview, cost_words, overview
from cuebook.surfaces.web.site import Site
from cuebook.wiring.preview import preview_setup


class Costs(NamedTuple):
    """The estimate of a run."""

    words: str
    """The cost with the preselected model."""
    basis: str
    by_model: dict[str, str]


class BeforeRun(NamedTuple):
    overview: Overview
    explained: Explanation | None
    """None if the preview failed; the overview says why."""


async def before_run(site: Site, one: Listed, who: Principal, model: str = "") -> BeforeRun:
    """Explains a run with this model, or with the models that the playbook names. Nothing is run."""
    setup = await asyncio.to_thread(preview_setup, site.wiring, model)
    needed = {option.name: True for option in one.needed_options}
    settings = Settings(folder=one.playbook.folder, options=needed)
    try:
        explained = await explain(site.service, one.playbook, {}, settings, setup, who, every_act=True)
    except (CuebookError, EffectFailed) as error:
        return BeforeRun(Overview(problems=(str(error),)), None)
    return BeforeRun(overview(explained), explained)


def costs_of(
    explained: Explanation | None, rows: Iterable[RunRow], models: Sequence[str], terms_of: Callable[[str], Terms]
) -> Costs:
    """The cost of a run with each model: from earlier runs, or else the most that a run may use."""
    if explained is None:
        return Costs("unknown", "", dict.fromkeys(models, "unknown"))
    if explained.bound.calls == 0:
        return Costs("no model is called", "", dict.fromkeys(models, "no model is called"))
    typical, bounds, by_model = typical_use(rows), {explained.terms: explained.bound}, {}
    for name in models:
        terms = terms_of(name)
        if typical is None and terms not in bounds:
            bounds[terms] = bound_of(explained.preview, terms)
        by_model[name] = _cost(terms, typical, bounds.get(terms, explained.bound))
    return Costs(_cost(explained.terms, typical, explained.bound), _basis(typical), by_model)


def _cost(terms: Terms, typical: TypicalUse | None, bound: Bound) -> str:
    if terms.free:
        return "free: it runs on this machine"
    if typical is None:
        return cost_words(bound, terms) if bound.cost is None else f"at most {cost_words(bound, terms)}"
    price = terms.facts.price
    return NO_PRICE if price is None else f"about {money(price.cost(typical.tokens))}"


def _basis(typical: TypicalUse | None) -> str:
    if typical is None:
        return "the most that a run may use"
    runs = (
        f"the average of the last {typical.runs} completed runs" if typical.runs > 1 else "as in its last completed run"
    )
    return f"{typical.tokens.input:,} tokens in, {typical.tokens.output:,} out: {runs}"
