"""Tags the current commit with the message on stdin, and prints the tag as JSON: `make_tag.py NAME`.

It is idempotent: a tag that is already on this commit is left unchanged. So a step that is in doubt after a crash can
safely be repeated.
"""

import json
import subprocess
import sys


def git(*args: str) -> str:
    return subprocess.run(["git", *args], check=True, capture_output=True, text=True).stdout.strip()


def main(name: str, message: str) -> None:
    if not git("tag", "--list", name):
        git("tag", "--annotate", "--cleanup=verbatim", f"--message={message.strip() or name}", "--", name)
    here, there = git("rev-parse", "HEAD"), git("rev-parse", f"refs/tags/{name}^{{commit}}")
    print(json.dumps({"tag": name, "commit": there, "on_this_commit": here == there}))


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin.read())
