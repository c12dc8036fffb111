"""A configured tool server, and the approval that it needs before it is started.

Nothing is started or contacted here; files are read to find out what would be started.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import EVERYWHERE, Trust
from cuebook.kernel.tool_names import HOW_NAMED, SERVER_NAME
from cuebook.performers.files.digests import digest_of
from cuebook.system.network import is_loopback

_INTERPRETER = re.compile(r"(python|pypy|node|nodejs|bun|deno|ruby|perl|php|lua|bash|sh|dash|zsh|tsx|uv)[\d.]*")
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")


class McpServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server: a command that communicates over its standard streams, or the URL of a server on the network."""

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    secret_env: Mapping[str, str] = {}
    """Variables whose values are secrets, by handle."""
    cwd: str = ""
    """The folder of the command: below the workspace or absolute; empty for the workspace itself."""
    url: str = ""
    headers: Mapping[str, str] = {}
    secret_headers: Mapping[str, str] = {}
    """Headers whose values are secrets, by handle."""
    forms: Mapping[str, str] = {}
    """The text around a header's secret, as in `Bearer {}`, by the header's name."""
    trusted: bool = False
    """Whether its claims that a tool only reads, or may be repeated, are trusted."""
    network: tuple[str, ...] = ()
    """The hosts that the command may reach, as in `Confinement`."""
    readable: tuple[str, ...] = ()
    """Absolute paths that the command may read in addition to the workspace and its own files."""
    brought: bool = False
    """Whether it comes from a playbook, not from the configuration."""

    def __post_init__(self) -> None:
        if not SERVER_NAME.fullmatch(self.name):
            raise BadInput(f"'{self.name}' is not a valid name for a tool server.", fix=HOW_NAMED)
        if bool(self.command) == bool(self.url):
            raise BadInput(f"The tool server '{self.name}' needs either a command or a url.", fix="Set one of them.")
        if self.url and (urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname):
            raise BadInput(f"The url of the tool server '{self.name}' is not an HTTP URL.", fix="Set its URL.")
        host = urlsplit(self.url).hostname or ""
        if self.secret_headers and self.url.lower().startswith("http:") and not is_loopback(host):
            raise BadInput(
                f"The secrets of the tool server '{self.name}' would be sent unencrypted.", fix="Use an https URL."
            )

    @property
    def handles(self) -> tuple[str, ...]:
        """The handles of the secrets that it receives."""
        return tuple(sorted({*self.secret_env.values(), *self.secret_headers.values()}))

    def header(self, name: str, secret: str) -> str:
        """The value of a secret header. For HTTP Basic authentication, `user:password` is encoded."""
        text = self.forms.get(name, "{}").replace("{}", secret)
        if not self.forms.get(name, "").startswith("Basic "):
            return text
        return f"Basic {b64encode(text.removeprefix('Basic ').encode()).decode()}"

    @property
    def identity(self) -> str:
        """The key of its approval. Two playbooks may bring different servers with the same name."""
        if not self.brought:
            return self.name
        return f"{self.name} ({sha256(msgspec.json.encode(self, order='sorted')).hexdigest()[:12]})"

    @property
    def place(self) -> str:
        """The URL as policies see it, without query and fragment."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = f":{parts.port}" if parts.port is not None else ""
        return f"{parts.scheme}://{host}{port}{parts.path or '/'}"


class Launch(msgspec.Struct, frozen=True):
    """The command that would start a server, as it is now."""

    argv: tuple[str, ...]
    """With the full path of the program, so that exactly what was seen is started."""
    cwd: str
    env: dict[str, str]
    readable: tuple[str, ...]
    trust: Trust
    problem: str = ""
    """Why it cannot be started."""


def launch(server: McpServer, workspace: Path, sandbox: str) -> Launch:
    """Examines the command and the files that it consists of."""
    cwd = os.path.normpath(os.path.join(workspace, server.cwd))
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    env = {**passed_on, **server.env}
    program = _program(server.command, cwd, env) if server.command else ""
    script = _script(server.command, program, cwd)
    argv = (program or server.command[0], *server.command[1:]) if server.command else ()
    contents = {path: _labelled(digest_of(path)) for path in script}
    seen = {
        "server": msgspec.to_builtins(server),
        "program": _from(cwd, program),
        "files": {_from(cwd, path): digest for path, digest in contents.items()},
        "sandbox": sandbox if server.command else "",
    }
    digest = sha256(msgspec.json.encode(seen, order="sorted")).hexdigest()
    prompt = f"Start the tool server '{server.name}'?" if server.command else f"Use the tool server '{server.name}'?"
    trust = Trust(
        subject=f"mcp server {server.identity}",
        digest=digest,
        prompt=f"{prompt} The playbook brings it along." if server.brought else prompt,
        preview=_preview(server, os.path.realpath(workspace), cwd, sandbox, contents),
    )
    problem = ""
    if server.command and not os.path.isdir(cwd):
        problem = f"There is no folder {cwd} to start it in."
    elif server.command and not program:
        problem = f"There is no program {server.command[0]!r}."
    return Launch(argv, cwd, env, (*server.readable, *_consists_of(program, script)), trust, problem)


def _from(folder: str, path: str) -> str:
    """A path relative to the folder of a server, so that the same server is recognised in another workspace."""
    return path.removeprefix(f"{folder}/") if path.startswith(f"{folder}/") else path


def _program(command: tuple[str, ...], cwd: str, env: Mapping[str, str]) -> str:
    first = command[0]
    if "/" in first:
        found = os.path.normpath(os.path.join(cwd, first))
        return found if os.path.isfile(found) else ""
    return shutil.which(first, path=env.get("PATH")) or ""


def _script(command: tuple[str, ...], program: str, cwd: str) -> tuple[str, ...]:
    """The files in a command whose content decides what the command does: the program, the file that an interpreter runs,
    and code among the arguments. Data files are left out, because a server may write them.
    """
    if not program:
        return ()
    found = [program]
    runs_next = _interprets(program)
    for argument in command[1:]:
        for word in dict.fromkeys((argument, argument.partition("=")[2], *argument.split())):
            path = os.path.join(cwd, word)
            if word and "\0" not in word and os.path.isfile(path) and (runs_next or _is_code(path)):
                found.append(path)
                runs_next = False
            runs_next = runs_next or _interprets(word)
    return tuple(dict.fromkeys(found))


def _interprets(program: str) -> bool:
    return bool(_INTERPRETER.fullmatch(os.path.basename(program)))


def _is_code(path: str) -> bool:
    if path.endswith(_CODE) or os.access(path, os.X_OK):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


_CODE = (".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".sh", ".bash", ".lua", ".jar", ".wasm")


def _labelled(digest: str) -> str:
    return digest if " " in digest or digest == "gone" else f"sha256 {digest}"


def _consists_of(program: str, script: tuple[str, ...]) -> tuple[str, ...]:
    """The paths that the command must be able to read in order to run."""
    found = [path for path in (program, *script) if path]
    if program:
        environment = os.path.dirname(os.path.dirname(program))
        if os.path.isfile(os.path.join(environment, "pyvenv.cfg")):
            found.append(environment)
    return tuple(dict.fromkeys(found))


def _network_shown(network: tuple[str, ...], sandbox: str) -> str:
    if network == EVERYWHERE or sandbox == "none":
        return "allowed"
    return f"only {', '.join(network)}" if network else "not allowed"


def _preview(server: McpServer, workspace: str, cwd: str, sandbox: str, contents: Mapping[str, str]) -> dict[str, str]:
    if server.url:
        shown = {"address": server.url}
        given, secret = server.headers, server.secret_headers
        label = "headers"
    else:
        shown = {
            "command": shlex.join(server.command),
            "folder": cwd if os.path.isabs(server.cwd) else f"{cwd} (in the workspace of each run that uses it)",
            "sandbox": "none: it can do everything that you can do" if sandbox == "none" else sandbox,
            "network": _network_shown(server.network, sandbox),
        }
        everything = "everything that you can: it runs without a sandbox"
        places = "\n".join(dict.fromkeys((workspace, cwd, *server.readable)))
        shown["may read"] = everything if sandbox == "none" else f"the system's programs, and\n{places}"
        shown["may change"] = (
            everything if sandbox == "none" else f"the workspace of each run that uses it, here {workspace}"
        )
        if contents:
            shown["files as they are now"] = "\n".join(f"{path}\n{known}" for path, known in contents.items())
        given, secret = server.env, server.secret_env
        label = "environment"
    lines = [f"{name}={value}" for name, value in given.items()]
    lines += [
        f"{name}={server.forms.get(name, '{}').replace('{}', f'[secret {handle}]')}" for name, handle in secret.items()
    ]
    if lines:
        shown[label] = "\n".join(lines)
    if server.trusted:
        shown["believed"] = "its claims about which of its tools only read"
    return shown
