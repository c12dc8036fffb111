"""The available skills and their settings: built-in skills, and skills in files of a playbook or workspace.

A skill with missing settings is listed with what is missing, but without its tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from cuebook.kernel.context import Text
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.outcomes import Failed, Source
from cuebook.kernel.ports import Action, Call, Description
from cuebook.kernel.run import Settings
from cuebook.performers.agent_tools.tool import Acts
from cuebook.performers.skills import files
from cuebook.performers.skills.model import HttpTool, Skill
from cuebook.performers.skills.request import PAUSES, SkillTool, fitted
from cuebook.performers.skills.services.betterstack import BETTERSTACK
from cuebook.performers.skills.services.datadog import DATADOG
from cuebook.performers.skills.services.github import GITHUB
from cuebook.performers.skills.services.linear import LINEAR
from cuebook.performers.skills.services.notification import NOTIFICATION
from cuebook.performers.skills.services.sentry import SENTRY
from cuebook.performers.skills.services.slack import SLACK
from cuebook.performers.skills.settings import Configured, SkillSettings, settings_of
from cuebook.performers.tools.toolbox import Ready, at_hand

BUILT_IN: dict[str, Skill] = {
    skill.id: skill for skill in (GITHUB, LINEAR, SENTRY, DATADOG, BETTERSTACK, SLACK, NOTIFICATION)
}


class Skills:
    """The skills of one process."""

    def __init__(
        self,
        environ: Mapping[str, str],
        configured: Mapping[str, Configured] | None = None,
        *,
        settings: Mapping[str, SkillSettings] | None = None,
        roots: Callable[[Settings], Sequence[Path]] = lambda settings: (),
    ) -> None:
        """`settings` are the built-in skills' settings, if they are already known; `roots` returns the folders that
        contain a run's skill files. Raises `BadInput` for an invalid configuration.
        """
        self._environ = environ
        self._configured = dict(configured or {})
        self._roots = roots
        self._settings = settings_of(environ, self._configured) if settings is None else settings

    # --- tools ---

    def tools(
        self, http: Acts, reveal: Callable[[str], str], pauses: Sequence[float] = PAUSES, ready: Ready = at_hand
    ) -> list[SkillTool]:
        """The tools of all configured skills. `reveal` returns the value of a secret by its handle, at once if it is `ready`."""
        return [
            SkillTool(skill.name, tool, self._settings[skill.id], http, reveal, pauses, ready)
            for skill in BUILT_IN.values()
            for tool in self._usable(skill)
        ]

    def missing(self, skill: Skill) -> list[str]:
        """The required settings that are not set; each may list several alternatives."""
        settings = self._settings[skill.id]
        return [" or ".join(some) for some in skill.needs if not any(map(settings.has, some))]

    def _usable(self, skill: Skill) -> list[HttpTool]:
        if self.missing(skill):
            return []
        settings = self._settings[skill.id]
        return [tool for one in skill.tools if (tool := fitted(one, settings)) is not None]

    # --- as a source ---

    async def describe(self, skill: str, settings: Settings) -> Description | Failed:
        try:
            place = await asyncio.to_thread(self._place, skill, settings)
        except BadInput as refused:
            return Failed.of(refused)
        if place is None:
            return Description((), f"Look up the skill {skill}")
        return Description(
            (Action("file", f"read:{place.path}", True),),
            f"Read the skill {skill}",
            preview={"file": str(place.root / place.path)},
            bound={"root": str(place.root), "file": place.path},
        )

    async def read(self, skill: str, call: Call) -> Source | Failed:
        """The content of the skill, as JSON."""
        try:
            place = await asyncio.to_thread(self._place, skill, call.settings)
            if place is None:
                return _source(self._built_in(BUILT_IN[skill]))
            found, name = await asyncio.to_thread(files.read, place)
        except BadInput as refused:
            return Failed.of(refused)
        # A link may have been swapped in since the file was described: what counts is the file that was opened.
        return call.permits(Action("file", f"read:{name}", True)) or _source(self._from_file(skill, found))

    def _place(self, skill: str, settings: Settings) -> files.Place | None:
        """The location of the skill's file; None for a built-in skill without one."""
        roots = self._roots(settings)
        place = files.find(roots, skill) if files.is_id(skill) else None
        if place is None and skill not in BUILT_IN:
            known = sorted({*BUILT_IN, *files.ids(roots)})
            near = get_close_matches(skill[:100], known, n=3)
            where = " and ".join(str(root) for root in roots) or "any folder: none is configured"
            raise NotFound(
                f"There is no skill {skill[:100]!a}: neither built in nor below {where}.",
                fix=f"Did you mean {' or '.join(near)}?"
                if near
                else f"Create it as {files.FOLDERS[0]}/NAME/{files.FILE}.",
            )
        return place

    def _built_in(self, skill: Skill) -> dict[str, Any]:
        missing = self.missing(skill)
        return {
            "id": skill.id,
            "name": skill.name,
            "description": skill.description,
            "category": skill.category,
            "instruction": "",
            "mcp": None,
            "tools": [_shown(tool) for tool in self._usable(skill)],
            "configured": not missing,
            "missing": missing,
        }

    def _from_file(self, skill: str, found: files.FileSkill) -> dict[str, Any]:
        """A built-in skill keeps its tools if a file adds an instruction or a server to it. If only the settings of
        these tools are missing, the rest is still available.
        """
        built_in = BUILT_IN.get(skill)
        below = self._built_in(built_in) if built_in is not None else {"name": skill, "tools": [], "missing": []}
        own = self._configured.get(skill, Configured({})).values
        missing = [
            name for name, variable in found.required.items() if not (own.get(name) or self._environ.get(variable))
        ]
        return {
            "id": skill,
            "name": below["name"],
            "description": found.description or below.get("description", ""),
            "category": below.get("category", found.category),
            "instruction": found.instruction,
            "mcp": None if found.mcp is None else msgspec.to_builtins(found.mcp),
            "tools": below["tools"],
            "configured": not missing,
            "missing": list(dict.fromkeys([*missing, *below["missing"]])),
        }


def _shown(tool: HttpTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "reads_only": tool.reads_only,
        "idempotent": tool.reads_only or tool.idempotent,
    }


def _source(skill: dict[str, Any]) -> Source:
    content = Text(msgspec.json.encode(skill).decode())
    return Source(content, content.digest)
