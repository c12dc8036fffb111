"""The probes of a worker: what each path answers, and what a client that is not a probe can do."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from cuebook.kernel.errors import BadInput
from cuebook.surfaces import health


class Process:
    """A process that is ready until there is a reason."""

    reason = ""

    async def ready(self) -> str:
        return self.reason


async def asked(port: int, path: str, method: str = "GET") -> httpx2.Response:
    async with httpx2.AsyncClient(trust_env=False, timeout=20) as client:
        return await client.request(method, f"http://127.0.0.1:{port}{path}")


async def test_a_process_is_healthy_and_ready_until_there_is_a_reason() -> None:
    process = Process()
    async with health.serve_health("127.0.0.1", 0, process.ready) as port:
        for path in ("/healthz", "/readyz", "/readyz?verbose"):
            answer = await asked(port, path)
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        process.reason = "This process is shutting down."
        assert (await asked(port, "/healthz")).status_code == 200
        answer = await asked(port, "/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "unavailable", "reason": process.reason})
        head = await asked(port, "/readyz", "HEAD")
        assert (head.status_code, head.content) == (503, b"")


async def test_it_answers_nothing_else() -> None:
    async with health.serve_health("127.0.0.1", 0, Process().ready) as port:
        assert (await asked(port, "/")).status_code == 404
        wrong = await asked(port, "/healthz", "POST")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD")


async def test_clients_that_are_not_probes_do_not_keep_it_from_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_MOST", 3)
    async with health.serve_health("127.0.0.1", 0, Process().ready) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * 100_000)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        writer.close()
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        late_reader, late = await asyncio.open_connection("127.0.0.1", port)
        assert await late_reader.read() == b""  # one too many
        for _, writer in (*silent, ("", late)):
            writer.close()
        async with asyncio.timeout(20):
            while (await _status(port)) != 200:
                await asyncio.sleep(0.01)


async def _status(port: int) -> int:
    try:
        return (await asked(port, "/healthz")).status_code
    except httpx2.TransportError:
        return 0


async def test_closing_does_not_wait_for_open_connections() -> None:
    async with health.serve_health("127.0.0.1", 0, Process().ready) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz")
        await asyncio.sleep(0.01)
    assert await reader.read() == b""
    writer.close()


async def test_an_address_in_use_is_reported() -> None:
    async with health.serve_health("127.0.0.1", 0, Process().ready) as port:
        with pytest.raises(BadInput, match=rf"Cannot listen on 127\.0\.0\.1:{port}"):
            async with health.serve_health("127.0.0.1", port, Process().ready):
                pass


def test_addresses_have_a_host_and_a_port() -> None:
    assert health.address_of("0.0.0.0:8766") == ("0.0.0.0", 8766)
    assert health.address_of("[::1]:0") == ("::1", 0)
    for text in ("", "8766", ":8766", "localhost", "localhost:", "host:99999", "a@host:1", "host:1/x", "::1:80:x"):
        with pytest.raises(BadInput, match="HOST:PORT"):
            health.address_of(text)
