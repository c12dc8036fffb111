"""Whether a driver's process is dead is said only where it is certain."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cuebook.processes import birth_of, surely_dead, this_host

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process numbers and births as on Linux")


@pytest.fixture
def ended() -> tuple[int, str]:
    """The number and birth of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    born = birth_of(process.pid)
    process.communicate(b"\n")
    return process.pid, born


def test_this_process_is_alive() -> None:
    assert birth_of(os.getpid())
    assert not surely_dead(this_host(), os.getpid(), birth_of(os.getpid()))


def test_a_process_that_ended_is_dead(ended: tuple[int, str]) -> None:
    assert surely_dead(this_host(), *ended)


def test_a_later_process_with_its_number_is_another_one() -> None:
    assert surely_dead(this_host(), os.getpid(), "12345")
    assert not surely_dead(this_host(), os.getpid(), ""), "where births cannot be told, the lease decides"


def test_nothing_is_said_of_another_host(ended: tuple[int, str]) -> None:
    assert not surely_dead("elsewhere", *ended)


def test_somebody_elses_process_may_be_alive() -> None:
    assert not surely_dead(this_host(), 1, birth_of(1))


def test_a_process_that_ended_and_was_not_waited_for_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    born = birth_of(process.pid)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert surely_dead(this_host(), process.pid, born)
    process.wait()
