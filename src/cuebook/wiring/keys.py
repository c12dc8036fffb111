"""Finds provider keys, first in the environment, then in the system's keyring. Keys are never shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

from cuebook.gate.secrets import SecretUnreadable
from cuebook.kernel.errors import BadInput

SERVICE = "cuebook"


class NoKeyring(BadInput):
    """This system has no keyring that Cuebook can use."""

    code = "no_keyring"


class Keys:
    """Finds keys by name, such as `OPENAI_API_KEY`. Uses the keyring only if the environment has no such key."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._kept: dict[str, str | None] = {}
        self.on_found: Callable[[str, str], None] = lambda handle, key: None
        """Called with every key before it is returned; the redactor masks it from then on."""

    def __call__(self, name: str) -> str | None:
        return self.in_environment(name) or self.in_keyring(name)

    def in_environment(self, name: str) -> str | None:
        key = self._environ.get(name, "").strip()
        if key:
            self.on_found(f"env:{name}", key)
        return key or None

    def in_keyring(self, name: str, *, again: bool = False) -> str | None:
        """Finds a key in the keyring. With `again`, a key that was missing before is looked up once more."""
        if again and self._kept.get(name) is None:
            self._kept.pop(name, None)
        key = self._in_keyring(name)
        if key:
            self.on_found(f"keyring:{name}", key)
        return key

    def source(self, name: str) -> Literal["environment", "keyring"] | None:
        if self._environ.get(name, "").strip():
            return "environment"
        return "keyring" if self._in_keyring(name) else None

    def set(self, name: str, key: str) -> None:
        with _Translated(name):
            _keyring().set_password(SERVICE, name, key)
        self._kept.pop(name, None)

    def remove(self, name: str) -> bool:
        """Removes a key. Returns whether it existed."""
        with _Translated(name):
            keyring = _keyring()
            if keyring.get_password(SERVICE, name) is None:
                return False
            keyring.delete_password(SERVICE, name)
        self._kept.pop(name, None)
        return True

    def renew(self, name: str) -> None:
        """Has a key in the keyring read again: another process may have changed it."""
        self._kept.pop(name, None)

    def _in_keyring(self, name: str) -> str | None:
        if name not in self._kept:
            try:
                found = _keyring().get_password(SERVICE, name)
            except Exception:  # a locked or missing keyring has no keys; `doctor` shows which it is
                found = None
            self._kept[name] = found.strip() if found and found.strip() else None
        return self._kept[name]


def checked_key(text: str) -> str:
    """Returns a key without surrounding whitespace. Raises `BadInput`, which does not quote it, if it cannot be a key."""
    key = text.strip()
    if not key:
        raise BadInput("The key is empty.", fix="Copy it from the provider's page.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput("This is not a key: it contains whitespace or other invalid characters.", fix="Copy it again.")
    return key


def backend() -> tuple[str, bool]:
    """The keyring's name, and whether it can store anything."""
    try:
        keyring = _keyring().get_keyring()
    except Exception as error:
        return f"none ({type(error).__name__})", False
    module = type(keyring).__module__
    if module.endswith((".fail", ".null")):
        return "none", False
    return f"{module}.{type(keyring).__name__}", True


def _keyring() -> Any:
    import keyring

    return keyring


class _Translated:
    """Translates keyring errors into ours."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        if not backend()[1]:
            raise NoKeyring(fix=f"Set {self._name} in the environment instead.")

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception):
            raise NoKeyring(
                f"The system's keyring denied access ({type(error).__name__}).",
                fix=f"Unlock it and try again, or set {self._name} in the environment.",
            ) from None


def in_keyring(keys: Keys) -> Callable[[str], str | None]:
    """Returns a function that finds secrets in the system's keyring, and raises an error if there is no keyring."""

    def find(name: str) -> str | None:
        found = keys.in_keyring(name, again=True)  # a run may be waiting for it
        if found is None and not backend()[1]:
            raise SecretUnreadable(
                f"The secret keyring:{name} cannot be read: this system has no keyring that Cuebook can use.",
                fix="Use env:NAME or file:PATH instead; `cuebook doctor` shows the keyring.",
            )
        return found

    return find
