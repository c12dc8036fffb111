"""Hosts that refer to this machine."""

from __future__ import annotations

import pytest

from cuebook.system.network import is_loopback, system_tls

HERE = [
    "localhost", "LOCALHOST", "api.localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]", "::ffff:127.0.0.1",
    "[::ffff:127.0.0.1]",
]  # fmt: skip
ELSEWHERE = [
    "", "0.0.0.0", "::", "192.168.1.1", "example.com", "127.example.com", "127.0.0.1.example.com", "localhost.example.com",
    "notlocalhost", "2130706433", "0x7f.1", "::ffff:192.168.1.1",
]  # fmt: skip


@pytest.mark.parametrize("host", HERE)
def test_a_host_that_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_a_host_that_is_not_or_may_not_be(host: str) -> None:
    assert not is_loopback(host)


def test_the_certificates_are_read_once() -> None:
    assert system_tls() is system_tls()
