"""Peers measured alongside Cuebook, each in its own environment with pinned versions.

`ensure_env(peer)` creates the environment, `measure(peer, steps, runs)` runs the peer's script in it. Once the environment
exists, nothing is sent from the machine: the peers' tracing and cloud features are switched off.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENTS = ROOT / "bench/.envs"
PEERS = ("langgraph", "dbos")
PARSER = "playbook-md"
"""The peer that only parses playbooks, without running them."""

QUIET = {
    "LANGSMITH_TRACING": "false",
    "LANGSMITH_TRACING_V2": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "OTEL_SDK_DISABLED": "true",
    "DO_NOT_TRACK": "1",
}
# With a key in the environment a peer could report to its maker's service.
DROPPED = ("LANGSMITH_", "LANGCHAIN_", "DBOS_", "OTEL_")


class PeerFailed(Exception):
    """A peer could not be set up or measured; the message includes the end of its output, if there is any."""


def ensure_env(peer: str) -> Path:
    """The Python executable of the peer's environment, which is created on first use from requirements/bench-PEER.txt."""
    if peer not in (*PEERS, PARSER):
        raise PeerFailed(f"Unknown peer {peer!r}. The peers are {', '.join((*PEERS, PARSER))}.")
    environment = ENVIRONMENTS / peer
    requirements = ROOT / f"requirements/bench-{peer}.txt"
    command = [sys.executable, str(ROOT / "scripts/environment.py"), str(environment), str(requirements)]
    if subprocess.run(command, check=False, timeout=600).returncode:
        raise PeerFailed(f"The environment for {peer} could not be created; see above.")
    return environment / "bin/python"


def measure(
    peer: str, steps: int, runs: int = 1, *, timeout: float = 180, folder: Path | None = None, url: str = ""
) -> dict[str, Any]:
    """Seconds for `runs` concurrent runs of `steps` steps each, as the peer's script reports them.

    The database is at `url`, or in a new directory below `folder`, which should be on the same disk as for the
    other candidates.
    """
    python = ensure_env(peer)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)} | QUIET
    with tempfile.TemporaryDirectory(dir=folder) as place:
        command = [str(python), "-m", f"bench.peers.{peer}_steps", "--json"]
        command += ["--steps", str(steps), "--runs", str(runs), "--db", url or str(Path(place, "steps.db"))]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"{peer} took longer than {timeout:.0f} s for {runs} x {steps} steps.") from None
    if done.returncode:
        raise PeerFailed(f"{peer} failed for {runs} x {steps} steps:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
