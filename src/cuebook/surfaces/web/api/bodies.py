"""Request bodies. A body that does not match its type is refused before anything happens."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta
from starlette.requests import Request

from cuebook.gate.roles import Role
from cuebook.kernel.notices import What
from cuebook.kernel.run import Budget
from cuebook.service.triggers.permissions import LASTS
from cuebook.service.triggers.schedules import CATCH_UP
from cuebook.service.triggers.trigger import Overlap
from cuebook.service.waits.lasting_approvals import Lasts
from cuebook.surfaces.web.problems import Problem

T = TypeVar("T")

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Words = Annotated[str, Meta(max_length=100_000)]
Reason = Annotated[str, Meta(max_length=10_000)]
_LONGEST_KEY = 200
_MOST_FIELDS = 1000
IdempotencyKey = Annotated[str, Meta(max_length=_LONGEST_KEY)]
Values = dict[str, Any]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Amounts(_Body, frozen=True):
    """A budget. Limits that are left out default to the configured ones."""

    money: Annotated[float, Meta(ge=0)] | None = None
    tokens: Annotated[int, Meta(ge=1)] | None = None
    seconds: Annotated[float, Meta(ge=0)] | None = None
    steps: Annotated[int, Meta(ge=1)] | None = None

    @property
    def budget(self) -> Budget:
        return Budget(self.money, self.tokens, self.seconds, self.steps)


class Start(_Body, frozen=True):
    """Starts a run of a playbook, given by its id or as text."""

    playbook: str = ""
    text: str = ""
    name: Annotated[str, Meta(max_length=200)] = ""
    inputs: Values = {}
    sensitive: list[str] = []
    model: Annotated[str, Meta(max_length=200)] = ""
    breakpoints: list[str | int] | str = ""
    options: Values = {}
    budget: Amounts | None = None
    answers: dict[str, str] = {}
    unattended: bool = False
    key: IdempotencyKey = ""


class SetBudget(_Body, frozen=True):
    """Changes what is given of a budget; null removes a limit."""

    name: Annotated[str, Meta(min_length=1, max_length=300)]
    day: Annotated[float, Meta(ge=0)] | msgspec.UnsetType | None = msgspec.UNSET
    month: Annotated[float, Meta(ge=0)] | msgspec.UnsetType | None = msgspec.UNSET
    day_tokens: Annotated[int, Meta(ge=0)] | msgspec.UnsetType | None = msgspec.UNSET
    month_tokens: Annotated[int, Meta(ge=0)] | msgspec.UnsetType | None = msgspec.UNSET
    soft: Annotated[float, Meta(gt=0, le=1)] | msgspec.UnsetType = msgspec.UNSET
    unknown_cost: bool | msgspec.UnsetType = msgspec.UNSET


class AllowOver(_Body, frozen=True):
    reason: Reason = ""


class Trigger(_Body, frozen=True):
    """Starts a run with the playbook's own token."""

    inputs: Values = {}
    model_id: Annotated[str, Meta(max_length=200)] = ""
    key: IdempotencyKey = ""


class Resume(_Body, frozen=True):
    variables: Values = {}
    settings: Values = {}


class Cancel(_Body, frozen=True):
    reason: Reason = ""


class Where(_Body, frozen=True):
    """Which runs are meant: those with these ids, or those that a list with these filters shows."""

    runs: Annotated[list[Name], Meta(min_length=1, max_length=500)] | None = None
    name: str = ""
    owner: str = ""
    status: list[str] = []
    since: str = ""
    until: str = ""
    trigger: str = ""
    search: str = ""


class Bulk(_Body, frozen=True):
    """Acts on many runs."""

    act: Literal["cancel", "retry", "resume"]
    where: Where
    reason: Reason = ""
    whole_step: bool = False
    dry_run: bool = False
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    cursor: str = ""


class Delete(_Body, frozen=True):
    force: bool = False
    contents: bool = False
    reason: Reason = ""


class Retry(_Body, frozen=True):
    whole_step: bool = False


class Restart(_Body, frozen=True):
    step: Name
    visit: Annotated[int, Meta(ge=1)] | None = None


class Fork(_Body, frozen=True):
    step: Name
    visit: Annotated[int, Meta(ge=1)] | None = None
    path: str | None = None
    values: Values = {}
    settings: Values = {}


class Edit(_Body, frozen=True):
    text: Words
    plan: str = ""
    """The id of the plan that was shown; empty to see it."""


class Answer(_Body, frozen=True):
    value: Words | dict[str, Any] | list[Any] | int | float | bool | None
    """The answer to a form may be any JSON."""


class Decide(_Body, frozen=True):
    decision: Literal["approve", "deny", "changes", "repeat", "stop", "done"]
    reason: Reason = ""
    to: Annotated[str, Meta(max_length=200)] = ""
    lasts: Lasts = "once"
    offer: Annotated[int, Meta(ge=1)] = 1
    outcome: Values | None = None
    settings: Values = {}


class NotificationPreferences(_Body, frozen=True):
    """All of a person's preferences; what is left out becomes empty."""

    events: Annotated[list[What], Meta(max_length=20)] = []
    channels: Annotated[list[Name], Meta(max_length=100)] = []
    address: Annotated[str, Meta(max_length=254)] = ""
    runs: Literal["mine", "all"] = "mine"
    playbooks: Annotated[list[Name], Meta(max_length=100)] | Annotated[str, Meta(max_length=2000)] = []
    """A list, or names separated by commas."""
    quiet_hours: Annotated[str, Meta(max_length=20)] = ""
    time_zone: Annotated[str, Meta(max_length=60)] = ""


class NotificationTest(_Body, frozen=True):
    channel: Annotated[str, Meta(max_length=64)] = ""
    to: Annotated[str, Meta(max_length=64)] = ""


class NotificationRetry(_Body, frozen=True):
    channel: Annotated[str, Meta(max_length=64)] = ""


class LinkCode(_Body, frozen=True):
    code: Annotated[str, Meta(min_length=1, max_length=40)]


class NodeName(_Body, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=64, pattern="^[A-Za-z0-9][A-Za-z0-9_-]*$")]


class NewUser(_Body, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=64, pattern="^[A-Za-z0-9][A-Za-z0-9._@-]*$")]
    roles: Annotated[list[Role], Meta(min_length=1, max_length=4)]
    same_person: bool = False
    """Whether the earlier user of this name is added again, whose runs are then theirs."""


class UserRole(_Body, frozen=True):
    role: Role


class UserTeam(_Body, frozen=True):
    team: Annotated[str, Meta(min_length=1, max_length=64, pattern="^[A-Za-z0-9][A-Za-z0-9._@-]*$")]


class UserSubject(_Body, frozen=True):
    """Who a user is for the identity provider; empty ends that."""

    subject: Annotated[str, Meta(max_length=255)]


class NewSchedule(_Body, frozen=True):
    """Adds a schedule for a playbook of the library."""

    playbook: Name
    cron: Annotated[str, Meta(min_length=1, max_length=200)]
    time_zone: Annotated[str, Meta(max_length=100)] = "UTC"
    name: Annotated[str, Meta(max_length=64)] = ""
    inputs: Values = {}
    model: Annotated[str, Meta(max_length=200)] = ""
    overlap: Overlap = "skip"
    catch_up: Annotated[float, Meta(ge=0)] = CATCH_UP
    jitter: Annotated[float, Meta(ge=0)] = 0.0
    unattended: bool = False


class Allow(_Body, frozen=True):
    digest: Annotated[str, Meta(min_length=1, max_length=100)]
    seconds: Annotated[float, Meta(gt=0)] = LASTS


class NewKey(_Body, frozen=True):
    key: Annotated[str, Meta(min_length=1, max_length=1000)]


async def body(request: Request, kind: type[T]) -> T:
    """Parse the request's JSON; an empty body counts as an empty object."""
    raw = await request.body() or b"{}"
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise Problem(422, "bad_body", f"Invalid request body: {error}.", fix=_FIX) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        half = _half_character(raw)
        why = f"A string in the request has an unpaired surrogate ({half})." if half else ""
        raise Problem(400, "bad_json", why or f"The request is not valid JSON: {error}.", fix=_FIX) from None


def _half_character(raw: bytes) -> str:
    """The first unpaired surrogate, in JSON notation; empty if there is none or the text is not JSON."""
    try:
        json.dumps(json.loads(raw), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return f"\\u{ord(error.object[error.start]):04x}"
    except (ValueError, RecursionError):
        pass
    return ""


async def fields(request: Request) -> dict[str, str]:
    """The fields of a form; the last value counts if a field is repeated."""
    return dict(await pairs(request))


async def pairs(request: Request) -> list[tuple[str, str]]:
    """The fields of a form in their order, with repeated ones."""
    try:
        text = (await request.body()).decode()
        return parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except UnicodeDecodeError:
        raise Problem(400, "bad_form", "The form is not valid UTF-8.", fix=_FIX) from None
    except ValueError:
        raise Problem(422, "bad_body", f"A form may have at most {_MOST_FIELDS} fields.", fix=_FIX) from None


def amounts(given: Mapping[str, str]) -> Amounts:
    """A budget from the fields of a form."""
    try:
        found = msgspec.convert(given, Amounts, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(422, "bad_body", f"Invalid limit: {error}.", fix="Correct it and start again.") from None
    if math.inf in (found.money, found.seconds):
        raise Problem(422, "bad_body", "Invalid limit: it must be finite.", fix="Correct it and start again.")
    return found


def idempotency_key(request: Request) -> str:
    """The idempotency key in the request's headers."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > _LONGEST_KEY:
        raise Problem(422, "bad_key", f"The header Idempotency-Key is longer than {_LONGEST_KEY} characters.")
    return key


_FIX = "GET /api/openapi.yaml describes the request."
