"""How long it takes to parse and verify a model's reply, measured on the recordings next to the project.

    python -m bench.program [--rounds 5] [--json]

Each reply is parsed and verified against the listing it most likely executed. For each reply, the shortest time of all rounds
counts; the figures are medians over all replies. Without the recordings, a reply of our own is measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.run import Table
from cuebook.dialects.program.listing import Listing, Position
from cuebook.dialects.program.reply.reader import ReplyError, parse_reply
from cuebook.dialects.program.verify.verdicts import State
from cuebook.dialects.program.verify.verifier import verify_reply

DATA = Path(__file__).resolve().parents[2] / "shared/data/program"
MOST = 1.0
"""Maximum milliseconds for a reply, as the median."""

OWN = Listing.of_rows(
    "Main",
    [("01", "QUE", "Say(user, Which seat?)"), ("02", "YLD", "for user"), ("03", "QUE", "$s:dict = Find(s=$seat)"), ("04", "RET", "$s")],
)  # fmt: skip
REPLY = """\
recap – the program starts
plan – ask for the seat
`Step["Main:01:QUE"]` `Say("user", "Which seat would you like? There are 3A, 4C and 5F, all of them at the window.")`
trig? no
yld? yes, Main:02:YLD waits for the user
`Step["Main:02:YLD"]` yld for user
"""


def recorded() -> list[tuple[str, Listing]]:
    """Replies with their listings, matched by name and by the most lines in common."""
    if not DATA.exists():
        return [(REPLY, OWN)] * 200
    compiled = json.loads((DATA / "compiled_listings.json").read_text(encoding="utf-8"))
    listings = {name: [Listing.of_rows(name, rows) for rows in many] for name, many in compiled.items()}
    found = []
    for line in (DATA / "recorded_replies.jsonl").read_text(encoding="utf-8").splitlines():
        text = json.loads(line)["text"]
        try:
            steps = [step for step in parse_reply(text).steps if step.is_line]
        except ReplyError:
            steps = []
        numbers = {step.line for step in steps}
        known = listings.get(steps[0].playbook, []) if steps else []
        if known:
            found.append((text, max(known, key=lambda one: len(numbers & one.by_number.keys()))))
    return found


def measured(rounds: int) -> dict[str, Any]:
    pairs = recorded()
    state = State()
    reading, both = [float("inf")] * len(pairs), [float("inf")] * len(pairs)
    for _ in range(rounds):
        for at, (text, listing) in enumerate(pairs):
            began = time.perf_counter()
            reply = parse_reply(text)
            read = time.perf_counter()
            verify_reply(listing, Position(reply.steps[0].line), state, reply)
            ended = time.perf_counter()
            reading[at], both[at] = min(reading[at], read - began), min(both[at], ended - began)
    return {
        "replies": len(pairs),
        "read": median(reading) * 1000,
        "both": median(both) * 1000,
        "tail": quantiles(both, n=100)[98] * 1000,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    gc.freeze()
    result = measured(chosen.rounds)
    table = Table()
    table.add(f"parsing a reply, median of {result['replies']:,}", result["read"], "ms")
    table.add("parsing and verifying", result["both"], "ms", f"under {MOST:.0f} ms", result["both"] < MOST)
    table.add("  99th percentile", result["tail"], "ms")
    table.show()
    if chosen.json:
        print(json.dumps(table.rows))


if __name__ == "__main__":
    main()
