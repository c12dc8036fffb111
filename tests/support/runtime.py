"""A runtime with real parts over a real store, with its own home and workspace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cuebook.config import load
from cuebook.kernel.run import RunRow
from cuebook.performers.models.model import Model
from cuebook.service.contract.runtime import Runtime
from cuebook.service.service import Principal, Service
from cuebook.wiring.wiring import Wiring

ALLOWED = '[commands]\nallow = ["*"]\n'
"""A policy under which only a step's own `approval: required` asks."""

GATED = """
name: Gated
steps:
  - id: list
    command: cli echo '[{"file":"a"},{"file":"b"}]'
    effect: read
  - id: write
    command: cli tee made.txt
    stdin: $list.stdout
    approval: required
  - id: count
    command: cli wc -l made.txt
    effect: read
"""

SLOW = """
name: Slow
steps:
  - id: wait
    command: cli sh -c 'until test -e go; do sleep 0.05; done; echo went'
    effect: read
"""


class RuntimeHarness:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, policy: str = ALLOWED) -> None:
        self.folder = folder
        self.home, self.work = folder / "home", folder / "work"
        self.config = self.home / "config" / "cuebook"
        for made in (self.config, self.work):
            made.mkdir(parents=True, exist_ok=True)
        self.store = self.home / "data" / "runs.db"
        self.place = str(self.store)
        """The store that is opened: a file or a URL."""
        for name in [name for name in os.environ if name.startswith("CUEBOOK_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(self.home / "config"))
        monkeypatch.setenv("XDG_DATA_HOME", str(self.home / "data"))
        monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
        self.models: dict[str, Model] = {}
        self.rule(policy)
        self.wiring: Wiring
        self.service: Service
        self.runtime: Runtime

    def rule(self, policy: str) -> None:
        """Changes the user's policy."""
        (self.config / "policy.toml").write_text(policy)

    def open(self, **flags: Any) -> RuntimeHarness:
        given = {"store": self.place, "synchronous": "NORMAL", **flags}
        if self.models:
            given.setdefault("model", f"{next(iter(self.models))}/one")
        self.wiring = Wiring(load(given, folder=self.work), models=self.models)
        self.service = self.wiring.service()
        self.runtime = self.wiring.runtime(self.service)
        return self

    async def close(self) -> None:
        await self.runtime.close()
        await self.service.close()

    async def ask(self, request: Mapping[str, Any] | str, who: Principal = Principal(), **more: Any) -> dict[str, Any]:
        return await self.runtime.handle(request, who, **more)

    async def run(self, pipeline: str, who: Principal = Principal(), **fields: Any) -> dict[str, Any]:
        return await self.ask({"action": "run", "pipeline": pipeline, **fields}, who)

    async def resume(
        self, envelope: Mapping[str, Any], approve: bool, who: Principal = Principal(), **fields: Any
    ) -> dict[str, Any]:
        token = envelope["requiresApproval"]["resumeToken"]
        return await self.ask({"action": "resume", "token": token, "approve": approve, **fields}, who)

    async def rows(self) -> list[RunRow]:
        return await self.service.runs()

    def made(self, name: str = "made.txt") -> bool:
        return (self.work / name).exists()


def core(envelope: dict[str, Any]) -> dict[str, Any]:
    return {name: envelope[name] for name in ("ok", "status", "output")}
