"""Parses the text of a program into its document, and reports every problem with its line and code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from cuebook.dialects.findings import InvalidPlaybook, Problem
from cuebook.dialects.program.model import Agent, Playbook, ProgramText, Trigger
from cuebook.dialects.program.parse.imports import unread
from cuebook.dialects.program.parse.lists import is_list, items_of, notes_of, steps_of, triggers_of
from cuebook.dialects.program.parse.metadata import Area, area_of
from cuebook.dialects.program.parse.outline import AgentPart, Fence, Outline, Part, PlaybookPart, Section, outline
from cuebook.dialects.program.parse.python_blocks import block_of, declares_playbooks, is_python
from cuebook.dialects.program.parse.remotes import remote_of
from cuebook.dialects.program.parse.signatures import Heading, Unreadable, agent_heading, name_of, playbook_heading
from cuebook.formats.json import read_json
from cuebook.formats.shape import in_order
from cuebook.formats.suggestions import meant
from cuebook.formats.values import Malformed, Value
from cuebook.formats.yaml import read_yaml

SIZE_LIMIT = 4_000_000
"""In characters."""
_ASKED: tuple[Literal["react", "raw"], ...] = ("react", "raw")
_MODES = ("playbook", *_ASKED)
_PUBLIC = "public.json"


class Parsed(msgspec.Struct, frozen=True):
    """A program, or the errors that prevent one."""

    program: ProgramText | None
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def parse(text: str, name: str) -> ProgramText:
    """Return the document. Raise `InvalidPlaybook` with every problem."""
    parsed = read(text, name)
    if parsed.program is None:
        raise InvalidPlaybook(name, parsed.errors, codes=True)
    return parsed.program


def read(text: str, name: str) -> Parsed:
    """Return the document or its errors, and the warnings in either case."""
    return _read(text, name)


def _read(text: str, name: str) -> Parsed:
    if len(text) > SIZE_LIMIT:
        message = f"The program has more than {SIZE_LIMIT:,} characters."
        return Parsed(None, (Problem(message, None, "Split it.", "TOO_LARGE"),))
    return _Reading(text, name).result()


class _Code(NamedTuple):
    """The code blocks taken out of an agent's text."""

    blocks: list[Fence]
    public: list[Fence]


class _Reading:
    """The state of a parse."""

    def __init__(self, text: str, name: str) -> None:
        self._text, self._name = text, name
        self._compiled = not name.lower().endswith(".pb")
        self._errors: list[Problem] = []
        self._warnings: list[Problem] = []

    def result(self) -> Parsed:
        missing = unread(self._text)
        if missing:
            return Parsed(None, tuple(missing))
        found = outline(self._text)
        self._errors += found.problems
        self._warnings += found.warnings
        frontmatter = self._frontmatter(found)
        if found.stray:
            fix = "Put it below the heading of an agent."
            self._warn(found.stray, "Text before the first agent is ignored.", fix, "STRAY_TEXT")
        agents: dict[str, Agent] = {}
        for part in found.agents:
            agent = self._agent(part)
            if agent.name in agents:
                other = agents[agent.name].line
                self._error(
                    part.line,
                    f"There are two agents named '{agent.name}'.",
                    f"The other agent is on line {other}.",
                    "TWICE",
                )
            agents[agent.name] = agent
        if not agents:
            fix = "Begin with '# Name', and below it '## Playbook' with '### Triggers' and '### Steps'."
            self._error(None, "The program has no agent.", fix, "NO_AGENT")
        warnings = in_order(self._warnings)
        if self._errors:
            return Parsed(None, in_order(self._errors), warnings)
        compiled = not any(one.uncompiled for agent in agents.values() for one in agent.playbooks.values())
        name = _stem(self._name) or next(iter(agents))
        return Parsed(ProgramText(name, agents, compiled, frontmatter, warnings), (), warnings)

    def _error(self, line: int | None, message: str, fix: str, code: str) -> None:
        self._errors.append(Problem(message, line, fix, code))

    def _warn(self, line: int | None, message: str, fix: str, code: str) -> None:
        self._warnings.append(Problem(message, line, fix, code))

    def _frontmatter(self, found: Outline) -> dict[str, Any]:
        lines = found.frontmatter
        if not lines:
            return {}
        try:
            values = read_yaml("\n".join(line.text for line in lines)).plain
        except Malformed as error:
            self._error(lines[0].number + error.line - 1, f"Front matter: {error.message}.", error.fix, "FRONTMATTER")
            return {}
        if isinstance(values, dict):
            return values
        if values is not None:
            self._error(lines[0].number, "The front matter must be a mapping.", "Write title: ...", "FRONTMATTER")
        return {}

    # --- agents -----------------------------------------------------------------------------------------------

    def _agent(self, part: AgentPart) -> Agent:
        name, kind = agent_heading(part.title)
        if not name:
            self._error(part.line, "An agent has no name.", "Write it after the #.", "NO_NAME")
        code = _Code([], [])
        area = self._area(list(_without_code(part.parts, code, inside=False)))
        remote = remote_of(area.metadata, part.parts, part.line, self._errors, self._warnings)
        if kind == "mcp" and remote is None:
            self._warn(part.line, f"The remote agent '{name}' has no URL.", "Write remote: with a url.", "REMOTE")
        # Functions are defined before other playbooks, wherever their block is.
        below = [self._playbook(one, code) for one in part.playbooks]
        playbooks: dict[str, Playbook] = {}
        for playbook in [*self._of_python(code.blocks), *below]:
            if playbook.name in playbooks:
                message = f"'{name}' has two playbooks named '{playbook.name}'."
                self._error(
                    playbook.line, message, f"The other playbook is on line {playbooks[playbook.name].line}.", "TWICE"
                )
            playbooks[playbook.name] = playbook
        for fence in code.public:
            playbooks = _published(fence, playbooks, self._errors, self._warnings)
        return Agent(
            name,
            "mcp" if remote is not None and kind == "ai" else kind,
            area.description,
            area.metadata,
            playbooks,
            tuple(fence.text for fence in code.blocks),
            remote,
            part.line,
            tuple(fence.number for fence in code.blocks),
        )

    def _area(self, parts: list[Part]) -> Area:
        area = area_of(parts, compiled=self._compiled)
        self._errors += area.problems
        self._warnings += area.warnings
        return area

    def _of_python(self, fences: list[Fence]) -> Iterator[Playbook]:
        for fence in fences:
            block = block_of(fence)
            self._errors += block.problems
            for playbook in block.playbooks:
                self._check_triggers(playbook.triggers)
                yield playbook

    # --- playbooks --------------------------------------------------------------------------------------------

    def _playbook(self, part: PlaybookPart, code: _Code) -> Playbook:
        heading = self._heading(part)
        area = self._area(list(_without_code(part.parts, code, inside=True)))
        metadata = {**heading.metadata, **area.metadata}
        sections = [_plain(section, code) for section in part.sections]
        listed, description = _joined(sections, "steps"), area.description
        if not listed and is_list(part.parts) and not area.metadata:
            listed, description = part.parts, ""
        steps = steps_of(listed)
        self._warnings += steps.warnings
        triggers = triggers_of([(item.text, item.line) for item in items_of(_joined(sections, "triggers"))])
        self._check_triggers(triggers)
        return Playbook(
            heading.name,
            self._kind(metadata, bool(steps.lines or steps.uncompiled), part.line),
            params=heading.params,
            returns=heading.returns,
            description=description,
            metadata=metadata,
            triggers=triggers,
            steps=steps.lines,
            notes=notes_of(_joined(sections, "notes")),
            uncompiled=steps.uncompiled,
            line=part.line,
        )

    def _heading(self, part: PlaybookPart) -> Heading:
        try:
            heading = playbook_heading(part.title)
        except Unreadable as error:
            fix = "Write ## Name($one: str, $other: int = 3) -> str."
            self._error(part.line, f"The parameters of '{part.title[:60]}' are invalid: {error}.", fix, "SIGNATURE")
            return Heading(name_of(part.title.partition("(")[0]))
        if not heading.name:
            self._error(part.line, "A playbook has no name.", "Write it after the ##.", "NO_NAME")
        return heading

    def _kind(self, metadata: dict[str, Any], steps: bool, line: int) -> Literal["listing", "react", "raw"]:
        mode = metadata.get("execution_mode")
        for known in _ASKED:
            if mode == known:
                return known
        if mode is not None and mode not in _MODES:
            self._error(line, f"Unknown execution_mode '{mode}'.", meant(str(mode), _MODES), "EXECUTION_MODE")
        return "listing" if steps else "react"

    def _check_triggers(self, triggers: tuple[Trigger, ...]) -> None:
        seen: dict[str, int] = {}
        for trigger in triggers:
            if trigger.id in seen:
                message, fix = f"There are two triggers named {trigger.id}.", "Renumber them."
                self._error(trigger.line, message, fix, "TWICE")
            seen[trigger.id] = trigger.line


def _without_code(parts: list[Part], code: _Code, *, inside: bool) -> Iterator[Part]:
    """Yield the parts of the text without the blocks that define something, which are collected in `code`. Other blocks
    inside a playbook are examples."""
    for part in parts:
        if isinstance(part, Fence) and part.info.lower() == _PUBLIC:
            code.public.append(part)
        elif isinstance(part, Fence) and is_python(part) and (not inside or declares_playbooks(part)):
            code.blocks.append(part)
        else:
            yield part


def _plain(section: Section, code: _Code) -> Section:
    return Section(section.kind, section.line, list(_without_code(section.parts, code, inside=True)))


def _joined(sections: list[Section], kind: str) -> list[Part]:
    return [part for section in sections if section.kind == kind for part in section.parts]


def _stem(name: str) -> str:
    """The name of a file without folder and suffix; empty for standard input."""
    base = name.replace("\\", "/").rpartition("/")[2]
    return "" if base in ("-", "stdin") else base.removesuffix(".pbasm").removesuffix(".pb")


def _published(
    fence: Fence, playbooks: dict[str, Playbook], problems: list[Problem], warnings: list[Problem]
) -> dict[str, Playbook]:
    """Return the playbooks with the `public.json` block applied: it says which ones other agents may call."""
    if not fence.text.strip():
        return playbooks
    try:
        root = read_json(fence.text)
    except Malformed as error:
        line = fence.number + error.line
        problems.append(Problem(f"public.json: {error.message}.", line, error.fix, "PUBLIC_JSON"))
        return playbooks
    found = dict(playbooks)
    if root.kind != "seq" or any(one.kind != "map" for one in root.items):
        problems.append(Problem("public.json must be a list of playbooks.", fence.number, "Write [].", "PUBLIC_JSON"))
        return playbooks
    for one in root.items:
        name, line = _field(one, "name"), fence.number + one.line
        playbook = found.get(name)
        if playbook is None:
            message = f"public.json lists '{name}', which is not a playbook of this agent."
            warnings.append(Problem(message, line, meant(name, playbooks), "PUBLIC_JSON"))
            continue
        metadata = {"public": True, **playbook.metadata}
        if "cli_entry" in one.fields:
            metadata.setdefault("cli_entry", one.fields["cli_entry"].plain)
        description = playbook.description or _field(one, "description")
        found[name] = msgspec.structs.replace(playbook, metadata=metadata, description=description)
    return found


def _field(value: Value, name: str) -> str:
    found = value.fields.get(name)
    return found.text if found is not None and found.kind == "str" else ""
