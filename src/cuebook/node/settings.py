"""The settings of a node: from the command line and from a TOML file; what the command line says wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cuebook.config.settings import checked
from cuebook.config.source import ConfigFile
from cuebook.formats.addresses import Url, parse_place, parse_url
from cuebook.gate.policy.patterns import LONGEST
from cuebook.gate.sandbox import Setting
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Limits
from cuebook.node.capabilities import command, desktop, packages
from cuebook.node.capabilities import files as files_capability
from cuebook.node.capabilities.capability import Capability
from cuebook.node.capabilities.files import Root
from cuebook.node.identity import folder_of
from cuebook.system.folders import data_folder, lies_in, working_folder
from cuebook.system.network import is_loopback

TOKEN = "CUEBOOK_NODE_TOKEN"
"""The variable with the pairing token."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    server: Url
    """The address of the server: scheme, host, port, and the path that a proxy serves it below."""
    data: Path
    """Where keys and ledgers are kept."""
    folder: Path
    """The folder that commands work in."""
    allow: tuple[str, ...] = ()
    files: tuple[Root, ...] = ()
    offer: tuple[str, ...] = ()
    desktop: bool = True
    network: tuple[str, ...] = ()
    sandbox: Setting = "auto"
    pass_env: tuple[str, ...] = ()
    memory: int = Limits().memory
    processes: int = Limits().processes
    seconds: float = 86400.0
    """How long any request may take, whatever the server says."""
    at_once: int = 4
    config: Path | None = None
    """The file that these settings came from."""


def load(flags: Mapping[str, Any], environ: Mapping[str, str]) -> NodeSettings:
    """The settings of this call. A flag that is None or empty was not set. Raises `BadInput`."""
    given = {name: (value, _flag(name)) for name, value in flags.items() if value not in (None, (), "", False)}
    if given.pop("no_desktop", None):
        given["desktop"] = (False, "--no-desktop")
    file = given.pop("config", None)
    config = None if file is None else Path(file[0]).expanduser().absolute()
    if config is not None:
        given = {**_from_file(config), **given}
    insecure = bool(given.pop("insecure", (False, ""))[0])
    values = {name: KINDS[name](value, where) for name, (value, where) in given.items()}
    if "server" not in values:
        raise BadInput("The address of the server is missing.", fix="Add it: --connect https://cuebook.example.com.")
    _check_transport(values["server"], insecure)
    values.setdefault("data", data_folder(environ) / "node")
    values.setdefault("folder", working_folder())
    settings = NodeSettings(config=config, **values)
    _check_places(settings)
    return settings


def capabilities(settings: NodeSettings, warn: Callable[[str], None]) -> dict[str, Capability]:
    """Everything that the settings offer, by name. Raises `BadInput` if that is nothing."""
    found: list[Capability | None] = []
    if settings.allow:
        rules = command.Rules(
            settings.allow,
            settings.folder,
            settings.sandbox,
            settings.network,
            settings.pass_env,
            settings.memory,
            settings.processes,
            fixed=() if settings.config is None else (settings.config,),
        )
        found.append(command.capability(rules, warn))
        for root in settings.files:
            if root.writable and (lies_in(settings.folder, root.path) or lies_in(root.path, settings.folder)):
                warn(
                    f"--files {root.path}:rw includes files of the allowed commands, which work in {settings.folder}: anyone who "
                    "can write a Makefile, a script or .git/config there decides what they do. Keep the two folders apart."
                )
    found.append(files_capability.capability(settings.files) if settings.files else None)
    found.append(desktop.capability() if settings.desktop else None)
    found += packages.capabilities(settings.offer)
    offered: dict[str, Capability] = {}
    for one in found:
        if one is not None and offered.setdefault(one.name, one) is not one:
            raise BadInput(f"Two packages offer the capability '{one.name}'.", fix="Leave out one of them.")
    if not offered:
        raise BadInput(
            "This node would offer nothing.",
            fix="Allow a command (--allow 'make test'), a folder (--files DIR) or an installed capability (--offer NAME).",
        )
    return offered


# --- values -----------------------------------------------------------------------------------------


def _server(value: Any, where: str) -> Url:
    text = _text(value, where)
    for given, meant in (("ws://", "http://"), ("wss://", "https://")):
        if text.startswith(given):
            text = meant + text.removeprefix(given)
    try:
        url = parse_url(text)
    except BadInput as error:
        raise BadInput(f"{where}: {error.message}", fix=error.fix) from None
    if url.query:
        raise BadInput(f"{where}: the address of a server has no query.", fix="Leave out what follows the '?'.")
    return url


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{where}: expected a text.", fix="Correct or remove it.")
    return value.strip()


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) and one.strip() for one in value):
        raise BadInput(f"{where}: expected a list of texts.", fix='For example: ["make test"].')
    return tuple(one.strip() for one in value)


def _patterns(value: Any, where: str) -> tuple[str, ...]:
    patterns = _texts(value, where)
    if any(len(one) > LONGEST for one in patterns):
        raise BadInput(f"{where}: a pattern has more than {LONGEST:,} characters.", fix="Use a shorter one.")
    return patterns


def _hosts(value: Any, where: str) -> tuple[str, ...]:
    hosts = _texts(value, where)
    for one in hosts:
        try:
            parse_place(one)
        except BadInput as error:
            raise BadInput(f"{where}: {error.message}", fix=error.fix) from None
    return hosts


def _roots(value: Any, where: str) -> tuple[Root, ...]:
    return tuple(Root.parse(one, where) for one in _texts(value, where))


def _path(value: Any, where: str) -> Path:
    return Path(_text(value, where)).expanduser().absolute()


def _folder(value: Any, where: str) -> Path:
    path = _path(value, where)
    if not path.is_dir():
        raise BadInput(f"{where}: {path} is not a folder.", fix="Create it, or correct the path.")
    return path


def _switch(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{where}: expected true or false, got {value!r}.", fix="Correct it.")
    return value


def _as(setting: str) -> Callable[[Any, str], Any]:
    """A value of the same kind as a setting of Cuebook."""
    return lambda value, where: checked(setting, value, where)


KINDS: dict[str, Callable[[Any, str], Any]] = {
    "server": _server,
    "data": _path,
    "folder": _folder,
    "allow": _patterns,
    "files": _roots,
    "offer": _texts,
    "desktop": _switch,
    "network": _hosts,
    "sandbox": _as("sandbox"),
    "pass_env": _as("pass_env"),
    "memory": _as("limits.memory"),
    "processes": _as("limits.processes"),
    "seconds": _as("limits.seconds"),
    "at_once": _as("worker.at_once"),
}
"""The settings, with the function that checks the value of each."""

_IN_FILE = {"connect": "server", "insecure": "insecure"}
"""The keys of a file that are not called like their setting."""
_PATHS = ("data", "folder")


def _flag(name: str) -> str:
    return "--connect" if name == "server" else f"--{name.replace('_', '-')}"


def _from_file(path: Path) -> dict[str, tuple[Any, str]]:
    """The settings in a file, each with its line. Relative paths are relative to the file."""
    file = ConfigFile(path, shared=False)
    found: dict[str, tuple[Any, str]] = {}
    for key, value in file.tables.items():
        name = _IN_FILE.get(key, key)
        if name not in (*KINDS, "insecure") or key == "server":
            raise file.unknown(key, ["connect", "insecure", *(one for one in KINDS if one != "server")])
        if name in _PATHS and isinstance(value, str):
            value = str(path.parent / Path(value).expanduser())
        if name == "files" and isinstance(value, list):
            value = [str(path.parent / Path(one).expanduser()) if isinstance(one, str) else one for one in value]
        if name == "insecure":
            _switch(value, str(file.origin(key)))
        found[name] = (value, str(file.origin(key)))
    return found


# --- checks -----------------------------------------------------------------------------------------


def _check_transport(server: Url, insecure: bool) -> None:
    if server.scheme == "https" or insecure or is_loopback(server.host):
        return
    raise BadInput(
        f"The connection to {server.origin} would not be encrypted: others on the way could read the node's key, and then"
        " be this node, or send it requests.",
        fix="Use https, or, on a network that you trust, --insecure.",
    )


def _check_places(settings: NodeSettings) -> None:
    """A request must reach neither the node's key nor, for writing, its settings."""
    for root in settings.files:
        if lies_in(settings.data, root.path) or lies_in(root.path, settings.data):
            raise BadInput(
                f"--files {root.path} would offer the node's own key, in {settings.data}.",
                fix="Offer another folder, or keep the key elsewhere: --data.",
            )
        if settings.config is not None and root.writable and lies_in(settings.config, root.path):
            raise BadInput(
                f"--files {root.path}:rw would let a request change the node's settings, {settings.config}.",
                fix="Keep the file elsewhere.",
            )
    if settings.allow and (lies_in(settings.data, settings.folder) or lies_in(settings.folder, settings.data)):
        raise BadInput(
            f"Commands that work in {settings.folder} could read the node's own key, in {settings.data}.",
            fix="Let them work in another folder (--folder), or keep the key elsewhere: --data.",
        )


def token_of(given: str | None, environ: Mapping[str, str]) -> str:
    """The pairing token of the command line, of a file (`@PATH`) or of CUEBOOK_NODE_TOKEN; empty if there is none."""
    token = (given or environ.get(TOKEN, "")).strip()
    if not token.startswith("@"):
        return token
    try:
        return Path(token[1:]).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise BadInput(f"--token: cannot read {token[1:]}: {why}.", fix="Check the path.") from None


def folder_for(settings: NodeSettings) -> Path:
    """The folder of the node of this server."""
    path = "" if settings.server.path == "/" else settings.server.path
    return folder_of(settings.data, settings.server.origin + path.rstrip("/"))
