"""Reads the sources, skills and tools of a run, through effects, before its first node. Everything is read once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects.graph.model import McpServer, Node, Source, Workflow
from cuebook.dialects.graph.parse.sources import BadSource, given_sources
from cuebook.kernel.context import Text
from cuebook.kernel.effects import All, CallTool, Program, ReadSource, ServerSpec, ToolSpec
from cuebook.kernel.errors import NotFound, with_fix
from cuebook.kernel.events import Performed
from cuebook.kernel.outcomes import EffectFailed, Failed
from cuebook.kernel.outcomes import Source as Read
from cuebook.kernel.tool_names import BUILT_IN, READING

_FLAW = "flaw:"
PLAYBOOK = "playbook:"
"""Prefix of the skills that run another playbook as a child."""
_OFFLINE = "SOURCE_OFFLINE_REQUIRES_FETCH"

FILE_CODES = {"not_found": "SOURCE_FILE_NOT_FOUND", "outside_root": "SOURCE_FILE_OUTSIDE_ROOT"}
FILE_UNREADABLE = "SOURCE_FILE_READ_FAILED"
_URL_CODES = dict.fromkeys(("refused_address", "bad_url", "denied"), "SOURCE_URL_BLOCKED")


class Skill(msgspec.Struct, frozen=True):
    """A skill: its instruction, its tools, and its tool server."""

    id: str
    name: str = ""
    description: str = ""
    category: str = "general"
    instruction: str = ""
    mcp: McpServer | None = None
    tools: tuple[dict[str, Any], ...] = ()
    configured: bool = True
    missing: tuple[str, ...] = ()

    @property
    def server(self) -> ServerSpec | None:
        if self.mcp is None:
            return None
        command = (self.mcp.command, *self.mcp.args) if self.mcp.command else ()
        return ServerSpec(self.id, command, self.mcp.url, tuple(self.mcp.env), self.mcp.headers)


def skill_of(performed: Performed) -> Skill | None:
    """The skill that this effect read; None if it read something else."""
    read = performed.outcome
    if not performed.fingerprint.startswith("ReadSource skill:") or not isinstance(read, Read):
        return None
    try:
        return msgspec.json.decode(str(read.content), type=Skill)
    except (NotFound, msgspec.DecodeError):  # the text was purged
        return None


class Material:
    """The content that a run has read, by source name. For a skill that could not be read, it is the reason."""

    def __init__(self, workflow: Workflow, inputs: Mapping[str, Any], texts: Mapping[str, Text] | None = None) -> None:
        self._workflow, self._inputs = workflow, inputs
        self.texts: dict[str, Text] = dict(texts or {})
        self._skills: dict[str, Skill | None] = {}
        self._built_in: tuple[ToolSpec, ...] | None = None
        self._inherited = {
            "rules": (*_given(inputs, "rules"), *workflow.rules),
            "context": (*_given(inputs, "context"), *workflow.context),
        }

    # --- reading ---

    def read(self, offline: bool, tools: Sequence[str] = BUILT_IN) -> Program[None]:
        """Reads all sources, skills and these built-in tools. A source that cannot be read fails the run."""
        every = [(field, one) for field, one in named_sources(self._workflow, self._inputs) if one.kind != "inline"]
        sources = {name_of(one): one for _, one in every}
        places = {name: _places(name, every) for name in sources}
        away = [f"{places[name]}: {origin_of(one)}" for name, one in sources.items() if one.kind == "url" and offline]
        if away:
            words = f"{_OFFLINE}: the run is offline and cannot fetch: {'; '.join(away)}."
            raise EffectFailed(Failed(_OFFLINE, words, "Run it without --offline."))
        failures = yield from self._fetch(ReadSource(name) for name in sources)
        if failures:
            raise EffectFailed(_unreadable(failures, sources, places))
        named = (skill for node in self._workflow.nodes.values() for skill in node.skills)
        skills = dict.fromkeys(skill for skill in named if not skill.startswith(PLAYBOOK))
        wanted = [f"skill:{skill}" for skill in skills]
        wanted += [f"tools:{tool}" for tool in tools if self._useful(tool)]
        failures = yield from self._fetch(ReadSource(name) for name in wanted)
        for name, failed in failures.items():
            if failed.code != "not_found":
                self.texts[f"{_FLAW}{name}"] = Text(str(failed))

    def _useful(self, tool: str) -> bool:
        return any(tool not in node.disallowed_tools for node in self._workflow.nodes.values())

    def _fetch(self, reads: Iterable[ReadSource]) -> Program[dict[str, Failed]]:
        asked = tuple(reads)
        if not asked:
            return {}
        outcomes: tuple[Read | Failed, ...] = yield All(asked)
        failures: dict[str, Failed] = {}
        for read, outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, Failed):
                failures[read.source] = outcome
            else:
                self.texts[read.source] = outcome.content
        return failures

    # --- sources ---

    def content(self, source: Source) -> str:
        return source.value if source.kind == "inline" else str(self.texts[name_of(source)]).removeprefix("\ufeff")

    def rules(self, node: Node) -> list[str]:
        return self._cascade("rules", node)

    def background(self, node: Node) -> list[str]:
        return self._cascade("context", node)

    def _cascade(self, field: str, node: Node) -> list[str]:
        own = node.rules if field == "rules" else node.context
        inherited = () if own.only else self._inherited[field]
        return [self.content(one) for one in (*inherited, *own.sources)]

    # --- skills and tools ---

    def skill(self, name: str) -> Skill | None:
        """The skill with this name. An installed skill takes precedence over an inline skill, which fills its gaps."""
        if name not in self._skills:
            text = self.texts.get(f"skill:{name}")
            found = None if text is None else msgspec.json.decode(str(text), type=Skill)
            self._skills[name] = _filled(found, self._inline(name))
        return self._skills[name]

    def flaw(self, skill: str) -> str:
        """The reason an installed skill could not be read; empty if it could."""
        return str(self.texts.get(f"{_FLAW}skill:{skill}", ""))

    def _inline(self, name: str) -> Skill | None:
        found = self._workflow.skills.get(name)
        if found is None:
            return None
        return Skill(name, found.name or name, found.description, "general", found.instruction, found.mcp)

    @property
    def built_in(self) -> tuple[ToolSpec, ...]:
        """The available agent tools."""
        if self._built_in is None:
            listed = (spec for tool in BUILT_IN for spec in self.listed(f"tools:{tool}"))
            self._built_in = tuple(listed)
        return self._built_in

    def listed(self, name: str) -> tuple[ToolSpec, ...]:
        text = self.texts.get(name)
        return () if text is None else msgspec.json.decode(str(text), type=tuple[ToolSpec, ...])

    def server_tools(self, server: ServerSpec) -> Program[tuple[ToolSpec, ...] | Failed]:
        """The tools of a skill's server. They are listed when a node first needs them, because that starts the server."""
        name = f"tools:{server.name}.*"
        if name not in self.texts:
            failures = yield from self._fetch([ReadSource(name, server)])
            if failures:
                return failures[name]
        return self.listed(name)


def _filled(found: Skill | None, inline: Skill | None) -> Skill | None:
    """An installed skill without instruction and server takes both from the inline skill and then counts as
    configured."""
    if found is None or inline is None:
        return found or inline
    if found.instruction or found.mcp is not None:
        return found
    own = {"instruction": inline.instruction, "mcp": inline.mcp, "configured": True}
    return msgspec.structs.replace(found, **own, description=found.description or inline.description)


def named_sources(workflow: Workflow, inputs: Mapping[str, Any]) -> Iterator[tuple[str, Source]]:
    """Every source of a run, with the field that contains it."""

    def numbered(field: str, sources: Iterable[Source]) -> Iterator[tuple[str, Source]]:
        return ((f"{field}[{number}]", one) for number, one in enumerate(sources))

    for node in workflow.nodes.values():
        yield f"nodes.{node.id}.instruction", node.instruction
    for field in ("rules", "context"):
        yield from numbered(f"input.{field}", _given(inputs, field))
    yield from numbered("workflow.rules", workflow.rules)
    yield from numbered("workflow.context", workflow.context)
    for node in workflow.nodes.values():
        yield from numbered(f"nodes.{node.id}.rules", node.rules.sources)
        yield from numbered(f"nodes.{node.id}.context", node.context.sources)


def _given(inputs: Mapping[str, Any], field: str) -> tuple[Source, ...]:
    try:
        return given_sources(inputs.get(field))
    except BadSource as bad:
        raise EffectFailed(Failed(bad.kind, f"The input '{field}': {bad.message}", bad.fix)) from None


def call_of(spec: ToolSpec, server: ServerSpec | None = None) -> CallTool:
    return CallTool(spec.name, server=server, reads_only=server is None and spec.name in READING)


def name_of(source: Source) -> str:
    """The name of the source in effects."""
    return f"file:{source.value}" if source.kind == "file" else source.value


def origin_of(source: Source) -> str:
    """The location of a source without credentials."""
    if source.kind != "url":
        return source.value
    place, *rest = re.split("([?#])", source.value, maxsplit=1)
    scheme, _, place = place.partition("://")
    host, slash, path = place.partition("/")
    who, _, host = host.rpartition("@")
    return f"{scheme}://{'***@' if who else ''}{host}{slash}{path}{f'{rest[0]}***' if rest else ''}"


def _places(name: str, every: Iterable[tuple[str, Source]]) -> str:
    """The fields and lines that refer to a source."""
    return ", ".join(
        f"{field.removeprefix('workflow.')}{f' (line {one.line})' if one.line else ''}"
        for field, one in every
        if name_of(one) == name
    )


def _unreadable(failures: Mapping[str, Failed], sources: Mapping[str, Source], places: Mapping[str, str]) -> Failed:
    codes = {name: _code(sources[name], failed) for name, failed in failures.items()}
    origins = {name: origin_of(sources[name]) for name in failures}
    said = {name: failed.message.replace(sources[name].value, origins[name]) for name, failed in failures.items()}
    words = [f"{codes[name]}: {places[name]}: {said[name]}" for name in failures]
    fixes = [failed.fix for failed in failures.values()]
    first, details = next(iter(codes.values())), {"codes": {origins[name]: codes[name] for name in codes}}
    if len(words) == 1:
        return Failed(first, words[0], fixes[0], details=details)
    return Failed(first, " ".join(map(with_fix, words, fixes)), details=details)  # each with its own fix


def _code(source: Source, failed: Failed) -> str:
    if source.kind == "file":
        return FILE_CODES.get(failed.code, FILE_UNREADABLE)
    if failed.code == "http_status":
        unsigned = failed.details.get("status") in (401, 403)
        return "SOURCE_URL_AUTH_REQUIRED" if unsigned else "SOURCE_URL_HTTP_ERROR"
    return _URL_CODES.get(failed.code, "SOURCE_URL_UNREACHABLE")
