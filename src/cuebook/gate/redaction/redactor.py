"""The redactor: masks every known secret in whatever is about to be stored or shown.

It has the values and the names that replace them, but does not know where the values come from or who reads the result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec

from cuebook.gate.redaction.encodings import SHORTEST, all_forms_of, forms_of
from cuebook.gate.redaction.search import Finder, Progress
from cuebook.kernel.context import Text

_ESCAPES = (("\\n", "\n"), ('\\"', '"'), ("\\t", "\t"))
"""Common JSON escapes. A literal backslash is written as two, so one of them is left over."""


def is_clean(value: Any, begins: Callable[[str], object], deepest: int) -> bool:
    """Whether a value, including its keys and numbers, cannot contain any form and is not nested too deeply."""
    try:
        text = _encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    if len(text) > deepest and text.count("{") + text.count("[") > deepest:
        return False
    # In truncated text, the beginning of a secret counts as well.
    if 'truncated":true' in text or '"length"' in text or '"watch"' in text:
        return False
    if "\\" in text:
        for escape, char in _ESCAPES:
            text = text.replace(escape, char)
        if "\\" in text:
            return False
    return begins(text) is None


def _shown(value: Any) -> str:
    if isinstance(value, Text):
        return str(value) if value.loaded else ""
    raise TypeError(f"a {type(value).__name__} cannot be redacted")


_encode = msgspec.json.Encoder(enc_hook=_shown).encode


CUT = "[nested too deeply to be searched for secrets]"
_CUT_WHERE = {"stdout": "truncated", "stderr": "stderr_truncated", "body": "truncated"}
"""Fields of an outcome, and the field that says whether each was truncated."""
_PLAIN = ("value", "result", "state")
"""Fields that can contain any value; in other fields, numbers are never masked."""
_CUT_SHORT = ("length", "watch")
"""The finish reasons of an incomplete reply."""

_Mask = Callable[[str], str]


def masked(value: Any, finder: Finder, mask: _Mask, depth: int) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, int) and abs(value) >= 10 ** (SHORTEST - 1):
        return _masked_number(value, mask)
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, Text):
        return _masked_text(value, mask)
    if not isinstance(value, dict | list | tuple | set | frozenset | msgspec.Struct):
        return value
    if depth == 0:
        return CUT
    if isinstance(value, dict):
        return _masked_dict(value, finder, depth - 1)
    if isinstance(value, msgspec.Struct):
        return _masked_struct(value, finder, depth - 1)
    return _masked_items(value, finder, depth - 1)


def _masked_number(value: int, mask: _Mask) -> Any:
    """A secret that consists of digits becomes a number when it is read as JSON."""
    written = str(value)
    masked = mask(written)
    return value if masked is written else masked


def _masked_text(text: Text, mask: _Mask) -> Text:
    # A `Text` that is not loaded was masked before it was stored.
    if not text.loaded:
        return text
    plain = str(text)
    masked = mask(plain)
    return text if masked is plain else Text(masked)


def _masked_items(value: Any, finder: Finder, depth: int) -> Any:
    items = [masked(item, finder, finder.text, depth) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    if hasattr(value, "_make"):
        return value._make(items)
    return next(kind(items) for kind in (list, tuple, set, frozenset) if isinstance(value, kind))


def _masked_dict(value: dict[Any, Any], finder: Finder, depth: int) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    changed = False
    for key, item in value.items():
        cut = key in _CUT_WHERE and value.get(_CUT_WHERE[key]) is True
        new_key = masked(key, finder, finder.text, depth)
        new_item = masked(item, finder, finder.cut_text if cut else finder.text, depth)
        if new_key is not key:
            changed = True
            while new_key in made or new_key in value:  # two forms of one secret remain two keys
                new_key = f"{new_key}'"
        changed = changed or new_item is not item
        made[new_key] = new_item
    return made if changed else value


def _masked_struct(value: msgspec.Struct, finder: Finder, depth: int) -> msgspec.Struct:
    changes: dict[str, Any] = {}
    for field in value.__struct_fields__:
        old = getattr(value, field, None)
        if isinstance(old, int) and field not in _PLAIN:
            continue
        cut = field in _CUT_WHERE and getattr(value, _CUT_WHERE[field], False) is True
        cut = cut or (field == "content" and getattr(value, "finish", "") in _CUT_SHORT)
        new = masked(old, finder, finder.cut_text if cut else finder.text, depth)
        if new is not old:
            changes[field] = new
    return msgspec.structs.replace(value, **changes) if changes else value


T = TypeVar("T")

DEEPEST = 200
"""Values that are nested deeper than this are cut off, not searched."""


class SecretRedactor:
    """Masks every added secret in every form. Values may be added at any time, from any thread."""

    def __init__(self, word: str = "secret", *, any_case: bool = False) -> None:
        """`word` is the first one of the masks. With `any_case`, values are also masked in another case and backwards."""
        self._word = word
        self._forms_of = all_forms_of if any_case else forms_of
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
        """The value with every secret masked, also in keys; the same object if it contains none."""
        finder = self.finder()
        if finder is None or is_clean(value, finder.begins, DEEPEST):
            return value
        return cast(T, masked(value, finder, finder.text, DEEPEST))

    def stream(self) -> SecretStream:
        return SecretStream(self.finder)

    def finder(self) -> Finder | None:
        """The finder for the known secrets. It is created on first use, because secrets are often added in batches."""
        finder = self._finder
        if finder is None and self._names:
            with self._changing:
                finder = self._finder
                if finder is None:
                    forms = [form for value, name in self._names.items() for form in self._forms_of(name, value)]
                    self._finder = finder = Finder(forms, self._word)
        return finder


class SecretStream:
    """Masks text that arrives in chunks. The result is the same as if the whole text had been masked at once."""

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
