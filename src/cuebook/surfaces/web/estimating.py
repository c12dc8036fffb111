"""About what a run will cost: as runs of the same playbook did, otherwise by the length of its text. Never a promise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from cuebook.kernel.run import RunRow
from cuebook.performers.models import Prices
from cuebook.performers.models.port import Tokens
from cuebook.performers.models.tokens import estimate_text
from cuebook.surfaces.library import Listed
from cuebook.surfaces.web.rendering import money
from cuebook.surfaces.web.site import Site
from cuebook.surfaces.web.views import about_of
from cuebook.surfaces.wording import counted

_RUNS = 10
"""Past runs that are looked at."""
_REPLY = 400
"""Tokens of a reply where nothing is known."""


class Use(msgspec.Struct, frozen=True):
    """The tokens that a run is likely to use, and how that is known."""

    input: int
    output: int
    basis: str


class Estimate(msgspec.Struct, frozen=True):
    words: str
    basis: str = ""


def use_of(one: Listed, rows: Sequence[RunRow]) -> Use:
    """`rows` are runs of the playbook, newest first."""
    done = [row.totals for row in rows if row.status == "completed" and row.totals.tokens and not row.parent][:_RUNS]
    if done:
        count = len(done)
        basis = f"as the last {count} completed runs used" if count > 1 else "as its last completed run used"
        return Use(sum(one.input for one in done) // count, sum(one.output for one in done) // count, basis)
    calls = about_of(one.dialect, one.document).calls
    text = estimate_text(one.text).likely
    # Each call has its share of the text, and sees what the calls before it said.
    said = sum(_REPLY * number for number in range(calls))
    return Use(
        (text if calls else 0) + said, calls * _REPLY, f"a guess from its text and {counted(calls, 'model call')}"
    )


def estimates(site: Site, use: Use, models: Iterable[str]) -> dict[str, str]:
    """What a run would cost with each of some models, in words."""
    prices = Prices(site.wiring.config.get("prices"))
    return {name: _words(site, use, name, prices) for name in models}


def estimate(use: Use, words: str) -> Estimate:
    if not use.input and not use.output:
        return Estimate("no model is asked")
    return Estimate(words, f"{use.input:,} tokens in, {use.output:,} out: {use.basis}")


def _words(site: Site, use: Use, name: str, prices: Prices) -> str:
    provider, _, model = name.partition("/")
    if provider == "local":
        return "free: it runs on this machine"
    config = site.wiring.provider_configs.get(provider)
    facts = prices.facts(config.prices if config is not None and config.prices else provider, model)
    if facts.price is None:
        return "unknown: no price is listed for this model"
    return f"about {money(facts.price.cost(Tokens(input=use.input, output=use.output)))}"
