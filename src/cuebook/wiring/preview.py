"""Creates the setup for previews from one configuration."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

import msgspec

from cuebook.config import config_folder
from cuebook.formats.addresses import parse_place
from cuebook.gate.policy import Policy, load_policy
from cuebook.kernel.effects import AGENTS
from cuebook.kernel.errors import BadInput
from cuebook.kernel.model_names import chain, chained
from cuebook.performers.models import MAX_TOKENS, Facts, Prices
from cuebook.performers.models.providers import EMBEDDED_WINDOW
from cuebook.service.preview.bound import Terms
from cuebook.service.preview.explanation import Setup
from cuebook.service.preview.touches import AgentAccess, Asked, Reach
from cuebook.wiring.wiring import Wiring


def preview_setup(wiring: Wiring, model: str = "") -> Setup:
    """The setup for runs with this model, which replaces a playbook's own models, or with the configured model."""
    wins, model, problem = bool(model) or wiring.model_wins, model or wiring.model, ""
    try:
        wiring.providers.check(model)
    except BadInput as error:
        problem = str(error)
    return Setup(
        reach=Reach(
            wiring.preview_performers,
            wiring.config.reach.servers,
            lambda named: _asked(wiring, model if wins else named or model, model),
        ),
        strictest=strictest_policy(wiring),
        model=model,
        problem=problem,
        terms=terms_by_model(wiring)(model),
        budget=wiring.config.budget,
        workspace=wiring.factory.workspace.path,
        wins=wins,
        flaws=lambda models: () if wins else map(str, wiring.flaws_of(models)),
        terms_with=lambda models: terms_by_model(wiring)(
            chained([model, *(() if wins else (_asked(wiring, one.name, model).name for one in models))])
        ),
    )


def strictest_policy(wiring: Wiring) -> Policy:
    """The current policy without any trust, so at least as strict as the policy in force. Needs no store."""
    return load_policy(config_folder(os.environ), wiring.config.folder, lambda path, digest: False)


def terms_by_model(wiring: Wiring) -> Callable[[str], Terms]:
    """Returns a function that looks up a model's limits and, if listed, its price. Needs no key."""
    prices, tool_output = Prices(wiring.config.get("prices")), wiring.config.get("limits.output")

    def terms(name: str) -> Terms:
        # A model that costs something represents the chain, even if a free one comes before it.
        first, *rest = sorted(map(terms_of, chain(name)), key=lambda one: one.free)
        return msgspec.structs.replace(first, otherwise=tuple(rest))

    def terms_of(name: str) -> Terms:
        limit = wiring.max_tokens_of(name) or MAX_TOKENS
        provider, _, model = name.partition("/")
        if provider == "local":
            return Terms(Facts(window=EMBEDDED_WINDOW), limit, tool_output, free=True)
        config = wiring.provider_configs.get(provider)
        facts = prices.facts(config.prices if config is not None and config.prices else provider, model)
        return Terms(facts, limit, tool_output)

    return terms


def _asked(wiring: Wiring, model: str, own: str) -> Asked:
    """The full name and the URL of a model. `own` is the run's model."""
    with suppress(BadInput):  # reported as the model's problem
        model = wiring.providers.full_name(model, own)
    first, *rest = (_one_asked(wiring, one) for one in chain(model))
    return msgspec.structs.replace(first, otherwise=tuple(rest))


def _one_asked(wiring: Wiring, model: str) -> Asked:
    if model.startswith(AGENTS):
        return Asked(model, agent=_access(wiring, model))
    config = wiring.provider_configs.get(model.partition("/")[0])
    return Asked(model, "" if config is None else config.base_url)


def _access(wiring: Wiring, model: str) -> AgentAccess:
    try:
        agent = wiring.factory.catalogue.agent(model)
    except BadInput:  # reported as the model's problem
        return AgentAccess()
    hosts = tuple(parse_place(host).url.place for host in agent.hosts)
    return AgentAccess(hosts, agent.secret_env, agent.secret_files, agent.readable, agent.optional)
