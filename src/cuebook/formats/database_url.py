"""The URL of a Postgres database. Its password never appears in a message, a hint or a `repr`."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from cuebook.kernel.errors import BadInput

SCHEMES = ("postgresql://", "postgres://")
SCHEMA = "cuebook"
"""The schema of the tables, unless the URL chooses another `search_path`."""
_EXAMPLE = "postgresql://cuebook@db.example.com/cuebook"
_SECRET = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
"""The driver's settings whose values are secret."""
_ASSIGNED = re.compile(rf"({'|'.join(_SECRET)})\s*=", re.IGNORECASE)
_CONNINFO = re.compile(r"\s*\w+\s*=\s*('[^']*'|\S*)\s+\w+\s*=", re.ASCII)
"""The beginning of libpq's keyword form, as in `host=db user=me`."""
_MISWRITTEN = re.compile(r"postgres(ql)?:|[^/\s:]+:\S*@", re.IGNORECASE)
"""The beginning of a URL without its `//` or without its scheme."""


def is_database(text: str) -> bool:
    """Whether this is the URL of a database, rather than the path of a file."""
    return text.startswith(SCHEMES)


def check_file(text: str) -> None:
    """Raises `BadInput` for text that was meant for a database, because it would be shown as the name of a file."""
    if _ASSIGNED.search(text) or _CONNINFO.match(text) or _MISWRITTEN.match(text):
        raise BadInput(
            "The store is neither the path of a file nor a Postgres URL.",
            fix=f"Write a database as a URL like {_EXAMPLE}.",
        )


class DatabaseUrl:
    """A URL and, separately, its secrets."""

    def __init__(self, url: str) -> None:
        """Raises `BadInput` for a URL that cannot be used."""
        try:
            parts = urlsplit(url)
            own, _ = parts.password, parts.port
        except ValueError:
            raise _bad_url() from None
        if not is_database(url) or not parts.path.strip("/") or parts.fragment:
            raise _bad_url()
        if "@" in parts.path + parts.query:
            # The user's part ended early, at a special character in the password.
            raise _bad_url("Percent-encode special characters in a password: / as %2F, @ as %40, ? as %3F.")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.secrets = {name: secret for name in _SECRET if (secret := query.pop(name, ""))}
        """The values of the driver's secret settings, by name."""
        if own:
            self.secrets["password"] = unquote(own)
        if any(_ASSIGNED.search(value) for value in query.values()):
            raise _bad_url("Separate its settings with &.")
        user = "" if parts.username is None else f"{parts.username}@"
        place = parts.netloc.rpartition("@")[2]
        self.shown = urlunsplit(("postgresql", user + place, parts.path, "", ""))
        """The URL without its password and settings, for messages."""
        if "search_path" not in query.get("options", ""):
            query["options"] = f"{query.get('options', '')} -c search_path={SCHEMA}".strip()
        query.setdefault("application_name", "cuebook")
        query.setdefault("connect_timeout", "10")
        # Detects a server that has vanished within about half a minute.
        query.setdefault("keepalives_idle", "10")
        query.setdefault("keepalives_interval", "5")
        query.setdefault("keepalives_count", "3")
        query.setdefault("tcp_user_timeout", "30000")
        settings = urlencode(query).replace("+", "%20")
        self.conninfo = urlunsplit(("postgresql", user + place, parts.path, settings, ""))
        """For the driver, together with `secrets`."""

    @property
    def password(self) -> str:
        return self.secrets.get("password", "")

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"<{self.shown}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatabaseUrl) and (self.conninfo, self.secrets) == (other.conninfo, other.secrets)

    def __hash__(self) -> int:
        return hash(self.conninfo)


def _bad_url(advice: str = "") -> BadInput:
    return BadInput("The store is not a valid Postgres URL.", fix=f"{advice} Write it like {_EXAMPLE}.".lstrip())
