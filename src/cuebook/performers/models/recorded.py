"""A model whose replies are recorded once and then replayed from a file of JSON lines (a cassette).

A request is identified by its digest. Requests contain no keys, and sensitive values are masked in both the request and
the reply before anything is written.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec

from cuebook.kernel.errors import BadInput
from cuebook.performers.models.model import Chunk, Final, Model, Request, TextDelta, masked

Mode = Literal["auto", "record", "replay"]


class NotRecorded(BadInput):
    """The cassette contains no reply to this request."""

    code = "not_recorded"


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One recorded call. The request is stored only for readers of the file; its digest is what counts."""

    digest: str
    request: dict[str, Any]
    chunks: list[Chunk]
    v: int = 1


class RecordedModel:
    """Wraps a model and records its replies, or replays recorded ones.

    - `replay` never calls the model, which may be omitted; a request that is not on the cassette raises `NotRecorded`.
    - `record` calls the model every time and writes a new cassette.
    - `auto` replays recorded requests and records new ones; without a model it is the same as `replay`.

    The replies to a request that was recorded several times are replayed in order; the last one is then repeated. A
    failed call is not recorded: a wrong key or a busy server is not a model's reply. `strip` lists values to mask,
    such as names or addresses; keys are also masked by their shape. With `keep_stopped`, the beginning of a reply that
    was stopped is recorded, because a watch stops it at the same place each time.
    """

    def __init__(
        self,
        path: Path | str,
        model: Model | None = None,
        *,
        mode: Mode = "auto",
        strip: Sequence[str] = (),
        keep_stopped: bool = False,
    ) -> None:
        if mode == "record" and model is None:
            raise BadInput("A cassette cannot be recorded without a model.", fix="Pass the model to record.")
        self.path = Path(path)
        self._model = None if mode == "replay" else model
        self._strip = tuple(strip)
        self._keep_stopped = keep_stopped
        self._played: dict[str, int] = {}
        self._lines: dict[str, list[Line]] = {}
        if mode == "record":
            self.path.unlink(missing_ok=True)
        else:
            self._load()

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        digest = self.digest(request)
        line = self._next(digest)
        if line is not None:
            for chunk in line.chunks:
                yield chunk
            return
        if self._model is None:
            raise self._missing(request, digest)
        async with aclosing(self._recorded(self._model, request, digest)) as chunks:
            async for chunk in chunks:
                yield chunk

    def digest(self, request: Request) -> str:
        plain = self._clean(msgspec.to_builtins(request))
        return sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()

    async def _recorded(self, model: Model, request: Request, digest: str) -> AsyncGenerator[Chunk, None]:
        """Passes on the chunks as they arrive. A failed call is not recorded."""
        chunks: list[Chunk] = []
        asked = self._clean(msgspec.to_builtins(request))
        async with aclosing(model.stream(request)) as stream:
            async for chunk in stream:
                chunks.append(chunk)
                if isinstance(chunk, Final):  # the consumer may not request more
                    self._keep(Line(digest, asked, self._clean_chunks(chunks)))
                try:
                    yield chunk
                except GeneratorExit:
                    if self._keep_stopped and not isinstance(chunk, Final):
                        self._keep(Line(digest, asked, self._clean_chunks([*chunks, Final()])))
                    raise

    def _next(self, digest: str) -> Line | None:
        lines = self._lines.get(digest)
        if not lines:
            return None
        turn = self._played.get(digest, 0)
        self._played[digest] = turn + 1
        return lines[min(turn, len(lines) - 1)]

    def _load(self) -> None:
        if not self.path.exists():
            return
        decoder = msgspec.json.Decoder(Line)
        for number, raw in enumerate(self.path.read_bytes().splitlines(), 1):
            if not raw.strip():
                continue
            try:
                line = decoder.decode(raw)
            except msgspec.MsgspecError as error:
                raise BadInput(
                    f"{self.path}:{number} is not a valid cassette line: {error}.",
                    fix="Remove the line, or delete the file and record it again.",
                ) from None
            if line.chunks and isinstance(line.chunks[-1], Final):  # earlier versions also recorded failures
                self._lines.setdefault(line.digest, []).append(line)

    def _keep(self, line: Line) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return masked(value, self._strip)
        if isinstance(value, dict):
            return {self._clean(name): self._clean(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [self._clean(part) for part in value]
        return value

    def _clean_chunks(self, chunks: list[Chunk]) -> list[Chunk]:
        """A value may span two chunks, so the whole text is searched."""
        kept: list[Chunk] = [c for c in chunks if isinstance(c, Final) or c.text]
        whole = "".join(c.text for c in kept if isinstance(c, TextDelta))
        clean: list[Chunk]
        if masked(whole, self._strip) == whole:
            clean = kept
        else:
            ends = [c for c in kept if isinstance(c, Final)]
            clean = [TextDelta(masked(whole, self._strip)), *ends]
        return [msgspec.convert(self._clean(msgspec.to_builtins(c)), TextDelta | Final) for c in clean]

    def _missing(self, request: Request, digest: str) -> NotRecorded:
        last = self._clean(request.messages[-1].text) if request.messages else ""
        shown = last if len(last) <= 80 else last[:80] + "…"
        return NotRecorded(
            f"{self.path} contains no reply of {request.model} to {shown!r} (request {digest[:12]}).",
            fix="Record it: run once with the real model, passing it and mode='auto' to RecordedModel.",
        )
