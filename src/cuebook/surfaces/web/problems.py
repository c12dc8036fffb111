"""Errors as the web tells them: problem details for programs, a page with the same words for people."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterable
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cuebook.gate.people import NotAllowed
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
from cuebook.kernel.rates import TooManyRuns
from cuebook.requests import InvalidRequest
from cuebook.surfaces.web.returning import HOME, path_of

log = logging.getLogger("cuebook")

CONTENT_TYPE = "application/problem+json"
NEW_TOKEN = "cuebook users add me --role admin"
"""What makes a token for somebody who has none."""
_LOCKED_FOR = 1
"""Seconds after which a store that another process holds may be free again."""

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
"""The first that fits counts."""


_RATE, _RAISED = r", or set `rate_limit` higher", "; an administrator can raise the limit"
_MISSING = r"Give(?: --[\w-]+ VALUE)+"
"""Options of the command line, which neither a page nor the API has."""
_PAGES = (
    (r"`cuebook runs` lists them", "The page Runs lists them"),
    (r"`cuebook inbox` lists", "The inbox lists"),
    (r"`cuebook inbox \S+` says", "the inbox says"),
    (r"`cuebook show \S+` tells", "Its page tells"),
    (r"`cuebook retry [^`]+`", "“Retry where it stopped” on its page"),
    (r"`cuebook restart [^`]+`", "“Restart from here” on its page"),
    (r"`cuebook fork [^`]+`", "“Fork” on its page, once it has ended,"),
    (r"`cuebook resume [^`]+`", "“Resume” on its page"),
    (r"`cuebook (answer|decide) [^`]+`", "The form on its page"),
    (_RATE, _RAISED),
    (_MISSING, "Fill in the fields above"),
)
"""What the pages have for commands that an error names to a person."""
_API = (
    (r"`cuebook runs` lists", "GET /api/runs lists"),
    (r"`cuebook inbox` lists", "GET /api/inbox lists"),
    (r"`cuebook inbox (\S+)` says", r"GET /api/runs/\1 says"),
    (r"`cuebook show (\S+)` tells", r"GET /api/runs/\1 tells"),
    (r"`cuebook (retry|resume) (\S+)`", r"POST /api/runs/\2/\1"),
    (r"`cuebook restart (\S+) [^`]+`", r"POST /api/runs/\1/restart"),
    (r"`cuebook fork (\S+) [^`]+`", r"POST /api/runs/\1/fork"),
    (r"`cuebook answer (\S+) [^`]+`", r"POST /api/waits/WAIT/answer, with WAIT from `waits` of GET /api/runs/\1,"),
    (r"`cuebook decide (\S+) [^`]+`", r"POST /api/waits/WAIT/decide, with WAIT from `waits` of GET /api/runs/\1,"),
    (_RATE, _RAISED),
    (_MISSING, "Give them in `inputs`"),
    (r"as --input NAME=VALUE", "in `inputs`, by its name"),
)
"""What the API has for them, for a program."""
_SIGN_IN = "Sign in once more; this page can be used again then."


def for_pages(words: str) -> str:
    """A sentence in which commands have become what the pages have for them."""
    return _instead(words, _PAGES)


def _instead(words: str, table: Iterable[tuple[str, str]]) -> str:
    for command, instead in table:
        words = re.sub(command, instead, words)
    return words


class Problem(CuebookError):
    """A request that the web itself refuses, before anything of Cuebook is asked."""

    def __init__(self, status: int, code: str, message: str, *, fix: str = "", **headers: str) -> None:
        super().__init__(message, fix=fix)
        self.status = status
        self.problem_code = code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Details(msgspec.Struct, frozen=True, omit_defaults=True):
    """Problem details, as RFC 9457 has them, with our code and what to do next."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    fix: str = ""
    id: str = ""
    """Of what nobody expected: the log has it under this id."""


def _details_of(error: Exception) -> tuple[Details, dict[str, str]]:
    """What is told of an error, and the headers that go with it. The log keeps what nobody expected."""
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
    told = _details(500, "internal", "Something unexpected went wrong.", f"The server's log has it under {id}.")
    return msgspec.structs.replace(told, id=id), headers


def _details(status: int, code: str, message: str, fix: str) -> Details:
    return Details(f"urn:cuebook:problem:{code}", HTTPStatus(status).phrase, status, message, code, fix)


def _details_for(request: Request, error: Exception) -> tuple[Details, dict[str, str]]:
    """What to do next is said in the words of whoever reads it. A browser has a page to sign in, and no use for headers."""
    details, headers = _details_of(error)
    browser = _is_browser(request)
    fix = (
        _SIGN_IN if browser and details.code == "not_signed_in" else _instead(details.fix, _PAGES if browser else _API)
    )
    return msgspec.structs.replace(details, fix=fix), headers


def problem(request: Request, error: Exception) -> Response:
    """An error for a program."""
    details, headers = _details_for(request, error)
    return Response(msgspec.json.encode(details), details.status, headers, CONTENT_TYPE)


def page(request: Request, error: Exception, waiting: int = 0) -> Response:
    """An error for a person, for whom so many things wait."""
    from cuebook.surfaces.web.rendering import page as rendered

    details, headers = _details_for(request, error)
    if details.code == "not_signed_in" and request.method in ("GET", "HEAD"):
        # The form itself, at this address: a redirect would lose what comes after a #.
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


def told(request: Request, error: Exception) -> Response:
    """An error for whoever asks: a browser that opens a page is shown one."""
    return page(request, error) if wants_page(request) else problem(request, error)


def _is_browser(request: Request) -> bool:
    """Whether a person looks at what a page makes of the answer."""
    return wants_page(request) or any(name in request.headers for name in ("origin", "sec-fetch-mode"))


def wants_page(request: Request) -> bool:
    """A browser asks so when a person opens something; scripts and programs do not."""
    accepted = request.headers.get("accept", "")
    return "text/html" in accepted and "application/json" not in accepted


def not_found(what: str = "page") -> Problem:
    return Problem(404, "not_found", f"There is no such {what}.", fix="Check the address.")
