"""The grammar of commands: a namespace, then words split as in a POSIX shell, and `with` for structured values.

Both notations produce the same action. There is no shell: `|`, `>` and `*` have no meaning. Pure.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Action, Cli, Http, Mcp, NodeCall, Secret, Words
from cuebook.dialects.pipeline.parse import files, urls
from cuebook.dialects.pipeline.parse.places import namespace_of
from cuebook.dialects.pipeline.parse.references import BRACES, STEP, Scope, plain_or
from cuebook.formats.json import read_json
from cuebook.formats.shape import Shape
from cuebook.formats.values import Malformed, Value
from cuebook.kernel.tool_names import likely_server

NAMESPACES = ("cli", "http", "web", "mcp", "node", "llm")
_BODIES = ("body", "json", "multipart")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
WITHOUT_BODY = ("GET", "HEAD")
LONGEST = 100_000
"""Maximum length of a command in characters."""
CODE = "BAD_COMMAND"

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}", re.ASCII)
_PARAMETER = re.compile(r"([^\s=:]+)(:?=)(.*)", re.DOTALL)
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_HOW_TO_SEND = "Add a method, as in `http POST URL`."
_SHELL = frozenset(("|", "||", "&&", ";", "&", ">", ">>", "<", "2>", "2>&1", "<<"))
_SAYING_SHELL = ("shell", "run", "exec", "cmd")
_QUOTED = re.compile(r"\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_JOINT = re.compile(r"[;|<>`]|&&|\$\(")
_GLOB = re.compile(r"\*|[./].*\?|\?.*[./]")
_HOME = re.compile(r"~(?:/|$)")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_UNQUOTED = {
    "No closing quotation": ("a quote is not closed", "Close it, or write \\\" or \\' for the character itself."),
    "No escaped character": ("it ends in a backslash", "Write \\\\ for a backslash."),
}


class Written(msgspec.Struct, frozen=True):
    """A command as written in a step."""

    text: str
    line: int
    at: str
    namespace: str
    tokens: tuple[str, ...] = ()
    more: Value | None = None
    """The field `with`."""

    @property
    def fields(self) -> Mapping[str, Value]:
        return self.more.fields if self.more is not None and self.more.kind == "map" else {}


def written(scope: Scope, text: str, line: int, at: str, more: Value | None) -> Written | None:
    """Splits a command into words. If it is invalid, reports the problem and returns None."""
    shape, text = scope.shape, text.strip()
    namespace = namespace_of(text)
    if namespace not in NAMESPACES:
        known = ", ".join(NAMESPACES)
        close = get_close_matches(namespace[:40], NAMESPACES, n=1, cutoff=0.7)
        meant = f"Did you mean '{close[0]}'? " if close else ""
        example = "" if close else f", as in `{_as_command(text.splitlines()[0])}`"
        fix = f"{meant}A command begins with one of {known}{example}. There is no shell."
        shape.wrong(line, f"{at}: there is no namespace '{namespace[:40]}'.", fix, "UNKNOWN_NAMESPACE")
        return None
    if len(text) > LONGEST:
        fix = "Put the long part into stdin or `with`."
        shape.wrong(line, f"{at} has more than {LONGEST:,} characters.", fix, CODE)
        return None
    try:
        tokens = _split(text[len(namespace) :])
    except ValueError as error:
        why, fix = _UNQUOTED.get(str(error), (str(error), "Correct it."))
        shape.wrong(line, f"{at} cannot be parsed: {why}.", fix, CODE)
        return None
    return Written(text, line, at, namespace, tuple(tokens), more)


def _split(text: str) -> list[str]:
    """Splits words as in a shell. A function in braces is part of its word, with its spaces and quotes."""
    functions = [found[0] for found in BRACES.finditer(text) if "(" in found[0]]
    mark = next(letter for letter in map(chr, range(0xE000, 0xF8FF)) if letter not in text) if functions else ""
    for number, one in enumerate(functions):
        text = text.replace(one, f"{mark}{number}{mark}", 1)
    words = shlex.split(text)
    for number, one in enumerate(functions):
        words = [word.replace(f"{mark}{number}{mark}", one) for word in words]
    return words


def action(scope: Scope, command: Written) -> Action | None:
    """Parses the action of a command other than `llm`. If it is invalid, reports the problem and returns None."""
    return _READERS[command.namespace](scope, command)


# --- cli ----------------------------------------------------------------------------------------------------


def _cli(scope: Scope, command: Written) -> Cli | None:
    shape, at = scope.shape, command.at
    fields = fields_of(scope, command, ("argv", "args"))
    if "argv" in fields and (command.tokens or "args" in fields):
        fix = "Use `command: cli` with argv, or `cli PROGRAM` with args."
        shape.wrong(
            fields["argv"].line,
            f"{at}: with.argv must be the whole command, but the command has more words.",
            fix,
            CODE,
        )
    argv = [scope.words(token, command.line, at) for token in command.tokens]
    for name in ("argv", "args"):
        if name in fields:
            argv += _listed(scope, fields[name], f"{_of(at)}.with.{name}")
    if not argv or not argv[0].parts:
        shape.wrong(command.line, f"{at} has no program.", "Add a program, as in `cli git status`.", CODE)
        return None
    for word in argv:
        if any(isinstance(part, str) and "\0" in part for part in word.parts):
            fix = "Remove it: program arguments cannot contain it, but stdin can."
            shape.wrong(word.line, f"{at}: one of its words contains a NUL character.", fix, CODE)
    _look_for_shell(scope, command)
    return Cli(tuple(argv))


def _look_for_shell(scope: Scope, command: Written) -> None:
    """Warns about the first unquoted shell syntax. Quoted syntax is assumed to be meant for the program."""
    for sign in _signs(command.text[len(command.namespace) :]):
        variable = _VARIABLE.search(sign)
        if variable is not None and scope.is_known(variable[1]):
            continue  # reported as a possible reference
        joins = sign in _SHELL or _JOINT.search(sign) is not None
        fix = (
            "Use a step for each command and stdin between them, or `cli sh -c '...'`."
            if joins
            else "Write it out in full, or use `cli sh -c '...'`. Quote it if the program should receive it unchanged."
        )
        message = f"{command.at}: '{sign[:60]}' is passed to the program unchanged: there is no shell."
        scope.shape.odd(command.line, message, fix, "NO_SHELL")
        return


def _signs(text: str) -> Iterator[str]:
    """The words with unquoted characters that a shell would interpret."""
    for word in _without_quotes(text).split():
        plain = STEP.sub("", BRACES.sub("", word.replace("$$", ""))) if "$" in word else word
        if (
            word in _SHELL
            or _JOINT.search(plain)
            or _HOME.match(plain)
            or _VARIABLE.search(plain)
            or ("://" not in word and _GLOB.search(plain))
        ):
            yield word


def _without_quotes(text: str) -> str:
    """A command with each quoted string replaced by a letter, so that only unquoted text is left."""
    return _QUOTED.sub("x", text)


def _as_command(text: str) -> str:
    """A suggestion for a command without a namespace. Its first word may be `shell`, `run` or the like."""
    first, _, rest = text.partition(" ")
    line = rest.strip() if first.lower() in _SAYING_SHELL and rest.strip() else text
    line = line[:60]
    return f"cli sh -c {shlex.quote(line)}" if any(_signs(line)) else f"cli {line}"


def _listed(scope: Scope, value: Value, at: str) -> list[Words]:
    found = []
    for number, one in enumerate(scope.shape.items(value, at)):
        if one.kind in ("int", "float"):
            found.append(Words((one.text,), one.line))
        else:
            text = scope.shape.text(one, f"{at}[{number}]", empty=True)
            found.append(scope.words(text, one.line, f"{at}[{number}]"))
    return found


# --- http ---------------------------------------------------------------------------------------------------


def _http(scope: Scope, command: Written) -> Http | None:
    shape, at = scope.shape, command.at
    fields = fields_of(scope, command, ("method", "url", "headers", "query", *_BODIES, "download"))
    method, urls = _method(command.tokens)
    if "method" in fields:
        if method:
            given_twice(scope, fields["method"], at, "the method")
        method = shape.text(fields["method"], f"{_of(at)}.with.method").upper()
    if "url" in fields:
        if urls:
            given_twice(scope, fields["url"], at, "the URL")
        urls = (shape.text(fields["url"], f"{_of(at)}.with.url"),)
    if method and method not in METHODS:
        shape.wrong(command.line, f"{at}: there is no method '{method[:20]}'.", shape.meant(method, METHODS), CODE)
    if not urls or not urls[0]:
        shape.wrong(command.line, f"{at} has no URL.", "Add a URL, as in `http GET https://example.com`.", CODE)
        return None
    if len(urls) > 1:
        fix = "Quote a URL that has spaces; headers and a body belong in `with`."
        shape.wrong(command.line, f"{at}: unexpected '{urls[1][:60]}' after the URL.", fix, CODE)
    bodies = [name for name in _BODIES if name in fields]
    if bodies and not method:
        shape.wrong(command.line, f"{at} has a body but no method.", _HOW_TO_SEND, CODE)
    for name in bodies:
        if method in WITHOUT_BODY:
            no_body(shape, fields[name].line, f"{_of(at)}.with.{name}", method)
    if len(bodies) > 1:
        what = f"{at} has two bodies: {' and '.join(bodies[:2])}."
        shape.wrong(fields[bodies[1]].line, what, "Remove one of them.", CODE)
    is_file = "body" in fields and fields["body"].kind == "map"
    more: dict[str, Any] = {}
    if is_file:
        more["upload"] = files.upload(scope, fields["body"], f"{_of(at)}.with.body")
    if "multipart" in fields:
        more["form"] = files.form(scope, fields["multipart"], f"{_of(at)}.with.multipart")
    if "download" in fields:
        more["download"] = files.download(scope, fields["download"], f"{_of(at)}.with.download")
    return Http(
        method or "GET",
        url_of(scope, urls[0], fields["url"].line if "url" in fields else command.line, at),
        _texts(scope, fields, "query", at),
        _headers(scope, fields, at),
        _body(scope, fields["body"], f"{_of(at)}.with.body") if "body" in fields and not is_file else None,
        scope.field(fields["json"], f"{_of(at)}.with.json", secrets=False) if "json" in fields else None,
        "json" in fields,
        **more,
    )


def no_body(shape: Shape, line: int, at: str, method: str) -> None:
    """Reports a request body for a method that has none."""
    shape.wrong(line, f"{at} is a request body, but {method} requests have none.", _HOW_TO_SEND, CODE)


def _method(tokens: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Returns the method, if the first word is or resembles one, and the other words."""
    if tokens and (tokens[0].upper() in METHODS or (len(tokens) > 1 and tokens[0].isalpha())):
        return tokens[0].upper(), tuple(tokens[1:])
    return "", tuple(tokens)


def url_of(scope: Scope, text: str, line: int, at: str) -> Words:
    """The URL of a request or a page. Problems are reported."""
    words = scope.words(text, line, f"the URL of {at}")
    first = words.parts[0] if words.parts else ""
    begins = first if isinstance(first, str) else "https://"
    if urls.names_credentials(words.parts):
        # The text may be a password, so the message does not repeat it.
        fix = "Send them in a header, from a secret, and write %40 for a literal @."
        scope.shape.wrong(line, f"{at}: the URL contains credentials before an '@'.", fix, CODE)
    elif begins and not re.match(r"https?://(?:[^\s/]|$)", begins, re.IGNORECASE):
        fix = "A URL begins with https:// or http://."
        scope.shape.wrong(line, f"{at}: '{urls.shown(begins)}' is not a URL.", fix, CODE)
    else:
        try:
            urls.places(words.parts)
        except urls.BadPlace as error:
            scope.shape.wrong(line, f"{at}: {error.why}.", error.fix, "BAD_REFERENCE")
    return words


def _body(scope: Scope, value: Value, at: str) -> Words | Secret:
    return scope.words_or_secret(scope.shape.text(value, at, empty=True), value.line, at)


def _texts(scope: Scope, fields: Mapping[str, Value], name: str, at: str) -> dict[str, Words]:
    """A table of strings without secrets; numbers and booleans are used as written."""
    if name not in fields:
        return {}
    found: dict[str, Words] = {}
    for key, one, line in scope.shape.named(fields[name], f"{_of(at)}.with.{name}"):
        where = f"{_of(at)}.with.{name}.{key}"
        scope.name(key, line, f"{_of(at)}.with.{name}")
        plain = one.kind in ("int", "float", "bool")
        found[key] = scope.words(one.text if plain else scope.shape.text(one, where, empty=True), one.line, where)
    return found


def _headers(scope: Scope, fields: Mapping[str, Value], at: str) -> dict[str, Words | Secret]:
    if "headers" not in fields:
        return {}
    found: dict[str, Words | Secret] = {}
    seen: set[str] = set()
    for name, one, line in scope.shape.named(fields["headers"], f"{_of(at)}.with.headers"):
        where = f"{_of(at)}.with.headers.{name}"
        if not _HEADER.fullmatch(name):
            scope.shape.wrong(line, f"{at}: '{name[:60]}' is not a valid header name.", "Correct it.", CODE)
        else:
            scope.name(name, line, f"{_of(at)}.with.headers")
        if name.lower() in seen:
            scope.shape.wrong(line, f"{at}: the header '{name}' is given twice.", "Remove one of them.", CODE)
        seen.add(name.lower())
        found[name] = scope.words_or_secret(scope.shape.text(one, where, empty=True), one.line, where)
    return found


# --- mcp ----------------------------------------------------------------------------------------------------


def _mcp(scope: Scope, command: Written) -> Mcp | None:
    shape, at = scope.shape, command.at
    fields = fields_of(scope, command, ("tool", "arguments"))
    tokens = list(command.tokens)
    tool = tokens.pop(0) if tokens and not _PARAMETER.fullmatch(tokens[0]) else ""
    if "tool" in fields:
        if tool:
            given_twice(scope, fields["tool"], at, "the tool")
        tool = shape.text(fields["tool"], f"{_of(at)}.with.tool")
    tool = tool_name(tool)
    if not scope.fixed(tool, fields["tool"].line if "tool" in fields else command.line, at):
        return None
    arguments = _arguments(scope, command, tokens, fields)
    if not likely_server(tool) or tool.endswith("."):
        shape.wrong(command.line, f"{at} has no tool.", "Write SERVER.TOOL, as in `mcp github.create_issue`.", CODE)
        return None
    return Mcp(tool, arguments)


def _arguments(scope: Scope, command: Written, tokens: Sequence[str], fields: Mapping[str, Value]) -> dict[str, Any]:
    """The arguments of a tool or of a node's action, from the command and from `with.arguments`."""
    shape, at = scope.shape, command.at
    arguments: dict[str, Any] = {}
    for token in tokens:
        _take(scope, command, token, arguments)
    if "arguments" in fields:
        for name, one, line in shape.named(fields["arguments"], f"{_of(at)}.with.arguments"):
            where = f"{_of(at)}.with.arguments.{name}"
            scope.name(name, line, f"{_of(at)}.with.arguments")
            if name in arguments:
                shape.wrong(line, f"{at}: the argument '{name}' is given twice.", "Remove one of them.", CODE)
            arguments[name] = scope.field(one, where, secrets="." not in name)
    return arguments


def tool_name(written: str) -> str:
    """`SERVER.TOOL`, without an optional `mcp.` prefix."""
    return written.removeprefix("mcp.") if written.count(".") >= 2 else written


def _take(scope: Scope, command: Written, token: str, arguments: dict[str, Any]) -> None:
    """Reads one `name=text` or `name:=json`."""
    shape, at, line = scope.shape, command.at, command.line
    found = _PARAMETER.fullmatch(token)
    if found is None:
        fix = "Write arguments as name=text or name:=json; quote those with spaces."
        shape.wrong(line, f"{at}: '{token[:60]}' is not an argument.", fix, CODE)
        return
    name, sign, text = found.groups()
    where = f"the argument '{name}' of {at}"
    scope.name(name, line, at)
    if name in arguments:
        shape.wrong(line, f"{at}: the argument '{name}' is given twice.", "Remove one of them.", CODE)
    if sign == "=" or STEP.fullmatch(text) or (text.startswith("${") and text.endswith("}")):
        words = scope.words_or_secret(text, line, where) if "." not in name else scope.words(text, line, where)
        arguments[name] = words if isinstance(words, Secret) else plain_or(words)
        return
    try:
        arguments[name] = scope.field(read_json(text), where, secrets="." not in name, line=line)
    except Malformed as error:
        fix = f"Write {name}={text[:40]} for a string, or quote the whole argument, as in '{name}:={{\"a\": 1}}'."
        shape.wrong(line, f"{at}: the value of {name} is not valid JSON: {error.message}.", fix, CODE)


# --- node ---------------------------------------------------------------------------------------------------


def _node(scope: Scope, command: Written) -> NodeCall | None:
    shape, at = scope.shape, command.at
    fields = fields_of(scope, command, ("arguments",))
    names = list(itertools.takewhile(lambda token: not _PARAMETER.fullmatch(token), command.tokens[:2]))
    for token in names:
        if not _NODE_NAME.fullmatch(token):
            fix = "Names of capabilities and actions have letters, digits, - and _."
            shape.wrong(command.line, f"{at}: '{token[:60]}' is not a name.", fix, CODE)
            return None
    arguments = _arguments(scope, command, command.tokens[len(names) :], fields)
    if len(names) < 2:
        missing = "action" if names else "capability"
        fix = "Write `node CAPABILITY ACTION`, as in `node files read path=report.txt`."
        shape.wrong(command.line, f"{at} has no {missing}.", fix, CODE)
        return None
    return NodeCall(names[0], names[1], arguments)


# --- web ----------------------------------------------------------------------------------------------------


def _web(scope: Scope, command: Written) -> Action | None:
    from cuebook.dialects.pipeline.parse.web import web  # most pipelines have no browser steps

    return web(scope, command)


_READERS: dict[str, Callable[[Scope, Written], Action | None]] = {
    "cli": _cli,
    "http": _http,
    "web": _web,
    "mcp": _mcp,
    "node": _node,
}


# --- with ---------------------------------------------------------------------------------------------------


def fields_of(scope: Scope, command: Written, known: Sequence[str]) -> Mapping[str, Value]:
    """The fields of `with`, of which only these are known."""
    return scope.shape.closed(command.more, f"{_of(command.at)}.with", known) if command.more is not None else {}


def given_twice(scope: Scope, value: Value, at: str, what: str) -> None:
    """Reports a part that is in the command and in `with`."""
    scope.shape.wrong(value.line, f"{at}: {what} is given twice.", "Remove it from the command or from `with`.", CODE)


def _of(at: str) -> str:
    """The path of the step that a command belongs to."""
    return at.removesuffix(".command")
