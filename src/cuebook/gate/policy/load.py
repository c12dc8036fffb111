"""Finds and reads policy files. Mistakes are never ignored: each raises an error with the line number."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, get_args

from cuebook.formats.builder import Limits
from cuebook.formats.duration import EXPECTED, seconds_of
from cuebook.formats.toml import read_toml
from cuebook.formats.values import Key, Malformed, Value, decoded, read_file
from cuebook.gate.policy.model import (
    AGENT,
    CANCELLERS,
    CHECKING,
    TABLES,
    ApprovalWishes,
    Bundle,
    Decision,
    Layer,
    Policy,
    Rules,
    RunWishes,
    Whose,
)
from cuebook.gate.policy.patterns import LONGEST, is_literal
from cuebook.gate.policy.targets import parsed, whole_labels
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import OnExpiry

USER_FILE = "policy"
PROJECT_FILE = "cuebook.policy"
VERSION = 1

_LARGEST = 250_000
"""The maximum size of a policy file, in bytes."""
_MOST_SECONDS = 1e11
"""The longest duration, about three thousand years."""
_LIMITS = Limits(depth=8, values=50_000)


def _read_yaml(text: str, limits: Limits) -> Value:
    from cuebook.formats.yaml import read_yaml

    return read_yaml(text, limits)


_READERS = {".toml": read_toml, ".yaml": _read_yaml, ".yml": _read_yaml}
SUFFIXES = tuple(_READERS)

Trusted = Callable[[Path, str], bool]
"""Whether the user trusts the file with exactly this content, identified by its digest."""


class FoundFile(NamedTuple):
    whose: Whose
    path: Path


class Source(NamedTuple):
    """The content of a policy file as plain values, with the line of each."""

    where: str
    values: dict[str, Any]
    lines: dict[Key, int]

    def place(self, key: Key = ()) -> str:
        """`FILE:LINE` of a value, or of the nearest enclosing one."""
        while key and key not in self.lines:
            key = key[:-1]
        return f"{self.where}:{self.lines[key]}" if key in self.lines else self.where


# --- finding ------------------------------------------------------------------------------------------


def find(config_folder: Path, folder: Path) -> list[FoundFile]:
    """The user's policy file, and all project policy files from the working folder upwards, the nearest first.

    This way, a file in a subfolder can never hide a restriction from a folder above.
    """
    found = []
    users = _file_in(config_folder, USER_FILE)
    if users is not None:
        found.append(FoundFile("user", users))
    for place in (folder, *folder.parents):
        projects = _file_in(place, PROJECT_FILE)
        if projects is not None:
            found.append(FoundFile("project", projects))
    return found


def _file_in(folder: Path, name: str) -> Path | None:
    beginning = os.path.join(folder, name)
    there = [Path(beginning + suffix) for suffix in SUFFIXES if os.path.lexists(beginning + suffix)]
    if len(there) > 1:
        listed = " and ".join(path.name for path in there)
        raise BadInput(f"{folder}: there are {listed}, but only one of them may exist.", fix="Remove one of them.")
    if there and not there[0].is_file():
        # An intended policy must not be skipped silently.
        raise BadInput(f"{there[0]}: this is not a file.", fix="Remove or replace it.")
    return there[0] if there else None


# --- loading ------------------------------------------------------------------------------------------


def load_policy(config_folder: Path, folder: Path, trusted: Trusted) -> Policy:
    """The user's current policy in this folder."""
    return Policy(tuple(load_layer(found, trusted) for found in find(config_folder, folder)))


def load_layer(found: FoundFile, trusted: Trusted) -> Layer:
    """The layer of one file. A project file may allow something only if its current content is trusted."""
    data = read_file(found.path, _LARGEST)
    may_allow = found.whose == "user" or trusted(found.path, content_digest(data))
    bundle, lines = _read(found.path, data)
    return Layer(found.whose, str(found.path), bundle, may_allow, lines)


def load_bundle(path: Path) -> tuple[Bundle, dict[str, int]]:
    """The bundle of a file, and the line of each rule."""
    return _read(path, read_file(path, _LARGEST))


def bundle_from(values: Mapping[str, Any], where: str = "policy") -> Bundle:
    """The bundle for plain values, structured as in a policy file."""
    return _bundle_of(Source(where, dict(values), {}))[0]


def playbook_layer(name: str, values: Mapping[str, Any], lines: Mapping[Key, int] | None = None) -> Layer:
    """The layer for a playbook's own policy. It can only restrict."""
    bundle, found = _bundle_of(Source(name, dict(values), dict(lines or {})))
    return Layer("playbook", name, bundle, False, found)


@lru_cache(maxsize=32)
def _read(path: Path, data: bytes) -> tuple[Bundle, dict[str, int]]:
    # The files are read before every effect, but hardly ever change.
    return _bundle_of(_parse(path, data))


def _parse(path: Path, data: bytes) -> Source:
    """Parses the content of a file in the format that its suffix indicates."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise BadInput(f"{path}: a policy must be a .toml or .yaml file.", fix="Rename it.")
    try:
        value = reader(decoded(data, str(path)), _LIMITS)
    except Malformed as error:
        raise error.in_file(str(path)) from None
    if value.kind not in ("map", "null"):
        raise BadInput(f"{path}: a policy must be a table of settings.", fix="Write settings such as `version: 1`.")
    return Source(str(path), value.plain or {}, value.lines_by_key())


def check_text(path: Path, text: str) -> None:
    """Raises an error with the line number if this text would not be a valid policy file."""
    _read(path, text.encode())


def content_of(path: Path) -> tuple[str, str]:
    """The text of a valid policy file, and the digest that trust in it is bound to."""
    data = read_file(path, _LARGEST)
    _read(path, data)
    return data.decode("utf-8-sig"), content_digest(data)


def content_digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def trust_subject(path: Path) -> str:
    """The name under which trust in a policy file is stored."""
    return f"policy {path.resolve()}"


# --- the format of a file --------------------------------------------------------------------------------


class _Unfit(Exception):
    """Its message says what the value must be, and `fix` what to do."""

    def __init__(self, words: str, fix: str = "Correct or remove it.") -> None:
        super().__init__(words)
        self.fix = fix


def _bundle_of(source: Source) -> tuple[Bundle, dict[str, int]]:
    readers: dict[str, Callable[[_Table], Any]] = dict.fromkeys(TABLES.values(), _rules)
    readers["approvals"] = _approvals
    readers["runs"] = _runs
    known = ["version", "preset", "allowed_domains", "postconditions", "from_outside", *readers]
    values: dict[str, Any] = {}
    root = _Table(source, (), source.values, known)
    for name, given in source.values.items():
        if name == "version":
            root.checked(name, _version)
        elif name == "allowed_domains":
            values[name] = root.listed(name, _domain)
        elif name == "postconditions":
            values[name] = root.checked(name, lambda value: _one_of(value, CHECKING))
        elif name == "preset":
            values[name] = root.checked(name, lambda value: _one_of(value, (AGENT,)))
        elif name == "from_outside":
            values[name] = root.checked(name, lambda value: _one_of(value, ("allow", "ask")))
        else:
            values[name] = readers[name](_Table(source, (name,), given, _FIELDS[name]))
    return Bundle(**values), {_dotted(key): line for key, line in source.lines.items()}


_RULES = ["allow", "ask", "deny", "default"]
_FIELDS = {
    **dict.fromkeys(TABLES.values(), _RULES),
    "approvals": ["expires_after", "on_expiry", "different_person"],
    "runs": ["cancel"],
}


class _Table:
    """A table in the file, with the names that it may contain."""

    def __init__(self, source: Source, key: Key, given: Any, known: list[str]) -> None:
        self.source, self.key, self.name = source, key, _dotted(key)
        if not isinstance(given, dict):
            fix = f"Write it as [{self.name}] with its settings below."
            raise BadInput(f"{source.place(key)}: {self.name} must be a table.", fix=fix)
        self.given = given
        for name in given:
            if name not in known:
                raise self._unknown(name, known)

    def checked(self, name: str, check: Callable[[Any], Any]) -> Any:
        return self._fit((*self.key, name), self.given[name], check)

    def listed(self, name: str, check: Callable[[Any], str]) -> tuple[str, ...]:
        key, given = (*self.key, name), self.given[name]
        if not isinstance(given, list | tuple):
            where = f"{self.source.place(key)}: {_dotted(key)}"
            raise BadInput(f"{where} must be a list of strings.", fix=f'Write it like {name} = ["..."].')
        return tuple(self._fit((*key, number), one, check) for number, one in enumerate(given))

    def _fit(self, key: Key, given: Any, check: Callable[[Any], Any]) -> Any:
        try:
            return check(given)
        except _Unfit as unfit:
            where = f"{self.source.place(key)}: {_dotted(key)}"
            raise BadInput(f"{where} {unfit}, not {_shown(given)}.", fix=unfit.fix) from None

    def _unknown(self, name: str, known: list[str]) -> BadInput:
        close = get_close_matches(name, known, n=1)
        hint = f"Did you mean '{close[0]}'?" if close else f"Known settings: {', '.join(known)}."
        where = self.source.place((*self.key, name))
        return BadInput(f"{where}: there is no setting '{_dotted((*self.key, name))}'.", fix=hint)


def _rules(table: _Table) -> Rules:
    lists = {
        decision: table.listed(
            decision, _PATTERNS.get((table.name, decision), _PATTERNS.get((table.name, ""), _pattern))
        )
        for decision in get_args(Decision)
        if decision in table.given
    }
    return Rules(**lists, default=table.checked("default", _decision) if "default" in table.given else None)


def _approvals(table: _Table) -> ApprovalWishes:
    checks: dict[str, Callable[[Any], Any]] = {
        "expires_after": _expiry,
        "on_expiry": _on_expiry,
        "different_person": _flag,
    }
    return ApprovalWishes(**{name: table.checked(name, checks[name]) for name in table.given})


def _runs(table: _Table) -> RunWishes:
    return RunWishes(**{name: table.checked(name, lambda value: _one_of(value, CANCELLERS)) for name in table.given})


def _version(value: Any) -> None:
    if value != VERSION or isinstance(value, bool):
        raise _Unfit(f"must be {VERSION}", "Use a version of Cuebook that supports this file, or correct it.")


def _pattern(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Unfit("must be a non-empty string", "Put it in quotes, or remove it.")
    if value != value.strip():
        raise _Unfit("must not begin or end with a space")
    if len(value) > LONGEST:
        raise _Unfit(f"must have at most {LONGEST} characters", "Shorten it with a *.")
    if any(not letter.isprintable() and letter not in "\n\t" for letter in value):
        raise _Unfit("must not contain invisible characters")
    return value


def _address(value: Any) -> str:
    pattern = _pattern(value)
    try:
        parsed(pattern)
    except ValueError as error:
        raise _Unfit(str(error)) from None
    return pattern


def _allowed_address(value: Any) -> str:
    pattern = _address(value)
    if not whole_labels(pattern):
        # `example.com*` would also let example.com.evil.net through.
        raise _Unfit("must name its host in full, or as a domain after *.", "Write it like *.example.com.")
    return pattern


def _domain(value: Any) -> str:
    host = _pattern(value)
    try:
        found = parsed(host)
    except ValueError as error:
        raise _Unfit(str(error)) from None
    if not is_literal(host) or "/" in host or " " in host or found.scheme:
        raise _Unfit("must be a single host name", 'Write it like "api.example.com"; patterns belong in [egress].')
    return host


def _path(value: Any) -> str:
    pattern = _pattern(value)
    if ".." in pattern.partition(":")[2].split("/") or ".." in pattern.split("/"):
        raise _Unfit("must not contain ..", "Write a path relative to the workspace, or an absolute path.")
    return pattern


_PATTERNS: dict[tuple[str, str], Callable[[Any], str]] = {
    ("egress", "allow"): _allowed_address,
    ("egress", ""): _address,
    ("files", ""): _path,
}
"""The functions that check patterns, by table and list. Elsewhere, every string is a valid pattern."""


def _decision(value: Any) -> Decision:
    decision: Decision = _one_of(value, get_args(Decision))
    return decision


def _on_expiry(value: Any) -> OnExpiry:
    ending: OnExpiry = _one_of(value, get_args(OnExpiry))
    return ending


def _one_of(value: Any, known: tuple[str, ...]) -> Any:
    if isinstance(value, str) and value in known:
        return value
    close = get_close_matches(str(value), known, n=1)
    quoted = ", ".join(f'"{one}"' for one in known)
    raise _Unfit(f"must be one of {quoted}", f"Did you mean '{close[0]}'?" if close else "Correct or remove it.")


def duration(value: Any) -> float | None:
    """Seconds that an approval or an override lasts; None for `never`. Raises `ValueError` for anything else."""
    seconds = seconds_of(value)
    if seconds is not None and not 0 < seconds < _MOST_SECONDS:
        raise ValueError
    return seconds


def _expiry(value: Any) -> float | None:
    try:
        return duration(value)
    except ValueError:
        raise _Unfit(EXPECTED) from None


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Unfit("must be true or false")
    return value


def _shown(given: Any) -> str:
    return repr(given) if len(repr(given)) <= 60 else f"a {type(given).__name__}"


def _dotted(key: Key) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).lstrip(".")
