"""`[notifications]` in `cuebook.toml`: the channels of messages, and which notices go where. Only the form is checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import parseaddr
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from cuebook.config.tools import Refuse, address, fields, flag, handle, text, words
from cuebook.formats.duration import EXPECTED as DURATION
from cuebook.formats.duration import seconds_of
from cuebook.formats.quiet_hours import EXPECTED as HOURS
from cuebook.formats.quiet_hours import QuietHours
from cuebook.kernel.errors import BadInput
from cuebook.kernel.notices import WHAT

if TYPE_CHECKING:
    from cuebook.config.source import ConfigFile

Kind = Literal["webhook", "slack", "email", "command"]
KINDS: tuple[Kind, ...] = ("webhook", "slack", "email", "command")
USUAL_EVENTS = ("waiting", "failed", "budget", "schedule")
"""What people are notified of unless they say otherwise: not of each run that ends as it should."""
SLACK_API = "https://slack.com/api"
NO_HOURS = ""
"""Quiet hours that were switched off, as opposed to not set."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\]", re.ASCII)
_DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", re.ASCII)
_SLACK_ID = re.compile(r"[A-Z][A-Z0-9]{2,30}|#[a-z0-9_-]{1,80}", re.ASCII)


@dataclass(frozen=True)
class ChannelSettings:
    """A way to send messages. Secrets are handles."""

    name: str
    where: str
    """The file and line that describe it."""
    kind: Kind
    texts: bool = True
    """Whether messages contain texts of a run, such as a question or an error."""
    url: str = ""
    """Of a webhook."""
    secret_url: str = ""
    """The handle of the URL of a webhook, for URLs that are secret, as Slack's are."""
    secret: str = ""
    """The handle of the key that signs a webhook's messages."""
    token: str = ""
    """The handle of a Slack app's token."""
    signing_secret: str = ""
    """The handle of the key with which Slack signs the clicks on buttons."""
    to: tuple[str, ...] = ()
    """A Slack channel, or the recipients of e-mails."""
    api: str = SLACK_API
    host: str = ""
    port: int = 0
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str = ""
    password: str = ""
    sender: str = ""
    domains: tuple[str, ...] = ()
    """The domains of the addresses that people may set for themselves."""
    ca: str = ""
    """A file of certificates that a mail server's is checked with, instead of the system's."""
    command: tuple[str, ...] = ()
    seconds: float = 30.0
    """How long a command may take."""

    @property
    def handles(self) -> tuple[str, ...]:
        """The handles of its secrets."""
        return tuple(filter(None, (self.secret_url, self.secret, self.token, self.signing_secret, self.password)))

    @property
    def is_shared(self) -> bool:
        """Whether it can reach anything but single people."""
        return self.kind in ("webhook", "command") or bool(self.secret_url) or bool(self.to)

    @property
    def is_personal(self) -> bool:
        """Whether it can reach people one by one."""
        return self.kind == "email" or (self.kind == "slack" and bool(self.token))


@dataclass(frozen=True)
class Rules:
    """Which notices go to which channels, and when. None for what is not set."""

    events: tuple[str, ...] | None = None
    send_to: tuple[str, ...] | None = None
    """The names of channels."""
    quiet_hours: str | None = None
    time_zone: str | None = None
    quiet_except: tuple[str, ...] | None = None
    """The events that are not held back in quiet hours."""
    remind_after: float | None = None
    reminders: int | None = None
    escalate_after: float | None = None
    escalate_to: tuple[str, ...] | None = None

    def over(self, usual: Rules) -> Rules:
        """These rules, with the usual ones for what they do not set."""
        own = {name: value for name, value in vars(self).items() if value is not None}
        return replace(usual, **own)


@dataclass(frozen=True)
class Notifications:
    """Everything that is configured about notifications."""

    channels: Mapping[str, ChannelSettings] = field(default_factory=dict)
    usual: Rules = Rules()
    playbooks: Mapping[str, Rules] = field(default_factory=dict)
    """The rules for playbooks, by name or pattern."""
    run_marks: tuple[float, ...] = ()
    """The amounts of money at which a run's spending is notified."""
    give_up_after: float = 24 * 3600.0
    """After how many seconds a message that cannot be delivered is given up."""
    tenant: str = "local"
    """The tenant whose notices go to the channels. People of other tenants get only their own messages."""

    def rules(self, playbook: str) -> Rules:
        """The rules for a playbook: its own, those of the first pattern that fits, or the usual ones."""
        shared = tuple(name for name, one in self.channels.items() if one.is_shared)
        base = Rules(USUAL_EVENTS, shared, NO_HOURS, "UTC", (), None, 3, None, ())
        base = self.usual.over(base)
        own = self.playbooks.get(playbook)
        if own is None:
            fitting = (rules for name, rules in self.playbooks.items() if fnmatchcase(playbook, name))
            own = next(fitting, Rules())
        return own.over(base)


def read(file: ConfigFile, table: Mapping[str, Any]) -> Notifications:
    """The notifications of a file."""

    def refuse(dotted: str, wrong: str, fix: str) -> BadInput:
        return BadInput(f"{file.origin(dotted)}: {wrong}", fix=fix)

    if file.shared:
        raise refuse(
            "notifications",
            "A project file may not configure notifications: it could send what your runs say to anyone.",
            "Move the table to your own cuebook.toml; `cuebook doctor` shows where that is.",
        )
    own = {name: value for name, value in table.items() if name not in ("channels", "playbooks")}
    kinds: dict[str, Callable[[str, Any, Refuse], Any]] = {
        **_RULES,
        "run_marks": _amounts,
        "give_up_after": _duration,
        "tenant": text,
    }
    found = fields("notifications", own, kinds, refuse)
    channels = {
        name: _channel(file, name, file.table(f"notifications.channels.{name}", one), refuse)
        for name, one in file.table("notifications.channels", table.get("channels", {})).items()
    }
    playbooks = {}
    for name, one in file.table("notifications.playbooks", table.get("playbooks", {})).items():
        dotted = f"notifications.playbooks.{name}"
        playbooks[name] = Rules(**fields(dotted, file.table(dotted, one), _RULES, refuse))
    usual = Rules(**{name: found.pop(name) for name in list(found) if name in _RULES})
    made = Notifications(channels, usual, playbooks, **found)
    for dotted, rules in (
        ("notifications", usual),
        *((f"notifications.playbooks.{n}", r) for n, r in playbooks.items()),
    ):
        for part in ("send_to", "escalate_to"):
            unknown = [name for name in getattr(rules, part) or () if name not in channels]
            if unknown:
                words = ", ".join(channels) or "none"
                raise refuse(f"{dotted}.{part}", f"there is no channel '{unknown[0]}'.", f"Known channels: {words}.")
    return made


# --- channels ---


def _channel(file: ConfigFile, name: str, table: Mapping[str, Any], refuse: Refuse) -> ChannelSettings:
    dotted = f"notifications.channels.{name}"
    if not _NAME.fullmatch(name):
        raise refuse(dotted, f"'{name}' is not a valid name of a channel.", "Use lowercase letters, digits, - and _.")
    kind = table.get("kind")
    if kind not in KINDS:
        raise refuse(dotted, f"{dotted}.kind must be one of {', '.join(KINDS)}.", 'For example: kind = "webhook".')
    own = {part: value for part, value in table.items() if part != "kind"}
    made = ChannelSettings(
        name, str(file.origin(dotted)), kind, **fields(dotted, own, {**_ALL_CHANNELS, **_CHANNELS[kind]}, refuse)
    )
    problem = _missing(made)
    if problem:
        raise refuse(dotted, f"{dotted} {problem[0]}", problem[1])
    if made.kind == "email" and not made.port:
        made = replace(made, port={"starttls": 587, "tls": 465, "none": 25}[made.security])
    return made


def _missing(made: ChannelSettings) -> tuple[str, str] | None:
    """What a channel lacks, and what to write."""
    match made.kind:
        case "webhook":
            if bool(made.url) == bool(made.secret_url):
                return "needs a URL.", 'Set url = "https://...", or secret_url to the handle of one.'
            if not made.secret:
                return "needs the key that signs its messages.", 'For example: secret = "env:CUEBOOK_WEBHOOK_SECRET".'
        case "slack":
            if bool(made.token) == bool(made.secret_url):
                fix = (
                    'Set secret_url to the handle of an incoming webhook, or token = "env:SLACK_TOKEN" and to = "C..."'
                )
                return "needs an incoming webhook, or the token of an app.", f"{fix}."
            if made.token and len(made.to) > 1:
                return "can have one Slack channel.", "Add another table for the other one."
            if made.signing_secret and not made.token:
                return "has a signing secret, but no token: only an app has buttons.", "Set token, or remove it."
        case "email":
            if not made.host or not made.sender:
                return (
                    "needs a host and a sender.",
                    'For example: host = "smtp.example.com", sender = "ops@example.com".',
                )
            if bool(made.user) != bool(made.password):
                return "needs both user and password, or neither.", 'For example: password = "env:SMTP_PASSWORD".'
            from cuebook.system.network import is_loopback

            if made.security == "none" and not is_loopback(made.host):
                return "would send mail unencrypted.", 'Use security = "starttls" or "tls".'
        case "command":
            if not made.command:
                return "needs a command.", 'For example: command = ["notify-ops", "--from", "cuebook"].'
    return None


def _host(name: str, value: Any, refuse: Refuse) -> str:
    host = text(name, value, refuse)
    if not _HOST.fullmatch(host):
        raise refuse(name, f"{name} must be the name or the address of a host.", 'For example: "smtp.example.com".')
    return host


def _port(name: str, value: Any, refuse: Refuse) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
        raise refuse(name, f"{name} must be a port.", "For example: 587.")
    return value


def _security(name: str, value: Any, refuse: Refuse) -> str:
    if value not in ("starttls", "tls", "none"):
        raise refuse(name, f'{name} must be "starttls", "tls" or "none".', "Correct or remove it.")
    return str(value)


def is_mail_address(given: str) -> bool:
    """Whether this is one plain address, without a name, a comment or anything else that mail servers interpret."""
    local, at, domain = given.rpartition("@")
    plain = re.fullmatch(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}", local) is not None
    return bool(at) and plain and _DOMAIN.fullmatch(domain) is not None


def _sender(name: str, value: Any, refuse: Refuse) -> str:
    given = text(name, value, refuse)
    if not is_mail_address(parseaddr(given)[1]) or not given.isprintable():
        raise refuse(name, f"{name} must be an e-mail address.", 'For example: "Cuebook <ops@example.com>".')
    return given


def _addresses(name: str, value: Any, refuse: Refuse) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else words(name, value, refuse)
    if not all(is_mail_address(one) for one in found):
        raise refuse(name, f"{name} must be a list of e-mail addresses.", 'For example: ["ops@example.com"].')
    return tuple(found)


def _domains(name: str, value: Any, refuse: Refuse) -> tuple[str, ...]:
    found = words(name, value, refuse)
    if not all(_DOMAIN.fullmatch(one) for one in found):
        raise refuse(name, f"{name} must be a list of domains.", 'For example: ["example.com"].')
    return tuple(one.lower() for one in found)


def _slack_channel(name: str, value: Any, refuse: Refuse) -> tuple[str, ...]:
    if not isinstance(value, str) or not _SLACK_ID.fullmatch(value):
        raise refuse(name, f"{name} must be the id of a Slack channel.", 'For example: "C0123456789".')
    return (value,)


def _seconds(name: str, value: Any, refuse: Refuse) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 600:
        raise refuse(name, f"{name} must be a number of seconds, at most 600.", "Correct it.")
    return float(value)


_ALL_CHANNELS: dict[str, Callable[[str, Any, Refuse], Any]] = {"texts": flag}
_CHANNELS: dict[str, dict[str, Callable[[str, Any, Refuse], Any]]] = {
    "webhook": {"url": address, "secret_url": handle, "secret": handle},
    "slack": {
        "secret_url": handle,
        "token": handle,
        "to": _slack_channel,
        "signing_secret": handle,
        "api": address,
    },
    "email": {
        "host": _host,
        "port": _port,
        "security": _security,
        "user": text,
        "password": handle,
        "sender": _sender,
        "to": _addresses,
        "domains": _domains,
        "ca": text,
    },
    "command": {"command": words, "seconds": _seconds},
}


# --- rules ---


def events(name: str, value: Any, refuse: Refuse) -> tuple[str, ...]:
    found = tuple(value) if isinstance(value, list) and not value else words(name, value, refuse)
    unknown = [one for one in found if one not in WHAT]
    if unknown:
        raise refuse(name, f"{name}: there is no event '{unknown[0]}'.", f"The events are {', '.join(WHAT)}.")
    return found


def _names(name: str, value: Any, refuse: Refuse) -> tuple[str, ...]:
    return () if value == [] else words(name, value, refuse)


def hours(name: str, value: Any, refuse: Refuse) -> str:
    try:
        found = QuietHours.parse(text(name, value, refuse))
    except ValueError:
        raise refuse(name, f"{name} {HOURS}.", "Correct or remove it.") from None
    return NO_HOURS if found is None else str(found)


def zone(name: str, value: Any, refuse: Refuse) -> str:
    from zoneinfo import ZoneInfo

    given = text(name, value, refuse)
    try:
        ZoneInfo(given)
    except (KeyError, ValueError, OSError):
        fix = "For example: Europe/Berlin."
        raise refuse(name, f"{name} must be the name of a time zone, not '{given[:60]}'.", fix) from None
    return given


def _duration(name: str, value: Any, refuse: Refuse) -> float | None:
    try:
        found = seconds_of(value)
    except ValueError:
        raise refuse(name, f"{name} {DURATION}.", "Correct or remove it.") from None
    if found is not None and found < 1:
        raise refuse(name, f"{name} must be at least a second.", "Correct or remove it.")
    return found


def _count(name: str, value: Any, refuse: Refuse) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100:
        raise refuse(name, f"{name} must be a whole number from 0 to 100.", "Correct or remove it.")
    return value


def _amounts(name: str, value: Any, refuse: Refuse) -> tuple[float, ...]:
    given: Sequence[Any] = value if isinstance(value, list) else [None]
    if not all(isinstance(one, int | float) and not isinstance(one, bool) and one > 0 for one in given):
        raise refuse(name, f"{name} must be a list of amounts in USD.", "For example: [1, 5, 20].")
    return tuple(sorted(float(one) for one in given))


_RULES: dict[str, Callable[[str, Any, Refuse], Any]] = {
    "events": events,
    "send_to": _names,
    "quiet_hours": hours,
    "time_zone": zone,
    "quiet_except": events,
    "remind_after": _duration,
    "reminders": _count,
    "escalate_after": _duration,
    "escalate_to": _names,
}
