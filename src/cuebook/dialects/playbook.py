"""A playbook: its text, its dialect and its parsed document. It is parsed once and passed around as a whole."""

from __future__ import annotations

import os
import posixpath
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.dialect import Dialect, Input, OutlinedStep, Surroundings
from cuebook.dialects.findings import Finding, Problem
from cuebook.dialects.presentation.projection import Projection, RunEvent, seen
from cuebook.kernel.context import digest_of
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import PlannedStep

_UNNAMED = "playbook.md"
"""The name for an unnamed playbook whose dialect is unknown."""
_LONGEST = 1_000_000
"""The maximum length of a playbook whose document is cached, in characters."""
_MOST = 32
"""The maximum number of cached documents."""


class Accepted(msgspec.Struct, frozen=True):
    """Inputs that a playbook has accepted, and the options it accepted them for."""

    values: dict[str, Any]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Playbook:
    """A playbook that can be run: its text and its document."""

    text: str
    """The text, including all files that it imports."""
    name: str
    """The name of its runs, usually its file name."""
    document: Any = field(repr=False)
    """The parsed form, as its dialect defines it."""
    dialect: Dialect = field(repr=False)
    path: Path | None = None

    @classmethod
    def from_text(cls, text: str, name: str = "", *, path: Path | None = None) -> Playbook:
        """Parses playbook text. Raises `InvalidPlaybook` with every problem and its line."""
        return read(text, name, path=path)

    @cached_property
    def digest(self) -> str:
        """The content hash of the text, including imports. A run stores it."""
        return digest_of(self.text)

    @property
    def where(self) -> str:
        """Its name in messages."""
        return self.name if self.path is None else str(self.path)

    @property
    def folder(self) -> str:
        """The folder in which its files are looked up."""
        return os.path.realpath("." if self.path is None else self.path.parent)

    @property
    def title(self) -> str:
        return str(self.document.title)

    @property
    def description(self) -> str:
        return str(self.document.description)

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(self.document.inputs)

    @property
    def steps(self) -> tuple[PlannedStep, ...]:
        """The label and title of each step."""
        return tuple(self.document.plan)

    @property
    def outline(self) -> tuple[OutlinedStep, ...]:
        """The steps and sub-steps, with the questions that the text defines."""
        return self.dialect.outline(self.document)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all steps and sub-steps."""
        return tuple(self.document.labels)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Warnings from the parser; `check` finds more."""
        return tuple(self.document.warnings)

    def check(self) -> list[Finding]:
        """Everything that looks like a mistake: findings with code, severity, message, line, column and fix."""
        return self.dialect.check(self.text, self.name, Surroundings())

    def observed(self, events: Iterable[RunEvent] = (), run: str = "") -> Projection:
        """The projection of a run after these events. `run` is the id in published events."""
        return seen(self.dialect.observe(self.document, run), events)

    def adapted(self, options: Mapping[str, Any]) -> Any:
        """The document as a run with these options uses it."""
        return self.dialect.adapted(self.document, options)

    def accept(self, given: Mapping[str, Any], options: Mapping[str, Any], sensitive: Sequence[str] = ()) -> Accepted:
        """The inputs as a run with these options stores them. Raises `BadInput`, naming all missing or invalid ones. It repeats
        no value that is sensitive: of those that the document declares so, and of these.
        """
        document = self.adapted(options)
        hidden = [name for name in (*document.sensitive, *sensitive) if name in given]
        try:
            return Accepted(self.dialect.accept(document, given), dict(options))
        except BadInput:
            if not hidden:
                raise
        self.dialect.accept(document, {**given, **{name: f"[sensitive {name}]" for name in hidden}})
        raise BadInput(f"Invalid input: {', '.join(hidden)} (sensitive, so not shown).", fix="Correct the value.")


def read(
    text: str,
    name: str = "",
    *,
    path: Path | None = None,
    where: str = "",
    neighbour: Callable[[str], str] | None = None,
) -> Playbook:
    """Detects a playbook's dialect and parses it. Raises `InvalidPlaybook` with every problem and its line.

    `neighbour` reads an imported file by its path in the playbook's folder. `where` is the playbook's name in messages.
    """
    name = name or name_for(text)
    where = where or str(path or name)
    dialect = registry.detect(text, name)
    if neighbour is not None:
        text = dialect.whole(text, where, neighbour)
    return Playbook(text, name, parsed(dialect, text, where), dialect, path)


def recorded(dialect: str, text: str, name: str) -> Playbook:
    """The playbook of a run, from its recorded text. Raises `BadInput` if the dialect is unknown."""
    found = registry.named(dialect)
    return Playbook(text, name, parsed(found, text, name), found)


def cached(dialect: str, digest: str, name: str) -> Playbook | None:
    """The playbook of a run, by the text's content hash. Returns None if the text was not parsed recently."""
    found = registry.named(dialect)
    known = _CACHE.get(_key(found, digest, name))
    return None if known is None else Playbook(known.text, name, known.document, found)


def parsed(dialect: Dialect, text: str, name: str) -> Any:
    """The parsed document, from the cache if the same text was parsed recently."""
    if len(text) > _LONGEST:
        return dialect.parse(text, name)
    key = _key(dialect, digest_of(text), name)
    known = _CACHE.get(key)
    if known is None:
        known = _Parsed(text, dialect.parse(text, name))
        _CACHE.put(key, known)
    return known.document


_Key: TypeAlias = tuple[Dialect, str, str]


def _key(dialect: Dialect, digest: str, name: str) -> _Key:
    """A document depends on the text and the file name, not on the folder."""
    return dialect, posixpath.basename(name), digest


class _Parsed(NamedTuple):
    text: str
    document: Any


class _Cache:
    """Recently parsed documents. They are frozen, so threads can share them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, _Parsed] = OrderedDict()
        self._lock = Lock()

    def get(self, key: _Key) -> _Parsed | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: _Key, parsed: _Parsed) -> None:
        with self._lock:
            self._kept[key] = parsed
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)


_CACHE = _Cache()


def name_for(text: str) -> str:
    """The name for a playbook without a file. It reveals the dialect."""
    dialect = registry.recognised(text, "")
    return _UNNAMED if dialect is None else dialect.default_name
