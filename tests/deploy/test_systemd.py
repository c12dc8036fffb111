"""The units for systemd and the sites for proxies: they start what they say, with the settings and folders that they name."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from cuebook.stores.sqlite.snapshot import check_file
from tests.deploy.files import ROOT
from tests.deploy.processes import Process
from tests.support.command_line import TEA, CommandLine
from tests.support.documentation import DOCS, blocks
from tests.support.postgres import free_port

UNITS = ROOT / "deploy" / "systemd"
NGINX = ROOT / "deploy" / "proxy" / "nginx.conf"
ADMIN = ROOT / "deploy" / "bin" / "cuebook"
GUIDE = DOCS / "guides" / "operations.md"
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


@contextmanager
def served(root: Path, killed: bool = False) -> Iterator[Process]:
    """The service as the unit starts it, at a free port. It stops by itself, unless it is killed."""
    unit = Unit("cuebook.service", root)
    (argv,) = unit.commands()
    process = unit.begin([*argv, "--port", "0"])
    try:
        assert process.stdout is not None
        address = next(word for word in process.stdout.readline().split() if word.startswith("http"))
        found = Process("cuebook", process, address.partition("/sign-in")[0].rstrip("/"))
        found.until("/readyz", 200)
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=int(unit.values("TimeoutStopSec")[0]))
    assert process.returncode == (-signal.SIGKILL if killed else 0)


def configured(root: Path, secrets: str = "") -> None:
    """Writes the settings of the guide to operations, and `models.env`."""
    text = "\n".join(
        block.text for block in blocks(GUIDE) if block.language == "toml" and "[evidence]" not in block.text
    )
    here = {"/srv/cuebook": str(root / "srv/cuebook"), "smtp.example.com": "127.0.0.1", "587": str(free_port())}
    for there, place in here.items():
        text = text.replace(there, place)
    (root / "etc/cuebook/cuebook.toml").write_text(text)
    (root / "etc/cuebook/models.env").write_text(secrets)


def administered(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Calls the command for administrators, of which this user is the user of the service."""
    script = root / "cuebook"
    text = ADMIN.read_text()
    for folder in FOLDERS:
        text = text.replace(folder, f"{root}{folder}")
    script.write_text(text.replace("user=cuebook", f"user={pwd.getpwuid(os.getuid()).pw_name}"))
    script.chmod(0o755)
    environ = {"PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [script, *words], env=environ, cwd=root / "srv/cuebook/playbooks", text=True, capture_output=True
    )


def test_the_service_starts_serves_the_playbooks_and_stops_within_its_time(root: Path) -> None:
    with served(root):
        assert (root / "var/lib/cuebook/cuebook.db").stat().st_mode & 0o077 == 0


def test_with_the_settings_of_the_guide_the_service_answers_to_its_public_name_and_to_no_other(root: Path) -> None:
    configured(root)
    with served(root) as process:
        for name, status in (("cuebook.example.com", 200), ("other.example.com", 421)):
            headers = {"Host": name, "X-Forwarded-Proto": "https"}
            answer = httpx2.get(f"{process.address}/sign-in", headers=headers, trust_env=False)
            assert answer.status_code == status, answer.text


def test_the_command_of_administrators_has_the_settings_and_the_secrets_of_the_service(root: Path) -> None:
    values = {"OPENAI_API_KEY": "sk-a$HOME", "SMTP_PASSWORD": """a b'"`id`\\ #c=d"""}
    configured(root, "# secrets\n; of all kinds\n\nnot-a-name=x\n" + "\n".join(map("=".join, values.items())))
    seen = root / "seen.json"
    program = root / "opt/cuebook/bin/cuebook"
    whole = program.read_text()
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\njson.dump([sys.argv[1:], dict(os.environ)], open({str(seen)!r}, 'w'))"
    )
    assert administered(root, "a b", "$HOME").returncode == 0
    arguments, environ = json.loads(seen.read_text())
    assert arguments == ["a b", "$HOME"]
    wanted = {**Unit("cuebook.service", root).environ(), **values}
    assert {name: environ.get(name) for name in wanted} == wanted
    assert "not-a-name" not in environ

    program.write_text(whole)
    doctor = administered(root, "doctor")
    assert "OPENAI_API_KEY is not set" not in doctor.stdout
    refused = [administered(root, "notify", "test").stdout]  # nothing listens there
    (root / "etc/cuebook/models.env").write_text("")
    refused.append(administered(root, "notify", "test").stdout)
    assert ["SMTP_PASSWORD" in one for one in refused] == [False, True], refused
    assert administered(root, "users", "add", "ada", "--role", "admin").returncode == 0
    assert (root / "var/lib/cuebook/cuebook.db").exists()


def test_the_backup_is_one_that_restores(root: Path, cli: CommandLine) -> None:
    service, backup = Unit("cuebook.service", root), Unit("cuebook-backup.service", root)
    assert backup.environ() == service.environ()
    assert backup.values("EnvironmentFile") == service.values("EnvironmentFile") == ["-/etc/cuebook/models.env"]
    program = service.commands()[0][0]
    service.run([program, "users", "add", "ada", "--role", "admin"])
    for argv in backup.commands():
        backup.run(argv)
    (file,) = (root / "var/lib/cuebook-backups").iterdir()
    restored = cli.call("restore", str(file), "--store", "restored.db")
    assert restored.code == 0, restored.err
    assert "ada" in cli.call("users", "list", "--store", "restored.db").out


def test_going_back_after_a_crash_works_as_the_guide_says_and_loses_nothing(root: Path) -> None:
    store = root / "var/lib/cuebook/cuebook.db"
    assert administered(root, "users", "add", "ada", "--role", "admin").returncode == 0
    backup = "/var/lib/cuebook-backups/before-0.2.0.cuebook"
    made = administered(root, "backup", f"{root}{backup}", "--with-key")
    assert made.returncode == 0, made.stderr
    with served(root, killed=True) as process:
        assert administered(root, "users", "add", "bob", "--role", "viewer").returncode == 0
        process.process.kill()
    assert store.with_name("cuebook.db-wal").stat().st_size > 0

    refused = administered(root, "restore", f"{root}{backup}")
    assert (refused.returncode, "cuebook.db-wal" in refused.stderr) == (2, True), refused.stderr
    (back,) = (block.text for block in blocks(GUIDE) if f"cuebook restore {backup}" in block.text)
    own = f"-o {os.getuid()} -g {os.getgid()}"
    for line in back.replace("/var/lib", f"{root}/var/lib").replace("-o cuebook -g cuebook", own).splitlines():
        if line.startswith("cuebook "):
            ran = administered(root, *shlex.split(line)[1:])
            assert ran.returncode == 0, ran.stderr
        elif not line.startswith(("systemctl ", "/opt/cuebook/bin/pip ")):
            subprocess.run(["sh", "-euc", line], check=True)
    assert "bob" not in administered(root, "users", "list").stdout
    moved = administered(root, "users", "list", "--store", str(store.parent / "before" / "cuebook.db"))
    assert "bob" in moved.stdout, moved.stderr
    with served(root):
        assert check_file(store) == ""


@pytest.mark.needs("systemd")
def test_systemd_accepts_the_units() -> None:
    units = sorted(map(str, UNITS.iterdir()))
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    complaints = [line for line in ran.stderr.splitlines() if "cuebook" in line and "is not executable" not in line]
    assert complaints == []


@pytest.mark.needs("nginx")
def test_browsers_reach_the_service_through_nginx(root: Path) -> None:
    configured(root)
    key = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=cuebook.example.com", "-days", "2"]
    made = [*key, "-keyout", str(root / "key.pem"), "-out", str(root / "fullchain.pem")]
    subprocess.run(made, check=True, capture_output=True)
    with served(root) as process:
        secure, plain = free_port(), free_port()
        site = (
            NGINX.read_text().replace("/etc/ssl/cuebook", str(root)).replace("http://127.0.0.1:8765", process.address)
        )
        site = site.replace("listen 443 ssl", f"listen 127.0.0.1:{secure} ssl").replace(
            "listen 80", f"listen 127.0.0.1:{plain}"
        )
        (root / "site.conf").write_text(site)
        own = "".join(
            f"{kind}_temp_path {root}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (root / "nginx.conf").write_text(
            f"daemon off;\npid {root}/nginx.pid;\nerror_log stderr;\nevents {{}}\n"
            f"http {{ access_log off;\n{own}include {root}/site.conf; }}\n"
        )
        nginx = subprocess.Popen(["nginx", "-c", str(root / "nginx.conf")], stderr=subprocess.PIPE, text=True)
        try:
            proxy = Process("nginx", nginx, f"http://127.0.0.1:{plain}")
            proxy.until("/", 301)
            trusted = ssl.create_default_context(cafile=str(root / "fullchain.pem"))
            with httpx2.Client(verify=trusted, trust_env=False) as client:
                answer = client.get(
                    f"https://127.0.0.1:{secure}/sign-in",
                    headers={"Host": "cuebook.example.com"},
                    extensions={"sni_hostname": "cuebook.example.com"},
                )
            assert (answer.status_code, "Sign in" in answer.text) == (200, True), answer.text
        finally:
            nginx.terminate()
            nginx.communicate(timeout=20)
