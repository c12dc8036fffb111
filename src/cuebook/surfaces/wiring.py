"""Joins configuration, keys, models and the store into a service. The one place that knows all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cuebook.config import DEFAULT as UNSAID
from cuebook.config import Config, Provider, config_folder
from cuebook.dialects import registry
from cuebook.dialects.registry import Dialect, Named, NamingModels
from cuebook.gate.sandbox import clear
from cuebook.kernel.engine import Programs
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings
from cuebook.performers.models import DEFAULT, ModelPerformer, Prices, ProviderConfig, Providers
from cuebook.performers.models.offers import Offers
from cuebook.performers.models.port import Model
from cuebook.performers.models.providers import BUILT_IN
from cuebook.performers.tools import Tool
from cuebook.runtime import Accepted, Runtime
from cuebook.service import Service
from cuebook.stored import Stored
from cuebook.stores.sqlite import SqliteStore
from cuebook.surfaces.keys import Keys
from cuebook.surfaces.reaching import Reaching

EMBEDDED_MAX_TOKENS = 512
"""The embedded model does not always know when to stop, and takes its time."""


class Wiring:
    """What a surface needs, made from one configuration. Nothing is created before `service`."""

    def __init__(
        self,
        config: Config,
        keys: Keys | None = None,
        *,
        models: Mapping[str, Model] | None = None,
        tools: Iterable[Tool] = (),
        store: Store | None = None,
    ) -> None:
        """`models`, `tools` and `store` are used besides, or instead of, what is configured."""
        self.config = config
        self.keys = keys or Keys()
        self._store = store
        custom = {name: _merged(provider) for name, provider in config.providers.items()}
        self.provider_configs: dict[str, ProviderConfig] = {**BUILT_IN, **custom}
        shared = {name for name, provider in config.providers.items() if provider.shared}
        limit = config.get("limits.reply")
        own = config.get("model") or ""
        self.providers = Providers(self.keys, custom, models=models, shared=shared, reply_limit=limit, own=own)
        self.offers = Offers(self.providers)
        self.reaching = Reaching(config, self.keys, tools=tools)

    @property
    def model(self) -> str:
        """The model of runs that name none, as `provider/model` where its provider can be told."""
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
        document: Any = None,
        model: str = "",
    ) -> Settings:
        """What a run of a playbook from this folder is started with. `BadInput` for a model that could not be asked.

        A document that says that it needs none is run without one, and one whose questions stay open lets them, unless
        somebody has said how long; `model` is used instead of the configured one.
        """
        wins = bool(model) or self.model_wins
        needed = getattr(document, "asks_model" if wins else "needs_model", True)
        model = model or self.model
        stays_open = getattr(document, "stays_open", False) and self.config.origin("pause_expiry") == UNSAID
        if needed:
            model = self.providers.full_name(model)
            self.providers.check(model)
        return Settings(
            model=model if needed else "",
            max_tokens=self._max_tokens(model),
            temperature=self.config.get("temperature"),
            breakpoints=breakpoints,
            budget=self.config.budget,
            pause_expiry=None if stays_open else self.config.get("pause_expiry"),
            workspace=self.reaching.workspace,
            folder="" if folder is None else os.path.realpath(folder),
            model_wins=wins,
        )

    @property
    def model_wins(self) -> bool:
        """Whether the model was named for this command, or this call: then no playbook chooses another."""
        return self.config.origin("model").place == "--model"

    def asked(self, named: str | None) -> str:
        """The model that is asked where a playbook names this one, or none."""
        return self.model if not named or self.model_wins else named

    def check_models(self, dialect: Dialect, document: Any, settings: Settings) -> None:
        """`BadInput` for a model that a playbook names and that could not be asked, before anything is paid for."""
        if settings.model_wins or not isinstance(dialect, NamingModels):
            return
        for flaw in self.flaws_of(dialect.models(document)):
            raise flaw

    def flaws_of(self, models: Iterable[Named]) -> Iterator[BadInput]:
        """Why models cannot be asked."""
        for one in models:
            try:
                self.providers.chosen(one.name, self.model)
                self.providers.check(one.name, self.model)
            except BadInput as error:
                yield BadInput(f"{one.at}: {error.message}", fix=error.fix)

    @property
    def max_tokens(self) -> int | None:
        return self._max_tokens(self.model)

    def _max_tokens(self, model: str) -> int | None:
        limit: int | None = self.config.get("max_tokens")
        return EMBEDDED_MAX_TOKENS if limit is None and _is_embedded(model) else limit

    def performer(self) -> ModelPerformer:
        prices = self.config.get("prices")
        if prices is not None and not prices.is_file():
            where = self.config.origin("prices")
            raise BadInput(f"{where}: there is no file {prices}.", fix="Correct or remove 'prices'.")
        listed = Prices(prices)
        if prices is not None:
            listed.facts("", "")  # reads the file, so that a mistake in it is told before a run begins
        return ModelPerformer(self.providers, prices=listed)

    def has_store(self) -> bool:
        return bool(self.config.get("store").exists())

    def service(self, store: Store | None = None, programs: Programs | None = None) -> Service:
        """The service over the configured store, which is created if it is not there, or over a given one."""
        path: Path = self.config.get("store")
        performer = self.performer()
        given = store or self._store
        if given is None and path.is_dir():
            raise BadInput(f"The store {path} is a folder.", fix="Give the path of a file.")
        performers = self.reaching.performers(performer)
        key_file = path.with_name(f"{path.name}.key") if given is None else None
        kept = given or SqliteStore(path, synchronous=self.config.get("synchronous"))
        for config in self.provider_configs.values():
            if config.key:
                self.keys.in_environment(config.key)  # known to the redactor before anything is written
        return Service(
            kept,
            performers,
            gate=self.reaching.gate(performers, kept),
            redactor=self.reaching.redactor,
            today=self.reaching.today,
            learn=self.reaching.learn,
            watches=registry.WATCHES,
            on_close=self.reaching.tools.close,
            key_file=key_file,
            ceilings=self.reaching.ceilings(),
            rate=self.config.get("rate_limit"),
            programs=programs,
            clear=clear,
        )

    def runtime(self, service: Service, stored: Stored | None = None, accepted: Accepted | None = None) -> Runtime:
        """What answers requests over this service, with the user's stored playbooks or others."""
        return Runtime(
            service,
            lambda document, folder: self.settings(folder=folder, document=document),
            stored or self.stored(),
            where=" in this process",
            accepted=accepted,
        )

    def stored(self) -> Stored:
        """The user's stored playbooks, then the project's."""
        own = config_folder(self.reaching.environ) / "playbooks"
        others: Path | None = self.config.get("playbooks")
        return Stored([own] if others is None else [own, others])

    def key_name(self, provider: str) -> str:
        """The name under which a provider's key is found."""
        config = self.provider_configs.get(provider)
        if config is None:
            known = ", ".join(sorted(name for name, one in self.provider_configs.items() if one.key))
            raise BadInput(f"There is no provider '{provider}'.", fix=f"Those with keys are: {known}.")
        if config.key is None:
            raise BadInput(f"The provider '{provider}' needs no key.", fix="Give it a key_env if it does.")
        return config.key


def _is_embedded(model: str) -> bool:
    return model.partition("/")[0] == "local"


def _merged(provider: Provider) -> ProviderConfig:
    """The provider as configured, over what is built in under its name."""
    built_in = BUILT_IN.get(provider.name)
    if built_in is None:
        if provider.base_url is None:
            raise BadInput(
                f"{provider.origin}: provider '{provider.name}' has no base_url.",
                fix='Add one, as in base_url = "http://127.0.0.1:8000/v1".',
            )
        built_in = ProviderConfig(base_url=provider.base_url)
    changes = {"base_url": provider.base_url, "key": provider.key_env, "protocol": provider.protocol}
    return msgspec.structs.replace(built_in, **{name: value for name, value in changes.items() if value is not None})
