"""The redirect target after sign-in: always a path of this server."""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.requests import Request

HOME = "/"
_PATH = re.compile(r"/(?!/)[!-\[\]-~]{0,1999}")
"""Paths that no browser mistakes for another host: one leading slash, no backslash, space or control character."""


def safe_path(given: str) -> str:
    """The path if it is on this server, otherwise the home page."""
    return given if _PATH.fullmatch(given) else HOME


def path_of(request: Request) -> str:
    """The requested page, or an empty string if it cannot be opened again."""
    if request.method != "GET":
        return ""
    query = f"?{request.url.query}" if request.url.query else ""
    asked = quote(request.url.path, safe="/:@!$&'()*+,;=~-._") + query
    return asked if safe_path(asked) == asked else ""
