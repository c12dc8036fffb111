"""A person who releases from a scratch repository with `examples/release`, and the webhook for the announcement."""

from __future__ import annotations

import fcntl
import subprocess
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from cuebook.kernel.events import ENDED
from examples.release.webhook import Webhook
from tests.support.command_line import CommandLine, finished
from tests.surfaces.cli.runs.test_processes import the_run

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "release"
SUMMARY = "Strangers are greeted."
STEPS = ["tests", "last", "commits", "diff", "notes", "tag", "announce", "look"]
WAITING = """\
import fcntl
from pathlib import Path
from time import sleep


def wait():
    global held
    try:
        held = open("held", "w")
        fcntl.flock(held, fcntl.LOCK_EX)  # until it ends
    except OSError:
        pass  # it may only read
    while not Path("go").exists():
        sleep(0.05)
"""


class Hook(Webhook):
    """The example's webhook, which can keep a request waiting while its sender is killed."""

    def __init__(self, file: Path) -> None:
        super().__init__(0, file)
        self.keys: list[str] = []
        """For every announcement received, whether it was accepted."""
        self.hold = ""
        """`lost`: before it is accepted, which never happens; `taken`: after it is accepted; `look`: when it is looked up."""
        self.holding, self._go_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/releases"

    def accept(self, key: str, body: dict[str, Any]) -> None:
        self.keys.append(key)
        if self.held("lost"):
            raise ConnectionError
        super().accept(key, body)
        self.held("taken")

    def announced(self, tag: str) -> int:
        self.held("look")
        return super().announced(tag)

    def held(self, when: str) -> bool:
        if self.hold != when:
            return False
        self.hold = ""
        self.holding.set()
        return self._go_on.wait(30)

    def release(self) -> None:
        self._go_on.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client was killed, as the tests intend

    def close(self) -> None:
        self.release()
        self.shutdown()
        self.server_close()
        self._thread.join()


class Release:
    """A person who releases from a scratch repository."""

    def __init__(self, cli: CommandLine, hook: Hook) -> None:
        self.cli, self.hook = cli, hook
        self.repository = cli.work.parent / "repository"
        script = ["sh", str(EXAMPLE / "scratch.sh"), str(self.repository), str(hook.server_port)]
        subprocess.run(script, env=cli.environ, check=True, capture_output=True)
        cli.work = self.repository
        assert cli.call("policy", "trust").code == 0
        self.begin = ["run", "release.yml", "--version", "1.2.0", "--webhook", hook.url]
        self.doubts: list[str] = []
        """The steps that were in doubt, in order."""

    # --- looking ---

    @cached_property
    def run(self) -> str:
        return the_run(self.cli)

    def shown(self) -> dict[str, Any]:
        found: dict[str, Any] = self.cli.call("show", self.run, "--json").object
        return found

    def tags(self) -> list[str]:
        return self._git("tag", "--list").split()

    def statuses(self) -> dict[str, str]:
        return {step["label"]: step["status"] for step in self.shown()["steps"]}

    def _git(self, *args: str) -> str:
        ran = subprocess.run(["git", *args], cwd=self.repository, check=True, capture_output=True, text=True)
        return ran.stdout.strip()

    def assert_released_once(self) -> None:
        """It was sent under one key, however often it was sent."""
        assert self.statuses() == dict.fromkeys(STEPS, "completed")
        assert self.tags() == ["v1.1.0", "v1.2.0"]
        head = self._git("rev-parse", "HEAD")
        assert self._git("rev-parse", "v1.2.0^{commit}") == head
        assert self._git("tag", "--list", "--format=%(contents)", "v1.2.0").startswith(SUMMARY)
        (accepted,) = self.hook.accepted()
        assert accepted == {"key": accepted["key"], "tag": "v1.2.0", "commit": head, "summary": SUMMARY}
        assert set(self.hook.keys) == {accepted["key"]}

    # --- doing ---

    def killed_while(self, *args: str, holding: Callable[[], bool]) -> None:
        """Kills the process once a request or a step is held."""
        process = self.cli.begin(*args)
        assert holding()
        process.kill()
        finished(process)

    def held(self) -> bool:
        """Whether the step has reached the point where it waits for the file `go`."""
        while not (self.repository / "held").exists():
            threading.Event().wait(0.05)
        return True

    def slow_down(self, name: str, line: str, *, before: bool) -> None:
        """Makes a script of the repository wait before or after the line with this beginning, until it may continue."""
        (self.repository / "waiting.py").write_text(WAITING)
        file = self.repository / name
        (found,) = [one for one in file.read_text().splitlines() if one.startswith(line)]
        wait = f"{found[: len(found) - len(found.lstrip())]}__import__('waiting').wait()"
        both = f"{wait}\n{found}" if before else f"{found}\n{wait}"
        file.write_text(file.read_text().replace(found, both))

    def go_on(self) -> None:
        """Lets it continue, unless it ended with the process that was killed: that may take a moment."""
        if (self.repository / "held").exists():
            with (self.repository / "held").open() as held:
                fcntl.flock(held, fcntl.LOCK_EX)
        (self.repository / "go").touch()

    def next_call(self) -> tuple[str, ...] | None:
        """The command that a person would type now; None once the run has ended."""
        shown = self.shown()
        if not shown["waits"]:
            return None if shown["status"] in ENDED else ("resume", self.run)
        (wait,) = shown["waits"]
        if wait["kind"] == "in_doubt":
            self.doubts.append(wait["step"])
            return "decide", self.run, "repeat"
        return "decide", self.run, "approve"

    def bring_to_its_end(self) -> None:
        while (call := self.next_call()) is not None:
            assert self.cli.call(*call).code in (0, 3)
