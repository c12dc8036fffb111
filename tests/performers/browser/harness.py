"""Runs pipelines with web steps in a real Chromium."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from playwright.async_api import Playwright

from cuebook.dialects.pipeline.parse import parse
from cuebook.gate.sandbox import choose
from cuebook.kernel.effects import Browse, Effect
from cuebook.kernel.events import Performed, Warned
from cuebook.kernel.outcomes import Page
from cuebook.kernel.run import RunRow
from cuebook.performers.browser.performer import BrowserPerformer
from tests.dialects.pipeline.harness import PipelineHarness

LOOPBACK: dict[str, Any] = {
    "tools": {"allow": ["browser:*"]},
    "egress": {"allow": ["http://127.0.0.1:*/*", "https://127.0.0.1:*/*"]},
    "secrets": {"allow": ["*"]},
    "files": {"allow": ["write:**"]},
}


class BrowserHarness(PipelineHarness):
    browser: BrowserPerformer

    def __init__(
        self,
        folder: Path,
        policy: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        playwright: Playwright | None = None,
        **more: Any,
    ) -> None:
        self._environ = dict(environ or {})
        self._playwright = playwright
        super().__init__(folder, LOOPBACK if policy is None else policy, environ=environ, **more)

    def _more_performers(self) -> dict[type[Effect], Any]:
        self.browser = BrowserPerformer(
            self.sandbox, lambda: self.workspace, self.folder / "browsers", self._environ, private=self._private
        )
        self.browser._playwright = self._playwright
        return {Browse: self.browser}

    def confine(self, sandbox: str) -> None:
        """Uses this sandbox for the browser."""
        self.browser._sandbox = choose(cast(Any, sandbox), self._private)

    async def browse(self, *steps: str, head: str = "", **more: Any) -> RunRow:
        """Runs a pipeline with these steps: each a command, or a whole step."""
        lines = [
            one if one.startswith("id:") else f"id: s{number}\n    command: {one}" for number, one in enumerate(steps)
        ]
        text = f"name: Web\n{head}steps:\n" + "".join(f"  - {one}\n" for one in lines)
        self.pipeline = parse(text, "web.yml")
        return await self.do(**more)

    async def pages(self, run: str) -> list[Page]:
        performed: list[Performed] = await self.events(run, Performed)
        return [one.outcome for one in performed if isinstance(one.outcome, Page)]

    async def warnings(self, run: str) -> dict[str, str]:
        return {one.code: one.message for one in await self.events(run, Warned)}

    async def restart(self) -> None:
        """Ends the browsers, as a new process would find them."""
        if self._playwright is not None:
            self.browser._playwright = None  # it belongs to all tests
        await self.browser.close()
        self.browser._playwright = self._playwright

    async def close(self) -> None:
        await self.restart()
        await super().close()
