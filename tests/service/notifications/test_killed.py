"""A process that is killed in the middle of sending loses no message, and a receiver can tell the repetition."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.service.notifications.notified import Notified, webhook
from tests.support.command_line import SRC
from tests.support.programs import begin
from tests.support.shared_stores import SharedStore
from tests.support.web_service import Received, web_service

ROOT = SRC.parent


def started(folder: Path, url: str, now: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.service.notifications.notifying_process", str(folder), url, str(now)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(SRC), str(ROOT)))},
    )


async def test_a_message_survives_the_death_of_the_process_that_sends_it(
    shared_store: SharedStore, tmp_path: Path
) -> None:
    arrived, released = threading.Event(), threading.Event()

    def answer(received: Received) -> tuple[int, Any]:
        first = not arrived.is_set()
        arrived.set()
        if first:  # the process dies before it gets an answer
            assert released.wait(60)
        return 200, {}

    with web_service(answer) as receiver:
        url = f"http://{receiver.place}/hook"
        notified = Notified(shared_store, tmp_path, webhook(url))
        await begin(notified.service._engine, "counting", "abc")
        await notified.say("failed", run="abc")
        process = started(tmp_path, url, notified.now)
        try:
            assert await asyncio.to_thread(arrived.wait, 60)
        finally:
            process.kill()
            process.wait()
            released.set()
        await notified.look(notified.now + 1)
        assert len(receiver.requests) == 1  # another process still counts as sending it
        await notified.look(notified.now + 60)
        first, again = receiver.requests
    assert first.headers["webhook-id"] == again.headers["webhook-id"]
    assert first.body == again.body
    assert await notified.states() == ["sent"]
