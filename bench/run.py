"""Runs every benchmark and prints a table; with `--json`, one JSON object as the last line.

All candidates in a comparison are measured in turn in the same run, and the median of the rounds counts, so that changes in
the machine's speed affect them all equally. `--no-peers` leaves out the other engines and parsers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench.children import MOST as MOST_COMMITS
from bench.children import added
from bench.first_request import MOST_MODULES, MOST_SECONDS, first_request
from bench.floor import raw_commits
from bench.markdown import MOST, TEXTS, compared
from bench.peers import PARSER, PEERS, measure
from bench.postgres import available, served
from bench.postgres import raw_commits as raw_postgres
from tests.support.temporal import program

ROOT = Path(__file__).resolve().parent.parent
STEPS = {10: 3.0, 100: 1.3, 1000: 1.3}
"""Steps of one run alone, with the most that a step may cost, in raw commits."""
RUNS, RUN_STEPS = 500, 10
WAITING = 10_000
PARTS = (
    "starting",
    "gated",
    "markdown",
    "programs",
    "agents",
    "children",
    "loops",
    "alone",
    "together",
    "waiting",
    "postgres",
    "dispatch",
)
SHARED_RUNS = 200
LOADED_RUNS = 80
"""Four times as many as one worker drives at a time."""
SAMPLE = 1_500
"""How many of the waiting runs a worker brings to their question through Temporal."""


class Table:
    """Rows of (what, figure, target, met), printed at the end."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, figure: float, unit: str, target: str = "", met: bool | None = None) -> None:
        self.rows.append({"what": what, "figure": figure, "unit": unit, "target": target, "met": met})

    def show(self) -> None:
        width = max(len(row["what"]) for row in self.rows)
        for row in self.rows:
            verdict = {True: "met", False: "MISSED", None: ""}[row["met"]]
            figure = f"{row['figure']:,.2f} {row['unit']}"
            print(f"{row['what']:<{width}}  {figure:>18}  {row['target']:<28} {verdict}".rstrip())


def _ours(what: str, folder: Path, url: str = "", **options: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        command = [sys.executable, "-m", "bench.steps", what, "--db", url or str(Path(place, "store.db"))]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _floor(folder: Path, steps: int) -> float:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        return raw_commits(Path(place, "floor.db"), steps)


def _peers(folder: Path, steps: int, runs: int, wanted: bool) -> dict[str, float]:
    """Milliseconds per step for each peer, in its fastest configuration."""
    if not wanted:
        return {}
    return {peer: measure(peer, steps, runs, folder=folder)["ms_per_step"] for peer in PEERS}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def alone(table: Table, folder: Path, rounds: int, peers: bool) -> None:
    for steps, most in STEPS.items():
        _say(f"one run of {steps} steps ...")
        repeat = max(1, min(rounds, 3000 // steps))
        ours, floors, flat = [], [], []
        for _ in range(repeat):
            floors.append(_floor(folder, steps))
            result = _ours("one", folder, steps=steps)
            ours.append(result["seconds"])
            flat.append(result["late"] / result["early"])
        mine, floor = median(ours) / steps * 1000, median(floors) / steps * 1000
        table.add(f"SQLite floor, {steps} steps", floor, "ms/step")
        table.add(f"Cuebook, {steps} steps", mine, "ms/step", f"at most {most:g}x the floor", mine <= most * floor)
        if steps == max(STEPS):
            ratio = median(flat)
            table.add("Cuebook, last tenth against first", ratio, "x", "flat: at most 1.25x", ratio <= 1.25)
        known = _peers(folder, steps, 1, peers)
        for peer, figure in known.items():
            table.add(f"{peer}, {steps} steps", figure, "ms/step")
        if known:
            best = min(known.values())
            table.add(f"Cuebook against the best peer, {steps}", mine / best, "x", "at most 0.5x", mine <= best / 2)


def together(table: Table, folder: Path, rounds: int, peers: bool) -> None:
    _say(f"{RUNS} runs of {RUN_STEPS} steps together ...")
    rates, floors = [], []
    for _ in range(rounds):
        floors.append(1000 / _floor(folder, 1000))
        rates.append(RUNS * RUN_STEPS / _ours("together", folder, runs=RUNS, steps=RUN_STEPS)["seconds"])
    rate, floor = median(rates), median(floors)
    table.add("SQLite floor, one commit at a time", floor, "steps/s")
    table.add(f"Cuebook, {RUNS} runs together", rate, "steps/s", "at least 12x the floor", rate >= 12 * floor)
    known = _peers(folder, RUN_STEPS, RUNS, peers)
    for peer, figure in known.items():
        table.add(f"{peer}, {RUNS} runs together", 1000 / figure, "steps/s")
    if known:
        best = 1000 / min(known.values())
        table.add("Cuebook against the best peer", rate / best, "x", "at least 100x", rate >= 100 * best)


def waiting(table: Table, folder: Path) -> None:
    _say(f"{WAITING} waiting runs ...")
    result = _ours("waiting", folder, runs=WAITING)
    table.add(f"{WAITING:,} waiting runs", result["megabytes"], "MB", "under 60 MB", result["megabytes"] < 60)
    answer = result["answer"] * 1000
    table.add("answering and finishing one of them", answer, "ms", "under 50 ms", answer < 50)


def postgres(table: Table, folder: Path, rounds: int, peers: bool) -> None:
    """The same on Postgres: one run alone, and many runs together."""
    if not available():
        _say("No Postgres server is at hand: `make dev` installs one.")
        return
    alone, floors, rates, theirs = [], [], [], []
    with served(folder) as server:
        _say(f"Postgres: one run of 200 steps, {SHARED_RUNS} runs of {RUN_STEPS} steps ...")
        for _ in range(rounds):
            with server.schema() as url:
                floors.append(raw_postgres(server.url(), 200) / 200 * 1000)
                alone.append(_ours("one", folder, url, steps=200)["seconds"] / 200 * 1000)
            with server.schema() as url:
                seconds = _ours("together", folder, url, runs=SHARED_RUNS, steps=RUN_STEPS)["seconds"]
                rates.append(SHARED_RUNS * RUN_STEPS / seconds)
            if peers:
                with server.database() as url:
                    theirs.append(1000 / measure("dbos", RUN_STEPS, SHARED_RUNS, url=url)["ms_per_step"])
    mine, floor, rate = median(alone), median(floors), median(rates)
    table.add("Postgres floor, 200 steps", floor, "ms/step")
    table.add("Cuebook on Postgres, 200 steps", mine, "ms/step", "at most 3x the floor", mine <= 3 * floor)
    table.add(f"Cuebook on Postgres, {SHARED_RUNS} runs together", rate, "steps/s")
    if theirs:
        best = median(theirs)
        table.add(f"dbos on Postgres, {SHARED_RUNS} runs together", best, "steps/s")
        table.add("Cuebook on Postgres against dbos", rate / best, "x", "at least 10x", rate >= 10 * best)


def gated(table: Table, rounds: int) -> None:
    _say("commands through the gate ...")
    command = [sys.executable, "-m", "bench.gate", "--rounds", str(20 * rounds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    table.add(f"a command in {result['sandbox']}, without the gate", result["bare"], "ms")
    table.add("the same command through the gate", result["whole"], "ms")
    table.add("what the gate adds", result["added"], "ms", "under 1 ms", result["added"] < 1)


def programs(table: Table, rounds: int) -> None:
    """Model replies to natural-language programs, and the programs' turns: each has its own benchmark."""
    for what, module in (
        ("reading and verifying replies", "bench.program"),
        ("turns of a program", "bench.program_turns"),
    ):
        _say(f"{what} ...")
        command = [sys.executable, "-m", module, "--rounds", str(rounds), "--json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
        table.rows += json.loads(done.stdout.splitlines()[-1])


def agents(table: Table, folder: Path, rounds: int) -> None:
    """Turns of a node whose model calls tools, next to raw commits."""
    _say("turns of an agent ...")
    command = [sys.executable, "-m", "bench.agent_turns", "--rounds", str(rounds), "--json", "--folder", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    table.rows += json.loads(done.stdout.splitlines()[-1])


def children(table: Table, folder: Path, rounds: int) -> None:
    """What a child run adds to its steps."""
    _say("child runs ...")
    found = [added(folder) for _ in range(rounds)]
    commits = found[-1][1]
    table.add("commits that a child run adds", commits, "", f"at most {MOST_COMMITS}", commits < MOST_COMMITS + 0.1)
    table.add("its time", median(one[0] for one in found), "raw commits")


def loops(table: Table, folder: Path, rounds: int) -> None:
    """What an item of a long loop costs."""
    from bench.loops import measure

    _say("loops ...")
    measure(table, folder, rounds)


def starting(table: Table, rounds: int) -> None:
    _say("starting ...")
    for what, command, most in (
        ("import cuebook", ["-c", "import cuebook"], 150),
        ("cuebook --version", ["-m", "cuebook", "--version"], 250),
    ):
        figure = median(_cpu([sys.executable, *command]) for _ in range(max(5, rounds))) * 1000
        table.add(what, figure, "ms of CPU", f"under {most} ms", figure < most)
    found = first_request(max(5, rounds))
    modules, seconds = found["modules"], found["seconds"]
    table.add("cuebook run, Cuebook modules", modules, "modules", f"at most {MOST_MODULES}", modules <= MOST_MODULES)
    what = "cuebook run, until the first model request"
    table.add(what, seconds * 1000, "ms of CPU", f"at most {MOST_SECONDS * 1000:.0f} ms", seconds <= MOST_SECONDS)


READING = {"long": "a typical playbook of 200 KB", "dense": "200 KB of step headings"}


def reading(table: Table, rounds: int, peers: bool) -> None:
    _say("parsing Markdown playbooks of the maximum size ...")
    taken = compared(rounds, peers)
    for kind in TEXTS:
        ours = taken[f"cuebook parse {kind}"]
        table.add(f"Cuebook parses {READING[kind]}", ours, "ms of CPU", f"under {MOST:.0f} ms", ours < MOST)
        table.add("Cuebook checks it", taken[f"cuebook check {kind}"], "ms of CPU")
        theirs = taken.get(f"{PARSER} parse {kind}")
        if theirs is not None:
            table.add(f"{PARSER} parses it", theirs, "ms of CPU")
            table.add(f"Cuebook against {PARSER}", ours / theirs, "x")


def _cpu(command: list[str]) -> float:
    """Seconds of CPU that a command takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def dispatch(table: Table, folder: Path, rounds: int) -> None:
    """Workers on one database, with and without Temporal."""
    from bench.dispatch import measured

    if not available() or program() is None:
        _say("no Postgres or no Temporal server here: left out")
        return
    with served(folder) as server:
        found = measured(folder, server.schema, _say, LOADED_RUNS, WAITING, SAMPLE, 4 * rounds)
    for kind in ("Postgres", "Temporal"):
        one = found[f"{kind} 1"]
        table.add(f"{LOADED_RUNS} runs of 2 waiting effects, one worker, {kind}", one, "s")
        for workers, least in ((2, 1.7), (4, 3.0)):
            faster = one / found[f"{kind} {workers}"]
            table.add(f"{workers} workers, {kind}", faster, "x as fast", f"at least {least}x", faster >= least)
    for name in ("start", "answer"):
        figure = found[name]
        table.add(f"from the {name} to the first effect, Temporal", figure, "ms", "under 150 ms", figure < 150)
    grown = found["after"] - found["before"]
    table.add(f"a worker's memory for {WAITING:,} waiting runs", grown, "MB", "under 20 MB", grown < 20)
    table.add("runs brought to a question, one worker", found["rate"], "runs/s")


def machine() -> dict[str, Any]:
    name = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options.add_argument("--no-peers", action="store_true", help="leave out the other engines and parsers")
    options.add_argument("--only", choices=PARTS, help="run only this part")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--folder", type=Path, default=None, help="folder for the databases; default: the repository")
    chosen = options.parse_args()
    table, here = Table(), machine()
    print(", ".join(f"{name}: {value}" for name, value in here.items()))
    with tempfile.TemporaryDirectory(dir=chosen.folder or ROOT, prefix=".bench-") as place:
        folder = Path(place)
        peers = not chosen.no_peers
        if chosen.only in (None, "starting"):
            starting(table, chosen.rounds)
        if chosen.only in (None, "gated"):
            gated(table, chosen.rounds)
        if chosen.only in (None, "markdown"):
            reading(table, chosen.rounds, peers)
        if chosen.only in (None, "programs"):
            programs(table, chosen.rounds)
        if chosen.only in (None, "agents"):
            agents(table, folder, chosen.rounds)
        if chosen.only in (None, "children"):
            children(table, folder, chosen.rounds)
        if chosen.only in (None, "loops"):
            loops(table, folder, chosen.rounds)
        if chosen.only in (None, "alone"):
            alone(table, folder, chosen.rounds, peers)
        if chosen.only in (None, "together"):
            together(table, folder, chosen.rounds, peers)
        if chosen.only in (None, "waiting"):
            waiting(table, folder)
        if chosen.only in (None, "postgres"):
            postgres(table, folder, chosen.rounds, peers)
        if chosen.only in (None, "dispatch"):
            dispatch(table, folder, chosen.rounds)
    table.show()
    missed = [row["what"] for row in table.rows if row["met"] is False]
    print(f"{len(missed)} missed: {', '.join(missed)}" if missed else "every target met")
    if chosen.json:
        print(json.dumps({"machine": here, "rows": table.rows}))


if __name__ == "__main__":
    main()
