"""Where whoever signs in was going: a path of this server, and never another one."""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.requests import Request

HOME = "/"
_PATH = re.compile(r"/(?!/)[!-\[\]-~]{0,1999}")
"""What no browser takes for another host: it begins with one slash, and has no backslash, space or control character."""


def safe_path(given: str) -> str:
    """The path, if it is one of this server; otherwise the first page."""
    return given if _PATH.fullmatch(given) else HOME


def path_of(request: Request) -> str:
    """The page that was asked for; empty where nobody can come back to it."""
    if request.method != "GET":
        return ""
    query = f"?{request.url.query}" if request.url.query else ""
    asked = quote(request.url.path, safe="/:@!$&'()*+,;=~-._") + query
    return asked if safe_path(asked) == asked else ""
