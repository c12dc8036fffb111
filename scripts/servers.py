"""Starts a Postgres and a Temporal server on this machine, to try several workers. Both end with this program.

    python scripts/servers.py FOLDER

`. FOLDER/env` makes a shell use them. The servers come from the development environment and are made for trials: they listen on
loopback only, Postgres trusts every local user, and their data is removed at the end.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support import postgres, temporal  # noqa: E402


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    database = postgres.Server(fsync="on")
    engine = temporal.Server()
    try:
        settings = {
            "CUEBOOK_STORE": database.url("cuebook"),
            "CUEBOOK_TRIAL_KEY": secrets.token_hex(32),
            "CUEBOOK_SIGNING_KEY": "env:CUEBOOK_TRIAL_KEY",
            "CUEBOOK_TEMPORAL_ADDRESS": engine.address,
        }
        lines = [f"export {name}='{value}'\n" for name, value in settings.items()]
        with open(folder / "env", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.writelines(lines)
        print(f"Postgres listens on 127.0.0.1:{database.port}, Temporal on {engine.address}.")
        print(f"In other terminals: . {os.path.relpath(folder)}/env")
        print("Press Ctrl-C to stop both and remove their data.", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        engine.close()
        database.close()
        (folder / "env").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
