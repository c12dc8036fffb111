"""The arguments that the engine passes to a performer, for tests, and a performer that never waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from cuebook.kernel.effects import AskModel
from cuebook.kernel.outcomes import Failed, Reply
from cuebook.kernel.ports import Call
from cuebook.kernel.run import Settings
from cuebook.performers.models import ModelPerformer, Prices, ProviderConfig, Providers, Retries, Timeouts
from cuebook.performers.models.model import REPLY_LIMIT


class Observer:
    """Replaces the engine: receives text, resets and warnings."""

    def __init__(self, *, until: Callable[[str], bool] | None = None) -> None:
        self.shown = ""
        self.pieces: list[str] = []
        self.began = asyncio.Event()
        self.resets = 0
        self.warnings: list[tuple[str, str]] = []
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self._until = until

    def emit(self, text: str) -> bool:
        self.shown += text
        self.began.set()
        self.pieces.append(text)
        return self._until is None or not self._until(self.shown)

    def reset(self) -> None:
        self.shown = ""
        self.resets += 1

    def call(self, **settings: Any) -> Call:
        return Call(
            run="r1",
            key="k1",
            attempt=1,
            settings=Settings(**settings),
            emit=self.emit,
            reset=self.reset,
            warn=lambda code, message: self.warnings.append((code, message)),
            note=lambda name, data: self.notes.append((name, data)),
        )


class Sleeper:
    """Records how long it was asked to sleep, and does not sleep."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


KEY = "sk-test-0123456789abcdefghij"


def providers_at(
    url: str,
    protocol: str = "openai",
    *,
    timeouts: Timeouts | None = None,
    reply_limit: int = REPLY_LIMIT,
    key: str | None = "TEST_KEY",
    **more: Any,
) -> Providers:
    path = "/v1" if protocol == "openai" else ""
    config = ProviderConfig(base_url=url + path, key=key, protocol=protocol, **more)  # type: ignore[arg-type]
    return Providers(
        lambda name: KEY if name == "TEST_KEY" else None,
        {"test": config},
        timeouts=timeouts or Timeouts(),
        reply_limit=reply_limit,
    )


async def ask(
    providers: Providers,
    effect: AskModel | str = "Hello?",
    *,
    observer: Observer | None = None,
    sleeper: Sleeper | None = None,
    prices: Prices | None = None,
    retries: Retries | None = None,
    model: str = "test/gpt-test",
) -> Reply | Failed:
    performer = ModelPerformer(
        providers,
        prices=prices,
        retries=retries or Retries(),
        sleep=sleeper or Sleeper(),
        draw=lambda: 1.0,
    )
    asked = AskModel(prompt=effect) if isinstance(effect, str) else effect
    return await performer.perform(asked, (observer or Observer()).call(model=model))


async def reply_of(*args: Any, **kwargs: Any) -> Reply:
    outcome = await ask(*args, **kwargs)
    assert isinstance(outcome, Reply), outcome
    return outcome


async def failure_of(*args: Any, **kwargs: Any) -> Failed:
    outcome = await ask(*args, **kwargs)
    assert isinstance(outcome, Failed), outcome
    return outcome
