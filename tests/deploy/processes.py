"""Starts the processes of compose.yaml without containers: the same commands and environments, with addresses of this machine."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tests.deploy.files import compose, required
from tests.support import postgres
from tests.support.command_line import CommandLine, Ran, finished

ROOT = Path(__file__).resolve().parents[2]
SECRETS = {name: f"{name.lower()}-of-the-tests-with-enough-characters" for name in required()}


class Process:
    """A process of a service, and the address of its probes."""

    def __init__(self, name: str, process: subprocess.Popen[str], address: str) -> None:
        self.name = name
        self.process = process
        self.address = address

    @property
    def pid(self) -> int:
        return self.process.pid

    def probe(self, path: str) -> tuple[int, str]:
        """The answer to a probe by address, as an orchestrator asks; status 0 if there is none."""
        try:
            answer = httpx2.get(f"{self.address}{path}", timeout=10, trust_env=False)
        except httpx2.TransportError:
            return 0, ""
        return answer.status_code, answer.text

    def until(self, path: str, status: int) -> str:
        end = time.monotonic() + 40
        while (answer := self.probe(path))[0] != status:
            assert time.monotonic() < end, (self.name, path, answer)
            assert self.process.poll() is None or status == 0, self.ended()
            time.sleep(0.02)
        return answer[1]

    def ended(self) -> Ran:
        return finished(self.process)


_READ_ONLY = """
mount --make-rprivate /
mount --bind "$1" /mnt
mount -t tmpfs tmpfs /tmp
mkdir -p "$1"
mount --bind /mnt "$1"
mount -o remount,bind,ro "$1"
mount --bind "/mnt/$2" "$1/$2"
umount /mnt
mount -o remount,bind,ro /
shift 2
exec "$@"
"""


def read_only_root(folder: Path, writable: str) -> list[str]:
    """A program that runs a command as a container with a read-only root does: it can write to /tmp, which is empty at
    first, and to one folder within `folder`. Empty if this user may not mount anything, or if the project itself is in /tmp.
    """
    if any(Path(one).is_relative_to("/tmp") for one in (sys.prefix, ROOT)):
        return []
    try:
        allowed = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    except FileNotFoundError:
        return []
    if allowed.returncode:
        return []
    return ["unshare", "--mount", "sh", "-euc", _READ_ONLY, "sh", str(folder), writable]


class Composition:
    """The services of compose.yaml as processes of this machine."""

    def __init__(self, cli: CommandLine, server: postgres.Server, temporal: str = "") -> None:
        self._cli = cli
        self.temporal = temporal
        self._places = {
            "postgresql://cuebook@postgres/": f"postgresql://cuebook@127.0.0.1:{server.port}/",
            "/workspace": str(cli.work),
            "/playbooks": str(cli.work),
        }
        self._services: dict[str, Any] = compose({**SECRETS, "CUEBOOK_MODEL": "test/echo-1"})["services"]
        self.processes: list[Process] = []

    def environ(self, name: str) -> dict[str, str]:
        """The environment of a service. Only what the machine itself gives is kept."""
        own = {one: value for one, value in self._cli.environ.items() if not one.startswith("CUEBOOK_")}
        given = {one: self._here(value) for one, value in self._services[name]["environment"].items()}
        given["CUEBOOK_TEMPORAL_ADDRESS"] = self.temporal
        return {**own, **{one: value for one, value in given.items() if self.temporal or "TEMPORAL" not in one}}

    def start(self, name: str, around: Sequence[str] = ()) -> list[Process]:
        """Starts all replicas of a service; `around` is a program that runs the command."""
        service = self._services[name]
        started = []
        for number in range(service.get("deploy", {}).get("replicas", 1)):
            url = re.findall(r"http://[^/]+", service["healthcheck"]["test"][-1])[0]
            port = postgres.free_port()
            served = str(urlsplit(url).port)
            words = [self._here(re.sub(rf"(^|:){served}$", rf"\g<1>{port}", word)) for word in service["command"]]
            words = [word.replace(":9464", f":{postgres.free_port()}") for word in words]
            process = subprocess.Popen(
                [*around, sys.executable, "-m", "cuebook", *words],
                cwd=self._cli.work,
                env=self.environ(name),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.append(Process(f"{name}-{number + 1}", process, f"http://127.0.0.1:{port}"))
        self.processes += started
        return started

    def call(self, *words: str) -> Ran:
        """A command of an operator, with the environment of a worker."""
        before, self._cli.environ = self._cli.environ, self.environ("worker")
        try:
            return self._cli.start(*words)
        finally:
            self._cli.environ = before

    def stop(self) -> None:
        for one in self.processes:
            if one.process.poll() is None:
                one.process.kill()
                one.process.communicate()

    def _here(self, text: str) -> str:
        for there, here in self._places.items():
            text = text.replace(there, here)
        return text
