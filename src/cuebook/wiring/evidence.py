"""The key that signs exports, from the configuration."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from cuebook.config import Config
from cuebook.gate.secrets import Vault
from cuebook.kernel.errors import BadInput
from cuebook.service.audit.keys import SigningKey
from cuebook.service.audit.signature import Signer
from cuebook.wiring.keys import Keys, in_keyring
from cuebook.wiring.performers import managers_of


def signer_of(config: Config, environ: Mapping[str, str] = os.environ) -> Signer | None:
    """Signs exports with the configured key; None if there is none. Raises `BadInput` if the key cannot be used."""
    key = key_of(config, environ)
    return None if key is None else Signer(key)


def key_of(config: Config, environ: Mapping[str, str] = os.environ) -> SigningKey | None:
    """The configured key. A file that other users can access is refused."""
    handle = config.get("evidence.key")
    if not handle:
        return None
    vault = vault_of(config, environ)
    _check(vault, handle)
    return _read(vault.resolve(handle), handle)


async def revealed_key(config: Config, vault: Vault) -> SigningKey | None:
    """Like `key_of`, for a server: other requests do not wait for the manager that has the key."""
    handle = config.get("evidence.key")
    if not handle:
        return None
    _check(vault, handle)
    return _read(await vault.revealed(handle), handle)


def vault_of(config: Config, environ: Mapping[str, str] = os.environ) -> Vault:
    """A vault for this key, whose value is nowhere in a run."""
    return Vault(environ=environ, keyring=in_keyring(Keys(environ)), managers=managers_of(config, environ))


def _check(vault: Vault, handle: str) -> None:
    if vault.concern(handle):
        path = vault.canonical(handle).partition(":")[2]
        raise BadInput(
            f"evidence.key: other users of this machine can access {path}, so it is not used.",
            fix=f"Run `chmod 600 {shlex.quote(path)}`; if someone may have read it, make a new key.",
        )


def _read(value: str, handle: str) -> SigningKey:
    return SigningKey.read(value, f"evidence.key: the value of {handle}")
