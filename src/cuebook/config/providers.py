"""Providers of models as `cuebook.toml` describes them. It holds the names of variables with keys, and never a key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cuebook.config.folders import FILE
from cuebook.config.kinds import ENVIRONMENT, VARIABLE
from cuebook.config.origins import Origin
from cuebook.config.written import Written
from cuebook.kernel.errors import BadInput

_BUILT_IN = ("openai", "anthropic", "openrouter", "ollama")
"""Providers that a project's file may not lead elsewhere."""
_FIELDS = ("base_url", "key_env", "protocol")
_NAME = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)


@dataclass(frozen=True)
class Provider:
    """A provider as a file describes it; what is not said stays as it is built in."""

    name: str
    origin: Origin
    base_url: str | None = None
    key_env: str | None = None
    protocol: str | None = None
    shared: bool = False
    """Whether a project's file brought it."""


def read_providers(file: Written, given: Any, providers: dict[str, Provider]) -> None:
    """Adds the providers of a file to those of the files before."""
    for name, table in file.table("providers", given).items():
        dotted = f"providers.{name}"
        origin = file.origin(dotted)
        if not _NAME.fullmatch(name) or name == "local":
            raise BadInput(
                f"{origin}: '{name}' cannot be the name of a provider.",
                fix="Choose small letters, digits, - and _, beginning with a letter; 'local' is taken.",
            )
        texts = {part: _field(file, dotted, part, value) for part, value in file.table(dotted, table).items()}
        if file.shared:
            _check_shared(name, texts, origin, providers)
        providers[name] = Provider(name, origin, **texts, shared=file.shared)


def check_choice(file: Written) -> None:
    """A clone that brought both a provider and the choice of it would have every prompt sent where it likes."""
    model, own = file.tables.get("model"), file.tables.get("providers")
    provider = model.strip().partition("/")[0] if isinstance(model, str) else ""
    if isinstance(own, dict) and provider in own:
        raise BadInput(
            f"{file.origin('model')}: a project's file may not choose a model of provider '{provider}', which it"
            " describes itself: every prompt would go there.",
            fix=f"If you mean it, choose the model in the {FILE} of your user, in {ENVIRONMENT['model']} or with --model.",
        )


def _field(file: Written, dotted: str, part: str, value: Any) -> str:
    name = f"{dotted}.{part}"
    if part not in _FIELDS:
        raise file.unknown(name, [f"{dotted}.{known}" for known in _FIELDS])
    where = file.origin(name)
    if not isinstance(value, str) or not value:
        raise BadInput(f"{where}: {name} must be a text.", fix="Put it in quotes.")
    if part == "key_env" and not VARIABLE.fullmatch(value):
        raise BadInput(
            f"{where}: {name} must be the name of an environment variable, not a key.",
            fix='Write it as in key_env = "MY_SERVER_KEY".',
        )
    if part == "protocol" and value not in ("openai", "anthropic"):
        raise BadInput(f'{where}: {name} must be "openai" or "anthropic".', fix="Correct or remove it.")
    if part == "base_url":
        _check_address(name, value, where)
    return value


def _check_address(name: str, value: str, where: Origin) -> None:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        fix = 'Write it as in base_url = "http://127.0.0.1:8000/v1".'
        raise BadInput(f"{where}: {name} must be an address.", fix=fix)
    if parts.username or parts.password:
        raise BadInput(f"{where}: {name} holds a password.", fix="Take it out and use key_env.")


def _check_shared(name: str, texts: Mapping[str, str], origin: Origin, providers: Mapping[str, Provider]) -> None:
    """A project's file may come with a clone: it must not lead a key of the user's to an address of its own."""
    if name in _BUILT_IN or name in providers or "key_env" in texts:
        raise BadInput(
            f"{origin}: a project's file may not say where keys and prompts are sent, so it cannot set provider '{name}'.",
            fix=f"Move the table to the {FILE} of your user; `cuebook doctor` shows where that is.",
        )
