"""The registry of dialects. It also detects a playbook's dialect.

A package adds a dialect through an entry point in the group `cuebook.dialects`, a program by calling `register`.
Dialects are loaded on demand: a built-in dialect when it is first used, entry points when no built-in dialect matches.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from os.path import splitext
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.dialects.dialect import Dialect, Surroundings
from cuebook.dialects.findings import Codes, Finding, InvalidPlaybook, Problem
from cuebook.dialects.presentation.notes import Note, kernel_note
from cuebook.kernel.errors import BadInput

if TYPE_CHECKING:
    from cuebook.kernel.engine.engine import WatchFunction

ENTRY_POINTS = "cuebook.dialects"
"""The entry point group. Each entry point names an instance of `Dialect`."""

_BUILT_IN = {
    "graph": "cuebook.dialects.graph:GRAPH",
    "pipeline": "cuebook.dialects.pipeline:PIPELINE",
    "program": "cuebook.dialects.program:PROGRAM",
    "markdown": "cuebook.dialects.markdown:MARKDOWN",
}
"""The built-in dialects, in the order in which they are tried."""

DEFAULT = "markdown"
"""The dialect that is assumed if nothing points to another dialect."""

_loaded: dict[str, Dialect] = {}
"""The built-in dialects that have been loaded."""
_registered: dict[str, Dialect] = {}
_installed: dict[str, Dialect] | None = None
"""The dialects of entry points; None until they are loaded."""


def register(dialect: Dialect) -> None:
    """Adds a dialect for this process. Raises `BadInput` if its name is already taken."""
    known = _named(dialect.name)
    if known is not None and known is not dialect:
        raise BadInput(f"There is already a dialect named '{dialect.name}'.", fix="Choose another name.")
    _registered[dialect.name] = dialect


def unregister(name: str) -> None:
    """Removes a dialect that `register` added."""
    _registered.pop(name, None)


def dialects() -> tuple[Dialect, ...]:
    """All dialects, in the order in which they are tried."""
    return tuple(_each())


def _each() -> Iterator[Dialect]:
    """Built-in dialects come first, so that entry points are not loaded if a built-in dialect recognises the text."""
    for name in _BUILT_IN:
        yield _built_in(name)
    yield from list(_registered.values())
    yield from (one for one in _entry_points().values() if one.name not in _registered)


def _built_in(name: str) -> Dialect:
    if name not in _loaded:
        _loaded[name] = _object(_BUILT_IN[name])
    return _loaded[name]


def _object(place: str) -> Dialect:
    module, _, name = place.partition(":")
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, Dialect)
    return found


def _entry_points() -> dict[str, Dialect]:
    global _installed
    if _installed is None:
        from importlib.metadata import entry_points

        _installed = {}
        for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: one.name):
            dialect = point.load()
            if not isinstance(dialect, Dialect):
                raise BadInput(
                    f"The entry point '{point.name}' of {ENTRY_POINTS} is not a dialect: {point.value}.",
                    fix="It must name an instance of cuebook.dialects.Dialect; correct or uninstall its package.",
                )
            if dialect.name in _BUILT_IN or dialect.name in _installed:
                raise BadInput(
                    f"There is already a dialect named '{dialect.name}': {point.value} cannot be added.",
                    fix="Uninstall one of the packages.",
                )
            _installed[dialect.name] = dialect
    return _installed


def _named(name: str) -> Dialect | None:
    if name in _BUILT_IN:
        return _built_in(name)
    return _registered.get(name) or _entry_points().get(name)


def is_known(name: str) -> bool:
    """Whether there is a dialect with this name."""
    return name in _BUILT_IN or _named(name) is not None


def find(name: str) -> Dialect | None:
    """The dialect with this name; None if there is none, as for a Python program."""
    return _named(name)


def note(dialect: str, name: str, data: Mapping[str, Any]) -> Note:
    """A journal note in readable form."""
    found = find(dialect)
    return kernel_note(name, data) if found is None else found.note(name, data)


def names() -> tuple[str, ...]:
    return tuple(one.name for one in dialects())


def named(name: str) -> Dialect:
    """The dialect with this name. Raises `BadInput` if there is none."""
    found = _named(name)
    if found is None:
        raise BadInput(
            f"There is no dialect named '{name}'.", fix="Upgrade Cuebook, or install the package that adds the dialect."
        )
    return found


# --- detection -----------------------------------------------------------------------------------------------

LARGEST = 20_000_000
"""The maximum number of bytes to read. No dialect accepts a larger file."""


def text_of(data: bytes) -> str:
    """Decodes a playbook file. Raises `UnicodeDecodeError` if it is not text, unless it is too large anyway."""
    return data.decode(errors="strict" if len(data) <= LARGEST else "replace")


UNKNOWN_CODE = "UNKNOWN_PLAYBOOK"
UNKNOWN = "this is not a playbook of any known dialect."
"""The message for text that no dialect recognises."""
_MOST_READ = 50_000
"""The maximum length of unrecognised text that is checked for syntax errors, in characters."""


def whole(text: str, name: str, read: Callable[[str], str]) -> str:
    """A playbook's text with its imports. In a dialect without imports, the text itself."""
    dialect = recognised(text, name)
    return text if dialect is None else dialect.whole(text, name, read)


def recognised(text: str, name: str) -> Dialect | None:
    """The dialect of the text; None if no dialect recognises it."""
    return next((dialect for dialect in _each() if dialect.recognises(text, name)), None)


def detect(text: str, name: str) -> Dialect:
    """The dialect of the text. Raises `BadInput` with the reason if no dialect recognises it."""
    dialect = recognised(text, name)
    if dialect is not None:
        return dialect
    problem = unknown(text, name)
    if problem.line is not None:
        raise InvalidPlaybook(name, [problem], codes=True)
    raise BadInput(f"{name}: {problem.message}", fix=problem.fix)


def check(text: str, name: str, around: Surroundings) -> list[Finding]:
    """All findings for a playbook of any dialect."""
    dialect = _presumed(text, name)
    if dialect is not None:
        return dialect.check(text, name, around)
    problem = unknown(text, name)
    words = problem.message[:1].upper() + problem.message[1:].removesuffix(".") + "."
    return [Finding(problem.code, "error", words, problem.line or 1, fix=problem.fix)]


def codes() -> Codes:
    """The severity and meaning of every finding code."""
    known = {code: meaning for dialect in dialects() for code, meaning in dialect.codes.items()}
    return {**known, UNKNOWN_CODE: ("error", "The file is not a playbook.")}


def by_suffix(name: str) -> Dialect:
    """The dialect that usually has files with this suffix."""
    found = (one for one in _each() if name.lower().endswith(one.suffixes))
    return next(found, None) or named(DEFAULT)


def presumed(text: str, name: str) -> Dialect:
    """Like `detect`, but assumes the default dialect, which then reports the problems, if the name has no suffix."""
    return _presumed(text, name) or detect(text, name)


def _presumed(text: str, name: str) -> Dialect | None:
    found = recognised(text, name)
    return named(DEFAULT) if found is None and not splitext(name)[1] else found


def unknown(text: str, name: str) -> Problem:
    """The problem with text that no dialect recognises: it is empty, has a syntax error, or is not a playbook."""
    from cuebook.formats.values import Malformed
    from cuebook.formats.yaml import read_yaml_or_json

    problem = Problem(UNKNOWN, fix=_looks(), code=UNKNOWN_CODE)
    if not text.strip("\ufeff \t\r\n"):
        return msgspec.structs.replace(problem, message="this is not a playbook: the file is empty.")
    suffix = splitext(name)[1].lower()
    if suffix in (".yml", ".yaml", ".json") and len(text) <= _MOST_READ:
        try:
            read_yaml_or_json(text, suffix == ".json", _MOST_READ, "Shorten it.")
        except Malformed as error:
            return Problem(error.message, error.line, error.fix, "PARSE")
    near = (dialect.near_miss(text, name) for dialect in _each())
    return next((one for one in near if one is not None), problem)


def _looks() -> str:
    """A description of what playbooks look like in each dialect."""
    each = "; ".join(one.recognised_by for one in reversed(dialects()) if one.recognised_by)
    return f"{each[:1].upper()}{each[1:]}."


# --- watches for streaming replies ----------------------------------------------------------------------------


class _Watches(Mapping[str, "Callable[..., WatchFunction]"]):
    """The watches of all dialects. They are loaded when a model is called, because most runs use none."""

    def __getitem__(self, name: str) -> Callable[..., WatchFunction]:
        for dialect in _each():
            if name in dialect.watches:
                return dialect.watches[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for dialect in dialects() for name in dialect.watches))

    def __len__(self) -> int:
        return len(list(iter(self)))


WATCHES: Mapping[str, Callable[..., WatchFunction]] = _Watches()
"""The watches by the name that effects use."""
