"""The URL of a Postgres database. Its password never appears in a message, a hint or a `repr`."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from cuebook.kernel.errors import BadInput

SCHEMES = ("postgresql://", "postgres://")
SCHEMA = "cuebook"
"""The schema of the tables, unless the URL chooses another `search_path`."""
_EXAMPLE = "postgresql://cuebook@db.example.com/cuebook"


def is_database(text: str) -> bool:
    """Whether this is the URL of a database, rather than the path of a file."""
    return text.startswith(SCHEMES)


class DatabaseUrl:
    """A URL and, separately, its password."""

    def __init__(self, url: str) -> None:
        """Raises `BadInput` for a URL that cannot be used."""
        try:
            parts = urlsplit(url)
            own, _ = parts.password, parts.port
        except ValueError:
            raise _bad_url() from None
        if not is_database(url) or not parts.path.strip("/") or parts.fragment:
            raise _bad_url()
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.password = unquote(own or "") or query.pop("password", "")
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
        """For the driver, together with `password`."""

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"<{self.shown}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatabaseUrl) and (self.conninfo, self.password) == (other.conninfo, other.password)

    def __hash__(self) -> int:
        return hash(self.conninfo)


def _bad_url() -> BadInput:
    return BadInput("The store is not a valid Postgres URL.", fix=f"Write it like {_EXAMPLE}.")
