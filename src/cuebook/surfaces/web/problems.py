"""Errors of the web app: problem details for programs, and an error page with the same text for people."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterable
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cuebook.gate.roles import NotAllowed
from cuebook.kernel.errors import (
    BadInput,
    Busy,
    CuebookError,
    NotFound,
    Refused,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    WaitClosed,
    WaitExpired,
)
from cuebook.service.contract.requests import InvalidRequest
from cuebook.service.rate_limit import TooManyRuns
from cuebook.surfaces.web.auth.redirect import HOME, path_of

log = logging.getLogger("cuebook")

CONTENT_TYPE = "application/problem+json"
NEW_TOKEN = "cuebook users add me --role admin"
"""The command that creates a first token."""
_LOCKED_FOR = 1
"""Seconds after which a store locked by another process may be free again."""

_STATUS: tuple[tuple[type[CuebookError], int], ...] = (
    (NotFound, 404),
    (InvalidRequest, 400),
    (NotAllowed, 403),
    (TooManyRuns, 429),
    (WaitExpired, 410),
    (WaitClosed, 410),
    (Busy, 409),
    (Refused, 409),
    (BadInput, 422),
    (StoreLocked, 503),
    (StoreFull, 507),
    (StoreDamaged, 500),
    (StoreError, 503),
)
"""HTTP statuses of errors; the first matching class counts."""


_RATE, _RAISED = r", or set `rate_limit` higher", "; an administrator can raise the limit"
_MISSING = r"Pass(?: --[\w-]+ VALUE)+"
"""Command line options, which neither the pages nor the API have."""
_PAGES = (
    (r"`cuebook runs`", "The Runs page"),
    (r"`cuebook inbox`", "The inbox"),
    (r"`cuebook inbox \S+`", "the inbox"),
    (r"`cuebook show \S+`", "Its page"),
    (r"`cuebook retry [^`]+`", "“Retry where it stopped” on its page"),
    (r"`cuebook restart [^`]+ --set [^`]+`", "“Fork” on its page, once it has ended,"),
    (r"`cuebook restart [^`]+`", "“Restart from here” on its page"),
    (r"`cuebook resume [^`]+`", "“Resume” on its page"),
    (r"`cuebook (answer|decide) [^`]+`", "The form on its page"),
    (_RATE, _RAISED),
    (_MISSING, "Fill in the fields above"),
)
"""Patterns for the commands that errors mention, each with its counterpart on the pages."""
_API = (
    (r"`cuebook runs`", "GET /api/runs"),
    (r"`cuebook inbox`", "GET /api/inbox"),
    (r"`cuebook inbox (\S+)`", r"GET /api/runs/\1"),
    (r"`cuebook show (\S+)`", r"GET /api/runs/\1"),
    (r"`cuebook (retry|resume) (\S+)`", r"POST /api/runs/\2/\1"),
    (r"`cuebook restart (\S+) [^`]+ --set [^`]+`", r"POST /api/runs/\1/fork"),
    (r"`cuebook restart (\S+) [^`]+`", r"POST /api/runs/\1/restart"),
    (r"`cuebook answer (\S+) [^`]+`", r"POST /api/waits/WAIT/answer, with WAIT from `waits` of GET /api/runs/\1,"),
    (r"`cuebook decide (\S+) [^`]+`", r"POST /api/waits/WAIT/decide, with WAIT from `waits` of GET /api/runs/\1,"),
    (_RATE, _RAISED),
    (_MISSING, "Pass them in `inputs`"),
    (r"as --input NAME=VALUE", "in `inputs`, by its name"),
)
"""Patterns for the same commands, each with its counterpart in the API."""
_SIGN_IN = "Sign in again; then you can continue on this page."


def for_pages(words: str) -> str:
    """Replace the commands in a message with their counterparts on the pages."""
    return _instead(words, _PAGES)


def _instead(words: str, table: Iterable[tuple[str, str]]) -> str:
    for command, instead in table:
        words = re.sub(command, instead, words)
    return words


class Problem(CuebookError):
    """A request that the web app itself refuses, before the service is called."""

    def __init__(self, status: int, code: str, message: str, *, fix: str = "", **headers: str) -> None:
        super().__init__(message, fix=fix)
        self.status = status
        self.problem_code = code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Details(msgspec.Struct, frozen=True, omit_defaults=True):
    """Problem details (RFC 9457), with a code and a fix."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    fix: str = ""
    id: str = ""
    """For an unexpected error: the id of its entry in the log."""


def _details_of(error: Exception) -> tuple[Details, dict[str, str]]:
    """The details and headers for an error. Unexpected errors are logged."""
    headers: dict[str, str] = {}
    if isinstance(error, Problem):
        return _details(error.status, error.problem_code, error.message, error.fix), error.headers
    if isinstance(error, CuebookError):
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
        if isinstance(error, TooManyRuns):
            headers["Retry-After"] = str(error.retry_after)
        elif status == 503:
            headers["Retry-After"] = str(_LOCKED_FOR)
        return _details(status, error.code, error.message, error.fix), headers
    id = secrets.token_hex(4)
    log.error("Request %s failed.", id, exc_info=error)
    details = _details(500, "internal", "Unexpected internal error.", f"The server's log has the details under {id}.")
    return msgspec.structs.replace(details, id=id), headers


def _details(status: int, code: str, message: str, fix: str) -> Details:
    return Details(f"urn:cuebook:problem:{code}", HTTPStatus(status).phrase, status, message, code, fix)


def _details_for(error: Exception, *, browser: bool) -> tuple[Details, dict[str, str]]:
    """The details for a client: the fix names pages for a browser, and API calls for a program."""
    details, headers = _details_of(error)
    fix = (
        _SIGN_IN if browser and details.code == "not_signed_in" else _instead(details.fix, _PAGES if browser else _API)
    )
    return msgspec.structs.replace(details, fix=fix), headers


def problem(request: Request, error: Exception) -> Response:
    """An error response for a program."""
    details, headers = _details_for(error, browser=_is_browser(request))
    return Response(msgspec.json.encode(details), details.status, headers, CONTENT_TYPE)


def page(request: Request, error: Exception, waiting: int = 0) -> Response:
    """An error page for a person; `waiting` is the number in the inbox badge."""
    from cuebook.surfaces.web.pages.render import page as rendered

    details, headers = _details_for(error, browser=True)
    if details.code == "not_signed_in" and request.method in ("GET", "HEAD"):
        # Show the form at this URL: a redirect would lose the fragment.
        onward = path_of(request) or HOME
        response = rendered(
            request, "sign-in.html", details.status, words="", command=NEW_TOKEN, next=onward, comes_back=onward != HOME
        )
    else:
        response = rendered(
            request, "problem.html", problem=details, status=details.status, waiting=waiting, next=path_of(request)
        )
    response.headers.update(headers)
    return response


def response_to(request: Request, error: Exception) -> Response:
    """An error page if a browser opens a page, otherwise problem details."""
    return page(request, error) if wants_page(request) else problem(request, error)


def _is_browser(request: Request) -> bool:
    """Whether the request comes from a page or a person in a browser."""
    return wants_page(request) or any(name in request.headers for name in ("origin", "sec-fetch-mode"))


def wants_page(request: Request) -> bool:
    """Whether a browser opens a page; scripts and programs accept JSON."""
    accepted = request.headers.get("accept", "")
    return "text/html" in accepted and "application/json" not in accepted


def not_found(what: str = "page") -> Problem:
    return Problem(404, "not_found", f"There is no such {what}.", fix="Check the address.")
