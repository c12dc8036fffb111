"""A proxy between a browser and the server that cuts the stream of a run at given places."""

from __future__ import annotations

import asyncio

_END = b"\n\n\r\n"
"""An event is one chunk: the empty line that ends it, and the end of the chunk."""


class CuttingProxy:
    """Passes everything on. A stream is cut after each `every` events, within the one that follows if `within` is set.

    Readers reconnect at once, so that many cuts take little time.
    """

    def __init__(self, port: int, *, every: int, within: bool = False) -> None:
        self._port = port
        self._every = every
        self._within = within
        self._server: asyncio.Server | None = None
        self._work: set[asyncio.Task[None]] = set()
        self.cuts = 0

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def open(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._met, "127.0.0.1", 0)
        return self

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await self._server.wait_closed()

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._work.add(task)
        there, onward = await asyncio.open_connection("127.0.0.1", self._port)
        streams = asyncio.Event()
        ways = [asyncio.create_task(self._asked(reader, onward, streams))]
        ways.append(asyncio.create_task(self._answered(there, writer, streams)))
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for one in (writer, onward):
                one.transport.abort()
            self._work.discard(task)

    async def _asked(self, reader: asyncio.StreamReader, onward: asyncio.StreamWriter, streams: asyncio.Event) -> None:
        """The server is asked by its own name, whatever name the browser knows."""
        ours, theirs = (f"127.0.0.1:{port}".encode() for port in (self.port, self._port))
        while data := await reader.read(65536):
            if data.startswith(b"GET ") and b"/stream" in data.partition(b"\r\n")[0]:
                streams.set()
            onward.write(data.replace(ours, theirs))
            await onward.drain()

    async def _answered(
        self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, streams: asyncio.Event
    ) -> None:
        kept, seen = b"", 0
        while data := await there.read(65536):
            if not streams.is_set():
                writer.write(data)
                await writer.drain()
                continue
            kept += data
            while _END in kept:
                chunk, _, kept = kept.partition(_END)
                is_event = b"\nevent: " in chunk
                if is_event and seen == self._every:  # only what is cut within an event comes here
                    writer.write(chunk[: len(chunk) // 2])
                else:
                    # The length of the chunk stays: a shorter time is filled up with spaces that mean nothing.
                    writer.write(chunk.replace(b"retry: 1000", b"retry: 0010") + _END)
                    seen += is_event
                    if seen < self._every or self._within:
                        await writer.drain()
                        continue
                await writer.drain()
                self.cuts += 1
                return
        writer.write(kept)
        await writer.drain()
