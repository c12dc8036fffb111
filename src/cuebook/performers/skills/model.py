"""A skill as values: what it needs to be set, and tools that are requests written down. Nothing is sent here.

A tool is a row of a table: what a model is shown of it, the request its arguments become, and what is kept of the
answer. Whoever adds a service adds rows.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Category = Literal["git", "observability", "tasks", "notification", "data", "general"]


class Setting(msgspec.Struct, frozen=True):
    """Something that a skill is told by the user's configuration or the environment, under this name in both."""

    name: str
    what: str
    """In words, for whoever has to set it."""
    secret: bool = False
    default: str = ""
    """What holds if it is not set; it may name other settings, as in `https://api.{DD_SITE}`."""


# --- where arguments go -------------------------------------------------------------------------------


class Given(msgspec.Struct, frozen=True):
    """An argument or setting as it is; left out if it is not given."""

    name: str


class Filled(msgspec.Struct, frozen=True):
    """A text with values in it, as in `repo:{repo}`; left out if one of them is not given."""

    text: str


class Words(msgspec.Struct, frozen=True):
    """Filled texts with blanks between them; those that have nothing to be filled with are left out."""

    texts: tuple[str, ...]
    unless: tuple[str, str] = ("", "")
    """The last of them is left out, too, where the text of this argument holds this pattern."""


class Rest(msgspec.Struct, frozen=True):
    """An object of all arguments but these."""

    but: tuple[str, ...] = ()


# --- requests and answers -----------------------------------------------------------------------------


class Auth(msgspec.Struct, frozen=True):
    """A header that holds a secret."""

    header: str
    setting: str
    form: str = "{}"
    user: str = ""
    """The setting with the name that belongs to the password, where the header is one of HTTP's basic scheme."""


class Answer(msgspec.Struct, frozen=True):
    """What is kept of an answer. Paths have dots between their parts: names, and numbers for places in lists."""

    kind: Literal["json", "lines", "text"] = "json"
    """`lines` is a JSON value on each line."""
    at: str = ""
    """Where in it the interesting part lies."""
    keep: tuple[str, ...] = ()
    """The fields that are kept, of each object if there are several; none: all of them."""
    error: str = ""
    """Where it says what went wrong although the status says that nothing did."""
    ok: str = ""
    """What must be true in it for the request to have worked."""


class Request(msgspec.Struct, frozen=True):
    """What is sent. Its parts may hold `Given`, `Filled`, `Words` and `Rest`; everything else is sent as it stands."""

    method: Literal["GET", "POST", "PATCH", "PUT", "DELETE"]
    base: str
    """The setting that holds the address which all paths of the service follow."""
    path: str = ""
    """Values are put in percent-encoded, each as one part of the path; `{name:path}` may be several parts."""
    query: dict[str, Any] = {}
    """A list is sent as the same name several times."""
    headers: dict[str, str] = {}
    auth: tuple[Auth, ...] = ()
    body: Any = None
    """An object is sent as JSON, a `Filled` as plain text."""
    wants: tuple[str, ...] = ()
    """Arguments without which it is not the one to send."""
    answer: Answer = Answer()


class Instead(msgspec.Struct, frozen=True):
    """What is asked for when the service refuses to make something because it is there already."""

    status: int
    says: str
    """A part of what the refusal says, in small letters."""
    request: Request


class Afterwards(msgspec.Struct, frozen=True):
    """A second request, for what the first could not say. Fields of the kept answer are values in it, too."""

    request: Request
    what: str
    """What it is for, for the warning that it did not work: the first one has been done by then."""


class HttpTool(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]
    """A JSON Schema; what it calls a default holds where an argument is not given."""
    requests: tuple[Request, ...]
    """The first one counts whose settings and arguments are there."""
    reads_only: bool = False
    idempotent: bool = False
    """Whether doing it twice comes to the same as doing it once."""
    instead: Instead | None = None
    afterwards: Afterwards | None = None


class Skill(msgspec.Struct, frozen=True):
    """A skill that comes along."""

    id: str
    name: str
    description: str
    category: Category
    settings: tuple[Setting, ...]
    needs: tuple[tuple[str, ...], ...]
    """The settings it cannot do without: of each of these, one."""
    tools: tuple[HttpTool, ...]
