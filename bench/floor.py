"""The floor under every durable step on SQLite: one small row, one commit, one wait for the disk. No engine at all.

With `synchronous` as `NORMAL`, a commit does not wait for the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import tempfile
import time
from pathlib import Path

BODY = b"x" * 200


def raw_commits(path: str | os.PathLike[str], steps: int, synchronous: str = "FULL") -> float:
    """Seconds for `steps` rows of about 200 bytes, each in its own transaction, in a new file at `path`."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {synchronous}")
        database.execute(
            "CREATE TABLE step (run INTEGER, seq INTEGER, body BLOB, PRIMARY KEY (run, seq)) WITHOUT ROWID"
        )
        started = time.perf_counter()
        for seq in range(steps):
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO step VALUES (1, ?, ?)", (seq, BODY))
            database.execute("COMMIT")
        return time.perf_counter() - started
    finally:
        database.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--synchronous", choices=("FULL", "NORMAL"), default="FULL")
    chosen = options.parse_args()
    steps: int = chosen.steps
    with tempfile.TemporaryDirectory() as folder:
        seconds = raw_commits(Path(folder, "floor.db"), steps, chosen.synchronous)
    print(json.dumps({"steps": steps, "seconds": seconds, "ms_per_step": seconds / steps * 1000}))


if __name__ == "__main__":
    main()
