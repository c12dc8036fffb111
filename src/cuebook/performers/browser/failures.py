"""Why a command to a page failed, for the author of the playbook."""

from __future__ import annotations

import re
from typing import Any

from cuebook.kernel.browser_trail import is_click
from cuebook.kernel.effects import Browse
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.outcomes import UNANSWERED, Failed
from cuebook.performers.browser.session import MOST_PAGES, Session, TooManyPages

_TLS = {
    "ERR_CERT_AUTHORITY_INVALID": "the authority of its certificate is not trusted",
    "ERR_CERT_COMMON_NAME_INVALID": "its certificate is for another name",
    "ERR_CERT_DATE_INVALID": "its certificate has expired, or is not valid yet",
    "ERR_CERT_REVOKED": "its certificate was revoked",
    "ERR_CERT_": "its certificate is not valid",
    "ERR_SSL_": "no secure connection could be established",
}
"""What the browser's errors mean, the more general ones last."""
_TLS_FIX = (
    "Check its certificate. For an authority of your own, name the file with its certificate in SSL_CERT_FILE; under"
    " Landlock, add it to Chromium's policy CACertificates instead."
)


_CALLED = re.compile(r"^[A-Z]\w*\.\w+: ")
"""How Playwright begins its messages: with the call that failed."""
_NETWORK = {
    "ERR_TUNNEL_CONNECTION_FAILED": "its name is unknown, or the server does not accept connections",
    "ERR_CONNECTION_": "the server closed the connection",
    "ERR_EMPTY_RESPONSE": "the server closed the connection",
    "ERR_TOO_MANY_REDIRECTS": "it redirects without end",
}


class Refused(Exception):
    """The command failed for a known reason."""

    def __init__(self, code: str, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.failed = Failed(code, message, fix)


class NoElement(Refused):
    def __init__(self, selector: str, error: Exception) -> None:
        said = str(getattr(error, "message", error))
        if "strict mode violation" in said:
            count = said.partition("resolved to ")[2].partition(" ")[0]
            message = f"The selector {selector} matches {count} elements."
            super().__init__("ambiguous_element", message, "Use a selector that matches one element.")
        elif "Timeout" in said:
            super().__init__(
                "no_such_element",
                f"No element that can be used matches {selector}.",
                "Check the selector in the page's elements, which the run's page shows; raise timeout_ms if it appears late.",
            )
        else:
            super().__init__("bad_element", f"{selector}: {_first(said)}", "Check the selector and the element.")


class HostRefused(Refused):
    def __init__(self, host: str) -> None:
        super().__init__(
            "host_refused",
            f"The page leads to {host}, which the browser of this run must not reach.",
            f"Add {host} to allowed_domains if it should.",
        )


class Unreachable(Refused):
    def __init__(self, url: str, error: Exception | None) -> None:
        said = _first(str(getattr(error, "message", ""))) if error is not None else "the browser shows an error"
        flaw = _meaning(_TLS, said)
        if flaw:
            super().__init__("tls", f"{url} could not be opened: {flaw}.", _TLS_FIX)
        elif "Timeout" in said:
            super().__init__("timeout", f"{url} did not load in time.", "Raise timeout_ms, or check the page.")
        else:
            why = _meaning(_NETWORK, said) or said.removesuffix(f" at {url}")
            super().__init__("unreachable", f"{url} could not be opened: {why}.", "Check the URL.")


class AnsweredWithError(Refused):
    def __init__(self, url: str, status: int) -> None:
        super().__init__("http_status", f"{url} answered with status {status}.", "Check the URL.")


class NotDownloaded(Refused):
    def __init__(self, error: Exception) -> None:
        said = _first(str(getattr(error, "message", error)))
        why = "nothing was downloaded in time" if "Timeout" in said else said
        if "canceled" in said:
            why = "the server or the browser ended it before it was complete"
        super().__init__("not_downloaded", f"The download failed: {why}.", "Check what the link or the URL leads to.")


def failure_of(error: Exception, session: Session, effect: Browse, seconds: float, *, acted: bool) -> Failed | None:
    """The failure for an error; None for a defect of ours."""
    from playwright.async_api import Error

    details: dict[str, Any] = {"sent": acted} if is_click(effect) else {}
    doubt = {UNANSWERED: True} if acted else {}
    match error:
        case Refused(failed=failed):
            # A click that led to a refused host was performed; one whose request got no answer may have been.
            doubted = doubt if isinstance(error, Unreachable) else {}
            details |= doubted
            return Failed(failed.code, failed.message, failed.fix, details={**failed.details, **details})
        case CuebookError():
            return Failed(error.code, error.message, error.fix, details=details)
        case TimeoutError():
            message = f"The page did not respond within {seconds:g} s."
            return Failed("timeout", message, "Raise timeout_ms, or check the page.", details={**details, **doubt})
        case TooManyPages():
            message = f"The page opened more than {MOST_PAGES} other pages, so the browser was ended."
            return Failed("too_many_pages", message, details={**details, **doubt})
        case Error():
            said = _first(error.message)
            if "Timeout" in said:
                message = f"The page did not respond within {seconds:g} s."
                return Failed("timeout", message, "Raise timeout_ms, or check the page.", details={**details, **doubt})
            code = "bad_element" if not session.refused and "selector" in said.lower() else "browser_failed"
            return Failed(code, f"The browser failed: {said}", details={**details, **doubt})
    return None


def _meaning(of: dict[str, str], said: str) -> str:
    return next((words for code, words in of.items() if code in said), "")


def _first(said: str) -> str:
    line = (said.strip().splitlines() or [""])[0]
    return _CALLED.sub("", line)[:300]
