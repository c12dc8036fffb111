"""The redactor: it is told secrets, and masks each in whatever is about to be stored or shown.

It knows values and the names they are masked with; not where values come from, nor who reads what is left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar, cast

from cuebook.gate.redaction.finding import Finder, Progress
from cuebook.gate.redaction.forms import SHORTEST, forms_of
from cuebook.gate.redaction.glance import is_clean
from cuebook.gate.redaction.values import masked

T = TypeVar("T")

DEEPEST = 200
"""Values nested deeper than this are not looked into, but cut off."""


class SecretRedactor:
    """Masks every secret it was told, in every form. Values may be added at any time, from any thread."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._finder: Finder | None = None
        self._changing = threading.Lock()

    def __repr__(self) -> str:
        return f"<SecretRedactor of {len(self._names)} values>"

    @property
    def known(self) -> bool:
        """Whether there is anything to mask."""
        return bool(self._names)

    def add(self, name: str, value: str) -> None:
        """From now on the value is masked as `[secret NAME]`. A value under 8 characters is not masked at all."""
        stripped = value.strip()
        if stripped in self._names or len(stripped) < SHORTEST:
            return
        with self._changing:
            self._names = {**self._names, stripped: name}
            self._finder = None

    def text(self, text: str) -> str:
        finder = self.finder()
        return text if finder is None else finder.text(text)

    def value(self, value: T) -> T:
        """The value with every secret in it masked, keys included; the same object where there is none."""
        finder = self.finder()
        if finder is None or is_clean(value, finder.begins, DEEPEST):
            return value
        return cast(T, masked(value, finder, finder.text, DEEPEST))

    def stream(self) -> SecretStream:
        return SecretStream(self.finder)

    def finder(self) -> Finder | None:
        """What finds the secrets known by now. It is made on first use, because secrets often come several at once."""
        finder = self._finder
        if finder is None and self._names:
            with self._changing:
                finder = self._finder
                if finder is None:
                    forms = [form for value, name in self._names.items() for form in forms_of(name, value)]
                    self._finder = finder = Finder(forms)
        return finder


class SecretStream:
    """Masks a text that arrives in pieces. All pieces together are what the whole text would have become."""

    def __init__(self, finder: Callable[[], Finder | None]) -> None:
        self._newest = finder
        self._finder: Finder | None = None
        self._held = ""
        self._progress: Progress | None = None

    def feed(self, text: str) -> str:
        finder = self._newest()
        if finder is None:
            return text
        if finder is not self._finder:
            self._finder, self._progress = finder, None
        shown, self._held, self._progress = finder.scan(self._held + text, self._progress, final=False)
        return shown

    def finish(self) -> str:
        held, self._held, self._progress = self._held, "", None
        finder = self._newest()
        return held if finder is None else finder.text(held)
