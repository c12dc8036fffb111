"""A new process whose first HTTP or model requests arrive while the library is still being imported."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import msgspec

from cuebook.kernel.effects import SendHttp
from cuebook.kernel.outcomes import HttpResponse, Reply
from cuebook.kernel.ports import Limits
from cuebook.performers.http.performer import HttpPerformer
from tests.performers.models.calls import Observer, ask, providers_at
from tests.performers.models.provider_server import ProviderServer, anthropic_reply, openai_reply

TIMES = 12


async def _staggered(one: Callable[[], Awaitable[object]]) -> list[object]:
    async def later(number: int) -> object:
        await asyncio.sleep(number * 0.008)
        return await one()

    return await asyncio.gather(*(later(number) for number in range(TIMES)))


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    await writer.drain()
    writer.close()


async def _http() -> list[object]:
    performer = HttpPerformer(private=lambda host, port: True)
    call = msgspec.structs.replace(Observer().call(), permits=lambda action: None, limits=Limits(seconds=20.0))
    async with await asyncio.start_server(_answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        request = SendHttp("GET", f"http://{host}:{port}/", reads_only=True)
        return await _staggered(lambda: performer.perform(request, call))


async def _models(protocol: str) -> list[object]:
    reply = openai_reply("ok") if protocol == "openai" else anthropic_reply("ok")
    async with ProviderServer(*[reply] * TIMES) as server:
        providers = providers_at(server.url, protocol)
        return await _staggered(lambda: ask(providers))


async def _everything() -> list[object]:
    parts = await asyncio.gather(_http(), _models("openai"), _models("anthropic"))
    return [outcome for part in parts for outcome in part]


WAYS = {
    "http": _http,
    "openai": lambda: _models("openai"),
    "anthropic": lambda: _models("anthropic"),
    "together": _everything,
}

if __name__ == "__main__":
    assert not {"httpcore2", "httpx2"} & set(sys.modules), "the import must be the first one"
    outcomes = asyncio.run(WAYS[sys.argv[1]]())
    bad = [outcome for outcome in outcomes if not isinstance(outcome, HttpResponse | Reply)]
    print(f"{len(outcomes)} outcomes, {len(bad)} failed: {bad[:1]}")
    sys.exit(bool(bad))
