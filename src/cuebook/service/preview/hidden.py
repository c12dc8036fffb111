"""Sensitive inputs in a preview: as in a run, a mark replaces each value, and only the policy examines the values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from cuebook.dialects.presentation.preview import Act, Preview, Read
from cuebook.gate.redaction import SecretRedactor
from cuebook.gate.sensitive import RunSensitive, SensitiveInShell, check_value, is_mark, marked

T = TypeVar("T")


class HiddenInputs:
    """The given inputs of a preview, with a mark in place of each value that is sensitive."""

    def __init__(self, given: Mapping[str, Any], sensitive: Iterable[str]) -> None:
        """Raises `BadInput` for a value that cannot be hidden."""
        self.shown, values = dict(given), {}
        for name in dict.fromkeys(sensitive):
            value = self.shown.get(name)
            if value is None or is_mark(value):
                continue
            digest = sha256(f"preview {name}".encode()).hexdigest()[:12]  # of the name: the value is not to be guessed
            values[digest] = (name, check_value(name, value))
            self.shown[name] = marked(name, digest, value)
        self._values = RunSensitive(values, SecretRedactor()) if values else None

    def masked(self, value: T) -> T:
        return value if self._values is None else self._values.own.value(value)

    def reading(self, read: Read) -> Read:
        """Reads sources whose address has a mark, and masks what is read."""
        values = self._values
        if values is None:
            return read
        return lambda source: self.masked(read(values.reveal(source)))

    def revealed(self, preview: Preview) -> Preview:
        """The preview with the values, to be examined and never shown."""
        return preview if self._values is None else self._values.reveal(preview)  # type: ignore[type-var]

    def revealed_act(self, act: Act) -> tuple[Act, str]:
        """An act with the values, and why a run could not perform it."""
        values = self._values
        if values is None or act.effect is None:
            return act, ""
        try:
            probe = act.open.probe and values.reveal(act.open.probe)
            effect = values.reveal(act.effect)
        except SensitiveInShell as error:
            return act, str(error)
        return msgspec.structs.replace(act, effect=effect, open=msgspec.structs.replace(act.open, probe=probe)), ""
