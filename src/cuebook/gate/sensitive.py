"""Sensitive inputs: a run has a mark in place of each value, and an effect gets the value just before it is examined and performed.

A program, its journal and everything computed from it see only marks such as `[sensitive email 3f2a9c0142bd]`. Nothing here
stores a value.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

import msgspec

from cuebook.gate.redaction import SecretRedactor
from cuebook.gate.redaction.encodings import SHORTEST
from cuebook.kernel.context import EMPTY, Block, Context, Text
from cuebook.kernel.effects import CallTool, Effect, RunCommand
from cuebook.kernel.engine.engine import SENSITIVE
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.ports import Filter, Redactor

T = TypeVar("T")
E = TypeVar("E", bound=Effect)

BEGINNING = SENSITIVE.decode()
_MARK = re.compile(r"\[sensitive ([^\[\]\s]{1,100}) ([0-9a-f]{12})\]")
_IN_URL = re.compile(r"%5[Bb]sensitive(%20|\+)([^\[\]\s&]{1,300}?)\1([0-9a-f]{12})%5[Dd]")
_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]+")
"""What a shell takes as it is."""
_NAME = re.compile(r"[^\[\]\s]{1,100}")


class SensitiveGone(CuebookError):
    """A sensitive input was purged, or is not in this store."""

    code = "sensitive_purged"


class SensitiveInShell(CuebookError):
    """A sensitive input cannot be put into a shell command safely."""

    code = "sensitive_in_shell"


def mark_of(name: str, digest: str) -> str:
    return f"{BEGINNING}{name} {digest}]"


def marks_in(text: str) -> Iterator[tuple[str, str]]:
    """The names and digests of the marks in a text."""
    return ((found[1], found[2]) for found in _MARK.finditer(text))


def is_mark(value: Any) -> bool:
    return isinstance(value, str) and _MARK.fullmatch(value) is not None


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise BadInput("The name of a sensitive input must be a word.", fix="Rename the input.")


def check_value(name: str, value: Any) -> str:
    """Raises `BadInput`, which does not repeat the value, if it cannot be hidden."""
    check_name(name)
    if not isinstance(value, str):
        raise BadInput(f"The input '{name}' is sensitive, so it must be a text.", fix="Pass it as a string.")
    if len(value.strip()) < SHORTEST:
        raise BadInput(
            f"The sensitive input '{name}' has fewer than {SHORTEST} characters, so it could not be masked in what steps return.",
            fix="Pass a longer text, or do not mark the input as sensitive.",
        )
    return value


def marked(name: str, digest: str, value: str) -> str:
    """The mark of a value. Raises `BadInput` if masking the value would change the mark."""
    mark = mark_of(name, digest)
    folded, here = value.strip().casefold(), mark.casefold()
    if folded in here or folded[::-1] in here:
        raise BadInput(f"The sensitive input '{name}' cannot be its own name.", fix="Pass another value.")
    return mark


class RunSensitive:
    """The sensitive inputs of a run that is being driven: masks them in what it records, and reveals them to effects."""

    def __init__(self, values: Mapping[str, tuple[str, str]], base: Redactor) -> None:
        """`values` has the name and the value for each digest. `base` masks secrets."""
        self._values = {digest: value for digest, (_, value) in values.items()}
        self._own = SecretRedactor("sensitive", any_case=True)
        for digest, (name, value) in values.items():
            self._own.add(f"{name} {digest}", value)
        self.redactor: Redactor = _Both(base, self._own)

    @property
    def own(self) -> SecretRedactor:
        """Masks only the values of this run."""
        return self._own

    def reveal(self, effect: E) -> E:
        """The effect with values in place of marks. Raises `SensitiveGone` if one is not known."""
        revealed: E = _walked(self._safe(effect), self._text)
        return revealed

    def _safe(self, effect: E) -> E:
        """The effect with values in the places that a shell may read as code."""
        if isinstance(effect, CallTool) and effect.tool.rpartition(".")[2].lower() in _SHELL_TOOLS:
            return msgspec.structs.replace(effect, arguments=_walked(effect.arguments, self._shell_text))
        if not isinstance(effect, RunCommand):
            return effect
        shell = bool(effect.argv) and effect.argv[0].rpartition("/")[2] in _SHELLS
        scripts = [shell and bool(_SCRIPT_NEXT.fullmatch(before)) for before in ("", *effect.argv)]
        argv = tuple(self._shell_text(one, alone=not script) for one, script in zip(effect.argv, scripts, strict=False))
        stdin = self._shell_text(effect.stdin, alone=False) if shell else effect.stdin
        same = argv == effect.argv and stdin == effect.stdin
        return effect if same else msgspec.structs.replace(effect, argv=argv, stdin=stdin)

    def _text(self, text: str) -> str:
        if _MARK.fullmatch(text):
            return self._value(_MARK.fullmatch(text))
        found = _IN_URL.sub(self._in_url, text) if "%5" in text else text
        if BEGINNING not in found:
            return found
        if found.lstrip()[:1] in ("{", "[") and _is_json(found):
            return _MARK.sub(lambda match: json.dumps(self._value(match), ensure_ascii=False)[1:-1], found)
        return _MARK.sub(self._value, found)

    def _shell_text(self, text: str, *, alone: bool = True) -> str:
        """As `_text`, for a text that a shell may read as code: a value never becomes code. Without `alone`, neither does one that
        is the whole text.
        """
        if BEGINNING not in text or (alone and _MARK.fullmatch(text)):
            return self._text(text)
        text = re.sub(f"'{_MARK.pattern}'", lambda match: shlex.quote(self._value(match)), text)
        for match in _MARK.finditer(text):
            if not _PLAIN_WORD.fullmatch(self._value(match)):
                raise SensitiveInShell(
                    f"The sensitive input '{match[1]}' has characters that a shell could take as code.",
                    fix="Pass it as an argument of its own, or as an environment variable.",
                )
        return _MARK.sub(self._value, text)

    def _value(self, match: re.Match[str] | None) -> str:
        assert match is not None
        return self._of(match[1], match[2])

    def _in_url(self, match: re.Match[str]) -> str:
        value = self._of(match[2], match[3])
        return quote_plus(value) if match[1] == "+" else quote(value, safe="")

    def _of(self, name: str, digest: str) -> str:
        found = self._values.get(digest)
        if found is None:
            raise SensitiveGone(
                f"The sensitive input '{name}' is not available: it was purged, or the run came from another store.",
                fix=f"`cuebook restart RUN STEP --set {name}=VALUE` gives it again.",
            )
        return found


class _Both:
    """Masks secrets, then the sensitive inputs of a run."""

    def __init__(self, base: Redactor, own: SecretRedactor) -> None:
        self._base, self._own = base, own

    def value(self, value: T) -> T:
        return self._own.value(self._base.value(value))

    def stream(self) -> Filter:
        return _Chain(self._base.stream(), self._own.stream())


class _Chain:
    def __init__(self, first: Filter, second: Filter) -> None:
        self._first, self._second = first, second

    def feed(self, text: str) -> str:
        return self._second.feed(self._first.feed(text))

    def finish(self) -> str:
        return self._second.feed(self._first.finish()) + self._second.finish()


_SHELL_TOOLS = ("bash", "shell", "sh", "command", "exec")
_SCRIPT_NEXT = re.compile(r"-\w*c\w*")
"""An option of a shell that is followed by a script."""
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish", "busybox")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _walked(value: Any, change: Callable[[str], str]) -> Any:
    """The value with every text in it changed; the same object if none was."""
    if isinstance(value, str):
        return change(value) if "ensitive" in value else value
    if isinstance(value, Text):
        text = str(value)
        return Text(change(text)) if "ensitive" in text else value
    if isinstance(value, Context):
        return _context(value, change)
    if isinstance(value, msgspec.Struct):
        found = {name: _walked(getattr(value, name), change) for name in value.__struct_fields__}
        changes = {name: one for name, one in found.items() if one is not getattr(value, name)}
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, Mapping):
        items = {_walked(name, change): _walked(one, change) for name, one in value.items()}
        same = all(name in value and value[name] is one for name, one in items.items())
        return value if same else items
    if isinstance(value, list | tuple):
        parts = [_walked(one, change) for one in value]
        return value if _same(parts, value) else type(value)(parts)
    return value


def _same(parts: Iterable[Any], value: Iterable[Any]) -> bool:
    return all(new is old for new, old in zip(parts, value, strict=True))


def _context(context: Context, change: Callable[[str], str]) -> Context:
    found, changed = EMPTY, False
    for block in context:
        new: Block = _walked(block, change)
        changed = changed or new is not block
        found = Context(found, new)
    return found if changed else context
