"""Whether a driver's process is alive is reported only if it is certain."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cuebook.system import process as processes
from cuebook.system.process import birth_of, lives, this_host

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process numbers and births as on Linux")


@pytest.fixture
def ended() -> tuple[int, str]:
    """The id and start time of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    born = birth_of(process.pid)
    process.communicate(b"\n")
    return process.pid, born


def test_this_process_is_alive() -> None:
    assert birth_of(os.getpid())
    assert lives(this_host(), os.getpid(), birth_of(os.getpid())) is True


def test_a_process_that_ended_is_dead(ended: tuple[int, str]) -> None:
    assert lives(this_host(), *ended) is False


def test_a_later_process_with_its_number_is_another_one() -> None:
    assert lives(this_host(), os.getpid(), "12345") is False
    assert lives(this_host(), os.getpid(), "") is None, "where births are unknown, heartbeats decide"


def test_a_process_on_another_host_is_unknown(ended: tuple[int, str]) -> None:
    assert lives("elsewhere", *ended) is None


def test_another_users_process_may_be_alive() -> None:
    assert lives(this_host(), 1, birth_of(1)) is True


def test_a_process_that_ended_and_was_not_waited_for_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    born = birth_of(process.pid)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert lives(this_host(), process.pid, born) is False
    process.wait()


@pytest.mark.parametrize(
    ("machine", "boot", "lived"),
    [("m", "before", False), ("m", "", None), ("other", "before", None), ("", "now", None)],
)
def test_no_process_survives_a_reboot(
    machine: str, boot: str, lived: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "this_host", lambda: "node|m|now|pid:[1]|time:[1]")
    assert lives(f"node|{machine}|{boot}|pid:[1]|time:[1]", 1, "1") is lived
