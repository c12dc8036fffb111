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
    keyring = in_keyring(Keys(environ))
    vault = Vault(environ=environ, keyring=keyring, managers=managers_of(config, environ))
    if vault.concern(handle):
        path = vault.canonical(handle).partition(":")[2]
        raise BadInput(
            f"evidence.key: other users of this machine can access {path}, so it is not used.",
            fix=f"Run `chmod 600 {shlex.quote(path)}`; if someone may have read it, make a new key.",
        )
    return SigningKey.read(vault.resolve(handle), f"evidence.key: the value of {handle}")
