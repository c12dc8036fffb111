"""Answers of the JSON API."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response


def answer(value: Any, status: int = 200, **headers: str) -> Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(msgspec.json.encode(value, enc_hook=str), status, given, "application/json")
