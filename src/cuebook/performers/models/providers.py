"""The available providers, and the model behind a `provider/model` name.

Keys and configuration are read elsewhere and passed in as plain values. No HTTP library is imported until a model is
called.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from cuebook.formats.words import with_extra
from cuebook.kernel.effects import AGENTS
from cuebook.kernel.errors import BadInput
from cuebook.kernel.model_names import chain, chained
from cuebook.kernel.run import HOST
from cuebook.performers.models.model import REPLY_LIMIT, Chunk, Model, ModelError, Request
from cuebook.performers.models.retries import DEFAULT_TIMEOUTS, Timeouts

Keys = Callable[[str], str | None]
"""Returns the key for a name such as `OPENAI_API_KEY`, or None."""

Protocol = Literal["openai", "anthropic"]

EMBEDDED = "smollm2-135m"
"""The name of the embedded model."""
EMBEDDED_WINDOW = 8_192
"""The size of its context, in tokens."""

DEFAULT = f"local/{EMBEDDED}"
"""The model for runs that do not specify one."""


class UnknownModel(BadInput):
    """There is no such model or provider."""

    code = "unknown_model"


class MissingKey(BadInput):
    """The provider needs a key that is not set."""

    code = "missing_key"

    def __init__(self, message: str, *, fix: str = "", provider: str = "") -> None:
        super().__init__(message, fix=fix)
        self.provider = provider


class MissingPackage(BadInput):
    """A model needs a Python package that is not installed."""

    code = "model_not_installed"


class ProviderConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider that the user adds, or settings that replace those of a built-in provider."""

    base_url: str
    key: str | None = None
    """The name under which the key is looked up; None if the server needs no key."""
    protocol: Protocol = "openai"
    headers: dict[str, str] = {}
    max_completion_tokens: bool = False
    """Send the limit under OpenAI's newer name."""
    prices: str | None = None
    """The provider under which prices are looked up, if it has a different name."""
    reports_cost: bool = False
    """Request the cost with the usage, as OpenRouter reports it."""
    at_once: int | None = None
    """How many calls may be under way at the same time, in all processes on the store."""
    requests_per_minute: int | None = None
    """How many calls may begin within a minute, in all processes on the store."""
    takes: tuple[str, ...] | None = None
    """What its models take in addition to text: `images`, `pdf`. None means that their names decide."""


BUILT_IN: dict[str, ProviderConfig] = {
    "openai": ProviderConfig(
        base_url="https://api.openai.com/v1",
        key="OPENAI_API_KEY",
        max_completion_tokens=True,
    ),
    "anthropic": ProviderConfig(
        base_url="https://api.anthropic.com",
        key="ANTHROPIC_API_KEY",
        protocol="anthropic",
    ),
    "openrouter": ProviderConfig(
        base_url="https://openrouter.ai/api/v1",
        key="OPENROUTER_API_KEY",
        reports_cost=True,
    ),
    "ollama": ProviderConfig(base_url="http://127.0.0.1:11434/v1"),
}

_NAME = re.compile(r"[a-z][a-z0-9_-]*")

_VENDORS: dict[str, str] = {
    r"claude": "anthropic",
    r"gpt|chatgpt|codex|o\d": "openai",
    r"gemini|gemma": "google",
    r"grok": "x-ai",
    r"deepseek": "deepseek",
    r"(mi[sx]|mini|code|magi|dev)stral|pixtral": "mistralai",
    r"llama": "meta-llama",
    r"qwen|qwq": "qwen",
    r"kimi": "moonshotai",
}
"""The makers of models whose names begin like this. OpenRouter lists them under the same names."""

_ROUTER = "openrouter"


class ProviderStatus(msgspec.Struct, frozen=True):
    """Whether a provider can be used now."""

    name: str
    usable: bool
    reason: str = ""
    """Why not, and how to fix it."""


class Access(msgspec.Struct, frozen=True):
    """The URL and headers for listing a provider's models."""

    url: str
    headers: dict[str, str]


class Resolved(msgspec.Struct, frozen=True):
    """The model behind a name, and where its facts are looked up."""

    provider: str
    model: str
    answers: Model
    priced_as: str
    window: int | None = None
    """The context size, if it is known without a price list."""
    at_once: int | None = None
    requests_per_minute: int | None = None
    takes: tuple[str, ...] | None = None
    """What it takes in addition to text, if that is configured."""

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"


class Providers:
    """All providers: the embedded model, built-in providers, providers from the configuration, and models passed as objects.

    `models` maps a provider's name to an object that answers for all of its models.
    """

    def __init__(
        self,
        keys: Keys,
        custom: Mapping[str, ProviderConfig] | None = None,
        *,
        models: Mapping[str, Model] | None = None,
        shared: Collection[str] = (),
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        reply_limit: int = REPLY_LIMIT,
        own: str = "",
        agents: Callable[[str], None] | None = None,
        source: Callable[[str], str | None] = lambda name: None,
        renew: Callable[[str], None] | None = None,
    ) -> None:
        """`shared` lists the providers that come from a project: only the user may choose one of their models. `own` is the
        configured model, for runs without their own. `agents` raises `BadInput` for a coding agent that cannot be used;
        without it there are none. `source` says where a key comes from, and `renew` has it read again.
        """
        self._own = own
        self._agents = agents
        self._keys = keys
        self._source = source
        self._renew = renew
        self._sent: dict[str, str] = {}
        self._rejected: dict[str, str] = {}
        """The keys that providers rejected, by provider; empty for a key that was missing."""
        self._shared = frozenset(shared)
        self._configs = {**BUILT_IN, **(custom or {})}
        self._models = dict(models or {})
        self._only: Model | None = None
        self._embedded: Model | None = None
        self.timeouts = timeouts
        self.reply_limit = reply_limit
        for name, config in (custom or {}).items():
            _check_config(name, config)

    @classmethod
    def only(cls, model: Model) -> Providers:
        """For tests: this one model answers for every name."""
        providers = cls(lambda name: None)
        providers._only = model
        return providers

    def full_name(self, name: str, own: str = "") -> str:
        """`provider/model` for a name that may omit its provider, as in published workflows; `own` is the run's model.

        The maker's own provider comes first, then the run's provider, then the only other provider that could offer it. In a
        chain, each name is completed.
        """
        names = chain(name)
        if len(names) > 1:
            return chained([self.full_name(one, own) for one in names])
        if "/" in name or name == HOST or self._only is not None:
            return name
        if name in ("", "local", EMBEDDED):
            return DEFAULT
        if name in (*self._configs, *self._models):
            raise UnknownModel(f"`{name}` is a provider, not a model.", fix=f"Write `{name}/MODEL`.")
        vendor = _vendor(name)
        if vendor and self._has_key(vendor):
            return f"{vendor}/{name}"
        options = self._options(name, vendor, (own or self._own).partition("/")[0])
        if len(options) == 1:
            return options[0]
        raise self._undecided(name, vendor, options)

    def _options(self, name: str, vendor: str, own: str) -> list[str]:
        """The full names that a model without a provider could have here."""
        if own not in ("", "local", _ROUTER, *_makers()) and self._has_key(own):
            return [f"{own}/{name}"]
        others = [one for one in (*self._configs, *self._models) if one not in BUILT_IN and one not in self._shared]
        options = [f"{one}/{name}" for one in dict.fromkeys(others) if self._has_key(one)]
        if vendor and self._has_key(_ROUTER):
            options.append(f"{_ROUTER}/{vendor}/{_routed(vendor, name)}")
        return [one for one in options if one.startswith(f"{own}/")] or options

    def _undecided(self, name: str, vendor: str, options: list[str]) -> BadInput:
        if options:
            listed = " or ".join(f"`{one}`" for one in options)
            return UnknownModel(f"Several providers may offer the model `{name}`.", fix=f"Write {listed}.")
        config = self._configs.get(vendor) or (self._configs[_ROUTER] if vendor else None)
        if config is None or config.key is None:
            return UnknownModel(
                f"No provider is known for the model `{name}`.",
                fix="Write `provider/model`, for example `openai/gpt-5`, or `local` for the embedded model.",
            )
        also = f" or {self._configs[_ROUTER].key}" if vendor in self._configs and self._configs[_ROUTER].key else ""
        return MissingKey(
            f"The model `{name}` needs a provider, and {config.key} is not set.",
            fix=f"Set {config.key}{also}, or write the name as `provider/model`.",
        )

    def _has_key(self, provider: str) -> bool:
        """Whether a provider is available, with the key it needs."""
        if provider in self._models:
            return True
        try:
            self._key(provider, self._config(provider))
        except BadInput:
            return False
        return True

    def resolve(self, name: str, own: str = "") -> Resolved:
        """The model behind a name. Raises `BadInput` if there is none."""
        if name == HOST:
            raise BadInput(
                f"`{HOST}` is not a model: in a run, a connected assistant answers instead.",
                fix="Choose a model that answers here.",
            )
        provider, model = self._split(self.full_name(name, own))
        if self._only is not None:
            return Resolved(provider, model, self._only, provider)
        if provider in self._models:
            limits = self._limits(provider)
            return Resolved(provider, model, self._models[provider], provider, None, *limits)
        if provider == "acp" and self._agents is not None:
            self._agents(name)
            return Resolved(provider, model, _Elsewhere(), provider)
        if provider == "local":
            self._check_local(model)
            return Resolved("local", EMBEDDED, self._local(), "local", EMBEDDED_WINDOW)
        config = self._config(provider)
        built, priced_as = self._build(provider, config), config.prices or provider
        return Resolved(provider, model, built, priced_as, None, *self._limits(provider), takes=config.takes)

    def _limits(self, provider: str) -> tuple[int | None, int | None]:
        config = self._configs.get(provider)
        return (None, None) if config is None else (config.at_once, config.requests_per_minute)

    def chosen(self, name: str | None, otherwise: str) -> tuple[Resolved, ...]:
        """The model that a playbook specifies, or its run's model, with those to fall back to. A project could bring both a
        provider and a playbook that uses it, to receive the prompts. So the run itself must already use such a provider.
        """
        full = self.full_name(name, otherwise) if name else ""
        own = {one.partition("/")[0] for one in chain(otherwise)}
        for provider in (one.partition("/")[0] for one in chain(full)):
            if provider not in self._shared or provider in own:
                continue
            raise BadInput(
                f"The playbook uses the model {name}, whose provider is defined in the project's own file: every prompt"
                " would be sent there.",
                fix=f"To allow it, start the run with --model {name}, or move the provider to your own configuration file.",
            )
        return tuple(self.resolve(one) for one in chain(full or otherwise))

    def wants_key(self, provider: str) -> bool:
        config = self._configs.get(provider)
        return config is not None and config.key is not None

    # --- keys that change while runs are active ---

    def rejected(self, provider: str, *, sent: bool = True) -> str:
        """Remembers that a provider rejected the key that was sent, or that there is none to send. Returns what to do, for
        people; empty if the provider has no key.
        """
        config = self._configs.get(provider)
        if config is None or config.key is None or provider in self._models:
            return ""
        self._rejected[provider] = self._sent.get(provider, "") if sent else self._keys(config.key) or ""
        onward = "the run then continues by itself"
        if self._source(config.key) == "environment":
            return (
                f"The key is {config.key} in the environment: change it there, and restart the server or the worker;"
                f" {onward}."
            )
        return f"Set the key again with `cuebook keys set {provider}`, or as {config.key} in the environment; {onward}."

    def accepted(self, provider: str) -> None:
        """Forgets that a key was rejected: it is valid after all."""
        self._rejected.pop(provider, None)

    def may_try(self, provider: str) -> bool:
        """Whether a provider has a key here which it has not rejected."""
        config = self._configs.get(provider)
        if config is None or config.key is None:
            return False
        if self._renew is not None:
            self._renew(config.key)
        key = self._keys(config.key)
        return bool(key) and key != self._rejected.get(provider)

    def check(self, name: str, own: str = "") -> None:
        """Raises `BadInput` if a run with this model could not begin."""
        names = chain(name)
        for one in names:
            if len(names) > 1 and (one == HOST or one.startswith(AGENTS)):
                raise BadInput(
                    f"'{name}': `{one}` cannot be part of a chain: it waits or acts on its own, and cannot be replaced meanwhile.",
                    fix="Name it alone, or leave it out of the chain.",
                )
            if one != HOST:
                self.resolve(one, own)

    def is_usable(self, provider: str) -> bool:
        """Whether models of this provider can be called from here."""
        return provider in self._models or not self._reason(provider)

    def available(self) -> list[ProviderStatus]:
        """Every provider, with the reason if it cannot be used."""
        names = dict.fromkeys(["local", *self._configs, *self._models])
        statuses = []
        for name in names:
            reason = "" if name in self._models else self._reason(name)
            statuses.append(ProviderStatus(name, not reason, reason))
        return statuses

    def access(self, provider: str) -> Access | None:
        """How to list a provider's models; None if it has no list or comes from a project."""
        config = self._configs.get(provider)
        if config is None or provider in self._models or provider in self._shared:
            return None
        key = self._key(provider, config)
        base = config.base_url.rstrip("/")
        if config.protocol == "anthropic":
            given = {"x-api-key": key} if key else {}
            headers = {"anthropic-version": "2023-06-01", **given, **config.headers}
            return Access(f"{base}/v1/models?limit=1000", headers)
        return Access(f"{base}/models", {**({"Authorization": f"Bearer {key}"} if key else {}), **config.headers})

    def default(self) -> str:
        """The model for runs that do not specify one: the embedded model, which needs no key."""
        return DEFAULT

    def secrets(self) -> tuple[str, ...]:
        """Every key that is set, so that it can be masked."""
        names = {config.key for config in self._configs.values() if config.key}
        return tuple(key for name in sorted(names) if (key := self._keys(name)))

    def _split(self, name: str) -> tuple[str, str]:
        provider, slash, model = name.partition("/")
        if slash and provider and model:
            return provider, model
        if self._only is not None:
            return "test", name
        raise UnknownModel(
            f"`{name}` is not the name of a model.",
            fix="Write `provider/model`, for example `openai/gpt-5` or `local`.",
        )

    def _config(self, provider: str) -> ProviderConfig:
        config = self._configs.get(provider)
        if config is not None:
            return config
        known = sorted({"local", *self._configs, *self._models})
        close = get_close_matches(provider, known, n=1, cutoff=0.7)
        hint = f"Did you mean `{close[0]}`? " if close else ""
        raise UnknownModel(
            f"There is no provider `{provider}`.",
            fix=f"{hint}The providers are {', '.join(known)}; others can be added in the configuration.",
        )

    def _build(self, provider: str, config: ProviderConfig) -> Model:
        key = self._sent[provider] = self._key(provider, config)
        if config.protocol == "anthropic":
            from cuebook.performers.models.protocols.anthropic import AnthropicMessages

            return AnthropicMessages(
                provider,
                key,
                base_url=config.base_url,
                headers=config.headers,
                timeouts=self.timeouts,
                reply_limit=self.reply_limit,
            )
        from cuebook.performers.models.protocols.openai import OpenAICompatible

        return OpenAICompatible(
            provider,
            config.base_url,
            key,
            headers=config.headers,
            newer_limit=config.max_completion_tokens,
            ask_cost=config.reports_cost,
            timeouts=self.timeouts,
            reply_limit=self.reply_limit,
        )

    def _key(self, provider: str, config: ProviderConfig) -> str:
        if config.key is None:
            return ""
        key = (self._keys(config.key) or "").strip()
        if not key:
            raise MissingKey(
                f"The provider {provider} needs a key, and {config.key} is not set.",
                fix=f"Set {config.key}, or use the embedded model with `--model local`.",
                provider=provider,
            )
        # A key with a line break or an odd character would fail deep inside the HTTP library, whose error quotes it.
        if not key.isascii() or not key.isprintable() or " " in key:
            raise MissingKey(
                f"The value of {config.key} is not a key: it contains whitespace or other invalid characters.",
                fix=f"Copy the key again and set {config.key}.",
                provider=provider,
            )
        return key

    def _reason(self, provider: str) -> str:
        try:
            if provider == "local":
                self._check_local(EMBEDDED)
            else:
                self._key(provider, self._config(provider))
        except BadInput as error:
            return str(error)
        return ""

    def _check_local(self, model: str) -> None:
        if model != EMBEDDED:
            raise UnknownModel(
                f"There is no embedded model `{model}`.", fix=f"The embedded model is `local/{EMBEDDED}`, or `local`."
            )
        check_engine()
        from cuebook.performers.models.weights import require_weights

        require_weights()

    def _local(self) -> Model:
        from cuebook.performers.models.local import LocalModel

        self._embedded = self._embedded or LocalModel()
        return self._embedded


class _Elsewhere:
    """Represents a coding agent, which another performer calls."""

    def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        raise ModelError("not_found", f"The coding agent {request.model} is not called as a model.")


def check_engine() -> None:
    """Raises `MissingPackage` if the embedded model cannot be run, even with its weights."""
    if importlib.util.find_spec("xllamacpp") is None:
        from cuebook.performers.models.weights import INSTALL

        raise MissingPackage(
            "The embedded model needs the Python package xllamacpp, which is not installed.",
            fix=f"{with_extra('local')} Then run `{INSTALL}` if its weights are missing too.",
        )


def _vendor(name: str) -> str:
    """The maker of a model, by the beginning of its name; empty if unknown."""
    for beginning, vendor in _VENDORS.items():
        if re.match(rf"(?:{beginning})(?=[-.:\d]|$)", name.lower()):
            return vendor
    return ""


def _makers() -> tuple[str, ...]:
    return tuple(_VENDORS.values())


def _routed(vendor: str, name: str) -> str:
    """A model's name as OpenRouter spells it: with a dot in the versions of Anthropic's models."""
    return re.sub(r"-(\d)-(\d{1,2})(?=-|$)", r"-\1.\2", name) if vendor == "anthropic" else name


def _check_config(name: str, config: ProviderConfig) -> None:
    if not _NAME.fullmatch(name) or name == "local":
        raise BadInput(
            f"`{name}` is not a valid provider name.",
            fix="Choose a name of lowercase letters, digits, `-` and `_` that begins with a letter and is not `local`.",
        )
    parts = urlsplit(config.base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(
            f"The provider {name} has an invalid base_url: `{config.base_url}`.",
            fix="Set its `base_url` as in `http://127.0.0.1:8000/v1`.",
        )
