"""The values of a skill and its tools, which are declared as requests. Nothing is sent here.

A tool is a row of a table: its description for models, the request that its arguments become, and the parts of the
answer that are kept. To add a service, add rows.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from cuebook.performers.skills.settings import Setting

Category = Literal["git", "observability", "tasks", "notification", "data", "general"]


# --- where arguments go -------------------------------------------------------------------------------


class Given(msgspec.Struct, frozen=True):
    """An argument or setting as it is; omitted if it is not given."""

    name: str


class Filled(msgspec.Struct, frozen=True):
    """A string with values inserted, as in `repo:{repo}`; omitted if one of them is not given."""

    text: str


class Words(msgspec.Struct, frozen=True):
    """Filled strings joined by spaces; those without a value are omitted."""

    texts: tuple[str, ...]
    unless: tuple[str, str] = ("", "")
    """The last string is also omitted if the value of this argument contains this pattern."""


class Rest(msgspec.Struct, frozen=True):
    """An object of all arguments except these."""

    but: tuple[str, ...] = ()


# --- requests and answers -----------------------------------------------------------------------------


class Auth(msgspec.Struct, frozen=True):
    """A header that contains a secret."""

    header: str
    setting: str
    form: str = "{}"
    user: str = ""
    """The setting with the user name, for HTTP Basic authentication."""


class Answer(msgspec.Struct, frozen=True):
    """The parts of an answer that are kept. Paths are dotted: names, and numbers for positions in lists."""

    kind: Literal["json", "lines", "text"] = "json"
    """`lines` is a JSON value on each line."""
    at: str = ""
    """The path of the interesting part."""
    keep: tuple[str, ...] = ()
    """The fields that are kept of each object; empty means all of them."""
    error: str = ""
    """The path of the error message in an answer with a successful status."""
    ok: str = ""
    """The path of a value that must be true if the request was successful."""


class Request(msgspec.Struct, frozen=True):
    """The request. Its parts may contain `Given`, `Filled`, `Words` and `Rest`; everything else is sent unchanged."""

    method: Literal["GET", "POST", "PATCH", "PUT", "DELETE"]
    base: str
    """The setting that contains the base URL of the service."""
    path: str = ""
    """Values are percent-encoded, each as one part of the path; `{name:path}` may be several parts."""
    query: dict[str, Any] = {}
    """A list is sent by repeating the name."""
    headers: dict[str, str] = {}
    auth: tuple[Auth, ...] = ()
    body: Any = None
    """An object is sent as JSON, a `Filled` as plain text."""
    wants: tuple[str, ...] = ()
    """Arguments that must be given for this request to be chosen."""
    answer: Answer = Answer()


class Instead(msgspec.Struct, frozen=True):
    """The request to find an object that the service refuses to create because it already exists."""

    status: int
    says: str
    """A part of the error message, in lower case."""
    request: Request


class Afterwards(msgspec.Struct, frozen=True):
    """A second request, for everything that the first could not do. It can also use fields of the kept answer."""

    request: Request
    what: str
    """Its purpose, for the warning if it fails after the first request succeeded."""


class HttpTool(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]
    """A JSON Schema; its defaults are used for missing arguments."""
    requests: tuple[Request, ...]
    """The first request whose settings and arguments are given is used."""
    reads_only: bool = False
    idempotent: bool = False
    """Whether doing it twice has the same effect as doing it once."""
    instead: Instead | None = None
    afterwards: Afterwards | None = None


class Skill(msgspec.Struct, frozen=True):
    """A built-in skill."""

    id: str
    name: str
    description: str
    category: Category
    settings: tuple[Setting, ...]
    needs: tuple[tuple[str, ...], ...]
    """The required settings: one of each group."""
    tools: tuple[HttpTool, ...]
