"""A command that gets each message as JSON on its standard input. No shell is involved."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cuebook.config.notifications import ChannelSettings
from cuebook.service.notifications.channels.channel import Recipient, Undelivered
from cuebook.service.notifications.message import Message

_PASSED = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "USER")
"""The environment variables that a command gets: others may be secrets."""


class Command:
    """Starts the configured program for each message. Its exit code says whether that was delivered."""

    def __init__(self, settings: ChannelSettings, environ: Mapping[str, str]) -> None:
        self.settings = settings
        self._environ = {name: environ[name] for name in _PASSED if name in environ}

    async def send(self, message: Message, now: float, to: Recipient | None) -> dict[str, Any]:
        argv, seconds = self.settings.command, self.settings.seconds
        environ = {**self._environ, "CUEBOOK_MESSAGE_ID": message.id}
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environ,
                start_new_session=True,
            )
        except OSError as error:
            raise Undelivered(f"The program {argv[0]} cannot be started: {error.strerror}.") from None
        try:
            async with asyncio.timeout(seconds):
                await process.communicate(f"{json.dumps(message.plain(), ensure_ascii=False)}\n".encode())
        except TimeoutError:
            raise Undelivered(f"{argv[0]} took longer than {seconds:g} s, so it was ended.") from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # also what it left running
            await process.wait()
        if process.returncode != 0:
            code = process.returncode or 0
            how = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
            raise Undelivered(f"{argv[0]} {how}.")
        return {}
