"""Model providers in `cuebook.toml`. Each gives the name of the variable that contains a key, never the key itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cuebook.config.settings import ENVIRONMENT, VARIABLE
from cuebook.config.source import ConfigFile, Origin
from cuebook.kernel.errors import BadInput
from cuebook.kernel.model_names import chain
from cuebook.system.folders import FILE

_BUILT_IN = ("openai", "anthropic", "openrouter", "ollama")
"""Providers whose URL a project file cannot change."""
_TEXTS = ("base_url", "key_env", "protocol")
_NUMBERS = ("at_once", "requests_per_minute")
_TAKES = ("images", "pdf")
_FIELDS = (*_TEXTS, *_NUMBERS, "takes")
_NAME = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)


@dataclass(frozen=True)
class Provider:
    """A provider as described in a file; omitted fields keep their built-in values."""

    name: str
    origin: Origin
    base_url: str | None = None
    key_env: str | None = None
    protocol: str | None = None
    at_once: int | None = None
    """How many calls may be under way at the same time, in all processes on the store."""
    requests_per_minute: int | None = None
    """How many calls may begin within a minute, in all processes on the store."""
    takes: tuple[str, ...] | None = None
    """What its models take in addition to text: `images`, `pdf`."""
    shared: bool = False
    """Whether it comes from a project file."""


def read_providers(file: ConfigFile, given: Any, providers: dict[str, Provider]) -> None:
    """Adds a file's providers to the providers from earlier files."""
    for name, table in file.table("providers", given).items():
        dotted = f"providers.{name}"
        origin = file.origin(dotted)
        if not _NAME.fullmatch(name) or name == "local":
            raise BadInput(
                f"{origin}: '{name}' is not a valid provider name.",
                fix="Use lowercase letters, digits, - and _, beginning with a letter; 'local' is reserved.",
            )
        fields = {part: _field(file, dotted, part, value) for part, value in file.table(dotted, table).items()}
        if file.shared:
            _check_shared(name, fields, origin, providers)
        providers[name] = Provider(name, origin, **fields, shared=file.shared)


def check_choice(file: ConfigFile) -> None:
    """Rejects a project file that both describes a provider and chooses it: a clone could redirect every prompt."""
    model, own = file.tables.get("model"), file.tables.get("providers")
    names = chain(model) if isinstance(model, str) else ()
    provider = next(
        (name.partition("/")[0] for name in names if isinstance(own, dict) and name.partition("/")[0] in own), ""
    )
    if provider:
        raise BadInput(
            f"{file.origin('model')}: a project file may not choose a model from provider '{provider}', which it"
            " describes itself, because every prompt would go there.",
            fix=f"If this is intended, choose the model in your own {FILE}, in {ENVIRONMENT['model']} or with --model.",
        )


def _field(file: ConfigFile, dotted: str, part: str, value: Any) -> Any:
    name = f"{dotted}.{part}"
    if part not in _FIELDS:
        raise file.unknown(name, [f"{dotted}.{known}" for known in _FIELDS])
    where = file.origin(name)
    if part in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadInput(f"{where}: {name} must be a whole number of at least 1.", fix="Correct or remove it.")
        return value
    if part == "takes":
        if not isinstance(value, list) or any(one not in _TAKES for one in value):
            raise BadInput(
                f'{where}: {name} must be a list of "images" and "pdf".', fix='For example: takes = ["images"].'
            )
        return tuple(value)
    if not isinstance(value, str) or not value:
        raise BadInput(f"{where}: {name} must be a string.", fix="Put it in quotes.")
    if part == "key_env" and not VARIABLE.fullmatch(value):
        raise BadInput(
            f"{where}: {name} must be the name of an environment variable, not a key.",
            fix='For example: key_env = "MY_SERVER_KEY".',
        )
    if part == "protocol" and value not in ("openai", "anthropic"):
        raise BadInput(f'{where}: {name} must be "openai" or "anthropic".', fix="Correct or remove it.")
    if part == "base_url":
        _check_address(name, value, where)
    return value


def _check_address(name: str, value: str, where: Origin) -> None:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        fix = 'For example: base_url = "http://127.0.0.1:8000/v1".'
        raise BadInput(f"{where}: {name} must be an http or https URL.", fix=fix)
    if parts.username or parts.password:
        raise BadInput(f"{where}: {name} contains a password.", fix="Remove it and use key_env.")


def _check_shared(name: str, fields: Mapping[str, Any], origin: Origin, providers: Mapping[str, Provider]) -> None:
    """Rejects a project file that could send one of the user's keys to a URL of its choice, or use up a limit that other
    machines share.
    """
    limits = [part for part in _NUMBERS if part in fields]
    if limits:
        raise BadInput(
            f"{origin}: a project file may not set limits, so it cannot set 'providers.{name}.{limits[0]}'.",
            fix=f"Set it in your own {FILE}, or leave it out.",
        )
    if name in _BUILT_IN or name in providers or "key_env" in fields:
        raise BadInput(
            f"{origin}: a project file may not decide where keys and prompts are sent, so it cannot set provider '{name}'.",
            fix=f"Move the table to your own {FILE}; `cuebook doctor` shows where that is.",
        )
