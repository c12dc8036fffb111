"""How long a token takes from the model to a reader of the live page, and how much memory a hundred open pages need.

    python -m bench.web [--tokens 400] [--every 0.02] [--streams 100]

Each token is the time at which it left the model, so that its reader can compute how long it took. The server and its model
run in a separate process. The same tokens are sent over a bare socket in the same run, to show how much of the delay is not due to
the web app. Text is sent at most once per interval (`TEXT_EVERY` in `cuebook.service.stream`), which accounts for most of it,
except for the first token after a pause, which is sent at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "a-token-for-the-benchmark-of-the-web-app"
BOOK = "# Bench\n\n## STEP 1: Talk\n\nTalk.\n"
MOMENT = re.compile(r"(\d{10,}) ")
WANTED_FIRST_MS, WANTED_MS, WANTED_MB = 20.0, 50.0, 150.0


# --- the server, in a separate process ---


class Talking:
    """A model whose tokens are the times at which it sends them. It starts on a signal."""

    def __init__(self, tokens: int, every: float) -> None:
        self._tokens, self._every = tokens, every
        self.go = asyncio.Event()

    async def stream(self, request: Any) -> AsyncGenerator[Any, None]:
        from cuebook.performers.models.model import Final, TextDelta, Tokens

        await self.go.wait()
        for _ in range(self._tokens):
            await asyncio.sleep(self._every)
            yield TextDelta(f"{time.monotonic_ns()} ")
        yield Final(tokens=Tokens(1, self._tokens), model="talking")


async def serve(folder: Path, tokens: int, every: float) -> None:
    from cuebook.config import load
    from cuebook.surfaces.web.app import make_site
    from cuebook.surfaces.web.server import bound, make_server
    from cuebook.wiring.wiring import Wiring

    (folder / "books").mkdir()
    (folder / "books" / "bench.md").write_text(BOOK)
    model = Talking(tokens, every)
    config = load({"store": str(folder / "runs.db"), "model": "bench/talking"}, folder=folder)
    wiring = Wiring(config, models={"bench": model})
    service = wiring.service()
    site = make_site(wiring, service, folders=[folder / "books"], serve_token=TOKEN)
    listening, bare = bound("127.0.0.1", 0), bound("127.0.0.1", 0)
    server = make_server(site, "127.0.0.1", listening.getsockname()[1])
    serving = asyncio.create_task(server.serve(sockets=[listening]))

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        for _ in range(tokens):
            await asyncio.sleep(every)
            writer.write(f"{time.monotonic_ns()} \n".encode())
            await writer.drain()
        writer.close()

    echoing = await asyncio.start_server(echo, sock=bare)
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    print(json.dumps([listening.getsockname()[1], bare.getsockname()[1]]), flush=True)
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := (await commands.readline()).strip():
        if line == b"go":
            model.go.set()
        print(json.dumps(_memory()), flush=True)
    echoing.close()
    server.stop()
    await serving
    await service.close()


def _memory() -> float:
    """The current memory of the process in megabytes."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


# --- the readers ---


async def delays(reader: asyncio.StreamReader) -> list[float]:
    """Milliseconds that each token took, until the connection closes."""
    found: list[float] = []
    name = b"step-content"
    while line := await reader.readline():
        now = time.monotonic_ns()
        if line.startswith(b"event: "):
            name = line[len(b"event: ") :].strip()
        elif name == b"step-content" and not line.startswith(b"id:"):
            found += [(now - int(moment)) / 1e6 for moment in MOMENT.findall(line.decode())]
    return found


async def opened(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    request = (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
    )
    writer.write(request.encode())
    return reader, writer


async def started(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"playbook": "bench"})
    writer.write(
        f"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    answer = (await reader.read()).decode()
    writer.close()
    return str(json.loads(answer.partition("\r\n\r\n")[2])["run"])


def share(found: list[float], part: float) -> float:
    return sorted(found)[min(len(found) - 1, int(len(found) * part))]


async def measure(tokens: int, every: float, streams: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.web", "--serve", folder, "--tokens", str(tokens), "--every", str(every)]
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe)
        assert child.stdin is not None
        assert child.stdout is not None
        commands, answers = child.stdin, child.stdout

        async def ask(word: str) -> float:
            commands.write(f"{word}\n".encode())
            return float(await answers.readline())

        port, bare = json.loads(await answers.readline())
        run = await started(port)
        before = await ask("memory")
        readers = [await opened(port, f"/api/runs/{run}/stream") for _ in range(streams)]
        await asyncio.sleep(1.0)
        with_streams = await ask("memory")
        for _, writer in readers[1:]:
            writer.close()
        echoed, echo_writer = await asyncio.open_connection("127.0.0.1", bare)
        echo_writer.write(b"go\n")
        await ask("go")
        told, raw = await asyncio.gather(delays(readers[0][0]), delays(echoed))
        commands.close()
        await child.wait()
    return {
        "tokens": len(told),
        "first_ms": told[0],
        "p50_ms": share(told, 0.5),
        "p99_ms": share(told, 0.99),
        "raw_p50_ms": share(raw, 0.5),
        "raw_p99_ms": share(raw, 0.99),
        "memory_mb": before,
        "memory_with_streams_mb": with_streams,
        "streams": streams,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--tokens", type=int, default=400)
    options.add_argument("--every", type=float, default=0.02, help="seconds between two tokens")
    options.add_argument("--streams", type=int, default=100)
    options.add_argument("--json", action="store_true")
    options.add_argument("--serve", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve:
        asyncio.run(serve(Path(given.serve), given.tokens, given.every))
        return
    found = asyncio.run(measure(given.tokens, given.every, given.streams))
    if given.json:
        print(json.dumps(found))
        return
    print(f"first token       {found['first_ms']:7.2f} ms   target < {WANTED_FIRST_MS:.0f} ms")
    print(
        f"model to reader   p50 {found['p50_ms']:7.2f} ms   p99 {found['p99_ms']:7.2f} ms   target < {WANTED_MS:.0f} ms"
    )
    print(f"bare socket       p50 {found['raw_p50_ms']:7.2f} ms   p99 {found['raw_p99_ms']:7.2f} ms")
    print(
        f"memory            {found['memory_mb']:.0f} MB, with {found['streams']:.0f} open streams {found['memory_with_streams_mb']:.0f} MB   target < {WANTED_MB:.0f} MB"
    )


if __name__ == "__main__":
    main()
