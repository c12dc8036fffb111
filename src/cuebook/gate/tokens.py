"""Tokens for waits, signed with this machine's key.

There are two kinds, which are not interchangeable. A *wait token* lets someone without an account decide that wait. A
*resume token* only identifies a wait: its bearer decides with their own roles, so it can be passed to a process that
may not decide anything itself.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cuebook.kernel.errors import NotFound, Refused

_PROOF = 32
"""Characters of a resume token that prove its origin."""


class Tokens:
    """Makes and checks tokens. Without a key file, a resume token is just the wait's id."""

    def __init__(self, key_file: Path | None = None, key: bytes | None = None) -> None:
        """`key` is a key that several machines share; it replaces the file."""
        self._key_file = key_file
        self._key = key

    def of(self, wait: str) -> str:
        return self._signed(wait)

    def fits(self, token: str, wait: str) -> bool:
        return hmac.compare_digest(token.encode(), self.of(wait).encode())

    def resume(self, wait: str) -> str:
        return wait if self._is_keyless else f"{wait}.{self._proof(wait)}"

    def wait_of(self, token: str) -> str:
        """The id of the wait that a resume token identifies. Raises `NotFound` for a token from another machine."""
        wait, dot, proof = token.partition(".")
        if dot and (self._is_keyless or not hmac.compare_digest(proof.encode(), self._proof(wait).encode())):
            raise NotFound("There is no pending wait with this token.", fix="`cuebook inbox` lists the pending waits.")
        return wait

    def make_key(self) -> None:
        """Must be called before other programs run: a program that created the key first would know it."""
        if self._key is None and self._key_file is not None and not self._key_file.exists():
            made = self._key_file.with_name(f"{self._key_file.name}.{secrets.token_hex(4)}")
            with os.fdopen(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
            with suppress(FileExistsError):  # another process was faster; its key is used
                os.link(made, self._key_file)
            made.unlink()

    def signer(self) -> Callable[[str], str]:
        """Signatures are valid while the key exists; without a key file, while this process runs."""
        if not self._is_keyless:
            return self._signed
        key = secrets.token_bytes(32)
        return lambda words: hmac.new(key, words.encode(), hashlib.sha256).hexdigest()

    def _proof(self, wait: str) -> str:
        return self._signed(f"resume {wait}")[:_PROOF]

    @property
    def _is_keyless(self) -> bool:
        return self._key is None and self._key_file is None

    def _signed(self, words: str) -> str:
        return hmac.new(self._used_key(), words.encode(), hashlib.sha256).hexdigest()

    def _used_key(self) -> bytes:
        if self._key is not None:
            return self._key
        if self._key_file is None:
            raise Refused("Tokens need a key.", fix="Pass the service a key_file or a signing_key.")
        self.make_key()
        return self._key_file.read_bytes()
