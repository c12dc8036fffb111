"""The units for systemd and the sites for proxies: they start what they say, with the settings and folders that they name."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.files import ROOT
from tests.deploy.processes import Process
from tests.support.command_line import TEA, CommandLine

UNITS = ROOT / "deploy" / "systemd"
NGINX = ROOT / "deploy" / "proxy" / "nginx.conf"
FOLDERS = ("/etc", "/var/lib", "/srv/cuebook", "/opt/cuebook")


class Unit:
    """A unit whose folders lie below another root."""

    def __init__(self, name: str, root: Path) -> None:
        self.lines = [
            line.partition("=")
            for line in (UNITS / name).read_text().splitlines()
            if "=" in line and not line.startswith("#")
        ]
        self._root = root

    def values(self, key: str) -> list[str]:
        return [value for name, _, value in self.lines if name == key]

    def below(self, text: str) -> str:
        for folder in FOLDERS:
            text = text.replace(folder, f"{self._root}{folder}")
        return text.replace("%%", "%")

    def environ(self) -> dict[str, str]:
        pairs = [word.partition("=") for line in self.values("Environment") for word in shlex.split(self.below(line))]
        return {"PATH": "/usr/bin:/bin", **{name: value for name, _, value in pairs}}

    def commands(self) -> list[list[str]]:
        return [shlex.split(self.below(line)) for line in self.values("ExecStart")]

    def begin(self, argv: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv,
            env=self.environ(),
            cwd=self.below(self.values("WorkingDirectory")[0]),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, argv: list[str]) -> None:
        process = self.begin(argv)
        said = process.communicate(timeout=60)
        assert process.returncode == 0, said


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine's folders, as the guide creates them."""
    for folder in (
        "etc/cuebook",
        "var/lib/cuebook",
        "var/lib/cuebook-backups",
        "srv/cuebook/playbooks",
        "opt/cuebook/bin",
    ):
        (tmp_path / folder).mkdir(parents=True)
    program = tmp_path / "opt/cuebook/bin/cuebook"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cuebook "$@"\n')
    program.chmod(0o755)
    (tmp_path / "srv/cuebook/playbooks/tea.md").write_text(TEA)
    return tmp_path


def test_the_service_starts_serves_the_playbooks_and_stops_within_its_time(root: Path) -> None:
    unit = Unit("cuebook.service", root)
    (argv,) = unit.commands()
    process = unit.begin([*argv, "--port", "0"])
    try:
        assert process.stdout is not None
        address = next(word for word in process.stdout.readline().split() if word.startswith("http"))
        served = Process("cuebook", process, address.partition("/sign-in")[0])
        served.until("/readyz", 200)
        assert (root / "var/lib/cuebook/cuebook.db").stat().st_mode & 0o077 == 0
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=int(unit.values("TimeoutStopSec")[0]))
    assert process.returncode == 0


def test_the_backup_is_one_that_restores(root: Path, cli: CommandLine) -> None:
    service, backup = Unit("cuebook.service", root), Unit("cuebook-backup.service", root)
    assert backup.environ() == service.environ()
    program = service.commands()[0][0]
    service.run([program, "users", "add", "ada", "--role", "admin"])
    for argv in backup.commands():
        backup.run(argv)
    (file,) = (root / "var/lib/cuebook-backups").iterdir()
    restored = cli.call("restore", str(file), "--store", "restored.db")
    assert restored.code == 0, restored.err
    assert "ada" in cli.call("users", "list", "--store", "restored.db").out


@pytest.mark.needs("systemd")
def test_systemd_accepts_the_units() -> None:
    units = sorted(map(str, UNITS.iterdir()))
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    complaints = [line for line in ran.stderr.splitlines() if "cuebook" in line and "is not executable" not in line]
    assert complaints == []


@pytest.mark.needs("nginx")
def test_nginx_accepts_its_site(tmp_path: Path) -> None:
    key = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=cuebook.example.com", "-days", "2"]
    made = [*key, "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "fullchain.pem")]
    subprocess.run(made, check=True, capture_output=True)
    (tmp_path / "site.conf").write_text(NGINX.read_text().replace("/etc/ssl/cuebook", str(tmp_path)))
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{ include {tmp_path}/site.conf; }}\n"
    )
    ran = subprocess.run(["nginx", "-t", "-c", str(tmp_path / "nginx.conf")], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
