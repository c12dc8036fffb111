"""Configuration: `cuebook.toml` of the user, then of the project, then the environment, then flags, in rising order.

Every value remembers where it came from. It knows no provider, opens no store, and never holds a key.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cuebook.config import reach
from cuebook.config.reach import Reach, Search, SkillSettings, ToolServer
from cuebook.kernel.errors import BadInput
from cuebook.kernel.rates import Rate
from cuebook.kernel.run import Budget

FILE = "cuebook.toml"
SANDBOXES = ("auto", "landlock", "bubblewrap", "none")
LIMITS: dict[str, Any] = {
    "limits.seconds": 60.0,
    "limits.max_seconds": 300.0,
    "limits.output": 32_768,
    "limits.max_output": 512_000,
    "limits.cpu_seconds": 60,
    "limits.memory": 1 << 30,
    "limits.processes": 128,
}
PAUSE_EXPIRY = 24 * 3600.0


@dataclass(frozen=True)
class Origin:
    """Where a value was found."""

    place: str
    """A file, an environment variable, a flag, or `default`."""
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.place}:{self.line}" if self.line else self.place


@dataclass(frozen=True)
class Value:
    value: Any
    origin: Origin


@dataclass(frozen=True)
class Provider:
    """A provider as a file describes it; what is not said stays as it is built in."""

    name: str
    origin: Origin
    base_url: str | None = None
    key_env: str | None = None
    protocol: str | None = None
    shared: bool = False
    """Whether a project's file brought it."""


DEFAULT = Origin("default")


@dataclass(frozen=True)
class Config:
    """What was configured, each value with its origin."""

    values: Mapping[str, Value]
    providers: Mapping[str, Provider] = field(default_factory=dict)
    reach: Reach = field(default_factory=Reach)
    user_file: Path | None = None
    project_file: Path | None = None
    """None where there is none up from the working folder."""
    folder: Path = Path()
    """The working folder."""

    def get(self, name: str) -> Any:
        return self.values[name].value

    def origin(self, name: str) -> Origin:
        return self.values[name].origin

    @property
    def budget(self) -> Budget:
        return Budget(*(self.get(f"budget.{part}") for part in ("money", "tokens", "seconds", "steps")))


# --- folders ------------------------------------------------------------------------------------------


def config_folder(environ: Mapping[str, str]) -> Path:
    """The user's configuration, by the custom of the platform."""
    if sys.platform == "darwin":
        return _home(environ) / "Library" / "Application Support" / "cuebook"
    return _xdg(environ, "XDG_CONFIG_HOME", ".config") / "cuebook"


def data_folder(environ: Mapping[str, str]) -> Path:
    """The user's data, by the custom of the platform."""
    if sys.platform == "darwin":
        return _home(environ) / "Library" / "Application Support" / "cuebook"
    return _xdg(environ, "XDG_DATA_HOME", ".local/share") / "cuebook"


def _xdg(environ: Mapping[str, str], name: str, otherwise: str) -> Path:
    given = environ.get(name, "")
    # The convention says that a relative path is to be ignored.
    return Path(given) if given and Path(given).is_absolute() else _home(environ) / otherwise


def _home(environ: Mapping[str, str]) -> Path:
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path.home()
    except RuntimeError:
        raise BadInput("Your home folder is not known.", fix="Set HOME.") from None


def project_file(folder: Path) -> Path | None:
    """The nearest `cuebook.toml`, from this folder upwards."""
    for place in (folder, *folder.parents):
        if (place / FILE).is_file():
            return place / FILE
    return None


# --- what a value may be ------------------------------------------------------------------------------


class _Unfit(Exception):
    """Its text says what the value must be."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Unfit("must be a text")
    return value.strip()


def _model(value: Any) -> str:
    name = _text(value)
    if name != "local" and not all(name.partition("/")[::2]):
        raise _Unfit("must be the name of a model, as in openai/gpt-5 or local")
    return name


def _path(value: Any) -> Path:
    return Path(_text(value)).expanduser()


def _whole(value: Any) -> int:
    number = _number(value)
    if number != int(number) or number < 1:
        raise _Unfit("must be a whole number of at least 1")
    return int(number)


def _number(value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise _Unfit("must be a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) == float("inf"):
        raise _Unfit("must be a number")
    return value


def _amount(value: Any) -> float:
    number = _number(value)
    if number < 0:
        raise _Unfit("must not be negative")
    return float(number)


def _temperature(value: Any) -> float:
    number = _number(value)
    if not 0 <= number <= 2:
        raise _Unfit("must be between 0 and 2")
    return float(number)


def _synchronous(value: Any) -> str:
    name = value.strip().upper() if isinstance(value, str) else ""
    if name not in ("FULL", "NORMAL"):
        raise _Unfit('must be "FULL" or "NORMAL"')
    return name


def _sandbox(value: Any) -> str:
    if value not in SANDBOXES:
        raise _Unfit(f"must be one of {', '.join(SANDBOXES)}")
    return str(value)


def _names(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(
        isinstance(n, str) and _VARIABLE.fullmatch(n.strip()) for n in names
    ):
        example = "LANG,EDITOR" if isinstance(value, str) else '["LANG", "EDITOR"]'
        raise _Unfit(f"must be names of variables, as in {example}")
    return tuple(name.strip() for name in names)


_SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _size(value: Any) -> int:
    if isinstance(value, str) and value.strip()[-1:].lower() in _SIZES:
        text = value.strip()
        return int(_amount(text[:-1]) * _SIZES[text[-1].lower()])
    try:
        return _whole(value)
    except _Unfit:
        raise _Unfit('must be a number of bytes, or a size as in "512M"') from None


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _duration(value: Any) -> float | None:
    if isinstance(value, str):
        text = value.strip().lower()
        if text == "never":
            return None
        if text[-1:] in _UNITS:
            return _amount(text[:-1]) * _UNITS[text[-1]]
    try:
        return _amount(value)
    except _Unfit:
        raise _Unfit('must be seconds, a time as in "24h" or "7d", or "never"') from None


def _rate(value: Any) -> Rate | None:
    text = value.strip().lower() if isinstance(value, str) else ""
    rate = Rate.written(text)
    if rate is None and text != "none":
        raise _Unfit('must be a number of runs in a time, as in "20/hour", or "none"')
    return rate


def _folders(value: Any) -> tuple[Path, ...]:
    given = value.split(os.pathsep) if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(
        isinstance(one, str | Path) and str(one).strip() for one in given
    ):
        raise _Unfit('must be a list of folders, as in ["playbooks", "more"]')
    return tuple(Path(one).expanduser() for one in given)


_KINDS: dict[str, Callable[[Any], Any]] = {
    "model": _model,
    "store": _path,
    "synchronous": _synchronous,
    "max_tokens": _whole,
    "temperature": _temperature,
    "pause_expiry": _duration,
    "rate_limit": _rate,
    "prices": _path,
    "sandbox": _sandbox,
    "workspace": _path,
    "prompts": _path,
    "playbooks": _path,
    "pass_env": _names,
    "limits.seconds": _amount,
    "limits.max_seconds": _amount,
    "limits.output": _size,
    "limits.max_output": _size,
    "limits.cpu_seconds": _whole,
    "limits.memory": _size,
    "limits.processes": _whole,
    "budget.money": _amount,
    "budget.tokens": _whole,
    "budget.seconds": _amount,
    "budget.steps": _whole,
    "serve.folders": _folders,
}
"""Every value that can be configured, and what it may be."""

ENVIRONMENT = {name: f"CUEBOOK_{name.replace('.', '_').upper()}" for name in _KINDS}

_GUARDED = ("store", "rate_limit", "prices", "sandbox", "workspace", "pass_env")
"""What a project's file may not set: it may come with a clone, and must not open what the user closed, nor bring
approvals of its own in a store, nor say what things cost.
"""

_BUILT_IN = ("openai", "anthropic", "openrouter", "ollama")
"""Providers that a project's file may not lead elsewhere."""
_REACH = ("mcp", "tools", "search", "skills")
"""Tables about what playbooks may reach."""
_PROVIDER_FIELDS = ("base_url", "key_env", "protocol")
_NAME = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEYLIKE = re.compile(r"(.*[_-])?(api[_-]?key|key|token|secret|password|credentials?)", re.IGNORECASE)


# --- loading ------------------------------------------------------------------------------------------


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Config:
    """Reads everything there is. A flag whose value is None was not given. Creates nothing."""
    environ = os.environ if environ is None else environ
    folder = _working_folder() if folder is None else folder
    values = {name: Value(None, DEFAULT) for name in _KINDS}
    values["store"] = Value(data_folder(environ) / "cuebook.db", DEFAULT)
    values["synchronous"] = Value("FULL", DEFAULT)
    values["pause_expiry"] = Value(PAUSE_EXPIRY, DEFAULT)
    values["sandbox"] = Value("auto", DEFAULT)
    values["pass_env"] = Value((), DEFAULT)
    values["serve.folders"] = Value((), DEFAULT)
    for name, otherwise in LIMITS.items():
        values[name] = Value(otherwise, DEFAULT)
    providers: dict[str, Provider] = {}
    tables = _Tables()

    users = config_folder(environ) / FILE
    projects = project_file(folder)
    if users.is_file():
        _File(users, shared=False).into(values, providers, tables)
    if projects is not None and projects != users:
        _File(projects, shared=True).into(values, providers, tables)
    for name, variable in ENVIRONMENT.items():
        given = environ.get(variable, "")
        if given.strip():
            values[name] = Value(_checked(name, given, variable), Origin(variable))
    for name, given in (flags or {}).items():
        if given is not None:
            flag = "--" + name.replace(".", "-").replace("_", "-")
            values[name] = Value(_checked(name, given, flag), Origin(flag))
    around = projects.parent if projects is not None else folder
    if values["workspace"].value is None:
        values["workspace"] = Value(around, DEFAULT)
    for name in ("prompts", "playbooks"):
        if values[name].value is None and _lies_in(around / name, around):
            values[name] = Value(around / name, DEFAULT)
    for part in ("seconds", "output"):
        _check_most(values, f"limits.{part}", f"limits.max_{part}")
    found = Reach(tables.servers, tables.functions, tables.search, tables.skills)
    return Config(values, providers, found, users, projects, folder)


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:
        raise BadInput("The working folder does not exist any more.", fix="Change to one that does.") from None


def _lies_in(path: Path, folder: Path) -> bool:
    """Whether a path leads nowhere else, whatever links there are on the way."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _check_most(values: Mapping[str, Value], name: str, most: str) -> None:
    usual, limit = values[name], values[most]
    if usual.value <= limit.value:
        return
    where = limit.origin if usual.origin == DEFAULT else usual.origin

    def said(name: str, value: Value) -> str:
        return f"{name} is {value.value:g}" + ("" if value.origin == where else f" ({value.origin})")

    raise BadInput(
        f"{where}: {said(name, usual)} and {said(most, limit)}: nothing can be more than the most.",
        fix=f"Raise {most}, or lower {name}.",
    )


def _checked(name: str, given: Any, where: str) -> Any:
    try:
        return _KINDS[name](given)
    except _Unfit as why:
        raise BadInput(f"{where}: {name} {why}, not {_shown(given)}.", fix="Correct or remove it.") from None


def _shown(given: Any) -> str:
    return repr(given) if len(repr(given)) <= 60 else f"a {type(given).__name__}"


@dataclass
class _Tables:
    """What the files say about tools, as it is gathered."""

    servers: dict[str, ToolServer] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    search: Search | None = None
    skills: dict[str, SkillSettings] = field(default_factory=dict)


class _File:
    """One `cuebook.toml`. A shared one lies in a project, where others may have written it."""

    def __init__(self, path: Path, *, shared: bool) -> None:
        self.path = path
        self.shared = shared
        try:
            self.text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise BadInput(f"{path}: the file is not UTF-8.", fix="Save it as UTF-8.") from None
        except OSError as error:
            raise BadInput(f"{path}: the file cannot be read: {error.strerror}.", fix="Check it.") from None
        try:
            self.tables = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"{self._where_of(error)}: this is not TOML: {_said(error)}.", fix="Correct it.") from None

    def into(self, values: dict[str, Value], providers: dict[str, Provider], tables: _Tables) -> None:
        if self.shared:
            self._check_model()
        for name, given in self.tables.items():
            if name == "providers":
                self._providers(given, providers)
            elif name in _REACH:
                self._reach(name, self._table(name, given), tables)
            elif name in ("budget", "limits", "serve"):
                for part, amount in self._table(name, given).items():
                    self._value(f"{name}.{part}", amount, values)
            else:
                self._value(name, given, values)

    def _value(self, name: str, given: Any, values: dict[str, Value]) -> None:
        if name not in _KINDS:
            raise self._unknown(name, [*_KINDS, "providers", *_REACH])
        origin = self._origin(name)
        if self.shared and (name in _GUARDED or name.startswith("limits.")):
            raise BadInput(
                f"{origin}: a project's file may not set '{name}'.",
                fix=f"Set it in the {FILE} of your user, in {ENVIRONMENT[name]}, or leave it out.",
            )
        value = _checked(name, given, str(origin))
        if isinstance(value, Path):
            value = self._placed(name, value, origin)
        elif name == "serve.folders":
            value = tuple(self._placed(name, folder, origin) for folder in value)
        values[name] = Value(value, origin)

    def _placed(self, name: str, path: Path, origin: Origin) -> Path:
        """A path from the file's folder; what a project's file leads to lies in the project."""
        placed = self.path.parent / path
        if self.shared and not _lies_in(placed, self.path.parent):
            raise BadInput(
                f"{origin}: '{name}' of a project's file must lie in the project's folder, and {placed} does not.",
                fix=f"Set it in the {FILE} of your user, in {ENVIRONMENT[name]}, or move what it leads to.",
            )
        return placed

    def _reach(self, name: str, table: dict[str, Any], tables: _Tables) -> None:
        def refuse(dotted: str, wrong: str, fix: str) -> BadInput:
            return BadInput(f"{self._origin(dotted)}: {wrong}", fix=fix)

        if name == "search":
            tables.search = reach.search(table, refuse, shared=self.shared)
            return
        for one, value in table.items():
            if name == "tools":
                tables.functions[one] = reach.function(one, value, refuse, shared=self.shared)
                continue
            if name == "skills":
                told, where = self._table(f"skills.{one}", value), str(self._origin(f"skills.{one}"))
                tables.skills[one] = reach.skill(one, told, where, refuse, shared=self.shared)
                continue
            if self.shared and one in tables.servers:
                raise refuse(f"mcp.{one}", f"Your own file has a tool server '{one}' already.", "Choose another name.")
            described = self._table(f"mcp.{one}", value)
            where = str(self._origin(f"mcp.{one}"))
            made = reach.server(one, described, where, refuse, shared=self.shared)
            if self.shared and not _lies_in(self.path.parent / made.cwd, self.path.parent):
                raise refuse(
                    f"mcp.{one}.cwd", f"The cwd '{made.cwd}' is a link that leads out of the project.", "Correct it."
                )
            tables.servers[one] = made

    def _providers(self, given: Any, providers: dict[str, Provider]) -> None:
        for name, table in self._table("providers", given).items():
            dotted = f"providers.{name}"
            origin = self._origin(dotted)
            if not _NAME.fullmatch(name) or name == "local":
                raise BadInput(
                    f"{origin}: '{name}' cannot be the name of a provider.",
                    fix="Choose small letters, digits, - and _, beginning with a letter; 'local' is taken.",
                )
            texts: dict[str, str] = {}
            for part, value in self._table(dotted, table).items():
                texts[part] = self._provider_field(dotted, part, value)
            if self.shared:
                self._check_shared(name, texts, origin, providers)
            providers[name] = Provider(name, origin, **texts, shared=self.shared)

    def _provider_field(self, dotted: str, part: str, value: Any) -> str:
        name = f"{dotted}.{part}"
        if part not in _PROVIDER_FIELDS:
            raise self._unknown(name, [f"{dotted}.{known}" for known in _PROVIDER_FIELDS])
        where = self._origin(name)
        if not isinstance(value, str) or not value:
            raise BadInput(f"{where}: {name} must be a text.", fix="Put it in quotes.")
        if part == "key_env" and not _VARIABLE.fullmatch(value):
            raise BadInput(
                f"{where}: {name} must be the name of an environment variable, not a key.",
                fix='Write it as in key_env = "MY_SERVER_KEY".',
            )
        if part == "protocol" and value not in ("openai", "anthropic"):
            raise BadInput(f'{where}: {name} must be "openai" or "anthropic".', fix="Correct or remove it.")
        if part == "base_url":
            self._check_address(name, value, where)
        return value

    def _check_address(self, name: str, value: str, where: Origin) -> None:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            fix = 'Write it as in base_url = "http://127.0.0.1:8000/v1".'
            raise BadInput(f"{where}: {name} must be an address.", fix=fix)
        if parts.username or parts.password:
            raise BadInput(f"{where}: {name} holds a password.", fix="Take it out and use key_env.")

    def _check_shared(
        self, name: str, texts: Mapping[str, str], origin: Origin, providers: Mapping[str, Provider]
    ) -> None:
        """A project's file may come with a clone: it must not lead a key of the user's to an address of its own."""
        if name in _BUILT_IN or name in providers or "key_env" in texts:
            raise BadInput(
                f"{origin}: a project's file may not say where keys and prompts are sent, so it cannot set provider '{name}'.",
                fix=f"Move the table to the {FILE} of your user; `cuebook doctor` shows where that is.",
            )

    def _check_model(self) -> None:
        """A clone that brought both a provider and the choice of it would have every prompt sent where it likes."""
        model, own = self.tables.get("model"), self.tables.get("providers")
        provider = model.strip().partition("/")[0] if isinstance(model, str) else ""
        if isinstance(own, dict) and provider in own:
            raise BadInput(
                f"{self._origin('model')}: a project's file may not choose a model of provider '{provider}', which it"
                " describes itself: every prompt would go there.",
                fix=f"If you mean it, choose the model in the {FILE} of your user, in {ENVIRONMENT['model']} or with"
                " --model.",
            )

    def _table(self, name: str, given: Any) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise BadInput(f"{self._origin(name)}: {name} must be a table.", fix=f"Write it as [{name}].")
        return given

    def _unknown(self, name: str, known: list[str]) -> BadInput:
        where, last = self._origin(name), name.rpartition(".")[2]
        if _KEYLIKE.fullmatch(last):
            provider = name.split(".")[1] if name.startswith("providers.") else "PROVIDER"
            return BadInput(
                f"{where}: '{name}' looks like a key, and keys are never read from a file.",
                fix=f"Remove it, then use `cuebook keys set {provider}` or the provider's environment variable.",
            )
        close = get_close_matches(name, known, n=1)
        hint = f"Did you mean '{close[0]}'?" if close else f"Known are: {', '.join(known)}."
        return BadInput(f"{where}: there is no setting '{name}'.", fix=hint)

    def _origin(self, name: str) -> Origin:
        return Origin(str(self.path), self._line_of(name))

    def _line_of(self, name: str) -> int | None:
        """The line that sets a dotted name, or begins its table. TOML's reader keeps no positions."""
        table = ""
        for number, line in enumerate(self.text.split("\n"), start=1):
            header = re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line)
            if header:
                table = re.sub(r"[\s\"']", "", header[1])
                if table == name or table.startswith(f"{name}."):
                    return number
                continue
            key = re.match(r"\s*([\w\"'.-]+(?:\s*\.\s*[\w\"'.-]+)*)\s*=", line)
            if key:
                dotted = re.sub(r"[\s\"']", "", key[1])
                dotted = f"{table}.{dotted}" if table else dotted
                if dotted == name or dotted.startswith(f"{name}."):
                    return number
        return None

    def _where_of(self, error: Exception) -> Origin:
        found = re.search(r"line (\d+)", str(error))
        return Origin(str(self.path), int(found[1]) if found else self.text.count("\n") + 1)


def _said(error: Exception) -> str:
    return re.sub(r"\s*\(at [^)]*\)", "", str(error)).strip().rstrip(".")
