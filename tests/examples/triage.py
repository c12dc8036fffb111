"""An operator who runs `examples/triage` on a scratch shop, and the services around it."""

from __future__ import annotations

import subprocess
import threading
from functools import cached_property
from pathlib import Path
from typing import Any

from cuebook.kernel.events import ENDED, Performed, Performing
from cuebook.kernel.journal import Codec, Key
from cuebook.stores.sqlite import SqliteStore
from examples.triage import scratch
from examples.triage.services import Services
from tests.support.command_line import CommandLine
from tests.surfaces.cli.runs.test_processes import the_run

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "triage"


class Triage:
    def __init__(self, cli: CommandLine) -> None:
        self.cli = cli
        self.folder = cli.work.parent / "outside"
        self.folder.mkdir()
        self.services = Services(0, self.folder)
        self._thread = threading.Thread(target=self.services.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        url = f"http://{self.services.host}"
        scratch.create(self.folder, url)
        cli.work = self.shop = self.folder / "shop"
        cli.environ |= {"GITHUB_TOKEN": "token-of-the-demo", "GITHUB_API_URL": f"{url}/api"}
        cli.config.parent.mkdir(parents=True, exist_ok=True)
        cli.config.write_text(scratch.settings(url))
        (cli.config.parent / "policy.toml").write_text(scratch.policy(self.services.host))

    def close(self) -> None:
        self.services.shutdown()
        self.services.server_close()
        self._thread.join()

    @cached_property
    def run(self) -> str:
        return the_run(self.cli)

    def git(self, *arguments: str, at: str = "shop") -> str:
        folder = self.folder / at
        ran = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
        return ran.stdout.strip()

    def shown(self) -> dict[str, Any]:
        found: dict[str, Any] = self.cli.call("show", self.run, "--json").object
        return found

    def next_call(self) -> tuple[str, ...] | None:
        """The command that an operator would type now; None once the run has ended."""
        shown = self.shown()
        if not shown["waits"]:
            return None if shown["status"] in ENDED else ("resume", self.run)
        assert [wait["kind"] for wait in shown["waits"]] == ["in_doubt"]
        return "decide", self.run, "repeat"

    async def repeated(self) -> list[Key]:
        """The effects that were begun again after they had an outcome."""
        store = SqliteStore(self.cli.store)
        codec = Codec(lambda digest: "")
        finished: set[Key] = set()
        found = []
        async for record in store.records(self.run, 0):
            entry = codec.entry(record)
            if isinstance(entry.event, Performed):
                finished.add(entry.place.key)
            elif isinstance(entry.event, Performing) and entry.place.key in finished:
                found.append(entry.place.key)
        await store.close()
        assert finished
        return found

    def assert_published_once(self) -> None:
        assert self.shown()["status"] == "completed"
        assert self.git("log", "--format=%s", "fix-discount") == "Divide a percentage by a hundred\nSell things"
        assert self.git("rev-parse", "fix-discount", at="git/shop.git") == self.git("rev-parse", "fix-discount")
        assert self.git("status", "--short") == ""
        (pull,) = self.services.pulls()
        assert (pull["head"]["ref"], pull["base"]["ref"]) == ("fix-discount", "main")
