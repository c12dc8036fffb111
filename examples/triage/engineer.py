"""The model of the demo: an engineer whose moves are written down, so that the demo needs no key and is the same each time.

A move depends on nothing but the conversation, so a run that was killed continues as if nothing had happened.
"""

import json
import re
from typing import Any

Call = tuple[str, dict[str, Any]]

TESTS: Call = ("Bash", {"command": "python3 -m unittest", "description": "Run the tests"})


def _edit(old: str, new: str) -> Call:
    return ("Edit", {"file_path": "shop/prices.py", "old_string": old, "new_string": new})


INVESTIGATE: list[Call | str] = [
    ("Read", {"file_path": "logs/shop.log"}),
    ("Grep", {"pattern": "def discount|def to_pay"}),
    ("Read", {"file_path": "shop/prices.py"}),
    json.dumps(
        {
            "cause": "discount() divides a percentage by 10 instead of 100",
            "file": "shop/prices.py",
            "is_a_defect": True,
        }
    ),
]

# The first two changes leave the tests as they were.
FIX: list[Call | str] = [
    TESTS,
    _edit("    saved = discount(total, percent)\n", "    saved = discount(total, int(percent))\n"),
    TESTS,
    _edit("    saved = discount(total, int(percent))\n", "    saved = discount(total, percent)\n"),
    TESTS,
    _edit("return total * percent // 10\n", "return total * percent // 100\n"),
    TESTS,
    json.dumps({"summary": "A discount is now a hundredth of the total for each percent.", "tests_pass": True}),
]

BRANCH = "fix-discount"


def publish(host: str) -> list[Call | str]:
    commit = "git diff --quiet HEAD || git commit -q -a -m 'Divide a percentage by a hundred'"
    body = "`discount()` divided a percentage by 10, so a discount of 20 % was more than the total."
    pull = {"repo": "team/shop", "title": "Divide a percentage by a hundred", "head": BRANCH, "body": body}
    return [
        ("Bash", {"command": "git diff", "description": "Show the change"}),
        ("Bash", {"command": f"git checkout -q -B {BRANCH} && ({commit})", "description": "Commit on a branch"}),
        ("Bash", {"command": f"git push -q origin {BRANCH}", "network": [host], "description": "Push the branch"}),
        ("github_create_pr", pull),
        json.dumps({"branch": BRANCH, "pull_request": "team/shop#1"}),
    ]


INTERRUPTED = "may still have taken effect"
"""What Cuebook says of a call whose outcome is unknown, because its process was killed."""


def step(messages: list[dict[str, Any]]) -> int:
    """How many moves are behind. A move that was interrupted is made once more: all of them can be made twice."""
    results = {message["tool_call_id"]: str(message["content"]) for message in messages if message["role"] == "tool"}
    made, repeated = 0, False
    for message in messages:
        for call in message.get("tool_calls") or ():
            repeated = INTERRUPTED in results.get(call["id"], "") and not repeated
            made += not repeated
    return made


def move(request: dict[str, Any], host: str) -> Call | str:
    """The next call, or the final answer."""
    messages = request["messages"]
    wanted = json.dumps(request.get("response_format", {}))
    if '"choice"' in wanted:
        found = re.search(r'"enum": \["([^"]+)"', wanted)
        return json.dumps({"choice": found.group(1) if found else "", "reason": "the results say so"})
    said = " ".join(str(message.get("content")) for message in messages if message["role"] == "user")
    for words, moves in (
        ("Find the cause", INVESTIGATE),
        ("Fix the cause", FIX),
        ("Commit the fix", publish(host)),
    ):
        if words in said:
            return moves[min(step(messages), len(moves) - 1)]
    return "I do not know what to do."
