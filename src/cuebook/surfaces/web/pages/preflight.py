"""The content of a playbook's pages before a run: an overview of its explanation, the cost with each model, and the form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.playbooks.library import Listed
from cuebook.service.preview.bound import Bound, Terms, TypicalUse, bound_of, typical_use
from cuebook.service.preview.explanation import Explanation, explain
from cuebook.service.service import Principal
from cuebook.surfaces.display import money
from cuebook.surfaces.explanation import NO_PRICE, Overview, cost_words, overview
from cuebook.surfaces.web.api import bodies
from cuebook.surfaces.web.site import Site
from cuebook.wiring.preview import preview_setup


class Costs(NamedTuple):
    """The estimate of a run."""

    words: str
    """The cost with the preselected model."""
    basis: str
    by_model: dict[str, str]


class Pause(NamedTuple):
    """A step after which a run can pause."""

    label: str
    title: str
    """Empty if only its label says which step it is."""
    depth: int
    """How many steps enclose it."""


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


def pauses_of(playbook: Playbook) -> list[Pause]:
    """All steps and sub-steps, without duplicate labels."""
    outlined = {one.label: one for one in playbook.outline}
    found: dict[str, Pause] = {}
    for step in playbook.document.every_step:
        one = outlined.get(step.label)
        outer = found.get(one.within) if one is not None else None
        title = step.title if one is None else one.title
        found[step.label] = Pause(step.label, title, 0 if outer is None else outer.depth + 1)
    return list(found.values())


def start_of(playbook: str, sent: Sequence[tuple[str, str]]) -> bodies.Start:
    """What the fields of a form ask for. Empty fields count as left out, as they do in a browser with JavaScript.

    A checkbox follows a hidden field of its name, which says what it means if it is not checked.
    """
    form = {name: value for name, value in sent if value}
    limits = _named(form, "budget_")
    return bodies.Start(
        playbook=playbook,
        model=form.get("model", ""),
        inputs=_named(form, "var_"),
        options={**_named(form, "option_"), **dict.fromkeys(_named(form, "switch_"), True)},
        breakpoints=[value for name, value in sent if name == "breakpoints"],
        budget=bodies.amounts(limits) if limits else None,
    )


def _named(form: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in form.items() if name.startswith(prefix)}
