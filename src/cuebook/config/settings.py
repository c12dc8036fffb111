"""The settings: the type of each, and the environment variable that sets it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from cuebook.formats.duration import EXPECTED, seconds_of
from cuebook.kernel.effects import Effort
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import ENDED
from cuebook.kernel.model_names import chain

if TYPE_CHECKING:
    from cuebook.formats.database_url import DatabaseUrl

LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
SANDBOXES = ("auto", "landlock", "bubblewrap", "none")
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
"""The label of a workspace. It never looks like a path."""
_ADDRESS = re.compile(r"[^\s/@:]+:\d{1,5}|\[[0-9A-Fa-f:.]+\]:\d{1,5}", re.ASCII)
_COLLECTOR = re.compile(r"https?://(?:[^\s/@:?#]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?:/[^\s?#@]*)?", re.ASCII)
_SCOPE = re.compile(r"[!#-\[\]-~]+", re.ASCII)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
"""The name of an environment variable."""
_HANDLE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|keyring:\S.*|file:~?/.+|secret:[A-Za-z0-9][A-Za-z0-9._@-]*", re.ASCII)

_RATE = re.compile(r"([1-9]\d{0,5})\s*(?:/|per)\s*(minute|hour|day)", re.ASCII)
_SECONDS = {"minute": 60.0, "hour": 3600.0, "day": 86400.0}


class Rate(msgspec.Struct, frozen=True):
    """How many runs one user may start in a given period."""

    starts: int
    per: str

    @property
    def seconds(self) -> float:
        return _SECONDS[self.per]

    @classmethod
    def parse(cls, text: str) -> Rate | None:
        """Parses a rate such as `20/hour`. Returns None if the text is not a rate."""
        found = _RATE.fullmatch(text.strip().lower())
        return None if found is None else cls(int(found[1]), found[2])


class _Unfit(Exception):
    """An unsuitable value. The message says what it must be."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Unfit("must be a string")
    return value.strip()


def _model(value: Any) -> str:
    name = _text(value)
    for one in chain(name):
        if not one or ("/" in one and not all(one.partition("/")[::2])):
            raise _Unfit("must be the name of a model, such as openai/gpt-5 or local, or several: `a, then b`")
    return name


def _effort(value: Any) -> str:
    effort = _text(value).lower()
    if effort not in get_args(Effort):
        raise _Unfit(f"must be one of {', '.join(get_args(Effort))}")
    return effort


def _path(value: Any) -> Path:
    return Path(_text(value)).expanduser()


def _store(value: Any) -> Path | DatabaseUrl:
    from cuebook.formats.database_url import DatabaseUrl, check_file

    if isinstance(value, list | dict):  # it may contain a password, so it is not repeated
        raise BadInput("store must be a string.", fix="Correct or remove it.")
    text = _text(value)
    if "://" in text:
        return DatabaseUrl(text)
    check_file(text)
    return _path(text)


def _handle(value: Any) -> str:
    handle = value.strip() if isinstance(value, str) else ""
    if not _HANDLE.fullmatch(handle):
        raise BadInput(
            "expected the handle of a secret, such as env:NAME; the value itself does not belong here.",
            fix="Write env:NAME, keyring:NAME or file:/PATH, and store the value there.",
        )
    return handle


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


def _label(value: Any) -> str:
    name = _text(value)
    if not LABEL.fullmatch(name):
        raise _Unfit("must be a name of letters, digits, dots, dashes and underscores, such as shop-repo")
    return name


def _address(example: str) -> Callable[[Any], str]:
    def address(value: Any) -> str:
        given = _text(value)
        if not _ADDRESS.fullmatch(given):
            raise _Unfit(f"must be HOST:PORT, such as {example}")
        return given

    return address


def _public_url(value: Any) -> str:
    from urllib.parse import urlsplit

    address = _text(value).rstrip("/")
    parts = urlsplit(address)
    odd = parts.username or parts.password or parts.query or parts.fragment or not address.isascii() or " " in address
    if parts.scheme not in ("http", "https") or not parts.hostname or odd:
        raise _Unfit("must be the address of the web app, such as https://cuebook.example.com")
    return address


def _issuer(value: Any) -> str:
    from urllib.parse import urlsplit

    from cuebook.system.network import is_loopback

    issuer = _text(value)
    parts = urlsplit(issuer)
    secure = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not secure or not parts.hostname or parts.username or parts.query or parts.fragment or not issuer.isascii():
        raise _Unfit("must be the https address of the provider, such as https://login.example.com/realms/acme")
    return issuer


def _session(value: Any) -> float:
    seconds = _duration(value)
    if seconds is None or not 60 <= seconds <= 30 * 86400:
        raise _Unfit('must be a duration from a minute to 30 days, such as "8h"')
    return seconds


def _scopes(value: Any) -> str:
    scopes = _text(value).split()
    if "openid" not in scopes:
        raise _Unfit('must contain openid, as in "openid profile email"')
    return " ".join(scopes)


def _scope_names(value: Any) -> tuple[str, ...]:
    names = _groups(value)
    if not all(_SCOPE.fullmatch(one) for one in names):
        raise _Unfit('must be a list of scopes, such as ["openid", "cuebook:runner"]')
    return names


def _groups(value: Any) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) and one.strip() for one in given):
        raise _Unfit('must be a list of names, such as ["staff"]')
    return tuple(one.strip() for one in given)


def _collector(value: Any) -> str:
    url = _text(value).rstrip("/")
    if not _COLLECTOR.fullmatch(url):
        raise _Unfit("must be the URL of a collector, such as http://127.0.0.1:4318, without a password or a query")
    return url


def _switch(value: Any) -> bool:
    chosen = {"true": True, "false": False}.get(str(value).strip().lower())
    if chosen is None:
        raise _Unfit("must be true or false")
    return chosen


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
        isinstance(n, str) and VARIABLE.fullmatch(n.strip()) for n in names
    ):
        example = "LANG,EDITOR" if isinstance(value, str) else '["LANG", "EDITOR"]'
        raise _Unfit(f"must be a list of variable names, such as {example}")
    return tuple(name.strip() for name in names)


_SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _size(value: Any) -> int:
    text = value.strip().lower().removesuffix("b") if isinstance(value, str) else ""
    if text[-1:] in _SIZES:
        return int(_amount(text[:-1]) * _SIZES[text[-1]])
    try:
        return _whole(value)
    except _Unfit:
        raise _Unfit('must be a number of bytes, or a size such as "512M"') from None


def _duration(value: Any) -> float | None:
    try:
        return seconds_of(value)
    except ValueError:
        raise _Unfit(EXPECTED) from None


def _rate(value: Any) -> Rate | None:
    text = value.strip().lower() if isinstance(value, str) else ""
    rate = Rate.parse(text)
    if rate is None and text != "none":
        raise _Unfit('must be a number of runs per period, such as "20/hour", or "none"')
    return rate


def _time_zone(value: Any) -> str:
    name = _text(value)
    if name != "UTC":
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError):  # some names are folders
            raise _Unfit("must be the name of a time zone, such as Europe/Berlin") from None
    return name


def _visible(value: Any) -> str:
    if value not in ("all", "team", "owner"):
        raise _Unfit('must be "all", "team" or "owner"')
    return str(value)


def _one_of(value: Any, choices: tuple[str, ...]) -> str:
    name = value.strip().lower() if isinstance(value, str) else ""
    if name not in choices:
        raise _Unfit(f"must be one of {', '.join(choices)}")
    return name


def _log_format(value: Any) -> str:
    return _one_of(value, LOG_FORMATS)


def _log_level(value: Any) -> str:
    return _one_of(value, LOG_LEVELS)


def _folders(value: Any) -> tuple[Path, ...]:
    given = value.split(os.pathsep) if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(
        isinstance(one, str | Path) and str(one).strip() for one in given
    ):
        raise _Unfit('must be a list of folders, such as ["playbooks", "more"]')
    return tuple(Path(one).expanduser() for one in given)


def _statuses(value: Any) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) and one.strip() in ENDED for one in given):
        raise _Unfit(f'must be a list of {", ".join(sorted(ENDED))}, such as ["completed"]')
    return tuple(one.strip() for one in given)


KINDS: dict[str, Callable[[Any], Any]] = {
    "model": _model,
    "store": _store,
    "store_password": _handle,
    "signing_key": _handle,
    "evidence.key": _handle,
    "synchronous": _synchronous,
    "max_tokens": _whole,
    "temperature": _temperature,
    "effort": _effort,
    "pause_expiry": _duration,
    "rate_limit": _rate,
    "prices": _path,
    "sandbox": _sandbox,
    "workspace": _path,
    "workspace_label": _label,
    "worker.at_once": _whole,
    "worker.drain": _amount,
    "host.lease": _amount,
    "temporal.address": _address("temporal.example.com:7233"),
    "temporal.namespace": _text,
    "temporal.queue": _text,
    "temporal.api_key": _handle,
    "temporal.tls": _switch,
    "temporal.tls_ca": _path,
    "temporal.tls_cert": _path,
    "temporal.tls_key": _path,
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
    "limits.reply": _size,
    "limits.tenant_runs": _whole,
    "budget.money": _amount,
    "budget.tokens": _whole,
    "budget.seconds": _amount,
    "budget.steps": _whole,
    "serve.folders": _folders,
    "serve.public_url": _public_url,
    "retention.older_than": _duration,
    "retention.status": _statuses,
    "retention.playbook": _text,
    "retention.larger_than": _size,
    "retention.keep": _whole,
    "retention.contents": _switch,
    "retention.sensitive": _duration,
    "usage.time_zone": _time_zone,
    "access.runs": _visible,
    "log.format": _log_format,
    "log.level": _log_level,
    "log.access": _switch,
    "oidc.issuer": _issuer,
    "oidc.client_id": _text,
    "oidc.client_secret": _handle,
    "oidc.name": _text,
    "oidc.scopes": _scopes,
    "oidc.name_claim": _text,
    "oidc.groups_claim": _text,
    "oidc.admin_groups": _groups,
    "oidc.approver_groups": _groups,
    "oidc.runner_groups": _groups,
    "oidc.viewer_groups": _groups,
    "oidc.team_groups": _groups,
    "oidc.session": _session,
    "oidc.recheck": _session,
    "oidc.local_sign_in": _switch,
    "oidc.audience": _text,
    "oidc.mcp_scopes": _scope_names,
    "metrics.address": _address("127.0.0.1:9464"),
    "metrics.token": _handle,
    "otel.endpoint": _collector,
    "otel.headers": _handle,
    "otel.texts": _switch,
}
"""Every setting, with the function that checks its value."""

DURATIONS = tuple(name for name, kind in KINDS.items() if kind in (_duration, _session))
"""Settings that are a number of seconds, or None for never."""
SIZES = tuple(name for name, kind in KINDS.items() if kind is _size)
HANDLES = tuple(name for name, kind in KINDS.items() if kind is _handle)
"""Settings that are handles of secrets."""
ENVIRONMENT = {name: f"CUEBOOK_{name.replace('.', '_').upper()}" for name in KINDS}


def checked(name: str, given: Any, where: str, *, flag: bool = False) -> Any:
    """The value that a setting has if this is given. With `flag`, `where` is a flag that is only like the setting."""
    try:
        return KINDS[name](given)
    except BadInput as error:  # it says enough, and the value may hold a password
        raise BadInput(f"{where}: {error.message}", fix=error.fix) from None
    except _Unfit as why:
        if flag:
            raise BadInput(f"{where} {why}, not {_shown(given)}.", fix="Correct it.") from None
        raise BadInput(f"{where}: {name} {why}, not {_shown(given)}.", fix="Correct or remove it.") from None


def _shown(given: Any) -> str:
    return repr(given) if len(repr(given)) <= 60 else f"a {type(given).__name__}"
