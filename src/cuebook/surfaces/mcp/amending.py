"""One entry put into the text of a JSON or TOML file, every other letter of which stays.

It knows texts only. A text is parsed, amended, parsed again and compared: where anything but the entry would be another
than before, it is refused.
"""

from __future__ import annotations

import json
import re
import tomllib
from decimal import Decimal
from typing import Any

Settings = dict[str, Any]

REACHED = frozenset({"type", "command", "args", "url", "httpUrl", "serverUrl", "headers", "bearer_token_env_var"})
"""What of an entry says how the server is reached; whatever else stands in it is the user's own."""
_AUTHORIZED = ("headers", "bearer_token_env_var")
"""What may hold the user's token, or say where it is."""
_BLANK = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"\n([ \t]+)\S")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_DECODER = json.JSONDecoder()


class Unfit(Exception):
    """The text cannot be amended without harm; the words say why, and follow the name of the file."""


def into_json(text: str, path: tuple[str, ...], entry: Settings) -> str:
    """The text with the entry at that path of keys."""
    text = text if text.strip() else "{}\n"
    known, wanted = _read_json(text), _with(_read_json(text), path, entry)
    if known == wanted:
        return text
    start, depth = _past_blank(text, 0), 0
    while depth < len(path) - 1 and isinstance(known.get(path[depth]), dict):
        start = _members(text, start)[0][path[depth]][0]
        known, wanted, depth = known[path[depth]], wanted[path[depth]], depth + 1
    amended = _put(text, start, path[depth], wanted[path[depth]], depth + 1)
    if _read_json(amended, exact=True) != _with(_read_json(text, exact=True), path, entry):
        raise Unfit("would not be the same otherwise")
    return amended


def into_toml(text: str, path: tuple[str, str], entry: Settings) -> str:
    """The text with the entry as the table of that name. An existing one is amended only where it has a heading."""
    known, wanted = _read_toml(text), _with(_read_toml(text), path, entry)
    if known == wanted:
        return text
    table, name = path
    pieces = _statements(text)
    at = next((index for index, one in enumerate(pieces) if _read_toml(one) == {table: {name: {}}}), None)
    end = "\r\n" if "\r\n" in text else "\n"
    if at is not None:
        after = next((i for i in range(at + 1, len(pieces)) if pieces[i].lstrip().startswith("[")), len(pieces))
        pieces[at:after] = _retold(pieces[at:after], wanted[table][name], end)
        amended = "".join(pieces)
    elif name in known.get(table, {}):
        raise Unfit(f"has '{name}' in another form than under [{table}.{name}]")
    else:
        made = table_of(path, entry).replace("\n", end)
        amended = f"{_ended(text, end)}{end}{made}" if text.strip() else made
    try:
        same = _read_toml(amended) == wanted
    except Unfit:
        same = False
    if not same:
        raise Unfit(f"has '{table}' in a form to which nothing can be added")
    return amended


def table_of(path: tuple[str, ...], entry: Settings) -> str:
    """The entry as a table of TOML."""
    return "".join([f"[{'.'.join(path)}]\n", *(f"{key} = {_literal(value)}\n" for key, value in entry.items())])


def _with(known: Settings, path: tuple[str, ...], entry: Settings) -> Settings:
    """What the text should say: everything it says, and the entry."""
    holder = known
    for key in path[:-1]:
        if holder.get(key) is None:
            holder[key] = {}
        holder = holder[key]
        if not isinstance(holder, dict):
            raise Unfit(f"has something else than a table of servers at '{key}'")
    holder[path[-1]] = _renewed(holder.get(path[-1]), entry)
    return known


def _renewed(old: object, entry: Settings) -> Settings:
    """The entry, with what the user has set in the one that is there."""
    if not isinstance(old, dict):
        return entry
    own = [key for key in old if key not in REACHED]
    if ("command" in old) != ("command" in entry):
        if own:
            raise Unfit(f"has settings of an entry that reaches the server another way ({', '.join(own)})")
        return entry
    entry = {**entry, **{key: old[key] for key in _AUTHORIZED if key in old}}
    return {**{key: old[key] for key in old if key in own or key in entry}, **entry}


def _read_json(text: str, *, exact: bool = False) -> Settings:
    """What the text says, with numbers as they are written if `exact`."""

    def once(pairs: list[tuple[str, Any]]) -> Settings:
        made = dict(pairs)
        if len(made) < len(pairs):
            raise Unfit("has a key twice in one object")
        return made

    def constant(name: str) -> None:
        raise Unfit(f"has a number that JSON does not know ({name})")

    try:
        known = json.loads(
            text, object_pairs_hook=once, parse_constant=constant, parse_float=Decimal if exact else float
        )
    except (ValueError, RecursionError) as error:
        raise Unfit(f"is no plain JSON ({error})") from None
    if not isinstance(known, dict):
        raise Unfit("holds something else than an object")
    return known


def _past_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _members(text: str, start: int) -> tuple[dict[str, tuple[int, int]], int]:
    """Where the values of the object that begins at `start` stand, and where its closing brace does."""
    spans: dict[str, tuple[int, int]] = {}
    at = _past_blank(text, start + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        begin = _past_blank(text, _past_blank(text, at) + 1)
        end = _DECODER.raw_decode(text, begin)[1]
        spans[key] = begin, end
        at = _past_blank(text, end)
        at = _past_blank(text, at + 1) if text[at] == "," else at
    return spans, at


def _put(text: str, start: int, key: str, value: object, depth: int) -> str:
    """The value at that key of the object that begins at `start`, in the way the text is laid out."""
    end = "\r\n" if "\r\n" in text else "\n"
    indent = found[1] if (found := _INDENT.search(text)) else "  "
    made = json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", end + indent * depth)
    spans, brace = _members(text, start)
    if key in spans:
        begin, stop = spans[key]
        return text[:begin] + made + text[stop:]
    last = max((stop for _, stop in spans.values()), default=start + 1)
    closing = text[last:brace] if "\n" in text[last:brace] else end + indent * (depth - 1)
    comma = "," if spans else ""
    return f"{text[:last]}{comma}{end}{indent * depth}{json.dumps(key)}: {made}{closing}{text[brace:]}"


def _read_toml(text: str) -> Settings:
    """What the text says, with numbers as they are written."""
    try:
        return tomllib.loads(text, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise Unfit(f"is no TOML ({error})") from None


def _statements(text: str) -> list[str]:
    """The text in pieces: a heading, an assignment with all its lines, or a line that says nothing."""
    made, begun = [], ""
    for line in _LINE.findall(text):
        begun += line
        try:
            tomllib.loads(begun)
        except tomllib.TOMLDecodeError:
            continue  # the value goes on
        made.append(begun)
        begun = ""
    return made


def _retold(pieces: list[str], wanted: Settings, end: str) -> list[str]:
    """A table with its heading, amended: what does not say how the server is reached stays, and so do remarks."""
    told, body = set(), []
    for piece in pieces[1:]:
        key, value = next(iter(_read_toml(piece).items()), ("", None))
        if key not in REACHED or wanted.get(key) == value:
            told.add(key)
            body.append(piece)
            continue
        remark = _remark(piece)
        if key in wanted:
            told.add(key)
            body.append(f"{key} = {_literal(wanted[key])}{' ' if remark else ''}{remark}{end}")
        elif remark:
            body.append(remark + end)
    added = [f"{key} = {_literal(value)}{end}" for key, value in wanted.items() if key in REACHED and key not in told]
    return [_ended(pieces[0], end), *added, *body]


def _remark(piece: str) -> str:
    """The comment behind an assignment."""
    whole = _read_toml(piece)
    for found in re.finditer("#", piece):
        try:
            if _read_toml(piece[: found.start()]) == whole:
                return piece[found.start() :].strip()
        except Unfit:  # this one is within the value
            continue
    return ""


def _literal(value: str | list[str]) -> str:
    """A text, or a list of them, as TOML has it: what JSON escapes is escaped the same there."""
    return json.dumps(value, ensure_ascii=False)


def _ended(text: str, end: str) -> str:
    return text if text.endswith("\n") else text + end
