"""The connection to Temporal when something else listens at its address, or when it does not answer."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from temporalio.service import RPCError, RPCStatusCode

from cuebook.service.dispatch.dispatcher import Unreachable
from cuebook.service.dispatch.temporal import connection
from cuebook.service.dispatch.temporal.connection import Connection, Server, unreachable
from tests.support.command_line import CommandLine, finished
from tests.support.runtime import GATED
from tests.support.sampling import many

AT_ONCE = 6


@contextmanager
def listening(answer: bytes) -> Iterator[str]:
    """The address of a listener that answers everything with these bytes; with none, it accepts and is silent."""
    accepted: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                one, _ = listener.accept()
                accepted.append(one)
                if answer:
                    one.recv(100)
                    one.sendall(answer)
                    one.close()
            except ConnectionError:
                continue
            except OSError:  # the test is over
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in accepted:
                one.close()


@pytest.mark.parametrize("words", [("run", "gated.yml"), ("worker",)], ids=" ".join)
def test_a_command_that_meets_another_server_ends_with_its_line_and_never_crashes(
    cli: CommandLine, words: tuple[str, ...]
) -> None:
    cli.environ |= {"CUEBOOK_STORE": "postgresql://x@127.0.0.1:1/x", "TEAM_KEY": "k" * 64}
    cli.environ["CUEBOOK_SIGNING_KEY"] = "env:TEAM_KEY"
    cli.write("gated.yml", GATED)
    with listening(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as address:
        cli.environ["CUEBOOK_TEMPORAL_ADDRESS"] = address
        for _ in range(many(1, 10)):
            for ran in [finished(one) for one in [cli.begin(*words) for _ in range(AT_ONCE // 2)]]:
                assert ran.code == 2, ran.err
                assert ran.err.count("\n") == 1
                assert f"Temporal at {address} cannot be reached: it does not answer as Temporal does." in ran.err


async def test_a_silent_server_is_given_up_soon_and_all_callers_share_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "PATIENCE", timedelta(seconds=0.3))
    with listening(b"") as address:
        one = Connection(Server(address))
        async with asyncio.timeout(10):  # the SDK alone gives up after 30 seconds
            failed = await asyncio.gather(*(one.client() for _ in range(40)), return_exceptions=True)
            assert {type(error) for error in failed} == {Unreachable}
            assert f"{address} cannot be reached: it does not answer." in str(failed[0])
            waiting = asyncio.create_task(one.client())
            await asyncio.sleep(0)
            await one.close()
            with pytest.raises(Unreachable):
                await waiting


@pytest.mark.parametrize("status", [RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED])
def test_a_request_that_timed_out_says_so(status: RPCStatusCode) -> None:
    assert "it does not answer" in str(unreachable(Server("x:1"), RPCError("Timeout expired", status, b"")))
