"""Adds one entry to the text of a JSON or TOML file and keeps everything else, including comments.

It works on strings only. The text is parsed, amended, parsed again and compared: if anything but the entry would change, the
edit is refused.
"""

from __future__ import annotations

import json
import re
import tomllib
from decimal import Decimal
from typing import Any, NamedTuple

Settings = dict[str, Any]

REACHED = frozenset({"type", "command", "args", "url", "httpUrl", "serverUrl", "headers", "bearer_token_env_var"})
"""Keys of an entry that say how to reach the server; all other keys belong to the user."""
_AUTHORIZED = ("headers", "bearer_token_env_var")
"""Keys that may contain the user's token or its location."""
_BLANK = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"\n([ \t]+)\S")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_DECODER = json.JSONDecoder()
_TEXT = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
"""A string that is never closed extends to the end, so matching stays linear."""
_COMMENT = re.compile(rf"{_TEXT}|(//[^\r\n]*|/\*.*?(?:\*/|\Z))", re.DOTALL)
_COMMA = re.compile(rf"{_TEXT}|(,)(?=\s*[}}\]])", re.DOTALL)
_LETTER = re.compile(r"[^\r\n]")
_MARK = "\ufeff"
"""The byte order mark that some editors put at the start of a file."""


class CannotEdit(Exception):
    """The text cannot be amended safely. The message says why, and follows the name of the file."""


def into_json(text: str, path: tuple[str, ...], entry: Settings) -> str:
    """The text with the entry at this path of keys."""
    bare = without_comments(text)
    if not bare.strip():
        text = f"{_ended(text, _line_end(text))}{{}}{_line_end(text)}" if text.strip() else "{}\n"
        bare = without_comments(text)
    known, wanted = read_json(text), _with(read_json(text), path, entry)
    if known == wanted:
        return text
    amended = _amended_object(text, _past_blank(bare, 0), known, wanted, 1)
    if comments_of(amended) != comments_of(text):
        raise CannotEdit("has a comment within the part to be replaced")
    try:
        same = read_json(amended, exact=True) == _with(read_json(text, exact=True), path, entry)
    except CannotEdit:
        same = False
    if not same:
        raise CannotEdit("would also change in other places")
    return amended


def into_toml(text: str, path: tuple[str, str], entry: Settings) -> str:
    """The text with the entry as a table. An existing table is amended only if it has a heading."""
    known, wanted = _read_toml(text), _with(_read_toml(text), path, entry)
    if known == wanted:
        return text
    table, name = path
    pieces = _statements(text)
    at = next((index for index, one in enumerate(pieces) if _read_toml(one) == {table: {name: {}}}), None)
    end = _line_end(text)
    if at is not None:
        after = next((i for i in range(at + 1, len(pieces)) if pieces[i].lstrip().startswith("[")), len(pieces))
        pieces[at:after] = _amended_table(pieces[at:after], wanted[table][name], end)
        amended = "".join(pieces)
    elif name in known.get(table, {}):
        raise CannotEdit(f"has '{name}' in a form other than a table [{table}.{name}]")
    else:
        made = table_of(path, entry).replace("\n", end)
        amended = f"{_ended(text, end)}{end}{made}" if text.strip() else made
    try:
        same = _read_toml(amended) == wanted
    except CannotEdit:
        same = False
    if not same:
        raise CannotEdit(f"has '{table}' in a form that cannot be extended")
    return amended


def out_of_json(text: str, path: tuple[str, ...]) -> str:
    """The text without the entry at this path of keys."""
    if not without_comments(text).strip():
        return text
    known, wanted = read_json(text), read_json(text)
    if not _drop(wanted, path):
        return text
    bare = without_comments(text)
    amended = _amended_object(text, _past_blank(bare, 0), known, wanted, 1)
    exact = read_json(text, exact=True)
    _drop(exact, path)
    try:
        same = read_json(amended, exact=True) == exact
    except CannotEdit:
        same = False
    if not same:
        raise CannotEdit("would also change in other places")
    return amended


def out_of_toml(text: str, path: tuple[str, str]) -> str:
    """The text without the entry's table and the tables below it."""
    wanted = _read_toml(text)
    if not _drop(wanted, path):
        return text
    table, name = path
    kept: list[str] = []
    inside = False
    for piece in _statements(text):
        if piece.lstrip().startswith("["):
            heading = _read_toml(piece)
            inside = name in (heading.get(table) or {}) if isinstance(heading.get(table), dict) else False
        if not inside:
            kept.append(piece)
    amended = "".join(kept)
    left = _read_toml(amended)
    left.setdefault(table, {})
    wanted.setdefault(table, {})
    if left != wanted:
        raise CannotEdit(f"has '{name}' in a form other than a table [{table}.{name}]")
    return amended


def _drop(known: Settings, path: tuple[str, ...]) -> bool:
    """Remove the value at this path of keys; returns whether there was one."""
    holder: Any = known
    for key in path[:-1]:
        holder = holder.get(key) if isinstance(holder, dict) else None
    if not isinstance(holder, dict) or path[-1] not in holder:
        return False
    del holder[path[-1]]
    return True


def table_of(path: tuple[str, ...], entry: Settings) -> str:
    """The entry as a TOML table."""
    return "".join([f"[{'.'.join(path)}]\n", *(f"{key} = {_literal(value)}\n" for key, value in entry.items())])


def _with(known: Settings, path: tuple[str, ...], entry: Settings) -> Settings:
    """The parsed text with the entry added."""
    holder = known
    for key in path[:-1]:
        if holder.get(key) is None:
            holder[key] = {}
        holder = holder[key]
        if not isinstance(holder, dict):
            raise CannotEdit(f"has no table of servers at '{key}'")
    holder[path[-1]] = _renewed(holder.get(path[-1]), entry)
    return known


def _renewed(old: object, entry: Settings) -> Settings:
    """The entry, with the user's own settings from the existing entry."""
    if not isinstance(old, dict):
        return entry
    own = [key for key in old if key not in REACHED]
    if ("command" in old) != ("command" in entry):
        if own:
            raise CannotEdit(f"has settings of an entry that reaches the server in another way ({', '.join(own)})")
        return entry
    entry = {**entry, **{key: old[key] for key in _AUTHORIZED if key in old}}
    return {**{key: old[key] for key in old if key in own or key in entry}, **entry}


def read_json(text: str, *, exact: bool = False) -> Settings:
    """Parse JSON that may have comments; with `exact`, numbers keep their notation."""

    def once(pairs: list[tuple[str, Any]]) -> Settings:
        made = dict(pairs)
        if len(made) < len(pairs):
            raise CannotEdit("has a duplicate key in an object")
        return made

    def constant(name: str) -> None:
        raise CannotEdit(f"has an invalid number ({name})")

    try:
        known = json.loads(
            without_commas(without_comments(text)),
            object_pairs_hook=once,
            parse_constant=constant,
            parse_float=Decimal if exact else float,
        )
    except (ValueError, RecursionError) as error:
        raise CannotEdit(f"is not valid JSON, with or without comments ({error})") from None
    if not isinstance(known, dict):
        raise CannotEdit("does not contain an object")
    return known


def _past_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


class _Member(NamedTuple):
    """The positions of an object's member: its key, and its value."""

    key: int
    begin: int
    stop: int


def _members(bare: str, start: int) -> tuple[dict[str, _Member], int]:
    """The members of the object at `start` in text without comments, and the position of its closing brace."""
    plain = without_commas(bare)
    found: dict[str, _Member] = {}
    at = _past_blank(plain, start + 1)
    while plain[at] != "}":
        key, stop = _DECODER.raw_decode(plain, at)
        begin = _past_blank(plain, _past_blank(plain, stop) + 1)
        found[key] = _Member(at, begin, _DECODER.raw_decode(plain, begin)[1])
        at = _past_blank(plain, found[key].stop)
        at = _past_blank(plain, at + 1) if plain[at] == "," else at
    return found, at


def _amended_object(text: str, start: int, known: Settings, wanted: Settings, depth: int) -> str:
    """The text with the object at `start` changed from the `known` to the `wanted` content."""
    for key in [key for key in known if key not in wanted]:
        text = _without(text, start, key)
    for key, value in wanted.items():
        old = known.get(key)
        if key in known and old == value:
            continue
        if isinstance(old, dict) and isinstance(value, dict):
            begin = _members(without_comments(text), start)[0][key].begin
            text = _amended_object(text, begin, old, value, depth + 1)
        else:
            text = _put(text, start, key, value, depth)
    return text


def _put(text: str, start: int, key: str, value: object, depth: int) -> str:
    """The text with this value in the object at `start`, in the layout of the text."""
    end, indent, bare = _line_end(text), _indent(text), without_comments(text)
    made = json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", end + indent * depth)
    members, brace = _members(bare, start)
    if key in members:
        return text[: members[key].begin] + made + text[members[key].stop :]
    last = max((member.stop for member in members.values()), default=start + 1)
    comma = "," if members and bare[_past_blank(bare, last)] != "," else ""
    kept = text[last:brace].rstrip(" \t\r\n")
    blank = text[last + len(kept) : brace]
    closing = blank if "\n" in blank else end + indent * (depth - 1)
    return f"{text[:last]}{comma}{kept}{end}{indent * depth}{json.dumps(key)}: {made}{closing}{text[brace:]}"


def _without(text: str, start: int, key: str) -> str:
    """The text without this key of the object at `start`, its comma, and its line if nothing else is on it."""
    bare = without_comments(text)
    member = _members(bare, start)[0][key]
    after = _past_blank(bare, member.stop)
    comma = after if bare[after] == "," else bare.rfind(",", start, member.key)
    cuts = [(member.key, member.stop)] + ([(comma, comma + 1)] if comma >= 0 else [])
    for begin, stop in sorted(cuts, reverse=True):
        text = text[:begin] + text[stop:]
    at = member.key - (0 <= comma < member.key)
    line, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    return text if end < 0 or text[line:end].strip() else text[:line] + text[end + 1 :]


def _indent(text: str) -> str:
    bare = without_comments(text)
    found = (one[1] for one in _INDENT.finditer(bare) if text.startswith(one[1], one.start(1)))
    return next(found, "  ")


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _read_toml(text: str) -> Settings:
    """Parse TOML; numbers keep their notation."""
    try:
        return tomllib.loads(text, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise CannotEdit(f"is not valid TOML ({error})") from None


def _statements(text: str) -> list[str]:
    """The text in pieces: a heading, an assignment with all its lines, or an empty or comment line."""
    made, begun = [], ""
    for line in _LINE.findall(text):
        begun += line
        try:
            tomllib.loads(begun)
        except tomllib.TOMLDecodeError:
            continue  # the value continues
        made.append(begun)
        begun = ""
    return made


def _amended_table(pieces: list[str], wanted: Settings, end: str) -> list[str]:
    """A table with its heading, amended. Keys that belong to the user stay, and so do comments."""
    present, body = set(), []
    for piece in pieces[1:]:
        key, value = next(iter(_read_toml(piece).items()), ("", None))
        if key not in REACHED or wanted.get(key) == value:
            present.add(key)
            body.append(piece)
            continue
        remark = _remark(piece)
        if key in wanted:
            present.add(key)
            body.append(f"{key} = {_literal(wanted[key])}{' ' if remark else ''}{remark}{end}")
        elif remark:
            body.append(remark + end)
    added = [
        f"{key} = {_literal(value)}{end}" for key, value in wanted.items() if key in REACHED and key not in present
    ]
    return [_ended(pieces[0], end), *added, *body]


def _remark(piece: str) -> str:
    """The comment after an assignment."""
    whole = _read_toml(piece)
    for found in re.finditer("#", piece):
        try:
            if _read_toml(piece[: found.start()]) == whole:
                return piece[found.start() :].strip()
        except CannotEdit:  # this one is inside the value
            continue
    return ""


def _literal(value: str | list[str]) -> str:
    """A string, or a list of strings, in TOML, which escapes them as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def _ended(text: str, end: str) -> str:
    return text if text.endswith("\n") else text + end


# --- JSON with comments and trailing commas, as editors allow ---
# Both are replaced by spaces, so that positions stay the same.


def without_comments(text: str) -> str:
    """The text with spaces in place of its comments."""
    blank = _blanked(_COMMENT, text)
    return f" {blank[1:]}" if blank.startswith(_MARK) else blank


def without_commas(text: str) -> str:
    """Text without comments, with spaces in place of its trailing commas."""
    return _blanked(_COMMA, text)


def comments_of(text: str) -> list[str]:
    return [found[1] for found in _COMMENT.finditer(text) if found[1]]


def _blanked(what: re.Pattern[str], text: str) -> str:
    return what.sub(lambda found: _LETTER.sub(" ", found[0]) if found[1] else found[0], text)
