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
from cuebook.system.folders import FILE

_BUILT_IN = ("openai", "anthropic", "openrouter", "ollama")
"""Providers whose URL a project file cannot change."""
_FIELDS = ("base_url", "key_env", "protocol")
_NAME = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)


@dataclass(frozen=True)
class Provider:
    """A provider as described in a file; omitted fields keep their built-in values."""

    name: str
    origin: Origin
    base_url: str | None = None
    key_env: str | None = None
    protocol: str | None = None
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
        texts = {part: _field(file, dotted, part, value) for part, value in file.table(dotted, table).items()}
        if file.shared:
            _check_shared(name, texts, origin, providers)
        providers[name] = Provider(name, origin, **texts, shared=file.shared)


def check_choice(file: ConfigFile) -> None:
    """Rejects a project file that both describes a provider and chooses it: a clone could redirect every prompt."""
    model, own = file.tables.get("model"), file.tables.get("providers")
    provider = model.strip().partition("/")[0] if isinstance(model, str) else ""
    if isinstance(own, dict) and provider in own:
        raise BadInput(
            f"{file.origin('model')}: a project file may not choose a model from provider '{provider}', which it"
            " describes itself, because every prompt would go there.",
            fix=f"If this is intended, choose the model in your own {FILE}, in {ENVIRONMENT['model']} or with --model.",
        )


def _field(file: ConfigFile, dotted: str, part: str, value: Any) -> str:
    name = f"{dotted}.{part}"
    if part not in _FIELDS:
        raise file.unknown(name, [f"{dotted}.{known}" for known in _FIELDS])
    where = file.origin(name)
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


def _check_shared(name: str, texts: Mapping[str, str], origin: Origin, providers: Mapping[str, Provider]) -> None:
    """Rejects a project file that could send one of the user's keys to a URL of its choice."""
    if name in _BUILT_IN or name in providers or "key_env" in texts:
        raise BadInput(
            f"{origin}: a project file may not decide where keys and prompts are sent, so it cannot set provider '{name}'.",
            fix=f"Move the table to your own {FILE}; `cuebook doctor` shows where that is.",
        )
