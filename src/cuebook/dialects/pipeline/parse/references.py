"""References: `$step.path` as a whole string; `${step.path}`, `${arg}` and `${secret:HANDLE}` anywhere; `$$` is a dollar.

Reports broken references, and secrets where others could see them, with their lines. Pure; independent of actions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import (
    Arg,
    ArgRef,
    Field,
    Function,
    LocalRef,
    Ref,
    RunRef,
    Secret,
    StepRef,
    Words,
)
from cuebook.dialects.pipeline.parse import run_values, schema_paths
from cuebook.dialects.pipeline.parse.places import EACH, LANES, Place
from cuebook.formats.shape import Shape
from cuebook.formats.values import Value

RESULT_FIELDS = (
    "stdout", "json", "approved", "denied", "expired", "skipped", "error", "errorMessage", "exit_code", "status", "stderr",
    "headers", "truncated", "files",
)  # fmt: skip
"""The fields of an earlier step's result."""
_STRUCTURED = ("results", "items", "winner")
"""The fields that only loops and parallel steps have."""
_WITH_PARTS = ("json", "headers", "files", "results", "items")
_ONLY_OF = {"exit_code": ("cli", "node"), "stderr": ("cli", "node"), "status": ("http", "web"), "headers": ("http",)}
KINDS = ("env", "keyring", "file")
"""The prefixes of handles that are not names."""

_SEGMENTS = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"
STEP = re.compile(rf"\$([A-Za-z0-9_-]+)\.({_SEGMENTS})", re.ASCII)
"""A reference without braces."""
BRACES = re.compile(r"\$\{([^{}\n]*)\}")
_PLACE = re.compile(rf"(?<!\$){BRACES.pattern}")
_INSIDE = re.compile(rf"([A-Za-z0-9_-]+)(?:\.({_SEGMENTS}))?", re.ASCII)
_MARK = re.compile(r"\$(?:\$|\{[^{}\n]*\}|\{)")
_BARE = re.compile(r"(?<!\$)\$([A-Za-z_][A-Za-z0-9_-]*)", re.ASCII)
_SECRET = re.compile(r"secret:(\S+)")
_LOOSE = re.compile(r"(?<![\w.{-])secret:[A-Za-z0-9]", re.ASCII)
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
"""An index in a list. Anything else, such as 01, can only be a name."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_ESCAPE = "Write $$ for a literal dollar."


def is_handle(text: str) -> bool:
    """Whether a string is the handle or the name of a secret."""
    kind, colon, place = text.partition(":")
    return bool(_NAME.fullmatch(text)) if not colon else kind in KINDS and bool(place.strip()) and place.isprintable()


class _Handle(msgspec.Struct, frozen=True):
    handle: str


class Scope:
    """The arguments and steps that one step can refer to."""

    def __init__(
        self, shape: Shape, args: Mapping[str, Arg], steps: Mapping[str, Place], here: str, used: set[str]
    ) -> None:
        """`steps` are all steps of the pipeline; `used` collects the arguments that are referenced."""
        self.shape = shape
        self.here = here
        self.locals: Mapping[str, Collection[str] | None] = {}
        """The names that exist only in this part of the pipeline, with their fields; None if any field may exist."""
        self.names_itself = False
        """Whether a step may refer to its own result, as a condition that it waits for does."""
        self._args = args
        self._steps = steps
        self._used = used

    def at(self, id: str, **locals: Collection[str] | None) -> Scope:
        """The scope of another step, with the names that exist there in addition."""
        made = Scope(self.shape, self._args, self._steps, id, self._used)
        made.locals = {**self.locals, **locals}
        return made

    def type_of(self, name: str) -> str | None:
        """The declared type of an argument; None if it has none."""
        return self._args[name].type if name in self._args else None

    def is_taken(self, name: str) -> bool:
        """Whether an argument or a step has this name."""
        return name in self._args or name in self._steps

    # --- text with references ---

    def words(self, text: str, line: int, at: str) -> Words:
        """Parses text that others can see, so it must not contain a secret."""
        parts = tuple(self._parts(text, line, at))
        for part in parts:
            if self._is_secret(part):
                fix = "Secrets are allowed in env, stdin, headers, as the whole body of a request, and in the arguments of a tool."
                self.shape.wrong(
                    line, f"{at} contains a secret, which others could see there.", fix, "SECRET_MISPLACED"
                )
                return Words((), line)
        return Words(tuple(part for part in parts if not isinstance(part, _Handle)), line)

    def after_itself(self) -> Scope:
        """The scope of what happens after the step: it can also refer to the step itself."""
        made = self.at(self.here)
        made.names_itself = True
        return made

    def words_or_secret(self, text: str, line: int, at: str) -> Words | Secret:
        """Parses text that may contain one secret, with plain text around it."""
        parts = tuple(self._parts(text, line, at))
        secrets = [part for part in parts if self._is_secret(part)]
        if not secrets:
            return Words(tuple(part for part in parts if not isinstance(part, _Handle)), line)
        around = "".join(part for part in parts if isinstance(part, str))
        if len(secrets) > 1 or any(not isinstance(part, str) and part not in secrets for part in parts):
            fix = "Pass the others separately, for example in another variable or header."
            self.shape.wrong(line, f"The secret in {at} can only be combined with plain text.", fix, "SECRET_MISPLACED")
        elif "{}" in around:
            fix = "Write it differently, as in '{ }'."
            self.shape.wrong(
                line, f"The text around the secret in {at} contains '{{}}', which marks its place.", fix, "BAD_SECRET"
            )
        form = "".join(part if isinstance(part, str) else "{}" for part in parts)
        secret = secrets[0]
        return (
            Secret(secret.handle, "", form, line)
            if isinstance(secret, _Handle)
            else Secret("", secret.name, form, line)
        )

    def field(self, value: Value, at: str, *, secrets: bool, line: int | None = None) -> Field:
        """Parses a value whose strings may contain references. `line`, if given, replaces the line of the value."""
        where = line or value.line
        match value.kind:
            case "map":
                for name in value.fields:
                    self.name(name, line or value.lines[name], at)
                return {
                    name: self.field(one, f"{at}.{name}", secrets=secrets and "." not in name, line=line)
                    for name, one in value.fields.items()
                }
            case "seq":
                return [
                    self.field(one, f"{at}[{number}]", secrets=False, line=line)
                    for number, one in enumerate(value.items)
                ]
            case "str":
                words = self.words_or_secret(value.text, where, at) if secrets else self.words(value.text, where, at)
                return words if isinstance(words, Secret) else plain_or(words)
        return self.shape.plain(value, at)

    # --- text without references ---

    def name(self, text: str, line: int, at: str) -> None:
        """Checks the name of a value. `$limit` may be meant literally, because other languages use such names."""
        if self._refers(text):
            self._refuse(line, f"{at}: the name '{text[:60]}'")
        else:
            self._look_for_bare(text, line, at, meant=False)

    def fixed(self, text: str, line: int, at: str) -> bool:
        """Whether text that must be known before a run is free of references. Reports it if not."""
        if "${" in text or text.startswith("$"):
            self._refuse(line, f"{at}: '{text[:60]}'")
            return False
        return True

    def literal(self, value: Value, at: str, *, but: Collection[str] = ()) -> None:
        """Reports references in strings that are used literally, except under the names in `but`. A lone dollar is allowed:
        only a known name is a reference.
        """
        if value.kind == "str":
            found = self._leading(value.text)
            if found:
                self._refuse(value.line, f"{at}: '{found[:60]}'")
        for name, one in value.fields.items():
            if one.kind != "str" or name not in but:
                self.literal(one, f"{at}.{name}", but=but)
        for number, one in enumerate(value.items):
            self.literal(one, f"{at}[{number}]", but=but)

    def mentions(self, text: str) -> bool:
        """Whether the text has a reference to a known name."""
        return bool(self._leading(text))

    def warn_unreplaced(self, text: str, line: int, at: str) -> None:
        """Warns about a reference in text for people, where it is not replaced."""
        found = self._leading(text)
        if found:
            message = f"{at}: '{found[:60]}' is not replaced here."
            self.shape.odd(line, message, "Write out its value.", "NOT_REPLACED")

    def names_only_arguments(self, text: str) -> bool:
        """Whether the text refers only to arguments."""
        inside = [_INSIDE.fullmatch(place[1].strip()) for place in _PLACE.finditer(text)]
        return bool(inside) and all(one is not None and not one[2] and one[1] in self._args for one in inside)

    def _leading(self, text: str) -> str:
        """The first reference to a known name in the text; empty if there is none."""
        step = STEP.fullmatch(text.strip())
        if step is not None and step[1] in self._steps:
            return step[0]
        for place in _PLACE.finditer(text):
            inside = _INSIDE.fullmatch(place[1].strip())
            if inside is not None and inside[1] in (self._steps if inside[2] else self._args):
                return place[0]
        return ""

    def _refers(self, text: str) -> bool:
        step = STEP.fullmatch(text.strip())
        return "${" in text or (step is not None and step[1] in self._steps)

    def _refuse(self, line: int, what: str) -> None:
        message = f"{what} contains a reference, which is not replaced here."
        self.shape.wrong(line, message, "Write out its value.", "BAD_REFERENCE")

    def is_known(self, name: str) -> bool:
        return name in self._steps or name in self._args or name in self.locals

    def _is_local(self, name: str) -> bool:
        return name in self.locals and not self.is_taken(name)

    def _local(self, name: str, path: str, line: int, at: str) -> LocalRef:
        fields, parts = self.locals[name], path.split(".") if path else []
        if fields is not None and (len(parts) != 1 or parts[0] not in fields):
            fix = f"Its fields: {', '.join(fields)}."
            self.shape.wrong(
                line, f"{at}: there is no '${{{name}{f'.{path}' if path else ''}}}'.", fix, "UNKNOWN_REFERENCE"
            )
        return LocalRef(name, tuple(int(one) if _INDEX.fullmatch(one) else one for one in parts))

    # --- targets of references ---

    def step(self, id: str, path: str, line: int, at: str) -> StepRef | RunRef | LocalRef:
        if self._is_local(id):
            return self._local(id, path, line, at)
        first, *rest = path.split(".")
        if id in run_values.SOURCES and id not in self._steps:
            parts = tuple(int(one) if _INDEX.fullmatch(one) else one for one in rest)
            kept = {name for place in self._steps.values() for name in place.keeps}
            return run_values.reference(self.shape, id, (first, *parts), self._steps, kept, line, at)
        if self._is_before(id, path, line, at):
            self._check_path(id, first, rest, line, at)
        return StepRef(id, (first, *(int(one) if _INDEX.fullmatch(one) else one for one in rest)))

    def _is_before(self, id: str, path: str, line: int, at: str) -> bool:
        wrong, what = self.shape.wrong, f"{at}: '${id}.{path}'"
        if id == self.here and self.names_itself:
            return True
        if id == self.here or self._is_around(id):
            fix = "A step can only refer to earlier steps."
            wrong(line, f"{what} is circular: the step refers to itself.", fix, "CIRCULAR_REFERENCE")
        elif id not in self._steps:
            fix = f"{self.shape.meant(id, self._steps)} {_ESCAPE}"
            wrong(line, f"{what} refers to an unknown step.", fix, "UNKNOWN_REFERENCE")
        elif self._is_later(id):
            fix = f"Put the step '{id}' before this step."
            wrong(line, f"{what} refers to a later step.", fix, "FORWARD_REFERENCE")
        else:
            return self._is_visible(id, what, line)
        return False

    def file(self, text: str, line: int, at: str) -> StepRef | None:
        """Parses a reference to a file of an earlier step, as in `$build.files.archive`; None if it is anything else."""
        found = STEP.fullmatch(text)
        parts = found[2].split(".") if found is not None else []
        if found is None or len(parts) != 2 or parts[0] != "files":
            return None
        if self._is_before(found[1], found[2], line, at):
            self._check_file(found[1], parts[1], line, at)
        return StepRef(found[1], ("files", parts[1]))

    def _check_file(self, id: str, name: str, line: int, at: str) -> None:
        known = self._steps[id].files
        # What a child produces is known once it has ended.
        if name not in known and self._steps[id].namespace != "playbook":
            fix = self.shape.meant(name, known) if known else f"Declare it under `files` in step '{id}'."
            self.shape.wrong(line, f"{at}: the step '{id}' produces no file '{name}'.", fix, "UNKNOWN_REFERENCE")

    def _is_around(self, id: str) -> bool:
        """Whether this step is inside another one."""
        here = self._steps.get(self.here)
        return here is not None and any(part.owner == id and part.kind in (EACH, LANES) for part in here.within)

    def _is_visible(self, id: str, what: str, line: int) -> bool:
        """Whether an earlier step has one result that can be seen from here."""
        here, there = self._steps.get(self.here), self._steps[id]
        for part in there.beyond(here) if here is not None else ():
            if part.kind == EACH:
                fix = f"Refer to ${part.owner}.results, the outputs of all items."
                message = f"{what}: the step '{id}' runs once for each item of '{part.owner}'."
            elif part.kind == LANES and here is not None and any(one.owner == part.owner for one in here.beyond(there)):
                fix = f"Put this step after '{part.owner}', or into the same branch."
                message = (
                    f"{what}: the step '{id}' is in another branch of '{part.owner}', which runs at the same time."
                )
            else:
                continue
            self.shape.wrong(line, message, fix, "UNKNOWN_REFERENCE")
            return False
        return True

    def _check_path(self, id: str, first: str, rest: list[str], line: int, at: str) -> None:
        shape, namespace = self.shape, self._steps[id].namespace
        if first == "files" and (len(rest) != 2 or rest[1] not in ("name", "size", "digest")):
            fix = f"Write ${id}.files.NAME.digest or .size; a file itself belongs in takes, body or multipart."
            shape.wrong(line, f"{at}: '${id}.{'.'.join((first, *rest))}' is not text.", fix, "BAD_FILE")
            return
        if first == "files":
            self._check_file(id, rest[0], line, at)
            return
        if first not in (*RESULT_FIELDS, *_STRUCTURED):
            fix = shape.meant(first, RESULT_FIELDS)
            shape.wrong(line, f"{at}: the result of a step has no '{first}'.", fix, "UNKNOWN_REFERENCE")
        elif first in _STRUCTURED and first not in self._steps[id].fields:
            fix = f"Only {'parallel steps' if first == 'winner' else 'steps with for_each or parallel'} have it."
            shape.wrong(line, f"{at}: the result of the step '{id}' has no '{first}'.", fix, "UNKNOWN_REFERENCE")
        elif rest and first not in _WITH_PARTS:
            fix = f"Write ${id}.{first}, or ${id}.json and the path."
            shape.wrong(line, f"{at}: '${id}.{first}' has no parts.", fix, "UNKNOWN_REFERENCE")
        elif namespace not in _ONLY_OF.get(first, (namespace,)):
            fix = f"Only {' and '.join(_ONLY_OF[first])} steps have this field."
            shape.odd(
                line, f"{at}: '${id}.{first}' is always null: '{id}' has the namespace {namespace}.", fix, "ALWAYS_NULL"
            )
        elif first == "json" and rest and self._steps[id].schema is not None:
            schema_paths.check(shape, self._steps[id].schema, id, rest, line, at)

    def check_earlier(self, id: str, line: int, at: str) -> None:
        """Reports a name that is not that of an earlier step."""
        if id not in self._steps:
            self.shape.wrong(line, f"{at}: there is no step '{id[:60]}'.", self.shape.meant(id, self._steps))
        elif id == self.here or self._is_later(id):
            self.shape.wrong(line, f"{at}: the step '{id[:60]}' is not before this one.", "Name an earlier step.")

    def _is_later(self, id: str) -> bool:
        here = self._steps.get(self.here)
        return here is not None and self._steps[id].position > here.position

    def arg(self, name: str, line: int, at: str) -> ArgRef | LocalRef:
        if self._is_local(name):
            return self._local(name, "", line, at)
        self._used.add(name)
        if name not in self._args:
            is_step = name in self._steps
            fix = f"Write ${{{name}.stdout}}." if is_step else f"{self.shape.meant(name, self._args)} {_ESCAPE}"
            self.shape.wrong(line, f"{at}: '${{{name}}}' refers to an undeclared argument.", fix, "UNKNOWN_ARG")
        return ArgRef(name)

    def braced(self, inside: str, line: int, at: str) -> Ref | Function | None:
        """Parses the reference or the expression inside `${...}`; returns None if it is malformed."""
        found = _INSIDE.fullmatch(inside.strip())
        if found is None and "(" in inside:
            from cuebook.dialects.pipeline.parse.conditions import expression

            return expression(self, inside.strip(), line, at)
        if found is None:
            fix = f"Write ${{arg}} or ${{step.stdout}}. {_ESCAPE}"
            self.shape.wrong(line, f"{at}: '${{{inside[:60]}}}' is not a reference.", fix, "BAD_REFERENCE")
            return None
        return self.step(found[1], found[2], line, at) if found[2] else self.arg(found[1], line, at)

    def is_argument(self, name: str) -> bool:
        return name in self._args

    def is_secret(self, reference: Any) -> bool:
        return self._is_secret(reference)

    # --- parsing text ---

    def _parts(self, text: str, line: int, at: str) -> Iterator[Any]:
        whole = text.strip()
        secret = _SECRET.fullmatch(whole)
        if secret is not None:
            yield self._handle(secret[1], line, at)
            return
        step = STEP.fullmatch(whole)
        if step is not None:
            yield self.step(step[1], step[2], line, at)
            return
        self._look_for_bare(text, line, at)
        yield from self._pieces(text, line, at)

    def _pieces(self, text: str, line: int, at: str) -> Iterator[Any]:
        plain, begin = "", 0
        for mark in _MARK.finditer(text):
            self._look_for_secret(text[begin : mark.start()], line, at)
            plain += text[begin : mark.start()]
            begin = mark.end()
            if mark[0] == "$$":
                plain += "$"
                continue
            if plain:
                yield plain
                plain = ""
            if mark[0] == "${":
                shown = text[mark.start() :][:40]
                self.shape.wrong(line, f"{at}: '{shown}' is not closed.", f"Add }}. {_ESCAPE}", "BAD_REFERENCE")
                continue
            secret = _SECRET.fullmatch(mark[0][2:-1].strip())
            found = self._handle(secret[1], line, at) if secret else self.braced(mark[0][2:-1], line, at)
            if found is not None:
                yield found
        self._look_for_secret(text[begin:], line, at)
        plain += text[begin:]
        if plain:
            yield plain

    def _handle(self, handle: str, line: int, at: str) -> _Handle:
        if not is_handle(handle):
            fix = "Write secret:NAME, secret:env:NAME, secret:keyring:NAME or secret:file:PATH."
            # The text may be the secret itself.
            self.shape.wrong(line, f"{at}: 'secret:' is not followed by the handle of a secret.", fix, "BAD_SECRET")
        return _Handle(handle)

    def _is_secret(self, part: Any) -> bool:
        if isinstance(part, ArgRef):
            return part.name in self._args and self._args[part.name].secret
        return isinstance(part, _Handle)

    def _look_for_secret(self, text: str, line: int, at: str) -> None:
        """`secret:HANDLE` is a secret only as a whole string. Within other text it would be sent literally."""
        if _LOOSE.search(text):
            fix = "Write it in braces, as in Bearer ${secret:env:NAME}."
            self.shape.wrong(
                line, f"{at}: 'secret:' and a handle are not replaced within other text.", fix, "BAD_SECRET"
            )

    def _look_for_bare(self, text: str, line: int, at: str, *, meant: bool = True) -> None:
        """`$name` is plain text. If it is the whole string and the name is known, a reference was `meant`."""
        for found in _BARE.finditer(text):
            name = found[1]
            if not self.is_known(name):
                continue
            fix = f"Write ${{{name}}}." if name in self._args else f"Write ${{{name}.stdout}}."
            if meant and found[0] == text.strip():
                self.shape.wrong(line, f"{at}: '{found[0]}' is not a reference.", fix, "BAD_REFERENCE")
            else:
                self.shape.odd(line, f"{at}: '{found[0]}' is plain text.", f"{fix} {_ESCAPE}", "NOT_REPLACED")


def plain_or(words: Words) -> str | Words:
    """Returns plain text if there are no references."""
    if any(not isinstance(part, str) for part in words.parts):
        return words
    return "".join(str(part) for part in words.parts)


def as_written(words: Words) -> str:
    """The text with its references in braces, for display."""
    return "".join(part if isinstance(part, str) else f"${{{_name(part)}}}" for part in words.parts)


def _name(reference: Ref | Function) -> str:
    match reference:
        case ArgRef(name=name):
            return name
        case Function(text=text):
            return text
        case RunRef(source=first, path=path) | StepRef(step=first, path=path) | LocalRef(name=first, path=path):
            return ".".join((first, *map(str, path)))
