"""The environment of a conformance case: files in a folder, skills, and URLs with scripted responses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.context import Text
from cuebook.kernel.effects import ReadSource
from cuebook.kernel.outcomes import Failed, Source
from cuebook.kernel.ports import Call
from cuebook.performers.http import performer
from cuebook.performers.http.exchange import Incoming, Outgoing, exchange
from cuebook.performers.skills.library import Skills
from cuebook.performers.skills.settings import Configured
from cuebook.performers.sources import SourcePerformer
from tests.dialects.graph.harness import skill, tool
from tests.support.http_servers import Names


class CaseEnvironment:
    """Performs `ReadSource` with the real performers, on the sources that a case defines."""

    def __init__(self, case: Mapping[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._said: dict[str, Any] = {f"tools:{name}": tool(name) for name in case.get("built_in", ())}
        for id, fields in case.get("skills", {}).items():
            given = dict(fields)
            self._said[f"skill:{id}"] = skill(id, *given.pop("tools", ()), **given)
        for path, text in case.get("files", {}).items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        self._library = bool(case.keys() & {"environment", "config"}) or any(
            path.endswith("SKILL.md") for path in case.get("files", {})
        )
        config = {id: Configured(values) for id, values in case.get("config", {}).items()}
        self.fetched: list[str] = []
        self._urls = {url: list(_listed(said)) for url, said in case.get("urls", {}).items()}
        monkeypatch.setattr(performer, "exchange", self._exchange)
        names = Names({host: [address.split()] for host, address in case.get("hosts", {}).items()})
        self._sources = SourcePerformer(
            [folder],
            http=performer.HttpPerformer(resolve=names),
            skills=Skills(case.get("environment", {}), config, roots=lambda settings: (folder,)),
            pauses=(0, 0),
        )

    async def perform(self, effect: ReadSource, call: Call) -> Source | Failed:
        said = self._said.get(effect.source)
        if said is None and effect.source.startswith("tools:"):
            said = []
        if said is not None:
            text = Text(json.dumps(said))
            return Source(text, text.digest)
        if effect.source.startswith("skill:") and not self._library:
            return Failed("not_found", f"There is no {effect.source}.")
        return await self._sources.perform(effect, call)

    async def _exchange(self, outgoing: Outgoing, **options: Any) -> Incoming:
        """A URL that the case defines returns its responses in order; any other URL is really looked up."""
        url = str(outgoing.url)
        self.fetched.append(url)
        if url not in self._urls:
            return await exchange(outgoing, **options)
        left = self._urls[url]
        said = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(said, str):
            return Incoming(200, {"content-type": "text/plain"}, (), said.encode())
        to = (said["to"],) if "to" in said else ()
        return Incoming(said["status"], {}, to)


def _listed(said: Any) -> Sequence[Any]:
    return said if isinstance(said, list) else [said]
