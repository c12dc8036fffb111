"""Puts arguments into a request: which parts are values, and how they are written in a path, a query and a body."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from cuebook.kernel.effects import SecretUse, SendHttp
from cuebook.kernel.errors import BadInput
from cuebook.performers.skills.model import Filled, Given, Request, Rest, Words

_SETTING = re.compile(r"[A-Z][A-Z0-9_]*", re.ASCII)
_OWNER = "owner"
_SEVERAL = "path"


class BadArguments(BadInput):
    """The arguments cannot be put into the request."""

    code = "bad_arguments"


class _Absent:
    """Marks a missing value; the part that would contain it is left out."""


ABSENT = _Absent()


def made(
    request: Request, values: Mapping[str, Any], arguments: Mapping[str, Any], handles: Mapping[str, str]
) -> SendHttp:
    """The request with all values in it. `handles` contains the handles of secrets, by setting."""
    headers = dict(request.headers)
    body = ""
    if isinstance(request.body, Filled):
        headers["Content-Type"] = "text/plain; charset=utf-8"
        body = str(filled(request.body, values, arguments))
    elif request.body is not None:
        headers["Content-Type"] = "application/json; charset=utf-8"
        body = msgspec.json.encode(filled(request.body, values, arguments)).decode()
    secrets = tuple(SecretUse(f"headers.{one.header}", handles[one.setting], one.form) for one in request.auth)
    return SendHttp(request.method, _address(request, values, arguments), headers, body, secrets=secrets)


def filled(part: Any, values: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """A part of a request with its values, or `ABSENT`."""
    match part:
        case Given(name):
            return values.get(name, ABSENT)
        case Filled(text):
            return _text(text, values)
        case Words(texts, (name, pattern)):
            if name and re.search(pattern, written(values.get(name, "")), re.IGNORECASE):
                texts = texts[:-1]
            found = [word for word in (_text(text, values) for text in texts) if word is not ABSENT]
            return " ".join(str(word) for word in found) if found else ABSENT
        case Rest(but):
            return {name: value for name, value in arguments.items() if name not in but}
        case list():
            return [filled(value, values, arguments) for value in part]
        case dict():
            inner = {name: filled(value, values, arguments) for name, value in part.items()}
            return {name: value for name, value in inner.items() if value is not ABSENT}
        case _:
            return part


def names_in(request: Request) -> set[str]:
    """The arguments and settings that a request uses."""
    found = {request.base, *_names(request.path), *(one.setting for one in request.auth)}
    found |= {one.user for one in request.auth if one.user}
    for part in (*request.query.values(), request.body):
        found.update(_names_within(part))
    return found


def takes_all(part: Any) -> bool:
    """Whether every argument goes into this part of a request, under any name."""
    if isinstance(part, dict | list):
        return any(map(takes_all, part.values() if isinstance(part, dict) else part))
    return isinstance(part, Rest)


def settings_in(request: Request) -> set[str]:
    """The settings that a request uses. Unlike arguments, they are written in capitals."""
    return {name for name in names_in(request) if _SETTING.fullmatch(name)}


def _names_within(part: Any) -> Iterator[str]:
    match part:
        case Given(name):
            yield name
        case Filled(text):
            yield from _names(text)
        case Words(texts):
            for text in texts:
                yield from _names(text)
        case list() | dict():
            for value in part.values() if isinstance(part, dict) else part:
                yield from _names_within(value)
        case _:
            return


def _names(text: str) -> Iterator[str]:
    return (name for _, name, _, _ in Formatter().parse(text) if name)


def _address(request: Request, values: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    base = str(values[request.base])
    pieces = [base.rstrip("/") if request.path else base]
    for literal, name, kind, _ in Formatter().parse(request.path):
        pieces.append(literal)
        if name:
            pieces.append(_in_path(name, written(values[name]), several=kind == _SEVERAL))
    pairs: list[tuple[str, str]] = []
    for name, part in request.query.items():
        value = filled(part, values, arguments)
        if value is not ABSENT:
            pairs += [(name, written(one)) for one in (value if isinstance(value, list) else [value])]
    return "".join(pieces) + (f"?{urlencode(pairs, quote_via=quote)}" if pairs else "")


def _in_path(name: str, value: str, *, several: bool) -> str:
    """The value, percent-encoded. A value that would change the path is refused."""
    parts = value.strip("/").split("/") if several else [value]
    if any(part in ("", ".", "..") for part in parts):
        raise BadArguments(
            f"The argument '{name}' cannot be {value[:100]!a}: it is part of a URL.", fix="Use the exact name."
        )
    return "/".join(quote(part, safe="") for part in parts)


def _text(text: str, values: Mapping[str, Any]) -> str | _Absent:
    pieces = []
    for literal, name, kind, _ in Formatter().parse(text):
        pieces.append(literal)
        if name and name not in values:
            return ABSENT
        if name:
            value = written(values[name])
            pieces.append(value.partition("/")[0] if kind == _OWNER else value)
    return "".join(pieces)


def written(value: Any) -> str:
    """A value as text. A whole number has no decimal point, even if a model writes it with one."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
