"""Builds a service from configuration, keys, models and a store. Only this module depends on all of them."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.config import DEFAULT as UNSAID
from cuebook.config import Config, Provider, config_folder
from cuebook.dialects import registry
from cuebook.dialects.dialect import Dialect, Document, Named
from cuebook.gate.sandbox import clear
from cuebook.kernel.capabilities import BROWSER, LOCAL_MODEL, SANDBOX, Offer
from cuebook.kernel.effects import AGENTS, Effect
from cuebook.kernel.engine.engine import Programs
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.ports import Performer, Store
from cuebook.kernel.run import HOST, Settings
from cuebook.performers.models import DEFAULT, ModelPerformer, Prices, ProviderConfig, Providers
from cuebook.performers.models.model import Model
from cuebook.performers.models.providers import BUILT_IN
from cuebook.service.service import Service
from cuebook.wiring.keys import Keys
from cuebook.wiring.performers import PerformerFactory
from cuebook.wiring.stores import has_store, open_store, signing_key

if TYPE_CHECKING:
    from cuebook.dialects.playbook import Playbook
    from cuebook.gate.secrets import Vault
    from cuebook.performers.models.model_lists import Offers
    from cuebook.performers.tools.toolbox import Tool
    from cuebook.service.access.identity import Identities
    from cuebook.service.access.sign_ins import SignIns
    from cuebook.service.contract.runtime import Runtime
    from cuebook.service.dispatch.temporal.dispatcher import TemporalDispatcher
    from cuebook.service.dispatch.temporal.worker import TemporalWorker
    from cuebook.service.insight.metrics import Metrics
    from cuebook.service.nodes.connections import NodeConnections
    from cuebook.service.notifications.notifier import Notifier
    from cuebook.service.playbooks.library import Stored
    from cuebook.service.worker import Released, Worker

EMBEDDED_MAX_TOKENS = 512
"""A low limit, because the embedded model is slow and does not always stop on its own."""


class Wiring:
    """Everything that a surface needs, from one configuration. Creates nothing before `service`."""

    def __init__(
        self,
        config: Config,
        keys: Keys | None = None,
        *,
        models: Mapping[str, Model] | None = None,
        tools: Iterable[Tool] = (),
        store: Store | None = None,
    ) -> None:
        """`models`, `tools` and `store` extend or replace the configuration."""
        self.config = config
        self.keys = keys or Keys()
        self._store = store
        tools = tuple(tools)
        self._extended = bool(models or tools)
        """Whether only this process has some of the models and tools."""
        custom = {name: _merged(provider) for name, provider in config.providers.items()}
        self.provider_configs: dict[str, ProviderConfig] = {**BUILT_IN, **custom}
        shared = {name for name, provider in config.providers.items() if provider.shared}
        limit = config.get("limits.reply")
        own = config.get("model") or ""
        self.factory = PerformerFactory(config, self.keys, tools=tools)
        self.providers = Providers(
            self.keys,
            custom,
            models=models,
            shared=shared,
            reply_limit=limit,
            own=own,
            agents=lambda name: self.factory.catalogue.check(name),
            source=self.keys.source,
            renew=self.keys.renew,
        )

    @cached_property
    def offers(self) -> Offers:
        """The models that providers list."""
        from cuebook.performers.models.model_lists import Offers

        return Offers(self.providers)

    @property
    def model(self) -> str:
        """The default model, as `provider/model` if its provider is known."""
        name = self.config.get("model") or DEFAULT
        try:
            return self.providers.full_name(name)
        except BadInput:
            return name

    def settings(
        self,
        breakpoints: tuple[str, ...] = (),
        *,
        folder: Path | None = None,
        document: Document | None = None,
        model: str = "",
    ) -> Settings:
        """The settings of a new run of a playbook from this folder. Raises `BadInput` if its model is unavailable.

        `model` replaces the configured model. A document that needs no model runs without one. If a document keeps its
        questions open, they do not expire unless `pause_expiry` is configured.
        """
        wins = bool(model) or self.model_wins
        needed = document is None or (document.asks_model if wins else document.needs_model)
        model = model or self.model
        stays_open = document is not None and document.stays_open and self.config.origin("pause_expiry") == UNSAID
        if needed:
            model = self.providers.full_name(model)
            if document is not None and model.startswith(AGENTS) and not document.admits_agents:
                raise BadInput(
                    f"{model} is a coding agent, and this playbook's steps must be answered by a model.",
                    fix="Choose a model; graphs and Markdown playbooks can be executed by coding agents.",
                )
            self.providers.check(model)
        elif document is not None and document.starts_playbooks:
            needed = True  # a child may ask it; if it is unavailable, the child says so
        return Settings(
            model=model if needed else "",
            max_tokens=self.max_tokens_of(model),
            temperature=self.config.get("temperature"),
            effort=self.config.get("effort"),
            breakpoints=breakpoints,
            budget=self.config.budget,
            pause_expiry=None if stays_open else self.config.get("pause_expiry"),
            workspace=self.factory.workspace.path,
            workspace_label=self.factory.workspace.label,
            folder="" if folder is None else os.path.realpath(folder),
            model_wins=wins,
        )

    @property
    def model_wins(self) -> bool:
        """Whether the model was chosen for this command or call, so that no playbook can choose another."""
        return self.config.origin("model").place == "--model"

    def check_models(self, dialect: Dialect, document: Any, settings: Settings) -> None:
        """Raises `BadInput` if one of the playbook's models is unavailable, before anything costs money."""
        if settings.model_wins:
            return
        for flaw in self.flaws_of(dialect.models(document)):
            raise flaw

    def flaws_of(self, models: Iterable[Named]) -> Iterator[BadInput]:
        """Yields the reasons why models are unavailable."""
        for one in models:
            if one.name == HOST:
                continue
            try:
                self.providers.chosen(one.name, self.model)
                self.providers.check(one.name, self.model)
            except BadInput as error:
                yield BadInput(f"{one.at}: {error.message}", fix=error.fix)

    @property
    def max_tokens(self) -> int | None:
        return self.max_tokens_of(self.model)

    def max_tokens_of(self, model: str) -> int | None:
        limit: int | None = self.config.get("max_tokens")
        return EMBEDDED_MAX_TOKENS if limit is None and _is_embedded(model) else limit

    def performer(self) -> ModelPerformer:
        prices = self.config.get("prices")
        if prices is not None and not prices.is_file():
            where = self.config.origin("prices")
            raise BadInput(f"{where}: there is no file {prices}.", fix="Correct or remove 'prices'.")
        listed = Prices(prices)
        if prices is not None:
            listed.facts("", "")  # reads the file, so a mistake in it is reported before a run starts
        return ModelPerformer(self.providers, prices=listed)

    @cached_property
    def preview_performers(self) -> Mapping[type[Effect], Performer]:
        """Performers that only describe what a run would do. They receive no approvals, so they start no tool server."""
        return self.factory.performers(self.performer())

    def has_store(self) -> bool:
        return has_store(self.config)

    def open_store(self) -> Store:
        """Opens the configured store, which is created if it is missing."""
        return open_store(self.config, self.factory.vault.resolve)

    def service(self, store: Store | None = None, programs: Programs | None = None) -> Service:
        """Creates the service for the given store, or for the configured store, which is created if it is missing."""
        performer = self.performer()
        given = store or self._store
        performers = self.factory.performers(performer, lambda: kept)
        signing = signing_key(self.config, self.factory.vault.resolve) if given is None else {}
        dispatcher = None if given is not None else self.dispatcher
        kept = given or self.open_store()
        for config in self.provider_configs.values():
            if config.key:
                self.keys.in_environment(config.key)  # the redactor must be able to mask it before anything is stored
        return Service(
            kept,
            performers,
            gate=self.factory.gate(performers, kept),
            redactor=self.factory.redactor,
            today=self.factory.policy.today,
            learn=self.factory.learn,
            watches=registry.WATCHES,
            on_close=performers.close,
            clock=kept.now,
            **signing,
            ceilings=self.factory.ceilings(),
            rate=self.config.get("rate_limit"),
            time_zone=self.config.get("usage.time_zone"),
            tenant_runs=self.config.get("limits.tenant_runs"),
            host_lease=self.config.get("host.lease"),
            visible=self.config.get("access.runs"),
            worktree_problem=lambda: self.factory.workspace.problem or self.factory.worktrees.problem(),
            programs=programs,
            find=self.find_playbook,
            clear=clear,
            leave=performers.leave,
            remove_private_files=self.factory.remove_private_files,
            offer=self.offer(own_programs=programs is not None),
            machine=platform.node(),
            dispatcher=dispatcher,
            **self._notices(),
        )

    def _notices(self) -> dict[str, Any]:
        """Whether runs put notices, as arguments for the service: only if there is a channel for messages."""
        settings = self.config.notifications
        if settings is None or not settings.channels:
            return {}
        from cuebook.kernel.notices import marks_of

        return {"notifies": True, "outboxes": [marks_of(settings.run_marks)] if settings.run_marks else []}

    def notifier(self, service: Service) -> Notifier:
        """Sends the messages of a service, and answers questions about them."""
        from cuebook.wiring.notifications import notifier_of

        return notifier_of(self, service)

    def identities(self, service: Service, sign_ins: SignIns) -> Identities | None:
        """The people whom the configured identity provider signs in; None if there is none."""
        if self.config.get("oidc.issuer") is None:
            return None
        from cuebook.wiring.identity import identities_of

        return identities_of(self.config, service, self.factory.vault.revealed, sign_ins)

    async def provider_problem(self) -> str:
        """Why nobody could sign in with the configured identity provider; empty if it answers as it should."""
        from cuebook.wiring.identity import provider_problem

        return await provider_problem(self.config, self.factory.vault.revealed)

    @cached_property
    def dispatcher(self) -> TemporalDispatcher | None:
        """The configured dispatcher, which connects on demand; None if each process drives its own runs."""
        if self._extended or self.config.get("temporal.address") is None:
            return None
        from cuebook.wiring.dispatch import dispatcher_of

        return dispatcher_of(self.config, self.factory.vault.resolve)

    async def connect(self) -> None:
        """Connects the dispatcher, if there is one. Called before anything is created, because it may be unreachable."""
        if self.dispatcher is not None:
            await self.dispatcher.connect()

    def temporal_worker(self, service: Service, released: Released | None = None) -> TemporalWorker:
        """The worker that drives the runs that Temporal delivers to this process."""
        from cuebook.service.dispatch.temporal.dispatcher import TemporalDispatcher
        from cuebook.service.dispatch.temporal.worker import TemporalWorker

        dispatcher = service.dispatcher
        assert isinstance(dispatcher, TemporalDispatcher)
        at_once, drain = self.config.get("worker.at_once"), self.config.get("worker.drain")
        from cuebook.wiring.triggers import administration_of

        fire = administration_of(self, service).schedules.fire_at
        return TemporalWorker(service, dispatcher, at_once=at_once, drain=drain, released=released, fire=fire)

    def worker(self, service: Service) -> Worker:
        """The worker for a surface: it drives runs in this process, or follows the workers that do."""
        from cuebook.service.dispatch.remote import RemoteWorker
        from cuebook.service.worker import Worker

        kind = Worker if service.dispatcher is None else RemoteWorker
        return kind(service, self.factory.workspace.path, at_once=self.config.get("worker.at_once"))

    def offer(self, *, own_programs: bool = False) -> Offer:
        """What this process can do for runs: its workspace, its capabilities, and the dialects it can interpret."""

        def interpreter(dialect: str) -> int:
            if own_programs and not registry.is_known(dialect):
                return sys.maxsize
            found = registry.find(dialect)
            return found.interpreter if found is not None else 0

        return Offer(self.factory.workspace.names, self._capabilities, interpreter, self.factory.connected)

    def node_connections(self, service: Service) -> NodeConnections:
        """Lets nodes connect to this process."""
        return service.node_connections(self.factory.hub)

    @property
    def browser_problem(self) -> CuebookError | None:
        """Why web steps cannot be performed here, if so."""
        from cuebook.performers.browser.chromium import problem

        return problem(self.factory.sandbox, self.factory.environ)

    def _capabilities(self) -> Iterator[str]:
        if not self.factory.sandbox.problem:
            yield SANDBOX
        if self.browser_problem is None:
            yield BROWSER
        if self.providers.is_usable("local"):
            yield LOCAL_MODEL

    def logging(self) -> AbstractContextManager[None]:
        """Writes the logs of a server or worker until the end of the block."""
        from cuebook.wiring.insight import logging_of

        return logging_of(self)

    def insight(self, service: Service, *, serves: bool = False) -> AbstractAsyncContextManager[Metrics | None]:
        """What a server or worker tells its operators, until the end of the block. Yields the metrics, if they are collected:
        always if the process `serves` them itself, otherwise if they have an address.
        """
        from cuebook.wiring.insight import insight

        return insight(self, service, serves=serves)

    def traced(self, service: Service) -> AbstractAsyncContextManager[None]:
        """Sends traces of this process's runs to a collector, if there is one, until the end of the block."""
        if self.config.get("otel.endpoint") is None:
            return nullcontext()
        from cuebook.wiring.insight import traced

        return traced(self, service)

    @cached_property
    def evidence_vault(self) -> Vault:
        """Where the key that signs exports is found."""
        from cuebook.wiring.evidence import vault_of

        return vault_of(self.config)

    @cached_property
    def metrics_token(self) -> str:
        """A token that is good for nothing but reading the metrics; empty if there is none."""
        handle = self.config.get("metrics.token")
        return self.factory.vault.resolve(handle) if handle else ""

    def background(self, service: Service) -> AbstractAsyncContextManager[None]:
        """What a server or worker does in addition to driving runs, until the end of the block."""
        from cuebook.wiring.background import background

        return background(self, service)

    def delivering(self, service: Service) -> AbstractAsyncContextManager[None]:
        """Delivers messages until the end of the block."""
        from cuebook.wiring.background import delivering

        return delivering(self, service)

    def runtime(self, service: Service, stored: Stored | None = None, worker: Worker | None = None) -> Runtime:
        """The runtime contract for this service, with the user's stored playbooks or the given playbooks."""
        from cuebook.service.contract.runtime import Runtime

        return Runtime(
            service,
            worker or self.worker(service),
            lambda document, folder: self.settings(folder=folder, document=document),
            stored or self.stored(),
            where=" in this process",
        )

    def stored(self) -> Stored:
        """The user's stored playbooks, then the project's."""
        own = config_folder(self.factory.environ) / "playbooks"
        others: Path | None = self.config.get("playbooks")
        from cuebook.service.playbooks.library import Stored

        return Stored([own] if others is None else [own, others])

    def find_playbook(self, name: str, folder: str) -> Playbook:
        """The playbook that another one in this folder starts as a child."""
        from cuebook.service.playbooks.child_files import find_playbook

        return find_playbook(name, folder, self.stored())

    def key_name(self, provider: str) -> str:
        """The name of a provider's key."""
        config = self.provider_configs.get(provider)
        if config is None:
            known = ", ".join(sorted(name for name, one in self.provider_configs.items() if one.key))
            raise BadInput(f"There is no provider '{provider}'.", fix=f"Providers with keys: {known}.")
        if config.key is None:
            raise BadInput(f"The provider '{provider}' needs no key.", fix="Set key_env for the provider if it does.")
        return config.key


def _is_embedded(model: str) -> bool:
    return model.partition("/")[0] == "local"


def _merged(provider: Provider) -> ProviderConfig:
    """Merges the configured provider with the built-in provider of the same name."""
    built_in = BUILT_IN.get(provider.name)
    if built_in is None:
        if provider.base_url is None:
            raise BadInput(
                f"{provider.origin}: provider '{provider.name}' has no base_url.",
                fix='Add one, for example base_url = "http://127.0.0.1:8000/v1".',
            )
        built_in = ProviderConfig(base_url=provider.base_url)
    changes = {
        "base_url": provider.base_url,
        "key": provider.key_env,
        "protocol": provider.protocol,
        "at_once": provider.at_once,
        "requests_per_minute": provider.requests_per_minute,
        "takes": provider.takes,
    }
    return msgspec.structs.replace(built_in, **{name: value for name, value in changes.items() if value is not None})
