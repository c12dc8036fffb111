"""A network of its own for a process, connected to this machine by a cable that can be pulled. Needs root and `ip`."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from functools import cache


@cache
def problem() -> str:
    """Why namespaces cannot be used here; empty if they can."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None:
        return "needs root and the command `ip`"
    try:
        Namespace().close()
    except subprocess.CalledProcessError as error:
        return str(error.stderr)
    return ""


class Namespace:
    """A namespace whose only other machine is this one, at `here`."""

    def __init__(self) -> None:
        self._name = f"cue{secrets.token_hex(3)}"
        number = secrets.randbelow(63) * 4
        subnet = f"198.18.{secrets.randbelow(256)}"  # reserved for tests
        self.here, there = f"{subnet}.{number + 1}", f"{subnet}.{number + 2}"
        self.argv = ["ip", "netns", "exec", self._name]
        """Put it before a command to run that in the namespace."""
        _ip("netns", "add", self._name)
        try:
            _ip("link", "add", self._name, "type", "veth", "peer", "name", "eth0", "netns", self._name)
            _ip("address", "add", f"{self.here}/30", "dev", self._name)
            _ip("-n", self._name, "address", "add", f"{there}/30", "dev", "eth0")
            _ip("-n", self._name, "link", "set", "lo", "up")
            _ip("-n", self._name, "link", "set", "eth0", "up")
            self.heal()
        except BaseException:
            self.close()
            raise

    def cut(self) -> None:
        """Pulls the cable: nothing arrives, and no one is informed."""
        _ip("link", "set", self._name, "down")

    def heal(self) -> None:
        _ip("link", "set", self._name, "up")

    def close(self) -> None:
        _ip("netns", "delete", self._name)  # and the cable with it


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
