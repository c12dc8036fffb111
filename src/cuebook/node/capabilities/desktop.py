"""The capability `desktop`: shows a notice to the person at this machine, with the program that its system has for that."""

from __future__ import annotations

import asyncio
import html
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cuebook.node.capabilities.capability import Action, Capability, Failure, Result, Work

_SECONDS = 15.0
_TEXT = {"type": "string", "minLength": 1, "maxLength": 2000}
SCHEMA = {
    "type": "object",
    "properties": {"title": _TEXT, "text": _TEXT},
    "required": ["title", "text"],
    "additionalProperties": False,
}

_APPLESCRIPT = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")
_POWERSHELL = """
Add-Type -AssemblyName System.Windows.Forms
$icon = New-Object System.Windows.Forms.NotifyIcon
$icon.Icon = [System.Drawing.SystemIcons]::Information
$icon.Visible = $true
$icon.ShowBalloonTip(10000, $env:CUEBOOK_TITLE, $env:CUEBOOK_TEXT, 'Info')
Start-Sleep -Seconds 5
$icon.Dispose()
"""


class Notice(msgspec.Struct, frozen=True):
    argv: tuple[str, ...]
    env: dict[str, str] = {}


def _notify_send(program: str, title: str, text: str) -> Notice:
    # The text may contain markup, which it must not.
    return Notice((program, "--app-name=Cuebook", "--", title, html.escape(text, quote=False)))


def _osascript(program: str, title: str, text: str) -> Notice:
    lines = tuple(word for line in _APPLESCRIPT for word in ("-e", line))
    return Notice((program, *lines, title, text))


def _powershell(program: str, title: str, text: str) -> Notice:
    # WSLENV passes the variables on from Linux to Windows. The texts are never part of the script.
    passed = {"CUEBOOK_TITLE": title, "CUEBOOK_TEXT": text, "WSLENV": "CUEBOOK_TITLE:CUEBOOK_TEXT"}
    return Notice((program, "-NoProfile", "-NonInteractive", "-Command", _POWERSHELL), passed)


PROGRAMS: Mapping[str, Callable[[str, str, str], Notice]] = {
    "notify-send": _notify_send,
    "osascript": _osascript,
    "powershell.exe": _powershell,
}
"""The programs that show notices, the preferred ones first."""


def capability() -> Capability | None:
    """None where there is no program for it."""
    found = next(((path, make) for name, make in PROGRAMS.items() if (path := shutil.which(name))), None)
    if found is None:
        return None
    program, make = found

    async def notify(arguments: dict[str, Any], work: Work) -> Result:
        await _show(make(program, arguments["title"], arguments["text"]))
        return Result()

    about = "Shows a notice to the person at this machine"
    return Capability("desktop", (Action("notify", about, notify, SCHEMA, idempotent=True),))


async def _show(notice: Notice) -> None:
    process = await asyncio.create_subprocess_exec(
        *notice.argv,
        env={**os.environ, **notice.env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            _, said = await process.communicate()
    except TimeoutError:
        raise Failure("timeout", f"The notice was not shown within {_SECONDS:g} s.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        why = said.decode("utf-8", "replace").strip()[:500]
        raise Failure("not_shown", f"{os.path.basename(notice.argv[0])} failed: {why or process.returncode}.")
